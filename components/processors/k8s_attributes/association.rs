//! Finds the pod of a resource.
//!
//! A rule names what a resource and its pod have in common. Both are mapped to a [`Key`], by which the directory
//! finds pods. Rules that compare the same things, such as the pod's address from an attribute and from the
//! connection, share their keys.

use std::net::IpAddr;
use std::sync::Arc;

use profcol_processes::{container, pod_uid};
use profcol_profile::{Attributes, KeyValue};

use super::objects;
use profcol_metadata::attributes::{CGROUP, find, text_of};

/// The annotation with which a static pod refers to its UID on the node; the API server has another.
const CONFIG_HASH: &str = "kubernetes.io/config.hash";

/// Resource attributes that pods do not have, so no pod is found by them.
const NOT_OF_THE_POD: [&str; 7] = [
    "k8s.deployment.name",
    "k8s.deployment.uid",
    "k8s.cronjob.name",
    "k8s.cronjob.uid",
    "k8s.node.uid",
    "k8s.cluster.uid",
    "service.instance.id",
];

/// Where a resource has the value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Source {
    Connection,
    /// The connection, unless the resource says where it runs: an agent forwards the profiles of others.
    Sender,
    /// The attribute, or the path of the process's cgroup.
    Container,
    PodUid,
    /// An attribute with the pod's address.
    Address(Arc<str>),
    Attribute(Arc<str>),
}

/// What a pod must have in common with the resource.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Aspect {
    Container,
    PodUid,
    Address,
    Attribute(Arc<str>),
}

#[derive(Clone, Debug)]
pub(super) struct Rule {
    sources: Vec<Source>,
}

/// All rules, in order.
#[derive(Debug)]
pub(super) struct Associations {
    rules: Vec<(Rule, u8)>,
    /// What the rules compare, without duplicates.
    shapes: Vec<Vec<Aspect>>,
}

/// What a resource and its pod have in common.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key {
    shape: u8,
    text: Arc<str>,
}

/// The ID of a resource's container.
pub(super) fn container_of(attributes: &Attributes) -> Option<Arc<str>> {
    text_of(attributes, "container.id").or_else(|| {
        let cgroup = find(attributes, CGROUP)?.as_str()?;
        container(cgroup).map(|container| container.id.into())
    })
}

// === impl Key ===

impl Key {
    pub fn into_text(self) -> Arc<str> {
        self.text
    }
}

// === impl Source ===

impl Source {
    /// The default sources: the attributes of profilers, then the Collector's defaults.
    fn default_sources() -> Vec<Self> {
        let address = |name: &str| Self::Address(name.into());
        vec![
            Self::Container,
            Self::PodUid,
            address("k8s.pod.ip"),
            address("ip"),
            Self::Sender,
            address("host.name"),
        ]
    }

    pub fn of_attribute(name: &str) -> Result<Self, String> {
        match name {
            "" => Err("a source from resource_attribute needs a name".to_owned()),
            "container.id" => Ok(Self::Container),
            "k8s.pod.uid" => Ok(Self::PodUid),
            "k8s.pod.ip" | "ip" | "host.name" => Ok(Self::Address(name.into())),
            name if NOT_OF_THE_POD.contains(&name) => Err(format!(
                "{name} is not part of the pod, so no pod can be found by it"
            )),
            name => Ok(Self::Attribute(name.into())),
        }
    }

    fn aspect(&self) -> Aspect {
        match self {
            Self::Container => Aspect::Container,
            Self::PodUid => Aspect::PodUid,
            Self::Connection | Self::Sender | Self::Address(_) => Aspect::Address,
            Self::Attribute(name) => Aspect::Attribute(Arc::clone(name)),
        }
    }

    fn value(&self, attributes: &Attributes, peer: Option<IpAddr>) -> Option<Arc<str>> {
        let filled = |text: Arc<str>| (!text.is_empty()).then_some(text);
        match self {
            Self::Connection => peer.map(|peer| peer.to_canonical().to_string().into()),
            Self::Sender => {
                let location = ["container.id", CGROUP].map(|key| find(attributes, key));
                let is_silent = location.iter().all(Option::is_none);
                is_silent.then(|| Self::Connection.value(attributes, peer))?
            }
            Self::Container => container_of(attributes),
            Self::PodUid => text_of(attributes, "k8s.pod.uid").or_else(|| {
                let cgroup = find(attributes, CGROUP)?.as_str()?;
                pod_uid(cgroup).map(Into::into)
            }),
            // A host name, say, may be an address.
            Self::Address(name) => {
                let address: IpAddr = find(attributes, name)?.as_str()?.parse().ok()?;
                Some(address.to_canonical().to_string().into())
            }
            Self::Attribute(name) => text_of(attributes, name),
        }
        .and_then(filled)
    }
}

// === impl Rule, Associations ===

impl Rule {
    pub fn new(sources: Vec<Source>) -> Self {
        Self { sources }
    }
}

impl Associations {
    /// Uses the default rules if `rules` is empty.
    pub fn new(mut rules: Vec<Rule>) -> Self {
        if rules.is_empty() {
            let sources = Source::default_sources().into_iter();
            rules = sources.map(|source| Rule::new(vec![source])).collect();
        }
        let mut shapes: Vec<Vec<Aspect>> = Vec::new();
        let mut numbered = Vec::new();
        for rule in rules {
            let shape: Vec<Aspect> = rule.sources.iter().map(Source::aspect).collect();
            let existing = shapes.iter().position(|existing| *existing == shape);
            let number = existing.unwrap_or_else(|| {
                shapes.push(shape);
                shapes.len() - 1
            });
            // Beyond 255 shapes, rules can only repeat others.
            numbered.push((rule, u8::try_from(number).unwrap_or(u8::MAX)));
        }
        Self {
            rules: numbered,
            shapes,
        }
    }

    /// The keys by which a resource's pod may be found, best first.
    pub fn keys_of_resource(
        &self,
        attributes: &Attributes,
        peer: Option<IpAddr>,
    ) -> impl Iterator<Item = Key> {
        self.rules.iter().filter_map(move |(rule, shape)| {
            let values = rule.sources.iter().map(|it| it.value(attributes, peer));
            let values: Option<Vec<Arc<str>>> = values.collect();
            Some(Key {
                shape: *shape,
                text: joined(values?),
            })
        })
    }

    /// The address of a resource's pod, from the resource or its sender.
    pub fn address_of_resource(
        &self,
        attributes: &Attributes,
        peer: Option<IpAddr>,
    ) -> Option<Arc<str>> {
        let sources = self.rules.iter().flat_map(|(rule, _)| &rule.sources);
        let mut addresses = sources.filter(|source| source.aspect() == Aspect::Address);
        addresses.find_map(|source| source.value(attributes, peer))
    }

    /// The keys of a pod. `attributes` are those extracted from it.
    pub fn keys_of_pod(
        &self,
        pod: &objects::Pod,
        attributes: &[KeyValue],
        containers: &[Arc<str>],
    ) -> Vec<Key> {
        let mut keys = Vec::new();
        for (number, shape) in self.shapes.iter().enumerate() {
            let Ok(number) = u8::try_from(number) else {
                break;
            };
            let mut combinations: Vec<Vec<Arc<str>>> = vec![Vec::new()];
            for aspect in shape {
                let values = aspect.values(pod, attributes, containers);
                combinations = combinations
                    .iter()
                    .flat_map(|begin| {
                        values
                            .iter()
                            .map(|value| [begin.as_slice(), &[Arc::clone(value)]].concat())
                    })
                    .collect();
            }
            keys.extend(combinations.into_iter().map(|values| Key {
                shape: number,
                text: joined(values),
            }));
        }
        keys
    }
}

// === impl Aspect ===

impl Aspect {
    /// A pod has several containers, and may have several addresses.
    fn values(
        &self,
        pod: &objects::Pod,
        attributes: &[KeyValue],
        containers: &[Arc<str>],
    ) -> Vec<Arc<str>> {
        let meta = &pod.metadata;
        match self {
            Self::Container => containers.to_vec(),
            Self::PodUid => {
                let hash = meta.annotations.get(CONFIG_HASH);
                let both = [Some(&meta.uid), hash].into_iter().flatten();
                both.map(|uid| uid.as_str().into()).collect()
            }
            // A pod with the node's address is ambiguous, and the address of an ended pod may be reused.
            Self::Address if pod.spec.host_network || pod.has_ended() => Vec::new(),
            Self::Address => {
                let addresses = pod.ips().filter_map(|ip| ip.parse::<IpAddr>().ok());
                addresses
                    .map(|ip| ip.to_canonical().to_string().into())
                    .collect()
            }
            Self::Attribute(name) => {
                let own = match &**name {
                    "k8s.pod.name" => Some(&meta.name),
                    "k8s.namespace.name" => Some(&meta.namespace),
                    "k8s.node.name" => Some(&pod.spec.node_name),
                    "k8s.pod.hostname" => Some(&pod.spec.hostname),
                    _ => None,
                };
                let extracted = || {
                    let found = attributes.iter().find(|it| it.key == *name)?;
                    found.value.as_str()
                };
                let value = own.map(String::as_str).or_else(extracted);
                value
                    .filter(|value| !value.is_empty())
                    .map(Into::into)
                    .into_iter()
                    .collect()
            }
        }
    }
}

fn joined(mut values: Vec<Arc<str>>) -> Arc<str> {
    match values.len() {
        1 => values.remove(0),
        _ => values.join("\n").into(),
    }
}
