//! The generated files of this repository. Each test compares; `UPDATE=1` (or `cargo xtask gen`) writes them.

mod unsafe_code;

use std::collections::BTreeSet;
use std::path::Path;

use profcol::REGISTRY;
use profcol_component::{Entry, Kind};
use profcol_config::schema::{ConfigOption, options};
use profcol_labels::{ALIASES, LabelSource};
use profcol_test_harness::support::{Ended, root, run};
use serde_json::Value;

/// Compares the file at `path` with `content`.
fn check(path: &str, content: &str) {
    let file = root().join(path);
    if std::env::var_os("UPDATE").is_some_and(|update| update == "1") {
        std::fs::create_dir_all(file.parent().unwrap_or(Path::new("."))).expect("a directory");
        std::fs::write(&file, content).expect("written");
    }
    let found = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(found == content, "{path} is stale: run `cargo xtask gen`");
}

/// Compares the text between the lines `<!-- name -->` and `<!-- /name -->` of `path` with `content`.
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

/// One page for each command that another page refers to.
#[test]
fn generated_man_pages() {
    let directory = root().join("docs/generated/man");
    let mut expected = BTreeSet::new();
    let mut names = vec!["profcol".to_owned()];
    while let Some(name) = names.pop() {
        let words = match name.strip_prefix("profcol-") {
            None => Vec::new(),
            // `print-config` is one word.
            Some("relabel-test") => vec!["relabel", "test"],
            Some("storage-inspect") => vec!["storage", "inspect"],
            Some(command) => vec![command],
        };
        let page = printed(&[&["man"], &*words].concat());
        let lines = page.lines().filter_map(|line| line.strip_suffix("(1)"));
        names.extend(lines.map(|name| name.replace("\\-", "-")));
        check(&format!("docs/generated/man/{name}.1"), &page);
        expected.insert(format!("{name}.1"));
    }
    let found = std::fs::read_dir(directory).expect("the directory exists");
    let found = found.map(|entry| entry.expect("readable").file_name());
    let found: BTreeSet<_> = found
        .map(|name| name.to_string_lossy().into_owned())
        .collect();
    assert_eq!(found, expected, "unreferenced pages: delete them");
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
    tables(Kind::Connector, REGISTRY.connectors);
    tables(Kind::Extension, REGISTRY.extensions);
}

/// A chart cannot read files outside its directory.
#[test]
fn generated_chart_files() {
    for (name, example) in [
        ("daemonset", "kubernetes-daemonset"),
        ("deployment", "gateway"),
        ("statefulset", "gateway-stored"),
        ("sidecar", "sidecar"),
    ] {
        let example = root().join(format!("config-examples/{example}.yaml"));
        let text = std::fs::read_to_string(example).expect("the example exists");
        // It refers editors to a file next to it.
        let (_, text) = text.split_once('\n').expect("a first line");
        check(&format!("deploy/helm/profcol/files/{name}.yaml"), text);
    }
    let rules = root().join("deploy/monitoring/rules.yaml");
    let rules = std::fs::read_to_string(rules).expect("the file exists");
    check("deploy/helm/profcol/files/rules.yaml", &rules);
}

/// Each value of the chart has a comment, which its README lists, and a type in its schema.
#[test]
fn generated_chart_values() {
    let chart = root().join("deploy/helm/profcol");
    let values = std::fs::read_to_string(chart.join("values.yaml")).expect("the file exists");
    let schema =
        std::fs::read_to_string(chart.join("values.schema.json")).expect("the file exists");
    let schema: Value = serde_json::from_str(&schema).expect("JSON");
    let mut table = "| value | default | |\n|---|---|---|\n".to_owned();
    let (mut section, mut documentation) = ("", "");
    for line in values.lines() {
        let text = line.trim_start();
        if let Some(comment) = text.strip_prefix("# -- ") {
            documentation = comment;
            continue;
        }
        let Some((key, default)) = text.split_once(':') else {
            continue;
        };
        let is_below = line.starts_with("  ");
        let described = match is_below {
            true => &schema["properties"][section]["properties"][key],
            false => &schema["properties"][key],
        };
        let is_deeper = line.starts_with("   ");
        let has_keys = !schema["properties"][section]["properties"].is_null();
        if is_deeper || is_below && described.is_null() && !has_keys {
            // Part of a default.
            continue;
        }
        assert!(
            described.is_object(),
            "{section} {key} is not in the schema"
        );
        if !is_below {
            section = key;
        }
        let output = std::mem::take(&mut documentation);
        if output.is_empty() {
            let is_section = described["properties"].is_object() && default.is_empty();
            assert!(is_section, "{section} {key} has no comment");
            continue;
        }
        let path = match is_below {
            true => format!("{section}.{key}"),
            false => key.to_owned(),
        };
        let default = match default.trim() {
            "" => String::new(),
            default => format!("`{default}`"),
        };
        table.push_str(&format!("| `{path}` | {default} | {output} |\n"));
    }
    check_part("deploy/helm/profcol/README.md", "values", &table);
    // The tag of its image.
    let chart = std::fs::read_to_string(chart.join("Chart.yaml")).expect("the file exists");
    let version = format!("appVersion: {}", env!("CARGO_PKG_VERSION"));
    assert!(chart.lines().any(|line| line == version), "{version}");
}

#[test]
fn generated_label_names() {
    let mut text = "| attribute | label | where |\n|---|---|---|\n".to_owned();
    for alias in ALIASES {
        let location = match (alias.source, alias.runtime) {
            (LabelSource::Resource, None) => "resource".to_owned(),
            (LabelSource::Resource, Some(runtime)) => format!("resource; containers of {runtime}"),
            (LabelSource::Sample, _) => "sample".to_owned(),
            (LabelSource::Presence, _) => "resource; `true` where it is there".to_owned(),
        };
        let (attribute, label) = (alias.attribute, alias.label);
        text.push_str(&format!("| `{attribute}` | `{label}` | {location} |\n"));
    }
    check_part("docs/labels.md", "labels", &text);
}

#[cfg(feature = "ebpf_cpu")]
#[test]
fn generated_runtimes() {
    use profcol_ebpf_interpreters::language_runtimes::KnownRuntime;
    use profcol_ebpf_interpreters::support::Support;

    let mut text = "| runtime | versions | tested with | function names | lines | inlined functions | not supported |\n\
                    |---|---|---|---|---|---|---|\n"
        .to_owned();
    for it in Support::all() {
        let runtime = format!(
            "{}, `profile.frame.type` `{}`",
            it.implementation,
            it.runtime.frame_type()
        );
        let cells = [
            &runtime,
            &it.versions,
            it.tested,
            it.names,
            it.lines,
            it.inlined,
            it.unsupported,
        ];
        text.push_str(&format!("| {} |\n", cells.join(" | ")));
    }
    let page = "components/receivers/ebpf_cpu/README.md";
    check_part(page, "runtimes", &text);
    let unread: Vec<&str> = KnownRuntime::unread().map(|it| it.name).collect();
    check_part(page, "unread", &format!("{}.\n", unread.join(", ")));
}

fn tables<C: ?Sized>(kind: Kind, entries: &[Entry<C>]) {
    for entry in entries {
        let path = format!("components/{kind}s/{}/README.md", entry.name);
        check_part(
            &path,
            "options",
            &table(entry.name, &options(&(entry.schema)())),
        );
    }
}

fn table(name: &str, options: &[ConfigOption]) -> String {
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
        assert!(!doc.is_empty(), "{name}::{path} has no doc comment");
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

/// A default as a user would write it. The defaults of a section are in the rows below it.
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
    catalogue(Kind::Connector, REGISTRY.connectors);
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
