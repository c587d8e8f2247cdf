//! What `cargo metadata` says about this workspace.

use std::collections::BTreeMap;
use std::path::PathBuf;
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
    pub features: BTreeMap<String, Vec<String>>,
    pub dependencies: Vec<Dependency>,
    pub targets: Vec<Target>,
}

/// A library, program, test, bench or example.
#[derive(Deserialize)]
pub struct Target {
    #[serde(rename = "src_path")]
    pub path: PathBuf,
}

#[derive(Deserialize)]
pub struct Dependency {
    pub name: String,
    /// The name that the crate has in the sources, where that is another one.
    pub rename: Option<String>,
    /// Set for dependencies inside the workspace, which have no version.
    pub path: Option<PathBuf>,
}

impl Workspace {
    pub fn load() -> Result<Self> {
        let text = process::output(Command::new(cargo()).args([
            "metadata",
            "--format-version=1",
            "--no-deps",
        ]))?;
        serde_json::from_str(&text).context("failed to read the answer of `cargo metadata`")
    }

    /// `cargo <arguments>` in the workspace root.
    pub fn cargo(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(cargo());
        command.args(arguments).current_dir(&self.root);
        command
    }
}

/// The cargo that runs this task, so that `cargo +toolchain xtask` stays with that toolchain.
fn cargo() -> String {
    std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned())
}
