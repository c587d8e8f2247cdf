//! The fields used from API objects. All other fields are skipped while parsing, however large they are.

use profcol_kubernetes::{Meta, Object, or_default};
use serde::Deserialize;

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

impl Object for Pod {
    fn meta(&self) -> &Meta {
        &self.metadata
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

    /// Whether its containers have ended; its address may have been reused.
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
