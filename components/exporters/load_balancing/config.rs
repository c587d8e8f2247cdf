//! The options of `load_balancing`, compatible with the Collector.

use profcol_config::{Config, Duration, Present, Problem, Problems};
#[cfg(feature = "k8s_resolver")]
use profcol_kubernetes::{Access, AuthType};
use profcol_net::GrpcClientSettings;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::endpoint;
use crate::shared::otlp_grpc::OtlpGrpcConfig;

/// Divides profiles between several destinations, so that equal resources always reach the same one.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
#[schemars(extend("x-refused" = {
    "sending_queue": "set `protocol::otlp::sending_queue`: in memory, each endpoint has a queue of its own; with `storage`, all share one on disk, and what waits for an endpoint that goes away is sent to another one",
    "retry_on_failure": "each endpoint has retries of its own; set `protocol::otlp::retry_on_failure`",
    "timeout": "set `protocol::otlp::timeout`",
}))]
pub struct LoadBalancingConfig {
    /// What equal keys have in common: `service` (the attribute `service.name`), `resource` (all attributes of the
    /// resource) or `attributes` (those in `routing_attributes`).
    pub routing_key: RoutingKey,
    /// The attributes of the resource that are the key, with `routing_key: attributes`.
    pub routing_attributes: Vec<String>,
    /// How profiles are sent.
    pub protocol: ProtocolConfig,
    /// Where the endpoints come from; exactly one of its sections is required.
    pub resolver: ResolverConfig,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
#[schemars(extend("x-unknown" = "unsupported routing_key:"))]
pub enum RoutingKey {
    #[default]
    Service,
    Resource,
    Attributes,
}

/// How profiles are sent.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
pub struct ProtocolConfig {
    /// The options of the exporter `otlp_grpc`, for each endpoint. `endpoint` itself comes from the resolver.
    pub otlp: OtlpGrpcConfig,
}

/// Where the endpoints come from.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
#[cfg_attr(feature = "k8s_resolver", schemars(extend("x-refused" = {
    "aws_cloud_map": "profcol does not query AWS Cloud Map; use `dns` with the DNS name of the service",
})))]
#[cfg_attr(not(feature = "k8s_resolver"), schemars(extend("x-refused" = {
    "aws_cloud_map": "profcol does not query AWS Cloud Map; use `dns` with the DNS name of the service",
    "k8s": "this binary was built without the feature `k8s_resolver`; use `dns` with the name of a headless service, such as `profcol-gateway-headless.profcol.svc.cluster.local`",
})))]
pub struct ResolverConfig {
    /// A fixed list.
    #[serde(rename = "static", skip_serializing_if = "Option::is_none")]
    pub fixed: Present<StaticConfig>,
    /// All addresses of a host name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dns: Present<DnsConfig>,
    /// The ready endpoints of a Kubernetes service.
    #[cfg(feature = "k8s_resolver")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub k8s: Present<K8sConfig>,
}

/// A fixed list.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
pub struct StaticConfig {
    /// The endpoints, as in `otlp_grpc`; without a port it is 4317.
    pub hostnames: Vec<String>,
}

/// All addresses of a host name.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
pub struct DnsConfig {
    /// The host name.
    pub hostname: String,
    /// The port of all addresses.
    pub port: u16,
    /// How often the name is resolved.
    pub interval: Duration,
    /// Timeout of resolving it.
    pub timeout: Duration,
}

impl Default for DnsConfig {
    fn default() -> Self {
        Self {
            hostname: String::new(),
            port: endpoint::DEFAULT_PORT,
            interval: Duration::from_secs(5),
            timeout: Duration::from_secs(1),
        }
    }
}

/// The ready endpoints of a Kubernetes service.
#[cfg(feature = "k8s_resolver")]
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
pub struct K8sConfig {
    /// The service, as `name.namespace`. Without a namespace it is that of the pod that profcol runs in, or of the
    /// kubeconfig's context.
    pub service: String,
    /// The ports of each pod; several count as several endpoints.
    pub ports: Vec<u16>,
    /// Timeout of listing the endpoints.
    pub timeout: Duration,
    /// Connect to host names instead of addresses. The service must be the headless one of a StatefulSet.
    pub return_hostnames: bool,
    /// How to authenticate: as the pod's service account, with a kubeconfig file, or not at all.
    pub auth_type: AuthType,
    /// The file for `kubeConfig`. Empty means `KUBECONFIG`, or `~/.kube/config`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub kube_config_path: String,
    /// The context in that file. Empty means its current context.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub context: String,
}

#[cfg(feature = "k8s_resolver")]
impl Default for K8sConfig {
    fn default() -> Self {
        Self {
            service: String::new(),
            ports: vec![endpoint::DEFAULT_PORT],
            timeout: Duration::from_secs(1),
            return_hostnames: false,
            auth_type: AuthType::default(),
            kube_config_path: String::new(),
            context: String::new(),
        }
    }
}

// === validation ===

impl Config for LoadBalancingConfig {
    fn validate(&self, problems: &mut Problems) {
        match (self.routing_key, self.routing_attributes.is_empty()) {
            (RoutingKey::Attributes, true) => problems.add(
                "routing_attributes",
                "must not be empty with `routing_key: attributes`",
            ),
            (RoutingKey::Service | RoutingKey::Resource, false) => {
                problems.add("routing_attributes", "requires `routing_key: attributes`");
            }
            _ => {}
        }
        problems.nested("protocol::otlp", |problems| {
            self.protocol.validate(problems)
        });
        problems.nested("resolver", |problems| self.resolver.validate(problems));
    }
}

impl ProtocolConfig {
    /// The options for one endpoint.
    pub(super) fn at(&self, endpoint: &str) -> OtlpGrpcConfig {
        let mut config = self.otlp.clone();
        endpoint.clone_into(&mut config.client.endpoint);
        config
    }

    fn validate(&self, problems: &mut Problems) {
        if !self.otlp.client.endpoint.is_empty() {
            problems.add("endpoint", "the endpoints come from `resolver`; remove it");
        }
        self.at("localhost:4317").validate(problems);
    }
}

impl ResolverConfig {
    fn validate(&self, problems: &mut Problems) {
        let mut resolvers = 0;
        if let Some(fixed) = &*self.fixed {
            resolvers += 1;
            problems.nested("static", |problems| fixed.validate(problems));
        }
        if let Some(dns) = &*self.dns {
            resolvers += 1;
            problems.nested("dns", |problems| dns.validate(problems));
        }
        #[cfg(feature = "k8s_resolver")]
        if let Some(k8s) = &*self.k8s {
            resolvers += 1;
            problems.nested("k8s", |problems| k8s.validate(problems));
        }
        match resolvers {
            0 => {
                let problem = Problem::new("no resolvers specified for the exporter");
                problems.push(problem.help("add `static`, `dns` or `k8s`"));
            }
            1 => {}
            _ => problems.add("", "only one resolver should be specified"),
        }
    }
}

impl StaticConfig {
    fn validate(&self, problems: &mut Problems) {
        if self.hostnames.is_empty() {
            problems.add(
                "hostnames",
                "no hostnames specified to resolve the backends",
            );
        }
        if self.hostnames.len() > endpoint::MAX {
            let message = format!("must have at most {} hostnames", endpoint::MAX);
            problems.add("hostnames", message);
        }
        for (position, hostname) in self.hostnames.iter().enumerate() {
            let endpoint = endpoint::with_port(hostname);
            if let Err(error) = GrpcClientSettings::check_endpoint(&endpoint) {
                problems.add(&format!("hostnames::{position}"), error);
            }
        }
    }
}

impl DnsConfig {
    fn validate(&self, problems: &mut Problems) {
        if self.hostname.is_empty() {
            problems.add("hostname", "no hostname specified to resolve the backends");
        }
        for (key, duration) in [("interval", self.interval), ("timeout", self.timeout)] {
            if duration.is_negative() || duration.is_zero() {
                problems.add(key, "must be positive");
            }
        }
    }
}

#[cfg(feature = "k8s_resolver")]
impl K8sConfig {
    /// The name of the service, and its namespace unless it is the default one.
    pub(super) fn service(&self) -> (&str, Option<&str>) {
        match self.service.split_once('.') {
            Some((name, namespace)) => (name, Some(namespace)),
            None => (&self.service, None),
        }
    }

    pub(super) fn access(&self) -> Access {
        Access {
            auth_type: self.auth_type,
            kube_config_path: self.kube_config_path.clone(),
            context: self.context.clone(),
            kubelet: None,
        }
    }

    fn validate(&self, problems: &mut Problems) {
        let (name, namespace) = self.service();
        if self.service.is_empty() {
            problems.add("service", "no service specified to resolve the backends");
        } else if !is_label(name) || !namespace.is_none_or(is_label) {
            let problem = format!(
                "{:?} is not a service: it must be `name` or `name.namespace`, without a domain",
                self.service
            );
            problems.add("service", problem);
        }
        if self.ports.is_empty() {
            problems.add("ports", "must not be empty");
        }
        for (position, port) in self.ports.iter().enumerate() {
            if *port == 0 {
                problems.add(&format!("ports::{position}"), "must be positive");
            }
            if self.ports.iter().take(position).any(|it| it == port) {
                problems.add(&format!("ports::{position}"), "is listed twice");
            }
        }
        if self.timeout.is_negative() || self.timeout.is_zero() {
            problems.add("timeout", "must be positive");
        }
        for (key, problem) in self.access().problems() {
            problems.add(key, problem);
        }
    }
}

/// Whether it can be the name of a service or a namespace (RFC 1123).
#[cfg(feature = "k8s_resolver")]
pub(super) fn is_label(text: &str) -> bool {
    let is_inner = |it: char| it.is_ascii_lowercase() || it.is_ascii_digit() || it == '-';
    (1..=63).contains(&text.len())
        && text.chars().all(is_inner)
        && !text.starts_with('-')
        && !text.ends_with('-')
}
