//! Divides profiles between several destinations over OTLP gRPC, so that equal resources always reach the same one.
//!
//! ```text
//! Resolver ──endpoints──► Backends ──Destinations──► the engine: a queue for each
//! ```

mod backends;
mod config;
mod endpoint;
mod key;
mod resolver;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use async_trait::async_trait;
use profcol_component::{
    Batch, BuildContext, BuildError, Capabilities, Check, ComponentStatus, Delivered, Delivery,
    Destinations, Exporter, Factory, Reason, Refusal, RunError, Stability, StartError, Status,
    Stop,
};
use tokio::sync::watch;

use self::backends::Backends;
pub use self::config::LoadBalancingConfig;
use self::resolver::Resolver;
use crate::shared::otlp::client_auth;

pub struct LoadBalancing {
    id: String,
    status: ComponentStatus,
    delivery: Delivery,
    resolver: Resolver,
    backends: Backends,
}

impl Factory for LoadBalancing {
    const NAME: &'static str = "load_balancing";
    const ALIASES: &'static [&'static str] = &["loadbalancing"];
    const STABILITY: Stability = Stability::Alpha;
    type Config = LoadBalancingConfig;
    type Component = dyn Exporter;

    fn capabilities(config: &LoadBalancingConfig) -> Capabilities {
        let hostnames = config.resolver.fixed.iter().flat_map(|it| &it.hostnames);
        hostnames.fold(Capabilities::NONE, |needed, hostname| {
            needed | Capabilities::to_connect(hostname)
        })
    }

    fn build(
        config: &LoadBalancingConfig,
        context: &BuildContext,
    ) -> Result<Box<dyn Exporter>, BuildError> {
        Ok(Box::new(LoadBalancing::new(config, context)?))
    }
}

impl LoadBalancing {
    fn new(config: &LoadBalancingConfig, context: &BuildContext) -> Result<Self, BuildError> {
        // Endpoints that come later use it, too; a reload that replaces it must replace this exporter.
        client_auth(config.protocol.otlp.client.auth.as_ref(), context)?;
        let resolver = Resolver::new(&config.resolver, context);
        let backends = Backends::new(config, context, resolver.name());
        Ok(Self {
            id: context.id.to_string(),
            status: context.status.clone(),
            delivery: config.protocol.otlp.delivery(),
            resolver,
            backends,
        })
    }

    /// Resolves the endpoints; on failure the previous ones stay.
    async fn resolve(&self) -> Result<(), StartError> {
        let endpoints = self.resolver.resolve().await.map_err(StartError::new)?;
        self.backends.set(endpoints)
    }

    /// Resolves the endpoints. Returns whether that failed; a failure is logged unless the last time failed, too.
    async fn follow(&self, failed_before: bool) -> bool {
        let Err(error) = self.resolve().await else {
            if failed_before {
                self.status.set(Status::Ok);
            }
            return false;
        };
        if !failed_before {
            tracing::warn!(
                otelcol.component.id = %self.id,
                otelcol.component.kind = "exporter",
                error = %error,
                "Failed to resolve the endpoints. Keeping the previous ones; without any, batches wait in the queue."
            );
        }
        let reason = Reason::new(error.to_string());
        self.status.set(Status::RecoverableError(reason));
        true
    }
}

#[async_trait]
impl Exporter for LoadBalancing {
    fn delivery(&self) -> Delivery {
        self.delivery.clone()
    }

    fn destinations(&self) -> Option<watch::Receiver<Arc<Destinations>>> {
        Some(self.backends.subscribe())
    }

    async fn start(&self) -> Result<(), StartError> {
        self.backends.check_settings()?;
        self.follow(false).await;
        Ok(())
    }

    async fn check(&self) -> Vec<Check> {
        match self.resolver.resolve().await {
            Ok(endpoints) => self.backends.check(&endpoints).await,
            Err(error) => vec![self.resolver.failed(&error)],
        }
    }

    /// Batches go to the destinations.
    async fn export(&self, _: &Batch) -> Result<Delivered, Refusal> {
        Err(Refusal::retry("no endpoint"))
    }

    async fn run(self: Arc<Self>, stop: Stop) -> Result<(), RunError> {
        let Some(interval) = self.resolver.interval() else {
            stop.cancelled().await;
            return Ok(());
        };
        let mut failed = self.backends.is_empty();
        loop {
            tokio::select! {
                () = tokio::time::sleep(interval) => {}
                () = stop.cancelled() => return Ok(()),
            }
            tokio::select! {
                now = self.follow(failed) => failed = now,
                () = stop.cancelled() => return Ok(()),
            }
        }
    }
}
