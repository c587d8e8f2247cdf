//! Reloads the configuration of a running service.

use std::time::{SystemTime, UNIX_EPOCH};

use profcol_component::{Gauge, IntCounter, Meter, Stop};
use profcol_engine::{ReloadFailure, Reloaded, Service};

use super::CommandError;
use super::load::{Loaded, load};
use crate::cli::Configuration;
use crate::privileges::Dropped;
use crate::sandbox::Sandbox;
use crate::watch::Watcher;

pub struct Reloader {
    configuration: Configuration,
    dropped: Dropped,
    sandbox: Sandbox,
    metrics: Metrics,
    /// Present with `service::reload::watch`.
    watcher: Option<Watcher>,
}

struct Metrics {
    successes: IntCounter,
    failures: IntCounter,
    is_successful: Gauge,
    succeeded_at: Gauge,
}

/// How a reload ended.
pub enum Outcome {
    Reloaded,
    /// The running configuration is intact.
    Refused,
    /// There is no running configuration any more.
    Lost(CommandError),
}

// === impl Reloader ===

impl Reloader {
    pub fn new(
        configuration: &Configuration,
        dropped: Dropped,
        sandbox: Sandbox,
        meter: &Meter,
    ) -> Self {
        let metrics = Metrics::new(meter);
        metrics.succeeded();
        Self {
            configuration: configuration.clone(),
            dropped,
            sandbox,
            metrics,
            watcher: None,
        }
    }

    /// Watches the files of the running configuration, if it asks for that. Must be called in a tokio runtime.
    pub fn watch(&mut self, loaded: &Loaded) {
        self.watcher = match loaded.document.service.reload.watch {
            true => Watcher::new(loaded.files.clone()).map_err(not_watched).ok(),
            false => None,
        };
    }

    /// Resolves when a file of the configuration has changed.
    pub async fn changed(&mut self) {
        let Some(watcher) = &mut self.watcher else {
            return std::future::pending().await;
        };
        if let Err(error) = watcher.changed().await {
            not_watched(error);
            self.watcher = None;
            std::future::pending::<()>().await;
        }
    }

    /// Loads the configuration and replaces the running one. After `shutdown_now`, it does not wait for data to be delivered.
    pub async fn reload(&mut self, service: &mut Service, shutdown_now: &Stop) -> Outcome {
        tracing::info!("Reloading the configuration.");
        let loaded = match self.load().await {
            Ok(loaded) => loaded,
            Err(error) => return self.refused(&error.report()),
        };
        loaded.log_notes();
        match service.reload(&loaded.document, shutdown_now).await {
            Ok(reloaded) => {
                self.metrics.succeeded();
                self.metrics.successes.inc();
                self.watch(&loaded);
                log(&reloaded);
                Outcome::Reloaded
            }
            Err(failure @ ReloadFailure::Lost { .. }) => {
                self.metrics.failed();
                Outcome::Lost(CommandError::Runtime(failure.to_string()))
            }
            Err(failure) => self.refused(&CommandError::Runtime(failure.to_string()).report()),
        }
    }

    async fn load(&self) -> Result<Loaded, CommandError> {
        let configuration = self.configuration.clone();
        let loading = tokio::task::spawn_blocking(move || load(&configuration));
        let loaded = loading
            .await
            .map_err(|error| CommandError::Runtime(format!("failed to load: {error}")))??;
        let missing = self.dropped.missing(loaded.document.capabilities());
        if !missing.is_empty() {
            return Err(CommandError::Configuration(format!(
                "the new configuration needs {missing}, which profcol dropped when it started, as its configuration did not need it then: restart profcol"
            )));
        }
        let admitted = self.sandbox.admits(&loaded.document);
        admitted.map_err(|missing| CommandError::Configuration(missing.to_string()))?;
        Ok(loaded)
    }

    fn refused(&self, report: &str) -> Outcome {
        self.metrics.failed();
        self.metrics.failures.inc();
        tracing::error!(
            error = report,
            "Failed to reload the configuration. The running one is unchanged."
        );
        Outcome::Refused
    }
}

fn not_watched(error: std::io::Error) {
    tracing::warn!(%error, "Failed to watch the configuration. SIGHUP still reloads it.");
}

fn log(reloaded: &Reloaded) {
    tracing::info!(
        added = reloaded.added.join(", "),
        replaced = reloaded.replaced.join(", "),
        removed = reloaded.removed.join(", "),
        kept = reloaded.kept,
        "Reloaded the configuration."
    );
}

// === impl Metrics ===

impl Metrics {
    fn new(meter: &Meter) -> Self {
        let reloads = |result| {
            let help = "Reloads of the configuration, by result.";
            meter.counter("profcol_config_reloads", help, &[("result", result)])
        };
        Self {
            successes: reloads("success"),
            failures: reloads("failure"),
            is_successful: meter.gauge(
                "profcol_config_last_reload_successful",
                "Whether the last attempt to load the configuration succeeded.",
                &[],
            ),
            succeeded_at: meter.gauge(
                "profcol_config_last_reload_success_timestamp_seconds",
                "Time of the last successful load of the configuration.",
                &[],
            ),
        }
    }

    fn succeeded(&self) {
        self.is_successful.set(1.0);
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        self.succeeded_at
            .set(now.map_or(0.0, |since| since.as_secs_f64()));
    }

    fn failed(&self) {
        self.is_successful.set(0.0);
    }
}
