//! The commands that print something and end.

use std::io::{self, Write};

use clap::CommandFactory;
use profcol::REGISTRY;
use profcol_component::Entry;
use profcol_config::SCHEMES;
use profcol_engine::document;
use serde_json::{Value, json};

use super::{Failure, load};
use crate::cli::{Cli, Configuration, Format, Mode};

pub fn print_config(
    configuration: &Configuration,
    mode: Mode,
    format: Format,
    validate: bool,
) -> Result<(), Failure> {
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

/// What this binary can build, in the shape of the Collector's command of this name.
pub fn components() -> Result<(), Failure> {
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
        "connectors": [],
        "providers": SCHEMES.map(|scheme| json!({ "scheme": scheme })),
    });
    print_value(&list, Format::Yaml)
}

/// The Collector's command of this name. There is nothing behind gates here.
pub fn featuregate(id: Option<&str>) -> Result<(), Failure> {
    match id {
        None => print_text("ID  Enabled  Stage  Description\n"),
        Some(id) => Err(Failure::Usage(format!(
            "feature {id:?} not found: profcol has no feature gates, everything it can do is on"
        ))),
    }
}

pub fn schema() -> Result<(), Failure> {
    print_value(&document::schema(&REGISTRY), Format::Json)
}

pub fn version() -> Result<(), Failure> {
    print_text(&format!("profcol {}\n", env!("CARGO_PKG_VERSION")))
}

pub fn completions(shell: clap_complete::Shell) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "profcol", &mut script);
    print_bytes(&script)
}

pub fn man(names: &[String]) -> Result<(), Failure> {
    // That of `help` would say nothing.
    let mut command = Cli::command().disable_help_subcommand(true);
    command.build();
    for name in names {
        let found = command.find_subcommand(name).cloned();
        command = found.ok_or_else(|| Failure::Usage(format!("no command {name:?}")))?;
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

pub(super) fn print_value(value: &Value, format: Format) -> Result<(), Failure> {
    match format {
        Format::Yaml => print_text(&profcol_config::print::to_yaml(value)),
        Format::Json => print_text(&profcol_config::print::to_json(value)),
    }
}

/// Text whose line breaks are ours.
pub(super) fn print_text(text: &str) -> Result<(), Failure> {
    print_bytes(profcol_printable::lines(text).as_bytes())
}

/// A reader that has seen enough, such as `head`, is no error.
fn print_bytes(bytes: &[u8]) -> Result<(), Failure> {
    match io::stdout().lock().write_all(bytes) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(internal(error)),
        _ => Ok(()),
    }
}

fn internal(error: impl std::fmt::Display) -> Failure {
    Failure::Runtime(error.to_string())
}
