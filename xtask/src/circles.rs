//! Modules with the same parent depend on each other in one direction, so that a crate can be read from the bottom up. A
//! parent and its children may know each other: they are read together. Only paths count, not calls of methods. The BPF
//! programs, which are another workspace, are apart: they call each other in turn.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::Result;

use crate::modules::Modules;
use crate::workspace::Workspace;

/// A circle that stays.
struct Exception {
    /// The file of the parent module.
    parent: &'static str,
    modules: &'static [&'static str],
    reason: &'static str,
}

const EXCEPTIONS: &[Exception] = &[
    Exception {
        parent: "ebpf/common/src/interpreter/hotspot.rs",
        modules: &["interpreted", "step"],
        reason: "a step of the walk may be through interpreted code, which continues this walk",
    },
    Exception {
        parent: "ebpf/common/src/lib.rs",
        modules: &["record", "sample_counts"],
        reason: "a record announces the key of a counted sample, which has the key of a process in it",
    },
    Exception {
        parent: "ebpf/interpreters/src/lib.rs",
        modules: &[
            "detected_interpreter",
            "perl",
            "php",
            "python",
            "ruby",
            "v8",
        ],
        reason: "each runtime detects itself, and what was detected has the layout of any runtime",
    },
    Exception {
        parent: "formats/otlp/src/json/mod.rs",
        modules: &["list", "object"],
        reason: "JSON objects hold lists, and lists hold objects",
    },
    Exception {
        parent: "pipeline/component/src/lib.rs",
        modules: &["destinations", "traits"],
        reason: "an exporter may have destinations, which are exporters",
    },
    Exception {
        parent: "pipeline/engine/src/sender/mod.rs",
        modules: &["balancer", "durable"],
        reason: "the balancer stores batches in the durable queue, which has the balancer divide what it reads",
    },
    Exception {
        parent: "pipeline/profile/src/lib.rs",
        modules: &["shared_resource", "wire"],
        reason: "a resource of a batch is decoded, or a changed one encoded, when it is first read in that form",
    },
];

/// The directories of the crates that the program, or this tool, consists of.
const ROOMS: &[&str] = &[
    "components",
    "ebpf",
    "formats",
    "host",
    "pipeline",
    "src",
    "xtask",
];

/// Sibling modules that all depend on each other, directly or through one another.
struct Circle {
    parent: String,
    modules: BTreeSet<String>,
    /// A path for each dependency within the circle.
    uses: Vec<String>,
}

/// The dependencies between the children of one module, each with a path that makes it.
type Uses = BTreeMap<String, BTreeMap<String, String>>;

pub fn violations(workspace: &Workspace) -> Result<Vec<String>> {
    let mut circles = Vec::new();
    for target in workspace.packages.iter().flat_map(|it| &it.targets) {
        let is_code = |kind: &String| matches!(kind.as_str(), "lib" | "bin");
        let is_in_room = |room: &&str| target.path.starts_with(workspace.root.join(room));
        if target.kind.iter().any(is_code) && ROOMS.iter().any(is_in_room) {
            circles.extend(of_crate(&target.path, &workspace.root)?);
        }
    }
    Ok(compare(&circles, EXCEPTIONS))
}

fn of_crate(file: &Path, root: &Path) -> Result<Vec<Circle>> {
    let modules = Modules::read(file)?;
    let mut by_parent: BTreeMap<&[String], Uses> = BTreeMap::new();
    for (user, module) in modules.iter() {
        for (path, used) in modules.uses(user) {
            let same = user.iter().zip(&used).take_while(|(a, b)| a == b).count();
            // Otherwise one of the two is the other, or above it.
            if let (Some(from), Some(to)) = (user.get(same), used.get(same)) {
                let file = module.file.strip_prefix(root).unwrap_or(&module.file);
                let uses = by_parent.entry(user.get(..same).unwrap_or_default());
                let uses = uses.or_default().entry(from.clone()).or_default();
                uses.entry(to.clone())
                    .or_insert_with(|| format!("{} uses {path}", file.display()));
            }
        }
    }
    let mut circles = Vec::new();
    for (parent, uses) in by_parent {
        let Some(parent) = modules.get(parent) else {
            continue;
        };
        let parent = parent.file.strip_prefix(root).unwrap_or(&parent.file);
        circles.extend(of_children(&parent.to_string_lossy(), &uses));
    }
    Ok(circles)
}

fn of_children(parent: &str, uses: &Uses) -> Vec<Circle> {
    let reached: BTreeMap<&str, BTreeSet<&str>> = uses
        .keys()
        .map(|child| (child.as_str(), reached(child, uses)))
        .collect();
    let reaches = |from: &str, to: &str| reached.get(from).is_some_and(|all| all.contains(to));
    let mut circles: Vec<Circle> = Vec::new();
    for &child in reached.keys() {
        let is_known = circles.iter().any(|circle| circle.modules.contains(child));
        if is_known || !reaches(child, child) {
            continue;
        }
        let others = reached.keys().copied();
        let both = |other: &&str| reaches(child, other) && reaches(other, child);
        let modules: BTreeSet<String> = others.filter(both).map(str::to_owned).collect();
        let within = uses.iter().filter(|(user, _)| modules.contains(*user));
        let within = within.flat_map(|(_, used)| used);
        let within = within.filter(|(used, _)| modules.contains(*used));
        circles.push(Circle {
            parent: parent.to_owned(),
            uses: within.map(|(_, path)| path.clone()).collect(),
            modules,
        });
    }
    circles
}

/// What a module depends on, directly or through others.
fn reached<'a>(from: &str, uses: &'a Uses) -> BTreeSet<&'a str> {
    let mut reached = BTreeSet::new();
    let mut left = vec![from];
    while let Some(user) = left.pop() {
        for used in uses.get(user).into_iter().flat_map(BTreeMap::keys) {
            if reached.insert(used.as_str()) {
                left.push(used);
            }
        }
    }
    reached
}

fn compare(circles: &[Circle], exceptions: &[Exception]) -> Vec<String> {
    let is = |circle: &Circle, exception: &Exception| {
        let modules = exception.modules.iter().copied();
        circle.parent == exception.parent && modules.eq(circle.modules.iter().map(String::as_str))
    };
    let mut problems = Vec::new();
    for circle in circles {
        if !exceptions.iter().any(|exception| is(circle, exception)) {
            let modules: Vec<&str> = circle.modules.iter().map(String::as_str).collect();
            problems.push(format!(
                "{}: its modules {} depend on each other in a circle:\n    {}",
                circle.parent,
                modules.join(", "),
                circle.uses.join("\n    ")
            ));
        }
    }
    for exception in exceptions {
        if !circles.iter().any(|circle| is(circle, exception)) {
            problems.push(format!(
                "{}: {} are no circle, delete the exception in {} ({})",
                exception.parent,
                exception.modules.join(", "),
                file!(),
                exception.reason
            ));
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The circles of a crate with these files, as `parent: modules`.
    fn circles(files: &[(&str, &str)]) -> Vec<String> {
        let directory = tempfile::tempdir().unwrap();
        for (file, code) in files {
            let file = directory.path().join(file);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, code).unwrap();
        }
        let circles = of_crate(&directory.path().join("lib.rs"), directory.path()).unwrap();
        let shown = circles.into_iter().map(|circle| {
            let modules = circle.modules.into_iter().collect::<Vec<String>>();
            format!("{}: {}", circle.parent, modules.join(" "))
        });
        shown.collect()
    }

    #[test]
    fn detects_circles_of_children_at_each_level() {
        let library = (
            "lib.rs",
            "mod a;\nmod b;\nmod c;\nmod d;\nmod e;\npub use c::inner::Error;\n",
        );
        let parent = ("c/mod.rs", "mod inner;\nmod outer;\n");
        let found = circles(&[
            library,
            ("a.rs", "use crate::b::B;\nuse crate::d::D;"),
            ("d.rs", "use crate::e::E;"),
            ("e.rs", ""),
            ("b.rs", "fn f() -> crate::Error {}"),
            parent,
            ("c/inner.rs", "use crate::a::A;\nuse super::outer::Outer;"),
            ("c/outer.rs", "use super::inner::Inner;"),
        ]);
        assert_eq!(found, ["lib.rs: a b c", "c/mod.rs: inner outer"]);
    }

    #[test]
    fn lets_children_know_their_parent_and_one_direction() {
        let library = "mod a;\nmod b;\nmod c;\nuse a::A;\nstruct Own;\n";
        let found = circles(&[
            ("lib.rs", library),
            ("a.rs", "use crate::{Own, b::B, c::C};"),
            (
                "b.rs",
                "use super::c::C;\n#[cfg(test)]\nmod tests {\n    use crate::a::A;\n}\n",
            ),
            (
                "c.rs",
                "mod below;\nuse super::Own;\nuse crate::c::below::X;",
            ),
            ("c/below.rs", "use super::C;"),
        ]);
        assert_eq!(found, [""; 0]);
    }

    #[test]
    fn an_exception_is_for_exactly_one_circle() {
        let circle = |modules: &[&str]| Circle {
            parent: "a/lib.rs".to_owned(),
            modules: modules.iter().map(|&module| module.to_owned()).collect(),
            uses: vec!["a/b.rs uses crate::c::C".to_owned()],
        };
        let exception = Exception {
            parent: "a/lib.rs",
            modules: &["b", "c"],
            reason: "they call each other",
        };
        let exceptions = &[exception];
        assert_eq!(compare(&[circle(&["b", "c"])], exceptions), [""; 0]);
        let grown = compare(&[circle(&["b", "c", "d"])], exceptions);
        assert!(
            grown[0].contains("b, c, d depend on each other"),
            "{grown:?}"
        );
        assert!(grown[0].contains("a/b.rs uses crate::c::C"), "{grown:?}");
        assert!(grown[1].contains("b, c are no circle"), "{grown:?}");
    }
}
