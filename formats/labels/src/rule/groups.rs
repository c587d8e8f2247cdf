//! What the groups of a pattern matched.

use std::ops::Range;

use regex_automata::util::primitives::NonMaxUsize;

/// Number of slots on the stack: few patterns have more groups.
pub(super) const FEW: usize = 8;

pub(super) type Slot = Option<NonMaxUsize>;

/// The whole match and its groups.
pub(super) type Spans = [Option<Range<usize>>; 4];

/// The group positions of a match.
pub enum Groups {
    Spans(Spans),
    Few([Slot; 2 * FEW]),
    Many(Vec<Slot>),
}

impl Groups {
    pub fn span(&self, group: usize) -> Option<Range<usize>> {
        let slots: &[Slot] = match self {
            Groups::Spans(spans) => return spans.get(group)?.clone(),
            Groups::Few(slots) => slots,
            Groups::Many(slots) => slots,
        };
        let start = slots.get(2 * group).copied()??.get();
        let end = slots.get(2 * group + 1).copied()??.get();
        Some(start..end)
    }
}
