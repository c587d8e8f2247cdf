//! The supported attributes.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A supported attribute.
#[derive(
    Clone, Copy, Debug, Deserialize, Hash, JsonSchema, PartialEq, Eq, PartialOrd, Ord, Serialize,
)]
#[schemars(extend("x-unknown" = "unsupported metadata field"))]
pub enum Field {
    #[serde(rename = "k8s.namespace.name")]
    NamespaceName,
    #[serde(rename = "k8s.pod.name")]
    PodName,
    #[serde(rename = "k8s.pod.uid")]
    PodUid,
    #[serde(rename = "k8s.pod.hostname")]
    PodHostname,
    #[serde(rename = "k8s.pod.ip")]
    PodIp,
    #[serde(rename = "k8s.pod.start_time")]
    PodStartTime,
    #[serde(rename = "k8s.pod.phase")]
    PodPhase,
    #[serde(rename = "k8s.pod.ready")]
    PodReady,
    #[serde(rename = "k8s.pod.host_ip")]
    PodHostIp,
    #[serde(rename = "k8s.pod.controller.kind")]
    ControllerKind,
    #[serde(rename = "k8s.pod.controller.name")]
    ControllerName,
    #[serde(rename = "k8s.replicaset.name")]
    ReplicaSetName,
    #[serde(rename = "k8s.replicaset.uid")]
    ReplicaSetUid,
    #[serde(rename = "k8s.deployment.name")]
    DeploymentName,
    #[serde(rename = "k8s.deployment.uid")]
    DeploymentUid,
    #[serde(rename = "k8s.daemonset.name")]
    DaemonSetName,
    #[serde(rename = "k8s.daemonset.uid")]
    DaemonSetUid,
    #[serde(rename = "k8s.statefulset.name")]
    StatefulSetName,
    #[serde(rename = "k8s.statefulset.uid")]
    StatefulSetUid,
    #[serde(rename = "k8s.job.name")]
    JobName,
    #[serde(rename = "k8s.job.uid")]
    JobUid,
    #[serde(rename = "k8s.cronjob.name")]
    CronJobName,
    #[serde(rename = "k8s.cronjob.uid")]
    CronJobUid,
    #[serde(rename = "k8s.node.name")]
    NodeName,
    #[serde(rename = "k8s.node.uid")]
    NodeUid,
    #[serde(rename = "k8s.cluster.uid")]
    ClusterUid,
    #[serde(rename = "k8s.container.name")]
    ContainerName,
    #[serde(rename = "k8s.container.restart_count")]
    ContainerRestartCount,
    #[serde(rename = "k8s.container.init")]
    ContainerInit,
    #[serde(rename = "k8s.container.image")]
    ContainerImage,
    #[serde(rename = "container.id")]
    ContainerId,
    #[serde(rename = "container.image.name")]
    ContainerImageName,
    #[serde(rename = "container.image.tag")]
    ContainerImageTag,
    #[serde(rename = "container.image.repo_digests")]
    ContainerImageRepoDigests,
    #[serde(rename = "service.namespace")]
    ServiceNamespace,
    #[serde(rename = "service.name")]
    ServiceName,
    #[serde(rename = "service.version")]
    ServiceVersion,
    #[serde(rename = "service.instance.id")]
    ServiceInstanceId,
}

impl Field {
    pub(super) fn is_of_another_object(self) -> bool {
        matches!(
            self,
            Self::DeploymentUid | Self::CronJobUid | Self::NodeUid | Self::ClusterUid
        )
    }
}
