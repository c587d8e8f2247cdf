//! The modules of a crate as its sources declare them, and the modules that their paths name. A path may go through
//! re-exports: `crate::Error` names the module that defines it. Code of tests is left out.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::siblings::identifier;

/// How many re-exports a name may pass through.
const MAX_REEXPORTS: usize = 8;

/// The names of the modules from the root of the crate, which is empty.
pub type ModulePath = Vec<String>;

pub struct Module {
    pub file: PathBuf,
    code: String,
    children: BTreeSet<String>,
    /// The names that `use` declarations bring in, with their paths.
    imports: BTreeMap<String, Vec<String>>,
}

/// A crate.
pub struct Modules(BTreeMap<ModulePath, Module>);

/// A path in the code, or one leaf of a `use` declaration.
struct Named {
    path: Vec<String>,
    /// The last segment, or what follows `as`.
    name: String,
}

impl Modules {
    /// Reads a crate from the file of its root module.
    pub fn read(root: &Path) -> Result<Self> {
        let mut modules = Self(BTreeMap::new());
        let directory = root.parent().unwrap_or(Path::new(""));
        modules.add(Vec::new(), root, directory)?;
        Ok(modules)
    }

    fn add(&mut self, path: ModulePath, file: &Path, directory: &Path) -> Result<()> {
        let text = fs::read_to_string(file)
            .with_context(|| format!("failed to read {}", file.display()))?;
        let code = without_tests(&text);
        let mut children = BTreeSet::new();
        for name in code.lines().filter_map(declared) {
            let below = directory.join(name);
            let places = [below.with_extension("rs"), below.join("mod.rs")];
            // Modules with `#[path]` are in neither.
            if let Some(file) = places.iter().find(|file| file.exists()) {
                children.insert(name.to_owned());
                self.add([&path[..], &[name.to_owned()]].concat(), file, &below)?;
            }
        }
        let module = Module {
            file: file.to_owned(),
            imports: imports(&code),
            code,
            children,
        };
        self.0.insert(path, module);
        Ok(())
    }

    pub fn iter(&self) -> impl Iterator<Item = (&ModulePath, &Module)> {
        self.0.iter()
    }

    pub fn get(&self, path: &[String]) -> Option<&Module> {
        self.0.get(path)
    }

    /// The paths in a module that begin with `crate` or `super`, each with the module that it names.
    pub fn uses(&self, of: &[String]) -> Vec<(String, ModulePath)> {
        let paths = self.get(of).map(|module| paths(&module.code));
        let named = paths
            .into_iter()
            .flatten()
            .filter_map(|Named { path, .. }| {
                let module = self.resolve(of.to_vec(), &path, 0)?;
                Some((path.join("::"), module))
            });
        named.collect()
    }

    /// The module that has the item of a path; none if another crate has it.
    fn resolve(&self, from: ModulePath, path: &[String], reexports: usize) -> Option<ModulePath> {
        let mut at = from;
        for (index, segment) in path.iter().enumerate() {
            let module = self.0.get(&at)?;
            match segment.as_str() {
                "crate" => at.clear(),
                "super" => drop(at.pop()?),
                "self" => {}
                child if module.children.contains(child) => at.push(segment.clone()),
                _ if index == 0 => return None,
                name => {
                    let Some(import) = module.imports.get(name) else {
                        return Some(at);
                    };
                    if reexports == MAX_REEXPORTS {
                        return None;
                    }
                    let rest = path.get(index + 1..).unwrap_or_default();
                    return self.resolve(at, &[&import[..], rest].concat(), reexports + 1);
                }
            }
        }
        Some(at)
    }
}

/// The code without comments and without the items that only tests have.
fn without_tests(text: &str) -> String {
    let lines = text.lines();
    let code = lines.map(|line| line.split_once("//").map_or(line, |(code, _)| code));
    without_items(code, is_of_tests)
}

/// Leaves out the items below lines with a mark. It relies on rustfmt: an item ends in a line that is indented as its
/// first one.
pub fn without_items<'t>(
    mut lines: impl Iterator<Item = &'t str>,
    is_mark: impl Fn(&str) -> bool,
) -> String {
    let mut kept = String::new();
    while let Some(line) = lines.next() {
        if is_mark(line) {
            let ends_item = |next: &&str| {
                let item = next.trim();
                let ends = item.starts_with('}') || item.ends_with([';', ',', '}']);
                ends && indentation(next) == indentation(line)
            };
            let _item = lines.by_ref().find(ends_item);
        } else {
            kept.push_str(line);
            kept.push('\n');
        }
    }
    kept
}

fn is_of_tests(line: &str) -> bool {
    let attribute = line.trim_start().strip_prefix("#[cfg(");
    attribute.is_some_and(|condition| {
        let marks = ["test", "all(test", "any(test"];
        marks.iter().any(|mark| condition.starts_with(mark))
    })
}

fn indentation(line: &str) -> usize {
    line.len() - line.trim_start().len()
}

/// The module that a line declares in a file of its own.
fn declared(line: &str) -> Option<&str> {
    let item = without_visibility(line.trim());
    item.strip_prefix("mod ")?.strip_suffix(';')
}

fn without_visibility(item: &str) -> &str {
    let Some(rest) = item.strip_prefix("pub") else {
        return item;
    };
    let scoped = rest.strip_prefix('(').and_then(|rest| rest.split_once(')'));
    scoped.map_or(rest, |(_, rest)| rest).trim_start()
}

fn imports(code: &str) -> BTreeMap<String, Vec<String>> {
    let mut found = Vec::new();
    for (at, keyword) in code.match_indices("use ") {
        let (before, item) = code.split_at(at);
        let line = before.rsplit('\n').next().unwrap_or_default();
        if without_visibility(line.trim_start()).is_empty() {
            add_tree(item.strip_prefix(keyword).unwrap_or(item), &[], &mut found);
        }
    }
    let imports = found.into_iter();
    imports.map(|Named { path, name }| (name, path)).collect()
}

fn paths(code: &str) -> Vec<Named> {
    let mut found = Vec::new();
    for root in ["crate::", "super::"] {
        for (at, _) in code.match_indices(root) {
            let (before, path) = code.split_at(at);
            let is_within = |last: char| last.is_alphanumeric() || matches!(last, '_' | ':');
            if !before.ends_with(is_within) {
                add_tree(path, &[], &mut found);
            }
        }
    }
    found
}

/// Adds `a::b` or all leaves of `a::{b, c::d as e}` to `found`, and returns the text after it.
fn add_tree<'a>(text: &'a str, above: &[String], found: &mut Vec<Named>) -> &'a str {
    let mut path = above.to_vec();
    let mut rest = text;
    while let Some((segment, after)) = split_segment(rest) {
        path.push(segment.to_owned());
        rest = after;
        match rest.strip_prefix("::") {
            Some(below) => rest = below,
            None => break,
        }
    }
    if let Some(members) = rest.strip_prefix('{') {
        return add_members(members, &path, found);
    }
    let renamed = rest.trim_start().strip_prefix("as ");
    let name = match renamed.and_then(split_segment) {
        Some((name, after)) => {
            rest = after;
            Some(name.to_owned())
        }
        None => path.iter().rfind(|name| *name != "self").cloned(),
    };
    if let Some(name) = name {
        found.push(Named { path, name });
    }
    rest
}

fn add_members<'a>(text: &'a str, above: &[String], found: &mut Vec<Named>) -> &'a str {
    let mut rest = text.trim_start();
    loop {
        if let Some(after) = rest.strip_prefix('}') {
            return after;
        }
        let after = add_tree(rest, above, found).trim_start();
        let after = after.strip_prefix(',').unwrap_or(after).trim_start();
        // In a macro it may be no `use` tree.
        if after.len() == rest.len() {
            return after;
        }
        rest = after;
    }
}

fn split_segment(text: &str) -> Option<(&str, &str)> {
    let end = match text.strip_prefix('*') {
        Some(_) => 1,
        None => identifier(text)?.len(),
    };
    text.split_at_checked(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn used(code: &str) -> Vec<String> {
        let paths = paths(code).into_iter();
        paths.map(|named| named.path.join("::")).collect()
    }

    #[test]
    fn finds_paths_in_declarations_and_in_code() {
        for (code, expected) in [
            ("use crate::a::B;", &["crate::a::B"] as &[_]),
            (
                "use crate::{a::{self, B as C}, d};",
                &["crate::a::self", "crate::a::B", "crate::d"],
            ),
            (
                "use crate::a::{\n    B,\n    c::*,\n};\nuse super::D;",
                &["crate::a::B", "crate::a::c::*", "super::D"],
            ),
            ("f(super::super::a::b(x))", &["super::super::a::b"]),
            ("crate::A::<T>::new()", &["crate::A"]),
            ("$crate::{$name}", &["crate"]),
            ("my_crate::A, x::super::B", &[]),
        ] {
            assert_eq!(used(code), expected, "{code}");
        }
    }

    #[test]
    fn leaves_out_comments_and_tests() {
        let text = "\
use a; // crate::b
#[cfg(test)]
use c::{
    D,
};
#[cfg(any(test, feature = \"testkit\"))]
pub mod testkit;
struct E {
    #[cfg(test)]
    count: u64,
    size: u64,
}
#[cfg(test)]
#[expect(lint)]
mod tests {
    fn f() {
    }
}
#[cfg(unix)]
mod g;
";
        let code = "use a; \nstruct E {\n    size: u64,\n}\n#[cfg(unix)]\nmod g;\n";
        assert_eq!(without_tests(text), code);
    }

    #[test]
    fn follows_reexports_to_the_module_that_has_the_item() {
        let directory = tempfile::tempdir().unwrap();
        for (file, code) in [
            (
                "lib.rs",
                "mod a;\npub(crate) mod b;\npub use a::inner::{E as Error, other};\nstruct Own;\n",
            ),
            ("a/mod.rs", "mod inner;\npub use serde::Value;\n"),
            ("a/inner.rs", ""),
            (
                "b.rs",
                "use crate::{Error, Own, a::Value, missing::X};\nfn f() { super::other::g() }\n",
            ),
        ] {
            let file = directory.path().join(file);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, code).unwrap();
        }
        let modules = Modules::read(&directory.path().join("lib.rs")).unwrap();
        let uses = modules.uses(&["b".to_owned()]);
        let uses: Vec<String> = uses
            .into_iter()
            .map(|(path, module)| format!("{path} in {}", module.join("::")))
            .collect();
        let expected = [
            "crate::Error in a::inner",
            "crate::Own in ",
            "crate::missing::X in ",
            "super::other::g in a::inner",
        ];
        assert_eq!(uses, expected);
    }
}
