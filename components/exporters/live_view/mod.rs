//! Keeps the profiles of the last hour in memory, older ones on disk, and serves a page that shows them.

mod api;
mod assets;
mod config;
mod excerpt;
mod label_changes;
mod parameters;
mod passing;
mod pyroscope;
mod queries;
mod reply;
mod service;
mod tap;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use profcol_component::{
    Batch, BuildContext, BuildError, Capabilities, Check, Delivered, Delivery, Exporter, Factory,
    Gauge, Handles, Listening, RecentLog, Refusal, RunError, Stability, StartError, Stop, files,
    path_check,
};
use profcol_history::{Extent, Flush, History, Limits, PageAddress, Recent};
use profcol_net::auth::ServerAuth;
use profcol_net::{AllowedHosts, BoundAddr, HttpServer, ListeningSockets, ServerError};
use tokio::sync::Notify;

use self::api::Api;
use self::config::DEFAULT_ENDPOINT;
pub use self::config::LiveViewConfig;
use self::service::Service;

/// How long requests in flight may take after a stop.
const GRACE: Duration = Duration::from_secs(1);

pub struct LiveView {
    id: String,
    config: LiveViewConfig,
    history: Arc<History>,
    service: Arc<Service>,
    auth: Option<Arc<dyn ServerAuth>>,
    telemetry: Telemetry,
    /// Notified when samples arrive that are not on disk.
    changed: Notify,
    write_fails: AtomicBool,
    sockets: ListeningSockets,
    /// Set between start and run.
    server: Mutex<Option<HttpServer>>,
    address: PageAddress,
}

struct Telemetry {
    memory: Gauge,
    samples: Gauge,
    evicted: Gauge,
    oldest: Gauge,
    disk: Option<DiskTelemetry>,
}

struct DiskTelemetry {
    bytes: Gauge,
    failed_writes: Gauge,
    damaged_segments: Gauge,
}

impl Factory for LiveView {
    const NAME: &'static str = "live_view";
    const STABILITY: Stability = Stability::Alpha;
    /// Two instances would listen on one address.
    const IS_EXCLUSIVE: bool = true;
    type Config = LiveViewConfig;
    type Component = dyn Exporter;

    fn capabilities(config: &LiveViewConfig) -> Capabilities {
        match config.page {
            true => Capabilities::to_listen(&config.endpoint),
            false => Capabilities::NONE,
        }
    }

    fn writes(config: &LiveViewConfig) -> Vec<PathBuf> {
        let archive = config.archive().map(|archive| archive.directory);
        let socket = config
            .page
            .then(|| files::socket_directory(&config.endpoint));
        archive.into_iter().chain(socket.flatten()).collect()
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
            id: context.id.to_string(),
            config: config.clone(),
            changed: Notify::new(),
            write_fails: AtomicBool::new(false),
            history: Arc::new(History::new(limits)),
            service: Arc::new(Service::new(context)),
            auth: auth.map(|auth| Arc::clone(&*auth)),
            telemetry: Telemetry::new(context, config.archive().is_some()),
            sockets: context.shared.get(),
            server: Mutex::new(None),
            address: PageAddress::default(),
        }))
    }
}

impl LiveView {
    /// Writes new profiles to disk at intervals, until the stop.
    async fn keep_on_disk(&self, interval: Duration, stop: &Stop) {
        let mut has_more = false;
        loop {
            let wait = async {
                if !has_more {
                    self.changed.notified().await;
                }
                tokio::time::sleep(interval).await;
            };
            tokio::select! {
                () = wait => has_more = self.flush(Flush::Settled).await,
                () = stop.cancelled() => return,
            }
        }
    }

    /// Returns whether there is more to write later.
    async fn flush(&self, which: Flush) -> bool {
        let history = Arc::clone(&self.history);
        let write = move || (history.flush(which), history.extent());
        let Ok((flushed, extent)) = tokio::task::spawn_blocking(write).await else {
            return true;
        };
        self.telemetry.report(&extent);
        match flushed {
            Ok(has_more) => {
                if self.write_fails.swap(false, Ordering::Relaxed) {
                    tracing::info!(
                        directory = self.config.directory,
                        "The history is written to disk again."
                    );
                }
                has_more
            }
            Err(error) => {
                // Once, not every time.
                if !self.write_fails.swap(true, Ordering::Relaxed) {
                    tracing::warn!(
                        directory = self.config.directory, %error,
                        "Failed to write the history to disk; it stays in memory until there is room."
                    );
                }
                true
            }
        }
    }

    /// If the default port is in use, another one is taken; a configured port is not replaced.
    fn bind(&self) -> Result<HttpServer, ServerError> {
        let mut settings = self.config.server();
        match HttpServer::bind(&settings, self.auth.clone(), &self.sockets) {
            Err(ServerError::Bind(error))
                if settings.endpoint == DEFAULT_ENDPOINT && error.is_address_in_use() =>
            {
                settings.endpoint = "127.0.0.1:0".to_owned();
                let server = HttpServer::bind(&settings, self.auth.clone(), &self.sockets)?;
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
        handles.add(self.address.clone());
    }

    async fn start(&self) -> Result<(), StartError> {
        if let Some(options) = self.config.archive() {
            let (history, id) = (Arc::clone(&self.history), self.id.clone());
            let open = move || history.open_archive(&options, &id);
            let opened = tokio::task::spawn_blocking(open).await;
            opened.map_err(StartError::new)?.map_err(StartError::new)?;
        }
        if !self.config.page {
            return Ok(());
        }
        let server = self.bind().map_err(StartError::new)?;
        tracing::info!(endpoint = %server.local_addr(), "Serving the live view.");
        if let BoundAddr::Tcp(address) = server.local_addr() {
            self.address.set(*address);
        }
        *self.server.lock() = Some(server);
        Ok(())
    }

    async fn check(&self) -> Vec<Check> {
        let mut checks = Vec::new();
        if let Some(archive) = self.config.archive() {
            checks.extend(path_check::of_directory(&archive.directory, true).await);
        }
        if self.config.page {
            let endpoint = &self.config.endpoint;
            let listening = Listening {
                may_move: endpoint == DEFAULT_ENDPOINT,
                ..Listening::new("listen", endpoint, false, self.auth.is_some())
            };
            checks.extend(listening.check().await);
        }
        checks
    }

    async fn export(&self, batch: &Batch) -> Result<Delivered, Refusal> {
        let (batch, history) = (batch.detached(), Arc::clone(&self.history));
        let add = move || {
            let model = batch.profiles.model();
            history.add(model, &batch.deferred_symbols);
            history.extent()
        };
        // A query may hold the lock of the history for some milliseconds.
        match tokio::task::spawn_blocking(add).await {
            Ok(extent) => {
                self.telemetry.report(&extent);
                self.changed.notify_one();
                Ok(Delivered::default())
            }
            Err(error) => Err(Refusal::permanent(format!(
                "failed to add a batch: {error}"
            ))),
        }
    }

    async fn run(self: Arc<Self>, stop: Stop) -> Result<(), RunError> {
        let server = self.server.lock().take();
        let serve = async {
            match server {
                Some(server) => {
                    let api = Api::new(
                        Arc::clone(&self.history),
                        Arc::clone(&self.service),
                        self.config.max_memory_mib << 20,
                        AllowedHosts::new(&self.config.endpoint, &self.config.allowed_hosts),
                        self.auth.as_ref().and_then(|auth| auth.scheme()),
                    );
                    server.serve(api, stop.deadline(GRACE)).await;
                }
                None => stop.cancelled().await,
            }
        };
        match self.config.archive() {
            Some(archive) => {
                tokio::join!(serve, self.keep_on_disk(archive.flush_interval, &stop));
                // All samples have arrived.
                self.flush(Flush::All).await;
            }
            None => serve.await,
        }
        Ok(())
    }
}

impl Telemetry {
    fn new(context: &BuildContext, has_disk: bool) -> Self {
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
                "Samples removed because of their age, the memory limit or the disk limit.",
            ),
            oldest: gauge(
                "oldest_timestamp_seconds",
                "Unix time of the oldest sample that can be shown.",
            ),
            disk: has_disk.then(|| DiskTelemetry {
                bytes: gauge("disk_bytes", "Size of the profiles on disk."),
                failed_writes: gauge(
                    "failed_disk_writes",
                    "Failed writes to the disk; profiles stay in memory until there is room.",
                ),
                damaged_segments: gauge(
                    "damaged_disk_segments",
                    "Segments on disk with damaged records.",
                ),
            }),
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
    fn report(&self, extent: &Extent) {
        self.memory.set(extent.bytes as f64);
        self.samples.set(extent.samples as f64);
        self.evicted.set(extent.evicted_samples as f64);
        self.oldest.set(extent.oldest.unwrap_or(0) as f64 / 1000.0);
        if let (Some(gauges), Some(disk)) = (&self.disk, &extent.disk) {
            gauges.bytes.set(disk.bytes as f64);
            gauges.failed_writes.set(disk.failed_writes as f64);
            gauges.damaged_segments.set(disk.damaged_segments as f64);
        }
    }
}
