//! `profcol run`: from a configuration to a running service and back.

use std::time::{Duration, Instant};

use profcol_component::Meter;
use profcol_config::NoteLevel;
use profcol_engine::telemetry;
use profcol_engine::{Document, Service, StopReport};
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::{Failure, load};
use crate::cli::Configuration;

/// What runs where no configuration is given.
const BUILT_IN: &str = include_str!("../../config-examples/laptop.yaml");

pub fn run(configuration: &Configuration) -> Result<(), Failure> {
    let is_built_in = configuration.uris.is_empty();
    let loaded = match is_built_in {
        true => load::load(&Configuration {
            uris: vec![format!("yaml:{BUILT_IN}")],
            ..configuration.clone()
        })?,
        false => load::load(configuration)?,
    };
    if is_built_in {
        introduce();
    }
    let service = &loaded.document.service;
    telemetry::init_logs(&service.telemetry.logs)
        .map_err(|error| Failure::Configuration(error.to_string()))?;
    for note in &loaded.notes {
        match note.level {
            NoteLevel::Warning => tracing::warn!("{}", note.message),
            NoteLevel::Info => tracing::info!("{}", note.message),
        }
    }
    for note in loaded.document.deprecations() {
        tracing::warn!("{note}");
    }
    in_runtime(serve(&loaded.document, &Meter::default(), Until::Told))
}

#[expect(
    clippy::print_stderr,
    reason = "for whoever just tries it, on a terminal"
)]
fn introduce() {
    eprintln!(
        "profcol samples every process of this host 99 times a second, and prints every ten seconds what is hottest.
Profiles go to ./profiles, one file per half a minute: go tool pprof -http=: profiles/*.pb.gz
Stop it with Ctrl-C. For pipelines of your own: profcol --config FILE; all components: profcol components"
    );
}

/// What a service runs for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Until {
    /// Until a signal comes.
    Told,
    /// Until its receivers have ended.
    InputEnds,
}

pub fn in_runtime(work: impl Future<Output = Result<(), Failure>>) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .thread_name("profcol")
        .build()
        .map_err(|error| Failure::Runtime(format!("failed to start threads: {error}")))?;
    let result = runtime.block_on(work);
    // What still blocks a thread after the deadline must not hold up the end of the process.
    runtime.shutdown_background();
    result
}

pub async fn serve(document: &Document, meter: &Meter, until: Until) -> Result<(), Failure> {
    let mut signals = Signals::new()?;
    let graph = load::build(document, meter)?;
    let metrics = telemetry::MetricsServer::start(&document.service.telemetry, meter)
        .await
        .map_err(|error| Failure::Runtime(error.to_string()))?;
    let mut service = Service::start(graph, meter)
        .await
        .map_err(|error| Failure::Runtime(error.to_string()))?;
    tracing::info!("Everything is ready. Begin running and processing data.");

    let ended = async {
        match until {
            Until::Told => Some(service.failed().await),
            Until::InputEnds => service.ended().await,
        }
    };
    let failure = tokio::select! {
        name = signals.stop() => {
            tracing::info!(signal = name, "Received a signal. Stopping.");
            None
        }
        failure = ended => {
            if let Some(failure) = &failure {
                tracing::error!(error = %failure, "A component failed. Stopping.");
            }
            failure
        }
    };

    let report = tokio::select! {
        report = service.stop(document.service.shutdown_timeout.into()) => report,
        name = signals.second() => {
            return Err(Failure::Runtime(format!("stopped at once by a second signal ({name})")));
        }
    };
    metrics.stop().await;
    match failure {
        Some(failure) => Err(Failure::Runtime(failure.to_string())),
        None => verdict(&report),
    }
}

fn verdict(report: &StopReport) -> Result<(), Failure> {
    for failure in &report.failures {
        tracing::error!(error = %failure, "A component did not end well.");
    }
    if report.lost_samples > 0 {
        let samples = report.lost_samples;
        return Err(Failure::Runtime(format!(
            "{samples} samples could not be delivered before the deadline; raise `service::shutdown_timeout` or look at the exporters' errors"
        )));
    }
    match report.failures.first() {
        Some(failure) => Err(Failure::Runtime(failure.to_string())),
        None => {
            tracing::info!("Shutdown complete.");
            Ok(())
        }
    }
}

/// Signals that come together are one request.
const ONE_REQUEST: Duration = Duration::from_millis(500);

struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hang_up: Signal,
}

impl Signals {
    fn new() -> Result<Self, Failure> {
        let listen = |kind| {
            signal(kind)
                .map_err(|error| Failure::Runtime(format!("failed to listen to signals: {error}")))
        };
        Ok(Self {
            terminate: listen(SignalKind::terminate())?,
            interrupt: listen(SignalKind::interrupt())?,
            hang_up: listen(SignalKind::hangup())?,
        })
    }

    /// The next signal that asks to stop after the first. What signals a process and its group at
    /// once, as `timeout` does, has asked only once.
    async fn second(&mut self) -> &'static str {
        let began = Instant::now();
        loop {
            let name = self.stop().await;
            if began.elapsed() >= ONE_REQUEST {
                return name;
            }
        }
    }

    /// The name of the next signal that asks to stop.
    async fn stop(&mut self) -> &'static str {
        loop {
            tokio::select! {
                _ = self.terminate.recv() => return "SIGTERM",
                _ = self.interrupt.recv() => return "SIGINT",
                _ = self.hang_up.recv() => {
                    tracing::warn!("SIGHUP: this version does not reload its configuration; restart it instead.");
                }
            }
        }
    }
}
