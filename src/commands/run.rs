//! `profcol run`: starts and stops the service.

use std::cell::Cell;
use std::pin::Pin;
use std::rc::Rc;

use profcol_component::{SelfTelemetry, Shared, Stop};
use profcol_engine::telemetry::{MetricsServer, init_logs};
use profcol_engine::{Graph, Service, StopReport};
use profcol_history::PageAddress;

use super::CommandError;
use super::built_in::BuiltIn;
use super::load::{self, Loaded};
use super::reload::{Outcome, Reloader};
use crate::cli::Configuration;
use crate::notify::Notifier;
use crate::signals::{Request, Signals};
use crate::{privileges, sandbox};

pub fn run(options: &Configuration) -> Result<(), CommandError> {
    let built_in = options.uris.is_empty().then(BuiltIn::for_this_process);
    let filled = built_in.as_ref().map(|it| it.configuration(options));
    let configuration = filled.as_ref().unwrap_or(options);
    let loaded = load::load(configuration)?;
    let service = &loaded.document.service;
    let telemetry = SelfTelemetry::default();
    init_logs(&service.telemetry.logs, &[], &telemetry.log)
        .map_err(|error| CommandError::Configuration(error.to_string()))?;
    loaded.log_notes();
    let dropped = privileges::keep(loaded.document.capabilities());
    let sandbox = sandbox::enter(&loaded.document);
    let readers = sandbox.readers();
    let shared = Shared::default();
    shared.put(readers.clone());
    let mut session = Session {
        shared,
        notifier: Notifier::from_environment(),
        reloader: Some(Reloader::new(
            configuration,
            dropped,
            sandbox,
            &telemetry.meter,
        )),
        ..Session::default()
    };
    if let Some(built_in) = built_in {
        let built_in = Rc::new(built_in);
        let introduced = built_in.clone();
        let checked = built_in.clone();
        let page = Rc::new(Cell::new(None));
        let offered = page.clone();
        session.on_graph = Box::new(move |graph| {
            // Now the page keeps the log.
            checked.log_missing();
            let address = graph.exporter("live_view").get::<PageAddress>();
            offered.set(address.map(|it| (*it).clone()));
        });
        session.on_start =
            Box::new(move || introduced.introduce(page.take().and_then(|it| it.get())));
        session.on_stop = Box::new(move || built_in.announce_stop());
    }
    let report = in_runtime(serve(&loaded, &telemetry, session));
    readers.stop();
    verdict(&report?)
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
    /// What the components share with the command.
    pub shared: Shared,
    /// Called when the graph is built.
    pub on_graph: Box<dyn FnOnce(&Graph)>,
    /// Called when all components have started.
    pub on_start: Box<dyn FnOnce()>,
    /// The pipelines are stopped when it ends.
    pub until: Pin<Box<dyn Future<Output = ()>>>,
    /// Called when the stop begins.
    pub on_stop: Box<dyn Fn()>,
    /// Reports readiness, status and stop to systemd.
    pub notifier: Notifier,
    /// Reloads the configuration; if absent, a reload is refused.
    pub reloader: Option<Reloader>,
}

impl Default for Session {
    fn default() -> Self {
        Self {
            shared: Shared::default(),
            on_graph: Box::new(|_| {}),
            on_start: Box::new(|| {}),
            until: Box::pin(std::future::pending()),
            on_stop: Box::new(|| {}),
            notifier: Notifier::default(),
            reloader: None,
        }
    }
}

/// Runs until a signal arrives, the session ends, a component fails, or all receivers have finished.
pub async fn serve(
    loaded: &Loaded,
    telemetry: &SelfTelemetry,
    session: Session,
) -> Result<StopReport, CommandError> {
    let document = &loaded.document;
    let mut signals = Signals::new().map_err(|error| {
        CommandError::Runtime(format!("failed to install signal handlers: {error}"))
    })?;
    let graph = load::build_with(document, telemetry, session.shared)?;
    (session.on_graph)(&graph);
    let metrics = MetricsServer::start(&document.service.telemetry, &telemetry.meter)
        .map_err(|error| CommandError::Runtime(error.to_string()))?;
    let mut service = Service::start(graph, &telemetry.meter)
        .await
        .map_err(|error| CommandError::Runtime(error.to_string()))?;
    tracing::info!("Everything is ready. Begin running and processing data.");
    (session.on_start)();
    let notifier = session.notifier;
    let reader = service.progress_reader(&telemetry.board);
    let status = || {
        let reader = reader.clone();
        move || reader.progress().to_string()
    };
    let (mut reloader, mut until) = (session.reloader, session.until);
    if let Some(reloader) = &mut reloader {
        reloader.watch(loaded);
    }
    notifier.ready();

    let failure = loop {
        tokio::select! {
            request = signals.next() => match request {
                Request::Stop(name) => {
                    (session.on_stop)();
                    tracing::info!(signal = name, "Received a signal. Stopping.");
                    break None;
                }
                Request::Reload => {}
            },
            () = file_changed(&mut reloader) => {}
            () = &mut until => {
                (session.on_stop)();
                break None;
            }
            failure = service.ended() => {
                match &failure {
                    Some(failure) => tracing::error!(error = %failure, "A component failed. Stopping."),
                    None => tracing::info!("All receivers have ended. Stopping."),
                }
                break failure.map(|failure| CommandError::Runtime(failure.to_string()));
            }
            never = notifier.watch("", status) => match never {},
        }
        let Some(reloader) = &mut reloader else {
            tracing::warn!("SIGHUP: only `profcol run` reloads its configuration.");
            continue;
        };
        notifier.reloading();
        let shutdown_now = Stop::new();
        let (outcome, stopped_by) = tokio::select! {
            ended = reloading(reloader, &mut service, &mut signals, &shutdown_now) => ended?,
            never = notifier.watch("Reloading. ", status) => match never {},
        };
        notifier.reloaded(match outcome {
            Outcome::Reloaded => "Reloaded the configuration.",
            Outcome::Refused | Outcome::Lost(_) => {
                "Failed to reload the configuration, see the log."
            }
        });
        if let Outcome::Lost(error) = outcome {
            tracing::error!(%error, "The reload failed. Stopping.");
            break Some(error);
        }
        if let Some(name) = stopped_by {
            (session.on_stop)();
            tracing::info!(signal = name, "Received a signal. Stopping.");
            break None;
        }
    };

    let timeout = service.settings().shutdown_timeout.into();
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
        Some(failure) => Err(failure),
        None => Ok(report),
    }
}

async fn file_changed(reloader: &mut Option<Reloader>) {
    match reloader {
        Some(reloader) => reloader.changed().await,
        None => std::future::pending().await,
    }
}

/// Reloads to the end, so that no component is left halfway. Returns the name of a stop signal that came meanwhile.
async fn reloading(
    reloader: &mut Reloader,
    service: &mut Service,
    signals: &mut Signals,
    shutdown_now: &Stop,
) -> Result<(Outcome, Option<&'static str>), CommandError> {
    let mut reloading = std::pin::pin!(reloader.reload(service, shutdown_now));
    let name = tokio::select! {
        outcome = &mut reloading => return Ok((outcome, None)),
        name = signals.stop() => name,
    };
    shutdown_now.cancel();
    tokio::select! {
        outcome = reloading => Ok((outcome, Some(name))),
        name = signals.second() => Err(CommandError::Runtime(format!(
            "stopped immediately by a second signal ({name})"
        ))),
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
