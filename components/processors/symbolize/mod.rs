//! Names code, off the threads that move batches.
//!
//! ```text
//! batch ─► locations without lines ─► known? ─► lines added ─► next
//!                                       │ no      ▲ at the latest after `timeout`
//!                                       ▼         │
//!                                     worker: executable ─► tables ─► names
//! ```
//!
//! Cost is by distinct location, not by sample, and each is looked up once. A batch in which there is
//! nothing to name passes as it came. What is in no executable is named by [`HostNames`].

mod asked;
mod companions;
mod config;
mod debuginfod;
mod files;
mod host;
mod names;
mod pace;
mod telemetry;
#[cfg(test)]
mod tests;
mod worker;

use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::Builder as Thread;

use async_trait::async_trait;
use foldhash::fast::RandomState;
use profcol_component::{
    Answer, Batch, BuildContext, BuildError, Consumer, Factory, Processor, RunError, Stability,
    StartError, Stop,
};
use profcol_profile::{LocationIdx, Model, Profiles};
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use self::asked::{Asked, Place};
pub use self::config::SymbolizeConfig;
use self::config::Targets;
use self::debuginfod::Debuginfod;
use self::files::Files;
use self::host::HostNames;
use self::names::{Frame, Names, Wait};
use self::pace::Stopping;
use self::telemetry::{Reason, Telemetry};
use self::worker::{Job, Worker};
use crate::shared::locks::lock;

/// Executables that may wait for each worker.
const MAX_JOBS: usize = 256;

pub struct SymbolizeProcessor {
    config: SymbolizeConfig,
    names: Arc<Names>,
    host_names: Arc<HostNames>,
    files: Arc<Files>,
    telemetry: Arc<Telemetry>,
    stopping: Arc<Stopping>,
    debuginfod: Option<Arc<Debuginfod>>,
    /// To each worker; none once it stops.
    queues: Mutex<Vec<SyncSender<Job>>>,
    /// The other ends, until the workers take them.
    jobs: Mutex<Vec<Receiver<Job>>>,
}

/// What became of each location.
type Found = HashMap<LocationIdx, names::Answer, RandomState>;

impl Factory for SymbolizeProcessor {
    const NAME: &'static str = "symbolize";
    const STABILITY: Stability = Stability::Alpha;
    type Config = SymbolizeConfig;
    type Component = dyn Processor;

    fn build(
        config: &SymbolizeConfig,
        context: &BuildContext,
    ) -> Result<Box<dyn Processor>, BuildError> {
        Ok(Box::new(SymbolizeProcessor::new(config, context)?))
    }
}

impl SymbolizeProcessor {
    fn new(config: &SymbolizeConfig, context: &BuildContext) -> Result<Self, BuildError> {
        let telemetry = Arc::new(Telemetry::new(context));
        let most = config.max_open as usize;
        let dropped = telemetry.dropped_files.clone();
        let is_native = config.targets.has_native();
        let offered = is_native.then(|| context.executables.subscribe(most, dropped.clone()));
        let directories = config.debug_directories.iter().map(PathBuf::from);
        let stopping = Arc::<Stopping>::default();
        let debuginfod = config.debuginfod.as_ref().map(|debuginfod| {
            let usual = std::env::var("DEBUGINFOD_URLS").ok();
            Debuginfod::new(debuginfod, usual.as_deref(), Arc::clone(&telemetry))
        });
        let debuginfod = debuginfod.transpose()?.map(Arc::new);
        let files = Files::new(
            offered,
            most,
            dropped,
            directories.collect(),
            debuginfod.clone(),
            Arc::clone(&stopping),
        );
        let names = Names::new(names_memory(config), telemetry.evicted_names.clone());
        let channels = (0..config.workers).map(|_| sync_channel(MAX_JOBS));
        let (queues, jobs) = channels.unzip();
        Ok(Self {
            config: config.clone(),
            names: Arc::new(names),
            host_names: Arc::new(HostNames::new(
                config.assume_local,
                generated_memory(config),
            )),
            files: Arc::new(files),
            telemetry,
            stopping,
            debuginfod,
            queues: Mutex::new(queues),
            jobs: Mutex::new(jobs),
        })
    }

    fn worker(&self, jobs: Receiver<Job>) -> Worker {
        let names = names_memory(&self.config) + generated_memory(&self.config);
        let tables = self.config.max_memory as usize - names;
        Worker {
            jobs,
            names: Arc::clone(&self.names),
            files: Arc::clone(&self.files),
            telemetry: Arc::clone(&self.telemetry),
            stopping: Arc::clone(&self.stopping),
            demangle: self.config.demangle,
            max_cpu: self.config.max_cpu,
            max_memory: tables / self.config.workers as usize,
        }
    }

    /// What can be said in time of each location without a name.
    async fn find(&self, profiles: &Profiles) -> Found {
        let model = profiles.model();
        let mut asked = Asked::of(&model.dictionary, self.config.targets);
        self.telemetry
            .count_unresolved(Reason::NoBuildId, asked.anonymous);
        let mut found = self.find_on_host(model, &mut asked).await;
        let mut unknown = HashSet::default();
        found.reserve(asked.locations.len());
        let keys = asked.locations.iter();
        let keys = keys.filter_map(|(&location, &(module, place))| {
            let module = asked.modules.get(module)?;
            Some((location, (Arc::clone(&module.build_id), place)))
        });
        self.names.each(keys, |location, answer| match answer {
            Some(answer) => {
                found.insert(location, answer);
            }
            None => {
                unknown.insert(location);
            }
        });
        if unknown.is_empty() {
            return found;
        }
        asked.find_processes(model, &unknown);
        let wait = Arc::new(Wait::default());
        let is_busy = !self.send(&asked, &unknown, &wait);
        let is_late = timeout(self.config.timeout.into(), wait.end())
            .await
            .is_err();
        if is_late {
            self.telemetry.timeouts.inc();
        }
        let answers = wait.take();
        let reason = if is_busy && !is_late {
            Reason::Busy
        } else {
            Reason::Timeout
        };
        for location in unknown {
            let key = asked.locations.get(&location).and_then(|&(module, place)| {
                Some((Arc::clone(&asked.modules.get(module)?.build_id), place))
            });
            let answer = key.and_then(|key| answers.get(&key).cloned());
            found.insert(location, answer.unwrap_or(Err(reason)));
        }
        found
    }

    async fn find_on_host(&self, model: &Model, asked: &mut Asked) -> Found {
        let places = std::mem::take(&mut asked.on_host);
        if places.is_empty() {
            return Found::default();
        }
        let questions = self.host_names.questions(model, places);
        let host_names = Arc::clone(&self.host_names);
        match spawn_blocking(move || host_names.answer(questions)).await {
            Ok(answers) => answers.into_iter().collect(),
            Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            // The runtime is shutting down.
            Err(_) => Found::default(),
        }
    }

    /// Asks the workers; false where one of them has no room.
    fn send(
        &self,
        asked: &Asked,
        unknown: &HashSet<LocationIdx, RandomState>,
        wait: &Arc<Wait>,
    ) -> bool {
        let mut places: HashMap<usize, HashSet<Place>> = HashMap::new();
        for location in unknown {
            if let Some(&(module, place)) = asked.locations.get(location) {
                places.entry(module).or_default().insert(place);
            }
        }
        let queues = lock(&self.queues);
        let mut is_sent = true;
        for (module, places) in places {
            let Some(module) = asked.modules.get(module) else {
                continue;
            };
            let mut hasher = DefaultHasher::new();
            module.build_id.hash(&mut hasher);
            let worker = hasher.finish() as usize % queues.len().max(1);
            let Some(queue) = queues.get(worker) else {
                return false;
            };
            let mut places: Vec<Place> = places.into_iter().collect();
            // Neighbours mostly are of one unit.
            places.sort_unstable_by_key(|place| match place {
                Place::Address(at) | Place::Offset(at) => *at,
            });
            wait.expect_one();
            let job = Job {
                module: module.clone(),
                places,
                wait: Arc::clone(wait),
            };
            if let Err(TrySendError::Full(job) | TrySendError::Disconnected(job)) =
                queue.try_send(job)
            {
                job.wait.end_one();
                is_sent = false;
            }
        }
        is_sent
    }

    fn count(&self, found: &Found) {
        let named = found.values().filter(|answer| answer.is_ok()).count();
        self.telemetry.resolved.inc_by(named as u64);
        for reason in found.values().filter_map(|answer| answer.as_ref().err()) {
            self.telemetry.count_unresolved(*reason, 1);
        }
    }
}

/// Tells that its thread has ended, however that came.
struct End(mpsc::Sender<()>);

impl Drop for End {
    fn drop(&mut self) {
        // One that is told already is enough.
        let _ = self.0.try_send(());
    }
}

/// A quarter is for names, an eighth for those of generated code, the rest for tables.
fn names_memory(config: &SymbolizeConfig) -> usize {
    config.max_memory as usize / 4
}

fn generated_memory(config: &SymbolizeConfig) -> usize {
    config.max_memory as usize / 8
}

#[async_trait]
impl Processor for SymbolizeProcessor {
    async fn start(&self) -> Result<(), StartError> {
        self.host_names.learn_host();
        Ok(())
    }

    async fn process(&self, mut batch: Batch, next: &dyn Consumer) -> Answer {
        if self.config.targets == Targets::None {
            return next.consume(batch).await;
        }
        self.files.take_offered();
        let found = self.find(&batch.profiles).await;
        self.count(&found);
        if found.values().any(Result::is_ok) {
            batch.profiles.model_mut().set_lines(|location| {
                let frames = found.get(&location)?.as_ref().ok()?;
                Some(frames.iter().map(Frame::line))
            });
        }
        next.consume(batch).await
    }

    async fn run(self: Arc<Self>, _next: Arc<dyn Consumer>, stop: Stop) -> Result<(), RunError> {
        let mut threads = Vec::new();
        let (ends, mut ended) = mpsc::channel(1);
        let mut start = |name: &str, work: Box<dyn FnOnce() + Send>| {
            let end = End(ends.clone());
            let thread = Thread::new().name(name.into()).spawn(move || {
                let _end = end;
                work();
            });
            threads.push(thread.map_err(|error| {
                RunError(format!("the thread {name} cannot be started: {error}"))
            })?);
            Ok(())
        };
        if let Some(debuginfod) = self.debuginfod.clone() {
            debuginfod
                .begin()
                .map_err(|error| RunError(format!("debuginfod::cache_directory: {error}")))?;
            let (runtime, stop) = (Handle::current(), stop.clone());
            start(
                "profcol-debugd",
                Box::new(move || debuginfod.run(&runtime, &stop)),
            )?;
        }
        for jobs in std::mem::take(&mut *lock(&self.jobs)) {
            let worker = self.worker(jobs);
            start("profcol-symbols", Box::new(move || worker.run()))?;
        }
        tokio::select! {
            () = stop.cancelled() => {}
            // Before the stop only a panic ends one.
            _ = ended.recv() => {}
        }
        self.stopping.set();
        lock(&self.queues).clear();
        if let Some(debuginfod) = &self.debuginfod {
            debuginfod.close();
        }
        let joined =
            spawn_blocking(move || threads.into_iter().all(|thread| thread.join().is_ok()));
        match joined.await {
            Ok(true) => Ok(()),
            Ok(false) => Err(RunError("a thread of its own panicked".into())),
            Err(error) => Err(RunError(error.to_string())),
        }
    }
}
