//! Profiles every process on the host.
//!
//! ```text
//! kernel ─► ring ─► interval: each stack once ─► render: a batch, with names ─► delivery
//!                                                  ▲ processes, executables, symbols of the kernel
//!                                                    and of generated code
//! ```

mod attributes;
mod budget;
mod check;
mod config;
mod delivery;
mod dotnet;
mod drop_feedback;
mod executables;
mod filter;
mod interval;
mod metrics;
mod pattern;
mod processes;
mod render;
mod thread_context;

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use profcol_component::{
    BuildContext, BuildError, Capabilities, Check, DropFeedback, Executables, Factory, Output,
    Receiver, RunError, Stability, StartError, Stop,
};
use profcol_ebpf_interpreters::context::LibraryContexts;
use profcol_ebpf_interpreters::names::{FunctionKey, GeneratedCode, InterpretedNames};
use profcol_ebpf_interpreters::{DetectedInterpreter, Runtime, SampledFunction};
use profcol_ebpf_loader::{
    EndReason, InterpretedFrame, Loaded, Process, ProcessKey, Profiler, Record, SampledFiles,
    StackFrame, count_buffer, file_number, next_bpf_program, release_heap, since_boot,
};
use profcol_reader::Readers;
use profcol_symbols::{JitProcesses, KernelSymbolizer};

use self::budget::{Budget, Meter};
use self::config::Aggregation;
pub use self::config::EbpfCpuConfig;
use self::delivery::BatchQueue;
use self::dotnet::DotNetProcesses;
use self::drop_feedback::DroppedProcesses;
use self::filter::{Filter, ProcessFacts};
use self::interval::Interval;
use self::metrics::Metrics;
use self::processes::Processes;
use self::render::NameSources;

/// How often the ring buffer is drained; a new executable triggers a drain at once.
const POLL: Duration = Duration::from_millis(100);

/// Memory limit for names of generated code, for all processes, in bytes.
const GENERATED_NAMES: usize = 256 << 20;

/// Memory limit for names and lines of interpreted functions, for all processes, in bytes.
const INTERPRETED_NAMES: usize = 64 << 20;

/// How long a batch waits for the names of new functions.
const NAMES_WAIT: Duration = Duration::from_millis(200);

pub struct EbpfCpu {
    config: EbpfCpuConfig,
    metrics: Metrics,
    drop_feedback: DroppedProcesses,
    executables: Executables,
    readers: Readers,
    running: Option<Running>,
}

/// State that exists from startup on.
struct Running {
    profiler: Profiler,
    kernel: KernelSymbolizer,
    processes: Processes,
    jit: JitProcesses<ProcessKey>,
    interpreted: InterpretedNames<ProcessKey>,
    dotnet: DotNetProcesses,
    contexts: LibraryContexts<ProcessKey>,
    has_own_pids: bool,
    filter: Filter,
    budget: Budget,
    meter: Meter,
    interval: Interval,
    /// Samples in this buffer belong to `interval`, others to `next`.
    count_buffer: u32,
    next: Interval,
}

impl Factory for EbpfCpu {
    const NAME: &'static str = "ebpf_cpu";
    const STABILITY: Stability = Stability::Alpha;
    /// Two instances would sample everything twice.
    const IS_EXCLUSIVE: bool = true;
    type Config = EbpfCpuConfig;
    type Component = dyn Receiver;

    fn capabilities(_: &EbpfCpuConfig) -> Capabilities {
        profcol_ebpf_loader::capabilities().fold(Capabilities::NONE, |needed, number| {
            needed | Capabilities::from_number(number)
        })
    }

    fn reads_executables(_: &EbpfCpuConfig) -> bool {
        true
    }

    fn build(
        config: &EbpfCpuConfig,
        context: &BuildContext,
    ) -> Result<Box<dyn Receiver>, BuildError> {
        let mut config = config.clone();
        if config.aggregation == Aggregation::Count {
            // Samples that differ only in the CPU are counted as one.
            config.attributes.cpu = false;
        }
        Ok(Box::new(Self {
            config,
            metrics: Metrics::new(context),
            drop_feedback: DroppedProcesses::new(DropFeedback::of(context).subscribe()),
            executables: context.shared.get(),
            readers: context.shared.get(),
            running: None,
        }))
    }
}

#[async_trait]
impl Receiver for EbpfCpu {
    async fn start(&mut self) -> Result<(), StartError> {
        let settings = self.config.settings();
        let filter = Filter::new(&self.config).map_err(StartError::new)?;
        let on_opened = executables::open_handler(&self.executables);
        let readers = self.readers.clone();
        let started = tokio::task::spawn_blocking(move || {
            let loaded = Loaded::new(&settings, Some(on_opened), &readers)?;
            // Before the first sample, so that profcol's startup is not sampled.
            let kernel = kernel_names();
            // Reading the symbols and loading the BTF both leave garbage on the heap.
            release_heap();
            Ok((loaded.start()?, kernel))
        });
        let (profiler, kernel) = started
            .await
            .map_err(|error| StartError::new(format!("failed to start profiling: {error}")))?
            .map_err(|error: profcol_ebpf_loader::ProfilerStartError| StartError::new(error))?;
        let frequency = self.config.frequency;
        let has_own_pids = self.config.settings().scope.is_namespace(Path::new("/"));
        match has_own_pids {
            false => tracing::info!(frequency, "Profiling every process on this host."),
            true => tracing::info!(frequency, "Profiling every process in this PID namespace."),
        }
        let now = now();
        let run_time = profiler.counts().run_time;
        let count_buffer = profiler.count_buffer();
        self.running = Some(Running {
            profiler,
            kernel,
            processes: Processes::new(self.config.max_processes as usize),
            jit: JitProcesses::new(GENERATED_NAMES),
            dotnet: DotNetProcesses::default(),
            interpreted: InterpretedNames::start(INTERPRETED_NAMES).map_err(|error| {
                StartError::new(format!(
                    "failed to start the thread that reads names: {error}"
                ))
            })?,
            contexts: LibraryContexts::start().map_err(|error| {
                StartError::new(format!(
                    "failed to start the thread that finds the contexts of threads: {error}"
                ))
            })?,
            has_own_pids,
            filter,
            budget: Budget::new(self.config.cpu_budget, frequency),
            meter: Meter::start(Duration::from_nanos(now.since_boot), run_time),
            interval: Interval::starting_at(now),
            count_buffer,
            next: Interval::starting_at(now),
        });
        Ok(())
    }

    async fn check(&mut self) -> Vec<Check> {
        let settings = self.config.settings();
        let checking = tokio::task::spawn_blocking(move || check::all(&settings));
        checking.await.unwrap_or_else(|error| {
            let check = Check::new("checks", error.to_string());
            vec![check.fail("not known", "report it as a bug of profcol")]
        })
    }

    async fn run(mut self: Box<Self>, output: Output, stop: Stop) -> Result<(), RunError> {
        let Some(mut running) = self.running.take() else {
            return Err(RunError::new("the receiver was not started"));
        };
        let Self {
            config,
            metrics,
            mut drop_feedback,
            ..
        } = *self;
        let counted = metrics.clone();
        output.set_source_counts(move || counted.source_counts());
        let (queue, delivery) = delivery::queue(
            output,
            config.max_waiting_batches,
            metrics.clone(),
            stop.clone(),
        );
        // On a dedicated thread: it blocks in the kernel and must not wait for other tasks.
        let sampling = tokio::task::spawn_blocking(move || {
            running.sample(&config, &metrics, &mut drop_feedback, &queue, &stop);
        });
        let (sampled, ()) = tokio::join!(sampling, delivery.run());
        sampled.map_err(|error| RunError::new(format!("sampling failed: {error}")))
    }
}

fn kernel_names() -> KernelSymbolizer {
    let names = match KernelSymbolizer::read(next_bpf_program) {
        Ok(names) => names,
        Err(error) => {
            tracing::warn!(%error, "Failed to read the kernel symbols; kernel frames have no names.");
            return KernelSymbolizer::none();
        }
    };
    if names.are_hidden() {
        tracing::warn!(
            "The kernel hides its addresses; kernel frames have no names. \
             Add CAP_SYSLOG, or set kernel.kptr_restrict to 0 or 1."
        );
    }
    names
}

impl Running {
    /// Runs until `stop`; the last batch has the samples taken until then.
    fn sample(
        &mut self,
        config: &EbpfCpuConfig,
        metrics: &Metrics,
        drop_feedback: &mut DroppedProcesses,
        queue: &BatchQueue,
        stop: &Stop,
    ) {
        let length: Duration = config.interval.into();
        let mut due = Instant::now() + length;
        while !stop.is_cancelled() {
            self.profiler.wait(POLL);
            self.drain(config, metrics);
            if Instant::now() >= due || self.interval.is_full() {
                due = (due + length).max(Instant::now());
                // Samples of different frequencies belong to different intervals.
                let frequency = self.budget.frequency();
                let up = Duration::from_nanos(since_boot());
                let spent = self.meter.read(up, self.profiler.counts().run_time);
                if let Some((time, used)) = spent
                    && let Some(changed) = self.budget.spend(time, used)
                {
                    self.profiler.set_frequency(changed);
                    self.drain(config, metrics);
                }
                self.end_count_buffer(config, metrics);
                drop_feedback.remember(&self.interval);
                queue.add(self.render(config, frequency));
                let unix = now().unix;
                for process in drop_feedback.expired(unix) {
                    self.profiler.forget(&process);
                }
                for process in drop_feedback.take(unix) {
                    self.profiler.exclude(&process);
                    metrics.excluded_by_pipelines.inc();
                    tracing::debug!(
                        pid = process.pid,
                        "Process excluded: all pipelines drop its samples."
                    );
                }
                metrics.update(
                    &self.profiler,
                    self.interpreted.counts(),
                    self.budget.frequency(),
                );
            }
        }
        self.profiler.stop();
        self.drain(config, metrics);
        self.end_count_buffer(config, metrics);
        queue.add(self.render(config, self.budget.frequency()));
        metrics.update(
            &self.profiler,
            self.interpreted.counts(),
            self.budget.frequency(),
        );
        let counts = metrics.source_counts();
        tracing::info!(
            taken = counts.taken,
            excluded = counts.excluded,
            lost = counts.lost,
            "Profiling ended."
        );
    }

    /// Completes the interval with the kernel's counts for it.
    fn end_count_buffer(&mut self, config: &EbpfCpuConfig, metrics: &Metrics) {
        if self.count_buffer == count_buffer::NONE {
            return;
        }
        self.next = Interval::starting_at(now());
        self.profiler.swap_count_buffers();
        self.drain(config, metrics);
        let Self {
            profiler,
            interval,
            filter,
            ..
        } = self;
        profiler.take_sample_counts(|key, count| {
            if interval.add_count(&key, count) {
                return;
            }
            if filter.decision(&key.process) == Some(false) {
                metrics.excluded.inc_by(count);
            } else {
                metrics.dropped.inc_by(count);
            }
        });
    }

    /// Processes everything sampled since the last call.
    fn drain(&mut self, config: &EbpfCpuConfig, metrics: &Metrics) {
        let Self {
            profiler,
            processes,
            jit,
            interpreted,
            dotnet,
            contexts,
            filter,
            interval,
            has_own_pids,
            count_buffer,
            next,
            ..
        } = self;
        let drained = Instant::now();
        let executables = profiler.sampled_files().clone();
        let mut interpreters: HashMap<u32, Option<Arc<DetectedInterpreter>>> = HashMap::new();
        let mut excluded = Vec::new();
        let files = profiler.drain(|record| match record {
            Record::Sample {
                mut sample,
                kernel,
                user,
                context,
            } => {
                if !filter.matches_all() && !is_included(filter, &sample.process) {
                    metrics.excluded.inc();
                    return;
                }
                if sample.end != EndReason::KernelThread as u32 {
                    contexts.observe(sample.process, sample.process.pid, drained);
                }
                let mut has_generated_code = false;
                let mut has_unknown_code = false;
                let mut is_behind_generated_code = false;
                for frame in user.stack() {
                    let is_interpreted = matches!(frame, StackFrame::Interpreted(_));
                    has_unknown_code |= is_behind_generated_code && !is_interpreted;
                    is_behind_generated_code = false;
                    match frame {
                        StackFrame::Native(frame) if frame.file() == file_number::ANONYMOUS => {
                            has_generated_code = true;
                            is_behind_generated_code = true;
                        }
                        StackFrame::Native(_) => {}
                        StackFrame::Interpreted(frame)
                            if frame.function == 0 && frame.code_address == 0 => {}
                        StackFrame::Interpreted(frame) => {
                            let known = interpreters.entry(frame.file).or_insert_with(|| {
                                executables.get(frame.file)?.interpreter.clone()
                            });
                            let is_of_process = Runtime::from_number(frame.runtime)
                                .is_some_and(Runtime::is_of_process);
                            if known.is_some() || is_of_process {
                                let key = function_key(sample.process, &frame);
                                let position = frame.detail.position();
                                let pid = sample.process.pid;
                                interpreted.observe(key, position, pid, known.as_ref());
                            }
                        }
                    }
                }
                if has_generated_code {
                    jit.observe(sample.process, sample.process.pid);
                    if dotnet.observe(sample.process, user.stack(), &executables) {
                        observe_methods(interpreted, sample.process, user.stack());
                    }
                }
                if has_unknown_code || is_behind_generated_code {
                    interpreted.observe_generated_code(sample.process, sample.process.pid);
                }
                let sample_key =
                    (sample.count_buffer != count_buffer::NONE).then(|| sample.sample_key());
                config.attributes.strip(&mut sample);
                let interval = if sample.count_buffer == *count_buffer {
                    &mut *interval
                } else {
                    &mut *next
                };
                interval.add(&sample, sample_key, kernel, user, context);
            }
            Record::Process {
                mut process,
                cgroup,
                arguments,
            } => {
                if *has_own_pids {
                    // The kernel reported the PID in the host's namespace.
                    process.parent = processes::parent(process.process.pid).unwrap_or(0);
                }
                let created = interval.unix_time(process.process.started);
                processes.add(&process, cgroup, arguments, created);
                if !filter.matches_all()
                    && !decide(filter, &process, processes, &executables)
                    && process.executable != file_number::IN_EXEC
                {
                    excluded.push(process.process);
                }
            }
            Record::File { .. } => {}
        });
        for process in excluded {
            profiler.exclude(&process);
        }
        // Last: only now are the processes of these files decided. That of the last one may follow in the next records.
        for file in files {
            let decision = filter.latest_decision(file.pid());
            if decision.unwrap_or_else(|| filter.matches_all()) {
                profiler.build_table(file);
            } else {
                profiler.postpone_table(&file);
            }
        }
        for (process, found) in contexts.take(drained) {
            profiler.set_process_contexts(&process, found.as_ref());
        }
        for (process, code) in interpreted.take_processes() {
            match code {
                GeneratedCode::Java(java) => profiler.set_java_process(&process, &java),
                GeneratedCode::Beam(beam) => profiler.set_beam_process(&process, &beam),
                GeneratedCode::DotNet(dotnet) => profiler.set_dotnet_process(&process, &dotnet),
            }
        }
    }

    /// Renders the samples since the last batch.
    fn render(&mut self, config: &EbpfCpuConfig, frequency: u64) -> profcol_profile::Profiles {
        let next = match self.count_buffer {
            count_buffer::NONE => Interval::starting_at(now()),
            _ => std::mem::take(&mut self.next),
        };
        let seen = std::mem::replace(&mut self.interval, next);
        self.count_buffer = self.profiler.count_buffer();
        self.jit.refresh();
        self.kernel.refresh();
        self.interpreted.wait(NAMES_WAIT);
        let clock = self.profiler.clock();
        let model = render::render(
            &seen,
            &NameSources {
                executables: self.profiler.sampled_files(),
                kernel: &self.kernel,
                processes: &self.processes,
                attributes: &config.attributes,
                jit: &self.jit,
                interpreted: &self.interpreted,
                dotnet: &self.dotnet,
                contexts: &self.contexts,
                interpreter_frames: config.interpreter_frames,
                prefer_perf_map: config.prefer_perf_map,
            },
            clock,
            frequency,
        );
        let profiler = &mut self.profiler;
        profiler.release_file_numbers();
        self.interpreted.end_round();
        self.contexts.forget_idle(Instant::now());
        self.processes
            .keep_seen(&seen, |process| profiler.forget(process));
        drop(seen);
        // An interval takes megabytes, and the next one is rendered seconds later.
        release_heap();
        profcol_profile::Profiles::from_model(model)
    }
}

/// The key of a frame's function among the names of interpreted functions.
fn function_key(process: ProcessKey, frame: &InterpretedFrame) -> FunctionKey<ProcessKey> {
    FunctionKey {
        process,
        file: frame.file,
        function: SampledFunction {
            address: frame.function,
            generation: frame.detail.generation(),
            runtime: frame.runtime,
            code_address: frame.code_address,
        },
    }
}

/// Requests the names of .NET's methods.
fn observe_methods(
    interpreted: &InterpretedNames<ProcessKey>,
    process: ProcessKey,
    stack: impl Iterator<Item = StackFrame>,
) {
    for frame in stack {
        if let StackFrame::Native(frame) = frame
            && frame.file() == file_number::ANONYMOUS
        {
            interpreted.observe(dotnet::method_key(process, frame), 0, process.pid, None);
        }
    }
}

/// Decides whether a new process is profiled.
fn decide(
    filter: &mut Filter,
    process: &Process,
    processes: &Processes,
    executables: &SampledFiles,
) -> bool {
    let known = processes.get(&process.process);
    let executable = executables.get(process.executable);
    let path = match &executable {
        Some(executable) if executable.path.starts_with('/') => Some(executable.path.clone()),
        _ if process.executable == file_number::IN_EXEC => None,
        // Too long for a record, and not opened yet.
        _ => profcol_processes::executable_path(process.process.pid),
    };
    let facts = ProcessFacts {
        comm: known.map_or("", |known| known.name.as_str()),
        executable: path.as_deref(),
        cgroup: known.map(|known| known.cgroup.as_str()),
        pid: process.process.pid,
        uid: process.user,
    };
    filter.decide(process.process, facts)
}

/// Whether the process is profiled. If its announcement was lost or evicted, /proc may still
/// have enough information; otherwise the process is excluded.
fn is_included(filter: &mut Filter, process: &ProcessKey) -> bool {
    if let Some(decision) = filter.decision(process) {
        return decision;
    }
    let Some(found) = processes::ProcfsInfo::read(process.pid) else {
        return false;
    };
    filter.decide(
        *process,
        ProcessFacts {
            comm: &found.name,
            executable: found.path.as_deref(),
            cgroup: found.cgroup.as_deref(),
            pid: process.pid,
            uid: found.user,
        },
    )
}

/// A time on the clock of the samples, and as Unix time.
#[derive(Clone, Copy, Debug, Default)]
struct Timestamps {
    since_boot: u64,
    unix: u64,
}

fn now() -> Timestamps {
    let unix = SystemTime::now().duration_since(UNIX_EPOCH);
    Timestamps {
        since_boot: since_boot(),
        unix: unix.map_or(0, |since| {
            u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
        }),
    }
}
