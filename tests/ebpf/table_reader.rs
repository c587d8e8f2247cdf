//! Unwind tables are built in a process of its own, which fails alone.

use std::fs;
use std::process::Command;
use std::time::Duration;

use profcol_test_harness::backend::wait_until;
use profcol_test_harness::profile::{Profile, Sample};
use profcol_test_harness::toolchain::Workshop;

use crate::host::{Profiler, Running, can_profile};

const TIMEOUT: Duration = Duration::from_secs(60);
const STARTED: &str = "Started a reader process. pid=";
const FAILED: &str = "The process that reads executables for unwind tables failed";

/// The PID of the process that was started last.
fn reader(profiler: &Profiler) -> u32 {
    let mut found = None;
    wait_until("the process that builds tables", || {
        let output = profiler.output();
        let (_, after) = output.rsplit_once(STARTED).unwrap_or_default();
        found = after
            .split_whitespace()
            .next()
            .and_then(|it| it.parse().ok());
        found.is_some()
    });
    found.unwrap()
}

/// Whether its stack is whole, which takes a table.
fn is_whole(sample: &Sample, pid: u32) -> bool {
    sample.pid == pid && sample.end_reason.is_none() && sample.frames.len() >= 3
}

#[test]
fn a_process_that_builds_tables_is_restricted_and_replaced_when_it_dies() {
    if !can_profile() {
        return;
    }
    let workshop = Workshop::open();
    let Some(program) = workshop.build("busy", "cc -O2 -g busy.c") else {
        return;
    };
    let mut profiler = Profiler::start_talkative("frequency: 199");
    let mut readers = Vec::new();
    for name in ["first", "second"] {
        // A new file, without a table.
        let copy = workshop.path(name);
        fs::copy(&program, &copy).unwrap();
        let running = Running::start_nicely(&copy, &["60"]);
        let has_whole_stacks = |profile: &Profile| {
            let samples = profile.samples.iter();
            samples.filter(|it| is_whole(it, running.pid())).count() > 5
        };
        let mut is_enough = false;
        profiler.wait(TIMEOUT, |profile| {
            is_enough = has_whole_stacks(profile);
            is_enough
        });
        assert!(is_enough, "{name}: {}", profiler.output());
        let pid = reader(&profiler);
        assert!(!readers.contains(&pid), "{name}");
        readers.push(pid);
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        for expected in ["Seccomp:\t2", "NoNewPrivs:\t1", "CapEff:\t0000000000000000"] {
            assert!(status.contains(expected), "{expected} in {status}");
        }
        let output = profiler.output();
        let failures = output.matches(FAILED).count();
        assert_eq!(failures, readers.len() - 1, "{output}");
        let killed = Command::new("kill").args(["-9", &pid.to_string()]).status();
        assert!(killed.unwrap().success());
    }
}
