//! The binary: reads the command line, calls the engine, turns the result into an exit code.

mod async_fd;
mod cli;
mod commands;
mod notify;
mod panics;
mod privileges;
mod sandbox;
mod signals;
mod stderr;
mod watch;

use std::process::ExitCode;

use clap::Parser;

use crate::cli::{Cli, Command, Relabel, Storage};
use crate::commands::CommandError;

fn main() -> ExitCode {
    profcol_admission::keep_large_memory_apart();
    if let Some(role) = sandbox::role(std::env::args_os()) {
        return role.run();
    }
    panics::install_hook();
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(answer) => return cli::answer(&answer),
    };
    let configuration = &cli.configuration;
    let command = cli.command.unwrap_or(Command::Run);
    if !command.reads_configuration() && !configuration.is_empty() {
        return end(Err(CommandError::Usage(
            "this command reads no configuration: omit --config and --set".to_owned(),
        )));
    }
    let result = match command {
        Command::Run => commands::run(configuration),
        Command::Record(record) => return end(commands::record(&record, configuration)),
        Command::Top(top) => commands::top(&top, configuration),
        Command::Convert(convert) => commands::convert(&convert),
        Command::Diff(diff) => commands::diff(&diff),
        Command::Doctor(doctor) => return end(commands::doctor(doctor, configuration)),
        Command::Validate => commands::validate(configuration),
        Command::PrintConfig {
            mode,
            format,
            validate,
        } => commands::print_config(configuration, mode, format, validate),
        #[cfg(feature = "parca")]
        Command::Upload(upload) => commands::upload(&upload, configuration),
        Command::Components => commands::components(),
        Command::Featuregate { id } => commands::featuregate(id.as_deref()),
        Command::Processes { pid, format } => commands::processes(configuration, pid, format),
        Command::Relabel(Relabel::Test(test)) => commands::relabel_test(configuration, &test),
        Command::Storage(Storage::Inspect(inspect)) => commands::inspect_storage(&inspect),
        Command::Schema => commands::schema(),
        Command::Version => commands::version(),
        Command::Completions { shell } => commands::completions(shell),
        Command::Man { command } => commands::man(&command),
    };
    end(result.map(|()| ExitCode::SUCCESS))
}

fn end(result: Result<ExitCode, CommandError>) -> ExitCode {
    match result {
        Ok(code) => code,
        Err(failure) => {
            stderr::print(&format!("Error: {}\n", failure.report()));
            failure.exit_code()
        }
    }
}
