//! The commands.

mod attributes;
mod built_in;
mod convert;
mod doctor;
mod fetch;
mod load;
mod print;
mod record;
mod reload;
mod run;
mod storage;
mod top;
#[cfg(feature = "parca")]
mod upload;

use std::io::{self, IsTerminal};
use std::process::ExitCode;

use profcol_printable::{indented, lines};

pub use self::attributes::{processes, relabel_test};
pub use self::convert::{convert, diff};
pub use self::doctor::doctor;
use self::print::print_text;
pub use self::print::{completions, components, featuregate, man, print_config, schema, version};
pub use self::record::record;
pub use self::run::run;
pub use self::storage::inspect_storage;
pub use self::top::top;
#[cfg(feature = "parca")]
pub use self::upload::upload;
use crate::cli::Configuration;
use crate::stderr;

/// Why a command failed; determines the exit code.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    #[error("{0}")]
    Usage(String),
    #[error("{0}")]
    Configuration(String),
    #[error("{0}")]
    Runtime(String),
}

/// EX_CONFIG of sysexits.h; service managers can be configured not to restart on it.
const EXIT_CONFIGURATION: u8 = 78;

/// Clap's exit code for usage errors.
const EXIT_USAGE: u8 = 2;

impl CommandError {
    /// The text for stderr. Configuration reports are multi-line; other texts are indented, so that no line but the
    /// first passes for a log line.
    pub fn report(&self) -> String {
        match self {
            CommandError::Configuration(report) => lines(report).into_owned(),
            CommandError::Usage(text) | CommandError::Runtime(text) => indented(text).into_owned(),
        }
    }

    pub fn exit_code(&self) -> ExitCode {
        match self {
            CommandError::Usage(_) => ExitCode::from(EXIT_USAGE),
            CommandError::Configuration(_) => ExitCode::from(EXIT_CONFIGURATION),
            CommandError::Runtime(_) => ExitCode::FAILURE,
        }
    }
}

/// Reads, checks and builds a configuration without starting anything. Warnings go to stderr. Prints success to a terminal
/// only: scripts read the exit code.
pub fn validate(configuration: &Configuration) -> Result<(), CommandError> {
    let loaded = load::load(configuration)?;
    load::check(&loaded.document)?;
    for warning in loaded.document.warnings() {
        stderr::print(&format!("warning: {warning}\n"));
    }
    match io::stdout().is_terminal() {
        true => print_text("The configuration is valid.\n"),
        false => Ok(()),
    }
}
