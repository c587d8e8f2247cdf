//! The options of `k8s_attributes`: the Collector's, and those of profcol.

use profcol_config::{Config, Duration, Problems, Url};
use profcol_kubernetes::{Access, AuthType, Kubelet};
use profcol_net::is_http_url;
use regex::Regex;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::association::{Rule, Source};
use super::field::Field;
use super::keys::{KeyConfig, KeySource};
use super::pod_filter::FilterConfig;

/// Upper limit of `wait_for`.
const MAX_WAIT: Duration = Duration::from_secs(60);
/// The Collector's limit.
const MAX_SOURCES: usize = 4;

/// Adds the Kubernetes pod, container and workload of a process.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
pub struct K8sAttributesConfig {
    /// The source of pod metadata.
    pub source: Origin,
    /// The kubelet to query, for `source: kubelet`.
    pub kubelet: KubeletConfig,
    /// How to authenticate: as the pod's service account, with a kubeconfig file, or not at all.
    pub auth_type: AuthType,
    /// The file for `kubeConfig`. Empty means `KUBECONFIG`, or `~/.kube/config`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub kube_config_path: String,
    /// The context in that file. Empty means its current context.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub context: String,
    /// Query nothing; only add the sender's address as `k8s.pod.ip`.
    pub passthrough: bool,
    /// Attributes to add.
    pub extract: ExtractConfig,
    /// Which pods to watch. In a DaemonSet, those of its own node are enough.
    pub filter: FilterConfig,
    /// How to find the pod of a resource; the first matching rule wins. Empty: by container, pod and address, as
    /// described in the README.
    pub pod_association: Vec<AssociationConfig>,
    /// Pods to ignore.
    pub exclude: ExcludeConfig,
    /// Start only after everything was read from the API server; fail if that takes longer than
    /// `wait_for_metadata_timeout`.
    pub wait_for_metadata: bool,
    /// The timeout of `wait_for_metadata`.
    pub wait_for_metadata_timeout: Duration,
    /// How long a batch may wait for a pod or container that is not known yet, up to `1m`; `0s` disables waiting. Keep
    /// it below the interval between batches, or they pile up.
    pub wait_for: Duration,
    /// The maximum number of pods in the cache; others are counted and not matched.
    pub max_pods: u32,
    /// How long a deleted pod is kept, for its last profiles.
    pub keep_deleted_for: Duration,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Origin {
    /// Watches the API server.
    #[default]
    Api,
    /// Queries the kubelet of this node when a pod is not known: it has only pods, and only those of its node.
    Kubelet,
}

#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
pub struct KubeletConfig {
    /// The URL of the kubelet, such as `https://${env:K8S_NODE_NAME}:10250`.
    #[serde(skip_serializing_if = "Url::is_empty")]
    pub endpoint: Url,
    /// Skip the verification of its certificate, which many kubelets sign themselves.
    pub insecure_skip_verify: bool,
    /// Minimum interval between requests.
    pub poll_interval: Duration,
}

#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
pub struct ExtractConfig {
    /// The attributes to add.
    pub metadata: Vec<Field>,
    /// Attributes from labels.
    pub labels: Vec<KeyConfig>,
    /// Attributes from annotations.
    pub annotations: Vec<KeyConfig>,
    /// The pod's annotation `resource.opentelemetry.io/x` becomes the attribute `x`.
    pub otel_annotations: bool,
    /// Derive the deployment's name from its replica set's, instead of watching replica sets.
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
    /// Where the value comes from.
    pub from: SourceKind,
    /// The name of the attribute.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SourceKind {
    /// An attribute of the resource.
    #[default]
    ResourceAttribute,
    /// The address of the sender.
    Connection,
}

#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
pub struct ExcludeConfig {
    /// Pods by name.
    pub pods: Vec<ExcludedPod>,
}

#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
pub struct ExcludedPod {
    /// An unanchored regular expression for their names.
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
            endpoint: Url::default(),
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
        for (key, problem) in self.access().problems() {
            problems.add(key, problem);
        }
        match self.source {
            Origin::Api => {
                if !self.kubelet.endpoint.is_empty() {
                    problems.add("kubelet::endpoint", "requires source: kubelet");
                }
            }
            Origin::Kubelet => self.check_kubelet(problems),
        }
        if self.max_pods == 0 {
            problems.add("max_pods", "must be at least 1");
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
            problems.add("wait_for", "has no effect with passthrough; remove it");
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
    pub(super) fn access(&self) -> Access {
        let kubelet = || Kubelet {
            endpoint: self.kubelet.endpoint.expose().to_owned(),
            insecure_skip_verify: self.kubelet.insecure_skip_verify,
        };
        Access {
            auth_type: self.auth_type,
            kube_config_path: self.kube_config_path.clone(),
            context: self.context.clone(),
            kubelet: (self.source == Origin::Kubelet).then(kubelet),
        }
    }

    /// A kubelet has the pods of its node and no other objects.
    fn check_kubelet(&self, problems: &mut Problems) {
        if !is_http_url(self.kubelet.endpoint.expose()) {
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
            problems.add(
                "filter",
                "a kubelet always lists all pods of its node; remove it",
            );
        }
        for (position, field) in self.extract.metadata.iter().enumerate() {
            if field.is_of_another_object() {
                problems.add(
                    &format!("extract::metadata::{position}"),
                    "is not part of the pod, and a kubelet has only pods: use source: api",
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
                        "a kubelet has only pods: use source: api",
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
