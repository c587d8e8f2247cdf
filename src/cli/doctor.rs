//! The options of `profcol doctor`.

use clap::Args;

/// Knocks at every destination with an empty message, loads the BPF programs for a moment, and changes nothing. Without a
/// configuration, what `profcol` alone needs is checked.
#[derive(Args, Clone, Copy, Debug)]
pub struct Doctor {
    /// Print an array of objects with `component`, `check`, `status` (`ok`, `warn`, `fail`), `found`, `consequence` and `fix`
    #[arg(long)]
    pub json: bool,
}
