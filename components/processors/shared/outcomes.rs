//! What a processor made of resources, for a moment: the next batch speaks of the same ones.
//!
//! A resource is found by its bytes, without being read, and what became of it is a resource of which the next processor
//! remembers the same. So a batch costs a look for each of its resources and processors, as long as nothing is new.

use std::sync::Mutex;

use profcol_profile::{Profiles, Resource, SharedResource};
use tokio::time::{Duration, Instant};

use super::generations::Generations;
use super::locks::lock;

/// After that a resource is looked at again, since what is behind it may have become another: a process may have ended,
/// and its number may be another's.
pub(crate) const FRESH: Duration = Duration::from_secs(1);
/// About how much memory is spent on them.
const BYTES: usize = 8 << 20;

pub(crate) struct Outcomes(Mutex<Generations<SharedResource, Outcome>>);

#[derive(Clone)]
struct Outcome {
    /// `None` where it stays as it is.
    new: Option<SharedResource>,
    since: Instant,
    version: u64,
}

/// The resources of a batch, in their order.
pub(crate) struct Looked<'a> {
    outcomes: &'a Outcomes,
    version: u64,
    now: Instant,
    resources: Vec<(SharedResource, Option<Outcome>)>,
}

/// What was made of a resource, and whether the next batch is to have the same.
pub(crate) struct Edited {
    pub is_changed: bool,
    pub lasts: bool,
}

impl Edited {
    pub fn for_long(is_changed: bool) -> Self {
        Self {
            is_changed,
            lasts: true,
        }
    }
}

impl Outcomes {
    pub fn new() -> Self {
        Self(Mutex::new(Generations::new(BYTES)))
    }

    /// `version` is of what the processor knows: an outcome of another one does not count.
    pub fn look(&self, profiles: &Profiles, version: u64) -> Looked<'_> {
        let now = Instant::now();
        let mut known = lock(&self.0);
        let is_valid = |it: &Outcome| it.version == version && now.duration_since(it.since) < FRESH;
        let resources = profiles.resources().into_iter().map(|resource| {
            let outcome = known.get(&resource).filter(is_valid);
            (resource, outcome)
        });
        let resources = resources.collect();
        drop(known);
        Looked {
            outcomes: self,
            version,
            now,
            resources,
        }
    }
}

impl Looked<'_> {
    /// Those of which nothing is remembered.
    pub fn unknown(&self) -> impl Iterator<Item = &SharedResource> {
        let unknown = self.resources.iter().filter(|(_, known)| known.is_none());
        unknown.map(|(resource, _)| resource)
    }

    /// Puts what is remembered into the batch, and what `edit` makes of the others, in their order.
    pub fn apply(self, profiles: &mut Profiles, mut edit: impl FnMut(&mut Resource) -> Edited) {
        let new = self.resources.into_iter().map(|(resource, known)| {
            if let Some(outcome) = known {
                return outcome.new;
            }
            let mut content = Resource::clone(&resource);
            let Edited { is_changed, lasts } = edit(&mut content);
            let outcome = Outcome {
                new: is_changed.then(|| SharedResource::new(content)),
                since: self.now,
                version: self.version,
            };
            let new = outcome.new.clone();
            if lasts {
                self.outcomes.remember(&resource, outcome);
            }
            new
        });
        profiles.replace_resources(new.collect());
    }
}

impl Outcomes {
    fn remember(&self, resource: &SharedResource, outcome: Outcome) {
        let new = outcome.new.as_ref().map_or(0, SharedResource::heap_size);
        let weight = size_of::<(SharedResource, Outcome)>() + resource.heap_size() + new;
        lock(&self.0).insert(resource.unshared(), outcome, weight);
    }
}

#[cfg(test)]
mod tests {
    use profcol_profile::KeyValue;

    use super::*;
    use crate::shared::testkit::received;

    /// Adds a number that says how often that was done; says what left.
    fn pass(outcomes: &Outcomes, version: u64, lasts: bool, times: &mut i64) -> String {
        let mut profiles = received(&[("process.pid=1", "", &[""])], 0);
        let looked = outcomes.look(&profiles, version);
        looked.apply(&mut profiles, |resource| {
            *times += 1;
            resource.attributes.push(KeyValue::new("time", *times));
            Edited {
                is_changed: true,
                lasts,
            }
        });
        let left = profiles.resources();
        let time = left[0].attributes.iter().find(|it| &*it.key == "time");
        time.map_or_else(String::new, |it| format!("{:?}", it.value))
    }

    #[tokio::test(start_paused = true)]
    async fn are_used_again_until_something_may_be_new() {
        let (outcomes, mut times) = (Outcomes::new(), 0);
        let first = pass(&outcomes, 0, true, &mut times);
        assert_eq!(pass(&outcomes, 0, true, &mut times), first);
        tokio::time::advance(FRESH / 2).await;
        assert_eq!(pass(&outcomes, 0, true, &mut times), first);
        assert_eq!(times, 1, "the same a moment later");
        pass(&outcomes, 1, true, &mut times);
        assert_eq!(times, 2, "more is known");
        tokio::time::advance(FRESH).await;
        pass(&outcomes, 1, true, &mut times);
        assert_eq!(times, 3, "what it is about may have become another");
    }

    #[tokio::test(start_paused = true)]
    async fn what_does_not_last_is_made_again() {
        let (outcomes, mut times) = (Outcomes::new(), 0);
        pass(&outcomes, 0, false, &mut times);
        pass(&outcomes, 0, false, &mut times);
        assert_eq!(times, 2);
    }
}
