//! `cargo xtask runtimes`: the tests of language runtimes (`tests/ebpf/releases.rs`) with releases that this machine does not have.
//!
//! Each comes from a Debian release, with its libraries, in a file system of its own below `target/runtimes`. It is kept until it is
//! deleted.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::kernels;
use crate::report::Report;
use crate::workspace::Workspace;
use crate::{process, test};

const WHAT: &str = "the tests of other releases of language runtimes";

/// A release of a runtime.
struct Runtime {
    name: &'static str,
    debian: &'static [&'static str],
    packages: &'static str,
}

const OLD: &[&str] = &["bullseye"];
const STABLE: &[&str] = &["trixie"];
const TESTING: &[&str] = &["forky"];
const UNSTABLE: &[&str] = &["sid"];
const EXPERIMENTAL: &[&str] = &["sid", "experimental"];

const fn runtime(
    name: &'static str,
    debian: &'static [&'static str],
    packages: &'static str,
) -> Runtime {
    Runtime {
        name,
        debian,
        packages,
    }
}

const RUNTIMES: &[Runtime] = &[
    runtime("java-8", UNSTABLE, "openjdk-8-jre-headless"),
    runtime("java-11", OLD, "openjdk-11-jre-headless"),
    runtime("java-21", STABLE, "openjdk-21-jre-headless"),
    runtime("java-25", STABLE, "openjdk-25-jre-headless"),
    runtime("java-26", TESTING, "openjdk-26-jre-headless"),
    runtime("luajit-2025-01", STABLE, "luajit"),
    runtime("luajit-2025-10", TESTING, "luajit"),
    runtime("node-20", STABLE, "nodejs"),
    runtime("node-24", TESTING, "nodejs"),
    runtime("otp-27", STABLE, "erlang-base"),
    runtime("otp-29", TESTING, "erlang-base"),
    runtime("perl-5.32", OLD, "perl"),
    runtime("perl-5.40", STABLE, "perl"),
    runtime("perl-5.42", TESTING, "perl"),
    runtime("php-7.4", OLD, "php7.4-cli,php7.4-opcache"),
    runtime("php-8.4", STABLE, "php8.4-cli,php8.4-opcache"),
    runtime("php-8.5", EXPERIMENTAL, "php8.5-cli"),
    runtime("php-8.6", EXPERIMENTAL, "php8.6-cli"),
    runtime("python-3.9", OLD, "python3.9"),
    runtime("python-3.13", STABLE, "python3.13"),
    runtime("python-3.14", TESTING, "python3.14"),
    runtime("python-3.15", TESTING, "python3.15"),
    runtime("ruby-2.7", OLD, "ruby2.7"),
    runtime("ruby-3.3", STABLE, "ruby3.3"),
    runtime("ruby-3.4", EXPERIMENTAL, "ruby3.4"),
];

/// `/bin` and the like, which the packages do not contain since they moved below `/usr`.
const LINKS: &str = r#"for name in bin sbin lib lib64; do mkdir -p "$1/usr/$name" && ln -s "usr/$name" "$1/$name"; done"#;

pub fn run(workspace: &Workspace, report: &mut Report) -> Result<()> {
    if !process::succeeds(Command::new("which").arg("mmdebstrap")) {
        report.skip(WHAT, "on Debian `apt-get install mmdebstrap`");
        return Ok(());
    }
    let directory = workspace.target.join("runtimes");
    fs::create_dir_all(&directory)
        .with_context(|| format!("failed to create {}", directory.display()))?;
    let (_, archive) = kernels::archive()?;
    for runtime in RUNTIMES {
        unpack(runtime, &directory, &archive)
            .with_context(|| format!("failed to unpack {}", runtime.name))?;
    }
    process::run(test::ignored(workspace, "ebpf").args(["--nocapture", "--test-threads=1"]))
}

fn unpack(runtime: &Runtime, directory: &Path, archive: &str) -> Result<()> {
    let path = directory.join(runtime.name);
    if path.exists() {
        return Ok(());
    }
    println!("unpacking {}", runtime.name);
    // An interrupted run leaves no root that looks whole.
    let partial = directory.join("partial");
    if partial.exists() {
        fs::remove_dir_all(&partial)
            .with_context(|| format!("failed to remove {}", partial.display()))?;
    }
    let sources = runtime.debian.iter();
    let sources = sources.map(|release| format!("deb {archive} {release} main"));
    let [release, ..] = runtime.debian else {
        bail!("it comes from no Debian release");
    };
    process::run(
        Command::new("mmdebstrap")
            .args(["--quiet", "--mode=root", "--variant=extract"])
            .arg(format!("--setup-hook={LINKS}"))
            .arg(format!("--include={}", runtime.packages))
            // A mirror may keep lists for longer than they are valid.
            .arg("--aptopt=Acquire::Check-Valid-Until \"false\"")
            .arg("--aptopt=APT::Install-Recommends \"false\"")
            .arg(release)
            .arg(&partial)
            .args(sources),
    )?;
    fs::rename(&partial, &path).with_context(|| format!("failed to rename to {}", path.display()))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::RUNTIMES;

    /// What is unpacked is tested.
    #[test]
    fn each_runtime_has_a_test() {
        let tests = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/ebpf/releases.rs");
        let tests = fs::read_to_string(tests).unwrap();
        for runtime in RUNTIMES {
            let name = format!("\"{}\"", runtime.name);
            assert!(tests.contains(&name), "{name}");
        }
    }
}
