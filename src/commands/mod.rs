//! What each command does.

mod convert;
mod doctor;
mod fetch;
mod load;
mod names;
mod print;
mod record;
mod run;
mod storage;
mod top;
#[cfg(feature = "parca")]
mod upload;

use std::io::{self, IsTerminal};
use std::process::ExitCode;

use profcol_printable::{indented, lines};

pub use self::convert::{convert, diff};
pub use self::doctor::doctor;
pub use self::names::{processes, relabel_test};
use self::print::print_text;
pub use self::print::{completions, components, featuregate, man, print_config, schema, version};
pub use self::record::record;
pub use self::run::run;
pub use self::storage::inspect_storage;
pub use self::top::top;
#[cfg(feature = "parca")]
pub use self::upload::upload;
use crate::cli::Configuration;

/// Why a command failed; decides over the exit code.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    #[error("{0}")]
    Usage(String),
    #[error("{0}")]
    Configuration(String),
    #[error("{0}")]
    Runtime(String),
}

/// What sysexits calls EX_CONFIG; service managers can be told not to restart on it.
const EXIT_CONFIGURATION: u8 = 78;

/// What the parser of the command line ends with, too.
const EXIT_USAGE: u8 = 2;

impl Failure {
    /// What is written of it. A report on a configuration has lines of its own; in all else only the first line may
    /// begin as one of the log.
    pub fn report(&self) -> String {
        match self {
            Failure::Configuration(report) => lines(report).into_owned(),
            Failure::Usage(text) | Failure::Runtime(text) => indented(text).into_owned(),
        }
    }

    pub fn exit_code(&self) -> ExitCode {
        match self {
            Failure::Usage(_) => ExitCode::from(EXIT_USAGE),
            Failure::Configuration(_) => ExitCode::from(EXIT_CONFIGURATION),
            Failure::Runtime(_) => ExitCode::FAILURE,
        }
    }
}

/// Reads, checks and builds a configuration without starting anything. Scripts read the exit code: only a terminal is told
/// that all is well.
pub fn validate(configuration: &Configuration) -> Result<(), Failure> {
    let loaded = load::load(configuration)?;
    load::check(&loaded.document)?;
    match io::stdout().is_terminal() {
        true => print_text("The configuration is valid.\n"),
        false => Ok(()),
    }
}
