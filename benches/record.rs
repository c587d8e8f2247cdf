//! What `profcol record` costs compared with `perf record` and `perf script`, for one command.
//!
//! ```text
//! record [--rounds N] [--hertz N] -- COMMAND ARGUMENTS
//! ```
//!
//! Runs the command bare and under each profiler, in turn. Start is the time until the command runs, end the time from its
//! exit until the profile is ready to open; CPU is what all processes used beyond the bare command.

#![allow(clippy::print_stdout, reason = "prints the results")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail, ensure};

/// Notes when the command begins and ends.
const TIMED: &str =
    r#"date +%s%N > "$0"; "$@" > /dev/null; code=$?; date +%s%N >> "$0"; exit $code"#;

/// The kernel's clock ticks a second, as user space sees them.
const TICKS: f64 = 100.0;

struct Options {
    rounds: usize,
    hertz: String,
    command: Vec<String>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Profiler {
    None,
    Profcol,
    PerfFramePointers,
    PerfDwarf,
}

#[derive(Clone, Copy, Default)]
struct Cost {
    /// Seconds.
    start: f64,
    end: f64,
    cpu: f64,
    /// Of the command.
    wall: f64,
    bytes: u64,
}

const PROFILERS: [Profiler; 4] = [
    Profiler::None,
    Profiler::Profcol,
    Profiler::PerfFramePointers,
    Profiler::PerfDwarf,
];

fn main() -> Result<()> {
    let options = Options::parse(std::env::args().skip(1))?;
    let directory = tempfile::tempdir()?;
    let mut costs: Vec<Vec<Cost>> = vec![Vec::new(); PROFILERS.len()];
    for _ in 0..options.rounds {
        for (profiler, costs) in PROFILERS.iter().zip(&mut costs) {
            costs.push(profiler.measure(&options, directory.path())?);
        }
    }
    let bare = median(costs.first().map_or(&[][..], Vec::as_slice));
    println!(
        "| | start, ms | end, ms | CPU beyond the command, s | the command takes | written, KiB |"
    );
    println!("|---|---|---|---|---|---|");
    for (profiler, costs) in PROFILERS.iter().zip(&costs).skip(1) {
        let cost = median(costs);
        println!(
            "| {} | {:.0} | {:.0} | {:.2} | {:+.1} % | {} |",
            profiler.name(),
            cost.start * 1e3,
            cost.end * 1e3,
            cost.cpu - bare.cpu,
            (cost.wall / bare.wall - 1.0) * 100.0,
            cost.bytes >> 10,
        );
    }
    println!(
        "\nThe command alone: {:.2} s of CPU, {:.2} s.",
        bare.cpu, bare.wall
    );
    Ok(())
}

impl Options {
    fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Self> {
        let mut options = Self {
            rounds: 5,
            hertz: "99".to_owned(),
            command: Vec::new(),
        };
        while let Some(argument) = arguments.next() {
            let mut value = || arguments.next().context("a value is missing");
            match argument.as_str() {
                "--rounds" => options.rounds = value()?.parse().context("--rounds")?,
                "--hertz" => options.hertz = value()?,
                "--" => break,
                other => bail!("unknown option {other}"),
            }
        }
        options.command = arguments.collect();
        ensure!(
            !options.command.is_empty(),
            "a command is missing, after --"
        );
        Ok(options)
    }
}

impl Profiler {
    fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Profcol => "`profcol record`",
            Self::PerfFramePointers => "`perf record --call-graph fp`, `perf script`",
            Self::PerfDwarf => "`perf record --call-graph dwarf`, `perf script`",
        }
    }

    fn measure(self, options: &Options, directory: &Path) -> Result<Cost> {
        let times = directory.join("times");
        let (output, text) = (directory.join("profile.pb.gz"), directory.join("script"));
        let data = directory.join("perf.data");
        let mut command = match self {
            Self::None => Command::new("sh"),
            Self::Profcol => {
                let mut record = Command::new(profcol()?);
                record.args(["record", "-F", &options.hertz, "-o"]);
                record.arg(&output).args(["--", "sh"]);
                record
            }
            Self::PerfFramePointers | Self::PerfDwarf => {
                let graph = match self {
                    Self::PerfDwarf => "dwarf",
                    _ => "fp",
                };
                let mut record = Command::new("perf");
                record.args([
                    "record",
                    "-q",
                    "-F",
                    &options.hertz,
                    "--call-graph",
                    graph,
                    "-o",
                ]);
                record.arg(&data).args(["--", "sh"]);
                record
            }
        };
        command
            .args(["-c", TIMED])
            .arg(&times)
            .args(&options.command);
        let (cpu, launched) = (cpu_of_children()?, now()?);
        run(&mut command)?;
        let mut written = output.clone();
        if matches!(self, Self::PerfFramePointers | Self::PerfDwarf) {
            let mut script = Command::new("perf");
            script.args(["script", "-i"]).arg(&data);
            run(script.stdout(fs::File::create(&text)?))?;
            written = data;
        }
        let ended = now()?;
        let cpu = cpu_of_children()? - cpu;
        let noted = fs::read_to_string(&times)?;
        let mut noted = noted.lines().map(str::parse::<u64>);
        let mut next = || -> Result<Duration> {
            let time = noted.next().context("the command noted no time")??;
            Ok(Duration::from_nanos(time))
        };
        let (began, finished) = (next()?, next()?);
        Ok(Cost {
            start: began.saturating_sub(launched).as_secs_f64(),
            end: ended.saturating_sub(finished).as_secs_f64(),
            wall: finished.saturating_sub(began).as_secs_f64(),
            cpu,
            bytes: fs::metadata(written).map_or(0, |it| it.len()),
        })
    }
}

/// Next to this program.
fn profcol() -> Result<PathBuf> {
    let program = std::env::current_exe()?.with_file_name("profcol");
    ensure!(
        program.exists(),
        "build profcol first: cargo build --release"
    );
    Ok(program)
}

fn run(command: &mut Command) -> Result<()> {
    let status = command
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .status()?;
    ensure!(status.success(), "{command:?}: {status}");
    Ok(())
}

fn now() -> Result<Duration> {
    Ok(SystemTime::now().duration_since(UNIX_EPOCH)?)
}

/// User and system time of ended children, in seconds.
fn cpu_of_children() -> Result<f64> {
    let stat = fs::read_to_string("/proc/self/stat")?;
    let (_, fields) = stat.rsplit_once(')').context("/proc/self/stat")?;
    let mut fields = fields.split_ascii_whitespace().skip(13);
    let mut next = || -> Result<f64> { Ok(fields.next().context("/proc/self/stat")?.parse()?) };
    Ok((next()? + next()?) / TICKS)
}

/// Of each column.
fn median(costs: &[Cost]) -> Cost {
    let middle = |value: fn(&Cost) -> f64| {
        let mut values: Vec<f64> = costs.iter().map(value).collect();
        values.sort_by(f64::total_cmp);
        values.get(values.len() / 2).copied().unwrap_or_default()
    };
    Cost {
        start: middle(|it| it.start),
        end: middle(|it| it.end),
        cpu: middle(|it| it.cpu),
        wall: middle(|it| it.wall),
        bytes: costs.last().map_or(0, |it| it.bytes),
    }
}
