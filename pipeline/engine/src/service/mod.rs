//! A running configuration: starts, supervises and stops components.
//!
//! Components start against the data flow (extensions, exporters, processors, receivers) and stop with it, so that
//! accepted data can still be delivered. All shutdown stages share one absolute deadline, and no stage may use up the
//! time of later ones.

mod balance;
mod pulse;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use profcol_component::{
    ComponentStatus, Extension, Meter, Output, Receiver, ReceiverTotals, RunError, StartError,
    Status, StatusBoard, Stop,
};
use tokio::time::Instant;

pub use self::balance::{Balance, ReceiverBalance};
pub use self::pulse::{Progress, Pulse};
use crate::graph::{Feed, Graph, Named, Stage};
use crate::sender::Sender;
use crate::tasks::{TaskFailure, Tasks};

/// The running components.
pub struct Service {
    receivers: Running,
    /// By position in the pipeline; the first stops first.
    processors: Vec<Running>,
    senders: Vec<Arc<Sender>>,
    dispatchers: Running,
    exporters: Running,
    extensions: Running,
    accounts: Accounts,
}

/// Counts besides those of the senders.
#[derive(Default)]
struct Accounts {
    intakes: Vec<(String, Arc<ReceiverTotals>)>,
    stages: Vec<(String, Arc<Stage>)>,
}

/// Why the service could not start.
#[derive(Debug, thiserror::Error)]
#[error("failed to start {component}: {reason}")]
pub struct StartFailure {
    pub component: String,
    pub reason: StartError,
}

/// The result of a shutdown.
#[derive(Debug, Default)]
pub struct StopReport {
    pub failures: Vec<TaskFailure>,
    /// The outcome of every sample.
    pub balance: Balance,
}

/// Fraction of the shutdown timeout for receivers, processors and queues. The rest is for exporters, which close files,
/// and extensions.
const RECEIVERS_DONE: f64 = 0.6;
const PROCESSORS_DONE: f64 = 0.7;
const QUEUES_DONE: f64 = 0.95;

/// The tasks of one stage and their stop signal.
#[derive(Default)]
struct Running {
    tasks: Tasks,
    stop: Stop,
    statuses: Vec<ComponentStatus>,
}

// === impl Service ===

impl Service {
    /// Starts all components; if one fails, stops those already running.
    pub async fn start(graph: Graph, meter: &Meter) -> Result<Self, StartFailure> {
        let mut service = Service {
            receivers: Running::default(),
            processors: Vec::new(),
            senders: Vec::new(),
            dispatchers: Running::default(),
            exporters: Running::default(),
            extensions: Running::default(),
            accounts: Accounts::default(),
        };
        match service.start_all(graph, meter).await {
            Ok(()) => Ok(service),
            Err(failure) => {
                service.stop(Duration::from_secs(5)).await;
                Err(failure)
            }
        }
    }

    /// Returns `None` when all receivers have finished, or the first failure before that.
    pub async fn ended(&mut self) -> Option<TaskFailure> {
        tokio::select! {
            ended = self.receivers.tasks.ended() => ended,
            failure = failure_of(
                &mut self.processors,
                [&mut self.dispatchers, &mut self.exporters, &mut self.extensions],
            ) => Some(failure),
        }
    }

    /// `board` is the one the graph was built with.
    pub fn pulse(&self, board: &StatusBoard) -> Pulse {
        Pulse {
            receivers: self.accounts.intakes.clone(),
            senders: self.senders.clone(),
            board: board.clone(),
        }
    }

    /// Stops receivers first, then delivers data in flight downstream, within `timeout`.
    pub async fn stop(mut self, timeout: Duration) -> StopReport {
        let began = Instant::now();
        let after = |share| began + timeout.mul_f64(share);
        let mut report = StopReport::default();
        let failures = &mut report.failures;
        failures.extend(self.receivers.end(after(RECEIVERS_DONE)).await);
        for stage in &mut self.processors {
            failures.extend(stage.end(after(PROCESSORS_DONE)).await);
        }
        for sender in &self.senders {
            sender.close(after(QUEUES_DONE));
        }
        failures.extend(self.dispatchers.end(after(QUEUES_DONE)).await);
        failures.extend(self.exporters.end(after(1.0)).await);
        failures.extend(self.extensions.end(after(1.0)).await);
        report.balance = self.balance();
        report
    }

    fn balance(&self) -> Balance {
        let Accounts { intakes, stages } = &self.accounts;
        let receivers = intakes
            .iter()
            .map(|(id, totals)| ReceiverBalance::of(id, totals));
        let processors = stages.iter().map(|(label, stage)| stage.balance(label));
        Balance {
            receivers: receivers.collect(),
            processors: processors.collect(),
            exporters: self.senders.iter().map(|sender| sender.balance()).collect(),
        }
    }

    async fn start_all(&mut self, graph: Graph, meter: &Meter) -> Result<(), StartFailure> {
        for extension in graph.extensions {
            self.start_extension(extension).await?;
        }
        for exporter in graph.exporters {
            self.start_exporter(exporter).await?;
        }
        for position in graph.processors {
            let mut running = Running::default();
            let stages = position.iter();
            let stages = stages.map(|named| (named.label.clone(), Arc::clone(&named.component)));
            self.accounts.stages.extend(stages);
            let started = running.start_processors(position).await;
            self.processors.push(running);
            started?;
        }
        let mut receivers = Vec::new();
        for mut feed in graph.receivers {
            let started = feed.receiver.component.start().await;
            starting(&feed.receiver, started)?;
            receivers.push(feed);
        }
        for Feed {
            receiver,
            next,
            fans_out,
        } in receivers
        {
            let output = Output::new(next, meter.clone(), &receiver.id).with_batch_ids(fans_out);
            let totals = (receiver.id.clone(), output.totals());
            self.accounts.intakes.push(totals);
            let Named {
                label,
                status,
                component,
                ..
            } = receiver;
            self.receivers
                .spawn(label, status, |stop| run_receiver(component, output, stop));
        }
        Ok(())
    }

    async fn start_extension(
        &mut self,
        extension: Named<Arc<dyn Extension>>,
    ) -> Result<(), StartFailure> {
        starting(&extension, extension.component.start().await)?;
        let Named {
            label,
            status,
            component,
            ..
        } = extension;
        self.extensions.spawn(
            label,
            status,
            |stop| async move { component.run(stop).await },
        );
        Ok(())
    }

    async fn start_exporter(&mut self, exporter: Named<Arc<Sender>>) -> Result<(), StartFailure> {
        let component = exporter.component.exporter();
        starting(&exporter, component.start().await)?;
        starting(&exporter, exporter.component.open().await)?;
        let Named {
            label,
            status,
            component: sender,
            ..
        } = exporter;
        self.senders.push(Arc::clone(&sender));
        self.dispatchers.spawn(
            format!("queue of {label}"),
            status.clone(),
            |_stop| async move {
                sender.run().await;
                Ok(())
            },
        );
        self.exporters.spawn(
            label,
            status,
            |stop| async move { component.run(stop).await },
        );
        Ok(())
    }
}

async fn failure_of(processors: &mut [Running], others: [&mut Running; 3]) -> TaskFailure {
    let stages = processors.iter_mut().chain(others);
    let failures = stages.map(|stage| Box::pin(stage.tasks.next_failure()));
    futures_util::future::select_all(failures).await.0
}

async fn run_receiver(
    receiver: Box<dyn Receiver>,
    output: Output,
    stop: Stop,
) -> Result<(), RunError> {
    receiver.run(output, stop).await
}

fn starting<C>(named: &Named<C>, started: Result<(), StartError>) -> Result<(), StartFailure> {
    started.map_err(|reason| {
        named.status.set(Status::PermanentError(reason.to_string()));
        StartFailure {
            component: named.label.clone(),
            reason,
        }
    })
}

// === impl Running ===

impl Running {
    async fn start_processors(
        &mut self,
        stages: Vec<Named<Arc<Stage>>>,
    ) -> Result<(), StartFailure> {
        for named in stages {
            let processor = named.component.processor();
            starting(&named, processor.start().await)?;
            let Named {
                label,
                status,
                component: stage,
                ..
            } = named;
            let next = stage.next();
            self.spawn(label, status, |stop| async move {
                processor.run(next, stop).await
            });
        }
        Ok(())
    }

    fn spawn<W>(&mut self, label: String, status: ComponentStatus, work: impl FnOnce(Stop) -> W)
    where
        W: Future<Output = Result<(), RunError>> + Send + 'static,
    {
        status.set(Status::Ok);
        let (work, stop) = (work(self.stop.clone()), self.stop.clone());
        self.statuses.push(status.clone());
        self.tasks.spawn(label, async move {
            let result = work.await;
            match &result {
                Err(error) => status.set(Status::PermanentError(error.to_string())),
                Ok(()) if !stop.is_cancelled() => {}
                Ok(()) => status.set(Status::Stopped),
            }
            result
        });
    }

    async fn end(&mut self, deadline: Instant) -> Vec<TaskFailure> {
        for status in &self.statuses {
            status.set(Status::Stopping);
        }
        self.stop.cancel_by(deadline);
        self.tasks.join_until(deadline).await
    }
}
