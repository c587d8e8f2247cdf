//! The options of `profcol doctor`.

use clap::Args;

/// What is checked is what the configuration needs.
#[derive(Args, Clone, Copy, Debug)]
#[command(after_help = WHAT)]
pub struct Doctor {
    /// Print an array of objects with `component`, `check`, `status` (`ok`, `warn`, `fail`), `found`, `consequence` and `fix`
    #[arg(long)]
    pub json: bool,
}

const WHAT: &str = "\
Sends each destination an empty message, loads the BPF programs for a moment, and changes nothing. Without a
configuration, what `profcol` alone needs is checked. Ends with 1 where a check failed.";
