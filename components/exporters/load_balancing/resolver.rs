//! Finds the endpoints.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

use profcol_component::{BuildContext, Check, IntCounter};
use profcol_net::{ConnectError, lookup_within};

use super::config::{DnsConfig, ResolverConfig};
use super::endpoint;

pub(super) struct Resolver {
    source: Source,
    succeeded: IntCounter,
    failed: IntCounter,
}

enum Source {
    Static(BTreeSet<String>),
    Dns(DnsConfig),
}

impl Resolver {
    /// Validation guarantees that there is one.
    pub(super) fn new(config: &ResolverConfig, context: &BuildContext) -> Self {
        let source = match (&*config.fixed, &*config.dns) {
            (_, Some(dns)) => Source::Dns(dns.clone()),
            (fixed, None) => {
                let hostnames = fixed.as_ref().map(|it| &it.hostnames[..]);
                Source::Static(endpoint::of_hostnames(hostnames.unwrap_or_default()))
            }
        };
        let (id, name) = (context.id.to_string(), source.name());
        let counter = |success: &str| {
            context.meter.counter(
                "otelcol_loadbalancer_num_resolutions",
                "Resolutions of the endpoints, by success.",
                &[("exporter", &id), ("resolver", name), ("success", success)],
            )
        };
        Self {
            source,
            succeeded: counter("true"),
            failed: counter("false"),
        }
    }

    pub(super) fn name(&self) -> &'static str {
        self.source.name()
    }

    /// How often to resolve again; `None` for a list that does not change.
    pub(super) fn interval(&self) -> Option<Duration> {
        match &self.source {
            Source::Static(_) => None,
            Source::Dns(dns) => Some(dns.interval.into()),
        }
    }

    pub(super) async fn resolve(&self) -> Result<BTreeSet<String>, ConnectError> {
        let resolved = self.source.resolve().await;
        match &resolved {
            Ok(_) => self.succeeded.inc(),
            Err(_) => self.failed.inc(),
        }
        resolved
    }

    /// The check of a failure.
    pub(super) fn failed(&self, error: &ConnectError) -> Check {
        Check::new("resolver", error.to_string()).fail(
            "no endpoint is known; profiles wait in the queue and are dropped when it is full",
            "correct `resolver::dns::hostname`, or check the DNS server",
        )
    }
}

impl Source {
    fn name(&self) -> &'static str {
        match self {
            Self::Static(_) => "static",
            Self::Dns(_) => "dns",
        }
    }

    async fn resolve(&self) -> Result<BTreeSet<String>, ConnectError> {
        match self {
            Self::Static(endpoints) => Ok(endpoints.clone()),
            Self::Dns(dns) => {
                let found = lookup_within(dns.timeout.into(), &dns.hostname, dns.port).await?;
                Ok(found.iter().map(SocketAddr::to_string).collect())
            }
        }
    }
}
