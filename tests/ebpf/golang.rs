//! Labels and IDs of goroutines are those of the sampled code, on whatever stack the thread runs.

#![expect(clippy::print_stdout, reason = "the figures are of interest")]

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use profcol_profile::Link;
use profcol_test_harness::profile::{Profile, Sample, Symbols};
use profcol_test_harness::programs::program;
use profcol_test_harness::support::skip;
use profcol_test_harness::toolchain::Workshop;

use crate::calls::samples_with_table;
use crate::chains::{self, Live};
use crate::host::{Profiler, Running, can_profile};

const TIMEOUT: Duration = Duration::from_secs(60);
const MIN_SAMPLES: usize = 700;

/// Functions with their labels. Those without any stand for unlabelled goroutines.
const LABELS: &[(&str, &[(&str, &str)])] = &[
    (
        "main.checkout",
        &[
            ("endpoint", "/checkout"),
            ("span_id", "b7ad6b7169203331"),
            ("tenant", "acme"),
            ("trace_id", "0af7651916cd43dd8448eb211c80319c"),
        ],
    ),
    ("main.plain", &[]),
    ("main.grow", &[("work", "grow")]),
    ("main.deepen", &[("work", "grow")]),
    ("main.collect", &[("work", "collect")]),
    ("main.yield", &[("work", "yield")]),
    ("main.interrupted", &[("work", "interrupted")]),
];
/// The one with too many labels.
const MANY: &str = "main.search";

/// The installed version, and those that its module cache has.
const TOOLCHAINS: [&str; 7] = [
    "local",
    "go1.21.13",
    "go1.22.12",
    "go1.23.12",
    "go1.24.9",
    "go1.25.3",
    "go1.27.0",
];

/// Go's stack, the thread's, on which C runs, and both again.
const NESTED: &str = "main.leaf main.innermost .. crosscall2 innermost c_nested .. runtime.asmcgocall.abi0 runtime.cgocall main._Cfunc_c_nested.abi0 main.again .. crosscall2 again c_outer .. runtime.asmcgocall.abi0 runtime.cgocall main._Cfunc_c_outer.abi0 main.outer main.main runtime.main runtime.goexit.abi0";
/// On a thread that C created.
const FOREIGN: &str = "main.leaf main.onThread .. crosscall2 onThread thread_inner thread ? ?";

fn has_toolchain(name: &str) -> bool {
    let mut version = Command::new("go");
    version.arg("version");
    version.envs([("GOTOOLCHAIN", name), ("GOPROXY", "off")]);
    version.output().is_ok_and(|output| output.status.success())
}

fn labels_of(function: &str) -> Option<BTreeMap<String, String>> {
    let (_, labels) = LABELS.iter().find(|(known, _)| *known == function)?;
    let labels = labels.iter();
    let labels = labels.map(|&(key, value)| (key.to_owned(), value.to_owned()));
    Some(labels.collect())
}

/// The function of the program that identifies the goroutine.
fn function(symbols: &mut Symbols, sample: &Sample) -> Option<String> {
    let names = sample.frames.iter().filter_map(|frame| symbols.name(frame));
    let mut names = names.filter(|name| name == MANY || labels_of(name).is_some());
    names.next_back()
}

fn check(profile: &Profile, pid: u32, program: &Path, what: &str) {
    let mut symbols = Symbols::read(program);
    let mut goroutines: BTreeMap<String, Vec<i64>> = BTreeMap::new();
    let (mut right, mut wrong, mut early, mut whole, mut all) = (0, 0, 0, 0, 0);
    let mut examples: BTreeMap<String, usize> = BTreeMap::new();
    for sample in &profile.samples {
        if sample.pid != pid || sample.is_before_table() {
            continue;
        }
        all += sample.count;
        if sample.end_reason.is_none() {
            whole += sample.count;
        } else {
            let names: Vec<String> = sample
                .frames
                .iter()
                .rev()
                .take(4)
                .map(|frame| symbols.name(frame).unwrap_or_default())
                .collect();
            *examples
                .entry(format!("{:?}: {names:?}", sample.end_reason))
                .or_default() += sample.count;
        }
        let Some(function) = function(&mut symbols, sample) else {
            continue;
        };
        let is_right = match labels_of(&function) {
            Some(expected) => sample.labels == expected,
            None => is_truncated(&sample.labels),
        };
        if sample.goroutine.is_none() && sample.labels.is_empty() {
            early += sample.count;
            continue;
        }
        let has_goroutine = sample.goroutine.is_some_and(|id| id > 0);
        if is_right && has_goroutine {
            right += sample.count;
            goroutines
                .entry(function)
                .or_default()
                .extend(sample.goroutine);
        } else {
            wrong += sample.count;
            *examples
                .entry(format!(
                    "{function}: {:?} {:?}",
                    sample.goroutine, sample.labels
                ))
                .or_default() += sample.count;
        }
    }
    println!("{what}: {right} right, {wrong} wrong, {early} early, {whole} of {all} whole");
    assert!(right > 0 && wrong * 100 <= right, "{what}: {examples:#?}");
    // The programs learn within a second where the labels are.
    assert!(early * 2 <= right, "{what}: {early} without a goroutine");
    assert!(whole * 1000 >= all * 990, "{what}: {examples:#?}");
    for (function, ids) in &mut goroutines {
        ids.sort_unstable();
        ids.dedup();
        let is_one = ids.len() == 1 || ["main.deepen", "main.grow"].contains(&function.as_str());
        assert!(is_one, "{what}: {function} is of goroutines {ids:?}");
    }
    assert!(goroutines.len() > 3, "{what}: only {:?}", goroutines.keys());
}

/// Ten of twelve labels fit, and their values up to 128 bytes.
fn is_truncated(labels: &BTreeMap<String, String>) -> bool {
    !labels.is_empty()
        && labels.len() <= 10
        && labels.iter().all(|(key, value)| {
            let number: usize = key.strip_prefix("key").unwrap_or("x").parse().unwrap();
            *value == "v".repeat((20 * number).min(128))
        })
}

#[test]
fn goroutines_have_their_labels_in_each_version() {
    if !can_profile() {
        return;
    }
    for toolchain in TOOLCHAINS {
        if !has_toolchain(toolchain) {
            continue;
        }
        let workshop = Workshop::open();
        let command = format!("GOTOOLCHAIN={toolchain} go labels.go");
        let Some(program) = workshop.build(toolchain, &command) else {
            skip("no Go");
            return;
        };
        profile_and_check(&program, toolchain, "frequency: 499");
    }
}

#[test]
fn goroutines_have_their_labels_in_each_kind_of_program() {
    if !can_profile() {
        return;
    }
    let workshop = Workshop::open();
    for (name, command) in [
        ("pie", "go -buildmode=pie labels.go"),
        (
            "linked",
            "go -tags=cgo -ldflags=-linkmode=external labels.go",
        ),
        (
            "linked_pie",
            "go -tags=cgo -buildmode=pie -ldflags=-linkmode=external labels.go",
        ),
    ] {
        let Some(program) = workshop.build(name, command) else {
            skip("no Go");
            return;
        };
        profile_and_check(&program, name, "frequency: 499");
        // The programs find labels in the same way, whatever happens to the sample.
        if name == "linked" {
            profile_and_check(&program, name, "frequency: 499, aggregation: count");
        }
    }
}

fn profile_and_check(program: &Path, what: &str, options: &str) {
    let running = Running::start(program, &[] as &[&str]);
    let pid = running.pid();
    let mut profiler = Profiler::start_with(options);
    // The first samples precede the unwind table, and the layout of the program's goroutines.
    let mut first = 0;
    profiler.wait(TIMEOUT, |profile| {
        first = profile.samples.len();
        profile
            .samples
            .iter()
            .any(|sample| sample.pid == pid && !sample.labels.is_empty())
    });
    let known = |profile: &Profile| {
        let samples = profile.samples.iter().skip(first);
        Profile::of(samples.cloned().collect())
    };
    let profile = profiler.until(TIMEOUT, |profile| {
        samples_with_table(&known(profile), pid) >= MIN_SAMPLES
    });
    let profile = known(&profile);
    drop(running);
    let linked = Link {
        trace_id: 0x0af7_6519_16cd_43dd_8448_eb21_1c80_319c_u128.to_be_bytes(),
        span_id: 0xb7ad_6b71_6920_3331_u64.to_be_bytes(),
    };
    for sample in profile.samples.iter().filter(|sample| sample.pid == pid) {
        let expected = sample.labels.contains_key("trace_id");
        assert_eq!(
            sample.link == linked,
            expected,
            "{what}: {:?}",
            sample.labels
        );
    }
    check(&profile, pid, program, what);
}

#[test]
fn callbacks_from_c_have_exact_chains_in_each_version() {
    if !can_profile() {
        return;
    }
    let workshop = Workshop::open();
    let toolchains = TOOLCHAINS.into_iter().filter(|name| has_toolchain(name));
    let start = |toolchain: &'static str| {
        // Programs are named by constants.
        let command = format!("GOTOOLCHAIN={toolchain} go cgo_callbacks.go").leak();
        Live::start(&workshop, program(toolchain, command, NESTED).and(FOREIGN))
    };
    let mut lives: Vec<Live> = toolchains.filter_map(start).collect();
    if lives.is_empty() {
        skip("no Go");
        return;
    }
    chains::check(&mut lives, Profiler::start(499));
}
