//! The options of `profcol top`.

use std::time::Duration;

use clap::Args;

use super::duration;

/// Shows every process of the host unless processes are given.
#[derive(Args, Clone, Debug)]
#[command(after_help = KEYS)]
pub struct Top {
    /// Samples per second on each busy CPU
    #[arg(short = 'F', long, value_name = "HZ", default_value_t = 99, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub frequency: u32,
    /// Only these processes
    #[arg(short, long, value_name = "PID", value_delimiter = ',')]
    pub pid: Vec<u32>,
    /// Refresh interval, such as `1s`
    #[arg(short, long, value_name = "TIME", default_value = "2s", value_parser = duration)]
    pub interval: Duration,
    /// Show samples of this window up to now; default: 10s, or the interval with --batch
    #[arg(short, long, value_name = "TIME", value_parser = duration)]
    pub window: Option<Duration>,
    /// Print one table after another; default if the output is not a terminal
    #[arg(short, long)]
    pub batch: bool,
    /// Exit after this many tables
    #[arg(short = 'n', long, value_name = "NUMBER", requires = "batch", value_parser = clap::value_parser!(u64).range(1..))]
    pub iterations: Option<u64>,
    /// Print one JSON object per line
    #[arg(long, requires = "batch")]
    pub json: bool,
    /// Rows per printed table
    #[arg(long, value_name = "NUMBER", default_value_t = 20, requires = "batch")]
    pub rows: usize,
}

const KEYS: &str = "\
Keys: 1 to 5 or Tab switch tables, arrows move, Enter opens a row, Esc goes back, / filters, s sorts, p pauses, q
quits.";
