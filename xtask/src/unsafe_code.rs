//! Unsafe code must be where `docs/architecture.md` says, and nowhere else. The compiler denies it in the crates of the
//! workspace except where a file allows it. The BPF programs and fuzz targets are apart: there the text shows it.

use std::fs;

use anyhow::{Context, Result};

use crate::layers::PAGE;
use crate::siblings::sources;
use crate::workspace::Workspace;

/// How the list begins in [`PAGE`].
const LIST: &str = "* Unsafe code is in ";

/// What allows unsafe code in the workspace.
const ALLOWS: &[&str] = &["(unsafe_code,", "(unsafe_code)"];

/// What is unsafe code, where the compiler does not deny it.
const MARKS: &[&str] = &[
    "unsafe {",
    "unsafe fn ",
    "unsafe impl ",
    "unsafe extern ",
    "unsafe trait ",
    "#[unsafe(",
];

/// The directories with sources of the workspace.
const ROOMS: &[&str] = &[
    "benches",
    "components",
    "ebpf",
    "formats",
    "host",
    "pipeline",
    "src",
    "tests",
    "xtask",
];

/// Where the text alone shows unsafe code: the programs are another workspace, and the target `walk` compiles them.
const APART: &[&str] = &["ebpf/programs", "fuzz"];

pub fn violations(workspace: &Workspace) -> Result<Vec<String>> {
    let page = workspace.root.join(PAGE);
    let page =
        fs::read_to_string(&page).with_context(|| format!("failed to read {}", page.display()))?;
    let mut files = Vec::new();
    let rooms = ROOMS.iter().map(|room| (room, ALLOWS));
    for (room, marks) in rooms.chain(APART.iter().map(|room| (room, MARKS))) {
        for file in sources(&workspace.root.join(room))? {
            let text = fs::read_to_string(&file)
                .with_context(|| format!("failed to read {}", file.display()))?;
            let name = file.strip_prefix(&workspace.root).unwrap_or(&file);
            // This file names the marks.
            if has_any(&text, marks) && !name.ends_with(file!()) {
                files.push(name.to_string_lossy().into_owned());
            }
        }
    }
    let mut problems = compare(&page, &files);
    for package in &workspace.packages {
        let manifest = fs::read_to_string(&package.manifest_path)
            .with_context(|| format!("failed to read {}", package.manifest_path.display()))?;
        if !manifest.contains("[lints]\nworkspace = true") {
            problems.push(format!(
                "crate `{}` lacks the workspace's lints, which deny unsafe code",
                package.name
            ));
        }
    }
    Ok(problems)
}

/// Compares the list of `page` with the files that have unsafe code.
fn compare(page: &str, files: &[String]) -> Vec<String> {
    let stated = stated(page);
    let is_in = |file: &str, place: &str| {
        let rest = file.strip_prefix(place);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    let outside = files
        .iter()
        .filter(|file| !stated.iter().any(|place| is_in(file, place)))
        .map(|file| format!("{file} has unsafe code, but {PAGE} does not list it"));
    let without = stated
        .iter()
        .filter(|place| !files.iter().any(|file| is_in(file, place)))
        .map(|place| format!("{PAGE} lists unsafe code in `{place}`, which has none"));
    outside.chain(without).collect()
}

/// The places in the list.
fn stated(page: &str) -> Vec<&str> {
    let Some((_, list)) = page.split_once(LIST) else {
        return Vec::new();
    };
    let list = list.split("\n* ").next().unwrap_or_default();
    let quoted = list.split('`').skip(1).step_by(2);
    quoted.filter(|name| name.contains('/')).collect()
}

/// Whether a line of code has one of the marks.
fn has_any(text: &str, marks: &[&str]) -> bool {
    let mut lines = text.lines().map(str::trim_start);
    lines.any(|line| !line.starts_with("//") && marks.iter().any(|mark| line.contains(mark)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compares_the_list_with_the_sources() {
        let page =
            "* Unsafe code is in `a/b`, and in `c/d.rs` (calls). `check` looks.\n* Other `e/f`\n";
        let problems = |files: &[&str]| {
            let files: Vec<String> = files.iter().map(|&file| file.to_owned()).collect();
            compare(page, &files)
        };
        assert_eq!(problems(&["a/b/c.rs", "c/d.rs"]), [""; 0]);
        let outside = problems(&["a/b/c.rs", "c/d.rs", "a/bc.rs", "e/f"]);
        assert_eq!(outside.len(), 2, "{outside:?}");
        let without = problems(&["a/b/c.rs"]);
        assert!(
            without[0].contains("`c/d.rs`, which has none"),
            "{without:?}"
        );
    }

    #[test]
    fn detects_unsafe_code() {
        for (text, expected) in [
            ("let x = unsafe { f() };", true),
            ("    pub unsafe fn f() {}", true),
            ("#[unsafe(no_mangle)]", true),
            ("// unsafe { f() }", false),
            ("let option = \"--unsafe\";", false),
        ] {
            assert_eq!(has_any(text, MARKS), expected, "{text}");
        }
        assert!(has_any("#![allow(unsafe_code, reason = \"\")]", ALLOWS));
    }
}
