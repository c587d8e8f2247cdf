//! The files of this repository that are made from the code. Each test compares; `UPDATE=1` (or
//! `cargo xtask gen`) writes instead.

mod support;

use std::path::Path;

use profcol::REGISTRY;
use profcol_component::{Entry, Kind};
use profcol_config::schema::{ConfigOption, options};
use profcol_labels::{ALIASES, Place};
use serde_json::Value;
use support::{Ended, root, run};

/// Holds the file at `path` to `content`.
fn check(path: &str, content: &str) {
    let file = root().join(path);
    if std::env::var_os("UPDATE").is_some_and(|update| update == "1") {
        std::fs::create_dir_all(file.parent().unwrap_or(Path::new("."))).expect("a folder");
        std::fs::write(&file, content).expect("written");
    }
    let found = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(found == content, "{path} is stale: run `cargo xtask gen`");
}

/// Holds what stands between the lines `<!-- name -->` and `<!-- /name -->` of `path` to `content`.
fn check_part(path: &str, name: &str, content: &str) {
    let text = std::fs::read_to_string(root().join(path)).unwrap_or_else(|e| panic!("{path}: {e}"));
    let (start, end) = (format!("<!-- {name} -->\n"), format!("<!-- /{name} -->"));
    let parts = text.split_once(&start).and_then(|(before, rest)| {
        let (_, after) = rest.split_once(&end)?;
        Some((before, after))
    });
    let Some((before, after)) = parts else {
        panic!("{path} has no lines `{}` and `{end}`", start.trim_end());
    };
    check(path, &format!("{before}{start}{content}{end}{after}"));
}

fn printed(arguments: &[&str]) -> String {
    let Ended {
        code,
        stdout,
        stderr,
    } = run(arguments);
    assert_eq!((code, stderr.as_str()), (Some(0), ""), "{arguments:?}");
    stdout
}

#[test]
fn generated_schema() {
    check("config-examples/schema.json", &printed(&["schema"]));
}

#[test]
fn generated_man_page() {
    check("docs/generated/profcol.1", &printed(&["man"]));
}

#[test]
fn generated_completions() {
    for (shell, file) in [
        ("bash", "profcol.bash"),
        ("zsh", "_profcol"),
        ("fish", "profcol.fish"),
    ] {
        check(
            &format!("docs/generated/{file}"),
            &printed(&["completions", shell]),
        );
    }
}

#[test]
fn generated_option_tables() {
    tables(Kind::Receiver, REGISTRY.receivers);
    tables(Kind::Processor, REGISTRY.processors);
    tables(Kind::Exporter, REGISTRY.exporters);
    tables(Kind::Extension, REGISTRY.extensions);
}

#[test]
fn generated_label_names() {
    let mut text = "| attribute | label | where |\n|---|---|---|\n".to_owned();
    for alias in ALIASES {
        let place = match (alias.place, alias.runtime) {
            (Place::Resource, None) => "resource".to_owned(),
            (Place::Resource, Some(runtime)) => format!("resource; containers of {runtime}"),
            (Place::Sample, _) => "sample".to_owned(),
            (Place::Presence, _) => "resource; `true` where it is there".to_owned(),
        };
        let (attribute, label) = (alias.attribute, alias.label);
        text.push_str(&format!("| `{attribute}` | `{label}` | {place} |\n"));
    }
    check_part("docs/labels.md", "labels", &text);
}

fn tables<C: ?Sized>(kind: Kind, entries: &[Entry<C>]) {
    for entry in entries {
        let path = format!("components/{kind}s/{}/README.md", entry.name);
        check_part(&path, "options", &table(&options(&(entry.schema)())));
    }
}

fn table(options: &[ConfigOption]) -> String {
    if options.is_empty() {
        return "It has no options.\n".to_owned();
    }
    let mut text = "| option | type | default | |\n|---|---|---|---|\n".to_owned();
    for ConfigOption {
        path,
        kind,
        default,
        doc,
    } in options
    {
        let cells = [
            format!("`{path}`"),
            kind.clone(),
            written(default.as_ref()),
            doc.clone(),
        ];
        let cells = cells.map(|cell| cell.replace('\n', " ").replace('|', "\\|"));
        text.push_str(&format!("| {} |\n", cells.join(" | ")));
    }
    text
}

/// A default as a user would write it. A section's defaults stand in the rows below it.
fn written(default: Option<&Value>) -> String {
    match default {
        None | Some(Value::Null | Value::Object(_)) => String::new(),
        Some(Value::String(text)) if !text.is_empty() => format!("`{text}`"),
        Some(value) => format!("`{value}`"),
    }
}

#[test]
fn generated_catalogues() {
    catalogue(Kind::Receiver, REGISTRY.receivers);
    catalogue(Kind::Processor, REGISTRY.processors);
    catalogue(Kind::Exporter, REGISTRY.exporters);
    catalogue(Kind::Extension, REGISTRY.extensions);
}

fn catalogue<C: ?Sized>(kind: Kind, entries: &[Entry<C>]) {
    let mut entries: Vec<_> = entries.iter().collect();
    entries.sort_by_key(|entry| entry.name);
    let mut text = format!("| {kind} | also | stability | |\n|---|---|---|---|\n");
    for entry in entries {
        let Entry {
            name, stability, ..
        } = entry;
        let aliases: Vec<_> = entry
            .aliases
            .iter()
            .map(|alias| format!("`{alias}`"))
            .collect();
        let schema = (entry.schema)();
        let what = schema
            .get("description")
            .and_then(Value::as_str)
            .unwrap_or_default();
        let what = what
            .split("\n\n")
            .next()
            .unwrap_or_default()
            .replace('\n', " ");
        let aliases = aliases.join(", ");
        text.push_str(&format!(
            "| [`{name}`]({name}) | {aliases} | {stability} | {what} |\n"
        ));
    }
    check_part(
        &format!("components/{kind}s/README.md"),
        "components",
        &text,
    );
}
