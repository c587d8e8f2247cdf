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

/// `cargo xtask` has the commands.
#[test]
fn commands_of_xtask_exist() {
    let xtask = text("xtask/src/main.rs");
    let mut found = 0;
    for (page, command) in all() {
        if let Some(words) = command.strip_prefix("cargo xtask ") {
            let name = words.split(' ').next().unwrap();
            assert!(xtask.contains(&format!("(\"{name}\", ")), "{page}: {name}");
            found += 1;
        }
    }
    assert!(found > 0);
}

/// profcol's command line understands its commands, those in the text too: with `--help` at the end it reads the rest, and does nothing.
#[test]
fn own_commands_are_understood() {
    let pages = deployments().into_iter().chain(guides());
    let of_page = |page: Page| {
        let commands = commands(&page).into_iter().chain(page.codes());
        let name = page.name();
        let all = commands.filter_map(move |it| Some((name.clone(), own_words(&it)?)));
        all.collect::<Vec<_>>()
    };
    let mut found = 0;
    for (page, words) in pages.flat_map(of_page) {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let help = run(&[&words, ["--help"].as_slice()].concat());
        assert_eq!(help.code, Some(0), "{page}: {words:?}: {}", help.stderr);
        found += 1;
    }
    assert!(found > 40, "{found}");
}

/// What follows `profcol` in a command for a shell; None if that is another program's. Variables may precede it. What follows ` -- ` is
/// another program's, too.
fn own_words(command: &str) -> Option<Vec<String>> {
    let mut words = Vec::new();
    let mut word = None::<String>;
    let mut quote = None;
    for c in command.chars() {
        match (quote, c) {
            (Some(open), _) if c == open => quote = None,
            (None, '\'' | '"') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None, _) if c.is_whitespace() => words.extend(word.take()),
            _ => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    let is_variable = |it: &String| it.contains('=') && !it.starts_with('-');
    let mut words = words.into_iter().skip_while(is_variable);
    let program = words.next()?;
    let is_end = |it: &String| ["--", "|", "&&", "&", ">", "#", "…"].contains(&it.as_str());
    let is_own = program == "profcol" || program.ends_with("/profcol");
    // Stands for a number.
    let filled = |it: String| if it == "PID" { "1".to_owned() } else { it };
    is_own.then(|| words.take_while(|it| !is_end(it)).map(filled).collect())
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

/// The page of the unit puts each file where the unit looks for it, and sets variables that the configuration uses.
#[test]
fn the_unit_finds_what_its_page_installs() {
    let unit = text("deploy/systemd/profcol.service");
    let pages = deployments();
    let page = pages
        .iter()
        .find(|it| it.name() == "deploy/systemd/README.md")
        .unwrap();
    let mut installed = 0;
    for command in commands(page) {
        let words: Vec<&str> = command.split(' ').collect();
        if let ["systemctl", .., name] = words.as_slice() {
            let is_there = *name == "daemon-reload" || *name == "profcol";
            assert!(is_there, "no unit {name}");
        }
        let ["install", .., source, to] = words.as_slice() else {
            continue;
        };
        // Before `<<END`.
        let to = if *to == "<<END" { source } else { to };
        let is_there = match *to {
            "/etc/systemd/system/" => true,
            "/usr/local/bin/" => unit.contains("\nExecStart=/usr/local/bin/profcol "),
            file => unit.contains(file),
        };
        assert!(is_there, "the unit does not use {to}");
        installed += 1;
    }
    assert_eq!(installed, 4);

    let config = text("config-examples/systemd-host.yaml");
    let block = page.blocks("console").join("\n");
    let set = block.lines().filter_map(|line| line.split_once('='));
    let is_variable = |it: &&str| it.chars().all(|c| c.is_ascii_uppercase() || c == '_');
    let set: Vec<&str> = set.map(|(name, _)| name).filter(is_variable).collect();
    assert!(!set.is_empty());
    for name in set {
        let is_used = ['}', ':'].map(|end| config.contains(&format!("${{env:{name}{end}")));
        assert!(
            is_used.contains(&true),
            "the configuration does not use {name}"
        );
    }
}

/// Namespaces, their labels, Deployments and ServiceAccounts that kubectl names are those of the manifests, or of the page itself.
#[test]
fn objects_in_commands_exist() {
    let rights = text("deploy/kubernetes/rights.yaml");
    let mut found = 0;
    for page in deployments() {
        let commands = commands(&page);
        let own = |kind: &str, name: &str| {
            let is_created = commands
                .iter()
                .any(|it| it.starts_with(&format!("kubectl create {kind} {name}")));
            is_created
                || page
                    .text
                    .contains(&format!("kind: {kind}\nmetadata:\n  name: {name}\n"))
        };
        for command in commands.iter().filter(|it| it.starts_with("kubectl ")) {
            let words: Vec<&str> = command.split(' ').collect();
            let namespaces = words
                .windows(2)
                .filter(|it| ["-n", "--namespace"].contains(&it[0]));
            for name in namespaces.map(|it| it[1]) {
                let of_manifests = format!("kind: Namespace\nmetadata:\n  name: {name}\n");
                // `shop` stands for the user's own.
                let is_there =
                    rights.contains(&of_manifests) || own("namespace", name) || name == "shop";
                assert!(is_there, "{}: no namespace {name}: {command}", page.name());
                found += 1;
            }
            if let Some((_, rest)) = command.split_once(" patch deployment ") {
                let name = rest.split(' ').next().unwrap();
                assert!(
                    own("Deployment", name),
                    "{}: no Deployment {name}",
                    page.name()
                );
                found += 1;
            }
            if let Some((_, label)) = command.split_once("pod-security.kubernetes.io/") {
                let label = label.split(' ').next().unwrap().replace('=', ": ");
                let label = format!("pod-security.kubernetes.io/{label}\n");
                assert!(rights.contains(&label), "{}: {label}", page.name());
                found += 1;
            }
        }
    }
    assert!(found > 4, "{found}");
}

/// An image that is pushed has the version and the name that the chart asks for.
#[test]
fn images_in_commands_are_those_of_the_chart() {
    let chart = yaml(&text("deploy/helm/profcol/Chart.yaml"));
    let version = chart["appVersion"].as_str().unwrap();
    let mut pushed = 0;
    for page in deployments() {
        let commands = commands(&page);
        let images = commands.iter().filter_map(|it| it.split_once(" docker://"));
        let images: BTreeSet<&str> = images.map(|(_, image)| image).collect();
        for image in &images {
            let (_, tag) = image.rsplit_once(':').unwrap();
            assert_eq!(tag, version, "{}: {image}", page.name());
            pushed += 1;
        }
        let asked = commands
            .iter()
            .filter_map(|it| it.split_once("--set image.repository="));
        for (_, rest) in asked {
            let name = rest.split(' ').next().unwrap();
            let image = format!("{name}:{version}");
            assert!(
                images.contains(image.as_str()),
                "{}: nobody pushes {image}",
                page.name()
            );
        }
    }
    assert!(pushed > 1, "{pushed}");
}
