//! `cargo xtask dist`: builds the release artifacts in `target/packages`: a static binary, a Debian package, an RPM, an
//! image, an SBOM of the binary, the Helm chart, the manifests for Kubernetes, and checksums.
//!
//! Packages are built with the distributions' `dpkg-deb` and `rpmbuild`, reproducibly: the same commit yields
//! the same bytes, with the commit time for all timestamps. `--twice` proves it of the binary, too. An image without base layers is a tar archive and three
//! JSON documents, so no daemon or store is needed.

mod binary;
mod debian;
mod dependencies;
mod files;
mod image;
mod kubernetes;
mod rpm;
mod sbom;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use self::files::Files;
use crate::report::Report;
use crate::workspace::Workspace;
use crate::{process, systemd, test};

const PACKAGE: &str = "profcol";

/// One of the two architectures, with its name in each format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arch {
    /// In Rust, the kernel, and RPM.
    pub name: &'static str,
    /// In Debian and OCI images.
    pub debian: &'static str,
}

const ARCHES: [Arch; 2] = [
    Arch {
        name: "x86_64",
        debian: "amd64",
    },
    Arch {
        name: "aarch64",
        debian: "arm64",
    },
];

const SUPPORTED: &str = "packages support x86_64 and aarch64 only";

/// Metadata common to all formats.
pub struct Release {
    pub arch: Arch,
    pub version: String,
    pub commit: String,
    /// Commit time in Unix seconds.
    pub epoch: u64,
    pub maintainer: &'static str,
    pub summary: &'static str,
    pub description: &'static str,
}

const MAINTAINER: &str = "profcol maintainers <profcol@packages.example>";

const SUMMARY: &str = "profiles every process of a host with eBPF";

const DESCRIPTION: &str = "\
profcol samples whole stacks of every process on a Linux host, in native code,
Python, JavaScript, Java, .NET, Ruby, PHP, Perl, LuaJIT, Erlang and Elixir, and
shows them on a page of its own or sends them on, by pipelines that are
configured as those of the OpenTelemetry Collector.";

pub fn run(workspace: &Workspace, report: &mut Report, options: &[&str]) -> Result<()> {
    let (mut arch, mut binary) = (None, None);
    let (mut is_tested, mut is_built_twice) = (false, false);
    let mut options = options.iter();
    while let Some(option) = options.next() {
        match ARCHES.into_iter().find(|arch| arch.name == *option) {
            Some(named) => arch = Some(named),
            None if *option == "--test" => is_tested = true,
            None if *option == "--twice" => is_built_twice = true,
            None if *option == "--binary" => {
                let file = options.next().context("--binary needs a file")?;
                binary = Some(PathBuf::from(file));
            }
            None => bail!(
                "unexpected argument `{option}`: expected x86_64, aarch64, --binary, --test or --twice"
            ),
        }
    }
    let host = Arch::of_host().context(SUPPORTED)?;
    let arch = arch.unwrap_or(host);
    if is_tested && arch != host {
        bail!(
            "packages for {} cannot be tested on {}",
            arch.name,
            host.name
        );
    }
    let directory = workspace.target.join("packages");
    if is_built_twice && binary.is_some() {
        bail!("--twice builds the binary, so it excludes --binary");
    }
    write(workspace, arch, binary, &directory)?;
    if is_built_twice {
        check_binary(workspace, arch)?;
    }
    match is_tested {
        true => test(workspace, report, &directory),
        false => Ok(()),
    }
}

/// `cargo xtask dist --test --twice` if the host has the tools; else reports the missing ones.
pub fn nightly(workspace: &Workspace, report: &mut Report) -> Result<()> {
    match missing(&["dpkg-deb", "rpmbuild", "lintian", "buildah", "mmdebstrap"]) {
        None => run(workspace, report, &["--test", "--twice"]),
        Some(tool) => {
            report.skip("the packages", &format!("{tool} not found"));
            Ok(())
        }
    }
}

/// Writes only the chart's archive into `directory`.
pub fn chart(workspace: &Workspace, directory: &Path) -> Result<PathBuf> {
    let arch = Arch::of_host().context(SUPPORTED)?;
    let release = Release::of(workspace, arch)?;
    kubernetes::chart(&workspace.root, &release, directory, directory)
}

fn write(
    workspace: &Workspace,
    arch: Arch,
    binary: Option<PathBuf>,
    directory: &Path,
) -> Result<()> {
    if let Some(tool) = missing(&["dpkg-deb", "rpmbuild", "tar", "gzip", "sha256sum"]) {
        bail!("`{tool}` not found; on Debian `apt-get install dpkg rpm tar gzip coreutils`");
    }
    let release = Release::of(workspace, arch)?;
    let binary = match binary {
        Some(binary) => binary,
        None => binary::build(workspace, arch)?,
    };
    binary::check(&binary)?;
    let linked = dependencies::linked(workspace, &binary::target(arch))?;
    if directory.exists() {
        fs::remove_dir_all(directory).context("failed to remove the previous packages")?;
    }
    fs::create_dir_all(directory).context("failed to create the package directory")?;
    let bare = directory.join(release.file_name("", ""));
    fs::copy(&binary, &bare).context("failed to copy the binary")?;
    let sbom = directory.join(release.file_name("", ".cdx.json"));
    fs::write(&sbom, sbom::document(&release, &linked)?).context("failed to write the SBOM")?;
    // Build twice to detect nondeterministic order or timestamps.
    let work = workspace.target.join("packages-work");
    let files = Files::of(workspace, &binary, &release, &linked)?;
    let (made, again) = (directory, work.join("again"));
    for directory in [made, &again] {
        fs::create_dir_all(directory).context("failed to create a directory")?;
        debian::build(&files, &release, "1", &work, directory)?;
        rpm::build(&files, &release, "1", &work, directory)?;
        image::build(&files, &release, &work, directory)?;
        kubernetes::build(&workspace.root, &release, &work, directory)?;
    }
    compare(&again, made)?;
    // The version a test upgrades to.
    let next = workspace.target.join("packages-next");
    clear(&next)?;
    let changed = files.with_changed_configuration()?;
    debian::build(&changed, &release, "2", &work, &next)?;
    rpm::build(&changed, &release, "2", &work, &next)?;
    fs::remove_dir_all(&work).context("failed to remove the work directory")?;
    checksums(made)?;
    for file in sorted(made)? {
        let size = fs::metadata(&file).context("failed to read the artifact's metadata")?;
        println!("{:9} kB  {}", size.len() / 1000, file.display());
    }
    Ok(())
}

/// Builds the binary again, from a copy of the sources in another directory, and compares the bytes.
fn check_binary(workspace: &Workspace, arch: Arch) -> Result<()> {
    let copy = workspace.target.join("dist-again");
    clear(&copy)?;
    workspace.copy_sources(&copy.join("sources"))?;
    let mut again = Workspace::load_from(&copy.join("sources/Cargo.toml"))?;
    again.target = copy.join("target");
    let made = binary::build(workspace, arch)?;
    let remade = binary::build(&again, arch)?;
    if !are_same(&made, &remade)? {
        bail!(
            "the binary is not reproducible: {} and {} differ",
            made.display(),
            remade.display()
        );
    }
    println!("The binary is reproducible.");
    fs::remove_dir_all(&copy).context("failed to remove the second build")
}

/// Installs, starts, upgrades and removes the packages on a host with a real systemd (`tests/packages`).
fn test(workspace: &Workspace, report: &mut Report, directory: &Path) -> Result<()> {
    let Some(system) = systemd::system(workspace, report)? else {
        return Ok(());
    };
    process::run(
        test::ignored(workspace, "packages")
            .arg("--nocapture")
            .env("PROFCOL_SYSTEMD", system)
            .env("PROFCOL_PACKAGES", directory),
    )
}

/// Checks that `other` has each file of `directory` with the same bytes.
fn compare(directory: &Path, other: &Path) -> Result<()> {
    for file in sorted(directory)? {
        let name = file.file_name().unwrap_or_default();
        if !are_same(&file, &other.join(name))? {
            bail!("{} is not reproducible", name.display());
        }
    }
    Ok(())
}

/// Whether two files have the same bytes.
fn are_same(one: &Path, other: &Path) -> Result<bool> {
    let read =
        |path: &Path| fs::read(path).with_context(|| format!("failed to read {}", path.display()));
    Ok(read(one)? == read(other)?)
}

fn checksums(directory: &Path) -> Result<()> {
    let mut sums = Command::new("sha256sum");
    sums.arg("--").current_dir(directory);
    for file in sorted(directory)? {
        sums.arg(file.file_name().unwrap_or_default());
    }
    let sums = process::output(&mut sums)?;
    fs::write(directory.join("SHA256SUMS"), sums).context("failed to write the checksums")
}

fn sorted(directory: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(directory)
        .with_context(|| format!("failed to list {}", directory.display()))?
        .collect::<Result<Vec<_>, _>>()?;
    let mut paths: Vec<_> = entries.iter().map(fs::DirEntry::path).collect();
    paths.sort();
    Ok(paths)
}

/// Creates an empty directory.
fn clear(directory: &Path) -> Result<()> {
    if directory.exists() {
        fs::remove_dir_all(directory)
            .with_context(|| format!("failed to remove {}", directory.display()))?;
    }
    fs::create_dir_all(directory)
        .with_context(|| format!("failed to create {}", directory.display()))
}

fn missing<'a>(tools: &[&'a str]) -> Option<&'a str> {
    let is_there = |tool: &&str| process::succeeds(Command::new("which").arg(tool));
    tools.iter().copied().find(|tool| !is_there(tool))
}

// === impl Arch ===

impl Arch {
    pub fn of_host() -> Option<Self> {
        ARCHES
            .into_iter()
            .find(|arch| arch.name == std::env::consts::ARCH)
    }
}

// === impl Release ===

impl Release {
    fn of(workspace: &Workspace, arch: Arch) -> Result<Self> {
        let git = |format: &str| {
            let mut git = Command::new("git");
            let format = format!("--format={format}");
            git.args(["log", "--max-count=1", &format]);
            process::output(git.current_dir(&workspace.root))
        };
        let mut packages = workspace.packages.iter();
        let program = packages.find(|package| package.name == PACKAGE);
        Ok(Self {
            arch,
            version: program.context("package not found")?.version.clone(),
            commit: git("%H")?.trim().to_owned(),
            epoch: git("%ct")?
                .trim()
                .parse()
                .context("git printed no commit time")?,
            maintainer: MAINTAINER,
            summary: SUMMARY,
            description: DESCRIPTION,
        })
    }

    /// `profcol-0.1.0-linux-x86_64.cdx.json`
    fn file_name(&self, part: &str, ending: &str) -> String {
        let Self { arch, version, .. } = self;
        format!("{PACKAGE}-{version}-linux-{}{part}{ending}", arch.name)
    }

    /// Commit time, formatted by `date`.
    fn date(&self, format: &str) -> Result<String> {
        let mut date = Command::new("date");
        date.args(["--utc", &format!("--date=@{}", self.epoch)]);
        let date = process::output(date.arg(format).env("LC_ALL", "C"))?;
        Ok(date.trim().to_owned())
    }
}
