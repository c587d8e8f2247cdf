//! A set of labels while rules work on it.
//!
//! The order is Prometheus': what was given, by name, and behind it what rules set, as it came. It
//! decides which of two labels wins that are mapped to one name.

use std::borrow::Cow;

use crate::Row;

/// Labels by their names. What nothing changed is borrowed.
#[derive(Clone, Debug)]
pub struct Labels<'a>(Vec<Label<'a>>);

#[derive(Clone, Debug)]
pub(crate) struct Label<'a> {
    names: Names<'a>,
    pub value: Cow<'a, str>,
    /// Whether a rule set it.
    pub is_set: bool,
}

#[derive(Clone, Debug)]
enum Names<'a> {
    Given(&'a Row),
    New(Cow<'a, str>),
}

impl<'a> Labels<'a> {
    /// Of rows in the order of their names.
    pub fn new(rows: &'a [Row]) -> Self {
        let label = |row: &'a Row| Label {
            names: Names::Given(row),
            value: Cow::Borrowed(&*row.text),
            is_set: false,
        };
        Self(rows.iter().map(label).collect())
    }

    pub fn get(&self, name: &str) -> Option<&str> {
        let label = self.0.iter().find(|label| label.is_called(name));
        label.map(|label| &*label.value)
    }

    /// Each label under its first name, sorted.
    pub fn sorted(&self) -> Vec<(&str, &str)> {
        let mut all: Vec<_> = self.0.iter().map(|it| (it.name(), &*it.value)).collect();
        all.sort_unstable();
        all
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Label<'a>> {
        self.0.iter()
    }

    /// An empty value is none.
    pub(crate) fn set(&mut self, name: Cow<'a, str>, value: Cow<'a, str>) {
        if value.is_empty() {
            return self.remove(&name);
        }
        let place = self.0.iter().position(|label| label.is_called(&name));
        let names = match place {
            Some(place) if self.0[place].is_set => {
                self.0[place].value = value;
                return;
            }
            Some(place) => self.0.remove(place).names,
            None => Names::New(name),
        };
        self.0.push(Label {
            names,
            value,
            is_set: true,
        });
    }

    pub(crate) fn remove(&mut self, name: &str) {
        self.0.retain(|label| !label.is_called(name));
    }

    pub(crate) fn retain(&mut self, keep: impl FnMut(&Label<'a>) -> bool) {
        self.0.retain(keep);
    }
}

impl Label<'_> {
    pub fn name(&self) -> &str {
        match &self.names {
            Names::Given(row) => row.name(),
            Names::New(name) => name,
        }
    }

    /// What it was made from.
    pub fn row(&self) -> Option<&Row> {
        match &self.names {
            Names::Given(row) => Some(row),
            Names::New(_) => None,
        }
    }

    /// All names, the attribute's own first.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let (given, new) = match &self.names {
            Names::Given(row) => (Some(row.names()), None),
            Names::New(name) => (None, Some(&**name)),
        };
        given.into_iter().flatten().chain(new)
    }

    fn is_called(&self, name: &str) -> bool {
        match &self.names {
            Names::Given(row) => row.is_called(name),
            Names::New(own) => own == name,
        }
    }
}
