//! Runs each fuzz target of `fuzz/` for some time, starting from the committed seeds.
//!
//! libFuzzer needs coverage instrumentation. A stable compiler enables LLVM's pass by flags, so neither nightly nor
//! cargo-fuzz is needed. New corpus inputs are kept in `target/fuzz/corpus` for the next run; failing inputs are
//! written to `target/fuzz/artifacts`.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::process;
use crate::workspace::Workspace;

const PACKAGE: &str = "profcol-fuzz";
const SEEDS: &str = "fuzz/seeds";

/// Time per input and memory of the process before it counts as a finding: inputs are untrusted, and their cost must be
/// proportional to their size.
const LIMITS: [&str; 3] = ["-timeout=5", "-rss_limit_mb=512", "-max_len=65536"];

/// The address sanitizer delays frees and shadows each byte, so limits are higher.
const LIMITS_WITH_ADDRESS: [&str; 3] = ["-timeout=20", "-rss_limit_mb=2048", LIMITS[2]];

/// The `walk` target leaks map contents on purpose: the programs hold them as long as they run.
const SANITIZER: (&str, &str) = ("ASAN_OPTIONS", "detect_leaks=0");

const FLAGS: &str = "--cfg fuzzing \
    -Cpasses=sancov-module \
    -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
    -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares";

/// The address sanitizer. Stable compilers ship it but treat the flag as unstable.
const ADDRESS: &str = " -Zsanitizer=address";

pub struct Options {
    seconds: u32,
    address: bool,
    /// `None` runs all targets.
    target: Option<String>,
}

impl Options {
    /// All targets, each for this long.
    pub fn all(seconds: u32) -> Self {
        Self {
            seconds,
            address: false,
            target: None,
        }
    }

    /// One target, under the address sanitizer.
    #[must_use]
    pub fn address(self, target: &str) -> Self {
        Self {
            address: true,
            target: Some(target.to_owned()),
            ..self
        }
    }

    pub fn parse(words: &[&str]) -> Result<Self> {
        let mut options = Self::all(20);
        let mut words = words.iter();
        while let Some(&word) = words.next() {
            match word {
                "--seconds" => {
                    let number = words.next().context("--seconds needs a number")?;
                    options.seconds = number
                        .parse()
                        .with_context(|| format!("--seconds {number}: not a number"))?;
                }
                "--address" => options.address = true,
                target if options.target.is_none() && !target.starts_with('-') => {
                    options.target = Some(target.to_owned());
                }
                other => bail!("unexpected argument `{other}`"),
            }
        }
        Ok(options)
    }
}

pub fn run(workspace: &Workspace, options: &Options) -> Result<()> {
    let mut targets = targets(workspace);
    if let Some(selected) = &options.target {
        targets.retain(|target| target == selected);
        if targets.is_empty() {
            bail!("fuzz target `{selected}` not found in the crate `{PACKAGE}`");
        }
    }
    let home = workspace.target.join("fuzz");
    // Pass the host target explicitly, so that the flags do not apply to build scripts and proc macros.
    let machine = process::output(Command::new("rustc").args(["--print", "host-tuple"]))?;
    let machine = machine.trim();
    let build = [
        "build",
        "--quiet",
        "--profile",
        "fuzz",
        "--package",
        PACKAGE,
    ];
    let (mut flags, mut limits) = (FLAGS.to_owned(), LIMITS);
    let mut building = workspace.cargo(&build);
    building
        .args(["--target", machine, "--target-dir"])
        .arg(&home);
    if options.address {
        flags += ADDRESS;
        limits = LIMITS_WITH_ADDRESS;
        building.env("RUSTC_BOOTSTRAP", "1");
    }
    if let Some(target) = &options.target {
        building.args(["--bin", target]);
    }
    process::run(building.env("RUSTFLAGS", flags))?;
    let artifacts = home.join("artifacts");
    let mut failed = Vec::new();
    for target in targets {
        let corpus = home.join("corpus").join(&target);
        for directory in [&artifacts, &corpus] {
            fs::create_dir_all(directory)
                .with_context(|| format!("failed to create {}", directory.display()))?;
        }
        let fuzzed = process::run(
            Command::new(home.join(machine).join("fuzz").join(&target))
                .env(SANITIZER.0, SANITIZER.1)
                .args(limits)
                .arg(format!("-max_total_time={}", options.seconds))
                .arg(format!(
                    "-artifact_prefix={}/{target}-",
                    artifacts.display()
                ))
                .args(["-print_final_stats=1", "-verbosity=0"])
                .arg(corpus)
                .arg(workspace.root.join(SEEDS).join(&target)),
        );
        // The others are fuzzed too.
        if let Err(error) = fuzzed {
            println!("{error:#}");
            failed.push(target);
        }
    }
    if !failed.is_empty() {
        bail!(
            "fuzz targets failed: {}; their inputs are in {}",
            failed.join(", "),
            artifacts.display()
        );
    }
    Ok(())
}

/// The binaries of the fuzz crate.
fn targets(workspace: &Workspace) -> Vec<String> {
    let mut packages = workspace.packages.iter();
    let package = packages.find(|package| package.name == PACKAGE);
    let targets = package.into_iter().flat_map(|package| &package.targets);
    let binaries = targets.filter(|target| target.kind.iter().any(|kind| kind == "bin"));
    binaries.map(|target| target.name.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_options_in_any_order_and_rejects_others() {
        for (words, expected) in [
            (&[][..], Some((20, false, None))),
            (&["--seconds", "5"], Some((5, false, None))),
            (
                &["pprof", "--seconds", "5"],
                Some((5, false, Some("pprof"))),
            ),
            (&["--address", "walk"], Some((20, true, Some("walk")))),
            (&["--seconds"], None),
            (&["--seconds", "soon"], None),
            (&["pprof", "config"], None),
            (&["--fast"], None),
        ] {
            let options = Options::parse(words).ok();
            let read = options.as_ref().map(|options| {
                let target = options.target.as_deref();
                (options.seconds, options.address, target)
            });
            assert_eq!(read, expected, "{words:?}");
        }
    }
}
