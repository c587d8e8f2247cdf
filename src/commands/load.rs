//! From the command line to a document.

use profcol_component::{Meter, StatusBoard};
use profcol_config::{Problems, Sources, yaml};
use profcol_engine::{Document, Graph};

use super::Failure;
use crate::cli::Configuration;
use crate::components::REGISTRY;

pub struct Loaded {
    pub document: Document,
}

/// Reads, merges, expands, checks.
pub fn load(configuration: &Configuration) -> Result<Loaded, Failure> {
    let [path] = configuration.uris.as_slice() else {
        return Err(Failure::Configuration(
            "at least one config flag must be provided, such as --config profcol.yaml".to_owned(),
        ));
    };
    let text = std::fs::read_to_string(path).map_err(|error| {
        Failure::Configuration(format!("unable to read the file {path}: {error}"))
    })?;
    let mut sources = Sources::default();
    let source = sources
        .add(path.as_str(), text, None)
        .map_err(|error| Failure::Configuration(error.to_string()))?;
    let read = |sources: &Sources| -> Result<Document, Problems> {
        let root = yaml::parse(sources, source).map_err(Problems::from)?;
        Document::read(&root, &REGISTRY)
    };
    let document = read(&sources)
        .map_err(|problems| Failure::Configuration(problems.report(&sources).to_string()))?;
    Ok(Loaded { document })
}

/// Connects the components; opens nothing.
pub fn build(document: &Document, meter: &Meter) -> Result<Graph, Failure> {
    Graph::build(document, meter, &StatusBoard::default())
        .map_err(|error| Failure::Configuration(error.to_string()))
}
