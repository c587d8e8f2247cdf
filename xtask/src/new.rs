//! `cargo xtask new exporter NAME`: creates a component that builds, is registered and passes the tests for all
//! components.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::workspace::Workspace;
use crate::{generate, process};

const TEMPLATES: [(&str, &str); 4] = [
    ("mod.rs", include_str!("../templates/exporter/mod.rs")),
    ("tests.rs", include_str!("../templates/exporter/tests.rs")),
    ("README.md", include_str!("../templates/exporter/README.md")),
    (
        "example.yaml",
        include_str!("../templates/exporter/example.yaml"),
    ),
];

pub fn exporter(workspace: &Workspace, name: &str) -> Result<()> {
    check_name(name)?;
    let exporters = workspace.root.join("components/exporters");
    let directory = exporters.join(name);
    fs::create_dir(&directory)
        .with_context(|| format!("failed to create {}", directory.display()))?;
    for (file, template) in TEMPLATES {
        write(&directory.join(file), &filled_in(template, name))?;
    }
    let list = exporters.join("lib.rs");
    let text =
        fs::read_to_string(&list).with_context(|| format!("failed to read {}", list.display()))?;
    let text = registered(&text, name)
        .with_context(|| format!("{} has no list of modules and entries", list.display()))?;
    write(&list, &text)?;
    process::run(&mut workspace.cargo(&["fmt", "--package", "profcol-exporters"]))?;
    println!(
        "Created components/exporters/{name} and registered it. Next comes `cargo xtask gen`, which builds the workspace; \
         if it is interrupted, run it again."
    );
    generate::run(workspace)?;
    println!(
        "Next: `cargo test --workspace --lib {name}`, then `cargo test --workspace --test registry`.\n\
         To write by hand: a row in the table of components in README.md, and an entry in CHANGELOG.md."
    );
    Ok(())
}

/// The component that `CONTRIBUTING.md` creates as a first change.
const TRIAL: &str = "sample_log";

/// Makes that first change in a copy of the working tree.
pub fn trial(workspace: &Workspace) -> Result<()> {
    let copy = workspace.target.join("new-exporter");
    if copy.exists() {
        fs::remove_dir_all(&copy)?;
    }
    workspace.copy_sources(&copy)?;
    let run = |arguments: &[&str]| {
        let mut cargo = workspace.cargo(arguments);
        // The dependencies are built there already.
        cargo.env("CARGO_TARGET_DIR", &workspace.target);
        process::run(cargo.current_dir(&copy))
    };
    run(&["xtask", "new", "exporter", TRIAL])?;
    run(&["test", "--workspace", "--lib", TRIAL])?;
    run(&["test", "--workspace", "--test", "registry"])?;
    fs::remove_dir_all(&copy)?;
    Ok(())
}

fn check_name(name: &str) -> Result<()> {
    let is_word = name.starts_with(|first: char| first.is_ascii_lowercase())
        && name
            .chars()
            .all(|it| it.is_ascii_lowercase() || it.is_ascii_digit() || it == '_');
    if !is_word {
        bail!("invalid component name `{name}`: use lower-case letters, digits and `_`");
    }
    Ok(())
}

fn filled_in(template: &str, name: &str) -> String {
    template
        .replace("ExporterName", &type_name(name))
        .replace("exporter_name", name)
}

/// Converts `my_exporter` to `MyExporter`.
fn type_name(name: &str) -> String {
    let words = name.split('_').filter_map(|word| word.split_at_checked(1));
    words
        .map(|(first, rest)| first.to_ascii_uppercase() + rest)
        .collect()
}

/// Adds the module and its entry to the sorted lists.
fn registered(text: &str, name: &str) -> Option<String> {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    insert(&mut lines, "mod ", format!("mod {name};"))?;
    let entry = format!("    entry::<{name}::{}>(),", type_name(name));
    insert(&mut lines, "    entry::<", entry)?;
    Some(lines.join("\n") + "\n")
}

/// Inserts before the first greater line with this prefix, or after the last.
fn insert(lines: &mut Vec<String>, beginning: &str, line: String) -> Option<()> {
    let of_list = |it: &&(usize, &String)| it.1.starts_with(beginning);
    let list: Vec<_> = lines.iter().enumerate().filter(|it| of_list(&it)).collect();
    let (last, _) = list.last()?;
    let position = list
        .iter()
        .find(|(_, it)| **it > line)
        .map_or(last + 1, |(position, _)| *position);
    lines.insert(position, line);
    Some(())
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).with_context(|| format!("failed to write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registers_in_order() {
        let list = "mod debug;\nmod top;\n\npub const ALL: &[E] = &[\n    entry::<debug::Debug>(),\n    entry::<top::Top>(),\n];\n";
        for (name, expected) in [
            (
                "my_log",
                "mod debug;\nmod my_log;\nmod top;\n\npub const ALL: &[E] = &[\n    entry::<debug::Debug>(),\n    entry::<my_log::MyLog>(),\n    entry::<top::Top>(),\n];\n",
            ),
            (
                "zip",
                "mod debug;\nmod top;\nmod zip;\n\npub const ALL: &[E] = &[\n    entry::<debug::Debug>(),\n    entry::<top::Top>(),\n    entry::<zip::Zip>(),\n];\n",
            ),
        ] {
            assert_eq!(registered(list, name).as_deref(), Some(expected), "{name}");
        }
    }

    #[test]
    fn rejects_invalid_module_names() {
        for name in ["", "My", "a-b", "1st", "../x"] {
            assert!(check_name(name).is_err(), "{name}");
        }
        assert!(check_name("otlp_grpc").is_ok());
    }
}
