//! The functions at a location, in little memory.

use std::borrow::Borrow;
use std::hash::{Hash, Hasher};
use std::ops::Deref;

use profcol_flamegraph::FrameId;

/// Outermost first. Most locations have one.
#[derive(Clone, Debug)]
pub(super) enum Functions {
    One([FrameId; 1]),
    Several(Box<[FrameId]>),
}

impl Functions {
    pub fn heap_size(&self) -> usize {
        match self {
            Self::One(_) => 0,
            Self::Several(functions) => allocated(size_of_val(&**functions)),
        }
    }
}

impl From<&[FrameId]> for Functions {
    fn from(functions: &[FrameId]) -> Self {
        match functions {
            &[one] => Self::One([one]),
            several => Self::Several(several.into()),
        }
    }
}

impl Deref for Functions {
    type Target = [FrameId];

    fn deref(&self) -> &[FrameId] {
        match self {
            Self::One(one) => one,
            Self::Several(functions) => functions,
        }
    }
}

impl Borrow<[FrameId]> for Functions {
    fn borrow(&self) -> &[FrameId] {
        self
    }
}

impl PartialEq for Functions {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Functions {}

/// As a slice, by which it can be looked up.
impl Hash for Functions {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (**self).hash(state);
    }
}

/// The memory that an allocation of this size takes.
pub(super) fn allocated(bytes: usize) -> usize {
    /// The allocator's own word.
    const HEADER: usize = 8;
    const STEP: usize = 16;
    const SMALLEST: usize = 32;
    (bytes + HEADER).next_multiple_of(STEP).max(SMALLEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_location_with_one_function_takes_no_allocation() {
        assert_eq!(size_of::<Functions>(), 16);
        assert_eq!(allocated(4), 32);
        assert_eq!(allocated(40), 48);
    }
}
