//! Finds the endpoints.

use std::collections::BTreeSet;
use std::future::pending;
use std::net::SocketAddr;

use profcol_component::{BuildContext, Check, IntCounter, StartError};
use profcol_net::{ConnectError, lookup_within};

use super::config::{DnsConfig, ResolverConfig};
use super::endpoint;
#[cfg(feature = "k8s_resolver")]
use super::kubernetes::{NoEndpoint, ServiceWatch};

pub(super) struct Resolver {
    name: &'static str,
    source: Source,
    succeeded: IntCounter,
    failed: IntCounter,
}

enum Source {
    Static(BTreeSet<String>),
    Dns(DnsConfig),
    #[cfg(feature = "k8s_resolver")]
    K8s(Box<ServiceWatch>),
}

#[derive(Debug, thiserror::Error)]
pub(super) enum ResolveError {
    #[error(transparent)]
    Dns(#[from] ConnectError),
    #[cfg(feature = "k8s_resolver")]
    #[error(transparent)]
    K8s(#[from] NoEndpoint),
}

// === impl ResolveError ===

impl ResolveError {
    /// Whether the failure behind it was counted and reported where it happened.
    pub(super) fn is_reported(&self) -> bool {
        match self {
            Self::Dns(_) => false,
            #[cfg(feature = "k8s_resolver")]
            Self::K8s(error) => matches!(error, NoEndpoint::Unknown),
        }
    }
}

// === impl Resolver ===

impl Resolver {
    /// Validation guarantees that `config` names one.
    pub(super) fn new(config: &ResolverConfig, context: &BuildContext) -> Self {
        let (id, name) = (context.id.to_string(), name(config));
        let counter = |success: &str| {
            context.meter.counter(
                "otelcol_loadbalancer_num_resolutions",
                "Resolutions of the endpoints, by success.",
                &[("exporter", &id), ("resolver", name), ("success", success)],
            )
        };
        let failed = counter("false");
        Self {
            name,
            source: Source::new(config, context, &failed),
            succeeded: counter("true"),
            failed,
        }
    }

    pub(super) fn name(&self) -> &'static str {
        self.name
    }

    /// Prepares for [`resolve`](Self::resolve).
    pub(super) async fn start(&self) -> Result<(), StartError> {
        match &self.source {
            Source::Static(_) | Source::Dns(_) => Ok(()),
            #[cfg(feature = "k8s_resolver")]
            Source::K8s(watch) => watch.start().await,
        }
    }

    pub(super) async fn resolve(&self) -> Result<BTreeSet<String>, ResolveError> {
        let resolved = self.source.resolve().await;
        match &resolved {
            Ok(_) => self.succeeded.inc(),
            Err(error) if error.is_reported() => {}
            Err(_) => self.failed.inc(),
        }
        resolved
    }

    /// Finds changes until cancelled.
    pub(super) async fn run(&self) {
        match &self.source {
            Source::Static(_) | Source::Dns(_) => pending().await,
            #[cfg(feature = "k8s_resolver")]
            Source::K8s(watch) => watch.run().await,
        }
    }

    /// Waits until it is time to resolve again. `is_unused`: the endpoints found last are not in use.
    #[cfg_attr(
        not(feature = "k8s_resolver"),
        expect(unused_variables, reason = "only a watch needs it")
    )]
    pub(super) async fn changed(&self, is_unused: bool) {
        match &self.source {
            // Only a reload changes a static list.
            Source::Static(_) => pending().await,
            Source::Dns(dns) => tokio::time::sleep(dns.interval.into()).await,
            #[cfg(feature = "k8s_resolver")]
            Source::K8s(watch) => watch.changed(is_unused).await,
        }
    }

    /// The endpoints, or the failed checks.
    pub(super) async fn check(&self) -> Result<BTreeSet<String>, Vec<Check>> {
        match &self.source {
            Source::Static(_) | Source::Dns(_) => {}
            #[cfg(feature = "k8s_resolver")]
            Source::K8s(watch) => return watch.check().await,
        }
        self.resolve().await.map_err(|error| {
            let check = Check::new("resolver", error.to_string()).fail(
                "no endpoint is known; profiles wait in the queue and are dropped when it is full",
                "correct `resolver::dns::hostname`, or check the DNS server",
            );
            vec![check]
        })
    }
}

fn name(config: &ResolverConfig) -> &'static str {
    #[cfg(feature = "k8s_resolver")]
    if config.k8s.is_some() {
        return "k8s";
    }
    match *config.dns {
        Some(_) => "dns",
        None => "static",
    }
}

impl Source {
    /// `failed` counts resolutions that failed.
    #[cfg_attr(
        not(feature = "k8s_resolver"),
        expect(unused_variables, reason = "only a watch needs them")
    )]
    fn new(config: &ResolverConfig, context: &BuildContext, failed: &IntCounter) -> Self {
        #[cfg(feature = "k8s_resolver")]
        if let Some(k8s) = &*config.k8s {
            return Self::K8s(Box::new(ServiceWatch::new(k8s, context, failed.clone())));
        }
        match (&*config.fixed, &*config.dns) {
            (_, Some(dns)) => Self::Dns(dns.clone()),
            (fixed, None) => {
                let hostnames = fixed.as_ref().map(|it| &it.hostnames[..]);
                Self::Static(endpoint::from_hostnames(hostnames.unwrap_or_default()))
            }
        }
    }

    async fn resolve(&self) -> Result<BTreeSet<String>, ResolveError> {
        match self {
            Self::Static(endpoints) => Ok(endpoints.clone()),
            Self::Dns(dns) => {
                let found = lookup_within(dns.timeout.into(), &dns.hostname, dns.port).await?;
                Ok(found.iter().map(SocketAddr::to_string).collect())
            }
            #[cfg(feature = "k8s_resolver")]
            Self::K8s(watch) => Ok(watch.endpoints()?),
        }
    }
}
