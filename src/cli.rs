//! The command line.

mod convert;
mod doctor;
mod record;
mod top;
#[cfg(feature = "parca")]
mod upload;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Arg, ArgAction, Args, Parser, Subcommand, ValueEnum};
use profcol_printable::{is_printable, lines};

pub use self::convert::{By, Compare, Convert, Diff};
pub use self::doctor::Doctor;
pub use self::record::Record;
pub use self::top::Top;
#[cfg(feature = "parca")]
pub use self::upload::{Server, Upload};
use crate::stderr::print;

/// The profile collector: receives, processes and exports profiles, as configured in a YAML file.
#[derive(Debug, Parser)]
#[command(name = "profcol", version, disable_version_flag = false)]
#[command(after_long_help = EXIT_CODES)]
pub struct Cli {
    #[command(flatten)]
    pub configuration: Configuration,
    #[command(subcommand)]
    pub command: Option<Command>,
}

/// Where the configuration comes from.
#[derive(Args, Clone, Debug, Default)]
pub struct Configuration {
    /// A file, or `file:`, `env:`, `yaml:`, `http:`, `https:` URI; repeat it to merge several, left to right. Default:
    /// profile this host and show it at http://127.0.0.1:7071/
    #[arg(id = "config", long, value_name = "URI", global = true)]
    pub uris: Vec<String>,
    /// Override one value of the configuration, such as `receivers.ebpf_cpu.frequency=19`
    #[arg(id = "set", long, value_name = "KEY=VALUE", global = true, value_parser = key_value)]
    pub sets: Vec<String>,
    /// Accepted for compatibility with the OpenTelemetry Collector; has no effect
    #[arg(
        id = "feature-gates",
        long,
        value_name = "GATES",
        global = true,
        allow_hyphen_values = true
    )]
    pub feature_gates: Vec<String>,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the pipelines of a configuration (the default)
    Run,
    /// Profile this host, some processes or a command for a while, and write one file
    #[command(args(without(&["config", "feature-gates"])))]
    Record(Record),
    /// Show live CPU usage of processes, units, pods, and their functions with callers and callees
    #[command(args(without(&["config", "feature-gates"])))]
    Top(Top),
    /// Write a profile in another format
    #[command(args(without(ALL)))]
    Convert(Convert),
    /// Compare two profiles by function
    #[command(args(without(ALL)))]
    Diff(Diff),
    /// Check that this host and the destinations meet a configuration's requirements, and explain how to fix what is
    /// missing
    Doctor(Doctor),
    /// Check a configuration and report all errors, without opening files or connections
    Validate,
    /// Print the effective configuration: merged, expanded, with all defaults
    #[command(alias = "print-initial-config")]
    PrintConfig {
        #[arg(long, value_enum, default_value_t = Mode::Redacted)]
        mode: Mode,
        #[arg(long, value_enum, default_value_t = Format::Yaml)]
        format: Format,
        /// Also check that its components can be built
        #[arg(long, default_value_t = true, action = clap::ArgAction::Set)]
        validate: bool,
    },
    /// Upload recorded profiles to a Parca server, and exit
    #[cfg(feature = "parca")]
    Upload(Upload),
    /// List the components in this binary
    #[command(args(without(ALL)))]
    Components,
    /// List feature gates (profcol has none)
    #[command(args(without(ALL)))]
    Featuregate { id: Option<String> },
    /// List the attributes the processors would set for each process on this host; `--config` supplies the options of
    /// the `container` processor
    Processes {
        /// Only this process
        #[arg(long)]
        pid: Option<u32>,
        #[arg(long, value_enum, default_value_t = Format::Yaml)]
        format: Format,
    },
    /// Test relabel rules
    #[command(subcommand)]
    Relabel(Relabel),
    /// Inspect the queues of `file_storage` and the history of `live_view` on disk
    #[command(subcommand, args(without(ALL)))]
    Storage(Storage),
    /// Print the JSON Schema of the whole configuration, for editors
    #[command(args(without(ALL)))]
    Schema,
    /// Print the version
    #[command(args(without(ALL)))]
    Version,
    /// Print a completion script for a shell
    #[command(args(without(ALL)))]
    Completions { shell: clap_complete::Shell },
    /// Print the manual page, or that of a command
    #[command(args(without(ALL)))]
    Man {
        /// Such as `record`, or `relabel test`
        command: Vec<String>,
    },
}

impl Configuration {
    pub fn is_empty(&self) -> bool {
        self.uris.is_empty() && self.sets.is_empty()
    }
}

impl Command {
    /// Whether `--config` or `--set` has an effect.
    pub fn reads_configuration(&self) -> bool {
        !matches!(
            self,
            Self::Convert(_)
                | Self::Diff(_)
                | Self::Components
                | Self::Featuregate { .. }
                | Self::Storage(_)
                | Self::Schema
                | Self::Version
                | Self::Completions { .. }
                | Self::Man { .. }
        )
    }
}

/// The options of a configuration.
const ALL: &[&str] = &["config", "set", "feature-gates"];

/// Keeps options of a configuration out of a command's help.
fn without(options: &[&'static str]) -> Vec<Arg> {
    let hidden = |&option| {
        Arg::new(option)
            .long(option)
            .action(ArgAction::Append)
            .global(true)
            .hide(true)
    };
    options.iter().map(hidden).collect()
}

#[derive(Debug, Subcommand)]
pub enum Storage {
    /// List queues and histories, verify every byte, and export them; read-only, safe while profcol runs
    #[command(args(without(ALL)))]
    Inspect(InspectStorage),
}

#[derive(Args, Debug)]
pub struct InspectStorage {
    /// The directory
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,
    /// Only the queue or history of this exporter
    #[arg(long, value_name = "EXPORTER")]
    pub queue: Option<String>,
    /// Write the batches to a new file that the `otlp_file` receiver reads: OTLP JSON lines if its name ends with
    /// `.jsonl`, else length-prefixed OTLP protobuf
    #[arg(long, value_name = "FILE")]
    pub export: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub enum Relabel {
    /// Show labels before and after, and the effect of each rule of the configuration's relabel processors
    Test(RelabelTest),
}

#[derive(Args, Debug)]
#[group(required = true, multiple = false)]
pub struct RelabelTest {
    /// Use the labels of this process
    #[arg(long)]
    pub pid: Option<u32>,
    /// Use these labels, as `name=value,name=value`
    #[arg(long, value_name = "LABELS", value_delimiter = ',', value_parser = label)]
    pub labels: Vec<(String, String)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Mode {
    /// Replace secrets
    Redacted,
    /// Print secrets
    Unredacted,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    Yaml,
    Json,
}

/// Prints help, the version, or a usage error; the latter quotes arguments.
pub fn answer(answer: &clap::Error) -> ExitCode {
    let mut arguments = std::env::args_os();
    if arguments.all(|it| it.to_string_lossy().chars().all(is_printable)) {
        // A closed pipe is not an error.
        let _ = answer.print();
    } else {
        // Unprintable characters in arguments are escaped, and colours with them.
        print(&lines(&answer.render().to_string()));
    }
    u8::try_from(answer.exit_code()).map_or(ExitCode::FAILURE, ExitCode::from)
}

/// `10s`, `2m`, `1h30m`, or a bare number of seconds.
fn duration(text: &str) -> Result<Duration, String> {
    let seconds = match text.bytes().all(|it| it.is_ascii_digit()) {
        true => format!("{text}s"),
        false => text.to_owned(),
    };
    let parsed: profcol_config::Duration = seconds
        .parse()
        .map_err(|_| "must be a duration such as 10s, 2m or 1h30m".to_owned())?;
    match Duration::from(parsed) {
        Duration::ZERO => Err("must be longer than 0s".to_owned()),
        time => Ok(time),
    }
}

fn key_value(text: &str) -> Result<String, String> {
    match text.contains('=') {
        true => Ok(text.to_owned()),
        false => Err("missing equal sign".to_owned()),
    }
}

fn label(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("must be name=value".to_owned()),
    }
}

const EXIT_CODES: &str = "\
Exit codes:
  0   success
      (`record -- COMMAND`: the command's own exit code)
  1   a component failed, could not start, or data could not be delivered before the deadline
      (`upload`: not everything was uploaded; `doctor`: a check failed)
  2   invalid command line
  78  invalid configuration";
