//! Checks that everything the service references is declared and connected correctly.
//!
//! Unreadable components already have a problem and count as declared here, so that each mistake is reported once.

use profcol_config::{ComponentId, Map, Node, Problem, Problems, did_you_mean};

use super::{Declared, Document, Pipeline, SECTIONS, suggestion};

/// The ids declared by a configuration.
struct Declarations<'a> {
    root: &'a Node,
    receivers: Ids,
    processors: Ids,
    exporters: Ids,
    extensions: Ids,
}

/// The ids of one section; `None` if they cannot all be known.
type Ids = Option<Vec<Id>>;

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
            });
        });
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
        let lists = [
            ("receiver", &pipeline.receivers, &self.receivers),
            ("processor", &pipeline.processors, &self.processors),
            ("exporter", &pipeline.exporters, &self.exporters),
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
