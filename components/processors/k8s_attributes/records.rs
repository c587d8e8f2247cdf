//! The cached part of API objects: only what was configured, with shared strings.

use std::sync::Arc;

use profcol_kubernetes::Resource;
use profcol_profile::{KeyValue, Value};

/// Objects that are watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    Pod,
    Namespace,
    Node,
    ReplicaSet,
    Deployment,
    StatefulSet,
    DaemonSet,
    Job,
}

#[derive(Debug)]
pub(super) struct PodRecord {
    pub uid: Arc<str>,
    pub namespace: Arc<str>,
    pub node: Option<Arc<str>>,
    pub controller: Option<Controller>,
    /// The fallback for its service name; only if configured.
    pub service: Option<Arc<str>>,
    /// Attributes taken from the pod itself.
    pub attributes: Box<[KeyValue]>,
    pub containers: Box<[ContainerRecord]>,
}

#[derive(Debug)]
pub(super) struct ContainerRecord {
    pub name: Arc<str>,
    pub is_init: bool,
    /// The image as written in the pod.
    pub image: Option<Arc<str>>,
    pub image_name: Option<Arc<str>>,
    pub image_tag: Option<Arc<str>>,
    pub repo_digests: Option<Value>,
    pub service_version: Option<Arc<str>>,
    pub service_instance: Option<Arc<str>>,
    /// The current run first.
    pub runs: Box<[Run]>,
}

/// A restart creates a new container.
#[derive(Clone, Debug)]
pub(super) struct Run {
    pub id: Arc<str>,
    pub restarts: i64,
}

/// The owner that controls an object.
#[derive(Clone, Debug)]
pub(super) struct Controller {
    /// `None` for kinds without attributes.
    pub kind: Option<Kind>,
    pub name: Arc<str>,
    pub uid: Arc<str>,
}

/// The cached part of all objects but pods.
#[derive(Debug)]
pub(super) struct Other {
    pub uid: Arc<str>,
    pub controller: Option<Controller>,
    pub attributes: Box<[KeyValue]>,
}

impl PodRecord {
    /// Whether this is the ID of one of its containers, as reported by its kubelet.
    pub fn has_run(&self, id: &str) -> bool {
        let mut runs = self.containers.iter().flat_map(|it| &it.runs);
        runs.any(|run| *run.id == *id)
    }
}

impl Kind {
    pub const ALL: [Self; 8] = [
        Self::Pod,
        Self::Namespace,
        Self::Node,
        Self::ReplicaSet,
        Self::Deployment,
        Self::StatefulSet,
        Self::DaemonSet,
        Self::Job,
    ];

    /// Parses the kind of an owner reference.
    pub fn of_owner(kind: &str) -> Option<Self> {
        match kind {
            "ReplicaSet" => Some(Self::ReplicaSet),
            "Deployment" => Some(Self::Deployment),
            "StatefulSet" => Some(Self::StatefulSet),
            "DaemonSet" => Some(Self::DaemonSet),
            "Job" => Some(Self::Job),
            _ => None,
        }
    }

    /// The resource of this kind in the API.
    pub fn resource(self) -> Resource {
        let (group, plural) = match self {
            Self::Pod => ("", "pods"),
            Self::Namespace => ("", "namespaces"),
            Self::Node => ("", "nodes"),
            Self::ReplicaSet => ("apps", "replicasets"),
            Self::Deployment => ("apps", "deployments"),
            Self::StatefulSet => ("apps", "statefulsets"),
            Self::DaemonSet => ("apps", "daemonsets"),
            Self::Job => ("batch", "jobs"),
        };
        Resource {
            group,
            plural,
            is_namespaced: !matches!(self, Self::Namespace | Self::Node),
            is_metadata_enough: self != Self::Pod,
        }
    }
}
