//! How the pod of a resource is found.
//!
//! A rule names what a resource and its pod have in common. From either side it comes to a [`Key`], and the directory
//! of pods is asked for that. Rules that compare the same things, such as the pod's address taken from an attribute
//! and from the connection, share their keys.

use std::net::IpAddr;
use std::sync::Arc;

use profcol_processes::{container, pod_uid};
use profcol_profile::{Attributes, KeyValue};

use super::objects;
use crate::shared::lookup::{CGROUP, find, text_of};

/// A pod that runs has it under this name where the API has another: the pod is a static one.
const CONFIG_HASH: &str = "kubernetes.io/config.hash";

/// What can be said of the sender by a resource that has no such attribute in the API.
const NOT_OF_THE_POD: [&str; 7] = [
    "k8s.deployment.name",
    "k8s.deployment.uid",
    "k8s.cronjob.name",
    "k8s.cronjob.uid",
    "k8s.node.uid",
    "k8s.cluster.uid",
    "service.instance.id",
];

/// Where a resource says something of its pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Source {
    Connection,
    /// The connection, where the resource does not say by itself where it runs: an agent sends what others did.
    Sender,
    /// The attribute, or what the path of the process's cgroup tells.
    Container,
    PodUid,
    /// An attribute that holds the pod's address.
    Address(Arc<str>),
    Attribute(Arc<str>),
}

/// What a pod has to have in common with it.
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

/// All rules, in their order.
#[derive(Debug)]
pub(super) struct Associations {
    rules: Vec<(Rule, u8)>,
    /// What the rules compare; each once.
    shapes: Vec<Vec<Aspect>>,
}

/// What a resource and its pod have in common.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key {
    shape: u8,
    text: Arc<str>,
}

/// The id of a resource's container.
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
    /// Where nobody says how: what profilers know, then as the Collector does it.
    fn usual() -> Vec<Self> {
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
                "{name} does not stand in the pod, so no pod can be found by it"
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
                let says_where = ["container.id", CGROUP].map(|key| find(attributes, key));
                let is_silent = says_where.iter().all(Option::is_none);
                is_silent.then(|| Self::Connection.value(attributes, peer))?
            }
            Self::Container => container_of(attributes),
            Self::PodUid => text_of(attributes, "k8s.pod.uid").or_else(|| {
                let cgroup = find(attributes, CGROUP)?.as_str()?;
                pod_uid(cgroup).map(Into::into)
            }),
            // Such as the name of a host, which may be its address.
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
    /// Without rules the usual ones.
    pub fn new(mut rules: Vec<Rule>) -> Self {
        if rules.is_empty() {
            let usual = Source::usual().into_iter();
            rules = usual.map(|source| Rule::new(vec![source])).collect();
        }
        let mut shapes: Vec<Vec<Aspect>> = Vec::new();
        let mut numbered = Vec::new();
        for rule in rules {
            let shape: Vec<Aspect> = rule.sources.iter().map(Source::aspect).collect();
            let known = shapes.iter().position(|known| *known == shape);
            let number = known.unwrap_or_else(|| {
                shapes.push(shape);
                shapes.len() - 1
            });
            // More rules than that compare the same things under other names at best.
            numbered.push((rule, u8::try_from(number).unwrap_or(u8::MAX)));
        }
        Self {
            rules: numbered,
            shapes,
        }
    }

    /// The keys under which a resource's pod may be known, the best first.
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

    /// The address of a resource's pod, as far as the resource and its sender tell it.
    pub fn address_of_resource(
        &self,
        attributes: &Attributes,
        peer: Option<IpAddr>,
    ) -> Option<Arc<str>> {
        let sources = self.rules.iter().flat_map(|(rule, _)| &rule.sources);
        let mut addresses = sources.filter(|source| source.aspect() == Aspect::Address);
        addresses.find_map(|source| source.value(attributes, peer))
    }

    /// The keys under which a pod is known. `attributes` are those made of it.
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
            // The node's address says nothing of the pod, and a pod that ended has none.
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
