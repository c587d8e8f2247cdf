//! The dependency direction between the crates of the workspace:
//!
//! ```text
//! profile ◄─ labels, pprof, flamegraph ◄─ parca, files, pyroscope ◄─ components/* ◄─ profcol (the binary)
//! profile, config, admission ◄─ component ◄─ engine, components/*
//! config, admission ◄─ net ◄─ engine, components/*
//! component ◄─ storage ◄─ engine, extensions
//! component, flamegraph, labels ◄─ history ◄─ exporters, profcol
//! component, parca ◄─ padata ◄─ receivers, profcol
//! printable ◄─ config, engine, exporters
//! elf ◄─ debuginfo ◄─ exporters, symbols ◄─ processors, receivers
//! elf ◄─ processes ◄─ receivers, metadata ◄─ processors, profcol
//! elf, ebpf-common ◄─ ebpf-unwind ◄─ ebpf-interpreters ◄─ ebpf-loader ◄─ receivers
//! processes ◄─ ebpf-interpreters
//! ```
//!
//! The engine does not depend on component crates, and component crates depend neither on the engine nor on another
//! kind: only the binary uses both. A crate missing from the table fails the check, so that its layer is decided when
//! it is added. Dev dependencies follow the same rules.

use crate::workspace::Workspace;

/// A dev dependency of any crate.
const ANYWHERE: &str = "profcol-test-skip";

/// Each crate with its allowed dependencies; `*` allows all.
const MAY_USE: &[(&str, &[&str])] = &[
    ("profcol-printable", &[]),
    ("profcol-profile", &[]),
    ("profcol-config", &["profcol-printable"]),
    ("profcol-admission", &[]),
    (
        "profcol-component",
        &["profcol-admission", "profcol-profile", "profcol-config"],
    ),
    ("profcol-net", &["profcol-admission", "profcol-config"]),
    ("profcol-storage", &["profcol-component"]),
    (
        "profcol-history",
        &[
            "profcol-component",
            "profcol-flamegraph",
            "profcol-labels",
            "profcol-profile",
        ],
    ),
    ("profcol-elf", &[]),
    ("profcol-debuginfo", &["profcol-elf"]),
    ("profcol-symbols", &["profcol-debuginfo", "profcol-elf"]),
    ("profcol-labels", &["profcol-config", "profcol-profile"]),
    ("profcol-flamegraph", &["profcol-profile"]),
    (
        "profcol-files",
        &["profcol-flamegraph", "profcol-pprof", "profcol-profile"],
    ),
    ("profcol-pprof", &["profcol-profile"]),
    (
        "profcol-pyroscope",
        &["profcol-flamegraph", "profcol-pprof"],
    ),
    (
        "profcol-parca",
        &["profcol-labels", "profcol-pprof", "profcol-profile"],
    ),
    (
        "profcol-padata",
        &["profcol-component", "profcol-parca", "profcol-profile"],
    ),
    ("profcol-processes", &["profcol-elf"]),
    (
        "profcol-metadata",
        &[
            "profcol-component",
            "profcol-net",
            "profcol-processes",
            "profcol-profile",
        ],
    ),
    ("profcol-ebpf-common", &[]),
    (
        "profcol-ebpf-unwind",
        &["profcol-ebpf-common", "profcol-elf"],
    ),
    (
        "profcol-ebpf-interpreters",
        &[
            "profcol-ebpf-common",
            "profcol-ebpf-unwind",
            "profcol-elf",
            "profcol-processes",
        ],
    ),
    (
        "profcol-ebpf-loader",
        &[
            "profcol-ebpf-common",
            "profcol-ebpf-interpreters",
            "profcol-ebpf-unwind",
            "profcol-elf",
        ],
    ),
    ("profcol-engine", BELOW_ENGINE),
    ("profcol-receivers", BELOW_RECEIVERS),
    ("profcol-processors", BELOW_PROCESSORS),
    ("profcol-exporters", BELOW_EXPORTERS),
    ("profcol-extensions", BELOW_COMPONENTS),
    ("profcol", &["*"]),
    ("profcol-benches", &["*"]),
    ("profcol-test-harness", &["profcol-net", "profcol-profile"]),
    (ANYWHERE, &[]),
    ("xtask", &[]),
];

const BELOW_RECEIVERS: &[&str] = &[
    "profcol-admission",
    "profcol-profile",
    "profcol-config",
    "profcol-component",
    "profcol-net",
    "profcol-padata",
    "profcol-parca",
    "profcol-pprof",
    "profcol-ebpf-interpreters",
    "profcol-ebpf-loader",
    "profcol-processes",
    "profcol-symbols",
];

const BELOW_PROCESSORS: &[&str] = &[
    "profcol-admission",
    "profcol-profile",
    "profcol-config",
    "profcol-component",
    "profcol-debuginfo",
    "profcol-elf",
    "profcol-labels",
    "profcol-metadata",
    "profcol-net",
    "profcol-processes",
    "profcol-symbols",
];

const BELOW_EXPORTERS: &[&str] = &[
    "profcol-printable",
    "profcol-profile",
    "profcol-config",
    "profcol-component",
    "profcol-files",
    "profcol-flamegraph",
    "profcol-history",
    "profcol-labels",
    "profcol-net",
    "profcol-parca",
    "profcol-pprof",
    "profcol-pyroscope",
    "profcol-debuginfo",
];

const BELOW_ENGINE: &[&str] = &[
    "profcol-admission",
    "profcol-printable",
    "profcol-profile",
    "profcol-config",
    "profcol-component",
    "profcol-net",
    "profcol-storage",
];

const BELOW_COMPONENTS: &[&str] = &[
    "profcol-admission",
    "profcol-profile",
    "profcol-config",
    "profcol-component",
    "profcol-labels",
    "profcol-net",
    "profcol-parca",
    "profcol-storage",
];

/// `(user, used)`.
pub type Edge<'a> = (&'a str, &'a str);

/// All dependencies between workspace crates, and each crate with itself, so that every crate is checked.
pub fn edges(workspace: &Workspace) -> Vec<Edge<'_>> {
    let mut edges = Vec::new();
    for package in &workspace.packages {
        edges.push((package.name.as_str(), package.name.as_str()));
        for dependency in &package.dependencies {
            if dependency.path.is_some() {
                edges.push((package.name.as_str(), dependency.name.as_str()));
            }
        }
    }
    edges
}

pub fn violations(edges: &[Edge<'_>]) -> Vec<String> {
    edges
        .iter()
        .filter_map(|&(user, used)| violation(user, used))
        .collect()
}

fn violation(user: &str, used: &str) -> Option<String> {
    let Some((_, allowed)) = MAY_USE.iter().find(|(name, _)| *name == user) else {
        return Some(format!(
            "crate `{user}` is missing from the table in xtask/src/layers.rs"
        ));
    };
    let fine =
        user == used || used == ANYWHERE || allowed.contains(&"*") || allowed.contains(&used);
    (!fine).then(|| format!("crate `{user}` depends on `{used}`, which is not in a lower layer"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allows_lower_layers_only() {
        for (user, used, fine) in [
            ("profcol-component", "profcol-profile", true),
            ("profcol-exporters", "profcol-net", true),
            ("profcol", "profcol-engine", true),
            ("profcol-profile", "profcol-component", false),
            ("profcol-config", "profcol-profile", false),
            ("profcol-engine", "profcol-exporters", false),
            ("profcol-exporters", "profcol-engine", false),
            ("profcol-exporters", "profcol-receivers", false),
            ("profcol-net", "profcol-component", false),
            ("profcol-unheard-of", "profcol-unheard-of", false),
        ] {
            assert_eq!(
                violations(&[(user, used)]).is_empty(),
                fine,
                "{user} -> {used}"
            );
        }
    }
}
