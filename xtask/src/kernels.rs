//! `cargo xtask kernels`: profcol on Debian's kernels, each in a machine of its own (`tests/kernels`).
//!
//! Only the kernel's image is taken out of a package; nothing is installed. What was fetched is kept in
//! `target/kernels` until the distribution has a newer one.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::report::Report;
use crate::workspace::Workspace;
use crate::{cross, process};

/// Kernels of one architecture, and what it takes to run them.
struct Machines {
    what: &'static str,
    /// In `target/kernels`.
    folder: &'static str,
    /// What the tests call a file, the package that depends on its newest one or has it, and where in that it is.
    files: &'static [(&'static str, &'static str, &'static str)],
    /// Programs that the tests run, and the packages that have them.
    tools: &'static [(&'static str, &'static str)],
}

const OWN: Machines = Machines {
    what: "the tests on other kernels",
    folder: "",
    files: &[
        ("6.1/vmlinuz", "linux-image-cloud-amd64", "boot/vmlinuz-"),
        (
            "6.12/vmlinuz",
            "linux-image-6.12-cloud-amd64",
            "boot/vmlinuz-",
        ),
    ],
    tools: &[
        ("qemu-system-x86_64", "qemu-system-x86"),
        ("busybox", "busybox-static"),
        ("cpio", "cpio"),
        ("setpriv", "util-linux"),
        ("objcopy", "binutils"),
    ],
};

const AARCH64: Machines = Machines {
    what: "the tests on aarch64",
    folder: "aarch64",
    files: &[
        (
            "6.1/vmlinuz",
            "linux-image-cloud-arm64:arm64",
            "boot/vmlinuz-",
        ),
        (
            "6.12/vmlinuz",
            "linux-image-6.12-cloud-arm64:arm64",
            "boot/vmlinuz-",
        ),
        ("busybox", "busybox-static:arm64", "bin/busybox"),
    ],
    tools: &[
        ("qemu-system-aarch64", "qemu-system-arm"),
        ("aarch64-linux-gnu-g++", "g++-aarch64-linux-gnu"),
        ("go", "golang"),
    ],
};

pub fn run(workspace: &Workspace, report: &mut Report) -> Result<()> {
    let folder = workspace.target.join("kernels");
    if !OWN.get(&folder, report) {
        return Ok(());
    }
    let arguments = [
        "test",
        "--test",
        "kernels",
        "--",
        "--nocapture",
        "--test-threads=1",
    ];
    let mut tests = workspace.cargo(&arguments);
    tests.env("PROFCOL_KERNELS", &folder);
    if AARCH64.get(&folder, report)
        && let Some(profcol) = cross::build(workspace, report)?
    {
        tests.env("PROFCOL_AARCH64", profcol);
    }
    process::run(&mut tests)
}

impl Machines {
    /// Fetches the kernels. Whether all is there; if not there is a line in the report.
    fn get(&self, folder: &Path, report: &mut Report) -> bool {
        let missing: Vec<&str> = self
            .tools
            .iter()
            .filter(|(tool, _)| !process::succeeds(Command::new("which").arg(tool)))
            .map(|&(_, package)| package)
            .collect();
        if !missing.is_empty() {
            let why = format!("on Debian `apt-get install {}`", missing.join(" "));
            report.skip(self.what, &why);
            return false;
        }
        for (name, package, place) in self.files {
            if let Err(error) = fetch(&folder.join(self.folder).join(name), package, place) {
                report.skip(self.what, &format!("no {name} of {package}: {error:#}"));
                return false;
            }
        }
        true
    }
}

/// Puts the one file of the newest package at `path`.
fn fetch(path: &Path, package: &str, place: &str) -> Result<()> {
    let depends = process::output(Command::new("apt-cache").args(["depends", package]))?;
    let newest = depends
        .lines()
        .filter_map(|line| line.trim().strip_prefix("Depends: "))
        .find(|name| name.starts_with("linux-image-"))
        .unwrap_or(package);
    let policy = process::output(Command::new("apt-cache").args(["policy", newest]))?;
    let version = policy
        .lines()
        .find_map(|line| line.trim().strip_prefix("Candidate: "))
        .with_context(|| format!("apt knows no {newest}"))?;
    let wanted = format!("{newest} {version}");
    let stamp = path.with_extension("package");
    if path.exists() && fs::read_to_string(&stamp).is_ok_and(|kept| kept == wanted) {
        return Ok(());
    }
    let folder = path.with_extension("fetched");
    if folder.exists() {
        fs::remove_dir_all(&folder)
            .with_context(|| format!("failed to empty {}", folder.display()))?;
    }
    fs::create_dir_all(&folder)
        .with_context(|| format!("failed to create {}", folder.display()))?;
    process::run(
        Command::new("apt-get")
            .args(["download", "--quiet", newest])
            .current_dir(&folder),
    )?;
    process::run(
        Command::new("dpkg-deb")
            .arg("--extract")
            .arg(find(&folder.join(newest.trim_end_matches(":arm64")))?)
            .arg(&folder),
    )?;
    fs::rename(find(&folder.join(place))?, path)
        .with_context(|| format!("failed to move {place} of {newest}"))?;
    // Modules are most of it.
    fs::remove_dir_all(&folder)
        .with_context(|| format!("failed to remove {}", folder.display()))?;
    fs::write(&stamp, wanted).with_context(|| format!("failed to write {}", stamp.display()))
}

/// The file whose path begins so.
fn find(begin: &Path) -> Result<PathBuf> {
    let (Some(folder), Some(name)) = (begin.parent(), begin.file_name()) else {
        bail!("{} is no file", begin.display());
    };
    let name = name.to_string_lossy();
    let entries =
        fs::read_dir(folder).with_context(|| format!("failed to read {}", folder.display()))?;
    for entry in entries.flatten() {
        if entry.file_name().to_string_lossy().starts_with(&*name) {
            return Ok(entry.path());
        }
    }
    bail!("there is no {name} in {}", folder.display())
}
