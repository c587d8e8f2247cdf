//! Where tables are written, and the line that moves until the first one.

use std::io::{self, IsTerminal, Write};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::config::Output;

/// Clears the line on which the cursor is.
const CLEAR_LINE: &str = "\r\x1b[K";

/// A clone writes to the same place.
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

    /// Rewrites the line in place. The cursor stays at its start, so that whatever is printed next, a log
    /// line too, replaces it.
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
        // A terminal that is stopped must hold up nothing else.
        let writing = tokio::task::spawn_blocking(move || {
            let mut output = output.lock().unwrap_or_else(PoisonError::into_inner);
            output.write_all(text.as_bytes())?;
            output.flush()
        });
        if let Ok(Err(error)) = writing.await {
            tracing::warn!(%error, "Failed to print the table.");
        }
    }
}
