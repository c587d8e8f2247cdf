//! Whether everything that the service names is declared, and connected in a way that can work.

use std::fmt::Display;

use profcol_config::{ComponentId, Problem, Problems};

use super::{Declared, Document, Pipeline, suggestion};

impl Document {
    pub(super) fn check_connections(&self, problems: &mut Problems) {
        if self.receivers.is_empty() {
            problems.add("", "no receiver configuration specified in config");
        }
        if self.exporters.is_empty() {
            problems.add("", "no exporter configuration specified in config");
        }
        problems.nested("service", |problems| {
            problems.nested("extensions", |problems| {
                references(
                    "extension",
                    &self.service.extensions,
                    &self.extensions,
                    problems,
                );
            });
            problems.nested("pipelines", |problems| {
                if self.service.pipelines.is_empty() {
                    problems.add("", "service must have at least one pipeline");
                }
                for pipeline in &self.service.pipelines {
                    problems.nested_key(&pipeline.id.to_string(), |problems| {
                        self.check_pipeline(pipeline, problems);
                    });
                }
            });
        });
    }

    fn check_pipeline(&self, pipeline: &Pipeline, problems: &mut Problems) {
        if pipeline.receivers.is_empty() {
            problems.add("", "must have at least one receiver");
        }
        if pipeline.exporters.is_empty() {
            problems.add("", "must have at least one exporter");
        }
        references("receiver", &pipeline.receivers, &self.receivers, problems);
        references(
            "processor",
            &pipeline.processors,
            &self.processors,
            problems,
        );
        references("exporter", &pipeline.exporters, &self.exporters, problems);
        for (position, id) in pipeline.processors.iter().enumerate() {
            if pipeline.processors[..position].contains(id) {
                let message = format!("references processor {} multiple times", quoted(id));
                problems.add("", message);
            }
        }
    }
}

fn references<C: ?Sized>(
    kind: &str,
    named: &[ComponentId],
    declared: &[Declared<C>],
    problems: &mut Problems,
) {
    for id in named
        .iter()
        .filter(|id| !declared.iter().any(|declared| declared.id == **id))
    {
        let message = format!("references {kind} {} which is not configured", quoted(id));
        let known: Vec<String> = declared
            .iter()
            .map(|declared| declared.id.to_string())
            .collect();
        let help = suggestion(&id.to_string(), known.iter().map(String::as_str));
        problems.push(Problem::new(message).help(help));
    }
}

fn quoted(id: impl Display) -> String {
    format!("{:?}", id.to_string())
}
