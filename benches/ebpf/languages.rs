//! Languages with an interpreter or a compiler of their own: the kernel's time per frame, and the agent next to many
//! processes.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use profcol_test_harness::procfs;

use crate::options::Options;
use crate::report::mib;
use crate::trial::{self, Trial};
use crate::workload::Running;

const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/ebpf/programs/languages");
/// Compared with none of the same program.
const DEPTH: usize = 200;
/// As in a small service.
const USUAL_DEPTH: usize = 30;
/// CPU time after which a process has started.
const STARTED: Duration = Duration::from_millis(300);
const START_TIMEOUT: Duration = Duration::from_secs(180);

const FRAME_HEADER: &str = "\
| language | Hz | kernel, us per sample without frames (median) | with 200 | ns per frame (median) |
|---|---|---|---|---|";
const PROCESS_HEADER: &str = "\
| language | processes | Hz | samples | delivered | CPU, % of a core | resident MiB (peak) |
|---|---|---|---|---|---|---|";

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Language {
    Python,
    Node,
    Java,
    Ruby,
    Php,
    Perl,
    Luajit,
    Erlang,
}

/// The program in each language.
struct Programs(tempfile::TempDir);

impl Programs {
    fn compile(languages: &[Language]) -> Result<Self> {
        let directory = tempfile::tempdir().context("failed to make a temporary directory")?;
        for (language, compiler, option, source) in [
            (Language::Java, "javac", "-d", "Deep.java"),
            (Language::Erlang, "erlc", "-o", "deep.erl"),
        ] {
            if !languages.contains(&language) {
                continue;
            }
            let status = Command::new(compiler)
                .arg(option)
                .arg(directory.path())
                .arg(source_of(source))
                .status()
                .with_context(|| format!("failed to start {compiler}"))?;
            if !status.success() {
                bail!("{compiler} failed to compile {source}");
            }
        }
        Ok(Self(directory))
    }

    fn command(&self, language: Language) -> Command {
        let (program, arguments): (_, &[&str]) = match language {
            Language::Python => ("python3", &[]),
            Language::Node => ("node", &[]),
            // A hundred of them have to fit.
            Language::Java => ("java", &["-Xmx32m", "-XX:+UseSerialGC", "-cp"]),
            Language::Ruby => ("ruby", &["--disable-gems"]),
            Language::Php => ("php", &["-n"]),
            Language::Perl => ("perl", &[]),
            Language::Luajit => ("luajit", &["-joff"]),
            Language::Erlang => ("erl", &["-noinput", "+S", "1", "-pa"]),
        };
        let mut command = Command::new(program);
        command.args(arguments);
        match language {
            Language::Python => command.arg(source_of("deep.py")),
            Language::Node => command.arg(source_of("deep.js")),
            Language::Java => command.arg(self.0.path()).arg("Deep"),
            Language::Ruby => command.arg(source_of("deep.rb")),
            Language::Php => command.arg(source_of("deep.php")),
            Language::Perl => command.arg(source_of("deep.pl")),
            Language::Luajit => command.arg(source_of("deep.lua")),
            Language::Erlang => command.arg(self.0.path()).args(["-run", "deep", "main"]),
        };
        command
    }

    /// Starts that many processes, and waits until they burn CPU.
    fn start(
        &self,
        language: Language,
        depth: usize,
        count: usize,
        longest: Duration,
    ) -> Result<Running> {
        let mut running = Running::default();
        let seconds = longest.as_secs().to_string();
        for _ in 0..count {
            let mut command = self.command(language);
            running.spawn(command.arg(depth.to_string()).arg(&seconds))?;
        }
        let started = Instant::now();
        for pid in running.pids() {
            while procfs::running_time(pid)? < STARTED {
                if started.elapsed() > START_TIMEOUT {
                    bail!("process {pid} of {language:?} does not start");
                }
                thread::sleep(Duration::from_millis(20));
            }
        }
        Ok(running)
    }
}

fn source_of(name: &str) -> PathBuf {
    Path::new(SOURCES).join(name)
}

/// Measures the languages, and returns the tables.
pub fn run(options: &Options) -> Result<String> {
    let programs = Programs::compile(&options.languages)?;
    let cpus = thread::available_parallelism().map_or(1, usize::from);
    let longest = START_TIMEOUT + options.window() * 2 + options.warm_up() * 2;
    let trial = |language, depth, count, frequency| -> Result<Trial> {
        let running = programs.start(language, depth, count, longest)?;
        let trial = trial::run(frequency, options)?;
        eprintln!("{language:?}, depth {depth}, {count} processes, {frequency} Hz: {trial:?}");
        drop(running);
        Ok(trial)
    };
    let (mut frames, mut processes) = (String::new(), String::new());
    for &language in &options.languages {
        if let Some(&frequency) = options.frequencies.last() {
            let [flat, deep] = [0, DEPTH].map(|depth| trial(language, depth, cpus, frequency));
            let (flat, deep) = (flat?, deep?);
            let per_frame = |with: f64, without: f64| (with - without) / DEPTH as f64;
            writeln!(
                frames,
                "| {language:?} | {frequency} | {:.1} ({:.1}) | {:.1} ({:.1}) | **{:.0}** ({:.0}) |",
                flat.program / 1e3,
                flat.median / 1e3,
                deep.program / 1e3,
                deep.median / 1e3,
                per_frame(deep.program, flat.program),
                per_frame(deep.median, flat.median),
            )?;
        }
        for &count in &options.processes {
            for &frequency in &options.frequencies {
                let trial = trial(language, USUAL_DEPTH, count, frequency)?;
                writeln!(
                    processes,
                    "| {language:?} | {count} | {frequency} | {:.0} | {:.1} % | **{:.2}** | {:.1} ({:.1}) |",
                    trial.samples,
                    trial.delivered * 100.0,
                    trial.cpu * 100.0,
                    mib(trial.resident),
                    mib(trial.peak),
                )?;
            }
        }
    }
    Ok(format!(
        "{FRAME_HEADER}\n{frames}\n{PROCESS_HEADER}\n{processes}"
    ))
}
