//! The options of `load_balancing`, compatible with the Collector.

use profcol_config::{Config, Duration, Present, Problem, Problems};
use profcol_net::GrpcClientSettings;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::endpoint;
use crate::shared::otlp_grpc::OtlpGrpcConfig;

/// Divides profiles between several destinations, so that equal resources always reach the same one.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
#[schemars(extend("x-refused" = {
    "sending_queue": "each endpoint has a queue of its own; set `protocol::otlp::sending_queue`",
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
#[schemars(extend("x-refused" = {
    "k8s": "profcol does not watch EndpointSlices; use `dns` with the name of a headless service, such as `profcol-gateway-headless.profcol.svc.cluster.local`",
    "aws_cloud_map": "profcol does not query AWS Cloud Map; use `dns` with the DNS name of the service",
}))]
pub struct ResolverConfig {
    /// A fixed list.
    #[serde(rename = "static", skip_serializing_if = "Option::is_none")]
    pub fixed: Present<StaticConfig>,
    /// All addresses of a host name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dns: Present<DnsConfig>,
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
        if self.otlp.delivery.sending_queue.storage.is_some() {
            problems.add(
                "sending_queue::storage",
                "queues of endpoints that come and go are in memory only; remove it",
            );
        }
        self.at("localhost:4317").validate(problems);
    }
}

impl ResolverConfig {
    fn validate(&self, problems: &mut Problems) {
        match (&*self.fixed, &*self.dns) {
            (None, None) => {
                let problem = Problem::new("no resolvers specified for the exporter");
                problems.push(problem.help("add `static` or `dns`"));
            }
            (Some(_), Some(_)) => {
                problems.add("", "only one resolver should be specified");
            }
            (Some(fixed), None) => problems.nested("static", |problems| fixed.validate(problems)),
            (None, Some(dns)) => problems.nested("dns", |problems| dns.validate(problems)),
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
