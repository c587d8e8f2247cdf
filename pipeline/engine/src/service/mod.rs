//! A running configuration: starts, supervises and stops components.
//!
//! Components start against the data flow (extensions, exporters, processors and connectors, receivers) and stop with
//! it, so that accepted data can still be delivered. All shutdown stages share one absolute deadline, and no stage may use up the
//! time of later ones.

mod balance;
mod drain;
mod ledger;
mod progress;
mod reload;
mod running;
#[cfg(test)]
mod schedules;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::select_all;
use futures_util::stream::FuturesUnordered;
use profcol_component::{
    Extension, InstanceId, Meter, Output, Receiver, RunError, StartError, Status, StatusBoard, Stop,
};
use tokio::task::JoinSet;
use tokio::time::timeout_at;

pub use self::balance::{Balance, ReceiverBalance};
use self::drain::{DrainSet, Schedule, StoppingComponents};
use self::ledger::Ledger;
pub use self::progress::{Progress, ProgressReader};
pub use self::reload::{ReloadFailure, Reloaded};
use self::running::Running;
use crate::graph::{ConnectorNode, Graph, Named, ReceiverNode, Stage};
use crate::sender::{DropReason, Sender};
use crate::tasks::TaskFailure;

/// The running components.
pub struct Service {
    graph: Graph,
    tasks: HashMap<InstanceId, ComponentTasks>,
    /// Components that a reload has replaced or removed, until they have delivered what they hold.
    draining: JoinSet<Vec<TaskFailure>>,
    drains: DrainSet,
    ledger: Ledger,
}

/// The tasks of one component.
struct ComponentTasks {
    running: Running,
    /// The dispatcher of an exporter.
    dispatcher: Option<Running>,
}

/// Why the service could not start.
#[derive(Debug, thiserror::Error)]
#[error("failed to start {component}: {reason}")]
pub struct StartFailure {
    pub component: String,
    #[source]
    pub reason: StartError,
}

/// The result of a shutdown.
#[derive(Debug, Default)]
pub struct StopReport {
    pub failures: Vec<TaskFailure>,
    /// The outcome of every sample.
    pub balance: Balance,
}

// === impl Service ===

impl Service {
    /// Starts all components; if one fails, stops those already running.
    pub async fn start(graph: Graph, meter: &Meter) -> Result<Self, StartFailure> {
        let mut service = Service {
            graph,
            tasks: HashMap::new(),
            draining: JoinSet::new(),
            drains: DrainSet::default(),
            ledger: Ledger::default(),
        };
        match service.start_all(meter).await {
            Ok(()) => Ok(service),
            Err(failure) => {
                service.stop(Duration::from_secs(5)).await;
                Err(failure)
            }
        }
    }

    /// Returns `None` when all receivers have finished, or the first failure before that.
    pub async fn ended(&mut self) -> Option<TaskFailure> {
        let receivers = self.graph.receivers.iter();
        let receivers: Vec<InstanceId> = receivers.map(|feed| feed.receiver.instance).collect();
        let (receivers, others): (Vec<_>, Vec<_>) =
            (self.tasks.iter_mut()).partition(|(instance, _)| receivers.contains(*instance));
        let ended = receivers
            .into_iter()
            .map(|(_, tasks)| tasks.running.tasks.ended());
        let mut ended: FuturesUnordered<_> = ended.collect();
        let all_ended = async {
            while let Some(ended) = ended.next().await {
                if ended.is_some() {
                    return ended;
                }
            }
            None
        };
        let others = others.into_iter().flat_map(|(_, tasks)| {
            let running = Some(&mut tasks.running);
            running.into_iter().chain(tasks.dispatcher.as_mut())
        });
        let failures: Vec<_> = others
            .map(|running| Box::pin(running.tasks.next_failure()))
            .collect();
        let first_failure = async {
            match failures.is_empty() {
                true => std::future::pending().await,
                false => select_all(failures).await.0,
            }
        };
        tokio::select! {
            ended = all_ended => ended,
            failure = first_failure => Some(failure),
        }
    }

    /// `board` is the one the graph was built with.
    pub fn progress_reader(&self, board: &StatusBoard) -> ProgressReader {
        ProgressReader {
            ledger: self.ledger.clone(),
            board: board.clone(),
        }
    }

    /// Stops receivers first, then delivers data in flight downstream, within `timeout`.
    pub async fn stop(mut self, timeout: Duration) -> StopReport {
        let schedule = Schedule::of(timeout, DropReason::Shutdown);
        let stopping = StoppingComponents::all(&self.graph, &mut self.tasks);
        let order = self.drains.next(Vec::new());
        let draining = async {
            let mut failures = Vec::new();
            while let Ok(Some(ended)) = timeout_at(schedule.end(), self.draining.join_next()).await
            {
                failures.extend(ended.unwrap_or_default());
            }
            self.draining.shutdown().await;
            failures
        };
        let (mut failures, drained) =
            tokio::join!(stopping.drain(schedule, order, &self.ledger), draining);
        failures.extend(drained);
        StopReport {
            failures,
            balance: self.ledger.balance(),
        }
    }

    async fn start_all(&mut self, meter: &Meter) -> Result<(), StartFailure> {
        for position in 0..self.graph.extensions.len() {
            let named = self.graph.extensions[position].clone();
            self.start_extension(&named).await?;
        }
        for position in 0..self.graph.exporters.len() {
            let named = self.graph.exporters[position].clone();
            self.start_exporter(&named).await?;
        }
        for component in middle_components(&self.graph, |_, _| true) {
            self.start_middle_component(&component).await?;
        }
        let mut started = Vec::new();
        for feed in &mut self.graph.receivers {
            started.extend(start_receiver(feed).await?);
        }
        for (position, component) in started.into_iter().enumerate() {
            run_receiver(
                &self.graph.receivers[position],
                component,
                meter,
                &self.ledger,
                &mut self.tasks,
            );
        }
        Ok(())
    }

    async fn start_extension(
        &mut self,
        named: &Named<Arc<dyn Extension>>,
    ) -> Result<(), StartFailure> {
        starting(named, named.component.start().await)?;
        let component = Arc::clone(&named.component);
        self.spawn(named, |stop| async move { component.run(stop).await });
        Ok(())
    }

    async fn start_exporter(&mut self, named: &Named<Arc<Sender>>) -> Result<(), StartFailure> {
        let (component, sender) = (named.component.exporter(), Arc::clone(&named.component));
        starting(named, component.start().await)?;
        starting(named, sender.open().await)?;
        self.ledger
            .add_exporter(named.instance, Arc::clone(&sender));
        let label = format!("queue of {}", named.label);
        let dispatcher = Running::start(label, named.status.clone(), |_stop| async move {
            sender.run().await;
            Ok(())
        });
        self.spawn(named, |stop| async move { component.run(stop).await });
        if let Some(tasks) = self.tasks.get_mut(&named.instance) {
            tasks.dispatcher = Some(dispatcher);
        }
        Ok(())
    }

    async fn start_middle_component(
        &mut self,
        component: &MiddleComponent,
    ) -> Result<(), StartFailure> {
        match component {
            MiddleComponent::Connector(named) => self.start_connector(named).await,
            MiddleComponent::Processor(named) => self.start_processor(named).await,
        }
    }

    async fn start_connector(
        &mut self,
        named: &Named<Arc<ConnectorNode>>,
    ) -> Result<(), StartFailure> {
        let node = Arc::clone(&named.component);
        let connector = node.connector();
        self.ledger
            .add_connector(named.instance, &named.label, node);
        starting(named, connector.start().await)?;
        self.spawn(named, |stop| async move { connector.run(stop).await });
        Ok(())
    }

    async fn start_processor(&mut self, named: &Named<Arc<Stage>>) -> Result<(), StartFailure> {
        let stage = Arc::clone(&named.component);
        let (processor, next) = (stage.processor(), stage.next());
        self.ledger
            .add_processor(named.instance, &named.label, stage);
        starting(named, processor.start().await)?;
        self.spawn(named, |stop| async move { processor.run(next, stop).await });
        Ok(())
    }

    fn spawn<C, W>(&mut self, named: &Named<C>, work: impl FnOnce(Stop) -> W)
    where
        W: Future<Output = Result<(), RunError>> + Send + 'static,
    {
        let running = Running::start(named.label.clone(), named.status.clone(), work);
        let tasks = ComponentTasks {
            running,
            dispatcher: None,
        };
        self.tasks.insert(named.instance, tasks);
    }
}

/// A component between receivers and exporters.
enum MiddleComponent {
    Connector(Named<Arc<ConnectorNode>>),
    Processor(Named<Arc<Stage>>),
}

/// The selected connectors and processors in start order: each after those in other pipelines that it passes batches to.
/// `selects` gets the instance and whether it is exclusive.
fn middle_components(
    graph: &Graph,
    selects: impl Fn(InstanceId, bool) -> bool,
) -> Vec<MiddleComponent> {
    let mut found = Vec::new();
    for depth in graph.depths_from_the_end() {
        let connectors = graph.connectors.iter().filter(|it| it.depth == depth);
        for named in connectors.map(|placed| &placed.connector) {
            if selects(named.instance, named.is_exclusive) {
                found.push(MiddleComponent::Connector(named.clone()));
            }
        }
        let routes = graph.pipelines.iter().filter(|it| it.depth == depth);
        for named in routes.flat_map(|route| &route.stages) {
            if selects(named.instance, named.is_exclusive) {
                found.push(MiddleComponent::Processor(named.clone()));
            }
        }
    }
    found
}

/// Opens the receiver's ports and files. `None` if it runs already.
async fn start_receiver(
    feed: &mut ReceiverNode,
) -> Result<Option<Box<dyn Receiver>>, StartFailure> {
    let Some(mut component) = feed.component.take() else {
        return Ok(None);
    };
    starting(&feed.receiver, component.start().await)?;
    Ok(Some(component))
}

fn run_receiver(
    feed: &ReceiverNode,
    component: Box<dyn Receiver>,
    meter: &Meter,
    ledger: &Ledger,
    tasks: &mut HashMap<InstanceId, ComponentTasks>,
) {
    let Named {
        id,
        label,
        status,
        instance,
        ..
    } = &feed.receiver;
    let next = Arc::clone(&feed.next) as Arc<dyn profcol_component::Consumer>;
    let output = Output::new(next, meter.clone(), id).with_batch_ids(Arc::clone(&feed.assigns_ids));
    ledger.add_receiver(*instance, id, output.totals());
    let running = Running::start(label.clone(), status.clone(), |stop| async move {
        component.run(output, stop).await
    });
    let component = ComponentTasks {
        running,
        dispatcher: None,
    };
    tasks.insert(*instance, component);
}

fn starting<C>(named: &Named<C>, started: Result<(), StartError>) -> Result<(), StartFailure> {
    started.map_err(|reason| {
        named
            .status
            .set(Status::PermanentError(reason.to_string().into()));
        StartFailure {
            component: named.label.clone(),
            reason,
        }
    })
}
