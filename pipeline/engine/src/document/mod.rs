//! The decoded configuration: components with their settings, and their connections.
//!
//! Format, rules and messages are the OpenTelemetry Collector's. All problems are reported at once, each with its `::`
//! path; locations and snippets come from the nodes.

mod connections;
mod editors;
mod print;
mod schema;
#[cfg(test)]
mod tests;
mod topology;
mod warnings;

use std::collections::HashSet;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use profcol_component::{
    AnyConfig, Capabilities, Connector, Entry, Exporter, Extension, Kind, Processor, Receiver,
    Registry,
};
use profcol_config::{
    ComponentId, Config, Duration, IdError, Map, Node, PipelineId, Problem, Problems, did_you_mean,
    load,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use self::schema::schema;
use crate::telemetry::TelemetrySettings;

/// A valid configuration. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Document {
    pub receivers: Vec<Declared<dyn Receiver>>,
    pub processors: Vec<Declared<dyn Processor>>,
    pub exporters: Vec<Declared<dyn Exporter>>,
    pub connectors: Vec<Declared<dyn Connector>>,
    pub extensions: Vec<Declared<dyn Extension>>,
    pub service: ServiceSection,
}

/// A declared component.
pub struct Declared<C: ?Sized + 'static> {
    pub id: ComponentId,
    pub entry: &'static Entry<C>,
    pub config: Arc<dyn AnyConfig>,
}

/// Which components run, and how they are connected.
#[derive(Clone, Debug)]
pub struct ServiceSection {
    pub extensions: Vec<ComponentId>,
    pub pipelines: Vec<Pipeline>,
    pub telemetry: TelemetrySettings,
    pub shutdown_timeout: Duration,
    pub reload: ReloadSettings,
    pub sandbox: SandboxSettings,
}

#[derive(Clone, Debug)]
pub struct Pipeline {
    pub id: PipelineId,
    pub receivers: Vec<ComponentId>,
    pub processors: Vec<ComponentId>,
    pub exporters: Vec<ComponentId>,
}

/// Which components run, and how they are connected.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
struct ServiceSettings {
    /// Extensions, in start order.
    extensions: Vec<ComponentId>,
    /// Telemetry of profcol itself.
    telemetry: TelemetrySettings,
    /// Maximum duration of a shutdown; undelivered data is dropped after that.
    shutdown_timeout: Duration,
    /// Reload of the configuration while running.
    reload: ReloadSettings,
    /// Restrictions of this process.
    sandbox: SandboxSettings,
}

/// Reload of the configuration while running. `SIGHUP` always reloads it.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
pub struct ReloadSettings {
    /// Also reload when a file of the configuration changes, or a symbolic link on the way to it, as in a mounted ConfigMap.
    pub watch: bool,
    /// Maximum time in which replaced and removed components deliver what they hold; what is left is dropped and counted.
    pub drain_timeout: Duration,
}

/// Restrictions of this process, so that an exploited bug can do little. A kernel without them is no error.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize, PartialEq, Eq)]
#[serde(default)]
pub struct SandboxSettings {
    /// Deny system calls that profcol does not need: it starts no programs, and changes no namespaces, users or other processes.
    pub seccomp: bool,
    /// Deny changes of files outside of the directories that the configuration names. Not used with components that read other
    /// processes, as profiling this host does: the kernel would deny that, too.
    pub landlock: bool,
    /// Read executables, which anyone who starts a process supplies, in a process of their own that may do nothing else. If
    /// none can be started, they are read in this one.
    pub reader: bool,
}

/// A pipeline: batches go from the receivers through the processors, in this order, to every exporter. A connector is an
/// exporter of some pipelines and a receiver of others.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
struct PipelineSettings {
    receivers: Vec<ComponentId>,
    processors: Vec<ComponentId>,
    exporters: Vec<ComponentId>,
}

/// The keys of the document.
const SECTIONS: [&str; 6] = [
    "receivers",
    "processors",
    "exporters",
    "connectors",
    "extensions",
    "service",
];

impl<C: ?Sized> Clone for Declared<C> {
    fn clone(&self) -> Self {
        Self {
            id: self.id.clone(),
            entry: self.entry,
            config: Arc::clone(&self.config),
        }
    }
}

impl<C: ?Sized> fmt::Debug for Declared<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {:?}", self.id, self.config)
    }
}

// === impl Document ===

impl Document {
    /// Decodes `root`; returns all problems at once on failure.
    pub fn read(root: &Node, registry: &Registry) -> Result<Self, Problems> {
        let mut problems = Problems::default();
        if root.is_null() || root.as_map().is_some_and(Map::is_empty) {
            let problem = Problem::new("empty configuration file").at(root.at);
            problems.push(problem.help("it must have `receivers`, `exporters` and `service`"));
            return Err(problems);
        }
        let document = Self::collect(root, registry, &mut problems);
        if root.as_map().is_some() {
            document.check_connections(root, &mut problems);
        }
        problems.locate(root);
        if problems.is_empty() {
            Ok(document)
        } else {
            Err(problems)
        }
    }

    fn collect(root: &Node, registry: &Registry, problems: &mut Problems) -> Self {
        check_sections(root, problems);
        Self {
            receivers: section(root, Kind::Receiver, registry.receivers, registry, problems),
            processors: section(
                root,
                Kind::Processor,
                registry.processors,
                registry,
                problems,
            ),
            exporters: section(root, Kind::Exporter, registry.exporters, registry, problems),
            connectors: section(
                root,
                Kind::Connector,
                registry.connectors,
                registry,
                problems,
            ),
            extensions: section(
                root,
                Kind::Extension,
                registry.extensions,
                registry,
                problems,
            ),
            service: problems.nested("service", |problems| service(root.get("service"), problems)),
        }
    }

    /// The capabilities needed by the components in use and by the process itself.
    pub fn capabilities(&self) -> Capabilities {
        let mut needed = Capabilities::DAC_READ_SEARCH | self.service.telemetry.capabilities();
        self.for_each_used(|component| needed |= component.capabilities());
        if !self.writes().is_empty() {
            // Root writes to the directories of other users, as with `sudo`.
            needed |= Capabilities::DAC_OVERRIDE;
        }
        needed
    }

    /// Directories below which the components in use and the log change files.
    pub fn writes(&self) -> Vec<PathBuf> {
        let mut directories = self.service.telemetry.logs.directories();
        self.for_each_used(|component| directories.extend(component.writes()));
        directories
    }

    /// Whether a component in use reads executables in another process, if there is one for that.
    pub fn reads_executables(&self) -> bool {
        let mut reads = false;
        self.for_each_used(|component| reads |= component.reads_executables());
        reads
    }

    fn for_each_used(&self, mut visit: impl FnMut(&dyn Needs)) {
        let ServiceSection {
            extensions,
            pipelines,
            ..
        } = &self.service;
        let in_pipelines = |of: fn(&Pipeline) -> &[ComponentId]| {
            let ids = pipelines.iter().flat_map(of);
            ids.collect::<HashSet<_>>()
        };
        used(&self.extensions, &extensions.iter().collect(), &mut visit);
        used(
            &self.receivers,
            &in_pipelines(|it| &it.receivers),
            &mut visit,
        );
        used(
            &self.processors,
            &in_pipelines(|it| &it.processors),
            &mut visit,
        );
        used(
            &self.exporters,
            &in_pipelines(|it| &it.exporters),
            &mut visit,
        );
        used(
            &self.connectors,
            &in_pipelines(|it| &it.exporters),
            &mut visit,
        );
    }

    /// Deprecated names in use, for the log.
    pub fn deprecations(&self) -> Vec<String> {
        let mut found = Vec::new();
        deprecated(Kind::Receiver, &self.receivers, &mut found);
        deprecated(Kind::Processor, &self.processors, &mut found);
        deprecated(Kind::Exporter, &self.exporters, &mut found);
        deprecated(Kind::Connector, &self.connectors, &mut found);
        deprecated(Kind::Extension, &self.extensions, &mut found);
        found
    }
}

/// What a component of any kind needs from the system.
trait Needs {
    fn capabilities(&self) -> Capabilities;
    fn writes(&self) -> Vec<PathBuf>;
    fn reads_executables(&self) -> bool;
}

impl<C: ?Sized> Needs for Declared<C> {
    fn capabilities(&self) -> Capabilities {
        (self.entry.capabilities)(&*self.config)
    }

    fn writes(&self) -> Vec<PathBuf> {
        (self.entry.writes)(&*self.config)
    }

    fn reads_executables(&self) -> bool {
        (self.entry.reads_executables)(&*self.config)
    }
}

/// Visits the components with these ids.
fn used<C: ?Sized>(
    declared: &[Declared<C>],
    ids: &HashSet<&ComponentId>,
    visit: &mut impl FnMut(&dyn Needs),
) {
    for component in declared.iter().filter(|it| ids.contains(&it.id)) {
        visit(component);
    }
}

fn deprecated<C: ?Sized>(kind: Kind, declared: &[Declared<C>], found: &mut Vec<String>) {
    let old = |declared: &&Declared<C>| declared.id.kind() != declared.entry.name;
    for Declared { id, entry, .. } in declared.iter().filter(old) {
        let (old, new) = (id.kind(), entry.name);
        found.push(format!(
            "{old:?} alias is deprecated; use {new:?} instead ({kind} {:?})",
            id.to_string()
        ));
    }
}

fn check_sections(root: &Node, problems: &mut Problems) {
    let Some(sections) = root.as_map() else {
        let kind = root.value.kind();
        let message = format!("expected a map of sections such as `receivers`, got a {kind}");
        problems.push(Problem::new(message).at(root.at));
        return;
    };
    for (key, entry) in sections
        .iter()
        .filter(|(key, _)| !SECTIONS.contains(&key.as_str()))
    {
        problems.mask(&entry.node);
        let problem = Problem::new(format!("the configuration has invalid keys: {key}"));
        problems.push(problem.at(entry.key_at).help(suggestion(key, SECTIONS)));
    }
}

/// All components of one kind; an unreadable one is reported and left out.
fn section<C: ?Sized>(
    root: &Node,
    kind: Kind,
    entries: &'static [Entry<C>],
    registry: &Registry,
    problems: &mut Problems,
) -> Vec<Declared<C>> {
    let name = format!("{kind}s");
    let Some(node) = root.get(&name).filter(|node| !node.is_null()) else {
        return Vec::new();
    };
    problems.nested(&name, |problems| {
        let Some(written) = node.as_map() else {
            let message = format!("expected a map of {kind}s, got a {}", node.value.kind());
            problems.push(Problem::new(message).at(node.at));
            return Vec::new();
        };
        let mut declared: Vec<Declared<C>> = Vec::new();
        for (key, written) in written {
            let suggestion_for = |name: &str| registry.suggestion_for(kind, name);
            let Some(component) = declare(key, written, entries, suggestion_for, problems) else {
                continue;
            };
            if declared.iter().any(|other| other.id == component.id) {
                let id = component.id.to_string();
                let message = format!("duplicate name {id:?} after unmarshaling");
                problems.push(Problem::new(message).at(written.key_at));
            }
            declared.push(component);
        }
        declared
    })
}

fn declare<C: ?Sized>(
    key: &str,
    written: &profcol_config::MapEntry,
    entries: &'static [Entry<C>],
    suggestion_for: impl Fn(&str) -> Option<String>,
    problems: &mut Problems,
) -> Option<Declared<C>> {
    let id: ComponentId = match key.parse() {
        Ok(id) => id,
        Err(error) => {
            problems.mask(&written.node);
            problems.push(bad_id(&error).at(written.key_at));
            return None;
        }
    };
    let Some(entry) = entries.iter().find(|entry| entry.has_name(id.kind())) else {
        problems.mask(&written.node);
        let (kind, names) = (id.kind(), entries.iter().map(|entry| entry.name));
        let valid = names.clone().collect::<Vec<_>>().join(" ");
        let message = format!("unknown type: {kind:?} for id: {key:?} (valid values: [{valid}])");
        let mut problem = Problem::new(message).at(written.key_at);
        let near = || did_you_mean(kind, names).map(|near| format!("did you mean {near:?}?"));
        problem.help = suggestion_for(kind).or_else(near);
        problems.push(problem);
        return None;
    };
    let config = problems.nested_key(key, |problems| (entry.load)(&written.node, problems))?;
    Some(Declared {
        id,
        entry,
        config: Arc::from(config),
    })
}

fn service(node: Option<&Node>, problems: &mut Problems) -> ServiceSection {
    let pipelines = problems.nested("pipelines", |problems| pipelines(node, problems));
    let rest = node.cloned().map(|node| without(node, "pipelines"));
    let settings: Option<ServiceSettings> = rest.and_then(|node| load(&node, problems));
    let ServiceSettings {
        extensions,
        telemetry,
        shutdown_timeout,
        reload,
        sandbox,
    } = settings.unwrap_or_default();
    ServiceSection {
        extensions,
        pipelines,
        telemetry,
        shutdown_timeout,
        reload,
        sandbox,
    }
}

fn pipelines(service: Option<&Node>, problems: &mut Problems) -> Vec<Pipeline> {
    let Some(node) = service.and_then(|service| service.get("pipelines")) else {
        return Vec::new();
    };
    let Some(entries) = node.as_map() else {
        if !node.is_null() {
            let message = format!("expected a map of pipelines, got a {}", node.value.kind());
            problems.push(Problem::new(message).at(node.at));
        }
        return Vec::new();
    };
    let mut pipelines = Vec::new();
    for (key, written) in entries {
        let id: PipelineId = match key.parse() {
            Ok(id) => id,
            Err(error) => {
                problems.push(bad_id(&error).at(written.key_at));
                continue;
            }
        };
        if pipelines.iter().any(|other: &Pipeline| other.id == id) {
            let message = format!("duplicate name {:?} after unmarshaling", id.to_string());
            problems.push(Problem::new(message).at(written.key_at));
        }
        let settings = problems.nested_key(key, |problems| load(&written.node, problems));
        if let Some(PipelineSettings {
            receivers,
            processors,
            exporters,
        }) = settings
        {
            pipelines.push(Pipeline {
                id,
                receivers,
                processors,
                exporters,
            });
        }
    }
    pipelines
}

fn bad_id(error: &IdError) -> Problem {
    Problem {
        help: error.help(),
        ..Problem::new(error.to_string())
    }
}

/// The help for an unknown name.
fn suggestion<'a>(word: &str, known: impl IntoIterator<Item = &'a str> + Clone) -> String {
    match did_you_mean(word, known.clone()) {
        Some(near) => format!("did you mean {near:?}?"),
        None => match known.into_iter().collect::<Vec<_>>().join(", ") {
            names if names.is_empty() => "none are available".to_owned(),
            names => format!("valid names: {names}"),
        },
    }
}

fn without(mut node: Node, key: &str) -> Node {
    if let profcol_config::Value::Map(map) = &mut node.value {
        map.shift_remove(key);
    }
    node
}

impl Config for ServiceSettings {
    fn validate(&self, problems: &mut Problems) {
        problems.nested("telemetry", |problems| self.telemetry.validate(problems));
        if self.shutdown_timeout.is_negative() {
            problems.add(
                "shutdown_timeout",
                "'shutdown_timeout' must be non-negative",
            );
        }
        if self.reload.drain_timeout.is_negative() {
            problems.add("reload::drain_timeout", "must be non-negative");
        }
    }
}

impl Config for PipelineSettings {}

// === defaults ===

impl Default for ServiceSettings {
    fn default() -> Self {
        Self {
            extensions: Vec::new(),
            telemetry: TelemetrySettings::default(),
            shutdown_timeout: Duration::from_secs(30),
            reload: ReloadSettings::default(),
            sandbox: SandboxSettings::default(),
        }
    }
}

impl Default for ReloadSettings {
    fn default() -> Self {
        Self {
            watch: false,
            drain_timeout: Duration::from_secs(30),
        }
    }
}

impl Default for SandboxSettings {
    fn default() -> Self {
        Self {
            seccomp: true,
            landlock: true,
            reader: true,
        }
    }
}
