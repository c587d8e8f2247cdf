//! The options of `profcol top`.

use std::time::Duration;

use clap::Args;

use super::duration;

/// Without any process, every process of the host is shown.
#[derive(Args, Clone, Debug)]
#[command(after_help = KEYS)]
pub struct Top {
    /// Samples per second on each busy CPU
    #[arg(short = 'F', long, value_name = "HZ", default_value_t = 99, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub frequency: u32,
    /// Only these processes
    #[arg(short, long, value_name = "PID", value_delimiter = ',')]
    pub pid: Vec<u32>,
    /// How often to show what is new, such as `1s`
    #[arg(short, long, value_name = "TIME", default_value = "2s", value_parser = duration)]
    pub interval: Duration,
    /// Show what was sampled in this time until now; 10s, with --batch as long as the interval
    #[arg(short, long, value_name = "TIME", value_parser = duration)]
    pub window: Option<Duration>,
    /// Print tables one after the other; so it is where the output is no terminal
    #[arg(short, long)]
    pub batch: bool,
    /// End after so many tables
    #[arg(short = 'n', long, value_name = "NUMBER", requires = "batch", value_parser = clap::value_parser!(u64).range(1..))]
    pub iterations: Option<u64>,
    /// Print one JSON object a line
    #[arg(long, requires = "batch")]
    pub json: bool,
    /// Rows of each table that is printed
    #[arg(long, value_name = "NUMBER", default_value_t = 20, requires = "batch")]
    pub rows: usize,
}

const KEYS: &str = "\
Keys: 1 to 5 or Tab choose what is listed, arrows move, Enter looks into a row, Esc goes back, / filters, s sorts, p
pauses, q ends.";
