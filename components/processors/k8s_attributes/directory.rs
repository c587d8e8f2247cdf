//! The cache of the cluster's objects: pods, found by the attributes of resources, and the objects they refer to.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;
use profcol_component::{Gauge, IntCounter};
use profcol_kubernetes::{Change, Meta, MetaOnly, Object};
use profcol_profile::{Attributes, Value};
use regex::Regex;
use tokio::sync::watch;
use tokio::time::Instant;

use super::association::{Associations, container_of};
use super::objects;
use super::pod_index::{Entry, PodIndex};
use super::records::Kind;
use super::rules::Rules;
use profcol_metadata::attributes::add_missing;

/// Pods with this annotation are ignored.
const IGNORE: &str = "opentelemetry.io/k8s-processor/ignore";

pub(super) struct Directory {
    rules: Rules,
    associations: Associations,
    excluded: Vec<Regex>,
    max_pods: usize,
    keep_deleted_for: Duration,
    known: RwLock<PodIndex>,
    /// Notifies of new and changed pods.
    news: watch::Sender<()>,
    pods: Gauge,
    over_limit: IntCounter,
}

/// The result for a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PodLookup {
    /// The resource has nothing to find a pod by.
    NoKey,
    Unknown,
    Known {
        is_changed: bool,
        /// Whether its container is known, too.
        is_whole: bool,
    },
}

/// The inputs of a directory.
pub(super) struct Parts {
    pub rules: Rules,
    pub associations: Associations,
    pub excluded: Vec<Regex>,
    pub max_pods: usize,
    pub keep_deleted_for: Duration,
    pub pods: Gauge,
    pub over_limit: IntCounter,
}

impl Directory {
    pub fn new(parts: Parts) -> Self {
        let Parts {
            rules,
            associations,
            excluded,
            max_pods,
            keep_deleted_for,
            pods,
            over_limit,
        } = parts;
        Self {
            rules,
            associations,
            excluded,
            max_pods,
            keep_deleted_for,
            known: RwLock::default(),
            news: watch::Sender::new(()),
            pods,
            over_limit,
        }
    }

    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    pub fn news(&self) -> watch::Receiver<()> {
        self.news.subscribe()
    }

    /// The resource's reference to a pod or container that is not known.
    pub fn unknown(&self, attributes: &Attributes, peer: Option<IpAddr>) -> Option<Arc<str>> {
        let known = self.known.read();
        let mut keys = self
            .associations
            .keys_of_resource(attributes, peer)
            .peekable();
        let first = keys.peek()?.clone();
        match keys.find_map(|key| known.pod(&key)) {
            Some(pod) => container_of(attributes).filter(|id| !pod.has_run(id)),
            None => Some(first.into_text()),
        }
    }

    /// Adds the known attributes to a resource.
    pub fn fill(&self, attributes: &mut Attributes, peer: Option<IpAddr>) -> PodLookup {
        let known = self.known.read();
        let mut has_key = false;
        let pod = self
            .associations
            .keys_of_resource(attributes, peer)
            .inspect(|_| has_key = true)
            .find_map(|key| known.pod(&key));
        match pod {
            Some(pod) => {
                let container = container_of(attributes);
                PodLookup::Known {
                    is_whole: container.as_ref().is_none_or(|id| pod.has_run(id)),
                    is_changed: self.rules.fill(&known, pod, container.as_ref(), attributes),
                }
            }
            None if has_key => PodLookup::Unknown,
            None => PodLookup::NoKey,
        }
    }

    /// Adds only the address of the resource.
    pub fn note_address(&self, attributes: &mut Attributes, peer: Option<IpAddr>) -> bool {
        let address = self.associations.address_of_resource(attributes, peer);
        add_missing(attributes, [("k8s.pod.ip", address.map(Value::Str))])
    }

    pub fn change_pods(&self, change: Change<objects::Pod>) {
        let mut known = self.known.write();
        let now = Instant::now();
        known.forget(now.checked_sub(self.keep_deleted_for));
        match change {
            Change::Begin => known.begin(Kind::Pod),
            Change::Put(pod) => self.put_pod(&mut known, &pod),
            Change::Gone(pod) => known.leave(&pod.metadata.uid, now),
            Change::Complete => {
                let list = known.list(Kind::Pod);
                let pods = known.pods.iter();
                let unnamed = pods.filter(|(_, entry)| entry.list != list && entry.gone.is_none());
                let unnamed: Vec<Arc<str>> = unnamed.map(|(uid, _)| Arc::clone(uid)).collect();
                for uid in unnamed {
                    known.leave(&uid, now);
                }
            }
        }
        self.pods.set(known.pods.len() as f64);
        drop(known);
        self.news.send_replace(());
    }

    pub fn change_others(&self, kind: Kind, change: Change<MetaOnly>) {
        let mut known = self.known.write();
        match change {
            Change::Begin => known.begin(kind),
            Change::Put(object) => {
                let list = known.list(kind);
                let meta = object.meta();
                let record = self.rules.other(kind, meta, &mut known.texts);
                let count = known.others.get(&kind).map_or(0, HashMap::len);
                let others = known.others.entry(kind).or_default();
                let key = key_of(kind, meta);
                if count >= self.max_pods && !others.contains_key(key) {
                    self.over_limit.inc();
                    return;
                }
                others.insert(key.into(), (record, list));
            }
            Change::Gone(object) => {
                if let Some(others) = known.others.get_mut(&kind) {
                    others.remove(key_of(kind, object.meta()));
                }
            }
            Change::Complete => {
                let list = known.list(kind);
                if let Some(others) = known.others.get_mut(&kind) {
                    others.retain(|_, (_, named)| *named == list);
                }
            }
        }
    }

    fn put_pod(&self, known: &mut PodIndex, pod: &objects::Pod) {
        let meta = &pod.metadata;
        known.remove(&meta.uid);
        if self.is_passed_over(meta) {
            return;
        }
        if known.pods.len() >= self.max_pods && !known.forget_one() {
            self.over_limit.inc();
            return;
        }
        let record = self.rules.pod(pod, &mut known.texts);
        let runs = record.containers.iter().flat_map(|it| &it.runs);
        let containers: Vec<Arc<str>> = runs.map(|run| Arc::clone(&run.id)).collect();
        let keys = self
            .associations
            .keys_of_pod(pod, &record.attributes, &containers);
        for key in &keys {
            known.by_key.insert(key.clone(), Arc::clone(&record.uid));
        }
        let list = known.list(Kind::Pod);
        let entry = Entry {
            keys: keys.into(),
            list,
            gone: None,
            pod: record,
        };
        known.pods.insert(Arc::clone(&entry.pod.uid), entry);
    }

    fn is_passed_over(&self, meta: &Meta) -> bool {
        let ignored = meta.annotations.get(IGNORE);
        ignored.is_some_and(|it| it.eq_ignore_ascii_case("true"))
            || self.excluded.iter().any(|name| name.is_match(&meta.name))
    }
}

/// Pods refer to namespaces and nodes by name, and to their owners by UID.
fn key_of(kind: Kind, meta: &Meta) -> &str {
    match kind {
        Kind::Namespace | Kind::Node => &meta.name,
        _ => &meta.uid,
    }
}
