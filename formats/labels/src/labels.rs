//! A set of labels while rules work on it.
//!
//! Most rules read, and few labels change: the set borrows its rows and notes the changes beside them.
//! The order is Prometheus': what was given, by name, and behind it what rules set, as it came. It
//! decides which of two labels wins that are mapped to one name.

use std::borrow::Cow;

use smallvec::SmallVec;

use crate::{Row, Rows};

/// Labels by their names.
#[derive(Clone, Debug)]
pub struct Labels<'a> {
    rows: &'a Rows,
    /// What became of each row; empty as long as nothing did.
    states: Vec<State>,
    /// In place as long as they are few, as most are.
    set: SmallVec<[Set<'a>; 4]>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Given,
    Removed,
    /// The place in the list of what was set.
    Set(usize),
}

/// A label that a rule set; without a value when it was removed again.
#[derive(Clone, Debug)]
struct Set<'a> {
    name: Named<'a>,
    value: Cow<'a, str>,
}

#[derive(Clone, Debug)]
enum Named<'a> {
    /// All names of that row.
    Row(usize),
    New(Cow<'a, str>),
}

/// One label of a set.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Label<'l> {
    /// What it was made from.
    pub row: Option<&'l Row>,
    /// Of one that was made from nothing.
    new: &'l str,
    pub value: &'l str,
    /// Whether a rule set it.
    pub is_set: bool,
}

impl<'a> Labels<'a> {
    pub(crate) fn new(rows: &'a Rows) -> Self {
        Self {
            rows,
            states: Vec::new(),
            set: SmallVec::new(),
        }
    }

    pub fn get(&self, name: &str) -> Option<&str> {
        match self.place(name) {
            Some(LabelSource::Given(row)) => Some(self.rows.at(row).text()),
            Some(LabelSource::Set(set)) => Some(&self.set[set].value),
            None => None,
        }
    }

    /// The value, borrowed from the rows where it stands there; empty where there is no such label.
    pub(crate) fn value(&self, name: &str) -> Cow<'a, str> {
        match self.place(name) {
            Some(LabelSource::Given(row)) => Cow::Borrowed(self.rows.at(row).text()),
            Some(LabelSource::Set(set)) => self.set[set].value.clone(),
            None => Cow::Borrowed(""),
        }
    }

    /// Each label under its first name, sorted.
    pub fn sorted(&self) -> Vec<(&str, &str)> {
        let mut all: Vec<_> = self.iter().map(|it| (it.name(), it.value)).collect();
        all.sort_unstable();
        all
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = Label<'_>> {
        let given = self.rows.iter().enumerate();
        let given = given.filter(|(row, _)| self.state(*row) == State::Given);
        let given = given.map(|(_, row)| Label {
            row: Some(row),
            new: "",
            value: row.text(),
            is_set: false,
        });
        let set = self.set.iter().filter(|set| !set.value.is_empty());
        given.chain(set.map(|set| self.label(set)))
    }

    /// An empty value is none.
    pub(crate) fn set(&mut self, name: Cow<'a, str>, value: Cow<'a, str>) {
        if value.is_empty() {
            return self.remove(&name);
        }
        let row = self.rows.find(&name);
        let known = match row {
            Some(row) => self.state(row).set(),
            None => self.position(&name),
        };
        if let Some(set) = known {
            self.set[set].value = value;
            return;
        }
        let name = match row {
            Some(row) => {
                self.note(row, State::Set(self.set.len()));
                Named::Row(row)
            }
            None => Named::New(name),
        };
        self.set.push(Set { name, value });
    }

    pub(crate) fn remove(&mut self, name: &str) {
        let known = match self.rows.find(name) {
            Some(row) => {
                let known = self.state(row).set();
                self.note(row, State::Removed);
                known
            }
            None => self.position(name),
        };
        if let Some(set) = known {
            self.set[set].value = Cow::Borrowed("");
        }
    }

    pub(crate) fn retain(&mut self, keep: impl Fn(Label<'_>) -> bool) {
        for (number, row) in self.rows.iter().enumerate() {
            let label = Label {
                row: Some(row),
                new: "",
                value: row.text(),
                is_set: false,
            };
            if self.state(number) == State::Given && !keep(label) {
                self.note(number, State::Removed);
            }
        }
        for place in 0..self.set.len() {
            if keep(self.label(&self.set[place])) {
                continue;
            }
            self.set[place].value = Cow::Borrowed("");
            if let Named::Row(row) = self.set[place].name {
                self.note(row, State::Removed);
            }
        }
    }

    fn label<'l>(&'l self, set: &'l Set<'_>) -> Label<'l> {
        let (row, new) = match &set.name {
            Named::Row(row) => (Some(self.rows.at(*row)), ""),
            Named::New(name) => (None, &**name),
        };
        Label {
            row,
            new,
            value: &set.value,
            is_set: true,
        }
    }

    fn place(&self, name: &str) -> Option<LabelSource> {
        if let Some(row) = self.rows.find(name) {
            return match self.state(row) {
                State::Given => Some(LabelSource::Given(row)),
                State::Set(set) => Some(LabelSource::Set(set)),
                State::Removed => None,
            };
        }
        self.position(name).map(LabelSource::Set)
    }

    /// Of a label that was made from nothing.
    fn position(&self, name: &str) -> Option<usize> {
        let is_it = |set: &Set<'_>| {
            matches!(&set.name, Named::New(new) if new == name) && !set.value.is_empty()
        };
        self.set.iter().position(is_it)
    }

    fn state(&self, row: usize) -> State {
        self.states.get(row).copied().unwrap_or(State::Given)
    }

    fn note(&mut self, row: usize, state: State) {
        if self.states.is_empty() {
            self.states.resize(self.rows.len(), State::Given);
        }
        self.states[row] = state;
    }
}

impl State {
    fn set(self) -> Option<usize> {
        match self {
            State::Set(set) => Some(set),
            State::Given | State::Removed => None,
        }
    }
}

/// Where the value of a label stands.
enum LabelSource {
    Given(usize),
    Set(usize),
}

impl<'l> Label<'l> {
    pub fn name(&self) -> &'l str {
        self.row.map_or(self.new, Row::name)
    }

    /// All names, the attribute's own first.
    pub fn names(&self) -> impl Iterator<Item = &'l str> {
        let new = self.row.is_none().then_some(self.new);
        self.row.into_iter().flat_map(Row::names).chain(new)
    }
}
