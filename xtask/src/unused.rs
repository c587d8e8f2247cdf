//! Unused dependencies: each dependency in a `Cargo.toml` must be named in the crate's sources, and each workspace
//! dependency must be used by a crate.
//!
//! This checks the source text, so a module named like a crate hides an unused dependency.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use crate::siblings::sources;
use crate::workspace::{Package, Workspace};

/// Dependencies not named in sources, with the reason.
const NEEDED: &[(&str, &str)] = &[(
    "k8s-openapi",
    "its feature selects the API version of kube's objects",
)];

pub fn violations(workspace: &Workspace) -> Result<Vec<String>> {
    let mut problems = Vec::new();
    let mut used = BTreeSet::new();
    for package in &workspace.packages {
        let text = text(package)?;
        for dependency in &package.dependencies {
            let name = dependency.name.as_str();
            used.insert(name);
            let written = dependency.rename.as_deref().unwrap_or(name);
            let is_needed = NEEDED.iter().any(|(needed, _)| *needed == name);
            if !is_needed && !names(&text, &written.replace('-', "_")) {
                problems.push(format!(
                    "crate `{}` does not use its dependency `{name}`",
                    package.name
                ));
            }
        }
    }
    let manifest = workspace.root.join("Cargo.toml");
    let manifest = read(&manifest)?;
    for name in shared(&manifest).filter(|name| !used.contains(name)) {
        problems.push(format!("no crate uses the workspace dependency `{name}`"));
    }
    Ok(problems)
}

/// The code of a crate including tests and benches, without comments.
fn text(package: &Package) -> Result<String> {
    let files = package.targets.iter().map(|target| target.path.as_path());
    let folders: BTreeSet<&Path> = files.filter_map(Path::parent).collect();
    let mut text = String::new();
    for folder in folders {
        for file in sources(folder)? {
            for line in read(&file)?.lines() {
                if !line.trim_start().starts_with("//") {
                    text.push_str(line);
                    text.push('\n');
                }
            }
        }
    }
    Ok(text)
}

fn read(file: &Path) -> Result<String> {
    fs::read_to_string(file).with_context(|| format!("failed to read {}", file.display()))
}

/// Whether a path starts with this crate, or it is imported as a whole.
fn names(text: &str, name: &str) -> bool {
    text.match_indices(name).any(|(at, _)| {
        let before = text.get(..at).unwrap_or_default();
        let after = text.get(at + name.len()..).unwrap_or_default();
        let is_part = before.ends_with(is_letter);
        let is_below = before.ends_with("::") && before.trim_end_matches("::").ends_with(is_letter);
        let is_crate = ["::", ";", " as "].iter().any(|it| after.starts_with(it));
        is_crate && !is_part && !is_below
    })
}

fn is_letter(letter: char) -> bool {
    letter.is_alphanumeric() || letter == '_'
}

/// The names in the table `[workspace.dependencies]`.
fn shared(manifest: &str) -> impl Iterator<Item = &str> {
    let table = manifest
        .lines()
        .skip_while(|line| *line != "[workspace.dependencies]")
        .skip(1)
        .take_while(|line| !line.starts_with('['));
    table
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| Some(line.split_once(" =")?.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn detects_paths_and_imports() {
        for (text, is_named) in [
            ("use http::Uri;", true),
            ("use http;", true),
            ("use http as web;", true),
            ("let uri = ::http::Uri::default();", true),
            ("#[derive(http::Error)]", true),
            ("use http_body::Body;", false),
            ("use my_http::Uri;", false),
            ("use crate::http::Uri;", false),
            ("let http = 1 + http2;", false),
        ] {
            assert_eq!(names(text, "http"), is_named, "{text}");
        }
    }

    #[test]
    fn reads_workspace_dependencies() {
        let manifest = "[package]\nname = \"a\"\n\n[workspace.dependencies]\na = \"1\"\n\n# Why.\n\
                        b-c = { version = \"2\" }\n\n[features]\nd = []\n";
        assert_eq!(shared(manifest).collect::<Vec<_>>(), ["a", "b-c"]);
    }
}
