//! Caches the result of the rules by resource: the next batch has the same processes.

use parking_lot::Mutex;

use profcol_labels::{LabelRows, Leftovers, Rule, drop_is_final};
use profcol_profile::{Resource, SharedResource};

use profcol_metadata::BoundedCache;

/// Approximate memory limit.
const BYTES: usize = 16 << 20;

pub(super) struct DecisionCache {
    known: Mutex<BoundedCache<SharedResource, CachedDecision>>,
    leftovers: Leftovers,
}

#[derive(Clone)]
pub(super) enum CachedDecision {
    /// The changed resource, or `None` if it does not change.
    Keep(Option<SharedResource>),
    Drop {
        /// The position of the rule.
        rule: usize,
        /// Whether attributes added later cannot change it.
        is_final: bool,
    },
}

impl CachedDecision {
    pub fn is_drop(&self) -> bool {
        matches!(self, Self::Drop { .. })
    }

    /// The changed resource, if it is kept and changed.
    pub fn into_new(self) -> Option<SharedResource> {
        match self {
            Self::Keep(new) => new,
            Self::Drop { .. } => None,
        }
    }
}

impl DecisionCache {
    pub fn new(leftovers: Leftovers) -> Self {
        Self {
            known: Mutex::new(BoundedCache::new(BYTES)),
            leftovers,
        }
    }

    /// The verdict for each resource, in order. `on_miss` is called when the rules have to be applied.
    pub fn verdicts(
        &self,
        rules: &[Rule],
        resources: &[SharedResource],
        mut on_miss: impl FnMut(),
    ) -> Vec<CachedDecision> {
        let mut memory = self.known.lock();
        let known: Vec<_> = resources.iter().map(|it| memory.get(it)).collect();
        drop(memory);
        let known = resources.iter().zip(known);
        let verdicts = known.map(|(resource, known)| {
            known.unwrap_or_else(|| {
                on_miss();
                self.evaluate(rules, resource)
            })
        });
        verdicts.collect()
    }

    fn evaluate(&self, rules: &[Rule], resource: &SharedResource) -> CachedDecision {
        let verdict = self.decide(rules, resource);
        let new = verdict.clone().into_new();
        let weight = size_of::<(SharedResource, CachedDecision)>()
            + resource.heap_size()
            + new.as_ref().map_or(0, SharedResource::heap_size);
        self.known
            .lock()
            .insert(resource.unshared(), verdict.clone(), weight);
        verdict
    }

    fn decide(&self, rules: &[Rule], resource: &SharedResource) -> CachedDecision {
        let rows = LabelRows::of_resource(&resource.attributes);
        let mut labels = rows.labels();
        if let Some(rule) = rules.iter().position(|rule| !rule.apply(&mut labels)) {
            return CachedDecision::Drop {
                rule,
                is_final: drop_is_final(rules, &rows),
            };
        }
        let mut new = Resource::clone(resource);
        let changes = rows.changes(&labels, self.leftovers);
        let is_changed = changes.apply(&mut new.attributes);
        CachedDecision::Keep(is_changed.then(|| SharedResource::new(new)))
    }
}
