//! Java methods appear in exact call chains.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use profcol_test_harness::backend::wait_until;
use profcol_test_harness::calls::clock::Clock;
use profcol_test_harness::installation::Installation;
use profcol_test_harness::profile::Sample;
use profcol_test_harness::support::skip;
use profcol_test_harness::toolchain::Workshop;

use crate::calls::{Calls, chain_of, count, name, names_of};
use crate::host::{Profiler, Running, can_profile};

/// Enough to sample each chain often.
const MIN_SAMPLES: usize = 700;
/// Far longer than an idle machine needs.
const TIMEOUT: Duration = Duration::from_secs(180);

const KIND: &str = "jvm";
const PROGRAM: &str = "Calls.java";

/// The chains of `Calls.java`, innermost first, without lambda numbers.
const CHAINS: &[&[&str]] = &[
    &["burn", "inner", "middle", "by_call"],
    &["burn", "lambda$by_lambda$", "by_lambda"],
    &["burn", "lambda$by_sort$", "by_sort"],
    &["burn", "inner", "by_reflection"],
    &["burn", "area", "outline", "by_interface"],
    &["burn", "<init>", "by_constructor"],
    &["burn", "lambda$by_stream$", "by_stream"],
    &["burn", "by_exception"],
    &["burn", "counted", "generic", "by_generics"],
    &["burn", "by_synchronized"],
    &["burn", "by_größe"],
];

pub fn calls() -> Calls {
    Calls {
        kind: KIND,
        program: PROGRAM,
        ways: CHAINS.len() + 1,
        chain: Box::new(|way| chain_of(way, CHAINS, &["main"])),
        is_of_program: |frame| {
            let name = name(frame);
            frame.source.0 == PROGRAM && !name.contains("$$Lambda")
        },
        is_elsewhere: |_| false,
        // Not the runtime's own threads.
        ends: &[],
        flawed: &[],
        lacking: 0,
        is_scheduled: false,
        is_of_thread: |sample| sample.thread_name == "java",
        name: |name| {
            let method = name.rsplit('.').next().unwrap_or(name);
            if method.starts_with("lambda$") {
                method.trim_end_matches(|c: char| c.is_ascii_digit())
            } else {
                method
            }
        },
    }
}

/// The JVMs of this machine.
pub fn javas() -> Vec<Installation> {
    let mut found = Vec::new();
    let installed = fs::read_dir("/usr/lib/jvm");
    for directory in installed.into_iter().flatten().flatten() {
        let path = directory.path().join("bin/java");
        if path.exists() && !directory.path().is_symlink() {
            found.push(path);
        }
    }
    found.sort();
    found
        .into_iter()
        .map(Installation::of_this_machine)
        .collect()
}

/// Compiles the program for all of them; None without a compiler.
pub fn classes(workshop: &Workshop) -> Option<PathBuf> {
    let directory = workshop.path("classes");
    let done = Command::new("javac")
        .args(["--release", "8", "-encoding", "UTF-8", "-d"])
        .arg(&directory)
        .arg(calls().path())
        .status();
    if !done.is_ok_and(|status| status.success()) {
        skip("no javac: install default-jdk-headless");
        return None;
    }
    Some(directory)
}

fn names(sample: &Sample) -> Vec<&str> {
    names_of(KIND, sample)
}

pub fn check(java: &Installation, options: &[&str], classes: &Path) {
    let calls = calls();
    let clock = Clock::new();
    let program = ["-cp", classes.to_str().unwrap(), "Calls", "200"];
    let arguments = [options, &program].concat();
    let running = Running::start_installed(&clock, java, &arguments);
    let pid = running.pid();
    wait_until(&format!("{java} to start"), || clock.has_begun());
    let profile = Profiler::start(199).until(TIMEOUT, |profile| {
        count(profile, |sample| {
            sample.pid == pid && names(sample).contains(&"Calls.main")
        }) >= MIN_SAMPLES
    });
    drop(running);
    let what = format!("{java} {}", options.join(" "));
    calls.check(&profile, pid, &clock, &what);
    let codes = calls.codes(&profile, pid);
    match options.contains(&"-Xint") {
        true => assert_eq!(codes, BTreeSet::from(["interpreted"]), "{what}"),
        false => assert!(codes.contains("jit"), "{what}: {codes:?}"),
    }
}

#[test]
fn every_version_shows_exact_chains() {
    if !can_profile() {
        return;
    }
    let workshop = Workshop::open();
    let Some(classes) = classes(&workshop) else {
        return;
    };
    let javas = javas();
    assert!(!javas.is_empty(), "javac without java");
    for java in javas {
        check(&java, &[], &classes);
    }
}

/// Options that select kinds of code, and move it.
#[test]
fn every_kind_of_code_shows_exact_chains() {
    if !can_profile() {
        return;
    }
    let workshop = Workshop::open();
    let Some(classes) = classes(&workshop) else {
        return;
    };
    let javas = javas();
    let java = javas.first().expect("javac without java");
    for options in [
        &["-Xint"][..],
        &["-XX:TieredStopAtLevel=1"],
        &["-XX:-TieredCompilation"],
        &["-XX:+UseZGC"],
        &["-XX:-SegmentedCodeCache"],
    ] {
        check(java, options, &classes);
    }
}
