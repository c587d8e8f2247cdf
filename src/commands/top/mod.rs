//! `profcol top`: live CPU usage, full-screen or as lines.
//!
//! ```text
//! ebpf_cpu ─► names ─► live_view: its history, without its page ─► Snapshot ─► View (keys) ─► draw
//!                                                                     └──► tables, JSON
//! ```

mod draw;
mod tables;
mod terminal;
mod view;

use std::io::{self, IsTerminal, Write, stdin, stdout};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use profcol_component::{IntCounter, Meter, RecentLog, SelfTelemetry};
use profcol_engine::telemetry::init_logs;
use profcol_history::{Recent, Snapshot};
use ratatui::crossterm::event::{Event, KeyEventKind};
use ratatui::widgets::TableState;
use serde_json::{Value, json};
use tokio::time::{Instant, Interval, MissedTickBehavior, interval};

use self::draw::{Health, draw};
use self::terminal::{Keys, Screen};
use self::view::{Reaction, View};
use super::run::{Session, in_runtime, serve};
use super::{CommandError, load};
use crate::cli::{Configuration, Top};
use crate::privileges;
use crate::stderr::print;

/// Default of `--window` on a terminal.
const WINDOW: Duration = Duration::from_secs(10);
/// Default of `--rows`.
const ROWS: usize = 20;
/// Delay from taking a sample to showing it.
const DELAY: Duration = Duration::from_secs(1);
/// How long the first printed table waits for unwind tables: until they exist, stacks are cut off.
const MAX_WAIT: Duration = Duration::from_secs(10);
/// The exporter that holds the history.
const LIVE_VIEW: &str = "live_view";

pub fn top(top: &Top, on_top: &Configuration) -> Result<(), CommandError> {
    if !on_top.uris.is_empty() {
        return Err(CommandError::Usage(
            "`top` has a built-in pipeline: change it with --set, or run `profcol --config` with the exporter `live_view` or `top`".to_owned(),
        ));
    }
    let is_batch = top.is_batch(stdout().is_terminal() && stdin().is_terminal());
    let loaded = load::load(&Configuration {
        uris: vec![load::own(&configuration(top, is_batch))],
        ..on_top.clone()
    })?;
    let telemetry = SelfTelemetry::default();
    init_logs(&loaded.document.service.telemetry.logs, &[], &telemetry.log)
        .map_err(|error| CommandError::Configuration(error.to_string()))?;
    if !is_batch {
        telemetry.log.keep();
    }
    privileges::keep(loaded.document.capabilities());

    let shown = Shown {
        recent: Arc::default(),
        top: top.clone(),
        window: top
            .window
            .unwrap_or(if is_batch { top.interval } else { WINDOW }),
        lost: lost(&telemetry.meter),
        log: telemetry.log.clone(),
    };
    let (failure, recent) = (Arc::new(Mutex::new(None)), Arc::clone(&shown.recent));
    let result = Arc::clone(&failure);
    let session = Session {
        on_graph: Box::new(move |graph| {
            if let Some(offered) = graph.exporter(LIVE_VIEW).get::<Recent>() {
                let _ = recent.set((*offered).clone());
            }
        }),
        until: Box::pin(async move {
            let ended = match is_batch {
                true => shown.print().await,
                false => shown.show().await,
            };
            *result.lock() = ended.err();
        }),
        ..Session::default()
    };
    let report = in_runtime(serve(&loaded, &telemetry, session));
    // Now that the screen is gone.
    for line in telemetry.log.since(0).lines {
        print(&format!("{line}\n"));
    }
    let report = report?;
    if let Some(error) = failure.lock().take() {
        return Err(CommandError::Runtime(format!(
            "the terminal failed: {error}"
        )));
    }
    match report.failures.first() {
        Some(failure) => Err(CommandError::Runtime(failure.to_string())),
        None => Ok(()),
    }
}

/// The pipeline of `profcol top`.
fn configuration(top: &Top, is_batch: bool) -> Value {
    let include: Vec<Value> = top.pid.iter().map(|pid| json!({"pid": pid})).collect();
    // On the screen, log lines have a place of their own.
    let logs = match is_batch {
        true => "stderr",
        false => "/dev/null",
    };
    let keep = top.window.unwrap_or(WINDOW).max(top.interval) * 4;
    json!({
        "receivers": {"ebpf_cpu": {
            "mode": "auto",
            "frequency": top.frequency,
            "interval": "1s",
            "table_priority": "normal",
            "include": include,
        }},
        "processors": {
            "process": {},
            "container": {},
            "systemd": {},
            // Slower symbols arrive after their samples.
            "symbolize": {"priority": "normal", "max_cpu": 1, "timeout": "500ms"},
        },
        "exporters": {LIVE_VIEW: {
            "page": false,
            "resolution": "1s",
            "max_age": format!("{}s", keep.as_secs().max(60)),
        }},
        "service": {
            "telemetry": {
                "logs": {"level": "warn", "output_paths": [logs]},
                "metrics": {"level": "none"},
            },
            "pipelines": {"profiles": {
                "receivers": ["ebpf_cpu"],
                "processors": ["process", "container", "systemd", "symbolize"],
                "exporters": [LIVE_VIEW],
            }},
        },
    })
}

/// The shared history and how to print it.
struct Shown {
    /// Set once the graph is built.
    recent: Arc<OnceLock<Recent>>,
    top: Top,
    window: Duration,
    lost: IntCounter,
    log: RecentLog,
}

impl Shown {
    fn snapshot(&self, view: &View) -> Snapshot {
        let only = view.only();
        let only = only.map(|only| (only.label, only.value.as_str()));
        self.snapshot_at(only)
    }

    fn snapshot_at(&self, only: Option<(&str, &str)>) -> Snapshot {
        let recent = self.recent.get();
        recent.map_or_else(Snapshot::default, |it| {
            it.snapshot(self.window, only, &tables::LABELS)
        })
    }

    fn ticks(&self) -> Interval {
        let mut ticks = interval(self.top.interval);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        ticks
    }

    /// Prints tables until `iterations` is reached or the output is closed.
    async fn print(&self) -> io::Result<()> {
        tokio::time::sleep(DELAY).await;
        let mut ticks = self.ticks();
        // The first tick fires immediately, without samples yet.
        ticks.tick().await;
        let mut left = self.top.iterations;
        let mut may_wait_until = Some(Instant::now() + MAX_WAIT);
        while left != Some(0) {
            let now = ticks.tick().await;
            let snapshot = self.snapshot_at(None);
            if may_wait_until.is_some_and(|until| now < until) && tables::are_cut_off(&snapshot) {
                continue;
            }
            may_wait_until = None;
            let rows = self.top.rows.unwrap_or(ROWS);
            let text = match self.top.json {
                true => format!("{}\n", tables::as_json(&snapshot, rows)),
                false => tables::as_text(&snapshot, rows),
            };
            let written = stdout()
                .write_all(text.as_bytes())
                .and_then(|()| stdout().flush());
            match written {
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
                written => written?,
            }
            left = left.map(|left| left - 1);
        }
        Ok(())
    }

    /// Runs the full-screen view until the user quits.
    async fn show(&self) -> io::Result<()> {
        let mut screen = Screen::take()?;
        let mut keys = Keys::read()?;
        let (mut view, mut table_state) = (View::default(), TableState::default());
        let mut ticks = self.ticks();
        loop {
            let health = Health {
                lost: self.lost.get(),
                log: self.log.since(0).lines.pop(),
            };
            screen
                .terminal
                .draw(|frame| draw(frame, &view, &health, &mut table_state))?;
            tokio::select! {
                _ = ticks.tick() => {
                    if !view.is_paused {
                        view.update(self.snapshot(&view));
                    }
                }
                event = keys.events.recv() => match event {
                    Some(Event::Key(key)) if key.kind != KeyEventKind::Release => {
                        match view.key(key) {
                            Reaction::Nothing => {}
                            Reaction::Refresh => view.replace(self.snapshot(&view)),
                            Reaction::End => return Ok(()),
                        }
                    }
                    // A resize redraws.
                    Some(_) => {}
                    // The terminal is gone.
                    None => return Ok(()),
                },
            }
        }
    }
}

/// The receiver's counter of lost samples.
fn lost(meter: &Meter) -> IntCounter {
    meter.counter(
        "profcol_ebpf_cpu_lost_samples",
        "Samples lost because the ring buffer was full.",
        &[("receiver", "ebpf_cpu")],
    )
}
