//! What to measure and for how long.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, ValueEnum};

use crate::languages::Language;

/// Measure the cost of the eBPF receiver, compared with perf and the kernel's minimum
#[derive(Parser)]
pub struct Options {
    /// Path of the profcol binary to measure
    #[arg(long, default_value = "target/release/profcol")]
    pub profcol: PathBuf,
    /// Seconds per measurement
    #[arg(long, default_value_t = 5.0)]
    seconds: f64,
    /// Warm-up seconds before it, not counted
    #[arg(long, default_value_t = 4.0)]
    warm_up: f64,
    /// Samples per second and CPU
    #[arg(long, value_delimiter = ',', default_value = "19,99")]
    pub frequencies: Vec<u64>,
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "idle,sleepers,deep,go,python,rust,spawn,mixed"
    )]
    pub workloads: Vec<Workload>,
    /// Measure these languages instead: kernel time per frame, and the agent next to many processes
    #[arg(long, value_enum, value_delimiter = ',')]
    pub languages: Vec<Language>,
    /// Numbers of processes of each language
    #[arg(long, value_delimiter = ',', default_value = "1,10,100")]
    pub processes: Vec<usize>,
    /// Skip perf
    #[arg(long)]
    pub without_perf: bool,
    /// Only run the last workload for this many minutes, and print a line per minute
    #[arg(long)]
    pub soak: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Workload {
    /// The host without extra load
    Idle,
    /// 200 sleeping processes
    Sleepers,
    /// C++ without frame pointers, 26 to 73 frames
    Deep,
    /// Like `deep`, with ten times as many processes
    ManyDeep,
    /// Like `deep`, with ten different stacks
    FewStacks,
    /// Like `deep`, with a hundred different stacks
    MoreStacks,
    /// Go, 512 goroutines
    Go,
    /// CPython with JSON and regular expressions
    Python,
    /// Rust with maps and strings
    Rust,
    /// A shell loop of `true` and `gzip`
    Spawn,
    /// One of each of the above
    Mixed,
}

impl Options {
    pub fn window(&self) -> Duration {
        Duration::from_secs_f64(self.seconds)
    }

    pub fn warm_up(&self) -> Duration {
        Duration::from_secs_f64(self.warm_up)
    }
}
