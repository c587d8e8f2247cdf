//! The package for Fedora, RHEL, SUSE and derivatives, built with `rpmbuild`.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use super::files::{CONFIGURATION, Files, text};
use super::{PACKAGE, Release};
use crate::process;

/// Overrides of settings that make builds irreproducible or modify the finished binary.
const DEFINITIONS: [&str; 8] = [
    "_buildhost reproducible",
    "use_source_date_epoch_as_buildtime 1",
    "clamp_mtime_to_source_date_epoch 1",
    "debug_package %{nil}",
    "__os_install_post %{nil}",
    "_build_id_links none",
    "_binary_payload w6.xzdio",
    "_build_name_fmt %%{NAME}-%%{VERSION}-%%{RELEASE}.%%{ARCH}.rpm",
];

/// Writes `profcol-0.1.0-1.x86_64.rpm` into `directory`.
pub fn build(
    files: &Files,
    release: &Release,
    revision: &str,
    work: &Path,
    directory: &Path,
) -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut files = files.clone();
    for (place, source) in [
        (
            "usr/share/zsh/site-functions/_profcol",
            "docs/generated/_profcol",
        ),
        ("usr/share/doc/profcol/CHANGELOG.md", "CHANGELOG.md"),
        ("usr/share/licenses/profcol/LICENSE", "LICENSE"),
        (
            "usr/share/licenses/profcol/LICENSE-GPL-2.0",
            "ebpf/LICENSE-GPL-2.0",
        ),
    ] {
        files.add(place, 0o644, text(&root.join(source))?);
    }
    let top = work.join("rpm");
    super::clear(&top)?;
    let staged = top.join("staged");
    files.write(&staged)?;
    let spec = top.join("profcol.spec");
    fs::write(&spec, specification(&files, release, revision)?).context("failed to write")?;
    let mut rpmbuild = Command::new("rpmbuild");
    rpmbuild.args(["-bb", "--quiet", "--target", release.arch.name]);
    for definition in DEFINITIONS {
        rpmbuild.args(["--define", definition]);
    }
    let places = [
        format!("_topdir {}", top.display()),
        format!("_rpmdir {}", directory.display()),
        format!("_dbpath {}", top.join("database").display()),
        format!("staged {}", staged.display()),
    ];
    for place in &places {
        rpmbuild.args(["--define", place]);
    }
    process::run(
        rpmbuild
            .arg(spec)
            .env("SOURCE_DATE_EPOCH", release.epoch.to_string()),
    )?;
    fs::remove_dir_all(top).context("failed to remove the staging directory")
}

fn specification(files: &Files, release: &Release, revision: &str) -> Result<String> {
    let Release {
        version,
        summary,
        description,
        maintainer,
        ..
    } = release;
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let scripts = text(&root.join("deploy/packages/rpm/scriptlets"))?;
    let mut spec = format!(
        "Name: {PACKAGE}\nVersion: {version}\nRelease: {revision}\nSummary: {summary}\n\
         License: Apache-2.0 AND (Apache-2.0 OR GPL-2.0-only)\nPackager: {maintainer}\n\
         Recommends: ca-certificates\nAutoReqProv: no\n\n%description\n{description}\n\n\
         %install\ncp --archive %{{staged}}/. %{{buildroot}}\n\n{scripts}\n%files\n"
    );
    for place in files.places() {
        let kind = match place {
            CONFIGURATION => "%config(noreplace) ",
            place if place.starts_with("usr/share/licenses/") => "%license ",
            place if place.starts_with("usr/share/doc/") => "%doc ",
            _ => "",
        };
        // Keep the file's mode.
        writeln!(spec, "%attr(-, root, root) {kind}/{place}")?;
    }
    for directory in [
        "/etc/profcol",
        "/usr/share/doc/profcol",
        "/usr/share/licenses/profcol",
    ] {
        writeln!(spec, "%dir %attr(755, root, root) {directory}")?;
    }
    Ok(spec)
}
