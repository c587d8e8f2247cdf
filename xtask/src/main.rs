//! Development tasks as `cargo xtask <command>`, the same for developers and CI.
//!
//! Run `test` and `check` before submitting a change. Each part of `check` is also a separate command.

#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "this is a command-line tool; its report is its output"
)]

mod bench;
mod bpf;
mod check;
mod circles;
mod cross;
mod deny;
mod dist;
mod errors;
mod features;
mod fuzz;
mod generate;
mod globals;
mod helm;
mod kernels;
mod kubernetes;
mod layers;
mod module_docs;
mod modules;
mod new;
mod nightly;
mod peers;
mod places;
mod process;
mod protobuf;
mod report;
mod rerun;
mod runtimes;
mod siblings;
mod soak;
mod systemd;
mod test;
mod unsafe_code;
mod unused;
mod workspace;

use std::process::ExitCode;

use anyhow::{Result, bail};

use crate::report::Report;
use crate::workspace::Workspace;

const HELP: &str = "\
usage: cargo xtask <command>

  test       [--quick]   run all tests, including those against real peers, which it builds first (kept in target/peers);
             with --quick, the most important ones in about three minutes: unit tests, components, command line
  check      all checks except tests: fmt, layers, unused, protobuf, clippy, a build without default features, and bpf --check
  nightly    checks too slow for each change: deny, features, a new exporter, cross, all kernels, kubernetes-test, helm, the
             packages, the longest tests and long fuzzing (about two hours; --list prints it)
  fmt        check formatting
  clippy     clippy, warnings denied
  layers     dependency direction between crates, no circles of modules, places of unsafe code and global state, causes that errors
             keep, and no references between sibling components
  unused     unused dependencies
  protobuf   declarations of protobuf messages that differ from the projects' own
  deny       licences, sources and bans of the dependencies (cargo-deny)
  features   each crate alone without default features, and with each of its features alone
  cross      a build for aarch64-unknown-linux-gnu
  bpf        [--check]   rebuild the BPF programs into ebpf/objects, or lint and compare them
  kernels    [--quick]   profile a program on other kernels under qemu (kept in target/kernels); with --quick on the
             oldest and the newest only, and not on aarch64
  systemd    profile a host that a real systemd runs, as root (kept in target/systemd)
  runtimes   profile programs in other releases of language runtimes, as root (kept in target/runtimes)
  soak       [--minutes N]   run the release build under load, reloads and faults for two hours or N minutes
  helm       render the Helm chart and check it and the manifests against the schemas of Kubernetes, with tools it builds
             first (about ten minutes; kept in target/peers)
  kubernetes-test   run the tests with a real Kubernetes API server, which it builds first (about ten minutes; kept in target/peers)
  dist       [x86_64|aarch64] [--binary FILE] [--test] [--twice]   build the static binary, or use this one, and package it: Debian package, RPM,
             image, SBOM, Helm chart, manifests and checksums (target/packages); with --test, also test installing and
             upgrading, as root; with --twice, build the binary again elsewhere and compare
  bench      ebpf [options]   measure the overhead of the eBPF receiver, as root (bench ebpf --help)
  gen        rewrite all generated files
  new        exporter NAME   create and register an exporter that builds and passes the tests for all components
  fuzz       [--seconds N] [--address] [target]   run the fuzz targets, each for N seconds (default 20),
             with --address under the address sanitizer
  peers      build the real peers for tests and benches, and print their paths

With CI=true in the environment, anything that cannot be run here fails instead of being reported as skipped.
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &[&str]) -> Result<()> {
    let Some((&command, rest)) = arguments.split_first() else {
        print!("{HELP}");
        bail!("no command given");
    };
    if matches!(command, "help" | "-h" | "--help") {
        print!("{HELP}");
        return Ok(());
    }
    let workspace = Workspace::load()?;
    let mut report = Report::from_environment();
    match (command, rest) {
        ("test", []) => test::run(&workspace, &mut report)?,
        ("test", ["--quick"]) => test::quick(&workspace)?,
        ("check", []) => check::run(&workspace, &mut report)?,
        ("fmt", []) => check::fmt(&workspace)?,
        ("clippy", []) => check::clippy(&workspace)?,
        ("layers", []) => check::layers(&workspace)?,
        ("unused", []) => check::unused(&workspace)?,
        ("protobuf", []) => check::protobuf(&workspace)?,
        ("deny", []) => deny::run(&workspace)?,
        ("features", []) => features::run(&workspace)?,
        ("cross", []) => {
            cross::build(&workspace, &mut report)?;
        }
        ("bpf", []) => bpf::write(&workspace, &mut report)?,
        ("bpf", ["--check"]) => bpf::check(&workspace, &mut report)?,
        ("dist", options) => dist::run(&workspace, &mut report, options)?,
        ("bench", [subject, options @ ..]) => bench::run(&workspace, subject, options)?,
        ("fuzz", options) => fuzz::run(&workspace, &fuzz::Options::parse(options)?)?,
        ("kernels", []) => kernels::run(&workspace, &mut report)?,
        ("kernels", ["--quick"]) => kernels::quick(&workspace, &mut report)?,
        ("nightly", []) => nightly::run(&workspace, &mut report)?,
        ("nightly", ["--list"]) => nightly::list(),
        ("runtimes", []) => runtimes::run(&workspace, &mut report)?,
        ("soak", options) => soak::run(&workspace, options)?,
        ("systemd", []) => systemd::run(&workspace, &mut report)?,
        ("helm", []) => helm::run(&workspace, &mut report)?,
        ("kubernetes-test", []) => kubernetes::run(&workspace, &mut report)?,
        ("new", ["exporter", name]) => new::exporter(&workspace, name)?,
        ("gen", []) => generate::run(&workspace)?,
        ("peers", []) => peers::build(&workspace, &mut report)?,
        _ => bail!(
            "unknown command `{}` (see `cargo xtask help`)",
            arguments.join(" ")
        ),
    }
    report.finish()
}
