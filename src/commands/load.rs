//! Loads the configuration named on the command line.

use profcol::REGISTRY;
use profcol_component::{SelfTelemetry, Shared};
use profcol_config::{Input, Note, NoteLevel, SystemProviders, resolve};
use profcol_engine::{Document, Graph};
use profcol_printable::indented;
use serde_json::Value;

use super::{CommandError, fetch::fetch};
use crate::cli::Configuration;
use crate::watch::FileHashes;

pub struct Loaded {
    pub document: Document,
    /// Warnings and notes from resolving the configuration.
    pub notes: Vec<Note>,
    /// The files that were read.
    pub files: FileHashes,
}

impl Loaded {
    /// Logs what the user should know about the configuration.
    pub fn log_notes(&self) {
        for note in &self.notes {
            match note.level {
                NoteLevel::Warning => tracing::warn!("{}", note.message),
                NoteLevel::Info => tracing::info!("{}", note.message),
            }
        }
        for note in self.document.deprecations() {
            tracing::warn!("{note}");
        }
        for warning in self.document.warnings() {
            tracing::warn!("{warning}");
        }
    }
}

/// Reads, merges, expands and checks the configuration.
pub fn load(configuration: &Configuration) -> Result<Loaded, CommandError> {
    if configuration.uris.is_empty() {
        return Err(CommandError::Usage(
            "at least one config flag must be provided, such as --config profcol.yaml".to_owned(),
        ));
    }
    let input = Input {
        configs: configuration.uris.clone(),
        sets: configuration.sets.clone(),
    };
    let providers = SystemProviders::default().with_fetch(fetch);
    let resolved = resolve(&input, &providers)
        .map_err(|error| CommandError::Configuration(error.to_string()))?;
    let document = Document::read(&resolved.root, &REGISTRY).map_err(|mut problems| {
        problems.explain(&resolved.broken);
        CommandError::Configuration(problems.report(&resolved.sources).to_string())
    })?;
    Ok(Loaded {
        document,
        notes: resolved.notes,
        files: providers.files_read(),
    })
}

/// Turns a command's own configuration into a `--config` URI; escapes `$`, which would start an expansion.
pub fn own(configuration: &Value) -> String {
    format!("yaml:{}", configuration.to_string().replace('$', "$$"))
}

/// Builds and connects the components, without opening anything.
pub fn build(document: &Document, telemetry: &SelfTelemetry) -> Result<Graph, CommandError> {
    build_with(document, telemetry, Shared::default())
}

/// Builds and connects the components with handles that they share.
pub fn build_with(
    document: &Document,
    telemetry: &SelfTelemetry,
    shared: Shared,
) -> Result<Graph, CommandError> {
    Graph::build_with(document, telemetry, shared)
        .map_err(|error| CommandError::Configuration(indented(&error.to_string()).into_owned()))
}

/// Checks that the components can be built and connected.
pub fn check(document: &Document) -> Result<(), CommandError> {
    build(document, &SelfTelemetry::default()).map(|_graph| ())
}
