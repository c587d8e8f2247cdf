//! The options of `ebpf_cpu`.

use profcol_config::{Config, Duration, Problems};
use profcol_ebpf_loader::{Event, MAX_USER_FRAMES, Scope, Settings};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::attributes::Attributes;
use super::pattern::check_pattern;

/// Profiles the CPU usage of all processes on the host with eBPF.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
pub struct EbpfCpuConfig {
    /// Which processes to profile: `host` profiles all, `sidecar` those in the PID namespace of profcol, with
    /// their PIDs in it, `auto` all, but those of this namespace if it is not the host's.
    pub mode: Mode,
    /// Profile only processes that match one of these rules. Empty profiles all.
    pub include: Vec<RuleConfig>,
    /// Do not profile processes that match one of these rules. They cost almost nothing: their stacks are not unwound,
    /// and files that only they run get no unwind tables.
    pub exclude: Vec<RuleConfig>,
    /// `stream` sends each sample with its time and CPU; `count` aggregates equal samples in the kernel and sends
    /// their counts per `interval`.
    pub aggregation: Aggregation,
    /// With `aggregation: count`, the maximum number of distinct samples per `interval`; each takes about 100 bytes,
    /// twice. Samples beyond it are sent one by one.
    pub max_counted: u32,
    /// The share of one core that profcol may use, including its time in the kernel. For example: `0.01`. Above it
    /// the frequency is lowered in steps, and raised again later. 0 means no limit.
    pub cpu_budget: f64,
    /// The perf event to sample by: `cpu_clock` samples by busy CPU time, `cycles` by CPU cycles, `auto` by cycles if
    /// all CPUs count them, else by time. With `cycles` the receiver fails to start on hosts without a cycle counter
    /// (most virtual machines).
    pub event: EventKind,
    /// Samples per second on each busy CPU; with cycles, at the CPU's highest clock rate. A prime number avoids
    /// lockstep with periodic work.
    pub frequency: u64,
    /// How often a batch of samples is sent.
    pub interval: Duration,
    /// The maximum number of user frames, up to 1024 (960 of interpreted code). Deeper stacks are marked as truncated.
    pub max_frames: u32,
    /// Native frames of an interpreter's loop, and of its functions that only forward calls: `hide` shows the functions
    /// that they run in their place, `show` both.
    pub interpreter_frames: InterpreterFrames,
    /// Name generated code by the perf map or jitdump that its process writes, instead of by its runtime. Interpreted
    /// functions keep the runtime's names.
    pub prefer_perf_map: bool,
    /// Attributes of processes and samples.
    pub attributes: Attributes,
    /// Memory for unwind tables, in MiB, allocated on demand.
    pub max_table_memory_mib: u32,
    /// Scheduling priority of the thread that builds unwind tables: `low` yields to everything else on the host, so
    /// stacks end with `table_pending` for longer while it is busy; `normal` is like any other program.
    pub table_priority: Priority,
    /// Size of the BPF ring buffer, in KiB: a power of two. It is read ten times per second.
    pub ring_size_kib: u32,
    /// The maximum number of executables in the cache.
    pub max_executables: u32,
    /// The maximum number of processes in the cache.
    pub max_processes: u32,
    /// The maximum number of batches queued while a pipeline refuses them. Beyond it the oldest is dropped and counted.
    pub max_waiting_batches: usize,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Aggregation {
    #[default]
    Stream,
    Count,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum InterpreterFrames {
    #[default]
    Hide,
    Show,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum EventKind {
    #[default]
    CpuClock,
    Cycles,
    Auto,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Priority {
    #[default]
    Low,
    Normal,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    #[default]
    Host,
    Sidecar,
    Auto,
}

/// A process matches if all given fields match. Text is a glob pattern, in which `*` matches any text
/// and `?` any character, or an unanchored regular expression after `regex:`.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Eq, Serialize)]
#[serde(default)]
pub struct RuleConfig {
    /// The name of its main thread (`comm`), at most 15 characters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub comm: Option<String>,
    /// The path of its executable in its own mount namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub executable: Option<String>,
    /// Its cgroup path.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cgroup: Option<String>,
    /// Its PID.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// Its user ID.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uid: Option<u32>,
}

impl RuleConfig {
    fn validate(&self, problems: &mut Problems) {
        if *self == Self::default() {
            problems.add(
                "",
                "needs at least one of comm, executable, cgroup, pid and uid",
            );
        }
        for (key, text) in [
            ("comm", &self.comm),
            ("executable", &self.executable),
            ("cgroup", &self.cgroup),
        ] {
            if let Some(Err(error)) = text.as_deref().map(check_pattern) {
                problems.add(key, error.to_string());
            }
        }
    }
}

impl Default for EbpfCpuConfig {
    fn default() -> Self {
        Self {
            mode: Mode::Host,
            include: Vec::new(),
            exclude: Vec::new(),
            aggregation: Aggregation::Stream,
            max_counted: 16384,
            cpu_budget: 0.0,
            event: EventKind::CpuClock,
            frequency: 19,
            interval: Duration::from_secs(5),
            max_frames: 256,
            interpreter_frames: InterpreterFrames::Hide,
            prefer_perf_map: false,
            attributes: Attributes::default(),
            max_table_memory_mib: 64,
            table_priority: Priority::Low,
            ring_size_kib: 1024,
            max_executables: 8192,
            max_processes: 8192,
            max_waiting_batches: 12,
        }
    }
}

impl EbpfCpuConfig {
    pub fn settings(&self) -> Settings {
        Settings {
            event: match self.event {
                EventKind::CpuClock => Event::CpuClock,
                EventKind::Cycles => Event::Cycles,
                EventKind::Auto => Event::Auto,
            },
            frequency: self.frequency,
            max_frames: self.max_frames,
            with_arguments: self.attributes.command_args,
            table_bytes: u64::from(self.max_table_memory_mib) << 20,
            low_table_priority: self.table_priority == Priority::Low,
            files: self.max_executables,
            processes: self.max_processes,
            ring_bytes: self.ring_size_kib.saturating_mul(1024),
            scope: match self.mode {
                Mode::Host => Scope::Host,
                Mode::Sidecar => Scope::Namespace,
                Mode::Auto => Scope::Visible,
            },
            sample_counts: match self.aggregation {
                Aggregation::Stream => 0,
                Aggregation::Count => self.max_counted,
            },
            context_parts: self.attributes.context_parts(),
        }
    }
}

impl Config for EbpfCpuConfig {
    fn validate(&self, problems: &mut Problems) {
        let mut within = |key: &str, value: u64, low: u64, high: u64| {
            if !(low..=high).contains(&value) {
                problems.add(key, format!("must be between {low} and {high}"));
            }
        };
        within("frequency", self.frequency, 1, 10_000);
        within(
            "max_frames",
            self.max_frames.into(),
            1,
            MAX_USER_FRAMES as u64,
        );
        within(
            "max_table_memory_mib",
            self.max_table_memory_mib.into(),
            2,
            4095,
        );
        within("max_executables", self.max_executables.into(), 64, 65_000);
        within("max_counted", self.max_counted.into(), 64, 1 << 20);
        within("max_processes", self.max_processes.into(), 64, 1 << 20);
        within(
            "max_waiting_batches",
            self.max_waiting_batches as u64,
            1,
            10_000,
        );
        if !self.ring_size_kib.is_power_of_two() || !(64..=1 << 20).contains(&self.ring_size_kib) {
            problems.add(
                "ring_size_kib",
                "must be a power of two between 64 and 1048576",
            );
        }
        for (list, rules) in [("include", &self.include), ("exclude", &self.exclude)] {
            for (position, rule) in rules.iter().enumerate() {
                problems.nested(&format!("{list}::{position}"), |problems| {
                    rule.validate(problems)
                });
            }
        }
        if !(0.0..=1024.0).contains(&self.cpu_budget) {
            problems.add("cpu_budget", "must be a share of one core, such as 0.01");
        }
        if self.interval.is_zero() || self.interval.is_negative() {
            problems.add("interval", "`interval` must be positive");
        }
    }
}
