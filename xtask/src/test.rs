//! `cargo xtask test`: runs all tests, even on a fresh machine.
//!
//! Tests that need a real peer are `#[ignore]`d, so that plain `cargo test` stays fast and reports them as ignored. So are
//! those that need more preparation: other commands run these.
//! Building the peers takes minutes, so it runs at low priority in parallel with the other tests.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Result, anyhow};

use crate::report::Report;
use crate::workspace::Workspace;
use crate::{peers, process, rerun};

/// The file to which tests append their skips: `LIST` of `tests/skip`.
const SKIPS: &str = "PROFCOL_TEST_SKIPS";

/// The tests with the peers.
const PEER_TESTS: &[&str] = &["kafka", "otelcol", "promql", "transports"];

/// Tests of what happens on this host: nothing else runs meanwhile.
const HOST_TESTS: &[&str] = &["busy_host", "containers", "ebpf"];

/// Tests that spend most of their time waiting, for timeouts and a browser: they run at the same time as each other and the rest.
const WAITING_TESTS: &[&str] = &["faults", "page", "parca", "positions", "reload", "storage"];

/// Their threads: waiting tests leave the CPUs to others.
const WAITING_THREADS: &str = "4";

/// Ignored because it takes minutes.
const LONG: &str = "every_row_of_every_file_matches_readelf";

/// Runs a few seeds each time, and new ones at night.
const RANDOM_FAULTS: &str = "schedule::";

/// Lasts seconds each time, and ten minutes at night.
const OUTAGE: &str = "outage::";

/// End to end, from the kernel to symbolized profiles on a terminal and in files.
const LIVE: &str = "without_a_configuration_the_host_is_profiled_with_names";

/// The commands of `--quick`, with a description. All use the whole workspace: for a single package cargo would rebuild
/// libraries with fewer features.
const QUICK_TESTS: &[(&str, &[&str])] = &[
    (
        "unit tests of every crate",
        &["test", "--quiet", "--workspace", "--lib", "--bins"],
    ),
    (
        "tests for all components, command line, errors for broken configurations, generated files",
        &[
            "test",
            "--quiet",
            "--workspace",
            "--test",
            "registry",
            "--test",
            "cli",
            "--test",
            "generated",
        ],
    ),
    (
        "one live profile of this host (skipped without permission to load BPF programs)",
        &["test", "--quiet", "--workspace", "--test", "ebpf", LIVE],
    ),
];

/// The most important tests.
pub fn quick(workspace: &Workspace) -> Result<()> {
    println!(
        "The quick tests: about three minutes on 2 CPUs after the build, about ten including it.\n\
         Needs no Go, network or root. `cargo xtask test` runs all tests."
    );
    for (position, (proves, _)) in QUICK_TESTS.iter().enumerate() {
        println!("  {}. {proves}", position + 1);
    }
    for (_, arguments) in QUICK_TESTS {
        process::run(&mut workspace.cargo(arguments))?;
    }
    Ok(())
}

/// The ignored tests of one target in `tests/`, for the command that prepares them. They are built as part of the workspace, like
/// all other tests: alone the libraries would have fewer features, and cargo would build them again.
pub fn ignored(workspace: &Workspace, target: &str) -> Command {
    workspace.cargo(&["test", "--workspace", "--test", target, "--", "--ignored"])
}

/// The tests that take many minutes, in release mode.
pub fn longest(workspace: &Workspace) -> Result<()> {
    process::run(&mut workspace.cargo(&[
        "test",
        "--release",
        "--package",
        "profcol-ebpf-unwind",
        "--test",
        "oracle",
        "--",
        "--ignored",
        LONG,
    ]))
}

/// Random sequences of faults from a seed that no run had before.
pub fn random_faults(workspace: &Workspace, schedules: u32) -> Result<()> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?;
    process::run(
        workspace
            .cargo(&["test", "--workspace", "--test", "faults", "--"])
            .args([RANDOM_FAULTS, "--nocapture"])
            .env("PROFCOL_FAULT_SEED", now.as_secs().to_string())
            .env("PROFCOL_FAULT_SCHEDULES", schedules.to_string()),
    )
}

/// An outage that is longer than in each run.
pub fn outage(workspace: &Workspace, length: Duration) -> Result<()> {
    process::run(
        workspace
            .cargo(&["test", "--workspace", "--test", "faults", "--"])
            .args([OUTAGE, "--nocapture"])
            .env("PROFCOL_OUTAGE_SECONDS", length.as_secs().to_string()),
    )
}

pub fn run(workspace: &Workspace, report: &mut Report) -> Result<()> {
    println!(
        "All tests: about 28 minutes of one CPU plus the build, which takes as long on a fresh clone.\n\
         `cargo xtask test --quick` runs the most important ones in about three minutes.\n  \
         1. `cargo test --workspace` in parts, while the peers are built from their Go modules, and fetched by Maven (kept in target/peers)\n  \
         2. the tests that need these peers\n\
         Missing requirements are reported and skipped; root runs more tests."
    );
    let skips = workspace.root.join("target/test-skips");
    // Those of an earlier run.
    let _ = fs::remove_file(&skips);
    let tested = run_all(workspace, report, &skips);
    for why in fs::read_to_string(&skips).unwrap_or_default().lines() {
        report.skip("a test", why);
    }
    tested
}

fn run_all(workspace: &Workspace, report: &mut Report, skips: &Path) -> Result<()> {
    let cargo_test = |arguments: &[&str]| {
        let mut cargo = workspace.cargo(&["test", "--workspace", "--no-fail-fast"]);
        cargo.args(arguments).env(SKIPS, skips);
        cargo
    };
    let plan = peers::Plan::new(workspace, report);
    let (ended, ready) = thread::scope(|scope| -> Result<_> {
        let peers = scope.spawn(|| plan.build());
        process::run(&mut cargo_test(&["--no-run"]))?;
        let waiting = WAITING_TESTS.iter().map(|test| {
            let mut command = cargo_test(&["--test", test]);
            command.env("RUST_TEST_THREADS", WAITING_THREADS);
            command
        });
        let rest = [
            cargo_test(&["--doc"]),
            cargo_test(&other_targets(workspace)),
        ];
        let rest = rest.iter().map(process::at_low_priority);
        let mut ended = process::run_all_at_once(waiting.chain(rest).collect());
        let of_host = HOST_TESTS.iter().flat_map(|test| ["--test", test]);
        let of_host: Vec<&str> = of_host.collect();
        ended.push(process::run_and_read(&mut cargo_test(&of_host)));
        let ready = peers
            .join()
            .map_err(|_| anyhow!("the thread that builds the peers panicked"))?;
        Ok((ended, ready))
    })?;
    rerun::failed(ended, report, |arguments| {
        let mut command = cargo_test(&["--lib", "--bins", "--tests", "--"]);
        command.args(arguments);
        command
    })?;
    if ready? {
        let peers = PEER_TESTS
            .iter()
            .map(|test| cargo_test(&["--test", test, "--", "--ignored"]));
        let ended = process::run_all_at_once(peers.collect());
        rerun::failed(ended, report, |arguments| {
            let targets = PEER_TESTS.iter().flat_map(|test| ["--test", test]);
            let mut command = cargo_test(&[]);
            command.args(targets).args(["--", "--ignored"]);
            command.args(arguments);
            command
        })?;
    }
    Ok(())
}

/// The arguments of `cargo test` that select all targets but [`WAITING_TESTS`] and [`HOST_TESTS`].
fn other_targets(workspace: &Workspace) -> Vec<&str> {
    let targets = workspace.packages.iter().flat_map(|it| &it.targets);
    let named: BTreeSet<(&str, &str)> = targets
        .filter(|target| target.is_tested)
        .flat_map(|target| {
            let kinds = target.kind.iter().map(String::as_str);
            kinds.map(|kind| (kind, target.name.as_str()))
        })
        .filter_map(|(kind, name)| match kind {
            "test" => Some(("--test", name)),
            "bench" => Some(("--bench", name)),
            _ => None,
        })
        .filter(|(_, name)| !WAITING_TESTS.contains(name) && !HOST_TESTS.contains(name))
        .collect();
    let named = named.into_iter().flat_map(|(kind, name)| [kind, name]);
    ["--lib", "--bins"].into_iter().chain(named).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::siblings::sources;

    /// Why a test is ignored, and what runs it instead: the targets in `tests/`.
    const IGNORED: &[(&str, &[&str])] = &[
        ("needs the peers, see cargo xtask test", PEER_TESTS),
        ("cargo xtask kernels runs it", &["kernels"]),
        ("cargo xtask runtimes runs it", &["ebpf"]),
        ("cargo xtask systemd runs it", &["systemd"]),
        ("cargo xtask soak runs it", &["soak"]),
        ("cargo xtask kubernetes-test runs it", &["kubernetes"]),
        ("cargo xtask dist --test runs it", &["packages"]),
    ];

    #[test]
    fn every_target_runs_once() {
        let workspace = Workspace::load().unwrap();
        let others = other_targets(&workspace);
        let targets = workspace.packages.iter().flat_map(|it| &it.targets);
        for target in targets.filter(|it| it.is_tested && it.kind == ["test"]) {
            let name = target.name.as_str();
            let is_other = others.windows(2).any(|it| it == ["--test", name]);
            let groups = [
                WAITING_TESTS.contains(&name),
                HOST_TESTS.contains(&name),
                is_other,
            ];
            let runs = groups.iter().filter(|&&it| it).count();
            assert_eq!(runs, 1, "{name}");
        }
    }

    #[test]
    fn each_ignored_test_of_the_program_runs_elsewhere() {
        let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests");
        let mut found = BTreeSet::new();
        for file in sources(&tests).unwrap() {
            let text = fs::read_to_string(&file).unwrap();
            let lines = text.lines().map(str::trim);
            for why in lines.filter_map(|line| line.strip_prefix("#[ignore")) {
                let target = file.strip_prefix(&tests).unwrap().with_extension("");
                let target = target.iter().next().unwrap().to_str().unwrap().to_owned();
                let runs = IGNORED.iter().any(|(reason, targets)| {
                    why == format!(" = \"{reason}\"]") && targets.contains(&target.as_str())
                });
                assert!(runs, "{}: nothing runs it: {why}", file.display());
                found.insert(target);
            }
        }
        let listed = IGNORED.iter().flat_map(|(_, targets)| *targets);
        let listed: BTreeSet<String> = listed.map(|&target| target.to_owned()).collect();
        assert_eq!(found, listed);
    }
}
