//! A short-lived cache of processed resources: the next batch has the same ones.
//!
//! A resource is looked up by its encoded bytes, and its result is again a resource that the next processor has cached.
//! While nothing is new, a batch costs one lookup per resource and processor.

use parking_lot::Mutex;

use profcol_profile::{Profiles, Resource, SharedResource};
use tokio::time::{Duration, Instant};

use profcol_metadata::BoundedCache;

/// After this a resource is processed again, since its subject may have changed: a process may have exited
/// and its PID been reused.
pub(crate) const TTL: Duration = Duration::from_secs(1);
/// Approximate memory limit.
const MAX_BYTES: usize = 8 << 20;

pub(crate) struct ResourceCache(Mutex<BoundedCache<SharedResource, CachedResource>>);

#[derive(Clone)]
struct CachedResource {
    /// `None` if it does not change.
    new: Option<SharedResource>,
    since: Instant,
    version: u64,
}

/// The cache entries for the resources of a batch, in order.
pub(crate) struct CacheLookup<'a> {
    cache: &'a ResourceCache,
    version: u64,
    now: Instant,
    resources: Vec<(SharedResource, Option<CachedResource>)>,
}

/// The result of an edit, and whether it may be cached.
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
        Self(Mutex::new(BoundedCache::new(MAX_BYTES)))
    }

    /// `version` is that of the processor's metadata: entries of other versions are ignored.
    pub fn lookup(&self, profiles: &Profiles, version: u64) -> CacheLookup<'_> {
        let now = Instant::now();
        let mut known = self.0.lock();
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
    /// The resources without an entry.
    pub fn misses(&self) -> impl Iterator<Item = &SharedResource> {
        let unknown = self.resources.iter().filter(|(_, known)| known.is_none());
        unknown.map(|(resource, _)| resource)
    }

    /// Applies the cached results to the batch, and calls `edit` for the other resources, in order.
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
        self.0.lock().insert(resource.unshared(), entry, weight);
    }
}

#[cfg(test)]
mod tests {
    use profcol_profile::KeyValue;

    use super::*;
    use crate::shared::testkit::received;

    /// Adds the number of edits so far; returns the value in the output.
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
        let output = profiles.resources();
        let time = output[0].attributes.iter().find(|it| &*it.key == "time");
        time.map_or_else(String::new, |it| format!("{:?}", it.value))
    }

    #[tokio::test(start_paused = true)]
    async fn reuses_entries_until_they_expire_or_the_version_changes() {
        let (cache, mut times) = (ResourceCache::new(), 0);
        let first = pass(&cache, 0, true, &mut times);
        assert_eq!(pass(&cache, 0, true, &mut times), first);
        tokio::time::advance(TTL / 2).await;
        assert_eq!(pass(&cache, 0, true, &mut times), first);
        assert_eq!(times, 1, "cached");
        pass(&cache, 1, true, &mut times);
        assert_eq!(times, 2, "new version");
        tokio::time::advance(TTL).await;
        pass(&cache, 1, true, &mut times);
        assert_eq!(times, 3, "expired");
    }

    #[tokio::test(start_paused = true)]
    async fn does_not_cache_uncacheable_edits() {
        let (cache, mut times) = (ResourceCache::new(), 0);
        pass(&cache, 0, false, &mut times);
        pass(&cache, 0, false, &mut times);
        assert_eq!(times, 2);
    }
}
