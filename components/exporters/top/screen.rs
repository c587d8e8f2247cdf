//! The output for tables, and the progress line until the first one.

use std::io::{self, IsTerminal, Write};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::config::Output;

/// Clears the current line.
const CLEAR_LINE: &str = "\r\x1b[K";

/// Clones write to the same output.
#[derive(Clone)]
pub(super) struct Screen {
    output: Arc<Mutex<Box<dyn Write + Send>>>,
    is_terminal: bool,
}

impl Screen {
    pub fn of(output: Output) -> Self {
        match output {
            Output::Stdout => Self::new(io::stdout(), io::stdout().is_terminal()),
            Output::Stderr => Self::new(io::stderr(), io::stderr().is_terminal()),
        }
    }

    pub fn new(output: impl Write + Send + 'static, is_terminal: bool) -> Self {
        Self {
            output: Arc::new(Mutex::new(Box::new(output))),
            is_terminal,
        }
    }

    pub fn is_terminal(&self) -> bool {
        self.is_terminal
    }

    pub async fn print(&self, text: String) {
        let text = match self.is_terminal {
            true => format!("{CLEAR_LINE}{text}"),
            false => text,
        };
        self.write(text).await;
    }

    /// Rewrites the progress line. The cursor stays at its start, so that the next output, even a log
    /// line, replaces it.
    pub async fn show_progress(&self, since_start: Duration, samples: u64) {
        let seconds = since_start.as_secs();
        let progress = match samples {
            0 => format!("Waiting for samples... {seconds} s"),
            _ => format!("Profiling... {seconds} s, {samples} samples"),
        };
        self.write(format!("{CLEAR_LINE}{progress}\r")).await;
    }

    pub async fn clear_progress(&self) {
        if self.is_terminal {
            self.write(CLEAR_LINE.to_owned()).await;
        }
    }

    async fn write(&self, text: String) {
        let output = Arc::clone(&self.output);
        // A stopped terminal must not block anything else.
        let writing = tokio::task::spawn_blocking(move || {
            let mut output = output.lock();
            output.write_all(text.as_bytes())?;
            output.flush()
        });
        if let Ok(Err(error)) = writing.await {
            tracing::warn!(%error, "Failed to print the table.");
        }
    }
}
