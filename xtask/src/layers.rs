//! The dependency direction between the crates. The map in `docs/architecture.md` states it, and this check demands
//! that each `Cargo.toml` says the same: its own crates in `[dependencies]` are those in the column `may depend on`.
//!
//! A crate without a row fails the check, so that its layer is decided when it is added. Dev dependencies stay within
//! the row, too.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use crate::workspace::{Package, Workspace};

/// The page with the map.
pub const PAGE: &str = "docs/architecture.md";

/// The first line of the map.
const HEADING: &str = "| directory | purpose | may depend on |";

/// Cells of the column `may depend on`.
const EVERYTHING: &str = "everything";
const NOTHING: &str = "no own crate";

/// The row of the crate in the root.
const BINARY: &str = "src";

/// A dev dependency of any crate.
const ANYWHERE: &str = "tests/skip";

/// Only a crate that may depend on everything uses these.
const TOP: &[&str] = &["components/", "pipeline/engine"];

/// The workspace apart from the main one, which needs another compiler.
const BPF: &str = "ebpf/Cargo.toml";

/// The dependencies of one crate, as directories.
#[derive(Default)]
struct Crate {
    uses: BTreeSet<String>,
    tests_use: BTreeSet<String>,
}

/// A cell of the column `may depend on`.
enum Allowed<'a> {
    Everything,
    /// Directories, or their last parts.
    Only(Vec<&'a str>),
}

pub fn violations(workspace: &Workspace) -> Result<Vec<String>> {
    let page = workspace.root.join(PAGE);
    let page =
        fs::read_to_string(&page).with_context(|| format!("failed to read {}", page.display()))?;
    let mut crates = BTreeMap::new();
    add(&mut crates, &workspace.packages, &workspace.root);
    let bpf = Workspace::load_from(&workspace.root.join(BPF))?;
    add(&mut crates, &bpf.packages, &workspace.root);
    Ok(compare(&page, &crates))
}

fn add(crates: &mut BTreeMap<String, Crate>, packages: &[Package], root: &Path) {
    for package in packages {
        let Some(directory) = package.manifest_path.parent() else {
            continue;
        };
        let mut found = Crate::default();
        for dependency in &package.dependencies {
            let Some(path) = &dependency.path else {
                continue;
            };
            let used = directory_name(path, root);
            match dependency.kind.as_deref() {
                Some("dev") => found.tests_use.insert(used),
                _ => found.uses.insert(used),
            };
        }
        crates.insert(directory_name(directory, root), found);
    }
}

fn directory_name(directory: &Path, root: &Path) -> String {
    let name = directory.strip_prefix(root).unwrap_or(directory);
    match name.to_string_lossy() {
        name if name.is_empty() => BINARY.to_owned(),
        name => name.into_owned(),
    }
}

/// Compares the map of `page` with the crates by directory.
fn compare(page: &str, crates: &BTreeMap<String, Crate>) -> Vec<String> {
    let rows = rows(page);
    let missing = crates
        .keys()
        .filter(|directory| !rows.contains_key(directory.as_str()));
    let mut problems: Vec<String> = missing
        .map(|directory| format!("crate `{directory}` is missing from the map in {PAGE}"))
        .collect();
    for (directory, cell) in rows {
        let Allowed::Only(names) = allowed(cell) else {
            continue;
        };
        match crates.get(directory) {
            Some(found) => problems.extend(compare_row(directory, &names, found, crates)),
            None if names.is_empty() => {}
            None => problems.push(format!(
                "the map in {PAGE} lists dependencies of `{directory}`, which is no crate"
            )),
        }
    }
    problems
}

fn compare_row(
    directory: &str,
    names: &[&str],
    found: &Crate,
    crates: &BTreeMap<String, Crate>,
) -> Vec<String> {
    let mut problems = Vec::new();
    let mut stated = BTreeSet::new();
    for name in names {
        match resolve(name, crates) {
            Some(used) => drop(stated.insert(used)),
            None => problems.push(format!(
                "row `{directory}` names `{name}`, which is no crate or several"
            )),
        }
    }
    let used: BTreeSet<&str> = found.uses.iter().map(String::as_str).collect();
    let mut add = |used: &str, what: &str| {
        problems.push(format!("crate `{directory}` depends on `{used}`{what}"));
    };
    for extra in used.difference(&stated) {
        add(extra, ", which its row does not say");
    }
    for unused in stated.difference(&used) {
        add(unused, " in its row only, not in its Cargo.toml");
    }
    for extra in &found.tests_use {
        if extra != directory && extra != ANYWHERE && !stated.contains(extra.as_str()) {
            add(extra, " in its tests, which its row does not say");
        }
    }
    for above in stated {
        if TOP.iter().any(|top| above.starts_with(top)) {
            add(above, ": only the binary, benches and tests may");
        }
    }
    let place = |problem| format!("{problem} (the map in {PAGE})");
    problems.into_iter().map(place).collect()
}

/// The rows of the map: directory and allowed dependencies.
fn rows(page: &str) -> BTreeMap<&str, &str> {
    let table = page.lines().skip_while(|line| *line != HEADING).skip(2);
    table
        .map_while(|line| line.strip_prefix("| ")?.strip_suffix('|'))
        .filter_map(|line| {
            let (directory, rest) = line.split_once(" | ")?;
            let (_, cell) = rest.rsplit_once("| ")?;
            Some((
                directory.trim().trim_matches('`').trim_end_matches('/'),
                cell,
            ))
        })
        .collect()
}

fn allowed(cell: &str) -> Allowed<'_> {
    match cell.trim() {
        EVERYTHING => Allowed::Everything,
        cell if cell.starts_with(NOTHING) => Allowed::Only(Vec::new()),
        cell => Allowed::Only(cell.split('`').skip(1).step_by(2).collect()),
    }
}

/// The directory with this name or last part, unless several have it.
fn resolve<'a>(name: &str, crates: &'a BTreeMap<String, Crate>) -> Option<&'a str> {
    let is_named = |directory: &&String| {
        let last = directory.rsplit('/').next();
        *directory == name || last == Some(name)
    };
    let mut found = crates.keys().filter(is_named);
    let directory = found.next()?;
    found.next().is_none().then_some(directory)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAP: &str = "\
# Architecture

| directory | purpose | may depend on |
|---|---|---|
| `src/` | the binary: `a | b` | everything |
| `pipeline/model` | the model | no own crate; no `std` |
| `pipeline/engine` | runs | `model` |
| `components/sinks` | sinks | `model`, and more |
| `deploy/` | a chart | |

`other` text
";

    fn problems(map: &str, edit: impl FnOnce(&mut BTreeMap<String, Crate>)) -> Vec<String> {
        let used = |names: &[&str]| Crate {
            uses: names.iter().map(|&name| name.to_owned()).collect(),
            tests_use: BTreeSet::from(["tests/skip".to_owned()]),
        };
        let mut crates = BTreeMap::from([
            (
                BINARY.to_owned(),
                used(&["pipeline/engine", "components/sinks"]),
            ),
            ("pipeline/model".to_owned(), used(&[])),
            ("pipeline/engine".to_owned(), used(&["pipeline/model"])),
            ("components/sinks".to_owned(), used(&["pipeline/model"])),
        ]);
        edit(&mut crates);
        compare(map, &crates)
    }

    #[test]
    fn accepts_a_map_that_is_equal_to_the_manifests() {
        assert_eq!(problems(MAP, |_| {}), [""; 0]);
    }

    #[test]
    fn refuses_what_only_a_manifest_or_only_the_map_says() {
        let only_one = |problems: Vec<String>, part: &str| {
            assert_eq!(problems.len(), 1, "{problems:?}");
            assert!(problems[0].contains(part), "{problems:?}");
        };
        let uses = |user: &'static str, used: &'static str| {
            move |crates: &mut BTreeMap<String, Crate>| {
                let user = crates.entry(user.to_owned()).or_default();
                user.uses.insert(used.to_owned());
            }
        };
        let extra = problems(MAP, uses("pipeline/model", "pipeline/engine"));
        only_one(extra, "which its row does not say");
        let new = problems(MAP, uses("components/more", "pipeline/model"));
        only_one(new, "`components/more` is missing from the map");
        let missing = MAP.replace("| `model` |", "| `model`, `src` |");
        only_one(problems(&missing, |_| {}), "not in its Cargo.toml");
        let unknown = MAP.replace("| `model` |", "| `model`, `nothing` |");
        only_one(problems(&unknown, |_| {}), "which is no crate");
        let no_crate = MAP.replace("a chart | |", "a chart | `model` |");
        only_one(problems(&no_crate, |_| {}), "which is no crate");
        let in_tests = problems(MAP, |crates| {
            let model = crates.get_mut("pipeline/model").unwrap();
            model.tests_use.insert("components/sinks".to_owned());
        });
        only_one(in_tests, "in its tests");
        let upwards = MAP.replace("| `model` |", "| `model`, `sinks` |");
        let upwards = problems(&upwards, uses("pipeline/engine", "components/sinks"));
        only_one(upwards, "only the binary");
    }
}
