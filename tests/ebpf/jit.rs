//! Generated code is named by perf maps and jitdumps.

use std::path::Path;
use std::time::Duration;

use profcol_test_harness::profile::{Frame, Profile};
use profcol_test_harness::toolchain::Workshop;

use crate::host::{Profiler, Running, can_profile};

const MIN_SAMPLES: usize = 300;
const TIMEOUT: Duration = Duration::from_secs(30);

/// Profiles the program in a mount namespace with its own `/tmp`, like in containers, and checks the names of its
/// generated code.
fn check(unshare: &[&str], argument: &str) {
    if !can_profile() {
        return;
    }
    let workshop = Workshop::open();
    let Some(program) = workshop.build("generated", "c++ -O2 jit.cc") else {
        return;
    };
    let program = program.to_str().unwrap();
    // The program itself is below the hidden directory.
    let command =
        format!("exec 3<{program} && mount -t tmpfs none /tmp && exec /proc/self/fd/3 {argument}");
    let mut arguments = vec!["--mount"];
    arguments.extend(unshare);
    arguments.extend(["sh", "-c", &command]);
    let arguments: Vec<String> = arguments.into_iter().map(str::to_owned).collect();
    let running = Running::start(Path::new("unshare"), &arguments);
    let of_program = |profile: &Profile| {
        let samples = profile.samples.iter();
        let samples = samples.filter(|sample| sample.executable == program);
        samples.map(|sample| sample.count).sum::<usize>()
    };
    let profile = Profiler::start(499).until(TIMEOUT, |profile| of_program(profile) >= MIN_SAMPLES);
    drop(running);

    let (mut named, mut all) = (0, 0);
    for sample in &profile.samples {
        let mut generated = sample
            .frames
            .iter()
            .skip_while(|frame| frame.kind == "kernel")
            .take_while(|frame| ["[jit]", "[anon]"].contains(&frame.file.as_str()));
        let name = |frame: Option<&Frame>| frame?.function.clone();
        let innermost = generated.next();
        let source = match argument {
            "dump" => ("made.up".to_owned(), 42),
            _ => (String::new(), 0),
        };
        if sample.executable != program || innermost.is_none() {
            continue;
        }
        all += sample.count;
        let names = (name(innermost), name(generated.next()));
        let is_loop = names.0.as_deref() == Some("generated_loop")
            && names.1.as_deref() == Some("generated_caller");
        let is_caller = names.0.as_deref() == Some("generated_caller");
        assert!(is_loop || is_caller, "{names:?} in {sample:?}");
        assert_eq!(innermost.map(|frame| &frame.source), Some(&source));
        named += usize::from(is_loop) * sample.count;
    }
    assert!(all >= 20, "only {all} samples in generated code");
    assert!(named * 100 >= all * 95, "{named} of {all} are in the loop");
}

#[test]
fn perf_maps_name_generated_code() {
    check(&[], "map");
}

#[test]
fn perf_maps_are_found_by_the_pid_in_their_own_namespace() {
    check(&["--pid", "--fork", "--kill-child", "--mount-proc"], "map");
}

#[test]
fn code_in_a_memory_backed_file_is_generated_code() {
    for kind in ["memfd", "shared", "posix", "sysv"] {
        check(&[], kind);
    }
}

#[test]
fn jitdumps_name_generated_code() {
    check(&[], "dump");
}

/// Node.js writes a perf map, and profcol also knows its functions.
#[test]
fn names_of_perf_maps_win_if_preferred() {
    const SCRIPT: &str =
        "function burn() { let sum = 0; for (let i = 0; i < 1e6; i++) sum += i % 7; return sum; }
        function caller() { return burn() + 1; }
        const end = Date.now() + 60000; let sum = 0; while (Date.now() < end) sum += caller();";
    if !can_profile() {
        return;
    }
    // Some versions also write a log into the current directory.
    let options = [
        "--perf-basic-prof",
        "--no-logfile-per-isolate",
        "--logfile=/dev/null",
    ];
    let running = Running::start(Path::new("node"), &[&options[..], &["-e", SCRIPT]].concat());
    let pid = running.pid();
    for (option, prefix, kind) in [("true", "JS:", "native"), ("false", "", "v8js")] {
        let options = format!("frequency: 199, prefer_perf_map: {option}");
        let is_it = |frame: &Frame| {
            let name = frame.function.as_deref().unwrap_or_default();
            let name = name
                .strip_prefix(prefix)
                .map(|it| it.trim_start_matches(['*', '^', '~', '+']));
            frame.kind == kind && name.is_some_and(|it| it.split(' ').next() == Some("burn"))
        };
        let named = |profile: &Profile| {
            let samples = profile.samples.iter().filter(|sample| sample.pid == pid);
            let samples = samples.filter(|sample| sample.frames.iter().any(is_it));
            samples.map(|sample| sample.count).sum::<usize>()
        };
        let profile = Profiler::start_with(&options).until(TIMEOUT, |it| named(it) >= MIN_SAMPLES);
        assert!(named(&profile) >= MIN_SAMPLES, "{}", named(&profile));
        // Once, not by both names.
        let doubled = profile
            .samples
            .iter()
            .filter(|sample| sample.pid == pid)
            .any(|sample| {
                let names = sample
                    .frames
                    .iter()
                    .filter_map(|frame| frame.function.as_deref());
                names.filter(|name| name.contains("burn")).count() > 1
            });
        assert!(!doubled, "prefer_perf_map: {option}");
    }
    let map = format!("/tmp/perf-{pid}.map");
    drop(running);
    std::fs::remove_file(map).unwrap();
}
