//! From the command line to a document.

use profcol::REGISTRY;
use profcol_component::SelfTelemetry;
use profcol_config::{Input, Note, SystemProviders, resolve};
use profcol_engine::{Document, Graph};
use profcol_printable::indented;
use serde_json::Value;

use super::{Failure, fetch::fetch};
use crate::cli::Configuration;

pub struct Loaded {
    pub document: Document,
    /// What is worth telling about how the configuration came together.
    pub notes: Vec<Note>,
}

/// Reads, merges, expands, checks.
pub fn load(configuration: &Configuration) -> Result<Loaded, Failure> {
    if configuration.uris.is_empty() {
        return Err(Failure::Usage(
            "at least one config flag must be provided, such as --config profcol.yaml".to_owned(),
        ));
    }
    let input = Input {
        configs: configuration.uris.clone(),
        sets: configuration.sets.clone(),
    };
    let resolved = resolve(&input, &SystemProviders::default().with_fetch(fetch))
        .map_err(|error| Failure::Configuration(error.to_string()))?;
    let document = Document::read(&resolved.root, &REGISTRY).map_err(|mut problems| {
        problems.explain(&resolved.broken);
        Failure::Configuration(problems.report(&resolved.sources).to_string())
    })?;
    Ok(Loaded {
        document,
        notes: resolved.notes,
    })
}

/// A configuration that a command makes for itself, as a `--config`: a `$` in it is no reference to anything.
pub fn own(configuration: &Value) -> String {
    format!("yaml:{}", configuration.to_string().replace('$', "$$"))
}

/// Connects the components; opens nothing.
pub fn build(document: &Document, telemetry: &SelfTelemetry) -> Result<Graph, Failure> {
    Graph::build(document, telemetry)
        .map_err(|error| Failure::Configuration(indented(&error.to_string()).into_owned()))
}

/// Whether the components can be connected.
pub fn check(document: &Document) -> Result<(), Failure> {
    build(document, &SelfTelemetry::default()).map(|_graph| ())
}
