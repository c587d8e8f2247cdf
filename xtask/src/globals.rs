//! State that a whole process or thread shares must be where `docs/architecture.md` says, and nowhere else: two
//! configurations in one process, and tests, would meet there.

use std::fs;

use anyhow::{Context, Result};

use crate::layers::PAGE;
use crate::places::List;
use crate::siblings::sources;
use crate::workspace::Workspace;

const LIST: List = List {
    begin: "* Global state is in ",
    of: "global state",
};

/// The directories with what runs in the program. The BPF programs are apart: their statics are maps.
const ROOMS: &[&str] = &[
    "components",
    "ebpf/common",
    "ebpf/interpreters",
    "ebpf/loader",
    "ebpf/objects",
    "ebpf/unwind",
    "formats",
    "host",
    "pipeline",
    "src",
];

/// Parts of the names of types that change behind a shared reference, or are set later.
const CHANGING: &[&str] = &["Atomic", "Cell", "Lazy", "Lock", "Mutex", "Once"];

pub fn violations(workspace: &Workspace) -> Result<Vec<String>> {
    let page = workspace.root.join(PAGE);
    let page =
        fs::read_to_string(&page).with_context(|| format!("failed to read {}", page.display()))?;
    let mut files = Vec::new();
    for room in ROOMS {
        for file in sources(&workspace.root.join(room))? {
            let text = fs::read_to_string(&file)
                .with_context(|| format!("failed to read {}", file.display()))?;
            let name = file.strip_prefix(&workspace.root).unwrap_or(&file);
            let name = name.to_string_lossy();
            if !is_of_tests(&name) && has_state(&text) {
                files.push(name.into_owned());
            }
        }
    }
    Ok(LIST.compare(&page, &files))
}

fn is_of_tests(file: &str) -> bool {
    let of_tests = ["tests", "testkit", "examples"];
    let stem = file.strip_suffix(".rs").unwrap_or(file);
    stem.split('/').any(|part| of_tests.contains(&part))
}

/// Whether code before the tests at the end of a file has a static that changes.
fn has_state(text: &str) -> bool {
    let code = text
        .split("#[cfg(test)]\nmod tests {")
        .next()
        .unwrap_or_default();
    code.lines().any(|line| {
        let line = line.trim_start();
        let item = line.strip_prefix("pub").unwrap_or(line).trim_start();
        let item = match item.strip_prefix('(') {
            Some(scope) => scope.split_once(") ").map_or("", |(_, item)| item),
            None => item,
        };
        let Some(item) = item.strip_prefix("static ") else {
            return false;
        };
        let kind = item.split_once(": ").map_or("", |(_, kind)| kind);
        item.starts_with("mut ") || CHANGING.iter().any(|part| kind.contains(part))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn detects_statics_that_change() {
        for (text, expected) in [
            ("static NEXT: AtomicU64 = AtomicU64::new(0);", true),
            (
                "    static NAME: LazyLock<String> = LazyLock::new(|| {",
                true,
            ),
            ("pub static ALL: Mutex<Vec<u8>> =", true),
            (
                "pub(crate) static ALL: OnceLock<u8> = OnceLock::new();",
                true,
            ),
            ("static mut COUNT: u64 = 0;", true),
            (
                "thread_local! {\n    static IS_ON: Cell<bool> = const { Cell::new(false) };\n}",
                true,
            ),
            ("pub static OBJECT: &[u8] = include_bytes!(\"x\");", false),
            ("fn f(text: &'static str) -> Mutex<u8> {}", false),
            ("// static NEXT: AtomicU64", false),
            ("#[cfg(test)]\nmod tests;\nstatic NEXT: AtomicU64 =", true),
            (
                "fn f() {}\n#[cfg(test)]\nmod tests {\n    static READ: AtomicU64 = AtomicU64::new(0);\n}",
                false,
            ),
        ] {
            assert_eq!(has_state(text), expected, "{text}");
        }
    }

    #[test]
    fn leaves_out_tests() {
        for (file, expected) in [
            ("pipeline/admission/src/tests.rs", true),
            ("pipeline/net/tests/tls.rs", true),
            ("pipeline/component/src/testkit.rs", true),
            ("pipeline/component/src/batch.rs", false),
        ] {
            assert_eq!(is_of_tests(file), expected, "{file}");
        }
    }
}
