//! The options of `k8s_attributes`: the Collector's, and what this one has beyond them.

use profcol_config::{Config, Duration, Problems};
use profcol_net::is_http_url;
use regex::Regex;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::association::{Rule, Source};
use super::field::Field;
use super::keys::{KeyConfig, KeySource};
use super::selection::FilterConfig;

/// A batch waits no longer, whatever is asked for.
const MAX_WAIT: Duration = Duration::from_secs(60);
/// A rule of the Collector has no more sources.
const MAX_SOURCES: usize = 4;

/// Adds the Kubernetes pod, container and workload of a process.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
pub struct K8sAttributesConfig {
    /// The source of pod metadata.
    pub source: Origin,
    /// With `source: kubelet`: where it is.
    pub kubelet: KubeletConfig,
    /// Who asks: the pod's service account, who a kubeconfig file says, or nobody in particular.
    pub auth_type: AuthType,
    /// With `kubeConfig`: the file. Empty is what `KUBECONFIG` says, or `~/.kube/config`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub kube_config_path: String,
    /// With `kubeConfig`: the context of that file. Empty is its current one.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub context: String,
    /// Ask nobody; only note the sender's address as `k8s.pod.ip`.
    pub passthrough: bool,
    /// Attributes to add.
    pub extract: ExtractConfig,
    /// Which pods are looked at. In a DaemonSet those of the own node are enough.
    pub filter: FilterConfig,
    /// How the pod of a resource is found, the first rule that finds one counts. Empty: by container, pod and address, as the README says.
    pub pod_association: Vec<AssociationConfig>,
    /// Pods to ignore.
    pub exclude: ExcludeConfig,
    /// Do not start before everything was read from the API server; fail where that takes longer than `wait_for_metadata_timeout`.
    pub wait_for_metadata: bool,
    /// How long a start may wait for it.
    pub wait_for_metadata_timeout: Duration,
    /// How long a batch may wait for a pod or container that is not known yet, up to `1m`; `0s` does not. Keep it below the
    /// interval at which batches come, or they pile up.
    pub wait_for: Duration,
    /// Pods that are remembered at most; those beyond are counted and not known.
    pub max_pods: u32,
    /// How long a pod that was deleted is remembered, for its last profiles.
    pub keep_deleted_for: Duration,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Origin {
    /// The API server, which is watched.
    #[default]
    Api,
    /// The kubelet of this node, which is asked when a pod is not known: of its pods alone, and nothing but them.
    Kubelet,
}

#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
pub struct KubeletConfig {
    /// Its URL, such as `https://${env:K8S_NODE_NAME}:10250`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub endpoint: String,
    /// Do not check its certificate, which many kubelets sign by themselves.
    pub insecure_skip_verify: bool,
    /// Minimum interval between requests.
    pub poll_interval: Duration,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema, PartialEq, Eq, Serialize)]
pub enum AuthType {
    /// The service account of the pod in which this runs.
    #[default]
    #[serde(rename = "serviceAccount")]
    ServiceAccount,
    /// A file as `kubectl` uses it.
    #[serde(rename = "kubeConfig")]
    KubeConfig,
    /// No credentials, and no check of the server's certificate.
    #[serde(rename = "none")]
    None,
    /// A client's certificate by itself; stands in a kubeconfig here.
    #[serde(rename = "tls")]
    Tls,
}

#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
pub struct ExtractConfig {
    /// Attributes by their names.
    pub metadata: Vec<Field>,
    /// Attributes from labels.
    pub labels: Vec<KeyConfig>,
    /// Attributes from annotations.
    pub annotations: Vec<KeyConfig>,
    /// The pod's annotation `resource.opentelemetry.io/x` becomes the attribute `x`.
    pub otel_annotations: bool,
    /// Make the deployment's name of its replica set's, instead of watching replica sets.
    pub deployment_name_from_replicaset: bool,
}

#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
pub struct AssociationConfig {
    /// Sources that must all match, at most four.
    pub sources: Vec<SourceConfig>,
}

#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
pub struct SourceConfig {
    /// Where it is said who sent a profile.
    pub from: SourceKind,
    /// The attribute.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SourceKind {
    /// An attribute of the resource.
    #[default]
    ResourceAttribute,
    /// The address from which it came.
    Connection,
}

#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
pub struct ExcludeConfig {
    /// Pods by their names.
    pub pods: Vec<ExcludedPod>,
}

#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
pub struct ExcludedPod {
    /// A regular expression that their names match somewhere.
    pub name: String,
}

impl Default for K8sAttributesConfig {
    fn default() -> Self {
        Self {
            source: Origin::default(),
            kubelet: KubeletConfig::default(),
            auth_type: AuthType::default(),
            kube_config_path: String::new(),
            context: String::new(),
            passthrough: false,
            extract: ExtractConfig::default(),
            filter: FilterConfig::default(),
            pod_association: Vec::new(),
            exclude: ExcludeConfig::default(),
            wait_for_metadata: false,
            wait_for_metadata_timeout: Duration::from_secs(10),
            wait_for: Duration::ZERO,
            max_pods: 200_000,
            keep_deleted_for: Duration::from_secs(120),
        }
    }
}

impl Default for KubeletConfig {
    fn default() -> Self {
        Self {
            endpoint: String::new(),
            insecure_skip_verify: false,
            poll_interval: Duration::from_secs(10),
        }
    }
}

impl Default for ExtractConfig {
    fn default() -> Self {
        Self {
            metadata: vec![
                Field::NamespaceName,
                Field::PodName,
                Field::PodUid,
                Field::PodStartTime,
                Field::DeploymentName,
                Field::NodeName,
                Field::ContainerName,
                Field::ContainerImageName,
                Field::ContainerImageTag,
            ],
            labels: Vec::new(),
            annotations: Vec::new(),
            otel_annotations: false,
            deployment_name_from_replicaset: false,
        }
    }
}

impl Default for ExcludeConfig {
    fn default() -> Self {
        let named = |name: &str| ExcludedPod { name: name.into() };
        Self {
            pods: vec![named("jaeger-agent"), named("jaeger-collector")],
        }
    }
}

impl Config for K8sAttributesConfig {
    fn validate(&self, problems: &mut Problems) {
        if self.auth_type == AuthType::Tls {
            problems.add(
                "auth_type",
                "a client's certificate stands in a kubeconfig file: use kubeConfig",
            );
        }
        if self.auth_type != AuthType::KubeConfig {
            for (key, value) in [
                ("context", &self.context),
                ("kube_config_path", &self.kube_config_path),
            ] {
                if !value.is_empty() {
                    problems.add(key, "is only for auth_type: kubeConfig");
                }
            }
        }
        match self.source {
            Origin::Api => {
                if !self.kubelet.endpoint.is_empty() {
                    problems.add("kubelet::endpoint", "is only for source: kubelet");
                }
            }
            Origin::Kubelet => self.check_kubelet(problems),
        }
        if self.max_pods == 0 {
            problems.add("max_pods", "has to be at least 1");
        }
        for (key, value) in [
            ("wait_for_metadata_timeout", self.wait_for_metadata_timeout),
            ("keep_deleted_for", self.keep_deleted_for),
            ("kubelet::poll_interval", self.kubelet.poll_interval),
        ] {
            if value.is_negative() {
                problems.add(key, "must not be negative");
            }
        }
        if self.wait_for.is_negative() || self.wait_for > MAX_WAIT {
            problems.add("wait_for", "must be between 0s and 1m");
        }
        if self.passthrough && self.wait_for > Duration::ZERO {
            problems.add(
                "wait_for",
                "nothing comes to be known with passthrough: leave it out",
            );
        }
        if !self.filter.node.is_empty() && !self.filter.node_from_env_var.is_empty() {
            problems.add(
                "filter",
                "has both node and node_from_env_var; one of them is enough",
            );
        }
        for (list, keys) in [
            ("labels", &self.extract.labels),
            ("annotations", &self.extract.annotations),
        ] {
            for (position, key) in keys.iter().enumerate() {
                if let Err(message) = key.check() {
                    problems.add(&format!("extract::{list}::{position}"), message);
                }
            }
        }
        for (position, filter) in self.filter.labels.iter().enumerate() {
            filter_key(problems, "labels", position, &filter.key);
        }
        for (position, filter) in self.filter.fields.iter().enumerate() {
            filter_key(problems, "fields", position, &filter.key);
        }
        for (position, association) in self.pod_association.iter().enumerate() {
            if let Err(message) = association.rule() {
                problems.add(&format!("pod_association::{position}"), message);
            }
        }
        for (position, pod) in self.exclude.pods.iter().enumerate() {
            if let Err(error) = Regex::new(&pod.name) {
                problems.add(
                    &format!("exclude::pods::{position}::name"),
                    error.to_string(),
                );
            }
        }
    }
}

impl K8sAttributesConfig {
    /// A kubelet knows the pods of its node and nothing of the cluster.
    fn check_kubelet(&self, problems: &mut Problems) {
        if !is_http_url(&self.kubelet.endpoint) {
            problems.add(
                "kubelet::endpoint",
                "needs a URL such as https://${env:K8S_NODE_NAME}:10250",
            );
        }
        let filter = &self.filter;
        let filters = [&filter.node, &filter.node_from_env_var, &filter.namespace];
        if filters.iter().any(|filter| !filter.is_empty())
            || !filter.labels.is_empty()
            || !filter.fields.is_empty()
        {
            problems.add("filter", "a kubelet tells of all pods of its node");
        }
        for (position, field) in self.extract.metadata.iter().enumerate() {
            if field.is_of_another_object() {
                problems.add(
                    &format!("extract::metadata::{position}"),
                    "does not stand in the pod, and a kubelet knows nothing else: it takes source: api",
                );
            }
        }
        for (list, keys) in [
            ("labels", &self.extract.labels),
            ("annotations", &self.extract.annotations),
        ] {
            for (position, key) in keys.iter().enumerate() {
                if key.from != KeySource::Pod {
                    problems.add(
                        &format!("extract::{list}::{position}::from"),
                        "a kubelet knows only pods: it takes source: api",
                    );
                }
            }
        }
    }
}

fn filter_key(problems: &mut Problems, list: &str, position: usize, key: &str) {
    if key.is_empty() {
        problems.add(&format!("filter::{list}::{position}"), "has no key");
    }
}

impl AssociationConfig {
    pub(super) fn rule(&self) -> Result<Rule, String> {
        if self.sources.is_empty() {
            return Err("needs sources".to_owned());
        }
        if self.sources.len() > MAX_SOURCES {
            return Err(format!(
                "too many association sources. limit is {MAX_SOURCES}"
            ));
        }
        let sources = self.sources.iter().map(|source| match source.from {
            SourceKind::Connection if source.name.is_empty() => Ok(Source::Connection),
            SourceKind::Connection => Err("a connection has no name".to_owned()),
            SourceKind::ResourceAttribute => Source::of_attribute(&source.name),
        });
        Ok(Rule::new(sources.collect::<Result<_, _>>()?))
    }
}
