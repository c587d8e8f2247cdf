//! How long a program that was never seen before runs until its stacks are whole.

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use profcol_profile::{Model, json};

use crate::agent::Agent;

const FREQUENCY: u64 = 99;
const PROGRAMS: usize = 5;
const RUN: Duration = Duration::from_secs(2);
/// Longer than the receiver's interval, so that everything is written.
const WRITE: Duration = Duration::from_secs(6);

/// When a process's stacks were first seen, in nanoseconds of the world's time.
#[derive(Clone, Copy, Default)]
struct Seen {
    samples: usize,
    whole: usize,
    first_whole: Option<u64>,
}

/// Runs fresh copies of `program`, one after the other.
pub fn run(profcol: &Path, program: &Path) -> Result<String> {
    let folder = tempfile::tempdir().context("failed to make a temporary folder")?;
    let written = folder.path().join("profiles.jsonl");
    let exporter = format!("file: {{path: {}}}", written.display());
    let agent = Agent::start(profcol, FREQUENCY, &exporter)?;
    let mut started = HashMap::new();
    for number in 0..PROGRAMS {
        let copy = folder.path().join(format!("program-{number}"));
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
    let mut seen = HashMap::new();
    for line in fs::read(&written)?.split(|&byte| byte == b'\n') {
        // The last line may be torn.
        if let Ok(model) = json::decode(line) {
            read(&model, &mut seen);
        }
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
        "From exec to the first whole stack of a fresh program, ms at {FREQUENCY} Hz: {}; \
         {whole} of their {samples} samples are whole.",
        waits.join(", "),
    ))
}

fn read(model: &Model, seen: &mut HashMap<u32, Seen>) {
    let dictionary = &*model.dictionary;
    for resource in &model.resources {
        let attributes = resource
            .resource
            .iter()
            .flat_map(|resource| &resource.attributes);
        let mut pids = attributes.filter(|attribute| &*attribute.key == "process.pid");
        let pid = pids.next().and_then(|attribute| attribute.value.as_int());
        let Some(pid) = pid.and_then(|pid| u32::try_from(pid).ok()) else {
            continue;
        };
        let of_process = seen.entry(pid).or_default();
        for profile in resource.scopes.iter().flat_map(|scope| &scope.profiles) {
            for sample in profile.samples.iter() {
                of_process.samples += sample.timestamps.len();
                let is_broken = sample.attributes.iter().any(|&index| {
                    dictionary.attributes.get(index).is_some_and(|attribute| {
                        dictionary.strings.get(attribute.key) == "profcol.stack.end_reason"
                    })
                });
                if is_broken {
                    continue;
                }
                of_process.whole += sample.timestamps.len();
                let first = sample.timestamps.iter().copied().min();
                of_process.first_whole = match (of_process.first_whole, first) {
                    (Some(a), Some(b)) => Some(a.min(b)),
                    (a, b) => a.or(b),
                };
            }
        }
    }
}
