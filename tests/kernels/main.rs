//! profcol on other kernels, each in a virtual machine under qemu: with only its required capabilities it must show a
//! program's complete call chain, follow CPU hotplug, and report what blocks it.
//!
//! `cargo xtask kernels` gets the kernels and runs this.

#![allow(clippy::unwrap_used, reason = "a panic fails the test")]

mod aarch64;
mod guest;

use std::path::{Path, PathBuf};

use profcol_test_harness::profile::{Profile, Sample, Symbols};
use profcol_test_harness::toolchain::Workshop;

use crate::guest::{Guest, Run, X86_64};

/// Set by `cargo xtask kernels`: a directory with one directory per kernel.
const KERNELS: &str = "PROFCOL_KERNELS";

const CONFIG: &str = "\
receivers:
  ebpf_cpu: {frequency: 199, interval: 1s}
exporters:
  file: {path: /tmp/profiles.jsonl}
service:
  telemetry: {metrics: {level: none}, logs: {level: debug}}
  pipelines:
    profiles: {receivers: [ebpf_cpu], exporters: [file]}
";

const CHAIN: [&str; 5] = ["leaf", "inner", "middle", "outer", "main"];

/// Minimum share of complete stacks after the program's table is built.
const MIN_COMPLETE: f64 = 0.95;
const MIN_SAMPLES: usize = 20;

fn kernels() -> PathBuf {
    let kernels = std::env::var_os(KERNELS).map(PathBuf::from);
    kernels.expect("`cargo xtask kernels` sets PROFCOL_KERNELS")
}

#[test]
#[ignore = "cargo xtask kernels runs it"]
fn samples_on_linux_5_10() {
    check("5.10", "blocks", "red-black tree", "");
}

#[test]
#[ignore = "cargo xtask kernels runs it"]
fn samples_on_linux_6_1() {
    check("6.1", "blocks", "maple tree", "");
}

#[test]
#[ignore = "cargo xtask kernels runs it"]
fn samples_on_linux_6_12() {
    check("6.12", "arena", "maple tree", "");
}

/// Selects mappings from events instead of the kernel's VMA tree.
const BY_EVENTS: &str = "PROFCOL_EBPF_MAPPINGS=events";

#[test]
#[ignore = "cargo xtask kernels runs it"]
fn samples_by_events_on_linux_5_10() {
    check("5.10", "blocks", "events", BY_EVENTS);
}

#[test]
#[ignore = "cargo xtask kernels runs it"]
fn samples_by_events_on_linux_6_12() {
    check("6.12", "arena", "events", BY_EVENTS);
}

#[expect(clippy::print_stdout, reason = "what was measured is of interest")]
fn check(version: &str, tables: &str, mappings: &str, environment: &str) {
    let kernels = kernels();
    let workshop = Workshop::open();
    let command = "c++ -O2 -fomit-frame-pointer -static chain.cc";
    let chain = workshop.build("chain", command).unwrap();

    let script = include_str!("init");
    let guest = Guest::new(X86_64, Path::new("/bin/busybox"), script, CONFIG);
    for (program, name) in [
        (Path::new(env!("CARGO_BIN_EXE_profcol")), "profcol"),
        (Path::new("/usr/bin/setpriv"), "setpriv"),
        (&chain, "chain"),
        (&chain, "late"),
    ] {
        guest.add_program(program, name);
        guest.add_libraries(program);
    }
    let ran = guest.boot(&kernels.join(version).join("vmlinuz"), environment);

    check_run(&ran, version, tables);
    let output = ran.reported("output");
    assert!(output.contains(&format!("mappings={mappings}")), "{output}");
    assert!(!output.contains("is missing"), "{output}");
    let mut profile = Profile::default();
    profile.read_on(&ran.profiles);
    for program in ["/bin/chain", "/bin/late"] {
        let found = ChainSamples::of(&profile, program, &chain);
        println!("{version} {program}: {found:?}");
        assert!(
            found.complete >= MIN_SAMPLES,
            "{program}: {found:?}; {output}"
        );
        let share = found.complete as f64 / (found.complete + found.cut) as f64;
        assert!(share >= MIN_COMPLETE, "{program}: {found:?}; {output}");
    }
    check_messages(&ran);
    if version == "5.10" {
        let output = ran.reported("memory");
        assert!(output.contains("they count as locked memory"), "{output}");
    }
}

/// Checks that it ran on this kernel to the end.
fn check_run(ran: &Run, version: &str, tables: &str) {
    assert!(ran.reported("kernel").starts_with(&format!("{version}.")));
    let output = ran.reported("output");
    assert_eq!(ran.reported("ended"), "0", "{output}");
    assert!(output.contains(&format!("tables=\"{tables}\"")), "{output}");
}

fn check_messages(ran: &Run) {
    for (obstacle, expected) in [
        ("paranoid", "`kernel.perf_event_paranoid` is 3; set it to 2"),
        (
            "capabilities",
            "profiling requires CAP_PERFMON, which this process does not have",
        ),
        ("lockdown", "the kernel is locked down for confidentiality"),
    ] {
        let output = ran.reported(obstacle);
        assert!(output.contains(expected), "{obstacle}: {output}");
    }
}

/// The samples in the innermost function of the chain.
#[derive(Debug, Default)]
struct ChainSamples {
    complete: usize,
    cut: usize,
    /// Samples before the program's table or mappings were ready.
    pending: usize,
}

impl ChainSamples {
    fn of(profile: &Profile, program: &str, file: &Path) -> Self {
        let mut symbols = Symbols::read(file);
        let mut found = Self::default();
        for sample in profile
            .samples
            .iter()
            .filter(|sample| sample.executable == program)
        {
            let names = names(sample, program, file, &mut symbols);
            if names.first().map(String::as_str) != CHAIN.first().copied() {
                continue;
            }
            let is_complete = names.len() > CHAIN.len()
                && names
                    .iter()
                    .zip(CHAIN)
                    .all(|(name, expected)| name == expected);
            match sample.end_reason.as_deref() {
                None if is_complete => found.complete += sample.count,
                Some("table_pending" | "mappings_pending") => found.pending += sample.count,
                _ => found.cut += sample.count,
            }
        }
        found
    }
}

/// The names of the user frames; the program had another path in the guest.
fn names(sample: &Sample, program: &str, file: &Path, symbols: &mut Symbols) -> Vec<String> {
    sample
        .frames
        .iter()
        .filter(|frame| frame.kind != "kernel")
        .map(|frame| {
            let mut frame = frame.clone();
            if frame.file == program {
                frame.file = file.to_str().unwrap().to_owned();
            }
            symbols.name(&frame).unwrap_or_default()
        })
        .collect()
}
