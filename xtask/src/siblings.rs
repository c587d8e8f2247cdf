//! Components must not reference siblings: shared code belongs in `shared/` of their kind, or in `pipeline/`. Cargo
//! cannot enforce this within a crate, so the source text is checked.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// The directory that every component of a kind may use.
const SHARED: &str = "shared";

/// The component crates, and the file of the binary that lists them.
const KINDS: &[&str] = &[
    "profcol_receivers",
    "profcol_processors",
    "profcol_exporters",
    "profcol_connectors",
    "profcol_extensions",
];
const REGISTRY: &str = "components.rs";

/// The crate that loads BPF programs, and its only user outside of `ebpf/`, benches and tests.
const LOADER: &str = "profcol_ebpf_loader";
const SAMPLER: &str = "components/receivers/ebpf_cpu";

/// Checks `components/<kind>/<component>/**/*.rs`.
pub fn violations(components: &Path) -> Result<Vec<String>> {
    let mut problems = Vec::new();
    for kind in directories(components)? {
        let components = directories(&kind)?;
        let names: BTreeSet<&str> = components
            .iter()
            .filter_map(|path| path.file_name()?.to_str())
            .collect();
        for component in &components {
            let own = component
                .file_name()
                .and_then(|name| name.to_str())
                .unwrap_or_default();
            for file in sources(component)? {
                let text = fs::read_to_string(&file)
                    .with_context(|| format!("failed to read {}", file.display()))?;
                for named in crate_names(&text) {
                    if named != own && named != SHARED && names.contains(named) {
                        problems.push(format!(
                            "{} references its sibling `{named}`",
                            file.display()
                        ));
                    }
                }
            }
        }
    }
    Ok(problems)
}

/// Only one file of the binary may name component crates: the command line shares libraries with components.
pub fn binary_violations(src: &Path) -> Result<Vec<String>> {
    let mut problems = Vec::new();
    for file in sources(src)? {
        if file.file_name().is_some_and(|name| name == REGISTRY) {
            continue;
        }
        let text = fs::read_to_string(&file)
            .with_context(|| format!("failed to read {}", file.display()))?;
        for kind in KINDS.iter().filter(|kind| text.contains(*kind)) {
            problems.push(format!("{} names `{kind}`", file.display()));
        }
    }
    Ok(problems)
}

/// Only the receiver `ebpf_cpu` uses the loader of BPF programs.
pub fn ebpf_violations(root: &Path) -> Result<Vec<String>> {
    let sampler = root.join(SAMPLER);
    let mut problems = Vec::new();
    for room in ["components", "src"] {
        for file in sources(&root.join(room))? {
            let text = fs::read_to_string(&file)
                .with_context(|| format!("failed to read {}", file.display()))?;
            if text.contains(LOADER) && !file.starts_with(&sampler) {
                problems.push(format!("{} uses `{LOADER}`", file.display()));
            }
        }
    }
    Ok(problems)
}

/// The first name after each `crate::`, and those in `crate::{`. A `super::super::` path could leave the component's
/// directory, so the name after it counts too.
fn crate_names(text: &str) -> BTreeSet<&str> {
    let mut names = BTreeSet::new();
    for root in ["crate::", "super::"] {
        for (at, _) in text.match_indices(root) {
            let rest = text.get(at + root.len()..).unwrap_or_default();
            match rest.strip_prefix('{') {
                Some(group) => names.extend(group_names(group)),
                None => names.extend(identifier(rest)),
            }
        }
    }
    names
}

/// The first name of each member of `a::b, c::{d, e}, f}`.
fn group_names(group: &str) -> Vec<&str> {
    let mut names = Vec::new();
    let (mut depth, mut start) = (0_usize, 0);
    for (at, character) in group.char_indices() {
        let ends_member = depth == 0 && matches!(character, ',' | '}');
        if ends_member {
            names.extend(
                group
                    .get(start..at)
                    .and_then(|member| identifier(member.trim())),
            );
            start = at + 1;
        }
        match character {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            _ => {}
        }
    }
    names
}

pub fn identifier(text: &str) -> Option<&str> {
    let end = text
        .find(|c: char| !c.is_alphanumeric() && c != '_')
        .unwrap_or(text.len());
    text.get(..end).filter(|name| !name.is_empty())
}

fn directories(path: &Path) -> Result<Vec<PathBuf>> {
    Ok(entries(path)?
        .into_iter()
        .filter(|entry| entry.is_dir())
        .collect())
}

/// All Rust files below a directory, except those that builds write.
pub fn sources(directory: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in entries(directory)? {
        if entry.ends_with("target") {
            continue;
        }
        if entry.is_dir() {
            found.extend(sources(&entry)?);
        } else if entry.extension().is_some_and(|extension| extension == "rs") {
            found.push(entry);
        }
    }
    Ok(found)
}

fn entries(directory: &Path) -> Result<Vec<PathBuf>> {
    let list = || -> std::io::Result<Vec<PathBuf>> {
        let mut paths = fs::read_dir(directory)?
            .map(|entry| Ok(entry?.path()))
            .collect::<std::io::Result<Vec<_>>>()?;
        paths.sort();
        Ok(paths)
    };
    list().with_context(|| format!("failed to list {}", directory.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two receivers, `otlp` and `pprof`, and `shared`; `text` is a file of `otlp`.
    fn check(text: &str, allowed: bool) {
        let components = tempfile::tempdir().unwrap();
        for directory in ["receivers/otlp", "receivers/pprof", "receivers/shared"] {
            fs::create_dir_all(components.path().join(directory)).unwrap();
        }
        fs::write(components.path().join("receivers/otlp/grpc.rs"), text).unwrap();
        let problems = violations(components.path()).unwrap();
        assert_eq!(problems.is_empty(), allowed, "{text}: {problems:?}");
    }

    #[test]
    fn the_binary_names_component_crates_in_one_file() {
        let src = tempfile::tempdir().unwrap();
        let write = |name, text| fs::write(src.path().join(name), text).unwrap();
        write("components.rs", "profcol_exporters::ALL");
        write("top.rs", "use profcol_history::Recent;");
        assert_eq!(binary_violations(src.path()).unwrap(), [""; 0]);
        write("top.rs", "use profcol_exporters::live_view::Recent;");
        assert_eq!(binary_violations(src.path()).unwrap().len(), 1);
    }

    #[test]
    fn only_ebpf_cpu_uses_the_loader() {
        let root = tempfile::tempdir().unwrap();
        for directory in [
            "components/receivers/ebpf_cpu",
            "components/receivers/otlp",
            "src",
        ] {
            fs::create_dir_all(root.path().join(directory)).unwrap();
        }
        let write = |name, text| fs::write(root.path().join(name), text).unwrap();
        write(
            "components/receivers/ebpf_cpu/mod.rs",
            "use profcol_ebpf_loader::Profiler;",
        );
        write("src/main.rs", "use profcol_ebpf_interpreters::names;");
        assert_eq!(ebpf_violations(root.path()).unwrap(), [""; 0]);
        write(
            "components/receivers/otlp/mod.rs",
            "use profcol_ebpf_loader::Profiler;",
        );
        write("src/main.rs", "profcol_ebpf_loader::check();");
        assert_eq!(ebpf_violations(root.path()).unwrap().len(), 2);
    }

    #[test]
    fn a_component_may_use_itself_and_shared_but_not_siblings() {
        check("use crate::shared::listen;", true);
        check("use crate::otlp::config::Config;", true);
        check("use crate::{otlp, shared::{listen, pprof}};", true);
        check("use pprof_format::pprof;", true);
        check("use crate::pprof::decode;", false);
        check("let x = crate::pprof::decode(b);", false);
        check("use crate::{shared::{a, b}, pprof};", false);
        check("use crate::{\n    pprof::{a, b},\n    shared,\n};", false);
        check("use super::super::pprof::decode;", false);
    }
}
