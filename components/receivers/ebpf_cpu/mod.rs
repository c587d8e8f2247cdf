//! Profiles every process on the host.
//!
//! ```text
//! kernel ─► ring ─► interval: each stack once ─► render: a batch, with names ─► delivery
//!                                                  ▲ processes, executables, symbols of the kernel
//!                                                    and of generated code
//! ```

mod attributes;
mod budget;
mod config;
mod delivery;
mod executables;
mod filter;
mod interval;
mod metrics;
mod processes;
mod render;
mod unwanted;

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use profcol_component::{
    BuildContext, BuildError, Capabilities, Executables, Factory, Output, Receiver, RunError,
    Stability, StartError, Stop,
};
use profcol_ebpf_loader::{
    Executables as KnownExecutables, Loaded, Process, ProcessKey, Profiler, Record,
    give_back_memory, next_bpf_program, number, since_boot, turn,
};
use profcol_processes::{JitProcesses, KernelNames};

use self::budget::{Budget, Meter};
pub use self::config::EbpfCpuConfig;
use self::config::{Aggregation, Mode};
use self::delivery::Waiting;
use self::filter::{Facts, Filter};
use self::interval::Interval;
use self::metrics::Metrics;
use self::processes::Processes;
use self::render::Names;
use self::unwanted::Unwanted;

/// How often the ring is emptied; a file that was never seen is worth doing it at once.
const POLL: Duration = Duration::from_millis(100);

/// Bytes of names of generated code, of all processes together.
const GENERATED_NAMES: usize = 256 << 20;

pub struct EbpfCpu {
    config: EbpfCpuConfig,
    metrics: Metrics,
    unwanted: Unwanted,
    executables: Executables,
    running: Option<Running>,
}

/// What exists from the start on.
struct Running {
    profiler: Profiler,
    kernel: KernelNames,
    processes: Processes,
    jit: JitProcesses<ProcessKey>,
    is_sidecar: bool,
    filter: Filter,
    budget: Budget,
    meter: Meter,
    interval: Interval,
    /// Samples of this turn are of the interval, others of the next one.
    turn: u32,
    next: Interval,
}

impl Factory for EbpfCpu {
    const NAME: &'static str = "ebpf_cpu";
    const STABILITY: Stability = Stability::Alpha;
    type Config = EbpfCpuConfig;
    type Component = dyn Receiver;

    fn capabilities(_: &EbpfCpuConfig) -> Capabilities {
        profcol_ebpf_loader::capabilities().fold(Capabilities::NONE, |needed, number| {
            needed | Capabilities::from_number(number)
        })
    }

    fn build(
        config: &EbpfCpuConfig,
        context: &BuildContext,
    ) -> Result<Box<dyn Receiver>, BuildError> {
        let mut config = config.clone();
        if config.aggregation == Aggregation::Count {
            // Samples that differ in it are counted as one.
            config.attributes.cpu = false;
        }
        Ok(Box::new(Self {
            config,
            metrics: Metrics::new(context),
            unwanted: Unwanted::new(context.drop_feedback.subscribe()),
            executables: context.executables.clone(),
            running: None,
        }))
    }
}

#[async_trait]
impl Receiver for EbpfCpu {
    async fn start(&mut self) -> Result<(), StartError> {
        let settings = self.config.settings();
        let filter = Filter::new(&self.config).map_err(|error| StartError(error.to_string()))?;
        let on_opened = executables::teller(&self.executables);
        let started = tokio::task::spawn_blocking(move || {
            let loaded = Loaded::new(&settings, on_opened)?;
            // Before the first sample, so that what the start costs is not what is sampled.
            let kernel = kernel_names();
            // What reading took stands beside what the loader took for the kernel's types.
            give_back_memory();
            Ok((loaded.start()?, kernel))
        });
        let (profiler, kernel) = started
            .await
            .map_err(|error| StartError(format!("failed to start profiling: {error}")))?
            .map_err(|error: profcol_ebpf_loader::StartError| StartError(error.to_string()))?;
        let frequency = self.config.frequency;
        match self.config.mode {
            Mode::Host => tracing::info!(frequency, "Profiling every process on this host."),
            Mode::Sidecar => {
                tracing::info!(frequency, "Profiling every process in this PID namespace.");
            }
        }
        let now = now();
        let run_time = profiler.counts().run_time;
        let turn = profiler.turn();
        self.running = Some(Running {
            profiler,
            kernel,
            processes: Processes::new(self.config.max_processes as usize),
            jit: JitProcesses::new(GENERATED_NAMES),
            is_sidecar: self.config.mode == Mode::Sidecar,
            filter,
            budget: Budget::new(self.config.cpu_budget, frequency),
            meter: Meter::start(Duration::from_nanos(now.since_boot), run_time),
            interval: Interval::starting_at(now),
            turn,
            next: Interval::starting_at(now),
        });
        Ok(())
    }

    async fn run(mut self: Box<Self>, output: Output, stop: Stop) -> Result<(), RunError> {
        let Some(mut running) = self.running.take() else {
            return Err(RunError("the receiver was not started".into()));
        };
        let Self {
            config,
            metrics,
            mut unwanted,
            ..
        } = *self;
        let counted = metrics.clone();
        output.count_source(move || counted.source_counts());
        let (waiting, delivery) = delivery::queue(
            output,
            config.max_waiting_batches,
            metrics.clone(),
            stop.clone(),
        );
        // On a thread of its own: it waits in the kernel, and must not wait for anything else.
        let sampling = tokio::task::spawn_blocking(move || {
            running.sample(&config, &metrics, &mut unwanted, &waiting, &stop);
        });
        let (sampled, ()) = tokio::join!(sampling, delivery.run());
        sampled.map_err(|error| RunError(format!("sampling failed: {error}")))
    }
}

fn kernel_names() -> KernelNames {
    let names = match KernelNames::read(next_bpf_program) {
        Ok(names) => names,
        Err(error) => {
            tracing::warn!(%error, "The kernel's symbols cannot be read: its frames have no names.");
            return KernelNames::none();
        }
    };
    if names.are_hidden() {
        tracing::warn!(
            "The kernel hides its addresses: its frames have no names. \
             Add CAP_SYSLOG, or set kernel.kptr_restrict to 0 or 1."
        );
    }
    names
}

impl Running {
    /// Works until `stop`; what was sampled up to it is the last batch.
    fn sample(
        &mut self,
        config: &EbpfCpuConfig,
        metrics: &Metrics,
        unwanted: &mut Unwanted,
        waiting: &Waiting,
        stop: &Stop,
    ) {
        let length: Duration = config.interval.into();
        let mut due = Instant::now() + length;
        while !stop.is_cancelled() {
            self.profiler.wait(POLL);
            self.drain(config, metrics);
            if Instant::now() >= due || self.interval.is_full() {
                due = (due + length).max(Instant::now());
                // What is sampled at another frequency is another interval.
                let frequency = self.budget.frequency();
                let up = Duration::from_nanos(since_boot());
                let spent = self.meter.read(up, self.profiler.counts().run_time);
                if let Some((time, used)) = spent
                    && let Some(changed) = self.budget.spend(time, used)
                {
                    self.profiler.set_frequency(changed);
                    self.drain(config, metrics);
                }
                self.end_turn(config, metrics);
                unwanted.remember(&self.interval);
                waiting.add(self.render(config, frequency));
                let unix = now().unix;
                for process in unwanted.rested(unix) {
                    self.profiler.forget(&process);
                }
                for process in unwanted.take(unix) {
                    self.profiler.exclude(&process);
                    metrics.unwanted.inc();
                    tracing::debug!(
                        pid = process.pid,
                        "A process is no longer sampled: all pipelines drop it."
                    );
                }
                metrics.update(&self.profiler, self.budget.frequency());
            }
        }
        self.profiler.stop();
        self.drain(config, metrics);
        self.end_turn(config, metrics);
        waiting.add(self.render(config, self.budget.frequency()));
        metrics.update(&self.profiler, self.budget.frequency());
        let counts = metrics.source_counts();
        tracing::info!(
            taken = counts.taken,
            excluded = counts.excluded,
            lost = counts.lost,
            "Profiling ended."
        );
    }

    /// Completes the interval with what the kernel counted for it.
    fn end_turn(&mut self, config: &EbpfCpuConfig, metrics: &Metrics) {
        if self.turn == turn::NONE {
            return;
        }
        self.next = Interval::starting_at(now());
        self.profiler.next_turn();
        self.drain(config, metrics);
        let Self {
            profiler,
            interval,
            filter,
            ..
        } = self;
        profiler.take_repeats(|repeat, count| {
            if interval.repeat(&repeat, count) {
                return;
            }
            if filter.decision(&repeat.process) == Some(false) {
                metrics.excluded.inc_by(count);
            } else {
                metrics.dropped.inc_by(count);
            }
        });
    }

    /// Takes in everything that was sampled since the last time.
    fn drain(&mut self, config: &EbpfCpuConfig, metrics: &Metrics) {
        let Self {
            profiler,
            processes,
            jit,
            filter,
            interval,
            is_sidecar,
            turn,
            next,
            ..
        } = self;
        let executables = profiler.executables().clone();
        let mut unwanted = Vec::new();
        profiler.drain(|record| match record {
            Record::Sample {
                mut sample,
                kernel,
                user,
            } => {
                if !filter.takes_all() && !wants(filter, &sample.process) {
                    metrics.excluded.inc();
                    return;
                }
                if user.frames().any(|frame| frame.file() == number::ANONYMOUS) {
                    jit.meet(sample.process, sample.process.pid);
                }
                let repeat = (sample.turn != turn::NONE).then(|| sample.repeat());
                config.attributes.strip(&mut sample);
                let interval = if sample.turn == *turn {
                    &mut *interval
                } else {
                    &mut *next
                };
                interval.add(&sample, repeat, kernel, user);
            }
            Record::Process {
                mut process,
                cgroup,
                arguments,
            } => {
                if *is_sidecar {
                    // The kernel told its number on the host.
                    process.parent = processes::parent(process.process.pid).unwrap_or(0);
                }
                let created = interval.unix_time(process.process.started);
                processes.add(&process, cgroup, arguments, created);
                if !filter.takes_all()
                    && !decide(filter, &process, processes, &executables)
                    && process.executable != number::REPLACED
                {
                    unwanted.push(process.process);
                }
            }
            Record::File { .. } => {}
        });
        for process in unwanted {
            profiler.exclude(&process);
        }
    }

    /// A batch of what was seen since the last one.
    fn render(&mut self, config: &EbpfCpuConfig, frequency: u64) -> profcol_profile::Profiles {
        let next = match self.turn {
            turn::NONE => Interval::starting_at(now()),
            _ => std::mem::take(&mut self.next),
        };
        let seen = std::mem::replace(&mut self.interval, next);
        self.turn = self.profiler.turn();
        self.jit.refresh();
        self.kernel.keep_up();
        let clock = self.profiler.clock();
        let model = render::render(
            &seen,
            &Names {
                executables: self.profiler.executables(),
                kernel: &self.kernel,
                processes: &self.processes,
                attributes: &config.attributes,
                jit: &self.jit,
            },
            clock,
            frequency,
        );
        let profiler = &mut self.profiler;
        profiler.named();
        self.processes
            .keep_seen(&seen, |process| profiler.forget(process));
        drop(seen);
        // An interval takes megabytes, and the next one is seconds away.
        give_back_memory();
        profcol_profile::Profiles::from_model(model)
    }
}

/// Decides about a process that was just met.
fn decide(
    filter: &mut Filter,
    process: &Process,
    processes: &Processes,
    executables: &KnownExecutables,
) -> bool {
    let known = processes.get(&process.process);
    let executable = executables.get(process.executable);
    let path = match &executable {
        Some(executable) if !executable.path.is_empty() => Some(executable.path.clone()),
        _ if process.executable == number::REPLACED => None,
        // It is not opened yet.
        _ => profcol_processes::executable_path(process.process.pid),
    };
    let facts = Facts {
        comm: known.map_or("", |known| known.name.as_str()),
        executable: path.as_deref(),
        cgroup: known.map(|known| known.cgroup.as_str()),
        pid: process.process.pid,
        uid: process.user,
    };
    filter.decide(process.process, facts)
}

/// Whether samples of the process are wanted. Of one whose announcement was lost, or that was
/// forgotten, /proc may still tell enough; else it is not known to be wanted.
fn wants(filter: &mut Filter, process: &ProcessKey) -> bool {
    if let Some(decision) = filter.decision(process) {
        return decision;
    }
    let Some(found) = processes::Found::read(process.pid) else {
        return false;
    };
    filter.decide(
        *process,
        Facts {
            comm: &found.name,
            executable: found.path.as_deref(),
            cgroup: found.cgroup.as_deref(),
            pid: process.pid,
            uid: found.user,
        },
    )
}

/// The time, by the clock of samples and by that of the world.
#[derive(Clone, Copy, Debug, Default)]
struct Now {
    since_boot: u64,
    unix: u64,
}

fn now() -> Now {
    let unix = SystemTime::now().duration_since(UNIX_EPOCH);
    Now {
        since_boot: since_boot(),
        unix: unix.map_or(0, |since| {
            u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
        }),
    }
}
