//! `cargo xtask test`: the one command that runs every test on a fresh machine.
//!
//! Tests that need a real peer are marked `#[ignore]`, so that a plain `cargo test` stays quick and
//! says that it left them out. Building the peers takes minutes, so it runs at low priority beside
//! the other tests.

use std::thread;

use anyhow::{Result, anyhow};

use crate::report::Report;
use crate::workspace::Workspace;
use crate::{peers, process};

/// Ignored for another reason than the peers: it takes minutes.
const LONG: &str = "every_row_of_every_file_is_what_readelf_says";

/// The whole way from the kernel to names on a terminal and files.
const LIVE: &str = "without_a_configuration_the_host_is_profiled_with_names";

/// What `--quick` runs, with what it proves. All of the whole workspace: cargo would build the
/// libraries anew, with the features of fewer crates, for tests of one package.
const QUICK_TESTS: &[(&str, &[&str])] = &[
    (
        "unit tests of every crate",
        &["test", "--quiet", "--workspace", "--lib", "--bins"],
    ),
    (
        "what every component has to pass, the command line, answers to broken configurations, generated files",
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
        "one live profile of this host (skipped without the right to load BPF programs)",
        &["test", "--quiet", "--workspace", "--test", "ebpf", LIVE],
    ),
];

/// The tests that prove the most in little time.
pub fn quick(workspace: &Workspace) -> Result<()> {
    println!(
        "The quick part of the tests: about three minutes on 2 CPUs once everything is built, some ten before.\n\
         No Go, no network and no root is needed. `cargo xtask test` runs every test."
    );
    for (position, (proves, _)) in QUICK_TESTS.iter().enumerate() {
        println!("  {}. {proves}", position + 1);
    }
    for (_, arguments) in QUICK_TESTS {
        process::run(&mut workspace.cargo(arguments))?;
    }
    Ok(())
}

/// The tests that take many minutes, compiled with optimizations.
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

pub fn run(workspace: &Workspace, report: &mut Report) -> Result<()> {
    println!(
        "Every test: some 28 minutes of one CPU beside the build, which takes as long on a fresh clone.\n\
         `cargo xtask test --quick` proves the most in about three minutes.\n  \
         1. `cargo test --workspace`, and beside it the peers are built from their Go modules (kept in target/peers)\n  \
         2. the tests that need these peers\n\
         What is missing here is skipped with one line; as root more is run."
    );
    let plan = peers::Plan::new(workspace, report);
    let ready = thread::scope(|scope| -> Result<bool> {
        let peers = scope.spawn(|| plan.build());
        process::run(&mut workspace.cargo(&["test", "--workspace", "--no-fail-fast"]))?;
        peers
            .join()
            .map_err(|_| anyhow!("the thread that builds the peers panicked"))?
    })?;
    if ready {
        let ignored = [
            "test",
            "--workspace",
            "--tests",
            "--",
            "--ignored",
            "--skip",
            LONG,
        ];
        process::run(&mut workspace.cargo(&ignored))?;
    }
    Ok(())
}
