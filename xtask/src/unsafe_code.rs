//! Unsafe code must be where `docs/architecture.md` says, and nowhere else. The compiler denies it in the crates of the
//! workspace except where a file allows it. The BPF programs and fuzz targets are apart: there the text shows it.

use std::fs;

use anyhow::{Context, Result};

use crate::layers::PAGE;
use crate::places::List;
use crate::siblings::sources;
use crate::workspace::Workspace;

const LIST: List = List {
    begin: "* Unsafe code is in ",
    of: "unsafe code",
};

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
    let mut problems = LIST.compare(&page, &files);
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

/// Whether a line of code has one of the marks.
fn has_any(text: &str, marks: &[&str]) -> bool {
    let mut lines = text.lines().map(str::trim_start);
    lines.any(|line| !line.starts_with("//") && marks.iter().any(|mark| line.contains(mark)))
}

#[cfg(test)]
mod tests {
    use super::*;

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
