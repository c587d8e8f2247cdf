//! Keeps the profiles of the last hour in memory, and serves a page that shows them.

mod api;
mod assets;
mod config;
mod hosts;
mod parameters;
mod pyroscope;
mod questions;
mod reply;
mod service;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::{Mutex, RwLock};
use profcol_component::{
    Batch, BuildContext, BuildError, Capabilities, Delivered, Delivery, Exporter, Factory, Gauge,
    Handles, RecentLog, Refusal, RunError, Stability, StartError, Stop,
};
use profcol_net::auth::ServerAuth;
use profcol_net::{HttpServer, ServerError};

use self::api::Api;
use self::config::DEFAULT_ENDPOINT;
pub use self::config::LiveViewConfig;
use self::hosts::AllowedHosts;
use self::service::Service;
use profcol_history::{Extent, History, Limits, Recent};

/// How long requests in flight may take after a stop.
const GRACE: Duration = Duration::from_secs(1);

pub struct LiveView {
    config: LiveViewConfig,
    history: Arc<RwLock<History>>,
    service: Arc<Service>,
    auth: Option<Arc<dyn ServerAuth>>,
    telemetry: Telemetry,
    /// Set between start and run.
    server: Mutex<Option<HttpServer>>,
}

struct Telemetry {
    memory: Gauge,
    samples: Gauge,
    evicted: Gauge,
    oldest: Gauge,
}

impl Factory for LiveView {
    const NAME: &'static str = "live_view";
    const STABILITY: Stability = Stability::Alpha;
    type Config = LiveViewConfig;
    type Component = dyn Exporter;

    fn capabilities(config: &LiveViewConfig) -> Capabilities {
        match config.page {
            true => Capabilities::to_listen(&config.endpoint),
            false => Capabilities::NONE,
        }
    }

    fn build(
        config: &LiveViewConfig,
        context: &BuildContext,
    ) -> Result<Box<dyn Exporter>, BuildError> {
        let auth = match &config.auth {
            Some(auth) => Some(context.extension::<Arc<dyn ServerAuth>>(&auth.authenticator)?),
            None => None,
        };
        if config.page {
            context.shared.get::<RecentLog>().keep();
        }
        let limits = Limits {
            max_age: config.max_age.into(),
            max_bytes: config.max_memory_mib << 20,
            resolution: config.resolution.into(),
            sample_labels: config.sample_labels.clone(),
        };
        Ok(Box::new(Self {
            config: config.clone(),
            history: Arc::new(RwLock::new(History::new(limits))),
            service: Arc::new(Service::new(context)),
            auth: auth.map(|auth| Arc::clone(&*auth)),
            telemetry: Telemetry::new(context),
            server: Mutex::new(None),
        }))
    }
}

impl LiveView {
    /// If the default port is in use, another one is taken; a configured port is not replaced.
    fn bind(&self) -> Result<HttpServer, ServerError> {
        let mut settings = self.config.server();
        match HttpServer::bind(&settings, self.auth.clone()) {
            Err(ServerError::Bind(error))
                if settings.endpoint == DEFAULT_ENDPOINT && error.is_address_in_use() =>
            {
                settings.endpoint = "127.0.0.1:0".to_owned();
                let server = HttpServer::bind(&settings, self.auth.clone())?;
                tracing::warn!(
                    taken = DEFAULT_ENDPOINT,
                    endpoint = %server.local_addr(),
                    "The default port of the live view is in use; serving it on another one."
                );
                Ok(server)
            }
            bound => bound,
        }
    }
}

#[async_trait]
impl Exporter for LiveView {
    fn delivery(&self) -> Delivery {
        // Aggregated profiles are small, so nothing is queued.
        Delivery::inline()
    }

    fn offer(self: Arc<Self>, handles: &mut Handles) {
        handles.add(Recent::new(Arc::clone(&self.history)));
    }

    async fn start(&self) -> Result<(), StartError> {
        if !self.config.page {
            return Ok(());
        }
        let server = self.bind().map_err(StartError::new)?;
        tracing::info!(endpoint = %server.local_addr(), "Serving the live view.");
        *self.server.lock() = Some(server);
        Ok(())
    }

    async fn export(&self, batch: &Batch) -> Result<Delivered, Refusal> {
        let (batch, history) = (batch.detached(), Arc::clone(&self.history));
        let add = move || {
            let model = batch.profiles.model();
            let mut history = history.write();
            history.add(model, &batch.deferred_symbols);
            history.extent()
        };
        // A query may hold the lock of the history for some milliseconds.
        match tokio::task::spawn_blocking(add).await {
            Ok(extent) => {
                self.telemetry.report(&extent);
                Ok(Delivered::default())
            }
            Err(error) => Err(Refusal::permanent(format!(
                "failed to add a batch: {error}"
            ))),
        }
    }

    async fn run(self: Arc<Self>, stop: Stop) -> Result<(), RunError> {
        let Some(server) = self.server.lock().take() else {
            stop.cancelled().await;
            return Ok(());
        };
        let api = Api::new(
            Arc::clone(&self.history),
            Arc::clone(&self.service),
            self.config.max_memory_mib << 20,
            AllowedHosts::new(&self.config.endpoint, &self.config.allowed_hosts),
        );
        server.serve(api, stop.deadline(GRACE)).await;
        Ok(())
    }
}

impl Telemetry {
    fn new(context: &BuildContext) -> Self {
        let id = context.id.to_string();
        let labels = [("exporter", id.as_str())];
        let gauge = |name: &str, help: &str| {
            let name = format!("otelcol_exporter_live_view_{name}");
            context.meter.gauge(&name, help, &labels)
        };
        Self {
            memory: gauge("memory_bytes", "Memory used by kept profiles."),
            samples: gauge("kept_samples", "Samples that can be shown."),
            evicted: gauge(
                "evicted_samples",
                "Samples removed because of their age or the memory limit.",
            ),
            oldest: gauge(
                "oldest_timestamp_seconds",
                "Unix time of the oldest sample that can be shown.",
            ),
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
    fn report(&self, extent: &Extent) {
        self.memory.set(extent.bytes as f64);
        self.samples.set(extent.samples as f64);
        self.evicted.set(extent.evicted_samples as f64);
        self.oldest.set(extent.oldest.unwrap_or(0) as f64 / 1000.0);
    }
}
