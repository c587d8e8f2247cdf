//! Generated code has the names that its runtime wrote down.

use std::path::Path;
use std::time::Duration;

use crate::host::{Profiler, Running, can_profile};
use crate::profile::Profile;
use crate::toolchain::Workshop;

const MIN_SAMPLES: usize = 300;
const TIMEOUT: Duration = Duration::from_secs(30);

/// Profiles the program in a mount namespace with a `/tmp` of its own, as containers have it, and holds its
/// generated code to its names.
fn check(unshare: &[&str], argument: &str) {
    if !can_profile() {
        return;
    }
    let workshop = Workshop::open();
    let Some(program) = workshop.build("generated", "c++ -O2 jit.cc") else {
        return;
    };
    let program = program.to_str().unwrap();
    // It is itself below what the mount hides.
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
    let profile = Profiler::start(99).until(TIMEOUT, |profile| of_program(profile) >= MIN_SAMPLES);
    drop(running);

    let (mut named, mut all) = (0, 0);
    for sample in &profile.samples {
        let mut generated = sample
            .frames
            .iter()
            .skip_while(|frame| frame.kind == "kernel")
            .take_while(|frame| ["[jit]", "[anon]"].contains(&frame.file.as_str()));
        let name = |frame: Option<&crate::profile::Frame>| frame?.function.clone();
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
fn code_in_memory_that_is_a_file_is_generated_code() {
    for kind in ["memfd", "shared", "posix", "sysv"] {
        check(&[], kind);
    }
}

#[test]
fn jitdumps_name_generated_code() {
    check(&[], "dump");
}
