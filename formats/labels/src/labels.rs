//! A mutable label set for relabel rules.
//!
//! Most rules only read, and few labels change: the set borrows its rows and records changes separately. It keeps
//! Prometheus' order: the original labels by name, then the labels set by rules in the order they were set. The order
//! decides which label wins when two map to one name.

use std::borrow::Cow;

use smallvec::SmallVec;

use crate::rows::{LabelRows, Row};

/// Labels by name.
#[derive(Clone, Debug)]
pub struct Labels<'a> {
    rows: &'a LabelRows,
    /// The state of each row; empty while nothing has changed.
    states: Vec<State>,
    /// Inline while there are few, the usual case.
    set: SmallVec<[Set<'a>; 4]>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Given,
    Removed,
    /// Index into the list of set labels.
    Set(usize),
}

/// A label set by a rule; `None` once removed again.
#[derive(Clone, Debug)]
struct Set<'a> {
    name: Named<'a>,
    value: Cow<'a, str>,
}

#[derive(Clone, Debug)]
enum Named<'a> {
    /// All names of the row.
    Row(usize),
    New(Cow<'a, str>),
}

/// One label of a set.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Label<'l> {
    /// The attribute it comes from, if any.
    pub row: Option<&'l Row>,
    /// The name of a label that does not come from an attribute.
    new: &'l str,
    pub value: &'l str,
    /// Whether a rule set it.
    pub is_set: bool,
}

impl LabelRows {
    pub fn labels(&self) -> Labels<'_> {
        Labels {
            rows: self,
            states: Vec::new(),
            set: SmallVec::new(),
        }
    }
}

impl<'a> Labels<'a> {
    pub fn get(&self, name: &str) -> Option<&str> {
        match self.find_source(name) {
            Some(LabelSource::Given(row)) => Some(self.rows.at(row).text()),
            Some(LabelSource::Set(set)) => Some(&self.set[set].value),
            None => None,
        }
    }

    /// The value, borrowed from the rows if unchanged; empty for a missing label.
    pub(crate) fn value(&self, name: &str) -> Cow<'a, str> {
        match self.find_source(name) {
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

    /// An empty value removes the label.
    pub(crate) fn set(&mut self, name: Cow<'a, str>, value: Cow<'a, str>) {
        if value.is_empty() {
            return self.remove(&name);
        }
        let row = self.rows.find(&name);
        let index = match row {
            Some(row) => self.state(row).set(),
            None => self.position(&name),
        };
        if let Some(set) = index {
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
        let index = match self.rows.find(name) {
            Some(row) => {
                let index = self.state(row).set();
                self.note(row, State::Removed);
                index
            }
            None => self.position(name),
        };
        if let Some(set) = index {
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
        for index in 0..self.set.len() {
            if keep(self.label(&self.set[index])) {
                continue;
            }
            self.set[index].value = Cow::Borrowed("");
            if let Named::Row(row) = self.set[index].name {
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

    fn find_source(&self, name: &str) -> Option<LabelSource> {
        if let Some(row) = self.rows.find(name) {
            return match self.state(row) {
                State::Given => Some(LabelSource::Given(row)),
                State::Set(set) => Some(LabelSource::Set(set)),
                State::Removed => None,
            };
        }
        self.position(name).map(LabelSource::Set)
    }

    /// Finds a label that does not come from an attribute.
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

/// Where the value of a label is stored.
enum LabelSource {
    Given(usize),
    Set(usize),
}

impl<'l> Label<'l> {
    pub fn name(&self) -> &'l str {
        self.row.map_or(self.new, Row::name)
    }

    /// All names, the attribute's key first.
    pub fn names(&self) -> impl Iterator<Item = &'l str> {
        let new = self.row.is_none().then_some(self.new);
        self.row.into_iter().flat_map(Row::names).chain(new)
    }
}
