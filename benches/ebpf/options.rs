//! What to measure and for how long.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, ValueEnum};

/// Measure what the eBPF receiver costs, beside perf and the floor of the kernel
#[derive(Parser)]
pub struct Options {
    /// The program that is measured
    #[arg(long, default_value = "target/release/profcol")]
    pub profcol: PathBuf,
    /// Seconds of each measurement
    #[arg(long, default_value_t = 5.0)]
    seconds: f64,
    /// Seconds before it, not counted
    #[arg(long, default_value_t = 4.0)]
    warm_up: f64,
    /// Samples a second on each CPU
    #[arg(long, value_delimiter = ',', default_value = "19,99")]
    pub frequencies: Vec<u64>,
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "idle,sleepers,deep,go,python,rust,spawn,mixed"
    )]
    pub workloads: Vec<Workload>,
    /// Leave perf out
    #[arg(long)]
    pub without_perf: bool,
    /// Instead of all that, one profiler for so many minutes under the last workload, and a line for each
    #[arg(long)]
    pub soak: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Workload {
    /// Nothing but what the host does anyway
    Idle,
    /// 200 processes that sleep
    Sleepers,
    /// C++ without frame pointers, 26 to 73 frames
    Deep,
    /// The same, ten times as many processes
    ManyDeep,
    /// The same, of ten different stacks
    FewStacks,
    /// The same, of a hundred different stacks
    MoreStacks,
    /// Go, 512 goroutines
    Go,
    /// CPython with JSON and regular expressions
    Python,
    /// Rust with maps and strings
    Rust,
    /// A shell loop of `true` and `gzip`
    Spawn,
    /// One of each
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
