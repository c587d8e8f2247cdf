//! Names code, off the threads that move batches.
//!
//! ```text
//! batch ─► locations without lines ─► known? ─► lines added ─► next ─► exporter
//!                                       │ no      ▲ at the latest after `timeout`
//!                                       ▼         │                     │
//!                                    backlog ─► worker ─► names ◄───────┘ late names
//! ```
//!
//! The backlog gives the hottest places first to the workers, which read executables and make tables of them. A
//! batch that left before everything in it was named says where an exporter can ask for the rest.
//!
//! Cost is by distinct location, not by sample, and each is looked up once. A batch in which there is
//! nothing to name passes as it came. What is in no executable is named by [`HostNames`].

mod asked;
mod backlog;
mod companions;
mod config;
mod debuginfod;
mod files;
mod host;
mod late;
mod names;
mod pace;
mod telemetry;
#[cfg(test)]
mod tests;
mod worker;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::Builder as Thread;
use std::time::Duration;

use async_trait::async_trait;
use foldhash::fast::RandomState;
use profcol_component::{
    Answer, Batch, BuildContext, BuildError, Capabilities, Consumer, Factory, Processor, RunError,
    Stability, StartError, Stop, SymbolFrame, SymbolSource,
};
use profcol_profile::{LocationIdx, Model, Profiles};
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use self::asked::{Asked, Unknown};
use self::backlog::{Backlog, PLACE_BYTES, Wait};
pub use self::config::SymbolizeConfig;
use self::config::Targets;
use self::debuginfod::Debuginfod;
use self::files::Files;
use self::host::HostNames;
use self::late::Late;
use self::names::Names;
use self::pace::Stopping;
use self::telemetry::{Reason, Telemetry};
use self::worker::Worker;
use crate::shared::threads::join_within;

/// How long a stop waits for a thread. One of low priority on a busy host may not notice for longer, and what it
/// would still do is of no use.
const JOIN: Duration = Duration::from_secs(1);

pub struct SymbolizeProcessor {
    config: SymbolizeConfig,
    names: Arc<Names>,
    host_names: Arc<HostNames>,
    files: Arc<Files>,
    telemetry: Arc<Telemetry>,
    stopping: Arc<Stopping>,
    debuginfod: Option<Arc<Debuginfod>>,
    backlog: Arc<Backlog>,
    late: Arc<Late>,
    /// The last batch left before everything in it was named.
    is_late: AtomicBool,
}

/// What became of each location.
type Found = HashMap<LocationIdx, names::Answer, RandomState>;

impl Factory for SymbolizeProcessor {
    const NAME: &'static str = "symbolize";
    const STABILITY: Stability = Stability::Alpha;
    type Config = SymbolizeConfig;
    type Component = dyn Processor;

    fn capabilities(config: &SymbolizeConfig) -> Capabilities {
        let cache = match config.debuginfod.is_some() {
            true => Capabilities::DAC_OVERRIDE,
            false => Capabilities::NONE,
        };
        Capabilities::SYS_PTRACE | Capabilities::SYSLOG | cache
    }

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
        let names = Arc::new(names);
        let backlog = Backlog::new(
            config.workers as usize,
            backlog_memory(config) / PLACE_BYTES,
        );
        let backlog = Arc::new(backlog);
        Ok(Self {
            config: config.clone(),
            late: Arc::new(Late {
                names: Arc::clone(&names),
                backlog: Arc::clone(&backlog),
            }),
            names,
            host_names: Arc::new(HostNames::new(
                config.assume_local,
                generated_memory(config),
            )),
            files: Arc::new(files),
            telemetry,
            stopping,
            debuginfod,
            backlog,
            is_late: AtomicBool::new(false),
        })
    }

    fn worker(&self, number: usize) -> Worker {
        let config = &self.config;
        let others = names_memory(config) + generated_memory(config) + backlog_memory(config);
        let tables = config.max_memory as usize - others;
        Worker {
            number,
            backlog: Arc::clone(&self.backlog),
            names: Arc::clone(&self.names),
            files: Arc::clone(&self.files),
            telemetry: Arc::clone(&self.telemetry),
            stopping: Arc::clone(&self.stopping),
            demangle: config.demangle,
            priority: config.priority,
            max_cpu: config.max_cpu,
            max_memory: tables / config.workers as usize,
        }
    }

    /// What can be said in time of each location without a name.
    async fn find(&self, profiles: &Profiles) -> Found {
        let model = profiles.model();
        let mut asked = Asked::of(&model.dictionary, self.config.targets);
        self.telemetry
            .count_unresolved(Reason::NoBuildId, asked.anonymous);
        let mut found = self.find_on_host(model, &mut asked).await;
        found.reserve(asked.locations.len());
        let keys = asked.locations.keys();
        let keys = keys.filter_map(|&location| Some((location, asked.code(location)?)));
        let mut unknown = Unknown::default();
        self.names.each(keys, |location, answer| match answer {
            Some(answer) => {
                found.insert(location, answer);
            }
            None => {
                unknown.insert(location, 0);
            }
        });
        if unknown.is_empty() {
            return found;
        }
        asked.weigh(model, &mut unknown);
        self.wait_for(&asked, &unknown).await;
        for location in unknown.into_keys() {
            let Some(code) = asked.code(location) else {
                continue;
            };
            // In this order: what is answered in between is known.
            let is_pending = self.backlog.contains(&code);
            let answer = self.names.latest(&code).unwrap_or(Err(match is_pending {
                true => Reason::Timeout,
                false => Reason::Busy,
            }));
            found.insert(location, answer);
        }
        found
    }

    /// Asks for what is unknown, and waits until it has answers or the time is over.
    async fn wait_for(&self, asked: &Asked, unknown: &Unknown) {
        // What comes in faster than it can be named would wait longer and longer.
        let is_behind = self.is_late.load(Ordering::Relaxed) && !self.backlog.is_empty();
        let wait = Arc::<Wait>::default();
        let mut places: HashMap<usize, Vec<_>> = HashMap::new();
        for (location, &weight) in unknown {
            if let Some(&(module, place)) = asked.locations.get(location) {
                places.entry(module).or_default().push((place, weight));
            }
        }
        for (module, places) in places {
            if let Some(module) = asked.modules.get(module) {
                let wait = (!is_behind).then_some(&wait);
                self.backlog.ask(module, places.into_iter(), wait);
            }
        }
        let is_late = is_behind
            || timeout(self.config.timeout.into(), wait.end())
                .await
                .is_err();
        self.is_late.store(is_late, Ordering::Relaxed);
        if is_late {
            self.telemetry.timeouts.inc();
        }
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

/// A quarter is for names, an eighth for those of generated code, a sixteenth for what waits, the rest for tables.
fn names_memory(config: &SymbolizeConfig) -> usize {
    config.max_memory as usize / 4
}

fn generated_memory(config: &SymbolizeConfig) -> usize {
    config.max_memory as usize / 8
}

fn backlog_memory(config: &SymbolizeConfig) -> usize {
    config.max_memory as usize / 16
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
                Some(frames.iter().map(SymbolFrame::line))
            });
        }
        let is_pending = |answer: &names::Answer| matches!(answer, Err(Reason::Timeout));
        if found.values().any(is_pending) {
            batch
                .deferred_symbols
                .add(Arc::clone(&self.late) as Arc<dyn SymbolSource>);
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
        for number in 0..self.config.workers as usize {
            let worker = self.worker(number);
            start("profcol-symbols", Box::new(move || worker.run()))?;
        }
        tokio::select! {
            () = stop.cancelled() => {}
            // Before the stop only a panic ends one.
            _ = ended.recv() => {}
        }
        self.stopping.set();
        self.backlog.close();
        if let Some(debuginfod) = &self.debuginfod {
            debuginfod.close();
        }
        match spawn_blocking(move || join_within(JOIN, threads)).await {
            Ok(true) => Ok(()),
            Ok(false) => Err(RunError("a thread of its own panicked".into())),
            Err(error) => Err(RunError(error.to_string())),
        }
    }
}
