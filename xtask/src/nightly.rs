//! `cargo xtask nightly`: checks that are too slow for each change and rarely find more than shorter runs.
//!
//! A failing part does not stop the others, so that one night reports all failures.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::report::Report;
use crate::workspace::Workspace;
use crate::{cross, deny, dist, features, fuzz, helm, kernels, kubernetes, new, runtimes, test};

/// Per fuzz target.
const FUZZ_SECONDS: u32 = 60;

/// Each takes some ten seconds.
const FAULT_SCHEDULES: u32 = 40;

const OUTAGE: Duration = Duration::from_secs(600);

struct Part {
    command: &'static str,
    proves: &'static str,
    run: fn(&Workspace, &mut Report) -> Result<()>,
}

const PARTS: &[Part] = &[
    Part {
        command: "deny",
        proves: "licences, sources and bans of the dependencies",
        run: |workspace, _| deny::run(workspace),
    },
    Part {
        command: "features",
        proves: "each crate builds alone, with each of its features alone, and its tests without features",
        run: |workspace, _| features::run(workspace),
    },
    Part {
        command: "new exporter NAME",
        proves: "a new exporter, in a copy below target/, builds and passes the tests for all components",
        run: |workspace, _| new::trial(workspace),
    },
    Part {
        command: "cross",
        proves: "a build for aarch64",
        run: |workspace, report| cross::build(workspace, report).map(drop),
    },
    Part {
        command: "kernels",
        proves: "stacks on Linux 5.10, 6.1 and 6.12, of x86-64 and aarch64",
        run: kernels::run,
    },
    Part {
        command: "runtimes",
        proves: "exact chains in other releases of the language runtimes",
        run: runtimes::run,
    },
    Part {
        command: "test, the longest",
        proves: "the unwind tables of every ELF file of this machine match readelf",
        run: |workspace, _| test::longest(workspace),
    },
    Part {
        command: "test, faults at random",
        proves: "accepted samples are delivered or counted after new random sequences of faults",
        run: |workspace, _| test::random_faults(workspace, FAULT_SCHEDULES),
    },
    Part {
        command: "test, a long outage",
        proves: "nothing is lost while the backend is away for ten minutes, the gateway is killed twice and its disk is full",
        run: |workspace, _| test::outage(workspace, OUTAGE),
    },
    Part {
        command: "kubernetes-test",
        proves: "metadata from a real Kubernetes API server",
        run: kubernetes::run,
    },
    Part {
        command: "helm",
        proves: "the Helm chart and the manifests match Kubernetes' schemas",
        run: helm::run,
    },
    Part {
        command: "dist --test --twice",
        proves: "the static binary, reproducible, and its packages: installed, run under systemd, upgraded, removed",
        run: dist::nightly,
    },
    Part {
        command: "fuzz --seconds 60",
        proves: "no input panics, hangs or exhausts memory",
        run: |workspace, _| fuzz::run(workspace, &fuzz::Options::all(FUZZ_SECONDS)),
    },
    Part {
        command: "fuzz --seconds 60 --address walk",
        proves: "the target with unsafe code has no invalid memory accesses",
        run: |workspace, _| fuzz::run(workspace, &fuzz::Options::all(FUZZ_SECONDS).address("walk")),
    },
];

/// `cargo xtask nightly --list`.
pub fn list() {
    for part in PARTS {
        println!("{:28} {}", part.command, part.proves);
    }
}

pub fn run(workspace: &Workspace, report: &mut Report) -> Result<()> {
    let mut failures = Vec::new();
    let mut timings = Vec::new();
    for part in PARTS {
        println!("\n=== {}: {}", part.command, part.proves);
        let started = Instant::now();
        let result = (part.run)(workspace, report);
        let verdict = if result.is_ok() { "passed" } else { "failed" };
        timings.push(format!(
            "{:5.0} s  {verdict}  {}",
            started.elapsed().as_secs_f64(),
            part.command
        ));
        if let Err(error) = result {
            println!("failed: {error:#}");
            failures.push(part.command);
        }
    }
    println!("\n=== timings");
    for timing in timings {
        println!("{timing}");
    }
    if !failures.is_empty() {
        bail!("failed: {}", failures.join(", "));
    }
    Ok(())
}
