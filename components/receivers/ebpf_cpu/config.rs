//! The options of `ebpf_cpu`.

use profcol_config::{Config, Duration, Problems};
use profcol_ebpf_loader::{Event, MAX_USER_FRAMES, Settings};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::attributes::Attributes;
use super::filter::check_pattern;

/// Profiles what every process on the host does on its CPUs, by eBPF.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
pub struct EbpfCpuConfig {
    /// Which processes are profiled: `host` profiles all, `sidecar` those in the PID namespace of profcol, with
    /// their numbers in it.
    pub mode: Mode,
    /// Rules of which one must match a process for it to be profiled. Without any, all are.
    pub include: Vec<RuleConfig>,
    /// Rules of which none may match. What is excluded costs almost nothing: its stacks are not followed.
    pub exclude: Vec<RuleConfig>,
    /// `stream` sends each sample with its time and CPU; `count` counts equal ones in the kernel, and sends how often
    /// each was there in an `interval`.
    pub aggregation: Aggregation,
    /// With `aggregation: count`, different samples that are counted at once; each takes about 100 bytes, twice. What
    /// finds no room is sent by itself.
    pub max_counted: u32,
    /// The share of one core that profcol may use, such as `0.01`, with what it uses inside the kernel. Where it
    /// would be more the frequency goes down, in steps, and up again later. 0 means no bound.
    pub cpu_budget: f64,
    /// What is sampled by: `cpu_clock` by the time that a CPU is busy, `cycles` by the cycles that it counts, `auto` by
    /// cycles where every CPU counts them and else by time. With `cycles` it does not start where they are not counted,
    /// as in most virtual machines.
    pub event: EventKind,
    /// Samples a second on each busy CPU; of cycles, on one at its highest speed. A prime number does not beat in time with what runs by the clock.
    pub frequency: u64,
    /// How often a batch is made of what was sampled.
    pub interval: Duration,
    /// Frames of a user stack at most, up to 1024. A deeper stack says that it is cut off.
    pub max_frames: u32,
    /// What is said of processes and samples beside their stacks.
    pub attributes: Attributes,
    /// Memory for unwind tables, in MiB. It is used as executables are met.
    pub max_table_memory_mib: u32,
    /// How the thread is scheduled that builds unwind tables: `low` behind everything else on the host, so that stacks
    /// end with `table_pending` for longer while it is busy; `normal` like any other program.
    pub table_priority: Priority,
    /// Memory between the kernel and this process, in KiB: a power of two. It is emptied ten times a second.
    pub ring_size_kib: u32,
    /// Executables that are known at once.
    pub max_executables: u32,
    /// Processes that are known at once.
    pub max_processes: u32,
    /// Batches that wait while a pipeline refuses them. When there are more, the oldest is dropped and counted.
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
}

/// A process matches when everything that is given does. Text is a glob pattern, in which `*` stands for any text
/// and `?` for any character, or after `regex:` a regular expression that is looked for in it.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Eq, Serialize)]
#[serde(default)]
pub struct RuleConfig {
    /// The name of its first thread, of at most 15 characters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub comm: Option<String>,
    /// The path of its executable, as the process sees it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub executable: Option<String>,
    /// Its path in the hierarchy of control groups.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cgroup: Option<String>,
    /// Its number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// The number of its user.
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
            max_frames: 128,
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
            is_sidecar: self.mode == Mode::Sidecar,
            sample_counts: match self.aggregation {
                Aggregation::Stream => 0,
                Aggregation::Count => self.max_counted,
            },
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
