//! Checks that everything the service references is declared and connected correctly.
//!
//! Unreadable components already have a problem and count as declared here, so that each mistake is reported once.

use profcol_component::Connector;
use profcol_config::{ComponentId, Map, Node, PipelineId, Problem, Problems, did_you_mean};

use super::{Declared, Document, Pipeline, SECTIONS, suggestion};

/// The ids declared by a configuration.
struct Declarations<'a> {
    root: &'a Node,
    receivers: Ids,
    processors: Ids,
    exporters: Ids,
    connectors: Ids,
    extensions: Ids,
}

/// The ids of one section; `None` if they cannot all be known.
type Ids = Option<Vec<Id>>;

#[derive(Clone)]
struct Id {
    id: ComponentId,
    /// False if it has its own problem.
    is_read: bool,
}

impl Document {
    pub(super) fn check_connections(&self, root: &Node, problems: &mut Problems) {
        let declared = Declarations::of(root, self);
        for (kind, ids) in [
            ("receiver", &declared.receivers),
            ("exporter", &declared.exporters),
        ] {
            if ids.as_ref().is_some_and(Vec::is_empty) {
                let message = format!("no {kind} configuration specified in config");
                problems.add("", message);
            }
        }
        problems.nested("service", |problems| {
            problems.nested("extensions", |problems| {
                let place = ["service", "extensions"];
                declared.check(
                    "extension",
                    &self.service.extensions,
                    &declared.extensions,
                    &place,
                    problems,
                );
            });
            problems.nested("pipelines", |problems| {
                if !has_pipelines(root) {
                    let problem = Problem::new("service must have at least one pipeline");
                    problems.push(
                        problem.help(
                            "such as `profiles: {receivers: [otlp], exporters: [otlp_grpc]}`",
                        ),
                    );
                }
                for pipeline in &self.service.pipelines {
                    problems.nested_key(&pipeline.id.to_string(), |problems| {
                        declared.check_pipeline(pipeline, problems);
                    });
                }
                self.check_cycles(&declared, problems);
            });
        });
        problems.nested("connectors", |problems| {
            for declared in &self.connectors {
                problems.nested_key(&declared.id.to_string(), |problems| {
                    self.check_connector(declared, problems);
                });
            }
        });
    }

    fn check_connector(&self, declared: &Declared<dyn Connector>, problems: &mut Problems) {
        let id = &declared.id;
        let names = |pipelines: Vec<&Pipeline>| {
            let names: Vec<String> = pipelines.iter().map(|it| it.id.to_string()).collect();
            names.join(", ")
        };
        let pipelines = self.service.pipelines.iter();
        let before: Vec<_> = pipelines.filter(|it| it.exporters.contains(id)).collect();
        let after: Vec<_> = self.fed_by(id).collect();
        let (message, list) = match (&before[..], &after[..]) {
            ([], []) => return,
            ([_, ..], []) => (
                format!(
                    "is an exporter of [{}] but a receiver of no pipeline",
                    names(before)
                ),
                "receivers",
            ),
            ([], [_, ..]) => (
                format!(
                    "is a receiver of [{}] but an exporter of no pipeline",
                    names(after)
                ),
                "exporters",
            ),
            ([_, ..], [_, ..]) => {
                let fed: Vec<&PipelineId> = after.iter().map(|pipeline| &pipeline.id).collect();
                self.check_named_pipelines(declared, &fed, problems);
                return;
            }
        };
        let help = format!("add {:?} to `{list}` of another pipeline", id.to_string());
        problems.push(Problem::new(message).help(help));
    }

    /// Checks the pipelines that the settings of a connector name against those that it feeds.
    fn check_named_pipelines(
        &self,
        declared: &Declared<dyn Connector>,
        fed: &[&PipelineId],
        problems: &mut Problems,
    ) {
        for (path, pipeline) in (declared.entry.pipelines)(&*declared.config) {
            if fed.contains(&&pipeline) {
                continue;
            }
            let name = pipeline.to_string();
            let mut pipelines = self.service.pipelines.iter();
            let (message, help) = match pipelines.any(|it| it.id == pipeline) {
                true => (
                    format!("the pipeline {name:?} does not receive from this connector"),
                    format!("add {:?} to its `receivers`", declared.id.to_string()),
                ),
                false => {
                    let fed: Vec<String> = fed.iter().map(ToString::to_string).collect();
                    (
                        format!("references pipeline {name:?} which is not configured"),
                        suggestion(&name, fed.iter().map(String::as_str)),
                    )
                }
            };
            problems.nested(&path, |problems| {
                problems.push(Problem::new(message).help(help));
            });
        }
    }

    fn check_cycles(&self, declared: &Declarations<'_>, problems: &mut Problems) {
        let Some(cycle) = self.cycle() else {
            return;
        };
        let step = |(pipeline, connector): &(&Pipeline, &ComponentId)| {
            let (pipeline, connector) = (pipeline.id.to_string(), connector.to_string());
            format!("pipeline {pipeline:?} -> connector {connector:?} -> ")
        };
        let steps: String = cycle.iter().map(step).collect();
        let Some((pipeline, connector)) = cycle.first() else {
            return;
        };
        let name = pipeline.id.to_string();
        let place = ["service", "pipelines", name.as_str(), "exporters"];
        let position = pipeline.exporters.iter().position(|id| id == *connector);
        let problem = Problem::new(format!("cycle detected: {steps}pipeline {name:?}"));
        let problem = problem.help("remove one of these connectors from one of these pipelines");
        problems.push(declared.at(problem, &place, position.unwrap_or_default()));
    }
}

fn has_pipelines(root: &Node) -> bool {
    let mut node = root;
    for key in ["service", "pipelines"] {
        let Some(map) = node.as_map() else {
            // A value that is not a map has its own problem.
            return !node.is_null();
        };
        match map.get(key) {
            Some(entry) => node = &entry.node,
            None => return key == "service" && !has_only_sections(map),
        }
    }
    node.as_map().map_or(!node.is_null(), |map| !map.is_empty())
}

// === impl Declarations ===

impl<'a> Declarations<'a> {
    fn of(root: &'a Node, read: &Document) -> Self {
        Self {
            root,
            receivers: ids(root, "receivers", &read.receivers),
            processors: ids(root, "processors", &read.processors),
            exporters: ids(root, "exporters", &read.exporters),
            connectors: ids(root, "connectors", &read.connectors),
            extensions: ids(root, "extensions", &read.extensions),
        }
    }

    fn check_pipeline(&self, pipeline: &Pipeline, problems: &mut Problems) {
        if pipeline.receivers.is_empty() {
            problems.add("", "must have at least one receiver");
        }
        if pipeline.exporters.is_empty() {
            problems.add("", "must have at least one exporter");
        }
        let key = pipeline.id.to_string();
        let with_connectors = |ids: &Ids| -> Ids {
            let (ids, connectors) = (ids.as_ref()?, self.connectors.as_ref()?);
            match ids.is_empty() {
                // A missing section is reported once.
                true => Some(Vec::new()),
                false => Some(ids.iter().chain(connectors).cloned().collect()),
            }
        };
        let receivers = with_connectors(&self.receivers);
        let exporters = with_connectors(&self.exporters);
        let lists = [
            ("receiver", &pipeline.receivers, &receivers),
            ("processor", &pipeline.processors, &self.processors),
            ("exporter", &pipeline.exporters, &exporters),
        ];
        for (kind, named, declared) in lists {
            let list = format!("{kind}s");
            let place = ["service", "pipelines", key.as_str(), list.as_str()];
            self.check(kind, named, declared, &place, problems);
        }
        let place = ["service", "pipelines", key.as_str(), "processors"];
        for (position, id) in pipeline.processors.iter().enumerate() {
            if pipeline.processors[..position].contains(id) {
                let id = id.to_string();
                let message = format!("references processor {id:?} multiple times");
                problems.push(self.at(Problem::new(message), &place, position));
            }
        }
    }

    /// Checks that each of `named`, the list at `place`, is in `declared`.
    fn check(
        &self,
        kind: &str,
        named: &[ComponentId],
        declared: &Ids,
        place: &[&str],
        problems: &mut Problems,
    ) {
        let Some(declared) = declared else { return };
        // A missing section is reported once.
        if declared.is_empty() && matches!(kind, "receiver" | "exporter") {
            return;
        }
        let known: Vec<String> = declared.iter().map(|known| known.id.to_string()).collect();
        for (position, id) in named.iter().enumerate() {
            if declared.iter().any(|known| known.id == *id) {
                continue;
            }
            let id = id.to_string();
            let near = did_you_mean(&id, known.iter().map(String::as_str));
            let is_near = |known: &&Id| near.is_some_and(|near| known.id.to_string() == near);
            if declared
                .iter()
                .find(is_near)
                .is_some_and(|near| !near.is_read)
            {
                // Most likely this name is right and the unreadable declaration is the mistake.
                continue;
            }
            let message = format!("references {kind} {id:?} which is not configured");
            let help = match known.is_empty() {
                true => format!("declare it under `{kind}s`"),
                false => suggestion(&id, known.iter().map(String::as_str)),
            };
            problems.push(self.at(Problem::new(message).help(help), place, position));
        }
    }

    fn at(&self, problem: Problem, place: &[&str], position: usize) -> Problem {
        let position = position.to_string();
        let path = place.iter().copied().chain([position.as_str()]);
        problem.at(self.root.locate(path))
    }
}

fn ids<C: ?Sized>(root: &Node, section: &str, read: &[Declared<C>]) -> Ids {
    match root.get(section).filter(|node| !node.is_null()) {
        Some(node) => {
            let keys = node.as_map()?.keys();
            let id = |key: &String| {
                let id = key.parse().ok()?;
                let is_read = read.iter().any(|declared| declared.id == id);
                Some(Id { id, is_read })
            };
            keys.map(id).collect()
        }
        // It may be under a misspelled key.
        None => root.as_map().is_some_and(has_only_sections).then(Vec::new),
    }
}

fn has_only_sections(root: &Map) -> bool {
    root.keys().all(|key| SECTIONS.contains(&key.as_str()))
}
