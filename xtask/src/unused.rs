//! Dependencies that nothing uses: each that a `Cargo.toml` names has to be named in the sources of that crate, too, and each
//! of the workspace's by a crate.
//!
//! The text of the sources is read, so a module with the name of a crate hides that nothing uses the crate.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use crate::siblings::sources;
use crate::workspace::{Package, Workspace};

/// Dependencies that no source names, and what they are there for.
const NEEDED: &[(&str, &str)] = &[(
    "k8s-openapi",
    "its feature says which version of the API kube's objects are of",
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
        problems.push(format!(
            "no crate uses `{name}`, which the workspace has for all of them"
        ));
    }
    Ok(problems)
}

/// The code of a crate, its tests and benches with it, without comments.
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

/// Whether a path begins with this crate, or it is imported as a whole.
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
    fn a_crate_is_named_by_a_path_or_an_import() {
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
    fn reads_what_the_workspace_has_for_all() {
        let manifest = "[package]\nname = \"a\"\n\n[workspace.dependencies]\na = \"1\"\n\n# Why.\n\
                        b-c = { version = \"2\" }\n\n[features]\nd = []\n";
        assert_eq!(shared(manifest).collect::<Vec<_>>(), ["a", "b-c"]);
    }
}
