//! What rules come to, remembered by resource: a process is the same in the next batch.

use std::sync::Mutex;

use profcol_labels::{Leftovers, Rows, Rule, drop_is_final};
use profcol_profile::{Resource, SharedResource};

use crate::shared::generations::Generations;
use crate::shared::locks::lock;

/// About how much memory is spent on it.
const BYTES: usize = 16 << 20;

pub(super) struct Memory {
    known: Mutex<Generations<SharedResource, Verdict>>,
    leftovers: Leftovers,
}

#[derive(Clone)]
pub(super) enum Verdict {
    /// With the resource that it becomes; `None` where it stays as it is.
    Keep(Option<SharedResource>),
    Drop {
        /// Whether it stays so whatever else is learned.
        is_final: bool,
    },
}

impl Verdict {
    pub fn is_drop(&self) -> bool {
        matches!(self, Self::Drop { .. })
    }

    /// What it becomes, where it is kept and does not stay as it is.
    pub fn into_new(self) -> Option<SharedResource> {
        match self {
            Self::Keep(new) => new,
            Self::Drop { .. } => None,
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

    /// Of each, in their order. `on_miss` is called where the rules had to be applied.
    pub fn verdicts(
        &self,
        rules: &[Rule],
        resources: &[SharedResource],
        mut on_miss: impl FnMut(),
    ) -> Vec<Verdict> {
        let mut memory = lock(&self.known);
        let known: Vec<_> = resources.iter().map(|it| memory.get(it)).collect();
        drop(memory);
        let known = resources.iter().zip(known);
        let verdicts = known.map(|(resource, known)| {
            known.unwrap_or_else(|| {
                on_miss();
                self.learn(rules, resource)
            })
        });
        verdicts.collect()
    }

    fn learn(&self, rules: &[Rule], resource: &SharedResource) -> Verdict {
        let verdict = self.decide(rules, resource);
        let new = verdict.clone().into_new();
        let weight = size_of::<(SharedResource, Verdict)>()
            + resource.heap_size()
            + new.as_ref().map_or(0, SharedResource::heap_size);
        lock(&self.known).insert(resource.unshared(), verdict.clone(), weight);
        verdict
    }

    fn decide(&self, rules: &[Rule], resource: &SharedResource) -> Verdict {
        let rows = Rows::of_resource(&resource.attributes);
        let mut labels = rows.labels();
        if !rules.iter().all(|rule| rule.apply(&mut labels)) {
            return Verdict::Drop {
                is_final: drop_is_final(rules, &rows),
            };
        }
        let mut new = Resource::clone(resource);
        let changes = rows.changes(&labels, self.leftovers);
        let is_changed = changes.apply(&mut new.attributes);
        Verdict::Keep(is_changed.then(|| SharedResource::new(new)))
    }
}
