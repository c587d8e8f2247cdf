//! Each source file says in its first line what it is for.

use std::fs;

use anyhow::{Context, Result};

use crate::siblings::sources;
use crate::workspace::Workspace;

/// The directories with sources, from the root.
const ROOMS: [&str; 11] = [
    "benches",
    "components",
    "ebpf",
    "formats",
    "fuzz",
    "host",
    "pipeline",
    "src",
    "tests",
    "xtask/src",
    "xtask/templates",
];

pub fn violations(workspace: &Workspace) -> Result<Vec<String>> {
    let mut problems = Vec::new();
    for room in ROOMS {
        for file in sources(&workspace.root.join(room))? {
            let text = fs::read_to_string(&file)
                .with_context(|| format!("failed to read {}", file.display()))?;
            if !says_what_it_is_for(&text) {
                let shown = file.strip_prefix(&workspace.root).unwrap_or(&file);
                problems.push(format!(
                    "{} does not begin with a line `//! What it is for.`",
                    shown.display()
                ));
            }
        }
    }
    Ok(problems)
}

/// A licence of its own may come first.
fn says_what_it_is_for(text: &str) -> bool {
    let rest = match text.split_once('\n') {
        Some((first, rest)) if first.starts_with("// SPDX-") => rest,
        _ => text,
    };
    rest.strip_prefix("//! ")
        .is_some_and(|rest| rest.starts_with(|first: char| !first.is_whitespace()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_begins_with_what_it_is_for() {
        for text in [
            "//! Backoff between attempts.\n",
            "// SPDX-License-Identifier: MIT\n//! `nop`.\n\nuse a;\n",
        ] {
            assert!(says_what_it_is_for(text), "{text}");
        }
        for text in [
            "",
            "use a;\n",
            "// A note.\n",
            "//!\n//! Late.\n",
            "//!  \n",
        ] {
            assert!(!says_what_it_is_for(text), "{text}");
        }
    }
}
