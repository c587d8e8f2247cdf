//! Only selected processes are profiled.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use profcol_test_harness::backend::wait_until;
use profcol_test_harness::procfs::running_time;
use profcol_test_harness::profile::{Profile, Sample};
use profcol_test_harness::toolchain::Workshop;

use crate::host::{Profiler, Running, can_profile, config};

const TIMEOUT: Duration = Duration::from_secs(30);
/// Minimum number of stacks at different times.
const MIN_SAMPLES: usize = 10;
/// CPU time in which a program is sampled dozens of times.
const WORK: Duration = Duration::from_millis(300);
/// About half of these programs should be selected.
const DRAWN: usize = 24;

/// Two equal programs.
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
    let mut profiler = Profiler::start_talkative(&format!("frequency: 199, {rules}"));
    profiler.wait(TIMEOUT, |profile| {
        let samples = of(profile, &programs.wanted).into_iter();
        samples.filter(|it| !it.is_before_table()).count() >= MIN_SAMPLES
    });
    let output = profiler.output();
    let built = |path: &Path| {
        let path = format!("path={path:?} ");
        let mut lines = output.lines();
        lines.any(|line| line.contains("built an unwind table") && line.contains(&path))
    };
    assert!(built(&programs.wanted), "{rules}: {output}");
    assert!(!built(&programs.other), "{rules}: {output}");
    let profile = profiler.stop();
    assert!(
        of(&profile, &programs.wanted).len() >= MIN_SAMPLES,
        "{rules}"
    );
    assert_eq!(of(&profile, &programs.other).len(), 0, "{rules}");
}

#[test]
fn only_included_processes_are_exported() {
    check("include: [{executable: WANTED}]");
    check("include: [{pid: WPID, uid: 0}, {comm: nobody}]");
}

#[test]
fn excluded_processes_are_not_exported() {
    check("exclude: [{comm: 'regex:^oth'}]");
    check("exclude: [{pid: OPID}, {executable: 'OTHER*', uid: 12345}]");
}

/// The kernel reports the path: /proc has none when profcol gets to read it.
#[test]
fn a_process_that_has_exited_is_selected_by_its_executable() {
    if !can_profile() {
        return;
    }
    let Some(programs) = Programs::build() else {
        return;
    };
    let rule = format!("include: [{{executable: {}}}]", programs.wanted.display());
    let profiler = Profiler::start_with(&format!("frequency: 199, {rule}"));
    profiler.signal("STOP");
    for program in [&programs.other, &programs.wanted] {
        let mut running = run(program);
        wait_until("it to be sampled", || {
            running_time(running.pid()).unwrap() >= WORK
        });
        running.stop();
    }
    profiler.signal("CONT");
    let profile = profiler.until(TIMEOUT, |profile| !of(profile, &programs.wanted).is_empty());
    assert!(!of(&profile, &programs.wanted).is_empty());
    assert_eq!(of(&profile, &programs.other).len(), 0);
}

#[test]
fn a_dropped_process_is_not_sampled_until_its_next_exec() {
    if !can_profile() {
        return;
    }
    let Some(programs) = Programs::build() else {
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    let go = directory.path().join("go");
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

/// Each is either exported or no longer sampled, in about the configured proportion.
#[test]
fn processes_dropped_by_sampling_are_no_longer_sampled() {
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
        lost = dropped_processes(&profiler.output())
            .intersection(&all)
            .copied()
            .collect();
    }
    assert_eq!(&passed | &lost, all);
    assert_eq!(&passed & &lost, BTreeSet::new());
    // One run in three hundred thousand is outside this range.
    assert!((2..=DRAWN - 2).contains(&lost.len()), "{lost:?}");
}

/// The processes that it no longer samples, according to its log.
fn dropped_processes(output: &str) -> BTreeSet<u32> {
    let lines = output.lines();
    let pids = lines.filter_map(|line| line.split_once("all pipelines drop its samples. pid="));
    pids.filter_map(|(_, pid)| pid.trim().parse().ok())
        .collect()
}

#[test]
fn a_sidecar_sees_only_its_own_namespace() {
    if !can_profile() {
        return;
    }
    let Some(programs) = Programs::build() else {
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("profiles.jsonl");
    let written = directory.path().join("config.yaml");
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
    let output = String::from_utf8_lossy(&ended.stderr);
    assert!(!samples.is_empty(), "{output}");
    assert!(samples.iter().all(|sample| sample.pid == 2), "{samples:?}");
    let strangers: Vec<_> = profile
        .samples
        .iter()
        .filter(|sample| sample.pid == 0 || sample.pid > 100)
        .collect();
    assert!(strangers.is_empty(), "{strangers:?}");
    assert_eq!(of(&profile, &programs.other).len(), 0);
}
