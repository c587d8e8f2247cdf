//! Attributes as labels.

use std::borrow::Cow;
use std::collections::HashSet;
use std::hash::BuildHasher;

use foldhash::fast::FixedState;
use hashbrown::HashTable;
use profcol_profile::{Attributes, KeyValue};

use crate::names::{ALIASES, Alias, LabelSource, sanitized, text};

/// Derived from the name of the executable.
pub(crate) const COMM: &str = "process.comm";
const EXECUTABLE_NAME: &str = "process.executable.name";
const RUNTIME: &str = "container.runtime.name";
/// Length of a task's name (`comm`) in the kernel.
const COMM_BYTES: usize = 15;

/// An attribute as a label: its value and its names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    name: Cow<'static, str>,
    aliases: Vec<Cow<'static, str>>,
    pub(crate) text: String,
    pub(crate) origin: Origin,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    Attribute,
    /// Derived from another attribute.
    Concluded,
    /// Only states that an attribute is present.
    Presence,
}

/// The labels made from attributes, sorted by name; no two share a name.
#[derive(Clone, Debug, Default)]
pub struct LabelRows {
    rows: Vec<Row>,
    /// All names.
    names: HashTable<Name>,
}

#[derive(Clone, Copy, Debug)]
struct Name {
    hash: u64,
    row: usize,
}

// === impl Row ===

impl Row {
    /// A label with a single name.
    pub fn new(name: &str, text: &str) -> Self {
        Self {
            name: Cow::Owned(name.to_owned()),
            aliases: Vec::new(),
            text: text.to_owned(),
            origin: Origin::Attribute,
        }
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn aliases(&self) -> impl Iterator<Item = &str> {
        self.aliases.iter().map(|name| &**name)
    }

    /// Whether it stands for an existing attribute.
    pub fn is_attribute(&self) -> bool {
        self.origin == Origin::Attribute
    }

    pub fn text(&self) -> &str {
        &self.text
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        std::iter::once(&*self.name).chain(self.aliases())
    }

    fn is_called(&self, name: &str) -> bool {
        self.name == name || self.aliases.iter().any(|alias| alias == name)
    }
}

// === impl LabelRows ===

impl LabelRows {
    /// From labels with one name each.
    pub fn of_labels<'a>(labels: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let labels = labels.into_iter().filter(|(_, text)| !text.is_empty());
        Self::sorted(labels.map(|(name, text)| Row::new(name, text)).collect())
    }

    /// From the attributes of a resource; those of a sample can be added.
    pub fn of_resource(attributes: &Attributes) -> Self {
        let mut taken: HashSet<Cow<'_, str>> = attributes
            .iter()
            .map(|attribute| Cow::Borrowed(&*attribute.key))
            .collect();
        let value = |key: &str| attributes.iter().find(|it| &*it.key == key)?.value.as_str();
        let runtime = value(RUNTIME);
        let mut rows: Vec<Row> = Vec::with_capacity(attributes.len() + 1);
        for KeyValue { key, value } in attributes {
            let is_duplicate = rows.iter().any(|row| row.name == **key);
            let Some(text) = text(value).filter(|_| !is_duplicate) else {
                continue;
            };
            let labels = labels_for(key, runtime);
            for (label, source) in &labels {
                if *source == LabelSource::Presence && taken.insert(label.clone()) {
                    rows.push(Row {
                        name: label.clone(),
                        aliases: Vec::new(),
                        text: "true".to_owned(),
                        origin: Origin::Presence,
                    });
                }
            }
            let aliases = labels
                .into_iter()
                .filter(|(_, it)| *it != LabelSource::Presence);
            let sanitized = Cow::Owned(sanitized(key).into_owned());
            let aliases = std::iter::once(sanitized).chain(aliases.map(|(label, _)| label));
            rows.push(Row {
                aliases: aliases.filter(|name| taken.insert(name.clone())).collect(),
                ..Row::new(key, &text)
            });
        }
        if let Some(name) = value(EXECUTABLE_NAME).filter(|name| !name.is_empty())
            && taken.insert(Cow::Borrowed(COMM))
        {
            let aliases = [Cow::Borrowed("process_comm"), Cow::Borrowed("comm")].into_iter();
            rows.push(Row {
                aliases: aliases.filter(|name| taken.insert(name.clone())).collect(),
                origin: Origin::Concluded,
                ..Row::new(COMM, start_of(name, COMM_BYTES))
            });
        }
        Self::sorted(rows)
    }

    pub(crate) fn find(&self, name: &str) -> Option<usize> {
        let has_name = |entry: &Name| self.at(entry.row).is_called(name);
        Some(self.names.find(hash(name), has_name)?.row)
    }

    /// A row that was found.
    pub(crate) fn at(&self, row: usize) -> &Row {
        &self.rows[row]
    }

    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    pub fn iter(&self) -> impl Iterator<Item = &Row> {
        self.rows.iter()
    }

    fn sorted(mut rows: Vec<Row>) -> Self {
        rows.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        let mut names = HashTable::with_capacity(rows.len());
        for (row, content) in rows.iter().enumerate() {
            for name in content.names() {
                let hash = hash(name);
                names.insert_unique(hash, Name { hash, row }, |name| name.hash);
            }
        }
        Self { rows, names }
    }
}

fn labels_for(key: &str, runtime: Option<&str>) -> Vec<(Cow<'static, str>, LabelSource)> {
    let fits = |alias: &&Alias| alias.runtime.is_none() || alias.runtime == runtime;
    let label = |alias: &Alias| Some((alias.label_for(key)?, alias.source));
    ALIASES.iter().filter(fits).filter_map(label).collect()
}

fn hash(name: &str) -> u64 {
    FixedState::default().hash_one(name)
}

fn start_of(text: &str, bytes: usize) -> &str {
    text.get(..text.floor_char_boundary(bytes)).unwrap_or(text)
}
