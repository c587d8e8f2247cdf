//! The crates linked into the binary, as reported by cargo.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::Deserialize;

use super::PACKAGE;
use crate::process;
use crate::workspace::Workspace;

/// By name and version.
pub type Linked = BTreeMap<(String, String), Crate>;

pub struct Crate {
    /// An SPDX expression.
    pub license: Option<String>,
    pub repository: Option<String>,
    pub directory: PathBuf,
    /// SHA-256 of the archive; `None` for crates of this repository.
    pub checksum: Option<String>,
    pub needs: BTreeSet<(String, String)>,
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
    resolve: Resolve,
}

#[derive(Deserialize)]
struct Package {
    id: String,
    name: String,
    version: String,
    license: Option<String>,
    repository: Option<String>,
    manifest_path: PathBuf,
}

#[derive(Deserialize)]
struct Resolve {
    nodes: Vec<Node>,
}

#[derive(Deserialize)]
struct Node {
    id: String,
    dependencies: Vec<String>,
}

/// Excludes build and dev dependencies and proc macros.
pub fn linked(workspace: &Workspace, target: &str) -> Result<Linked> {
    let tree = process::output(&mut workspace.cargo(&[
        "tree",
        "--locked",
        "--package",
        PACKAGE,
        "--target",
        target,
        "--edges",
        "normal,no-proc-macro",
        "--prefix",
        "none",
        "--format",
        "{p}",
    ]))?;
    let chosen: BTreeSet<_> = tree.lines().filter_map(name_and_version).collect();
    let metadata = process::output(&mut workspace.cargo(&[
        "metadata",
        "--locked",
        "--format-version=1",
        "--filter-platform",
        target,
    ]))?;
    let Metadata { packages, resolve } = serde_json::from_str(&metadata)
        .context("failed to parse the output of `cargo metadata`")?;
    let key = |package: &Package| (package.name.clone(), package.version.clone());
    let keys: BTreeMap<_, _> = packages
        .iter()
        .map(|package| (package.id.clone(), key(package)))
        .collect();
    let mut needs: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
    for Node { id, dependencies } in resolve.nodes {
        let needed = dependencies.iter().filter_map(|id| keys.get(id)).cloned();
        needs.insert(id, needed.filter(|key| chosen.contains(key)).collect());
    }
    let checksums = checksums(&workspace.root.join("Cargo.lock"))?;
    let mut linked = Linked::new();
    for package in packages {
        let key = key(&package);
        if !chosen.contains(&key) {
            continue;
        }
        let directory = package
            .manifest_path
            .parent()
            .context("manifest has no parent directory")?;
        let found = Crate {
            license: package.license,
            repository: package.repository,
            directory: directory.to_owned(),
            checksum: checksums.get(&key).cloned(),
            needs: needs.remove(&package.id).unwrap_or_default(),
        };
        linked.insert(key, found);
    }
    anyhow::ensure!(
        linked.len() == chosen.len(),
        "`cargo tree` and `cargo metadata` list different crates"
    );
    Ok(linked)
}

/// Parses a line such as `serde v1.0.228` or `profcol-net v0.1.0 (/src/pipeline/net)`.
fn name_and_version(line: &str) -> Option<(String, String)> {
    let mut words = line.split(' ');
    let name = words.next()?;
    let version = words.next()?.strip_prefix('v')?;
    Some((name.to_owned(), version.to_owned()))
}

fn checksums(lock: &Path) -> Result<BTreeMap<(String, String), String>> {
    let text = fs::read_to_string(lock).context("failed to read Cargo.lock")?;
    let sections = text.split("[[package]]").skip(1).filter_map(|section| {
        let field = |name: &str| {
            let line = section.lines().find_map(|line| line.strip_prefix(name))?;
            Some(line.trim_matches([' ', '=', '"']).to_owned())
        };
        Some(((field("name")?, field("version")?), field("checksum")?))
    });
    Ok(sections.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_lines_of_cargo_tree() {
        let key = |name: &str, version: &str| Some((name.to_owned(), version.to_owned()));
        for (line, expected) in [
            ("serde v1.0.228", key("serde", "1.0.228")),
            ("profcol v0.1.0 (/src)", key("profcol", "0.1.0")),
            ("tokio v1.50.0 (*)", key("tokio", "1.50.0")),
            ("", None),
        ] {
            assert_eq!(name_and_version(line), expected, "{line}");
        }
    }
}
