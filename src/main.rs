//! The binary: reads the command line, calls the engine, turns the result into an exit code.

mod cli;
mod commands;
mod panics;

use std::process::ExitCode;

use clap::Parser;

use crate::cli::{Cli, Command, Relabel};
use crate::commands::Failure;

fn main() -> ExitCode {
    panics::tell_of_defects();
    let cli = Cli::parse();
    let configuration = &cli.configuration;
    let result = match cli.command.unwrap_or(Command::Run) {
        Command::Run => commands::run(configuration),
        Command::Validate => commands::validate(configuration),
        Command::PrintConfig {
            mode,
            format,
            validate,
        } => commands::print_config(configuration, mode, format, validate),
        Command::Upload(upload) => commands::upload(&upload, configuration),
        Command::Components => commands::components(),
        Command::Featuregate { id } => commands::featuregate(id.as_deref()),
        Command::Processes { pid, format } => commands::processes(pid, format),
        Command::Relabel(Relabel::Test(test)) => commands::relabel_test(configuration, &test),
        Command::Schema => commands::schema(),
        Command::Version => commands::version(),
        Command::Completions { shell } => commands::completions(shell),
        Command::Man => commands::man(),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            report(&failure);
            failure.exit_code()
        }
    }
}

#[expect(
    clippy::print_stderr,
    reason = "the last word of a program that failed"
)]
fn report(failure: &Failure) {
    eprintln!("Error: {failure}");
}
