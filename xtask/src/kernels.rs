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

struct Kernel {
    /// What the tests call it.
    name: &'static str,
    /// The package that depends on the newest one.
    package: &'static str,
    /// The release of Debian that has it, where that is not this machine's.
    release: Option<&'static str>,
}

const KERNELS: [Kernel; 3] = [
    Kernel {
        name: "5.10",
        package: "linux-image-cloud-amd64",
        release: Some("bullseye"),
    },
    Kernel {
        name: "6.1",
        package: "linux-image-cloud-amd64",
        release: None,
    },
    Kernel {
        name: "6.12",
        package: "linux-image-6.12-cloud-amd64",
        release: None,
    },
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
    for kernel in KERNELS {
        let name = kernel.name;
        if let Err(error) = fetch(&folder.join(name), &kernel) {
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
fn fetch(folder: &Path, kernel: &Kernel) -> Result<()> {
    let stamp = folder.join("package");
    let apt = match kernel.release {
        // It does not change any more.
        Some(_) if stamp.exists() => return Ok(()),
        Some(release) => Apt::of_release(&folder.with_extension("apt"), release)?,
        None => Apt::default(),
    };
    let package = kernel.package;
    let depends = process::output(apt.command("apt-cache").args(["depends", package]))?;
    let newest = depends
        .lines()
        .filter_map(|line| line.trim().strip_prefix("Depends: "))
        .find(|name| name.starts_with("linux-image-"))
        .with_context(|| format!("apt knows no {package}"))?;
    if fs::read_to_string(&stamp).is_ok_and(|kept| kept == newest) {
        return Ok(());
    }
    if folder.exists() {
        fs::remove_dir_all(folder)
            .with_context(|| format!("failed to empty {}", folder.display()))?;
    }
    fs::create_dir_all(folder).with_context(|| format!("failed to create {}", folder.display()))?;
    process::run(
        apt.command("apt-get")
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

/// This machine's apt, or one with lists of its own.
#[derive(Default)]
struct Apt {
    options: Vec<String>,
}

impl Apt {
    /// With the packages of another release, from where this machine has those of its own.
    fn of_release(folder: &Path, release: &str) -> Result<Self> {
        let fields = "$(ORIGIN) $(RELEASE) $(REPO_URI)";
        let known =
            process::output(Command::new("apt-get").args(["indextargets", "--format", fields]))?;
        let archive = known
            .lines()
            .filter_map(|line| line.strip_prefix("Debian ")?.split_once(' '))
            .find(|(release, _)| !release.contains('-'))
            .map(|(_, archive)| archive)
            .context("apt knows no archive of Debian")?;
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
