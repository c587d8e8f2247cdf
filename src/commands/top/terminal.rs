//! The full-screen terminal, restored on exit, error and panic.

use std::io::{self, Stdout, stdout};
use std::panic::{set_hook, take_hook};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::{Hide, Show};
use ratatui::crossterm::event::{self, Event};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use tokio::sync::mpsc;

/// Poll interval of the key reader for its stop flag.
const POLL: Duration = Duration::from_millis(100);
/// Far more than typed between two redraws.
const MAX_PENDING_KEYS: usize = 64;

/// The terminal in raw mode on the alternate screen.
pub struct Screen {
    pub terminal: Terminal<CrosstermBackend<Stdout>>,
    raw_mode: RawMode,
}

/// Whether the terminal still needs restoring; shared with the panic hook, as any thread may panic.
#[derive(Clone)]
struct RawMode(Arc<AtomicBool>);

impl Screen {
    pub fn take() -> io::Result<Self> {
        let raw_mode = RawMode(Arc::new(AtomicBool::new(true)));
        let on_panic = raw_mode.clone();
        let print = take_hook();
        set_hook(Box::new(move |panic| {
            // Restore before printing, or the message is lost with the alternate screen.
            on_panic.restore();
            print(panic);
        }));
        // From here on, drop restores it on errors.
        let screen = Self {
            terminal: Terminal::new(CrosstermBackend::new(stdout()))?,
            raw_mode,
        };
        enable_raw_mode()?;
        execute!(stdout(), EnterAlternateScreen, Hide)?;
        Ok(screen)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        self.raw_mode.restore();
    }
}

impl RawMode {
    fn restore(&self) {
        if self.0.swap(false, Ordering::SeqCst) {
            // The terminal may be gone.
            let _ = disable_raw_mode();
            let _ = execute!(stdout(), LeaveAlternateScreen, Show);
        }
    }
}

/// Key events, read on a separate thread because reading blocks.
pub struct Keys {
    pub events: mpsc::Receiver<Event>,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Keys {
    pub fn read() -> io::Result<Self> {
        let (sender, events) = mpsc::channel(MAX_PENDING_KEYS);
        let is_over = Arc::new(AtomicBool::new(false));
        let over = Arc::clone(&is_over);
        let thread = std::thread::Builder::new().name("keys".to_owned());
        let thread = thread.spawn(move || {
            while !over.load(Ordering::SeqCst) {
                let event = match event::poll(POLL) {
                    Ok(false) => continue,
                    Ok(true) => event::read(),
                    Err(error) => Err(error),
                };
                // The terminal or the listener is gone.
                let Ok(event) = event else {
                    return;
                };
                if sender.blocking_send(event).is_err() {
                    return;
                }
            }
        })?;
        Ok(Self {
            events,
            is_over,
            thread: Some(thread),
        })
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::SeqCst);
        self.events.close();
        if let Some(thread) = self.thread.take() {
            // The panic hook has printed its panic.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use profcol_test_skip::skip;
    use std::process::Command;

    use super::*;

    const ITSELF: &str =
        "commands::top::terminal::tests::a_panic_restores_the_terminal_and_is_printed_there";
    /// Set when this test re-executes itself on a pseudo-terminal.
    const ON_A_TERMINAL: &str = "PROFCOL_TEST_ON_A_TERMINAL";

    fn panic_on_the_alternate_screen() {
        let screen = Screen::take().unwrap();
        // Until the terminal's other end has looked at its mode, which it does every 50 ms and does not report.
        std::thread::sleep(Duration::from_millis(500));
        // Any thread may panic.
        let other = std::thread::spawn(|| panic!("this is printed"));
        assert!(other.join().is_err());
        // The panic hook restored the terminal, not the drop.
        std::mem::forget(screen);
    }

    #[test]
    fn a_panic_restores_the_terminal_and_is_printed_there() {
        if std::env::var_os(ON_A_TERMINAL).is_some() {
            return panic_on_the_alternate_screen();
        }
        let harness = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/ebpf/top.py");
        let own = std::env::current_exe().unwrap();
        let python = Command::new("python3")
            .args([harness, "[]"])
            .arg(own)
            .args(["--exact", ITSELF, "--nocapture"])
            .env(ON_A_TERMINAL, "1")
            .output();
        let Ok(python) = python else {
            skip("python3 is not installed, which provides the pseudo-terminal");
            return;
        };
        let stdout = String::from_utf8_lossy(&python.stdout);
        let seen: serde_json::Value =
            serde_json::from_str(&stdout).unwrap_or_else(|error| panic!("{error}: {python:?}"));
        assert_eq!(seen["status"], 0, "{seen:#}");
        for key in ["was_raw", "restored", "left"] {
            assert_eq!(seen[key], true, "{seen:#}");
        }
        assert!(
            seen["after"].as_str().unwrap().contains("this is printed"),
            "{seen:#}"
        );
    }
}
