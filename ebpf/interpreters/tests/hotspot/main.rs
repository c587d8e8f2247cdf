//! Compares stacks of live JVMs with the call chains that the test program records.
//!
//! Uses `java` and `javac` from the search path, with a few flags; `PROFCOL_TEST_JAVA` names the homes
//! of more JVMs, separated by colons, and enables all flags.

#![cfg(target_arch = "x86_64")]
#![allow(clippy::unwrap_used, reason = "an unexpected JVM fails the test")]

mod expected;
mod jvm;
mod sampler;
mod target;

use std::io::Write;
use std::path::PathBuf;

use jvm::Jvm;
use profcol_test_skip::skip;

const SAMPLES: usize = 500;
/// Minimum share of stacks with correct callers, in each run.
const SHARE: f64 = 0.99;
/// Minimum share of correct stacks over all runs: the layout of loops without debug information varies between runs.
const RIGHT_SHARE: f64 = 0.95;

/// Flags that change the kinds and the location of code.
const MODES: &[&[&str]] = &[
    &["-Xint"],
    &[],
    &["-XX:TieredStopAtLevel=1"],
    &["-XX:-TieredCompilation"],
    &["-XX:+UseSerialGC"],
    &["-XX:+UseZGC"],
    &["-XX:-SegmentedCodeCache"],
    &["-XX:+PreserveFramePointer"],
    &["-Dvirtual=true"],
];

#[test]
fn java_stacks_match_the_recorded_chains() {
    let Some(classes) = jvm::compile() else {
        skip("no javac: install default-jdk-headless");
        return;
    };
    let extra = std::env::var("PROFCOL_TEST_JAVA").unwrap_or_default();
    let mut javas: Vec<(PathBuf, &[&[&str]])> = extra
        .split(':')
        .filter(|home| !home.is_empty())
        .map(|home| (PathBuf::from(home).join("bin/java"), MODES))
        .collect();
    if javas.is_empty() {
        javas.push(("java".into(), &MODES[..2]));
    }
    let mut failed = Vec::new();
    let (mut right, mut stacks) = (0, 0);
    for (java, modes) in javas {
        for flags in modes {
            let is_virtual = flags.contains(&"-Dvirtual=true");
            let Some(jvm) = Jvm::start(&java, flags, classes.path()) else {
                print(&format!("{} {flags:?}: does not start", java.display()));
                assert!(is_virtual || flags.contains(&"-XX:+UseZGC"), "{flags:?}");
                continue;
            };
            let result = sampler::sample(&jvm, SAMPLES);
            print(&format!("{} {flags:?}: {result}", jvm.version()));
            right += result.right;
            stacks += result.stacks();
            if result.shares().1 < SHARE {
                failed.push(format!("{} {flags:?}: {result}", jvm.version()));
            }
        }
    }
    let share = right as f64 / stacks as f64;
    print(&format!("{:.2} % of {stacks} stacks right", share * 100.0));
    assert!(failed.is_empty(), "{failed:#?}");
    assert!(share >= RIGHT_SHARE, "{share}");
}

fn print(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}
