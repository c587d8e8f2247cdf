//! The options of `profcol record`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::duration;

/// Records every process of the host unless processes or a command are given.
#[derive(Args, Clone, Debug)]
pub struct Record {
    /// Samples per second on each busy CPU
    #[arg(short = 'F', long, value_name = "HZ", default_value_t = 99, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub frequency: u32,
    /// How long to record, such as `10s` or `2m`; default: until Ctrl-C, or until the command or the processes exit
    #[arg(short, long, value_name = "TIME", value_parser = duration)]
    pub duration: Option<Duration>,
    /// Only these processes, separated by commas
    #[arg(short, long, value_name = "PID", value_delimiter = ',')]
    pub pid: Vec<u32>,
    /// Only processes with this name; `*` matches any text
    #[arg(long, value_name = "NAME")]
    pub comm: Vec<String>,
    /// Only processes in this cgroup; `*` matches any text
    #[arg(long, value_name = "PATH")]
    pub cgroup: Vec<String>,
    /// Every process, even if a command is given
    #[arg(short, long, conflicts_with_all = ["pid", "comm", "cgroup"])]
    pub all: bool,
    /// Output file; the extension selects the format: .html, .svg, .pb.gz, .folded, .speedscope.json, .firefox.json, .firefox.json.gz, .otlp, .otlp.json; `-` writes .pb.gz to standard output
    #[arg(short, long, value_name = "FILE", default_value = "profile.html")]
    pub output: PathBuf,
    /// Open the file in a browser when done
    #[arg(long)]
    pub open: bool,
    /// Run this command, and record it and its children until it exits
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}
