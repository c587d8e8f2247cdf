//! This workspace's `cargo metadata`.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use serde::Deserialize;

use crate::process;

#[derive(Deserialize)]
pub struct Workspace {
    #[serde(rename = "workspace_root")]
    pub root: PathBuf,
    #[serde(rename = "target_directory")]
    pub target: PathBuf,
    pub packages: Vec<Package>,
}

#[derive(Deserialize)]
pub struct Package {
    pub name: String,
    pub version: String,
    pub manifest_path: PathBuf,
    pub features: BTreeMap<String, Vec<String>>,
    pub dependencies: Vec<Dependency>,
    pub targets: Vec<Target>,
}

/// A library, binary, test, bench or example.
#[derive(Deserialize)]
pub struct Target {
    pub name: String,
    /// `lib`, `bin`, `test`, `bench`, `example` or `custom-build`.
    pub kind: Vec<String>,
    #[serde(rename = "src_path")]
    pub path: PathBuf,
    /// Whether `cargo test` runs it.
    #[serde(rename = "test")]
    pub is_tested: bool,
}

#[derive(Deserialize)]
pub struct Dependency {
    pub name: String,
    /// The name in the sources, if renamed.
    pub rename: Option<String>,
    /// Set for workspace members, which have no version.
    pub path: Option<PathBuf>,
    /// `dev` or `build`, if not a normal one.
    pub kind: Option<String>,
}

impl Target {
    /// Whether only `cargo test` builds it.
    pub fn is_test(&self) -> bool {
        let is = |kind: &String| matches!(kind.as_str(), "test" | "example");
        self.kind.iter().all(is)
    }
}

impl Workspace {
    pub fn load() -> Result<Self> {
        Self::read(&[])
    }

    /// The workspace of another `Cargo.toml`.
    pub fn load_from(manifest: &Path) -> Result<Self> {
        Self::read(&[OsStr::new("--manifest-path"), manifest.as_os_str()])
    }

    fn read(options: &[&OsStr]) -> Result<Self> {
        let metadata = ["metadata", "--format-version=1", "--no-deps"];
        let text = process::output(Command::new(cargo()).args(metadata).args(options))?;
        serde_json::from_str(&text).context("failed to parse the output of `cargo metadata`")
    }

    /// Copies all files that are not ignored, as they are now.
    pub fn copy_sources(&self, to: &Path) -> Result<()> {
        let mut list = Command::new("git");
        list.args([
            "ls-files",
            "-z",
            "--cached",
            "--others",
            "--exclude-standard",
        ]);
        for file in process::output(list.current_dir(&self.root))?.split_terminator('\0') {
            let (from, to) = (self.root.join(file), to.join(file));
            // Deleted, but still in the index.
            if !from.exists() {
                continue;
            }
            if let Some(directory) = to.parent() {
                fs::create_dir_all(directory)?;
            }
            fs::copy(&from, &to).with_context(|| format!("failed to copy {}", from.display()))?;
        }
        Ok(())
    }

    /// `cargo <arguments>` in the workspace root.
    pub fn cargo(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(cargo());
        command.args(arguments).current_dir(&self.root);
        // `cargo run` has set those of this package. Some build scripts depend on them, so that each change between
        // `cargo` and `cargo xtask` would compile their packages and all that depend on them again.
        for (name, _) in std::env::vars_os() {
            let of_package = ["CARGO_PKG_", "CARGO_MANIFEST_"];
            let name = name.to_string_lossy();
            if of_package.iter().any(|prefix| name.starts_with(prefix)) {
                command.env_remove(&*name);
            }
        }
        command
    }
}

/// The cargo that runs this task, so that `cargo +toolchain xtask` keeps that toolchain.
fn cargo() -> String {
    std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned())
}
