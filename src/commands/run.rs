//! `profcol run`: from a configuration to a running service and back.

use profcol_component::{Meter, StatusBoard};
use profcol_config::NoteLevel;
use profcol_engine::telemetry;
use profcol_engine::{Document, Service, StopReport};
use profcol_printable::line;

use super::{Failure, load};
use crate::cli::Configuration;
use crate::privileges;
use crate::signals::Signals;
use crate::stderr::tell;

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
    telemetry::init_logs(&service.telemetry.logs, &[])
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
    privileges::keep(loaded.document.capabilities());
    let on_stop: fn() = if is_built_in { tell_of_writing } else { || {} };
    let (meter, board) = (Meter::default(), StatusBoard::default());
    let report = in_runtime(serve(&loaded.document, &meter, &board, on_stop))?;
    verdict(&report)
}

fn introduce() {
    // As the configuration has it.
    let directory = std::env::var("OUTPUT").unwrap_or_else(|_| "profiles".to_owned());
    let directory = line(&directory);
    tell(&format!(
        "profcol samples every process of this host 99 times a second, and prints the hottest functions every ten seconds.
It writes a profile to {directory} every thirty seconds; open them all with: go tool pprof -http=: {directory}/*.pb.gz
Stop it with Ctrl-C. For pipelines of your own: profcol --config FILE; all components: profcol components
",
    ));
}

/// At once, since what was profiled last is still to be written.
fn tell_of_writing() {
    tell("writing...\n");
}

pub fn in_runtime<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
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

/// Runs until a signal comes, a component fails, or all receivers have read what they had to read;
/// `on_stop` is called as soon as a signal asks to stop.
pub async fn serve(
    document: &Document,
    meter: &Meter,
    board: &StatusBoard,
    on_stop: fn(),
) -> Result<StopReport, Failure> {
    let mut signals = Signals::new()
        .map_err(|error| Failure::Runtime(format!("failed to install signal handlers: {error}")))?;
    let graph = load::build(document, meter, board)?;
    let metrics = telemetry::MetricsServer::start(&document.service.telemetry, meter)
        .map_err(|error| Failure::Runtime(error.to_string()))?;
    let mut service = Service::start(graph, meter)
        .await
        .map_err(|error| Failure::Runtime(error.to_string()))?;
    tracing::info!("Everything is ready. Begin running and processing data.");

    let failure = tokio::select! {
        name = signals.stop() => {
            on_stop();
            tracing::info!(signal = name, "Received a signal. Stopping.");
            None
        }
        failure = service.ended() => {
            match &failure {
                Some(failure) => tracing::error!(error = %failure, "A component failed. Stopping."),
                None => tracing::info!("All receivers have ended. Stopping."),
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
        None => Ok(report),
    }
}

fn verdict(report: &StopReport) -> Result<(), Failure> {
    for failure in &report.failures {
        tracing::error!(error = %failure, "A component failed during shutdown.");
    }
    let balance = &report.balance;
    tracing::info!(
        receivers = balance.receivers(),
        processors = balance.processors(),
        exporters = balance.exporters(),
        "Sample balance at shutdown."
    );
    let cut_off = balance.cut_off();
    if cut_off > 0 {
        return Err(Failure::Runtime(format!(
            "{cut_off} samples could not be delivered before the deadline; raise `service::shutdown_timeout` or look at the exporters' errors"
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
