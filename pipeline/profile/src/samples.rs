//! The columns of samples.

use std::ops::Range;

use crate::{AttributeIdx, LinkIdx, Lists, StackIdx};

/// The samples of a profile, in columns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Samples {
    stacks: Vec<StackIdx>,
    links: Vec<LinkIdx>,
    attributes: Lists<AttributeIdx>,
    values: Lists<i64>,
    timestamps: Lists<u64>,
}

/// One sample, borrowed from its columns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SampleRef<'a> {
    pub stack: StackIdx,
    pub link: LinkIdx,
    pub attributes: &'a [AttributeIdx],
    pub values: &'a [i64],
    pub timestamps: &'a [u64],
}

impl SampleRef<'_> {
    /// The sum of all observations. Without values, each timestamp counts as one.
    pub fn observed(&self) -> i64 {
        match self.values {
            [] => i64::try_from(self.timestamps.len()).unwrap_or(i64::MAX),
            values => values.iter().copied().fold(0, i64::saturating_add),
        }
    }
}

impl Samples {
    pub fn len(&self) -> usize {
        self.stacks.len()
    }

    pub fn is_empty(&self) -> bool {
        self.stacks.is_empty()
    }

    /// Removes all samples but keeps the capacity.
    pub fn clear(&mut self) {
        self.stacks.clear();
        self.links.clear();
        self.attributes.clear();
        self.values.clear();
        self.timestamps.clear();
    }

    pub fn push(&mut self, sample: SampleRef<'_>) {
        self.stacks.push(sample.stack);
        self.links.push(sample.link);
        self.attributes.push(sample.attributes);
        self.values.push(sample.values);
        self.timestamps.push(sample.timestamps);
    }

    pub fn get(&self, row: usize) -> Option<SampleRef<'_>> {
        Some(SampleRef {
            stack: *self.stacks.get(row)?,
            link: *self.links.get(row)?,
            attributes: self.attributes.get(row),
            values: self.values.get(row),
            timestamps: self.timestamps.get(row),
        })
    }

    pub fn iter(&self) -> impl Iterator<Item = SampleRef<'_>> {
        (0..self.len()).filter_map(|row| self.get(row))
    }

    // Totals over all samples.

    pub fn attribute_count(&self) -> usize {
        self.attributes.items().len()
    }

    pub fn value_count(&self) -> usize {
        self.values.items().len()
    }

    pub fn timestamp_count(&self) -> usize {
        self.timestamps.items().len()
    }

    /// Appends rows of another profile, translating indices to this profile's dictionary.
    pub(crate) fn extend_translated(
        &mut self,
        other: &Self,
        rows: Range<usize>,
        translate: &impl Translate,
    ) {
        let stacks = other.stacks.get(rows.clone()).unwrap_or_default();
        let links = other.links.get(rows.clone()).unwrap_or_default();
        self.stacks
            .extend(stacks.iter().map(|&stack| translate.stack(stack)));
        self.links
            .extend(links.iter().map(|&link| translate.link(link)));
        self.attributes
            .extend_mapped(&other.attributes, rows.clone(), |attribute| {
                translate.attribute(attribute)
            });
        self.values
            .extend_mapped(&other.values, rows.clone(), |value| value);
        self.timestamps
            .extend_mapped(&other.timestamps, rows, |timestamp| timestamp);
    }
}

/// Translates row indices between dictionaries.
pub(crate) trait Translate {
    fn stack(&self, index: StackIdx) -> StackIdx;
    fn link(&self, index: LinkIdx) -> LinkIdx;
    fn attribute(&self, index: AttributeIdx) -> AttributeIdx;
}
