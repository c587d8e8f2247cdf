//! The options of `profcol doctor`.

use clap::Args;

/// Checks the requirements of the configuration.
#[derive(Args, Clone, Copy, Debug)]
#[command(after_help = DETAILS)]
pub struct Doctor {
    /// Print an array of objects with `component`, `check`, `status` (`ok`, `warn`, `fail`), `found`, `consequence` and `fix`
    #[arg(long)]
    pub json: bool,
}

const DETAILS: &str = "\
Sends each destination an empty message, briefly loads the BPF programs, and changes nothing. Without a
configuration, checks what `profcol` needs without arguments. Exits with 1 if a check failed.";
