//! `cargo xtask kernels`: tests profcol on Debian's kernels, each in its own virtual machine (`tests/kernels`).
//!
//! The kernel image and language runtimes are extracted from packages; nothing is installed. Downloads are kept in `target/kernels`
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
    directory: &'static str,
    files: &'static [Packaged],
    /// Language runtimes, each in a directory of its own.
    runtimes: &'static [Runtime],
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

/// A language runtime and the packages that it needs.
struct Runtime {
    name: &'static str,
    packages: &'static [&'static str],
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
    directory: "",
    files: &[
        Packaged {
            release: Some("bullseye"),
            ..kernel("5.10/vmlinuz", "linux-image-cloud-amd64")
        },
        kernel("6.1/vmlinuz", "linux-image-cloud-amd64"),
        kernel("6.12/vmlinuz", "linux-image-6.12-cloud-amd64"),
    ],
    runtimes: &[],
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
    directory: "aarch64",
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
    runtimes: &[
        Runtime {
            name: "python",
            packages: &[
                "python3.11-minimal",
                "libpython3.11-minimal",
                "libpython3.11-stdlib",
                "libexpat1",
                "libssl3",
                "zlib1g",
                "libc6",
            ],
        },
        Runtime {
            name: "php",
            packages: &[
                "php8.2-cli",
                "libargon2-1",
                "libedit2",
                "libbsd0",
                "libmd0",
                "libtinfo6",
                "libpcre2-8-0",
                "libsodium23",
                "libxml2",
                "liblzma5",
                "libicu72",
                "libstdc++6",
                "libgcc-s1",
                "libssl3",
                "zlib1g",
                "libc6",
            ],
        },
        Runtime {
            name: "node",
            packages: &[
                "nodejs",
                "libnode108",
                "node-acorn:all",
                "node-busboy:all",
                "node-cjs-module-lexer:all",
                "node-undici:all",
                "libbrotli1",
                "libc-ares2",
                "libicu72",
                "libnghttp2-14",
                "libssl3",
                "libstdc++6",
                "libgcc-s1",
                "libuv1",
                "zlib1g",
                "libc6",
            ],
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
    let profcol = match AARCH64.get(&directory(workspace), report) {
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
    let directory = directory(workspace);
    let is_there = X86_64.get(&directory, report);
    is_there.then(|| {
        let mut tests = test::ignored(workspace, "kernels");
        tests.env("PROFCOL_KERNELS", &directory);
        tests
    })
}

fn directory(workspace: &Workspace) -> PathBuf {
    workspace.target.join("kernels")
}

impl Machines {
    /// Fetches the kernels; returns whether all are available, and reports missing ones.
    fn get(&self, directory: &Path, report: &mut Report) -> bool {
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
            if let Err(error) = fetch(&directory.join(self.directory).join(file.name), file) {
                report.skip(
                    self.what,
                    &format!("no {} of {}: {error:#}", file.name, file.package),
                );
                return false;
            }
        }
        for runtime in self.runtimes {
            let directory = directory.join(self.directory).join(runtime.name);
            if let Err(error) = fetch_runtime(&directory, runtime) {
                report.skip(self.what, &format!("no {}: {error:#}", runtime.name));
                return false;
            }
        }
        true
    }
}

/// Extracts the runtime's packages to `directory`.
fn fetch_runtime(directory: &Path, runtime: &Runtime) -> Result<()> {
    let packages = runtime
        .packages
        .iter()
        .map(|name| match name.contains(':') {
            true => (*name).to_owned(),
            false => format!("{name}:arm64"),
        });
    let packages: Vec<String> = packages.collect();
    let versions = process::output(
        Command::new("apt-get")
            .args(["download", "--print-uris"])
            .args(&packages),
    )?;
    let stamp = directory.with_extension("packages");
    if directory.exists() && fs::read_to_string(&stamp).is_ok_and(|kept| kept == versions) {
        return Ok(());
    }
    let fetched = directory.with_extension("fetched");
    for old in [directory, &fetched] {
        if old.exists() {
            fs::remove_dir_all(old)
                .with_context(|| format!("failed to empty {}", old.display()))?;
        }
    }
    fs::create_dir_all(directory)
        .with_context(|| format!("failed to create {}", directory.display()))?;
    fs::create_dir_all(&fetched)
        .with_context(|| format!("failed to create {}", fetched.display()))?;
    process::run(
        Command::new("apt-get")
            .args(["download", "--quiet"])
            .args(&packages)
            .current_dir(&fetched),
    )?;
    let entries =
        fs::read_dir(&fetched).with_context(|| format!("failed to read {}", fetched.display()))?;
    for entry in entries.flatten() {
        let mut extract = Command::new("dpkg-deb");
        process::run(extract.arg("--extract").arg(entry.path()).arg(directory))?;
    }
    // It would have to be unpacked in memory.
    let documentation = directory.join("usr/share/doc");
    let _ = fs::remove_dir_all(documentation);
    fs::remove_dir_all(&fetched)
        .with_context(|| format!("failed to remove {}", fetched.display()))?;
    fs::write(&stamp, versions).with_context(|| format!("failed to write {}", stamp.display()))
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
    let directory = path.with_extension("fetched");
    if directory.exists() {
        fs::remove_dir_all(&directory)
            .with_context(|| format!("failed to empty {}", directory.display()))?;
    }
    fs::create_dir_all(&directory)
        .with_context(|| format!("failed to create {}", directory.display()))?;
    process::run(
        apt.command("apt-get")
            .args(["download", "--quiet", newest])
            .current_dir(&directory),
    )?;
    let (name, _) = newest.split_once(':').unwrap_or((newest, ""));
    process::run(
        Command::new("dpkg-deb")
            .arg("--extract")
            .arg(find(&directory.join(name))?)
            .arg(&directory),
    )?;
    fs::rename(find(&directory.join(file.path))?, path)
        .with_context(|| format!("failed to move {} of {newest}", file.path))?;
    // Kernel modules take most of the space.
    fs::remove_dir_all(&directory)
        .with_context(|| format!("failed to remove {}", directory.display()))?;
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
    fn of_release(directory: &Path, release: &str) -> Result<Self> {
        let (_, archive) = archive()?;
        for part in ["lists/partial", "cache/archives/partial"] {
            let part = directory.join(part);
            fs::create_dir_all(&part)
                .with_context(|| format!("failed to create {}", part.display()))?;
        }
        let sources = directory.join("sources.list");
        fs::write(&sources, format!("deb {archive} {release} main\n"))
            .with_context(|| format!("failed to write {}", sources.display()))?;
        let option = |name: &str, path: &Path| format!("-oDir::{name}={}", path.display());
        let apt = Self {
            options: vec![
                option("Etc::SourceList", &sources),
                option("Etc::SourceParts", Path::new("/dev/null")),
                option("State::Lists", &directory.join("lists")),
                option("Cache", &directory.join("cache")),
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
    let (Some(directory), Some(name)) = (begin.parent(), begin.file_name()) else {
        bail!("{} is not a file", begin.display());
    };
    let name = name.to_string_lossy();
    let entries = fs::read_dir(directory)
        .with_context(|| format!("failed to read {}", directory.display()))?;
    for entry in entries.flatten() {
        if entry.file_name().to_string_lossy().starts_with(&*name) {
            return Ok(entry.path());
        }
    }
    bail!("{name} not found in {}", directory.display())
}
