//! Unused dependencies: each dependency in a `Cargo.toml` must be named in the crate's sources, and each workspace
//! dependency must be used by a crate. A dependency that only tests name is a dev dependency.
//!
//! This checks the source text, so a module named like a crate hides an unused dependency.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::modules::without_items;
use crate::siblings::sources;
use crate::workspace::{Package, Target, Workspace};

/// Dependencies not named in sources, with the reason.
const NEEDED: &[(&str, &str)] = &[(
    "k8s-openapi",
    "its feature selects the API version of kube's objects",
)];

pub fn violations(workspace: &Workspace) -> Result<Vec<String>> {
    let mut problems = Vec::new();
    let mut used = BTreeSet::new();
    for package in &workspace.packages {
        let files = files(package)?;
        let all = text(files.iter().map(|(_, text)| text.as_str()));
        let product = product(package, &files);
        for dependency in &package.dependencies {
            let name = dependency.name.as_str();
            let written = dependency.rename.as_deref().unwrap_or(name);
            used.insert(written);
            let written = written.replace('-', "_");
            if NEEDED.iter().any(|(needed, _)| *needed == name) {
                continue;
            }
            let package = &package.name;
            if !names(&all, &written) {
                problems.push(format!(
                    "crate `{package}` does not use its dependency `{name}`"
                ));
            } else if dependency.kind.is_none() && !names(&product, &written) {
                problems.push(format!(
                    "only tests of crate `{package}` use `{name}`: make it a dev dependency"
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

/// The source files of a crate including tests and benches.
fn files(package: &Package) -> Result<Vec<(PathBuf, String)>> {
    let targets = package.targets.iter().map(|target| target.path.as_path());
    let directories: BTreeSet<&Path> = targets.filter_map(Path::parent).collect();
    let mut files = BTreeMap::new();
    for directory in directories {
        for file in sources(directory)? {
            let text = read(&file)?;
            files.insert(file, text);
        }
    }
    Ok(files.into_iter().collect())
}

/// Code without comments.
fn text<'a>(files: impl Iterator<Item = &'a str>) -> String {
    let lines = files.flat_map(str::lines);
    let code = lines.filter(|line| !line.trim_start().starts_with("//"));
    code.flat_map(|line| [line, "\n"]).collect()
}

/// The code without that of tests and examples.
fn product(package: &Package, files: &[(PathBuf, String)]) -> String {
    let (tests, others): (Vec<&Target>, Vec<&Target>) =
        package.targets.iter().partition(|target| target.is_test());
    let directory = |target: &&Target| target.path.parent().map(Path::to_owned);
    let directories: Vec<PathBuf> = others.iter().filter_map(directory).collect();
    let mut excluded: Vec<PathBuf> = tests.iter().filter_map(directory).collect();
    // Where a crate keeps both in one directory, only the files of the targets tell them apart.
    excluded.retain(|excluded| {
        !directories
            .iter()
            .any(|directory| directory.starts_with(excluded))
    });
    excluded.extend(tests.iter().map(|target| target.path.clone()));
    excluded.extend(
        files
            .iter()
            .flat_map(|(file, text)| test_modules(file, text)),
    );
    let is_product = |file: &Path| {
        directories
            .iter()
            .any(|directory| file.starts_with(directory))
            && !excluded.iter().any(|excluded| file.starts_with(excluded))
    };
    let files = files.iter().filter(|(file, _)| is_product(file));
    text(
        files
            .map(|(_, text)| without_tests(text))
            .collect::<Vec<_>>()
            .iter()
            .map(String::as_str),
    )
}

const ONLY_TEST: &str = "#[cfg(test)]";

/// The files and directories of modules that are compiled for tests only.
fn test_modules(file: &Path, text: &str) -> Vec<PathBuf> {
    let stem = file
        .file_stem()
        .and_then(|stem| stem.to_str())
        .unwrap_or_default();
    let directory = match (file.parent(), stem) {
        (Some(directory), "mod" | "lib" | "main") => directory.to_owned(),
        _ => file.with_extension(""),
    };
    let marked = text.lines().zip(text.lines().skip(1));
    marked
        .filter(|(mark, _)| mark.trim() == ONLY_TEST)
        .filter_map(|(_, item)| {
            let item = item
                .trim()
                .trim_start_matches("pub ")
                .trim_start_matches("pub(crate) ");
            item.strip_prefix("mod ")?.strip_suffix(';')
        })
        .flat_map(|name| [directory.join(name), directory.join(format!("{name}.rs"))])
        .collect()
}

/// A file without the items for tests. What a feature compiles, too, stays.
fn without_tests(text: &str) -> String {
    without_items(text.lines(), |line| line.trim() == ONLY_TEST)
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
    fn leaves_out_what_only_tests_compile() {
        let text = "use a::A;\n#[cfg(test)]\nuse b::B;\n#[cfg(test)]\nmod tests;\nmod c;\n\
                    #[cfg(test)]\nmod inline {\n    use d::D;\n}\nfn e() {}\n";
        assert_eq!(without_tests(text), "use a::A;\nmod c;\nfn e() {}\n");
        for (file, directory) in [
            ("src/lib.rs", "src"),
            ("src/x.rs", "src/x"),
            ("x/mod.rs", "x"),
        ] {
            let expected = [
                Path::new(directory).join("tests"),
                Path::new(directory).join("tests.rs"),
            ];
            assert_eq!(test_modules(Path::new(file), text), expected, "{file}");
        }
    }

    #[test]
    fn reads_workspace_dependencies() {
        let manifest = "[package]\nname = \"a\"\n\n[workspace.dependencies]\na = \"1\"\n\n# Why.\n\
                        b-c = { version = \"2\" }\n\n[features]\nd = []\n";
        assert_eq!(shared(manifest).collect::<Vec<_>>(), ["a", "b-c"]);
    }
}
