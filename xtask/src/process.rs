//! Runs other programs: echoes the command line, prints the duration, and names the command in errors.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, anyhow, bail};

/// Runs `command` with its output on the terminal.
pub fn run(command: &mut Command) -> Result<()> {
    let line = command_line(command);
    println!("$ {line}");
    let started = Instant::now();
    let status = command
        .status()
        .with_context(|| format!("failed to start `{line}`"))?;
    check(status, &line)?;
    println!("  done in {:.1} s", started.elapsed().as_secs_f64());
    Ok(())
}

/// How a command ended, and what it printed to stdout.
pub struct Ended {
    pub stdout: String,
    pub result: Result<()>,
}

impl Ended {
    fn failed(why: impl Into<String>) -> Self {
        Self {
            stdout: String::new(),
            result: Err(anyhow!(why.into())),
        }
    }
}

/// Runs `command` with its output on the terminal, and returns its stdout as well.
pub fn run_and_read(command: &mut Command) -> Ended {
    let line = command_line(command);
    println!("$ {line}");
    let started = Instant::now();
    let mut stdout = String::new();
    let result = print_and_read(command, &mut stdout)
        .and_then(|status| check(status, &line))
        .with_context(|| format!("failed to run `{line}`"));
    println!("  done in {:.1} s", started.elapsed().as_secs_f64());
    Ended { stdout, result }
}

fn print_and_read(command: &mut Command, stdout: &mut String) -> Result<ExitStatus> {
    let mut child = command.stdout(Stdio::piped()).spawn()?;
    let pipe = child.stdout.take().context("stdout is not a pipe")?;
    for line in BufReader::new(pipe).split(b'\n') {
        let line = line?;
        let line = String::from_utf8_lossy(&line);
        println!("{line}");
        stdout.push_str(&line);
        stdout.push('\n');
    }
    Ok(child.wait()?)
}

fn check(status: ExitStatus, line: &str) -> Result<()> {
    match status.success() {
        true => Ok(()),
        false => bail!("`{line}` failed ({status})"),
    }
}

/// The same command, which leaves the CPUs to others.
pub fn at_low_priority(command: &Command) -> Command {
    let mut nice = Command::new("nice");
    nice.arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => nice.env(name, value),
            None => nice.env_remove(name),
        };
    }
    if let Some(directory) = command.get_current_dir() {
        nice.current_dir(directory);
    }
    nice
}

/// Runs commands at the same time. Prints the output of each when it has ended.
pub fn run_all_at_once(commands: Vec<Command>) -> Vec<Ended> {
    let running: Vec<_> = commands
        .into_iter()
        .map(|mut command| thread::spawn(move || run_and_print(&mut command)))
        .collect();
    running
        .into_iter()
        .map(|it| {
            it.join()
                .unwrap_or_else(|_| Ended::failed("a thread panicked"))
        })
        .collect()
}

fn run_and_print(command: &mut Command) -> Ended {
    let line = command_line(command);
    let started = Instant::now();
    let output = match command.output() {
        Ok(output) => output,
        Err(error) => return Ended::failed(format!("failed to start `{line}`: {error}")),
    };
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    println!(
        "$ {line}\n{}{stdout}  done in {:.1} s",
        String::from_utf8_lossy(&output.stderr),
        started.elapsed().as_secs_f64()
    );
    Ended {
        stdout,
        result: check(output.status, &line),
    }
}

/// Runs `command` and returns its stdout.
pub fn output(command: &mut Command) -> Result<String> {
    let line = command_line(command);
    let output = command
        .output()
        .with_context(|| format!("failed to start `{line}`"))?;
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        bail!("`{line}` failed ({}): {}", output.status, stderr.trim());
    }
    String::from_utf8(output.stdout)
        .with_context(|| format!("`{line}` printed text that is not UTF-8"))
}

/// Whether `command` starts and exits successfully.
pub fn succeeds(command: &mut Command) -> bool {
    command.output().is_ok_and(|output| output.status.success())
}

/// Whether the compiler has the standard library for `target`.
pub fn has_target(rustc: &str, target: &str) -> bool {
    output(Command::new(rustc).args(["--print", "target-libdir", "--target", target]))
        .is_ok_and(|directory| Path::new(directory.trim()).is_dir())
}

fn command_line(command: &Command) -> String {
    let mut words: Vec<String> = command
        .get_envs()
        .filter_map(|(key, value)| {
            Some(format!(
                "{}={}",
                key.to_string_lossy(),
                value?.to_string_lossy()
            ))
        })
        .collect();
    let program = Path::new(command.get_program());
    let name = program.file_name().unwrap_or(command.get_program());
    words.push(name.to_string_lossy().into_owned());
    words.extend(
        command
            .get_args()
            .map(|word| word.to_string_lossy().into_owned()),
    );
    words.join(" ")
}
