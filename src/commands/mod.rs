//! What each command does.

mod fetch;
mod load;
mod names;
mod print;
mod run;
mod upload;

use std::process::ExitCode;

pub use self::names::{processes, relabel_test};
pub use self::print::{completions, components, featuregate, man, print_config, schema, version};
pub use self::run::run;
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
    pub fn exit_code(&self) -> ExitCode {
        match self {
            Failure::Usage(_) => ExitCode::from(EXIT_USAGE),
            Failure::Configuration(_) => ExitCode::from(EXIT_CONFIGURATION),
            Failure::Runtime(_) => ExitCode::FAILURE,
        }
    }
}

/// Reads, checks and builds a configuration without starting anything; silent when all is well.
pub fn validate(configuration: &Configuration) -> Result<(), Failure> {
    let loaded = load::load(configuration)?;
    load::build(&loaded.document, &Default::default()).map(|_graph| ())
}
