//! The package for Debian and Ubuntu, built with `dpkg-deb`.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use super::files::{CONFIGURATION, Files, compressed, text};
use super::{PACKAGE, Release};
use crate::process;

const SCRIPTS: [&str; 3] = ["postinst", "prerm", "postrm"];

/// Writes `profcol_0.1.0-1_amd64.deb` into `directory`.
pub fn build(
    files: &Files,
    release: &Release,
    revision: &str,
    work: &Path,
    directory: &Path,
) -> Result<()> {
    let Release { arch, version, .. } = release;
    let version = format!("{version}-{revision}");
    let files = &completed(files, release, &version)?;
    let staged = work.join("debian");
    files.write(&staged)?;
    let sums = sums(files, &staged)?;
    let control = staged.join("DEBIAN");
    fs::create_dir(&control).context("failed to create DEBIAN")?;
    let put = |name: &str, content: &str, mode: u32| {
        let path = control.join(name);
        fs::write(&path, content).with_context(|| format!("failed to write {name}"))?;
        fs::set_permissions(&path, fs::Permissions::from_mode(mode))
            .with_context(|| format!("failed to set the mode of {name}"))
    };
    put("control", &control_of(files, release, &version), 0o644)?;
    put("conffiles", &format!("/{CONFIGURATION}\n"), 0o644)?;
    put("md5sums", &sums, 0o644)?;
    for script in SCRIPTS {
        put(script, &text(&source(script))?, 0o755)?;
    }
    let archive = directory.join(format!("{PACKAGE}_{version}_{}.deb", arch.debian));
    process::run(
        Command::new("dpkg-deb")
            .args(["--root-owner-group", "-Zxz", "--build"])
            .arg(&staged)
            .arg(archive)
            .env("SOURCE_DATE_EPOCH", release.epoch.to_string()),
    )?;
    fs::remove_dir_all(staged).context("failed to remove the staging directory")
}

fn source(name: &str) -> std::path::PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.join("../deploy/packages/debian").join(name)
}

/// Adds the files required by Debian policy.
fn completed(files: &Files, release: &Release, version: &str) -> Result<Files> {
    let mut files = files.clone();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    files.add(
        "usr/share/zsh/vendor-completions/_profcol",
        0o644,
        text(&root.join("docs/generated/_profcol"))?,
    );
    let changes = text(&root.join("CHANGELOG.md"))?;
    let date = release.date("+%a, %d %b %Y %H:%M:%S +0000")?;
    let changelog = format!(
        "{PACKAGE} ({version}) unstable; urgency=medium\n\n  * See changelog.gz.\n  * Commit {}\n\n -- {}  {date}\n",
        release.commit, release.maintainer
    );
    let documentation = "usr/share/doc/profcol";
    for (name, text) in [("changelog", changes), ("changelog.Debian", changelog)] {
        let place = format!("{documentation}/{name}.gz");
        files.add(&place, 0o644, compressed(text.as_bytes())?);
    }
    files.add(
        &format!("{documentation}/copyright"),
        0o644,
        text(&source("copyright"))?,
    );
    files.add(
        "usr/share/lintian/overrides/profcol",
        0o644,
        text(&source("lintian-overrides"))?,
    );
    Ok(files)
}

fn control_of(files: &Files, release: &Release, version: &str) -> String {
    let Release {
        arch,
        maintainer,
        summary,
        description,
        ..
    } = release;
    let description = description.replace('\n', "\n ");
    format!(
        "Package: {PACKAGE}\nVersion: {version}\nArchitecture: {}\nMaintainer: {maintainer}\nInstalled-Size: {}\n\
         Recommends: ca-certificates\nSection: admin\nPriority: optional\nDescription: {summary}\n {description}\n",
        arch.debian,
        files.installed_size()
    )
}

fn sums(files: &Files, staged: &Path) -> Result<String> {
    let mut sums = Command::new("md5sum");
    sums.args(files.places().filter(|place| *place != CONFIGURATION));
    process::output(sums.current_dir(staged))
}
