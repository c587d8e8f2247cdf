//! Profiles every process on the host.
//!
//! ```text
//! kernel ─► ring ─► interval: each stack once ─► render: a batch, with names ─► delivery
//!                                                  ▲ processes, executables, symbols of the kernel
//!                                                    and of generated code
//! ```

mod attributes;
mod config;
mod container;
mod delivery;
mod interval;
mod metrics;
mod processes;
mod render;

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use profcol_component::{
    BuildContext, BuildError, Factory, Output, Receiver, RunError, Stability, StartError, Stop,
};
use profcol_ebpf_host::{JitProcesses, KernelSymbols, Profiler, Record, number, since_boot};

use self::attributes::Attributes;
pub use self::config::EbpfCpuConfig;
use self::delivery::Waiting;
use self::interval::Interval;
use self::metrics::Metrics;
use self::processes::Processes;
use self::render::Names;

/// How often the ring is emptied; a file that was never seen is worth doing it at once.
const POLL: Duration = Duration::from_millis(100);

pub struct EbpfCpu {
    config: EbpfCpuConfig,
    metrics: Metrics,
    running: Option<Running>,
}

/// What exists from the start on.
struct Running {
    profiler: Profiler,
    symbols: KernelSymbols,
    processes: Processes,
    jit: JitProcesses,
    interval: Interval,
}

impl Factory for EbpfCpu {
    const NAME: &'static str = "ebpf_cpu";
    const STABILITY: Stability = Stability::Alpha;
    type Config = EbpfCpuConfig;
    type Component = dyn Receiver;

    fn build(
        config: &EbpfCpuConfig,
        context: &BuildContext,
    ) -> Result<Box<dyn Receiver>, BuildError> {
        Ok(Box::new(Self {
            config: config.clone(),
            metrics: Metrics::new(context),
            running: None,
        }))
    }
}

#[async_trait]
impl Receiver for EbpfCpu {
    async fn start(&mut self) -> Result<(), StartError> {
        let settings = self.config.settings();
        let started = tokio::task::spawn_blocking(move || {
            let profiler = Profiler::start(&settings)?;
            Ok((profiler, read_symbols()))
        });
        let (profiler, symbols) = started
            .await
            .map_err(|error| StartError(format!("failed to start profiling: {error}")))?
            .map_err(|error: profcol_ebpf_host::StartError| StartError(error.to_string()))?;
        let frequency = self.config.frequency;
        tracing::info!(frequency, "Profiling every process on this host.");
        self.running = Some(Running {
            profiler,
            symbols,
            processes: Processes::new(self.config.max_processes as usize),
            jit: JitProcesses::default(),
            interval: Interval::starting_at(now()),
        });
        Ok(())
    }

    async fn run(mut self: Box<Self>, output: Output, stop: Stop) -> Result<(), RunError> {
        let Some(mut running) = self.running.take() else {
            return Err(RunError("the receiver was not started".into()));
        };
        let Self {
            config, metrics, ..
        } = *self;
        let (waiting, delivery) = delivery::queue(
            output,
            config.max_waiting_batches,
            metrics.clone(),
            stop.clone(),
        );
        // On a thread of its own: it waits in the kernel, and must not wait for anything else.
        let sampling =
            tokio::task::spawn_blocking(move || running.sample(&config, &metrics, &waiting, &stop));
        let (sampled, ()) = tokio::join!(sampling, delivery.run());
        sampled.map_err(|error| RunError(format!("sampling failed: {error}")))
    }
}

fn read_symbols() -> KernelSymbols {
    let symbols = KernelSymbols::read().unwrap_or_else(|error| {
        tracing::warn!(%error, "The kernel's symbols cannot be read: its frames have no names.");
        KernelSymbols::default()
    });
    if symbols.is_hidden() {
        tracing::warn!(
            "The kernel hides its addresses: its frames have no names. \
             Add CAP_SYSLOG, or set kernel.kptr_restrict to 0 or 1."
        );
    }
    symbols
}

impl Running {
    /// Works until `stop`; what was sampled up to it is the last batch.
    fn sample(
        &mut self,
        config: &EbpfCpuConfig,
        metrics: &Metrics,
        waiting: &Waiting,
        stop: &Stop,
    ) {
        let length: Duration = config.interval.into();
        let mut due = Instant::now() + length;
        while !stop.is_cancelled() {
            self.profiler.wait(POLL);
            self.drain(&config.attributes);
            if Instant::now() >= due {
                due += length;
                waiting.add(self.render(config));
                metrics.update(&self.profiler);
            }
        }
        self.profiler.stop();
        self.drain(&config.attributes);
        waiting.add(self.render(config));
        metrics.update(&self.profiler);
    }

    /// Takes in everything that was sampled since the last time.
    fn drain(&mut self, attributes: &Attributes) {
        let Self {
            profiler,
            processes,
            jit,
            interval,
            ..
        } = self;
        profiler.drain(|record| match record {
            Record::Sample {
                mut sample,
                kernel,
                user,
            } => {
                if user.frames().any(|frame| frame.file() == number::ANONYMOUS) {
                    jit.meet(sample.process);
                }
                attributes.strip(&mut sample);
                interval.add(&sample, kernel, user);
            }
            Record::Process {
                process,
                cgroup,
                arguments,
            } => {
                let created = interval.unix_time(process.process.started);
                processes.add(&process, cgroup, arguments, created);
            }
            Record::File { .. } => {}
        });
    }

    /// A batch of what was seen since the last one.
    fn render(&mut self, config: &EbpfCpuConfig) -> profcol_profile::Profiles {
        let seen = std::mem::replace(&mut self.interval, Interval::starting_at(now()));
        self.jit.refresh();
        let model = render::render(
            &seen,
            &Names {
                executables: self.profiler.executables(),
                symbols: &self.symbols,
                processes: &self.processes,
                attributes: &config.attributes,
                jit: &self.jit,
            },
            config.frequency,
        );
        let profiler = &mut self.profiler;
        profiler.named();
        self.processes
            .keep_seen(&seen, |process| profiler.forget(process));
        profcol_profile::Profiles::from_model(model)
    }
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
