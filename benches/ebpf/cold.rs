//! The time until a program that was never profiled before has complete stacks.

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};

use crate::agent::Agent;
use crate::recording::{self, Recorded};

const FREQUENCY: u64 = 99;
const PROGRAMS: usize = 5;
const RUN: Duration = Duration::from_secs(2);
/// Longer than the receiver's interval, so that all profiles are written.
const WRITE: Duration = Duration::from_secs(6);

/// The samples of a process, and the Unix time of its first complete stack in nanoseconds.
#[derive(Clone, Copy, Default)]
struct Seen {
    samples: usize,
    whole: usize,
    first_whole: Option<u64>,
}

/// Runs fresh copies of `program` one after another.
pub fn run(profcol: &Path, program: &Path) -> Result<String> {
    let directory = tempfile::tempdir().context("failed to make a temporary directory")?;
    let written = directory.path().join("profiles.jsonl");
    let exporter = format!("file: {{path: {}}}", written.display());
    let agent = Agent::start(profcol, FREQUENCY, &exporter)?;
    let mut started = HashMap::new();
    for number in 0..PROGRAMS {
        let copy = directory.path().join(format!("program-{number}"));
        fs::copy(program, &copy).context("failed to copy a program")?;
        let at = SystemTime::now().duration_since(UNIX_EPOCH)?.as_nanos() as u64;
        let mut child = Command::new(&copy)
            .arg(RUN.as_secs().to_string())
            .stdin(Stdio::null())
            .spawn()
            .context("failed to start a copy")?;
        started.insert(child.id(), at);
        child.wait()?;
    }
    thread::sleep(WRITE);
    drop(agent);
    let mut seen: HashMap<u32, Seen> = HashMap::new();
    for recorded in recording::read(&written)? {
        seen.entry(recorded.pid).or_default().add(&recorded);
    }
    let mut waits = Vec::new();
    let (mut samples, mut whole) = (0, 0);
    for (pid, at) in started {
        let of_process: Seen = seen.get(&pid).copied().unwrap_or_default();
        samples += of_process.samples;
        whole += of_process.whole;
        waits.push(
            of_process
                .first_whole
                .map(|first| first.saturating_sub(at) / 1_000_000),
        );
    }
    waits.sort_unstable();
    let waits: Vec<String> = waits
        .into_iter()
        .map(|wait| wait.map_or("never".to_owned(), |wait| wait.to_string()))
        .collect();
    Ok(format!(
        "Time from exec to the first whole stack of a fresh program at {FREQUENCY} Hz, in ms: {}; \
         {whole} of their {samples} samples are whole.",
        waits.join(", "),
    ))
}

impl Seen {
    fn add(&mut self, recorded: &Recorded) {
        self.samples += recorded.times.len();
        if recorded.end.is_some() {
            return;
        }
        self.whole += recorded.times.len();
        let first = recorded.times.iter().copied().min();
        self.first_whole = match (self.first_whole, first) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
    }
}
