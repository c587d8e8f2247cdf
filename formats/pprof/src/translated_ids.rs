//! Which rows of a batch became which rows of the file.

use std::sync::{Arc, Weak};

use foldhash::fast::RandomState;
use hashbrown::HashMap;
use profcol_profile::{Dictionary, FunctionIdx, LocationIdx, MappingIdx, StackIdx};

/// Maps rows of a batch to rows of the file.
///
/// Kept between calls: the sets of a batch share a dictionary, and usually stacks too.
#[derive(Default)]
pub(super) struct TranslatedIds {
    dictionary: Weak<Dictionary>,
    pub functions: Map<FunctionIdx>,
    pub mappings: Map<MappingIdx>,
    pub locations: Map<LocationIdx>,
    pub stacks: Map<StackIdx>,
}

type Map<Index> = HashMap<Index, u32, RandomState>;

impl TranslatedIds {
    pub fn of(self, dictionary: &Arc<Dictionary>) -> Self {
        // The weak reference prevents reuse of the address.
        if Weak::as_ptr(&self.dictionary) == Arc::as_ptr(dictionary) {
            return self;
        }
        Self {
            dictionary: Arc::downgrade(dictionary),
            ..Self::default()
        }
    }

    pub fn heap_size(&self) -> usize {
        const BYTES_PER_ROW: usize = size_of::<(StackIdx, u32)>() + 1;
        let rows = self.functions.capacity()
            + self.mappings.capacity()
            + self.locations.capacity()
            + self.stacks.capacity();
        rows * BYTES_PER_ROW
    }
}
