//! `cargo xtask kernels`: profcol on Debian's kernels, each in a machine of its own (`tests/kernels`).
//!
//! Only the kernel's image is taken out of a package; nothing is installed. What was fetched is kept in
//! `target/kernels` until the distribution has a newer one.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::process;
use crate::report::Report;
use crate::workspace::Workspace;

const WHAT: &str = "the tests on other kernels";

/// What the tests call a kernel, and the package that depends on its newest one.
const KERNELS: [(&str, &str); 2] = [
    ("6.1", "linux-image-cloud-amd64"),
    ("6.12", "linux-image-6.12-cloud-amd64"),
];

/// Programs that the tests run, and the packages that have them.
const TOOLS: [(&str, &str); 5] = [
    ("qemu-system-x86_64", "qemu-system-x86"),
    ("busybox", "busybox-static"),
    ("cpio", "cpio"),
    ("setpriv", "util-linux"),
    ("objcopy", "binutils"),
];

pub fn run(workspace: &Workspace, report: &mut Report) -> Result<()> {
    let missing: Vec<&str> = TOOLS
        .iter()
        .filter(|(tool, _)| !process::succeeds(Command::new("which").arg(tool)))
        .map(|&(_, package)| package)
        .collect();
    if !missing.is_empty() {
        let why = format!("on Debian `apt-get install {}`", missing.join(" "));
        report.skip(WHAT, &why);
        return Ok(());
    }
    let folder = workspace.target.join("kernels");
    for (name, package) in KERNELS {
        if let Err(error) = fetch(&folder.join(name), package) {
            report.skip(WHAT, &format!("no Linux {name}: {error:#}"));
            return Ok(());
        }
    }
    let arguments = [
        "test",
        "--test",
        "kernels",
        "--",
        "--nocapture",
        "--test-threads=1",
    ];
    process::run(workspace.cargo(&arguments).env("PROFCOL_KERNELS", &folder))
}

/// Puts the kernel's image into the folder.
fn fetch(folder: &Path, package: &str) -> Result<()> {
    let depends = process::output(Command::new("apt-cache").args(["depends", package]))?;
    let newest = depends
        .lines()
        .filter_map(|line| line.trim().strip_prefix("Depends: "))
        .find(|name| name.starts_with("linux-image-"))
        .with_context(|| format!("apt knows no {package}"))?;
    let stamp = folder.join("package");
    if fs::read_to_string(&stamp).is_ok_and(|kept| kept == newest) {
        return Ok(());
    }
    if folder.exists() {
        fs::remove_dir_all(folder)
            .with_context(|| format!("failed to empty {}", folder.display()))?;
    }
    fs::create_dir_all(folder).with_context(|| format!("failed to create {}", folder.display()))?;
    process::run(
        Command::new("apt-get")
            .args(["download", "--quiet", newest])
            .current_dir(folder),
    )?;
    let fetched = find(folder, newest)?;
    process::run(
        Command::new("dpkg-deb")
            .arg("--extract")
            .arg(&fetched)
            .arg(folder),
    )?;
    let image = find(&folder.join("boot"), "vmlinuz-")?;
    fs::rename(image, folder.join("vmlinuz")).context("failed to move the kernel's image")?;
    // Modules are most of it.
    for rest in ["boot", "lib", "usr"] {
        let _ = fs::remove_dir_all(folder.join(rest));
    }
    fs::remove_file(fetched).context("failed to remove the package")?;
    fs::write(&stamp, newest).with_context(|| format!("failed to write {}", stamp.display()))
}

fn find(folder: &Path, begin: &str) -> Result<PathBuf> {
    let entries =
        fs::read_dir(folder).with_context(|| format!("failed to read {}", folder.display()))?;
    for entry in entries.flatten() {
        if entry.file_name().to_string_lossy().starts_with(begin) {
            return Ok(entry.path());
        }
    }
    bail!("there is no {begin} in {}", folder.display())
}
