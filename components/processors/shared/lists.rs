//! Changes of the attribute lists in a dictionary.

use std::collections::HashMap;

use profcol_profile::{Attribute, AttributeIdx, Attributes, Dictionary, KeyValue, StringIdx};

/// A dictionary to which new attributes are appended without deduplication:
/// garbage collection merges duplicates.
pub(crate) struct Rows<'a> {
    pub before: &'a Dictionary,
    /// `None` while nothing was appended.
    after: Option<Dictionary>,
}

/// The result of one change for each list.
pub(crate) struct Lists<'a, F> {
    pub rows: Rows<'a>,
    change: F,
    /// `None` for an unchanged list.
    known: HashMap<Vec<AttributeIdx>, Option<Vec<AttributeIdx>>>,
    is_changed: bool,
}

// === impl Rows ===

impl<'a> Rows<'a> {
    pub fn of(dictionary: &'a Dictionary) -> Self {
        Self {
            before: dictionary,
            after: None,
        }
    }

    pub fn key(&self, index: AttributeIdx) -> Option<&'a str> {
        let row = self.before.attributes.get(index)?;
        Some(self.before.strings.get(row.key))
    }

    pub fn attributes(&self, list: &[AttributeIdx]) -> Attributes {
        let attributes = list.iter().filter_map(|&index| {
            let row = self.before.attributes.get(index)?;
            Some(KeyValue::new(self.key(index)?, row.value.clone()))
        });
        attributes.collect()
    }

    /// The index of an attribute, which may be one of those in `list`. A changed value keeps its unit.
    pub fn row(&mut self, list: &[AttributeIdx], new: KeyValue) -> AttributeIdx {
        let mut unit = StringIdx::default();
        for &index in list {
            if self.key(index) == Some(&*new.key)
                && let Some(old) = self.before.attributes.get(index)
            {
                if old.value == new.value {
                    return index;
                }
                unit = old.unit;
            }
        }
        let after = self.after.get_or_insert_with(|| self.before.clone());
        let key = after.strings.push(&new.key);
        after.attributes.push(Attribute {
            key,
            value: new.value,
            unit,
        })
    }

    /// The dictionary with the new attributes.
    pub fn finish(self) -> Dictionary {
        self.after.unwrap_or_else(|| self.before.clone())
    }
}

// === impl Lists ===

impl<'a, F: FnMut(&mut Attributes) -> bool> Lists<'a, F> {
    pub fn new(dictionary: &'a Dictionary, change: F) -> Self {
        Self {
            rows: Rows::of(dictionary),
            change,
            known: HashMap::new(),
            is_changed: false,
        }
    }

    /// `None` if the list does not change.
    pub fn changed(&mut self, list: &[AttributeIdx]) -> Option<&[AttributeIdx]> {
        if !self.known.contains_key(list) {
            let changed = self.change(list);
            self.is_changed |= changed.is_some();
            self.known.insert(list.to_vec(), changed);
        }
        self.known.get(list)?.as_deref()
    }

    /// The dictionary with the changed lists; `None` if none was changed.
    pub fn finish(self) -> Option<Dictionary> {
        self.is_changed.then(|| self.rows.finish())
    }

    fn change(&mut self, list: &[AttributeIdx]) -> Option<Vec<AttributeIdx>> {
        let mut attributes = self.rows.attributes(list);
        if !(self.change)(&mut attributes) {
            return None;
        }
        let changed = attributes.into_iter().map(|new| self.rows.row(list, new));
        Some(changed.collect())
    }
}
