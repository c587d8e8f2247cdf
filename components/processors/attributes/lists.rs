//! Lists of attributes of a dictionary, and what changes make of them.

use std::collections::HashMap;

use profcol_profile::{Attribute, AttributeIdx, Attributes, Dictionary, KeyValue, StringIdx};

/// What became of each list. New rows are added to the dictionary without looking whether they
/// stand there already: garbage collection finds those that do.
pub(super) struct Lists<'a, F> {
    before: &'a Dictionary,
    after: Dictionary,
    change: F,
    /// `None` for a list that stays as it is.
    known: HashMap<Vec<AttributeIdx>, Option<Vec<AttributeIdx>>>,
    is_changed: bool,
}

impl<'a, F: FnMut(&mut Attributes) -> bool> Lists<'a, F> {
    pub fn new(dictionary: &'a Dictionary, change: F) -> Self {
        Self {
            before: dictionary,
            after: dictionary.clone(),
            change,
            known: HashMap::new(),
            is_changed: false,
        }
    }

    pub fn dictionary(&self) -> &'a Dictionary {
        self.before
    }

    /// `None` where the list stays as it is.
    pub fn changed(&mut self, list: &[AttributeIdx]) -> Option<&[AttributeIdx]> {
        if !self.known.contains_key(list) {
            let changed = self.change(list);
            self.is_changed |= changed.is_some();
            self.known.insert(list.to_vec(), changed);
        }
        self.known.get(list)?.as_deref()
    }

    /// The dictionary in which the changed lists stand; `None` where none was changed.
    pub fn finish(self) -> Option<Dictionary> {
        self.is_changed.then_some(self.after)
    }

    fn change(&mut self, list: &[AttributeIdx]) -> Option<Vec<AttributeIdx>> {
        let mut attributes: Attributes = list.iter().filter_map(|&it| self.attribute(it)).collect();
        if !(self.change)(&mut attributes) {
            return None;
        }
        let changed = attributes.into_iter().map(|new| self.row(list, new));
        Some(changed.collect())
    }

    fn attribute(&self, index: AttributeIdx) -> Option<KeyValue> {
        let row = self.before.attributes.get(index)?;
        let key = self.before.strings.get(row.key);
        Some(KeyValue::new(key, row.value.clone()))
    }

    /// The row of an attribute, which may be one of those that were in the list. A changed value
    /// keeps its unit.
    fn row(&mut self, list: &[AttributeIdx], new: KeyValue) -> AttributeIdx {
        let mut unit = StringIdx::default();
        for &index in list {
            let Some(old) = self.before.attributes.get(index) else {
                continue;
            };
            if self.before.strings.get(old.key) == &*new.key {
                if old.value == new.value {
                    return index;
                }
                unit = old.unit;
            }
        }
        let key = self.after.strings.push(&new.key);
        self.after.attributes.push(Attribute {
            key,
            value: new.value,
            unit,
        })
    }
}
