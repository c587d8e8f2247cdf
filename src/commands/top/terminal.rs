//! The terminal while something is drawn on it: it is given back however that ends.

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

/// How soon the reader of keys notices that it is to end.
const POLL: Duration = Duration::from_millis(100);
/// Faster than anybody types, and than anything is drawn.
const MAX_WAITING: usize = 64;

/// Raw, and on its other screen.
pub struct Screen {
    pub terminal: Terminal<CrosstermBackend<Stdout>>,
    taken: Taken,
}

/// Whether the terminal is still to be given back: also by a panic of any thread.
#[derive(Clone)]
struct Taken(Arc<AtomicBool>);

impl Screen {
    pub fn take() -> io::Result<Self> {
        let taken = Taken(Arc::new(AtomicBool::new(true)));
        let on_panic = taken.clone();
        let tell = take_hook();
        set_hook(Box::new(move |panic| {
            // First, or what is told would go away with the screen.
            on_panic.give_back();
            tell(panic);
        }));
        // From here on it is given back if anything fails.
        let screen = Self {
            terminal: Terminal::new(CrosstermBackend::new(stdout()))?,
            taken,
        };
        enable_raw_mode()?;
        execute!(stdout(), EnterAlternateScreen, Hide)?;
        Ok(screen)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        self.taken.give_back();
    }
}

impl Taken {
    fn give_back(&self) {
        if self.0.swap(false, Ordering::SeqCst) {
            // A terminal that is gone needs nothing.
            let _ = disable_raw_mode();
            let _ = execute!(stdout(), LeaveAlternateScreen, Show);
        }
    }
}

/// What is typed, read by a thread of its own: reading waits.
pub struct Keys {
    pub events: mpsc::Receiver<Event>,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Keys {
    pub fn read() -> io::Result<Self> {
        let (sender, events) = mpsc::channel(MAX_WAITING);
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
                // Without a terminal or anybody who listens there is nothing to read.
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
            // Its panic was told already.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::process::Command;

    use super::*;

    const ITSELF: &str =
        "commands::top::terminal::tests::a_panic_gives_the_terminal_back_and_is_told_there";
    /// Set where this test runs itself, on a terminal of its own.
    const ON_A_TERMINAL: &str = "PROFCOL_TEST_ON_A_TERMINAL";

    fn panic_on_the_other_screen() {
        let screen = Screen::take().unwrap();
        std::thread::sleep(Duration::from_millis(500));
        // As any thread may.
        let other = std::thread::spawn(|| panic!("this is told"));
        assert!(other.join().is_err());
        // What gave the terminal back is not its end.
        std::mem::forget(screen);
    }

    #[test]
    fn a_panic_gives_the_terminal_back_and_is_told_there() {
        if std::env::var_os(ON_A_TERMINAL).is_some() {
            return panic_on_the_other_screen();
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
            let _ = writeln!(
                io::stderr(),
                "skipped: python3, which has terminals, is not installed"
            );
            return;
        };
        let said = String::from_utf8_lossy(&python.stdout);
        let seen: serde_json::Value =
            serde_json::from_str(&said).unwrap_or_else(|error| panic!("{error}: {python:?}"));
        assert_eq!(seen["status"], 0, "{seen:#}");
        for key in ["was_raw", "restored", "left"] {
            assert_eq!(seen[key], true, "{seen:#}");
        }
        assert!(
            seen["after"].as_str().unwrap().contains("this is told"),
            "{seen:#}"
        );
    }
}
