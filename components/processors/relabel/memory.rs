//! What rules come to, remembered by attributes: a process is the same in the next batch.

use std::sync::{Arc, Mutex, PoisonError};

use profcol_labels::{Changes, Leftovers, Rows, Rule, drop_is_final};
use profcol_profile::{Attributes, attributes_size};

use crate::shared::generations::Generations;

/// About how much memory is spent on it.
const BYTES: usize = 16 << 20;

pub(super) struct Memory {
    known: Mutex<Generations<Attributes, Verdict>>,
    leftovers: Leftovers,
}

#[derive(Clone, Debug)]
pub(super) enum Verdict {
    Keep(Arc<Changes>),
    Drop {
        /// Whether it stays so whatever else is learned.
        is_final: bool,
    },
}

impl Verdict {
    pub fn is_drop(&self) -> bool {
        matches!(self, Self::Drop { .. })
    }

    /// Whether it changed anything.
    pub fn apply(&self, attributes: &mut Attributes) -> bool {
        match self {
            Self::Keep(changes) => changes.apply(attributes),
            Self::Drop { .. } => false,
        }
    }
}

impl Memory {
    pub fn new(leftovers: Leftovers) -> Self {
        Self {
            known: Mutex::new(Generations::new(BYTES)),
            leftovers,
        }
    }

    /// `on_miss` is called where the rules had to be applied.
    pub fn verdict(
        &self,
        rules: &[Rule],
        attributes: &Attributes,
        on_miss: impl FnOnce(),
    ) -> Verdict {
        let lock = || self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = lock().get(attributes) {
            return known;
        }
        on_miss();
        let verdict = self.decide(rules, attributes);
        let weight = weight(attributes, &verdict);
        lock().insert(attributes.clone(), verdict.clone(), weight);
        verdict
    }

    fn decide(&self, rules: &[Rule], attributes: &Attributes) -> Verdict {
        let rows = Rows::of_resource(attributes);
        let mut labels = rows.labels();
        if rules.iter().all(|rule| rule.apply(&mut labels)) {
            return Verdict::Keep(Arc::new(rows.changes(&labels, self.leftovers)));
        }
        Verdict::Drop {
            is_final: drop_is_final(rules, &rows),
        }
    }
}

fn weight(attributes: &Attributes, verdict: &Verdict) -> usize {
    let changes = match verdict {
        Verdict::Keep(changes) => changes.heap_size(),
        Verdict::Drop { .. } => 0,
    };
    size_of::<(Attributes, Verdict)>() + attributes_size(attributes) + changes
}
