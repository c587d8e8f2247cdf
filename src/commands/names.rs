//! The commands about what is known of processes, and what relabel rules make of it.

use profcol_component::{AnyConfig, Factory};
use profcol_engine::Document;
use profcol_labels::{Labels, Rows};
use profcol_printable::line;
use profcol_processors::container::{self, ContainerConfig};
use profcol_processors::process::{self, ProcessConfig};
use profcol_processors::relabel::{RelabelConfig, RelabelProcessor};
use profcol_processors::systemd;
use profcol_profile::{Attributes, KeyValue};
use serde_json::{Map, Value, json};

use super::print::{print_text, print_value};
use super::{Failure, load};
use crate::cli::{Configuration, Format, RelabelTest};

/// What the processors know of each process on this host.
pub fn processes(
    configuration: &Configuration,
    pid: Option<u32>,
    format: Format,
) -> Result<(), Failure> {
    let containers = match configuration.uris.is_empty() {
        true => usual(),
        false => as_configured(&load::load(configuration)?.document),
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

/// What runs the functions of each process, and whether they will be shown.
#[cfg(feature = "ebpf_cpu")]
fn add_runtimes(processes: &mut [(u32, Attributes)]) {
    let pids: Vec<u32> = processes.iter().map(|(pid, _)| *pid).collect();
    let runtimes = profcol_receivers::ebpf_cpu::language_runtimes(&pids);
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

/// Labels before the rules, what each rule does, and labels after them.
pub fn relabel_test(configuration: &Configuration, test: &RelabelTest) -> Result<(), Failure> {
    let document = load::load(configuration)?.document;
    let attributes = match (test.pid, &test.labels) {
        (Some(pid), _) => {
            let found = describe(&as_configured(&document), &[pid])?.pop();
            found.ok_or_else(|| no_process(pid))?.1
        }
        (None, labels) => labels
            .iter()
            .map(|(name, value)| KeyValue::new(name, value.as_str()))
            .collect(),
    };
    let processors = document.processors.iter();
    let relabelers = processors.filter(|it| it.entry.name == RelabelProcessor::NAME);
    let mut is_any = false;
    for declared in relabelers {
        let config: &dyn AnyConfig = &*declared.config;
        if let Some(config) = config.as_any().downcast_ref::<RelabelConfig>() {
            is_any = true;
            let report = report(&declared.id.to_string(), config, attributes.clone())?;
            print_text(&report)?;
        }
    }
    match is_any {
        true => Ok(()),
        false => Err(Failure::Configuration(
            "the configuration has no relabel processor".to_owned(),
        )),
    }
}

fn report(id: &str, config: &RelabelConfig, mut attributes: Attributes) -> Result<String, Failure> {
    let rules = config.rules().map_err(Failure::Configuration)?;
    let rows = Rows::of_resource(&attributes);
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
    for row in Rows::of_resource(&attributes)
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

/// How containers are asked for without a configuration. All labels are shown: nobody else sees them.
fn usual() -> ContainerConfig {
    ContainerConfig {
        labels: vec![".*".to_owned()],
        ..ContainerConfig::default()
    }
}

/// How the first processor of containers asks; without one, how it would.
fn as_configured(document: &Document) -> ContainerConfig {
    let mut processors = document.processors.iter();
    let found = processors.find_map(|declared| {
        let config: &dyn AnyConfig = &*declared.config;
        config.as_any().downcast_ref().cloned()
    });
    found.unwrap_or_else(usual)
}

/// Those of the processes that can be seen here.
fn describe(containers: &ContainerConfig, pids: &[u32]) -> Result<Vec<(u32, Attributes)>, Failure> {
    let config = ProcessConfig {
        command_args: true,
        ..ProcessConfig::default()
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::Runtime(format!("failed to start: {error}")))?;
    let found = pids
        .iter()
        .filter_map(|&pid| Some((pid, process::describe(&config, pid)?)));
    let (pids, mut processes): (Vec<u32>, Vec<Attributes>) = found.unzip();
    runtime.block_on(async {
        container::describe(containers, &mut processes).await;
        systemd::describe(&mut processes).await;
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

fn no_process(pid: u32) -> Failure {
    Failure::Runtime(format!("process {pid} not found"))
}
