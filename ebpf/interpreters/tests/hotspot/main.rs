//! Stacks of live JVMs, beside what the program in them knows of its calls.
//!
//! `java` and `javac` of the search path are used, with a few flags; `PROFCOL_TEST_JAVA` names the homes
//! of more JVMs, separated by colons, and has all flags tried.

#![cfg(target_arch = "x86_64")]
#![allow(
    clippy::unwrap_used,
    reason = "a JVM that is not as expected fails the test"
)]

mod expected;
mod jvm;
mod sampler;
mod target;

use std::io::Write;
use std::path::PathBuf;

use jvm::Jvm;

const SAMPLES: usize = 500;
/// Of stacks whose callers are right, in each run.
const SHARE: f64 = 0.99;
/// Of stacks that are right, in all runs: how the compiler lays out a loop that says nothing of itself is
/// another matter in each run.
const RIGHT_SHARE: f64 = 0.95;

/// Flags that change what code there is, and where.
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
fn java_stacks_are_what_the_program_knows() {
    let Some(classes) = jvm::compile() else {
        skip();
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
                tell(&format!("{} {flags:?}: does not start", java.display()));
                assert!(is_virtual || flags.contains(&"-XX:+UseZGC"), "{flags:?}");
                continue;
            };
            let result = sampler::sample(&jvm, SAMPLES);
            tell(&format!("{} {flags:?}: {result}", jvm.version()));
            right += result.right;
            stacks += result.stacks();
            if result.shares().1 < SHARE {
                failed.push(format!("{} {flags:?}: {result}", jvm.version()));
            }
        }
    }
    let share = right as f64 / stacks as f64;
    tell(&format!("{:.2} % of {stacks} stacks right", share * 100.0));
    assert!(failed.is_empty(), "{failed:#?}");
    assert!(share >= RIGHT_SHARE, "{share}");
}

fn skip() {
    assert!(
        std::env::var("CI").as_deref() != Ok("true"),
        "no javac: install default-jdk-headless"
    );
    tell("skipped: no javac; install default-jdk-headless");
}

fn tell(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}
