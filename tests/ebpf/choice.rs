//! Only the processes that somebody wants are profiled.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::host::{Profiler, Running, can_profile, config};
use crate::profile::{Profile, Sample};
use crate::toolchain::Workshop;

const TIMEOUT: Duration = Duration::from_secs(30);
/// Stacks at different times.
const MIN_SAMPLES: usize = 10;
/// Programs of which about a half is to pass.
const DRAWN: usize = 24;

/// Two programs that do the same, and the same for both.
struct Programs {
    _workshop: Workshop,
    wanted: PathBuf,
    other: PathBuf,
}

impl Programs {
    fn build() -> Option<Self> {
        let workshop = Workshop::open();
        let wanted = workshop.build("wanted", "cc -O2 plain.c")?;
        let other = workshop.path("other");
        fs::copy(&wanted, &other).unwrap();
        Some(Self {
            _workshop: workshop,
            wanted,
            other,
        })
    }
}

fn run(program: &Path) -> Running {
    Running::start(program, &["60".to_owned()])
}

fn of<'a>(profile: &'a Profile, program: &Path) -> Vec<&'a Sample> {
    let samples = profile.samples.iter();
    samples
        .filter(|sample| Path::new(&sample.executable) == program)
        .collect()
}

/// Profiles both programs with the rules, in which WANTED and OTHER stand for their paths, WPID and OPID for their
/// numbers.
fn check(rules: &str) {
    if !can_profile() {
        return;
    }
    let Some(programs) = Programs::build() else {
        return;
    };
    let (wanted, other) = (run(&programs.wanted), run(&programs.other));
    let rules = rules
        .replace("WANTED", programs.wanted.to_str().unwrap())
        .replace("OTHER", programs.other.to_str().unwrap())
        .replace("WPID", &wanted.pid().to_string())
        .replace("OPID", &other.pid().to_string());
    let profiler = Profiler::start_with(&format!("frequency: 199, {rules}"));
    let profile = profiler.until(TIMEOUT, |profile| {
        of(profile, &programs.wanted).len() >= MIN_SAMPLES
    });
    assert!(
        of(&profile, &programs.wanted).len() >= MIN_SAMPLES,
        "{rules}"
    );
    assert_eq!(of(&profile, &programs.other).len(), 0, "{rules}");
}

#[test]
fn what_is_not_included_does_not_leave() {
    check("include: [{executable: WANTED}]");
    check("include: [{pid: WPID, uid: 0}, {comm: nobody}]");
}

#[test]
fn what_is_excluded_does_not_leave() {
    check("exclude: [{comm: 'regex:^oth'}]");
    check("exclude: [{pid: OPID}, {executable: 'OTHER*', uid: 12345}]");
}

#[test]
fn what_a_processor_drops_is_no_longer_sampled_until_it_is_something_else() {
    if !can_profile() {
        return;
    }
    let Some(programs) = Programs::build() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let go = folder.path().join("go");
    let script = format!(
        "while [ ! -e {} ]; do :; done; exec {} 60",
        go.display(),
        programs.wanted.display()
    );
    let changing = Running::start(Path::new("sh"), &["-c", &script]);
    let _other = run(&programs.other);
    let mut profiler = Profiler::start_with_processor(
        "frequency: 199",
        "filter: {exclude: [{resource_attributes: [{key: process.executable.name, regex: '^(other|(ba|da|)sh)$'}]}]}",
    );
    profiler.wait_until_it_says(&format!(
        "all pipelines drop its samples. pid={}",
        changing.pid()
    ));
    fs::write(&go, "").unwrap();
    let profile = profiler.until(TIMEOUT, |profile| {
        of(profile, &programs.wanted).len() >= MIN_SAMPLES
    });
    let samples = of(&profile, &programs.wanted);
    assert!(samples.len() >= MIN_SAMPLES);
    assert!(samples.iter().all(|sample| sample.pid == changing.pid()));
    assert_eq!(of(&profile, &programs.other).len(), 0);
}

/// Each is either passed on or no longer sampled, and about as many as were to be.
#[test]
fn what_loses_the_draw_is_no_longer_sampled() {
    if !can_profile() {
        return;
    }
    let Some(programs) = Programs::build() else {
        return;
    };
    let start = |_| Running::start_nicely(&programs.wanted, &["60"]);
    let running: Vec<Running> = (0..DRAWN).map(start).collect();
    let all: BTreeSet<u32> = running.iter().map(Running::pid).collect();
    let mut profiler = Profiler::start_with_processor(
        "frequency: 199",
        "probabilistic_sampler: {sampling_percentage: 50, interval: 0s}",
    );
    let (mut passed, mut lost) = (BTreeSet::new(), BTreeSet::new());
    let give_up = Instant::now() + TIMEOUT;
    while Instant::now() < give_up && passed.len() + lost.len() < DRAWN {
        profiler.wait(Duration::from_secs(1), |profile| {
            let samples = of(profile, &programs.wanted);
            passed = samples.iter().map(|sample| sample.pid).collect();
            false
        });
        lost = unwanted(&profiler.output())
            .intersection(&all)
            .copied()
            .collect();
    }
    assert_eq!(&passed | &lost, all);
    assert_eq!(&passed & &lost, BTreeSet::new());
    // One draw in three hundred thousand is beyond that.
    assert!((2..=DRAWN - 2).contains(&lost.len()), "{lost:?}");
}

/// The processes that it no longer samples, as it says.
fn unwanted(said: &str) -> BTreeSet<u32> {
    let lines = said.lines();
    let pids = lines.filter_map(|line| line.split_once("all pipelines drop its samples. pid="));
    pids.filter_map(|(_, pid)| pid.trim().parse().ok())
        .collect()
}

#[test]
fn a_sidecar_sees_its_own_namespace_alone() {
    if !can_profile() {
        return;
    }
    let Some(programs) = Programs::build() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("profiles.jsonl");
    let written = folder.path().join("config.yaml");
    fs::write(&written, config("frequency: 199, mode: sidecar", &file)).unwrap();
    let _other = run(&programs.other);
    // The shell is the first process of the namespace, the program its second.
    let command = format!(
        "{} 60 & timeout --signal=TERM 8 {} --config {}; kill $!",
        programs.wanted.display(),
        env!("CARGO_BIN_EXE_profcol"),
        written.display()
    );
    let mut unshare = Command::new("unshare");
    unshare.args(["--pid", "--fork", "--kill-child", "--mount-proc"]);
    let ended = unshare.args(["sh", "-c", &command]).output().unwrap();
    let mut profile = Profile::default();
    profile.read_on(&file);
    let samples = of(&profile, &programs.wanted);
    let said = String::from_utf8_lossy(&ended.stderr);
    assert!(!samples.is_empty(), "{said}");
    assert!(samples.iter().all(|sample| sample.pid == 2), "{samples:?}");
    let strangers: Vec<_> = profile
        .samples
        .iter()
        .filter(|sample| sample.pid == 0 || sample.pid > 100)
        .collect();
    assert!(strangers.is_empty(), "{strangers:?}");
    assert_eq!(of(&profile, &programs.other).len(), 0);
}
