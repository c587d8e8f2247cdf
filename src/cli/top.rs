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
    /// Only these processes, separated by commas
    #[arg(short, long, value_name = "PID", value_delimiter = ',')]
    pub pid: Vec<u32>,
    /// Refresh interval, such as `1s`
    #[arg(short, long, value_name = "TIME", default_value = "2s", value_parser = duration)]
    pub interval: Duration,
    /// Show samples of this window up to now; default: 10s, or the interval if tables are printed
    #[arg(short, long, value_name = "TIME", value_parser = duration)]
    pub window: Option<Duration>,
    /// Print one table after another; implied by the options below, and if the output is not a terminal
    #[arg(short, long)]
    pub batch: bool,
    /// Exit after this many tables
    #[arg(short = 'n', long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..))]
    pub iterations: Option<u64>,
    /// Print one JSON object per line
    #[arg(long)]
    pub json: bool,
    /// Rows per printed table; default: 20
    #[arg(long, value_name = "NUMBER")]
    pub rows: Option<usize>,
}

impl Top {
    /// Whether tables are printed instead of drawn on the screen.
    pub fn is_batch(&self, has_terminal: bool) -> bool {
        let is_asked = self.batch || self.json || self.iterations.is_some() || self.rows.is_some();
        is_asked || !has_terminal
    }
}

const KEYS: &str = "\
Keys: 1 to 5 or Tab switch tables, arrows move, Enter opens a row, Esc goes back, / filters, s sorts, p pauses, q
quits.";

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Program {
        #[command(flatten)]
        top: Top,
    }

    #[test]
    fn options_of_printed_tables_print_tables() {
        for (arguments, prints) in [
            (&[][..], false),
            (&["-p", "1,2"], false),
            (&["--batch"], true),
            (&["--json"], true),
            (&["-n", "1"], true),
            (&["--rows", "5"], true),
        ] {
            let arguments = ["top"].iter().chain(arguments);
            let top = Program::parse_from(arguments).top;
            assert_eq!(top.is_batch(true), prints, "{top:?}");
            assert!(top.is_batch(false), "{top:?}");
        }
    }
}
