//! `docs/generated/unsafe.md`: each use of unsafe code with the reason why it is sound, from the comment above it.

use std::collections::BTreeMap;
use std::path::Path;

use profcol_test_harness::support::root;

use crate::check;

/// The list of places, in which `cargo xtask layers` finds all unsafe code.
const PAGE: &str = "docs/architecture.md";
const LIST: &str = "\n* Unsafe code is in ";

const MARKS: &[&str] = &[
    "unsafe {",
    "unsafe fn ",
    "unsafe impl ",
    "unsafe extern ",
    "unsafe trait ",
];

/// These only name a symbol or its section.
const NAMING: &[&str] = &["#[unsafe(no_mangle)]", "#[unsafe(link_section ="];

/// The comment stands at most so many lines above, where a statement is long.
const MAX_DISTANCE: usize = 12;

#[derive(Debug, Default, PartialEq)]
struct Uses {
    naming: usize,
    /// With how often.
    unsafe_code: Vec<(Use, usize)>,
}

#[derive(Clone, Debug, PartialEq)]
struct Use {
    /// The function, or the implemented trait.
    item: String,
    reason: String,
}

#[test]
fn generated_unsafe_code() {
    let mut uses = BTreeMap::new();
    let architecture = std::fs::read_to_string(root().join(PAGE)).expect("readable");
    let (_, list) = architecture.split_once(LIST).expect("the list");
    let list = list.split("\n* ").next().unwrap_or_default();
    let quoted = list.split('`').skip(1).step_by(2);
    for place in quoted.filter(|name| name.contains('/')) {
        collect(&root().join(place), &mut uses);
    }
    let count: usize = uses.values().map(Uses::count).sum();
    let naming: usize = uses.values().map(|uses| uses.naming).sum();
    let files = uses.len();
    let mut page = format!(
        "# Unsafe code\n\n\
         Generated from the sources: {count} uses in {files} files, and {naming} attributes that only name a symbol of the BPF object.\n\
         The compiler, or `cargo xtask layers`, rejects `unsafe` everywhere else.\n"
    );
    for (file, uses) in &uses {
        page.push_str(&format!(
            "\n## `{file}`\n\n| in | uses | sound because |\n|---|---|---|\n"
        ));
        for (Use { item, reason }, count) in &uses.unsafe_code {
            let reason = reason.replace('|', "\\|");
            page.push_str(&format!("| `{item}` | {count} | {reason} |\n"));
        }
        if uses.naming > 0 {
            let count = uses.naming;
            page.push_str(&format!(
                "| | {count} | the attribute only names a symbol or its section |\n"
            ));
        }
    }
    check("docs/generated/unsafe.md", &page);
}

fn collect(path: &Path, uses: &mut BTreeMap<String, Uses>) {
    if path.is_dir() {
        for entry in path.read_dir().expect("readable") {
            collect(&entry.expect("readable").path(), uses);
        }
        return;
    }
    if path.extension().is_none_or(|extension| extension != "rs") {
        return;
    }
    let text = std::fs::read_to_string(path).expect("readable");
    let name = path.strip_prefix(root()).expect("below the root");
    let name = name.display().to_string();
    let found = Uses::of(&text).unwrap_or_else(|line| {
        panic!("{name}:{line}: say in a comment `// SAFETY: …` above why this is sound")
    });
    if found != Uses::default() {
        uses.insert(name, found);
    }
}

impl Uses {
    /// Or the line of the first that has no reason.
    fn of(text: &str) -> Result<Self, usize> {
        let lines: Vec<_> = text.lines().map(str::trim).collect();
        let mut uses = Self::default();
        let mut previous = None;
        for (index, line) in lines.iter().enumerate() {
            if NAMING.iter().any(|naming| line.starts_with(naming)) {
                uses.naming += 1;
            } else if !line.starts_with("//") && MARKS.iter().any(|mark| line.contains(mark)) {
                let lines = &lines[..=index];
                let mut reason = reason_above(lines).ok_or(index + 1)?;
                if reason == "as above." {
                    reason = previous.ok_or(index + 1)?;
                }
                uses.add(Use {
                    item: item_of(lines),
                    reason: reason.clone(),
                });
                previous = Some(reason);
            }
        }
        Ok(uses)
    }

    fn add(&mut self, new: Use) {
        match self.unsafe_code.iter_mut().find(|(known, _)| *known == new) {
            Some((_, count)) => *count += 1,
            None => self.unsafe_code.push((new, 1)),
        }
    }

    fn count(&self) -> usize {
        self.unsafe_code.iter().map(|(_, count)| count).sum()
    }
}

/// The text of `// SAFETY: …`, or of the section `# Safety` of a function, above the last line.
fn reason_above(lines: &[&str]) -> Option<String> {
    let near = lines.len().saturating_sub(MAX_DISTANCE + 1);
    let mut above = lines[near..].iter().rev().skip(1);
    let distance = above
        .by_ref()
        .take_while(|line| !line.is_empty())
        .position(|line| line.starts_with("// SAFETY:") || *line == "/// # Safety")?;
    let comment = lines[lines.len() - 2 - distance..].iter();
    let comment = comment.map_while(|line| line.strip_prefix("//"));
    let text: Vec<_> = comment
        .map(|line| line.trim_start_matches('/').trim())
        .map(|line| {
            line.trim_start_matches("SAFETY:")
                .trim_start_matches("# Safety")
                .trim()
        })
        .filter(|line| !line.is_empty())
        .collect();
    (!text.is_empty()).then(|| text.join(" "))
}

/// What the last line belongs to.
fn item_of(lines: &[&str]) -> String {
    let name = |line: &&str| {
        let line = line.trim_end_matches(['{', '}', ' ']);
        if let Some((_, implemented)) = line.split_once("unsafe impl ") {
            return Some(format!("impl {implemented}"));
        }
        let (before, after) = line.split_once("fn ")?;
        let is_declared = before.split(' ').all(|word| {
            let word = word
                .trim_start_matches("pub(super)")
                .trim_start_matches("pub(crate)");
            matches!(word, "" | "pub" | "const" | "unsafe" | "extern" | "\"C\"")
        });
        let end = after.find(|it: char| !it.is_alphanumeric() && it != '_')?;
        is_declared.then(|| after[..end].to_owned())
    };
    lines.iter().rev().find_map(name).unwrap_or_default()
}

#[test]
fn each_use_needs_a_reason() {
    let known = "\
// SAFETY: plain data.
unsafe impl Sync for X {}

pub fn f() {
    // SAFETY: the mask
    // bounds it.
    let x =
        unsafe { a() };
    // SAFETY: as above.
    let y = unsafe { b() };
}

/// Reads.
///
/// # Safety
///
/// Mapped.
#[inline]
pub unsafe fn g() {}
";
    let uses = Uses::of(known).expect("reasons");
    let found: Vec<_> = uses
        .unsafe_code
        .iter()
        .map(|(it, count)| (it.item.as_str(), it.reason.as_str(), *count))
        .collect();
    let expected = [
        ("impl Sync for X", "plain data.", 1),
        ("f", "the mask bounds it.", 2),
        ("g", "Mapped.", 1),
    ];
    assert_eq!(found, expected);
    assert_eq!(Uses::of("// SAFETY: other.\n\nunsafe { f() }"), Err(3));
    assert_eq!(Uses::of("// Why\nunsafe impl Sync for X {}"), Err(2));
    assert_eq!(Uses::of("// SAFETY: as above.\nunsafe { f() }"), Err(2));
    assert_eq!(
        Uses::of("#[unsafe(no_mangle)]\nfn f() {}").map(|it| it.naming),
        Ok(1)
    );
}
