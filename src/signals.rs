//! Signal handling.
//!
//! | signal | |
//! |---|---|
//! | `SIGTERM`, `SIGINT` | graceful shutdown; a second one exits immediately |
//! | `SIGHUP` | graceful shutdown if the controlling terminal is gone, except under `nohup`; else a reload |
//! | `SIGUSR1`, `SIGUSR2`, `SIGALRM` | ignored; the default action would kill the process |
//! | `SIGPIPE` | ignored by the Rust runtime: writes fail with EPIPE instead |

use std::fs::{self, File};
use std::io;
use std::time::{Duration, Instant};

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Signals within this time count as one request.
const COALESCE_WINDOW: Duration = Duration::from_millis(500);
/// A shell sends SIGHUP to its jobs before it exits and the terminal goes away.
const TERMINAL_LOSS_DELAY: Duration = Duration::from_millis(500);

pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hang_up: Signal,
    user_1: Signal,
    user_2: Signal,
    alarm: Signal,
    /// Whether losing the terminal stops profcol.
    is_on_terminal: bool,
    /// A reload was requested while waiting for a stop.
    has_missed_reload: bool,
}

/// What a signal asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// A stop by the signal of this name.
    Stop(&'static str),
    Reload,
}

impl Signals {
    pub fn new() -> io::Result<Self> {
        // Must run before a SIGHUP handler is installed.
        let is_on_terminal = has_terminal() && !ignores_hang_up();
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hang_up: signal(SignalKind::hangup())?,
            user_1: signal(SignalKind::user_defined1())?,
            user_2: signal(SignalKind::user_defined2())?,
            alarm: signal(SignalKind::alarm())?,
            is_on_terminal,
            has_missed_reload: false,
        })
    }

    /// The next stop signal after the first. `timeout` and others signal the process and its group at once; that counts
    /// as one request.
    pub async fn second(&mut self) -> &'static str {
        let began = Instant::now();
        loop {
            let name = self.stop().await;
            if began.elapsed() >= COALESCE_WINDOW {
                return name;
            }
        }
    }

    /// Waits for the next stop signal; returns its name. [`next`](Self::next) returns reloads requested meanwhile.
    pub async fn stop(&mut self) -> &'static str {
        loop {
            match self.received().await {
                Request::Stop(name) => return name,
                Request::Reload => self.has_missed_reload = true,
            }
        }
    }

    /// Waits for the next signal to stop or to reload.
    pub async fn next(&mut self) -> Request {
        if std::mem::take(&mut self.has_missed_reload) {
            return Request::Reload;
        }
        self.received().await
    }

    async fn received(&mut self) -> Request {
        loop {
            let ignored = tokio::select! {
                _ = self.terminate.recv() => return Request::Stop("SIGTERM"),
                _ = self.interrupt.recv() => return Request::Stop("SIGINT"),
                _ = self.hang_up.recv() => match self.has_lost_terminal().await {
                    true => return Request::Stop("SIGHUP"),
                    false => return Request::Reload,
                },
                _ = self.user_1.recv() => "SIGUSR1",
                _ = self.user_2.recv() => "SIGUSR2",
                _ = self.alarm.recv() => "SIGALRM",
            };
            tracing::debug!(signal = ignored, "Ignored signal.");
        }
    }

    async fn has_lost_terminal(&self) -> bool {
        if !self.is_on_terminal {
            return false;
        }
        if has_terminal() {
            tokio::time::sleep(TERMINAL_LOSS_DELAY).await;
        }
        !has_terminal()
    }
}

/// Whether a terminal controls this process.
fn has_terminal() -> bool {
    File::open("/dev/tty").is_ok()
}

/// Whether SIGHUP was ignored at startup, as by `nohup`.
fn ignores_hang_up() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    ignores(&status, SignalKind::hangup())
}

fn ignores(status: &str, signal: SignalKind) -> bool {
    let set = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let set = set.and_then(|set| u64::from_str_radix(set.trim(), 16).ok());
    // Bit 0 is signal 1.
    let bit = 1 << (signal.as_raw_value() - 1);
    set.is_some_and(|set| set & bit != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_ignored_signals_from_proc_status() {
        let under =
            |set: &str| ignores(&format!("Name:\tx\nSigIgn:\t{set}\n"), SignalKind::hangup());
        assert!(under("0000000000001001"));
        assert!(!under("0000000000001000"));
        assert!(!under("nonsense"));
        assert!(!ignores("", SignalKind::hangup()));
    }
}
