//! Commands that print something and exit.

use std::io::{self, Write};

use clap::CommandFactory;
use profcol::REGISTRY;
use profcol_component::Entry;
use profcol_config::SCHEMES;
use profcol_engine::document;
use serde_json::{Value, json};

use super::{CommandError, load};
use crate::cli::{Cli, Configuration, Format, Mode};

pub fn print_config(
    configuration: &Configuration,
    mode: Mode,
    format: Format,
    validate: bool,
) -> Result<(), CommandError> {
    let loaded = load::load(configuration)?;
    if validate {
        load::check(&loaded.document)?;
    }
    let resolved = loaded
        .document
        .resolved(mode == Mode::Redacted)
        .map_err(internal)?;
    print_value(&resolved, format)
}

/// Lists the components of this binary, in the format of the Collector's `components` command.
pub fn components() -> Result<(), CommandError> {
    let list = json!({
        "buildinfo": {
            "command": "profcol",
            "description": env!("CARGO_PKG_DESCRIPTION"),
            "version": env!("CARGO_PKG_VERSION"),
        },
        "receivers": list(REGISTRY.receivers),
        "processors": list(REGISTRY.processors),
        "exporters": list(REGISTRY.exporters),
        "extensions": list(REGISTRY.extensions),
        "connectors": list(REGISTRY.connectors),
        "providers": SCHEMES.map(|scheme| json!({ "scheme": scheme })),
    });
    print_value(&list, Format::Yaml)
}

/// The Collector's command of the same name; profcol has no feature gates.
pub fn featuregate(id: Option<&str>) -> Result<(), CommandError> {
    match id {
        None => print_text("ID  Enabled  Stage  Description\n"),
        Some(id) => Err(CommandError::Usage(format!(
            "feature {id:?} not found: profcol has no feature gates, all features are enabled"
        ))),
    }
}

pub fn schema() -> Result<(), CommandError> {
    print_value(&document::schema(&REGISTRY), Format::Json)
}

pub fn version() -> Result<(), CommandError> {
    print_text(&format!("profcol {}\n", env!("CARGO_PKG_VERSION")))
}

pub fn completions(shell: clap_complete::Shell) -> Result<(), CommandError> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "profcol", &mut script);
    print_bytes(&script)
}

pub fn man(names: &[String]) -> Result<(), CommandError> {
    // A manual page for `help` would be empty.
    let mut command = Cli::command().disable_help_subcommand(true);
    command.build();
    for name in names {
        let found = command.find_subcommand(name).cloned();
        command = found.ok_or_else(|| CommandError::Usage(format!("unknown command {name:?}")))?;
    }
    let mut page = Vec::new();
    clap_mangen::Man::new(command)
        .render(&mut page)
        .map_err(internal)?;
    print_bytes(&page)
}

fn list<C: ?Sized>(entries: &[Entry<C>]) -> Vec<Value> {
    let mut entries: Vec<_> = entries.iter().collect();
    entries.sort_by_key(|entry| entry.name);
    let row = |entry: &&Entry<C>| {
        json!({
            "name": entry.name,
            "aliases": entry.aliases,
            "stability": { "profiles": entry.stability.to_string() },
        })
    };
    entries.iter().map(row).collect()
}

pub(super) fn print_value(value: &Value, format: Format) -> Result<(), CommandError> {
    match format {
        Format::Yaml => print_text(&profcol_config::print::to_yaml(value)),
        Format::Json => print_text(&profcol_config::print::to_json(value)),
    }
}

/// Prints text whose line breaks are trusted.
pub(super) fn print_text(text: &str) -> Result<(), CommandError> {
    print_bytes(profcol_printable::lines(text).as_bytes())
}

/// A closed pipe, such as that of `head`, is not an error.
fn print_bytes(bytes: &[u8]) -> Result<(), CommandError> {
    match io::stdout().lock().write_all(bytes) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(internal(error)),
        _ => Ok(()),
    }
}

fn internal(error: impl std::fmt::Display) -> CommandError {
    CommandError::Runtime(error.to_string())
}
