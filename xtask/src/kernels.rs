//! `cargo xtask kernels`: tests profcol on Debian's kernels, each in its own virtual machine (`tests/kernels`).
//!
//! Only the kernel image is extracted from a package; nothing is installed. Downloads are kept in `target/kernels`
//! until the distribution has a newer version.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::report::Report;
use crate::workspace::Workspace;
use crate::{cross, process, test};

/// The virtual machines of one architecture, and their requirements.
struct Machines {
    what: &'static str,
    /// Subdirectory of `target/kernels`.
    folder: &'static str,
    files: &'static [Packaged],
    /// Programs needed by the tests, and their packages.
    tools: &'static [(&'static str, &'static str)],
}

/// A file of a package.
struct Packaged {
    /// Name used by the tests.
    name: &'static str,
    /// The package, or one that depends on the newest kernel.
    package: &'static str,
    /// Prefix of its path.
    path: &'static str,
    /// The Debian release that has it, if not this machine's.
    release: Option<&'static str>,
}

const fn kernel(name: &'static str, package: &'static str) -> Packaged {
    Packaged {
        name,
        package,
        path: "boot/vmlinuz-",
        release: None,
    }
}

const X86_64: Machines = Machines {
    what: "the tests on other kernels",
    folder: "",
    files: &[
        Packaged {
            release: Some("bullseye"),
            ..kernel("5.10/vmlinuz", "linux-image-cloud-amd64")
        },
        kernel("6.1/vmlinuz", "linux-image-cloud-amd64"),
        kernel("6.12/vmlinuz", "linux-image-6.12-cloud-amd64"),
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
        kernel("6.1/vmlinuz", "linux-image-cloud-arm64:arm64"),
        kernel("6.12/vmlinuz", "linux-image-6.12-cloud-arm64:arm64"),
        Packaged {
            name: "busybox",
            package: "busybox-static:arm64",
            path: "bin/busybox",
            release: None,
        },
    ],
    tools: &[
        ("qemu-system-aarch64", "qemu-system-arm"),
        ("aarch64-linux-gnu-g++", "g++-aarch64-linux-gnu"),
        ("go", "golang"),
    ],
};

/// The tests of `--quick`: the oldest and the newest kernel.
const QUICK_TESTS: [&str; 3] = ["--exact", "samples_on_linux_5_10", "samples_on_linux_6_12"];

pub fn quick(workspace: &Workspace, report: &mut Report) -> Result<()> {
    match tests(workspace, report) {
        Some(mut tests) => process::run(tests.args(QUICK_TESTS).arg("--nocapture")),
        None => Ok(()),
    }
}

pub fn run(workspace: &Workspace, report: &mut Report) -> Result<()> {
    let Some(mut tests) = tests(workspace, report) else {
        return Ok(());
    };
    tests.args(["--nocapture", "--test-threads=1"]);
    // What is missing for aarch64 is reported here.
    let profcol = match AARCH64.get(&folder(workspace), report) {
        true => cross::build(workspace, report)?,
        false => None,
    };
    match profcol {
        Some(profcol) => tests.env("PROFCOL_AARCH64", profcol),
        None => tests.args(["--skip", "aarch64"]),
    };
    process::run(&mut tests)
}

/// The tests with x86-64 kernels; `None` if these are missing, which is reported.
fn tests(workspace: &Workspace, report: &mut Report) -> Option<Command> {
    let folder = folder(workspace);
    let is_there = X86_64.get(&folder, report);
    is_there.then(|| {
        let mut tests = test::ignored(workspace, "kernels");
        tests.env("PROFCOL_KERNELS", &folder);
        tests
    })
}

fn folder(workspace: &Workspace) -> PathBuf {
    workspace.target.join("kernels")
}

impl Machines {
    /// Fetches the kernels; returns whether all are available, and reports missing ones.
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
        for file in self.files {
            if let Err(error) = fetch(&folder.join(self.folder).join(file.name), file) {
                report.skip(
                    self.what,
                    &format!("no {} of {}: {error:#}", file.name, file.package),
                );
                return false;
            }
        }
        true
    }
}

/// Downloads the file to `path`.
fn fetch(path: &Path, file: &Packaged) -> Result<()> {
    let stamp = path.with_extension("package");
    let apt = match file.release {
        // A pinned release does not change.
        Some(_) if path.exists() && stamp.exists() => return Ok(()),
        Some(release) => AptArchive::of_release(&path.with_extension("apt"), release)?,
        None => AptArchive::default(),
    };
    let depends = process::output(apt.command("apt-cache").args(["depends", file.package]))?;
    let newest = depends
        .lines()
        .filter_map(|line| line.trim().strip_prefix("Depends: "))
        .find(|name| name.starts_with("linux-image-"))
        .unwrap_or(file.package);
    if path.exists() && fs::read_to_string(&stamp).is_ok_and(|kept| kept == newest) {
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
        apt.command("apt-get")
            .args(["download", "--quiet", newest])
            .current_dir(&folder),
    )?;
    let (name, _) = newest.split_once(':').unwrap_or((newest, ""));
    process::run(
        Command::new("dpkg-deb")
            .arg("--extract")
            .arg(find(&folder.join(name))?)
            .arg(&folder),
    )?;
    fs::rename(find(&folder.join(file.path))?, path)
        .with_context(|| format!("failed to move {} of {newest}", file.path))?;
    // Kernel modules take most of the space.
    fs::remove_dir_all(&folder)
        .with_context(|| format!("failed to remove {}", folder.display()))?;
    fs::write(&stamp, newest).with_context(|| format!("failed to write {}", stamp.display()))
}

/// This machine's Debian release and its archive URL.
pub fn archive() -> Result<(String, String)> {
    let fields = "$(ORIGIN) $(RELEASE) $(REPO_URI)";
    let known =
        process::output(Command::new("apt-get").args(["indextargets", "--format", fields]))?;
    let (release, archive) = known
        .lines()
        .filter_map(|line| line.strip_prefix("Debian ")?.split_once(' '))
        .find(|(release, _)| !release.contains('-'))
        .context("apt has no Debian archive configured")?;
    Ok((release.to_owned(), archive.to_owned()))
}

/// This machine's apt, or one with separate lists.
#[derive(Default)]
struct AptArchive {
    options: Vec<String>,
}

impl AptArchive {
    /// The packages of another release from this machine's archive.
    fn of_release(folder: &Path, release: &str) -> Result<Self> {
        let (_, archive) = archive()?;
        for part in ["lists/partial", "cache/archives/partial"] {
            let part = folder.join(part);
            fs::create_dir_all(&part)
                .with_context(|| format!("failed to create {}", part.display()))?;
        }
        let sources = folder.join("sources.list");
        fs::write(&sources, format!("deb {archive} {release} main\n"))
            .with_context(|| format!("failed to write {}", sources.display()))?;
        let option = |name: &str, path: &Path| format!("-oDir::{name}={}", path.display());
        let apt = Self {
            options: vec![
                option("Etc::SourceList", &sources),
                option("Etc::SourceParts", Path::new("/dev/null")),
                option("State::Lists", &folder.join("lists")),
                option("Cache", &folder.join("cache")),
                "-oAPT::Architectures=amd64".into(),
            ],
        };
        process::run(apt.command("apt-get").args(["update", "--quiet"]))?;
        Ok(apt)
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.args(&self.options);
        command
    }
}

/// Finds the file with this path prefix.
fn find(begin: &Path) -> Result<PathBuf> {
    let (Some(folder), Some(name)) = (begin.parent(), begin.file_name()) else {
        bail!("{} is not a file", begin.display());
    };
    let name = name.to_string_lossy();
    let entries =
        fs::read_dir(folder).with_context(|| format!("failed to read {}", folder.display()))?;
    for entry in entries.flatten() {
        if entry.file_name().to_string_lossy().starts_with(&*name) {
            return Ok(entry.path());
        }
    }
    bail!("{name} not found in {}", folder.display())
}
