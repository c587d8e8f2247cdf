//! Pods by the keys of resources, and the objects they refer to.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use tokio::time::Instant;

use super::association::Key;
use super::records::{Kind, Other, PodRecord};
use super::texts::Texts;

#[derive(Default)]
pub(super) struct PodIndex {
    pub pods: HashMap<Arc<str>, Entry>,
    pub by_key: HashMap<Key, Arc<str>>,
    /// Each with the last list that contained it.
    pub others: HashMap<Kind, HashMap<Arc<str>, (Other, u32)>>,
    /// The number of lists of each kind so far.
    lists: HashMap<Kind, u32>,
    /// Deleted pods, in the order of deletion.
    gone: VecDeque<(Instant, Arc<str>)>,
    pub texts: Texts,
}

pub(super) struct Entry {
    pub pod: PodRecord,
    pub keys: Box<[Key]>,
    /// The last list that contained it.
    pub list: u32,
    pub gone: Option<Instant>,
}

impl PodIndex {
    pub fn other(&self, kind: Kind, key: &str) -> Option<&Other> {
        let (other, _) = self.others.get(&kind)?.get(key)?;
        Some(other)
    }

    pub fn pod(&self, key: &Key) -> Option<&PodRecord> {
        let uid = self.by_key.get(key)?;
        self.pods.get(uid).map(|entry| &entry.pod)
    }

    pub fn list(&self, kind: Kind) -> u32 {
        self.lists.get(&kind).copied().unwrap_or_default()
    }

    pub fn begin(&mut self, kind: Kind) {
        let list = self.lists.entry(kind).or_default();
        *list = list.wrapping_add(1);
    }

    /// Marks the pod as deleted; it is kept for its last profiles.
    pub fn leave(&mut self, uid: &str, now: Instant) {
        if let Some(entry) = self.pods.get_mut(uid)
            && entry.gone.is_none()
        {
            entry.gone = Some(now);
            self.gone.push_back((now, Arc::clone(&entry.pod.uid)));
        }
    }

    /// Removes pods that were deleted before `before`.
    pub fn forget(&mut self, before: Option<Instant>) {
        let Some(before) = before else {
            return;
        };
        while self.gone.front().is_some_and(|(gone, _)| *gone <= before) {
            self.forget_first();
        }
    }

    /// Removes one deleted pod; returns whether there was one.
    pub fn forget_one(&mut self) -> bool {
        while !self.gone.is_empty() {
            if self.forget_first() {
                return true;
            }
        }
        false
    }

    /// Removes the pod that was deleted first, unless it was added again.
    fn forget_first(&mut self) -> bool {
        let Some((gone, uid)) = self.gone.pop_front() else {
            return false;
        };
        let entry = self.pods.get(&uid);
        let is_gone = entry.is_some_and(|entry| entry.gone == Some(gone));
        if is_gone {
            self.remove(&uid);
        }
        is_gone
    }

    pub fn remove(&mut self, uid: &str) {
        let Some(entry) = self.pods.remove(uid) else {
            return;
        };
        for key in &entry.keys {
            // The address may have been reused.
            if self.by_key.get(key).is_some_and(|known| **known == *uid) {
                self.by_key.remove(key);
            }
        }
    }
}
