//! `cargo xtask systemd`: tests profcol on a host with a real systemd (`tests/systemd`).
//!
//! The host is a small root filesystem archive, kept in `target/systemd` until the distribution has a newer systemd.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::report::Report;
use crate::workspace::Workspace;
use crate::{kernels, process, test};

const WHAT: &str = "the test under a real systemd";

/// Packages for systemd with D-Bus and user sessions, and the tools called by its tests and those of the packages.
const PACKAGES: &str = "systemd,systemd-sysv,dbus,libpam-systemd,busybox-static,rpm";

pub fn run(workspace: &Workspace, report: &mut Report) -> Result<()> {
    let Some(system) = system(workspace, report)? else {
        return Ok(());
    };
    let mut test = test::ignored(workspace, "systemd");
    process::run(test.arg("--nocapture").env("PROFCOL_SYSTEMD", system))
}

/// The archive of a system with systemd; `None` if it cannot be built, which is reported.
pub fn system(workspace: &Workspace, report: &mut Report) -> Result<Option<PathBuf>> {
    if !process::succeeds(Command::new("which").arg("mmdebstrap")) {
        report.skip(WHAT, "on Debian `apt-get install mmdebstrap`");
        return Ok(None);
    }
    let directory = workspace.target.join("systemd");
    fs::create_dir_all(&directory)
        .with_context(|| format!("failed to create {}", directory.display()))?;
    let system = directory.join("system.tar");
    if let Err(error) = install(&system) {
        report.skip(
            WHAT,
            &format!("failed to build a system with systemd: {error:#}"),
        );
        return Ok(None);
    }
    Ok(Some(system))
}

/// Builds a system of this machine's release at `path`, so that binaries linked here run there.
fn install(path: &Path) -> Result<()> {
    let policy = process::output(Command::new("apt-cache").args(["policy", "systemd"]))?;
    let newest = policy
        .lines()
        .find_map(|line| line.trim().strip_prefix("Candidate: "))
        .context("apt has no package systemd")?;
    let stamp = path.with_extension("packages");
    let is_new = format!("{PACKAGES} {newest}");
    if path.exists() && fs::read_to_string(&stamp).is_ok_and(|kept| kept == is_new) {
        return Ok(());
    }
    let (release, archive) = kernels::archive()?;
    process::run(
        Command::new("mmdebstrap")
            .args(["--quiet", "--variant=minbase"])
            .arg(format!("--include={PACKAGES}"))
            .arg(release)
            .arg(path)
            .arg(archive),
    )?;
    fs::write(&stamp, is_new).with_context(|| format!("failed to write {}", stamp.display()))
}
