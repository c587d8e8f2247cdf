//! The fields used from API objects. All other fields are skipped while parsing, however large they are.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

/// Labels or annotations.
pub(super) type StringMap = BTreeMap<String, String>;

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Meta {
    pub name: String,
    pub namespace: String,
    pub uid: String,
    pub resource_version: String,
    #[serde(deserialize_with = "or_default")]
    pub labels: StringMap,
    #[serde(deserialize_with = "or_default")]
    pub annotations: StringMap,
    #[serde(deserialize_with = "or_default")]
    pub owner_references: Vec<Owner>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Owner {
    pub kind: String,
    pub name: String,
    pub uid: String,
    #[serde(deserialize_with = "or_default")]
    pub controller: bool,
}

/// For objects whose metadata alone is used.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct MetaOnly {
    pub metadata: Meta,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Pod {
    pub metadata: Meta,
    #[serde(deserialize_with = "or_default")]
    pub spec: Spec,
    #[serde(deserialize_with = "or_default")]
    pub status: Status,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Spec {
    pub node_name: String,
    pub hostname: String,
    pub host_network: bool,
    #[serde(deserialize_with = "or_default")]
    pub containers: Vec<Container>,
    #[serde(deserialize_with = "or_default")]
    pub init_containers: Vec<Container>,
    #[serde(deserialize_with = "or_default")]
    pub ephemeral_containers: Vec<Container>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Container {
    pub name: String,
    pub image: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Status {
    pub phase: String,
    #[serde(rename = "hostIP")]
    pub host_ip: String,
    #[serde(rename = "podIP")]
    pub pod_ip: String,
    #[serde(rename = "podIPs", deserialize_with = "or_default")]
    pub pod_ips: Vec<Address>,
    #[serde(deserialize_with = "or_default")]
    pub start_time: String,
    #[serde(deserialize_with = "or_default")]
    pub conditions: Vec<Condition>,
    #[serde(deserialize_with = "or_default")]
    pub container_statuses: Vec<ContainerStatus>,
    #[serde(deserialize_with = "or_default")]
    pub init_container_statuses: Vec<ContainerStatus>,
    #[serde(deserialize_with = "or_default")]
    pub ephemeral_container_statuses: Vec<ContainerStatus>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Address {
    pub ip: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Condition {
    #[serde(rename = "type")]
    pub kind: String,
    pub status: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct ContainerStatus {
    pub name: String,
    #[serde(rename = "containerID")]
    pub container_id: String,
    #[serde(rename = "imageID")]
    pub image_id: String,
    pub restart_count: i64,
    #[serde(deserialize_with = "or_default")]
    pub last_state: LastState,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct LastState {
    #[serde(deserialize_with = "or_default")]
    pub terminated: Terminated,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Terminated {
    #[serde(rename = "containerID")]
    pub container_id: String,
}

/// An object, or why it failed to decode: an unexpected object must not affect others.
#[derive(Debug)]
pub(super) struct Read<T>(pub serde_json::Result<T>);

impl<'de, T: DeserializeOwned> Deserialize<'de> for Read<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Box::<RawValue>::deserialize(deserializer)?;
        Ok(Self(serde_json::from_str(text.get())))
    }
}

/// A list, or a page of one.
#[derive(Debug, Deserialize)]
#[serde(bound = "T: DeserializeOwned")]
pub(super) struct Page<T> {
    #[serde(default)]
    pub metadata: PageMeta,
    #[serde(default = "Vec::new", deserialize_with = "or_default")]
    pub items: Vec<Read<T>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct PageMeta {
    pub resource_version: String,
    #[serde(rename = "continue")]
    pub next: String,
}

pub(super) trait Object {
    fn meta(&self) -> &Meta;
}

impl Object for Pod {
    fn meta(&self) -> &Meta {
        &self.metadata
    }
}

impl Object for MetaOnly {
    fn meta(&self) -> &Meta {
        &self.metadata
    }
}

impl Meta {
    /// The owner that controls it.
    pub fn controller(&self) -> Option<&Owner> {
        self.owner_references.iter().find(|owner| owner.controller)
    }
}

impl Pod {
    pub fn ips(&self) -> impl Iterator<Item = &str> {
        let several = self.status.pod_ips.iter().map(|address| &*address.ip);
        let first = Some(&*self.status.pod_ip).filter(|first| {
            let mut all = self.status.pod_ips.iter();
            !first.is_empty() && !all.any(|address| address.ip == **first)
        });
        first.into_iter().chain(several)
    }

    /// Its containers have ended; its address may have been reused.
    pub fn has_ended(&self) -> bool {
        matches!(&*self.status.phase, "Succeeded" | "Failed")
    }

    /// Each container, with its status and whether it is an init container.
    pub fn containers(&self) -> impl Iterator<Item = (&Container, Option<&ContainerStatus>, bool)> {
        let (spec, status) = (&self.spec, &self.status);
        let kinds = [
            (&spec.containers, &status.container_statuses, false),
            (&spec.init_containers, &status.init_container_statuses, true),
            (
                &spec.ephemeral_containers,
                &status.ephemeral_container_statuses,
                false,
            ),
        ];
        kinds
            .into_iter()
            .flat_map(|(containers, statuses, is_init)| {
                containers.iter().map(move |container| {
                    let status = statuses.iter().find(|it| it.name == container.name);
                    (container, status, is_init)
                })
            })
    }
}

/// Treats `null` like a missing field.
fn or_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}
