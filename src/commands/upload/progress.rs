//! Upload progress: a bar on a terminal, periodic lines elsewhere.

use std::convert::Infallible;
use std::io::{IsTerminal, stderr};
use std::time::Duration;

use profcol_component::{IntCounter, Meter};
use profcol_padata::Recording;

use super::waiting;
use crate::stderr::print;

const WIDTH: u64 = 30;
const TERMINAL_INTERVAL: Duration = Duration::from_millis(200);
const LOG_INTERVAL: Duration = Duration::from_secs(10);

pub struct Progress {
    batches: IntCounter,
    files: IntCounter,
    all_batches: u64,
    all_files: usize,
    is_on_terminal: bool,
}

impl Progress {
    /// Reads the receiver's counters.
    pub fn new(meter: &Meter, recordings: &[Recording]) -> Self {
        let counter = |name: &str| {
            let name = format!("otelcol_receiver_padata_{name}");
            meter.counter(&name, "Items delivered.", &[("receiver", "padata")])
        };
        Self {
            batches: counter("delivered_batches"),
            files: counter("delivered_files"),
            all_batches: recordings.iter().map(waiting).sum(),
            all_files: recordings.len(),
            is_on_terminal: is_on_terminal(),
        }
    }

    pub fn batches(&self) -> u64 {
        self.batches.get()
    }

    pub fn has_begun(&self) -> bool {
        self.batches() > 0 || self.all_batches == 0
    }

    pub fn files(&self) -> u64 {
        self.files.get()
    }

    pub async fn show(&self) -> Infallible {
        let pause = if self.is_on_terminal {
            TERMINAL_INTERVAL
        } else {
            LOG_INTERVAL
        };
        loop {
            if self.is_on_terminal {
                self.draw();
            }
            tokio::time::sleep(pause).await;
            if !self.is_on_terminal {
                print(&format!("{}\n", self.line()));
            }
        }
    }

    pub fn end(&self) {
        if self.is_on_terminal {
            self.draw();
            print("\n");
        }
    }

    /// Leaves the cursor in column 0, so that a log line overwrites the bar.
    fn draw(&self) {
        let bar = bar(self.batches(), self.all_batches);
        print(&format!("\x1b[K{bar} {}\r", self.line()));
    }

    fn line(&self) -> String {
        format!(
            "{} of {} batches, {} of {} files",
            self.batches(),
            self.all_batches,
            self.files(),
            self.all_files
        )
    }
}

fn bar(done: u64, all: u64) -> String {
    let full = (done.min(all) * WIDTH).checked_div(all).unwrap_or(WIDTH);
    let (full, rest) = (full as usize, (WIDTH - full) as usize);
    format!("[{}{}]", "=".repeat(full), " ".repeat(rest))
}

/// Prints a line, over the bar if there is one.
pub fn print_line(line: &str) {
    let erase = if is_on_terminal() { "\x1b[K" } else { "" };
    print(&format!("{erase}{}\n", profcol_printable::line(line)));
}

fn is_on_terminal() -> bool {
    stderr().is_terminal()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bar_shows_the_share_done() {
        let check = |done, all, filled: usize| {
            let expected = format!("[{:<30}]", "=".repeat(filled));
            assert_eq!(bar(done, all), expected, "{done} of {all}");
        };
        check(0, 0, 30);
        check(0, 7, 0);
        check(1, 2, 15);
        check(7, 7, 30);
        check(9, 7, 30);
    }
}
