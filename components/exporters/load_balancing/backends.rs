//! The destinations: one for each endpoint.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use async_trait::async_trait;
use futures_util::future::join_all;
use parking_lot::Mutex;
use profcol_component::{
    Batch, BuildContext, BuildError, Check, Delivered, Delivery, Destinations, Exporter, Gauge,
    IntCounter, Reason, Refusal, StartError,
};
use tokio::sync::watch;

use super::config::LoadBalancingConfig;
use super::endpoint;
use super::key::{Chooser, Key};
use crate::shared::otlp_grpc::OtlpGrpcSender;

pub(super) struct Backends {
    config: LoadBalancingConfig,
    context: BuildContext,
    key: Key,
    by_endpoint: Mutex<BTreeMap<String, Arc<Backend>>>,
    published: watch::Sender<Arc<Destinations>>,
    metrics: Metrics,
}

/// One endpoint.
struct Backend {
    endpoint: Arc<str>,
    sender: OtlpGrpcSender,
    delivery: Delivery,
    succeeded: IntCounter,
    failed: IntCounter,
}

/// The destination while no endpoint is known: batches wait in its queue until there is one.
struct NoEndpointYet(Delivery);

struct Metrics {
    backends: Gauge,
    updates: IntCounter,
    succeeded: IntCounter,
    failed: IntCounter,
}

/// Why an endpoint refused a batch.
#[derive(Debug, thiserror::Error)]
#[error("{endpoint}: {reason}")]
struct RefusedBy {
    endpoint: Arc<str>,
    reason: Reason,
}

// === impl Backends ===

impl Backends {
    pub(super) fn new(
        config: &LoadBalancingConfig,
        context: &BuildContext,
        resolver: &str,
    ) -> Self {
        let id = context.id.to_string();
        let labels: &[(&str, &str)] = &[("exporter", &id), ("resolver", resolver)];
        let outcome = |success: &str| {
            context.meter.counter(
                "otelcol_loadbalancer_backend_outcome",
                "Export attempts, by success.",
                &[("exporter", &id), ("success", success)],
            )
        };
        let no_endpoint_yet = NoEndpointYet(config.protocol.otlp.delivery());
        let none = Destinations::new(Arc::new(no_endpoint_yet), [], |_| 0);
        Self {
            config: config.clone(),
            context: context.clone(),
            key: Key::of(config),
            by_endpoint: Mutex::default(),
            published: watch::Sender::new(Arc::new(none)),
            metrics: Metrics {
                backends: context.meter.gauge(
                    "otelcol_loadbalancer_num_backends",
                    "Current number of endpoints.",
                    labels,
                ),
                updates: context.meter.counter(
                    "otelcol_loadbalancer_num_backend_updates",
                    "Changes of the list of endpoints.",
                    labels,
                ),
                succeeded: outcome("true"),
                failed: outcome("false"),
            },
        }
    }

    pub(super) fn subscribe(&self) -> watch::Receiver<Arc<Destinations>> {
        self.published.subscribe()
    }

    /// Whether no endpoint is known.
    pub(super) fn is_empty(&self) -> bool {
        self.by_endpoint.lock().is_empty()
    }

    /// Checks the settings with an endpoint that is not used.
    pub(super) fn check_settings(&self) -> Result<(), StartError> {
        let sender = self.sender("localhost:4317").map_err(StartError::new)?;
        sender.start().map_err(StartError::new)
    }

    /// Makes these the endpoints. An empty list is ignored: a failure of the resolver is more likely.
    pub(super) fn set(&self, mut endpoints: BTreeSet<String>) -> Result<(), StartError> {
        let left_out = endpoint::bound(&mut endpoints);
        let mut by_endpoint = self.by_endpoint.lock();
        if endpoints.is_empty() || by_endpoint.keys().eq(&endpoints) {
            return Ok(());
        }
        let mut new = BTreeMap::new();
        for endpoint in endpoints {
            let backend = match by_endpoint.get(&endpoint) {
                Some(known) => Arc::clone(known),
                None => Arc::new(self.backend(&endpoint)?),
            };
            new.insert(endpoint, backend);
        }
        let gone = by_endpoint.keys().filter(|it| !new.contains_key(*it));
        tracing::info!(
            otelcol.component.id = %self.context.id,
            otelcol.component.kind = "exporter",
            endpoints = new.len(),
            removed = gone.count(),
            left_out,
            "The endpoints have changed."
        );
        let chooser = Chooser::new(self.key.clone(), new.keys().map(String::as_str));
        let mut exporters = new.values().map(|it| Arc::clone(it) as Arc<dyn Exporter>);
        if let Some(first) = exporters.next() {
            let destinations = Destinations::new(first, exporters, move |it| chooser.choose(it));
            self.published.send_replace(Arc::new(destinations));
        }
        self.metrics.backends.set(new.len() as f64);
        self.metrics.updates.inc();
        *by_endpoint = new;
        Ok(())
    }

    /// Checks each endpoint by a handshake.
    pub(super) async fn check(&self, endpoints: &BTreeSet<String>) -> Vec<Check> {
        let checks = endpoints.iter().map(async |endpoint| {
            // Building the exporter has reported an error.
            let sender = self.sender(endpoint).ok()?;
            Some(sender.check().await)
        });
        join_all(checks).await.into_iter().flatten().collect()
    }

    fn sender(&self, endpoint: &str) -> Result<OtlpGrpcSender, BuildError> {
        let path = format!("exporters::{}::protocol::otlp", self.context.id);
        OtlpGrpcSender::new(path, &self.config.protocol.at(endpoint), &self.context)
    }

    fn backend(&self, endpoint: &str) -> Result<Backend, StartError> {
        let sender = self.sender(endpoint).map_err(StartError::new)?;
        sender.start().map_err(StartError::new)?;
        Ok(Backend {
            endpoint: endpoint.into(),
            sender,
            delivery: self.config.protocol.otlp.delivery(),
            succeeded: self.metrics.succeeded.clone(),
            failed: self.metrics.failed.clone(),
        })
    }
}

// === impl Backend ===

impl Backend {
    fn named(&self, reason: Reason) -> Reason {
        Reason::new(RefusedBy {
            endpoint: Arc::clone(&self.endpoint),
            reason,
        })
    }
}

#[async_trait]
impl Exporter for Backend {
    fn delivery(&self) -> Delivery {
        self.delivery.clone()
    }

    async fn export(&self, batch: &Batch) -> Result<Delivered, Refusal> {
        let answer = self.sender.export(batch).await;
        match &answer {
            Ok(_) => self.succeeded.inc(),
            Err(_) => self.failed.inc(),
        }
        answer.map_err(|refusal| match refusal {
            Refusal::Retry { reason, after } => Refusal::Retry {
                reason: self.named(reason),
                after,
            },
            Refusal::Permanent { reason } => Refusal::Permanent {
                reason: self.named(reason),
            },
            Refusal::TooLarge {
                reason,
                limit_bytes,
            } => Refusal::TooLarge {
                reason: self.named(reason),
                limit_bytes,
            },
        })
    }
}

// === impl NoEndpointYet ===

#[async_trait]
impl Exporter for NoEndpointYet {
    fn delivery(&self) -> Delivery {
        self.0.clone()
    }

    async fn export(&self, _: &Batch) -> Result<Delivered, Refusal> {
        Err(Refusal::retry("no endpoint is known yet"))
    }
}
