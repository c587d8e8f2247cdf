//! `profcol run`: starts and stops the service.

use std::pin::Pin;

use profcol_component::SelfTelemetry;
use profcol_config::NoteLevel;
use profcol_engine::telemetry::{MetricsServer, init_logs};
use profcol_engine::{Document, Graph, Service, StopReport};
use profcol_printable::line;

use super::CommandError;
use super::load::{self, Loaded};
use crate::cli::Configuration;
use crate::notify::Notifier;
use crate::privileges;
use crate::signals::Signals;
use crate::stderr::print;

/// The default configuration.
const BUILT_IN: &str = include_str!("../../config-examples/laptop.yaml");

/// Merged into it if `OUTPUT` is set.
const PPROF_FILES: &str = "\
exporters:
  pprof_file:
    directory: ${env:OUTPUT}
    interval: 30s
service:
  pipelines:
    profiles:
      exporters: [live_view, pprof_file, top]
";

pub fn run(configuration: &Configuration) -> Result<(), CommandError> {
    let is_built_in = configuration.uris.is_empty();
    let loaded = load_or_built_in(configuration)?;
    if is_built_in {
        introduce();
    }
    let service = &loaded.document.service;
    let telemetry = SelfTelemetry::default();
    init_logs(&service.telemetry.logs, &[], &telemetry.log)
        .map_err(|error| CommandError::Configuration(error.to_string()))?;
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
    let mut session = Session {
        notifier: Notifier::from_environment(),
        ..Session::default()
    };
    if is_built_in {
        session.on_stop = match output() {
            Some(_) => announce_writing,
            None => || print("stopping...\n"),
        };
    }
    let report = in_runtime(serve(&loaded.document, &telemetry, session))?;
    verdict(&report)
}

/// Loads the given configuration, or the built-in one.
pub fn load_or_built_in(configuration: &Configuration) -> Result<Loaded, CommandError> {
    match configuration.uris.is_empty() {
        true => load::load(&Configuration {
            uris: built_in(),
            ..configuration.clone()
        }),
        false => load::load(configuration),
    }
}

/// The directory for pprof files, if set.
fn output() -> Option<String> {
    std::env::var("OUTPUT").ok().filter(|it| !it.is_empty())
}

fn built_in() -> Vec<String> {
    let mut uris = vec![format!("yaml:{BUILT_IN}")];
    if output().is_some() {
        uris.push(format!("yaml:{PPROF_FILES}"));
    }
    uris
}

fn introduce() {
    let files = output().map_or_else(String::new, |directory| {
        let directory = line(&directory);
        format!(
            "It writes a profile to {directory} every thirty seconds; open them all with: go tool pprof -http=: {directory}/*.pb.gz\n"
        )
    });
    print(&format!(
        "profcol samples every process of this host 99 times a second, and prints the hottest functions every ten seconds.
Flame graphs of the last hour, live:  http://127.0.0.1:7071/
{files}Stop it with Ctrl-C. One file instead: profcol record; pipelines of your own: profcol --config FILE
",
    ));
}

/// Printed on stop, as writing the last profile takes a moment.
pub fn announce_writing() {
    print("writing...\n");
}

pub fn in_runtime<T>(
    work: impl Future<Output = Result<T, CommandError>>,
) -> Result<T, CommandError> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .thread_name("profcol")
        .build()
        .map_err(|error| CommandError::Runtime(format!("failed to start threads: {error}")))?;
    let result = runtime.block_on(work);
    // A thread still blocked after the deadline must not delay the exit.
    runtime.shutdown_background();
    result
}

/// A command's hooks into running pipelines.
pub struct Session {
    /// Called when the graph is built.
    pub on_graph: Box<dyn FnOnce(&Graph)>,
    /// Called when all components have started.
    pub on_start: Box<dyn FnOnce()>,
    /// The pipelines are stopped when it ends.
    pub until: Pin<Box<dyn Future<Output = ()>>>,
    /// Called when the stop begins.
    pub on_stop: fn(),
    /// Reports readiness, status and stop to systemd.
    pub notifier: Notifier,
}

impl Default for Session {
    fn default() -> Self {
        Self {
            on_graph: Box::new(|_| {}),
            on_start: Box::new(|| {}),
            until: Box::pin(std::future::pending()),
            on_stop: || {},
            notifier: Notifier::default(),
        }
    }
}

/// Runs until a signal arrives, the session ends, a component fails, or all receivers have finished.
pub async fn serve(
    document: &Document,
    telemetry: &SelfTelemetry,
    session: Session,
) -> Result<StopReport, CommandError> {
    let mut signals = Signals::new().map_err(|error| {
        CommandError::Runtime(format!("failed to install signal handlers: {error}"))
    })?;
    let graph = load::build(document, telemetry)?;
    (session.on_graph)(&graph);
    let metrics = MetricsServer::start(&document.service.telemetry, &telemetry.meter)
        .map_err(|error| CommandError::Runtime(error.to_string()))?;
    let mut service = Service::start(graph, &telemetry.meter)
        .await
        .map_err(|error| CommandError::Runtime(error.to_string()))?;
    tracing::info!("Everything is ready. Begin running and processing data.");
    (session.on_start)();
    let (notifier, pulse) = (session.notifier, service.pulse(&telemetry.board));
    let status = || {
        let pulse = pulse.clone();
        move || pulse.progress().to_string()
    };
    notifier.ready();

    let failure = tokio::select! {
        name = signals.stop() => {
            (session.on_stop)();
            tracing::info!(signal = name, "Received a signal. Stopping.");
            None
        }
        () = session.until => {
            (session.on_stop)();
            None
        }
        failure = service.ended() => {
            match &failure {
                Some(failure) => tracing::error!(error = %failure, "A component failed. Stopping."),
                None => tracing::info!("All receivers have ended. Stopping."),
            }
            failure
        }
        never = notifier.watch("", status) => match never {},
    };

    let timeout = document.service.shutdown_timeout.into();
    notifier.stopping(timeout);
    let report = tokio::select! {
        report = service.stop(timeout) => report,
        name = signals.second() => {
            return Err(CommandError::Runtime(format!("stopped immediately by a second signal ({name})")));
        }
        never = notifier.watch("Stopping. ", status) => match never {},
    };
    metrics.stop().await;
    match failure {
        Some(failure) => Err(CommandError::Runtime(failure.to_string())),
        None => Ok(report),
    }
}

fn verdict(report: &StopReport) -> Result<(), CommandError> {
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
        return Err(CommandError::Runtime(format!(
            "{cut_off} samples could not be delivered before the deadline; raise `service::shutdown_timeout` or check the exporters' errors"
        )));
    }
    match report.failures.first() {
        Some(failure) => Err(CommandError::Runtime(failure.to_string())),
        None => {
            tracing::info!("Shutdown complete.");
            Ok(())
        }
    }
}
