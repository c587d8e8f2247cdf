//! `profcol processes` and `profcol relabel test`.

use profcol_component::AnyConfig;
use profcol_engine::Document;
use profcol_labels::{LabelRows, Labels, RelabelConfig};
use profcol_metadata::container::{ContainerSettings, add_containers};
use profcol_metadata::process::{ProcessOptions, attributes_of};
use profcol_metadata::systemd::add_units_to_all;
use profcol_printable::line;
use profcol_profile::{Attributes, KeyValue};
use serde_json::{Map, Value, json};

use super::print::{print_text, print_value};
use super::{CommandError, load};
use crate::cli::{Configuration, Format, RelabelTest};
use crate::stderr::print;

/// Prints the attributes of each process on this host.
pub fn processes(
    configuration: &Configuration,
    pid: Option<u32>,
    format: Format,
) -> Result<(), CommandError> {
    let containers = match configuration.uris.is_empty() {
        true => default_containers(),
        false => configured_containers(&load::load(configuration)?.document),
    };
    let pids = match pid {
        Some(pid) => vec![pid],
        None => profcol_processes::pids(),
    };
    let mut found = describe(&containers, &pids)?;
    add_runtimes(&mut found);
    let described = found.into_iter().map(|(pid, attributes)| {
        let shown = attributes.iter().map(|it| (it.key.to_string(), shown(it)));
        (pid.to_string(), Value::Object(shown.collect()))
    });
    let described: Map<String, Value> = described.collect();
    if let (Some(pid), true) = (pid, described.is_empty()) {
        return Err(no_process(pid));
    }
    print_value(&Value::Object(described), format)
}

/// Adds the language runtime of each process and whether its functions can be symbolized.
#[cfg(feature = "ebpf_cpu")]
fn add_runtimes(processes: &mut [(u32, Attributes)]) {
    use std::path::Path;

    use profcol_ebpf_interpreters::language_runtimes::language_runtimes;

    let pids: Vec<u32> = processes.iter().map(|(pid, _)| *pid).collect();
    let runtimes = language_runtimes(Path::new("/proc"), &pids);
    for (pid, attributes) in processes {
        let Some(runtime) = runtimes.get(pid) else {
            continue;
        };
        let rows = [
            ("process.runtime.name", Some(runtime.name)),
            ("process.runtime.version", runtime.version.as_deref()),
            (
                "profcol.runtime.unsupported",
                runtime.unsupported.as_deref(),
            ),
        ];
        let rows = rows.into_iter();
        let known = rows.filter_map(|(key, value)| Some(KeyValue::new(key, value?)));
        attributes.extend(known);
    }
}

#[cfg(not(feature = "ebpf_cpu"))]
fn add_runtimes(_: &mut [(u32, Attributes)]) {}

/// Prints labels before the rules, each rule's effect, and labels after them.
pub fn relabel_test(configuration: &Configuration, test: &RelabelTest) -> Result<(), CommandError> {
    let document = load::load(configuration)?.document;
    let attributes = match (test.pid, &test.labels) {
        (Some(pid), _) => {
            let found = describe(&configured_containers(&document), &[pid])?.pop();
            found.ok_or_else(|| no_process(pid))?.1
        }
        (None, labels) => labels
            .iter()
            .map(|(name, value)| KeyValue::new(name, value.as_str()))
            .collect(),
    };
    let processors = document.processors.iter();
    let mut is_any = false;
    for declared in processors {
        let config: &dyn AnyConfig = &*declared.config;
        if let Some(config) = config.as_any().downcast_ref::<RelabelConfig>() {
            is_any = true;
            let report = report(&declared.id.to_string(), config, attributes.clone())?;
            print_text(&report)?;
        }
    }
    match is_any {
        true => Ok(()),
        false => Err(CommandError::Configuration(
            "the configuration has no relabel processor".to_owned(),
        )),
    }
}

fn report(
    id: &str,
    config: &RelabelConfig,
    mut attributes: Attributes,
) -> Result<String, CommandError> {
    let rules = config
        .rules()
        .map_err(|error| CommandError::Configuration(error.to_string()))?;
    let rows = LabelRows::of_resource(&attributes);
    let mut labels = rows.labels();
    let mut text = format!("{id}\n\nbefore:\n");
    for row in rows.iter() {
        let aliases: Vec<&str> = row.aliases().collect();
        let also = match aliases.is_empty() {
            true => String::new(),
            false => format!("  (also {})", line(&aliases.join(", "))),
        };
        let name = line(row.name());
        text.push_str(&format!("  {name} = {:?}{also}\n", row.text()));
    }
    for (number, rule) in rules.iter().enumerate() {
        let before = owned(&labels);
        let written = rule.to_string();
        text.push_str(&format!("\nrule {}: {}\n", number + 1, line(&written)));
        if !rule.apply(&mut labels) {
            text.push_str("  drops it\n");
            return Ok(text);
        }
        text.push_str(&difference(&before, &owned(&labels)));
    }
    rows.changes(&labels, config.leftovers())
        .apply(&mut attributes);
    text.push_str("\nattributes after:\n");
    for row in LabelRows::of_resource(&attributes)
        .iter()
        .filter(|row| row.is_attribute())
    {
        let name = line(row.name());
        text.push_str(&format!("  {name} = {:?}\n", row.text()));
    }
    text.push('\n');
    Ok(text)
}

type Owned = Vec<(String, String)>;

fn owned(labels: &Labels<'_>) -> Owned {
    let labels = labels.sorted().into_iter();
    labels
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

fn difference(before: &Owned, after: &Owned) -> String {
    let gone = before.iter().filter(|it| !after.contains(it));
    let gone = gone.map(|(name, value)| format!("  - {} = {value:?}\n", line(name)));
    let new = after.iter().filter(|it| !before.contains(it));
    let new = new.map(|(name, value)| format!("  + {} = {value:?}\n", line(name)));
    let all: String = gone.chain(new).collect();
    match all.is_empty() {
        true => "  changes nothing\n".to_owned(),
        false => all,
    }
}

/// Shows all labels: they go only to the user's terminal.
fn default_containers() -> ContainerSettings {
    ContainerSettings {
        labels: vec![".*".to_owned()],
        ..ContainerSettings::default()
    }
}

/// The settings of the first `container` processor, or the default.
fn configured_containers(document: &Document) -> ContainerSettings {
    let mut processors = document.processors.iter();
    let container = processors.find(|declared| declared.entry.name == "container");
    let resolved = container.and_then(|declared| declared.config.resolved().ok());
    resolved
        .and_then(|config| serde_json::from_value(config).ok())
        .unwrap_or_else(default_containers)
}

/// The attributes of those `pids` that exist.
fn describe(
    containers: &ContainerSettings,
    pids: &[u32],
) -> Result<Vec<(u32, Attributes)>, CommandError> {
    let options = ProcessOptions {
        command_args: true,
        service_name: true,
        process_context: true,
        ..ProcessOptions::default()
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| CommandError::Runtime(format!("failed to start: {error}")))?;
    let found = pids
        .iter()
        .filter_map(|&pid| Some((pid, attributes_of(pid, &options)?)));
    let (pids, mut processes): (Vec<u32>, Vec<Attributes>) = found.unzip();
    runtime.block_on(async {
        for (socket, error) in add_containers(containers, &mut processes).await {
            // The path is from the configuration, the error from the runtime.
            let (path, error) = (line(&socket.path), error.to_string());
            print(&format!(
                "warning: {path}: {}; its containers are shown by what their cgroups say\n",
                line(&error)
            ));
        }
        add_units_to_all(&mut processes).await;
    });
    Ok(pids.into_iter().zip(processes).collect())
}

fn shown(attribute: &KeyValue) -> Value {
    match &attribute.value {
        profcol_profile::Value::Int(number) => json!(number),
        profcol_profile::Value::Bool(flag) => json!(flag),
        other => json!(profcol_labels::text(other).unwrap_or_default()),
    }
}

fn no_process(pid: u32) -> CommandError {
    CommandError::Runtime(format!("process {pid} not found"))
}
