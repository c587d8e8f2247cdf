//! Commands that change a host or a cluster are not run: what they name must exist.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use profcol_test_harness::support::{root, run, yaml};
use serde_json::Value;

use crate::page::{Page, deployments, guides};

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Each command of a page, without its prompt. Lines of a here document have none.
fn commands(page: &Page) -> Vec<String> {
    let blocks = page.blocks("console");
    let lines = blocks.iter().flat_map(|block| block.lines());
    let commands =
        lines.filter_map(|line| line.strip_prefix("$ ").or_else(|| line.strip_prefix("# ")));
    commands.map(str::to_owned).collect()
}

/// The pages and their commands.
fn all() -> Vec<(String, String)> {
    let pages = deployments().into_iter().chain(guides());
    let all = pages.flat_map(|page| {
        let name = page.name();
        commands(&page)
            .into_iter()
            .map(move |it| (name.clone(), it))
    });
    all.collect()
}

fn text(path: &str) -> String {
    let path = root().join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn files_in_commands_exist() {
    let artifacts = artifacts();
    let mut found = 0;
    for (page, command) in all() {
        for word in command.split([' ', '=', ':']) {
            let word = word.trim_start_matches("./");
            let is_there = match word.strip_prefix("target/packages/") {
                Some(artifact) => artifacts.contains(artifact),
                None if word.starts_with("deploy/") || word.starts_with("config-examples/") => {
                    root().join(word).exists()
                }
                None => continue,
            };
            assert!(is_there, "{page}: no {word}: {command}");
            found += 1;
        }
    }
    assert!(found > 15, "{found}");
}

/// Those that docs/install.md lists. `tests/packages` finds the real ones by their endings.
fn artifacts() -> BTreeSet<String> {
    let page = text("docs/install.md");
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `"));
    let names: BTreeSet<_> = rows
        .filter_map(|row| row.split_once('`'))
        .map(|(name, _)| name.to_owned())
        .collect();
    for name in &names {
        assert!(name.contains(VERSION) || name == "SHA256SUMS", "{name}");
    }
    assert!(names.len() > 6, "{names:?}");
    names
}

/// `profcol` has the commands and the options, `cargo xtask` the commands.
#[test]
fn own_commands_exist() {
    let xtask = text("xtask/src/main.rs");
    let mut found = 0;
    for (page, command) in all() {
        if let Some(words) = command.strip_prefix("cargo xtask ") {
            let name = words.split(' ').next().unwrap();
            assert!(xtask.contains(&format!("(\"{name}\", ")), "{page}: {name}");
            found += 1;
        }
        let Some(words) = command.strip_prefix("profcol ") else {
            continue;
        };
        // What follows ` -- ` is another program's.
        let own = words.split(" -- ").next().unwrap_or_default();
        let is_name = |it: &&str| !it.starts_with('-') && !it.contains(['.', '/']);
        let name = own.split(' ').take(1).find(is_name);
        let help = run(&[name.as_slice(), &["--help"]].concat());
        assert_eq!(help.code, Some(0), "{page}: {command}: {}", help.stderr);
        for option in own.split([' ', '=']).filter(|it| it.starts_with("--")) {
            assert!(help.stdout.contains(option), "{page}: {option}: {command}");
        }
        found += 1;
    }
    assert!(found > 10, "{found}");
}

/// `helm install NAME CHART --set key=value`
#[test]
fn values_in_commands_exist() {
    let values = yaml(&text("deploy/helm/profcol/values.yaml"));
    let schema: Value =
        serde_json::from_str(&text("deploy/helm/profcol/values.schema.json")).unwrap();
    let mut found = 0;
    for (page, command) in all() {
        if !command.starts_with("helm ") {
            continue;
        }
        let words: Vec<_> = command.split(' ').collect();
        let set = words.windows(2).filter(|it| it[0] == "--set");
        for (key, value) in set.filter_map(|it| it[1].split_once('=')) {
            let pointer = format!("/{}", key.replace('.', "/"));
            assert!(values.pointer(&pointer).is_some(), "{page}: no value {key}");
            if key == "mode" {
                let modes = schema["properties"]["mode"]["enum"].as_array().unwrap();
                assert!(modes.iter().any(|it| it == value), "{page}: {value}");
            }
            found += 1;
        }
    }
    assert!(found > 6, "{found}");
}

/// The blocks of the chart's page are values.
#[test]
fn values_in_the_charts_page_exist() {
    let values = yaml(&text("deploy/helm/profcol/values.yaml"));
    let pages = deployments();
    let page = pages
        .iter()
        .find(|it| it.name() == "deploy/helm/profcol/README.md")
        .unwrap();
    let blocks = page.blocks("yaml");
    assert!(!blocks.is_empty());
    for block in blocks {
        let set = yaml(&block);
        for key in set.as_object().unwrap().keys() {
            assert!(values.get(key).is_some(), "no value {key}: {block}");
        }
    }
}

/// ConfigMaps that commands create are those of the manifests.
#[test]
fn config_maps_are_those_of_the_manifests() {
    let mut manifests = String::new();
    for entry in fs::read_dir(root().join("deploy/kubernetes")).unwrap() {
        let path: PathBuf = entry.unwrap().path();
        if path.extension().is_some_and(|it| it == "yaml") {
            manifests += &fs::read_to_string(path).unwrap();
        }
    }
    let mut created = BTreeSet::new();
    for (page, command) in all() {
        if let Some(rest) = command.strip_prefix("kubectl create configmap ") {
            let name = rest.split(' ').next().unwrap();
            let used = format!("configMap: {{name: {name}}}");
            assert!(manifests.contains(&used), "{page}: {name} is not mounted");
            created.insert(name.to_owned());
        }
    }
    let mounted = manifests.matches("configMap: {name:").count();
    assert_eq!(created.len(), mounted, "{created:?}");
}

/// A container gets the capabilities of the DaemonSet.
#[test]
fn capabilities_of_a_container_are_those_of_the_manifest() {
    let manifest = text("deploy/kubernetes/daemonset.yaml");
    let mut found = 0;
    for (page, command) in all() {
        let Some((_, added)) = command.split_once("--cap-add=") else {
            continue;
        };
        let added = added.split(' ').next().unwrap().replace(',', ", ");
        assert!(
            manifest.contains(&format!("add: [{added}]")),
            "{page}: {added}"
        );
        found += 1;
    }
    assert!(found > 0);
}
