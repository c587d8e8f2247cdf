//! What signals do.
//!
//! | signal | |
//! |---|---|
//! | `SIGTERM`, `SIGINT` | a stop in order; a second one ends the process at once |
//! | `SIGHUP` | a stop in order where the terminal is gone on which profcol was started, unless `nohup` was there; else a line in the log, as nothing is reloaded yet |
//! | `SIGUSR1`, `SIGUSR2`, `SIGALRM` | nothing, where by default they end a process |
//! | `SIGPIPE` | ignored by Rust: writing fails instead, which no log line minds |

use std::fs::{self, File};
use std::io;
use std::time::{Duration, Instant};

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Signals that come together are one request.
const ONE_REQUEST: Duration = Duration::from_millis(500);
/// A shell tells its jobs to hang up before it ends itself, and the terminal goes with it.
const HANG_UP: Duration = Duration::from_millis(500);

pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hang_up: Signal,
    user_1: Signal,
    user_2: Signal,
    alarm: Signal,
    /// Whether profcol lives as long as its terminal.
    is_on_terminal: bool,
}

impl Signals {
    pub fn new() -> io::Result<Self> {
        // To be asked before there is a handler.
        let is_on_terminal = has_terminal() && !ignores_hang_up();
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hang_up: signal(SignalKind::hangup())?,
            user_1: signal(SignalKind::user_defined1())?,
            user_2: signal(SignalKind::user_defined2())?,
            alarm: signal(SignalKind::alarm())?,
            is_on_terminal,
        })
    }

    /// The next signal that asks to stop after the first. What signals a process and its group at
    /// once, as `timeout` does, has asked only once.
    pub async fn second(&mut self) -> &'static str {
        let began = Instant::now();
        loop {
            let name = self.stop().await;
            if began.elapsed() >= ONE_REQUEST {
                return name;
            }
        }
    }

    /// The name of the next signal that asks to stop.
    pub async fn stop(&mut self) -> &'static str {
        loop {
            let ignored = tokio::select! {
                _ = self.terminate.recv() => return "SIGTERM",
                _ = self.interrupt.recv() => return "SIGINT",
                _ = self.hang_up.recv() => {
                    if self.has_lost_terminal().await {
                        return "SIGHUP";
                    }
                    tracing::warn!("SIGHUP: this version does not reload its configuration; restart it instead.");
                    continue;
                }
                _ = self.user_1.recv() => "SIGUSR1",
                _ = self.user_2.recv() => "SIGUSR2",
                _ = self.alarm.recv() => "SIGALRM",
            };
            tracing::debug!(signal = ignored, "Ignored a signal.");
        }
    }

    async fn has_lost_terminal(&self) -> bool {
        if !self.is_on_terminal {
            return false;
        }
        if has_terminal() {
            tokio::time::sleep(HANG_UP).await;
        }
        !has_terminal()
    }
}

/// Whether a terminal controls this process.
fn has_terminal() -> bool {
    File::open("/dev/tty").is_ok()
}

/// Whether who started this process wants it to go on without a terminal.
fn ignores_hang_up() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    ignores(&status, SignalKind::hangup())
}

fn ignores(status: &str, signal: SignalKind) -> bool {
    let set = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let set = set.and_then(|set| u64::from_str_radix(set.trim(), 16).ok());
    // The lowest bit is signal 1.
    let bit = 1 << (signal.as_raw_value() - 1);
    set.is_some_and(|set| set & bit != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn knows_which_signals_were_ignored_before_it_began() {
        let under =
            |set: &str| ignores(&format!("Name:\tx\nSigIgn:\t{set}\n"), SignalKind::hangup());
        assert!(under("0000000000001001"));
        assert!(!under("0000000000001000"));
        assert!(!under("nonsense"));
        assert!(!ignores("", SignalKind::hangup()));
    }
}
