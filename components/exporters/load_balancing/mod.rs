//! Divides profiles between several destinations over OTLP gRPC, so that equal resources always reach the same one.
//!
//! ```text
//! Resolver ──endpoints──► Backends ──Destinations──► the engine: a queue for each
//! ```

mod backends;
mod config;
mod endpoint;
mod key;
#[cfg(feature = "k8s_resolver")]
mod kubernetes;
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

/// What became of the last resolution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Followed {
    Well,
    Unresolved,
    /// The endpoints were found, but no connection to a new one could be set up.
    Unused,
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
            delivery: Delivery {
                // Each call has its own, whose error names the endpoint.
                timeout: None,
                ..config.protocol.otlp.delivery()
            },
            resolver,
            backends,
        })
    }

    /// Resolves the endpoints, and uses them. A failure is logged unless the last time failed, too.
    async fn follow(&self, before: Followed) -> Followed {
        let (now, error) = match self.resolver.resolve().await {
            Ok(endpoints) => match self.backends.set(endpoints) {
                Ok(()) => {
                    if before != Followed::Well {
                        self.status.set(Status::Ok);
                    }
                    return Followed::Well;
                }
                Err(error) => (Followed::Unused, error.to_string()),
            },
            Err(error) if error.is_reported() => return Followed::Unresolved,
            Err(error) => (Followed::Unresolved, error.to_string()),
        };
        if before == Followed::Well {
            tracing::warn!(
                otelcol.component.id = %self.id,
                otelcol.component.kind = "exporter",
                %error,
                "Failed to resolve the endpoints. Keeping the previous ones; without any, batches wait in the queue."
            );
        }
        self.status
            .set(Status::RecoverableError(Reason::new(error)));
        now
    }

    /// Follows changes until cancelled.
    async fn keep_up(&self) {
        let mut last = match self.backends.is_empty() {
            true => Followed::Unresolved,
            false => Followed::Well,
        };
        loop {
            self.resolver.changed(last == Followed::Unused).await;
            last = self.follow(last).await;
        }
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
        self.resolver.start().await?;
        self.follow(Followed::Well).await;
        Ok(())
    }

    async fn check(&self) -> Vec<Check> {
        match self.resolver.check().await {
            Ok(endpoints) => self.backends.check(&endpoints).await,
            Err(failed) => failed,
        }
    }

    /// Batches go to the destinations.
    async fn export(&self, _: &Batch) -> Result<Delivered, Refusal> {
        Err(Refusal::retry("no endpoint"))
    }

    async fn run(self: Arc<Self>, stop: Stop) -> Result<(), RunError> {
        tokio::select! {
            () = self.resolver.run() => {}
            () = self.keep_up() => {}
            () = stop.cancelled() => {}
        }
        Ok(())
    }
}
