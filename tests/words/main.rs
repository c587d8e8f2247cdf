//! Checks the guides: links resolve, configurations are valid, options exist, quotes of doctor are exact, and commands
//! work as described.

#![allow(clippy::unwrap_used, reason = "a panic fails the test")]

mod commands;
mod deployments;
mod page;

use std::fs;
use std::path::{Path, PathBuf};

use profcol_config::{Sources, yaml};
use profcol_test_harness::support::{file, path, root, run};
use serde_json::Value;

use self::page::{KINDS, Page, all_pages, deployments, guides, guides_and_readme, quoted};

#[test]
fn links_resolve() {
    let mut wrong = Vec::new();
    for page in all_pages() {
        let directory = page.path.parent().unwrap();
        for link in page.links() {
            let (target, anchor) = link.split_once('#').unwrap_or((&link, ""));
            let target = match target {
                "" => page.path.clone(),
                target => directory.join(target),
            };
            let is_there = match anchor {
                "" => target.exists(),
                anchor => fs::read_to_string(&target)
                    .or_else(|_| fs::read_to_string(target.join("README.md")))
                    .is_ok_and(|text| Page::new(target, text).anchors().any(|it| it == anchor)),
            };
            if !is_there {
                wrong.push(format!("{}: {link}", page.name()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn configurations_are_valid() {
    let mut pipelines = 0;
    for page in guides_and_readme().into_iter().chain(deployments()) {
        for block in page.blocks("yaml") {
            let mut sources = Sources::default();
            let id = sources.add("guide", block.as_str(), None).unwrap();
            let parsed = yaml::parse(&sources, id);
            parsed.unwrap_or_else(|problem| panic!("{}: {problem}\n{block}", page.name()));
            if block.contains("\nservice:") {
                pipelines += 1;
                let file = file("guide.yaml", block);
                let answer = run(&["validate", "--config", path(&file.path)]);
                assert_eq!(answer.code, Some(0), "{}: {}", page.name(), answer.stderr);
            }
        }
    }
    assert!(pipelines >= 3, "{pipelines}");
}

/// `ebpf_cpu::frequency` is in the table of options of `ebpf_cpu`.
#[test]
fn options_exist() {
    let schema = fs::read_to_string(root().join("config-examples/schema.json")).unwrap();
    let schema: Value = serde_json::from_str(&schema).unwrap();
    let mut found = 0;
    for page in guides().into_iter().chain(deployments()) {
        for code in page.codes() {
            let Some((component, option)) = code.split_once("::") else {
                continue;
            };
            // A value may follow.
            let option = option.split(": ").next().unwrap_or(option);
            if component == "service" {
                let is_there = has_setting(&schema, option);
                assert!(is_there, "{}: service has no {option}", page.name());
                continue;
            }
            let of_kind = |kind| root().join(format!("components/{kind}/{component}/README.md"));
            let row = format!("\n| `{option}` |");
            let is_there = KINDS
                .iter()
                .filter_map(|kind| fs::read_to_string(of_kind(kind)).ok())
                .any(|readme| readme.contains(&row));
            assert!(is_there, "{}: {component} has no {option}", page.name());
            found += 1;
        }
    }
    assert!(found > 20, "{found}");
}

/// Whether the section `service` has this setting.
fn has_setting(schema: &Value, path: &str) -> bool {
    let mut node = Some(&schema["properties"]["service"]);
    for key in path.split("::") {
        node = node
            .map(|node| resolved(schema, node))
            .and_then(|node| node["properties"].get(key));
    }
    node.is_some()
}

/// Follows references inside the schema.
fn resolved<'a>(schema: &'a Value, mut node: &'a Value) -> &'a Value {
    while let Some(reference) = node["$ref"].as_str() {
        node = schema.pointer(reference.trim_start_matches('#')).unwrap();
    }
    node
}

/// Each `- doctor: …` names existing checks, and it, headings and log lines quote the code exactly; `…` is what varies.
#[test]
fn quotes_are_exact() {
    let sources = sources();
    let page = guides()
        .into_iter()
        .find(|it| it.name() == "docs/troubleshooting.md")
        .unwrap();
    let mut quotes = 0;
    for line in page.text.lines() {
        if !(line.contains("doctor: `")
            || line.contains("doctor, with")
            || line.contains("The log line")
            || line.contains("The log says \"")
            || line.contains("The error")
            || line.starts_with("### \""))
        {
            continue;
        }
        let unquoted: Vec<&str> = line.split('"').step_by(2).collect();
        for check in Page::codes_of(&unquoted.join(" ")) {
            if ["ok", "warn", "fail", "--config"].contains(&check.as_str()) {
                continue;
            }
            let is_there = match check.strip_prefix("runtime_") {
                Some(runtime) => ["id: ", "unread("]
                    .iter()
                    .any(|before| sources.contains(&format!("{before}\"{runtime}\""))),
                None => sources.contains(&format!("\"{check}\"")),
            };
            assert!(is_there, "no check {check}: {line}");
        }
        for quote in quoted(line) {
            assert!(
                has_quote(&sources, &quote),
                "no source contains {quote:?}: {line}"
            );
            quotes += 1;
        }
    }
    assert!(quotes > 20, "{quotes}");
}

/// Whether the parts of `quote` between `…` occur in one text of the sources, in this order.
fn has_quote(sources: &str, quote: &str) -> bool {
    let mut parts = quote.split('…').filter(|part| !part.is_empty());
    let Some(first) = parts.next() else {
        return false;
    };
    sources.split(first).skip(1).any(|rest| {
        let (text, _) = rest.split_once('"').unwrap_or((rest, ""));
        let end = parts.clone().try_fold(text, |text, part| {
            text.split_once(part).map(|(_, after)| after)
        });
        end.is_some()
    })
}

/// All code with texts of checks; joins string literals over several lines.
fn sources() -> String {
    let mut all = String::new();
    for directory in [
        "components",
        "ebpf/interpreters/src",
        "ebpf/loader/src",
        "src",
        "pipeline/component/src",
        "pipeline/kubernetes/src",
    ] {
        read(&root().join(directory), &mut all);
    }
    let mut joined = String::new();
    for part in all.split("\\\n") {
        let part = match joined.is_empty() {
            true => part,
            false => part.trim_start(),
        };
        joined += part;
    }
    joined
}

fn read(directory: &Path, all: &mut String) {
    let entries = fs::read_dir(directory).unwrap();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    for path in paths {
        if path.is_dir() {
            read(&path, all);
        } else if path.extension().is_some_and(|it| it == "rs") {
            *all += &fs::read_to_string(&path).unwrap();
        }
    }
}
