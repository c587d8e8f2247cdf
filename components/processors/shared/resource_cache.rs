//! What a processor made of resources, for a moment: the next batch speaks of the same ones.
//!
//! A resource is found by its bytes, without being read, and what became of it is a resource of which the next processor
//! remembers the same. So a batch costs a look for each of its resources and processors, as long as nothing is new.

use std::sync::Mutex;

use profcol_profile::{Profiles, Resource, SharedResource};
use tokio::time::{Duration, Instant};

use super::generations::Generations;
use super::locks::lock;

/// After that a resource is lookup at again, since what is behind it may have become another: a process may have ended,
/// and its number may be another's.
pub(crate) const TTL: Duration = Duration::from_secs(1);
/// About how much memory is spent on them.
const MAX_BYTES: usize = 8 << 20;

pub(crate) struct ResourceCache(Mutex<Generations<SharedResource, CachedResource>>);

#[derive(Clone)]
struct CachedResource {
    /// `None` where it stays as it is.
    new: Option<SharedResource>,
    since: Instant,
    version: u64,
}

/// The resources of a batch, in their order.
pub(crate) struct CacheLookup<'a> {
    cache: &'a ResourceCache,
    version: u64,
    now: Instant,
    resources: Vec<(SharedResource, Option<CachedResource>)>,
}

/// What was made of a resource, and whether the next batch is to have the same.
pub(crate) struct Edited {
    pub is_changed: bool,
    pub is_cacheable: bool,
}

impl Edited {
    pub fn cacheable(is_changed: bool) -> Self {
        Self {
            is_changed,
            is_cacheable: true,
        }
    }
}

impl ResourceCache {
    pub fn new() -> Self {
        Self(Mutex::new(Generations::new(MAX_BYTES)))
    }

    /// `version` is of what the processor knows: an entry of another one does not count.
    pub fn lookup(&self, profiles: &Profiles, version: u64) -> CacheLookup<'_> {
        let now = Instant::now();
        let mut known = lock(&self.0);
        let is_valid =
            |it: &CachedResource| it.version == version && now.duration_since(it.since) < TTL;
        let resources = profiles.resources().into_iter().map(|resource| {
            let entry = known.get(&resource).filter(is_valid);
            (resource, entry)
        });
        let resources = resources.collect();
        drop(known);
        CacheLookup {
            cache: self,
            version,
            now,
            resources,
        }
    }
}

impl CacheLookup<'_> {
    /// Those of which nothing is remembered.
    pub fn misses(&self) -> impl Iterator<Item = &SharedResource> {
        let unknown = self.resources.iter().filter(|(_, known)| known.is_none());
        unknown.map(|(resource, _)| resource)
    }

    /// Puts what is remembered into the batch, and what `edit` makes of the others, in their order.
    pub fn apply(self, profiles: &mut Profiles, mut edit: impl FnMut(&mut Resource) -> Edited) {
        let new = self.resources.into_iter().map(|(resource, known)| {
            if let Some(entry) = known {
                return entry.new;
            }
            let mut content = Resource::clone(&resource);
            let Edited {
                is_changed,
                is_cacheable,
            } = edit(&mut content);
            let entry = CachedResource {
                new: is_changed.then(|| SharedResource::new(content)),
                since: self.now,
                version: self.version,
            };
            let new = entry.new.clone();
            if is_cacheable {
                self.cache.remember(&resource, entry);
            }
            new
        });
        profiles.replace_resources(new.collect());
    }
}

impl ResourceCache {
    fn remember(&self, resource: &SharedResource, entry: CachedResource) {
        let new = entry.new.as_ref().map_or(0, SharedResource::heap_size);
        let weight = size_of::<(SharedResource, CachedResource)>() + resource.heap_size() + new;
        lock(&self.0).insert(resource.unshared(), entry, weight);
    }
}

#[cfg(test)]
mod tests {
    use profcol_profile::KeyValue;

    use super::*;
    use crate::shared::testkit::received;

    /// Adds a number that says how often that was done; says what left.
    fn pass(cache: &ResourceCache, version: u64, is_cacheable: bool, times: &mut i64) -> String {
        let mut profiles = received(&[("process.pid=1", "", &[""])], 0);
        let lookup = cache.lookup(&profiles, version);
        lookup.apply(&mut profiles, |resource| {
            *times += 1;
            resource.attributes.push(KeyValue::new("time", *times));
            Edited {
                is_changed: true,
                is_cacheable,
            }
        });
        let left = profiles.resources();
        let time = left[0].attributes.iter().find(|it| &*it.key == "time");
        time.map_or_else(String::new, |it| format!("{:?}", it.value))
    }

    #[tokio::test(start_paused = true)]
    async fn reuses_entries_until_they_expire_or_the_version_changes() {
        let (cache, mut times) = (ResourceCache::new(), 0);
        let first = pass(&cache, 0, true, &mut times);
        assert_eq!(pass(&cache, 0, true, &mut times), first);
        tokio::time::advance(TTL / 2).await;
        assert_eq!(pass(&cache, 0, true, &mut times), first);
        assert_eq!(times, 1, "the same a moment later");
        pass(&cache, 1, true, &mut times);
        assert_eq!(times, 2, "more is known");
        tokio::time::advance(TTL).await;
        pass(&cache, 1, true, &mut times);
        assert_eq!(times, 3, "what it is about may have become another");
    }

    #[tokio::test(start_paused = true)]
    async fn does_not_cache_uncacheable_edits() {
        let (cache, mut times) = (ResourceCache::new(), 0);
        pass(&cache, 0, false, &mut times);
        pass(&cache, 0, false, &mut times);
        assert_eq!(times, 2);
    }
}
