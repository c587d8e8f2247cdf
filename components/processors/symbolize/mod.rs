//! Symbolizes code on dedicated threads.
//!
//! ```text
//! batch ─► locations without lines ─► known? ─► lines added ─► next ─► exporter
//!                                       │ no      ▲ at the latest after `timeout`
//!                                       ▼         │                     │
//!                                    backlog ─► worker ─► names ◄───────┘ late names
//! ```
//!
//! The backlog hands the hottest addresses first to the workers, which read executables and build symbol tables. A
//! batch that was passed on too early carries a handle with which exporters can get the missing symbols.
//!
//! The cost depends on distinct locations, not on samples, and each is resolved once. A batch without anything to
//! symbolize keeps its bytes. Code outside of executables is resolved by [`HostNames`].

mod backlog;
mod companions;
mod config;
mod debuginfod;
mod deferred;
mod files;
mod host;
mod names;
mod pace;
mod telemetry;
#[cfg(test)]
mod tests;
mod unresolved;
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
    Answer, Batch, BuildContext, BuildError, Capabilities, Check, Consumer, Executables, Factory,
    Processor, RunError, Stability, StartError, Stop, SymbolFrame, SymbolSource,
};
use profcol_profile::{LocationIdx, Model, Profiles};
use profcol_reader::Readers;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use self::backlog::{Backlog, PLACE_BYTES, Wait};
pub use self::config::SymbolizeConfig;
use self::config::Targets;
use self::debuginfod::Debuginfod;
use self::deferred::DeferredLookup;
use self::files::Files;
use self::host::HostNames;
use self::names::Names;
use self::pace::Stopping;
use self::telemetry::{Reason, Telemetry};
use self::unresolved::{Unknown, UnresolvedLocations};
use self::worker::Worker;
use crate::shared::threads::join_within;

/// How long a stop waits for a thread. A low-priority thread on a busy host may take longer to notice, and its
/// results are not needed any more.
const JOIN: Duration = Duration::from_secs(1);

pub struct SymbolizeProcessor {
    config: SymbolizeConfig,
    names: Arc<Names>,
    host_names: Arc<HostNames>,
    files: Arc<Files>,
    telemetry: Arc<Telemetry>,
    stopping: Arc<Stopping>,
    readers: Readers,
    debuginfod: Option<Arc<Debuginfod>>,
    backlog: Arc<Backlog>,
    late: Arc<DeferredLookup>,
    /// Whether the last batch was passed on before everything was resolved.
    is_late: AtomicBool,
}

/// The result for each location.
type Symbols = HashMap<LocationIdx, names::SymbolResult, RandomState>;

impl Factory for SymbolizeProcessor {
    const NAME: &'static str = "symbolize";
    const STABILITY: Stability = Stability::Alpha;
    type Config = SymbolizeConfig;
    type Component = dyn Processor;

    fn capabilities(_: &SymbolizeConfig) -> Capabilities {
        Capabilities::SYS_PTRACE | Capabilities::SYSLOG
    }

    fn writes(config: &SymbolizeConfig) -> Vec<PathBuf> {
        let debuginfod = config.debuginfod.as_ref();
        let directory = debuginfod.map(|it| PathBuf::from(&it.cache_directory));
        directory.into_iter().collect()
    }

    fn reads_executables(config: &SymbolizeConfig) -> bool {
        config.targets.has_native()
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
        let capacity = config.max_open as usize;
        let dropped = telemetry.dropped_files.clone();
        let is_native = config.targets.has_native();
        let offered = is_native.then(|| {
            let executables = context.shared.get::<Executables>();
            executables.subscribe(capacity, dropped.clone())
        });
        let directories = config.debug_directories.iter().map(PathBuf::from);
        let stopping = Arc::<Stopping>::default();
        let debuginfod = config.debuginfod.as_ref().map(|debuginfod| {
            let from_environment = std::env::var("DEBUGINFOD_URLS").ok();
            Debuginfod::new(
                debuginfod,
                from_environment.as_deref(),
                Arc::clone(&telemetry),
            )
        });
        let debuginfod = debuginfod.transpose()?.map(Arc::new);
        let files = Files::new(
            offered,
            capacity,
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
            late: Arc::new(DeferredLookup {
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
            readers: context.shared.get(),
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
            readers: self.readers.clone(),
            demangle: config.demangle,
            priority: config.priority,
            max_cpu: config.max_cpu,
            max_memory: tables / config.workers as usize,
        }
    }

    /// Resolves each location without symbols, as far as possible in time.
    async fn find(&self, profiles: &Profiles) -> Symbols {
        let model = profiles.model();
        let mut unresolved = UnresolvedLocations::of(&model.dictionary, self.config.targets);
        self.telemetry
            .count_unresolved(Reason::NoBuildId, unresolved.anonymous);
        let mut found = self.resolve_on_host(model, &mut unresolved).await;
        found.reserve(unresolved.locations.len());
        let keys = unresolved.locations.keys();
        let keys = keys.filter_map(|&location| Some((location, unresolved.code(location)?)));
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
        unresolved.weigh(model, &mut unknown);
        self.wait_for(&unresolved, &unknown).await;
        for location in unknown.into_keys() {
            let Some(code) = unresolved.code(location) else {
                continue;
            };
            // In this order: an answer in between is then found in `names`.
            let is_pending = self.backlog.contains(&code);
            let answer = self.names.latest(&code).unwrap_or(Err(match is_pending {
                true => Reason::Timeout,
                false => Reason::Busy,
            }));
            found.insert(location, answer);
        }
        found
    }

    /// Requests unknown symbols, and waits for the answers or the timeout.
    async fn wait_for(&self, unresolved: &UnresolvedLocations, unknown: &Unknown) {
        // If batches arrive faster than symbols are resolved, waiting would take longer and longer.
        let is_behind = self.is_late.load(Ordering::Relaxed) && !self.backlog.is_empty();
        let wait = Arc::<Wait>::default();
        let mut addresses: HashMap<usize, Vec<_>> = HashMap::new();
        for (location, &weight) in unknown {
            if let Some(&(module, address)) = unresolved.locations.get(location) {
                addresses.entry(module).or_default().push((address, weight));
            }
        }
        for (module, addresses) in addresses {
            if let Some(module) = unresolved.modules.get(module) {
                let wait = (!is_behind).then_some(&wait);
                self.backlog.ask(module, addresses.into_iter(), wait);
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

    async fn resolve_on_host(
        &self,
        model: &Model,
        unresolved: &mut UnresolvedLocations,
    ) -> Symbols {
        let addresses = std::mem::take(&mut unresolved.on_host);
        if addresses.is_empty() {
            return Symbols::default();
        }
        let pending = self.host_names.pending(model, addresses);
        let host_names = Arc::clone(&self.host_names);
        match spawn_blocking(move || host_names.resolve(pending)).await {
            Ok(answers) => answers.into_iter().collect(),
            Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            // The runtime is shutting down.
            Err(_) => Symbols::default(),
        }
    }

    fn count(&self, found: &Symbols) {
        let named = found.values().filter(|answer| answer.is_ok()).count();
        self.telemetry.resolved.inc_by(named as u64);
        for reason in found.values().filter_map(|answer| answer.as_ref().err()) {
            self.telemetry.count_unresolved(*reason, 1);
        }
    }
}

/// Signals on drop that its thread has ended, also by a panic.
struct End(mpsc::Sender<()>);

impl Drop for End {
    fn drop(&mut self) {
        // One signal is enough.
        let _ = self.0.try_send(());
    }
}

/// A quarter is for symbols, an eighth for those of generated code, a sixteenth for the backlog, the rest for tables.
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

    async fn check(&self) -> Vec<Check> {
        match &self.debuginfod {
            Some(debuginfod) => debuginfod.check().await,
            None => Vec::new(),
        }
    }

    async fn process(&self, mut batch: Batch, next: &dyn Consumer) -> Answer {
        if self.config.targets == Targets::None {
            return next.consume(batch).await;
        }
        self.files.take_offered();
        let found = self.find(&batch.profiles).await;
        self.count(&found);
        if found.values().any(Result::is_ok) {
            batch.profiles.edit(|model| {
                model.set_lines(|location| {
                    let frames = found.get(&location)?.as_ref().ok()?;
                    Some(frames.iter().map(SymbolFrame::line))
                });
            });
        }
        let is_pending = |answer: &names::SymbolResult| matches!(answer, Err(Reason::Timeout));
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
                RunError::new(format!("failed to start the thread {name}: {error}"))
            })?);
            Ok(())
        };
        if let Some(debuginfod) = self.debuginfod.clone() {
            debuginfod
                .begin()
                .map_err(|error| RunError::new(format!("debuginfod::cache_directory: {error}")))?;
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
            // Before the stop a thread ends only by a panic.
            _ = ended.recv() => {}
        }
        self.stopping.set();
        self.backlog.close();
        if let Some(debuginfod) = &self.debuginfod {
            debuginfod.close();
        }
        match spawn_blocking(move || join_within(JOIN, threads)).await {
            Ok(true) => Ok(()),
            Ok(false) => Err(RunError::new("a symbolize thread panicked")),
            Err(error) => Err(RunError::new(error)),
        }
    }
}
