//! `profcol record`: profiles for a duration and writes one file.

mod command;
mod owner;
mod selected;

use std::borrow::Cow;
use std::cell::Cell;
use std::io::{IsTerminal, stderr, stdout};
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::rc::Rc;
use std::time::{Duration, Instant};

use profcol_component::{Capabilities, Meter, SelfTelemetry};
use profcol_engine::Balance;
use profcol_engine::telemetry::init_logs;
use profcol_files::Format;
use profcol_printable::line;
use serde_json::{Value, json};

use self::command::{Recorded, Started};
use self::owner::SudoUser;
use self::selected::Selected;
use super::run::{Session, in_runtime, serve};
use super::{CommandError, load};
use crate::cli::{Configuration, Record};
use crate::privileges;
use crate::stderr::print;

/// Refresh interval of the progress line.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);

/// As the exporter `profile_file` names it.
const STANDARD_OUTPUT: &str = "-";

const NO_SAMPLE: &str =
    "no samples: none of the selected processes ran on a CPU during the recording";

pub fn record(record: &Record, on_top: &Configuration) -> Result<ExitCode, CommandError> {
    if !on_top.uris.is_empty() {
        return Err(CommandError::Usage(
            "`record` has a built-in pipeline: change it with --set, or run `profcol --config` with the exporter `profile_file`".to_owned(),
        ));
    }
    let output = record.output.to_str().ok_or_else(|| {
        CommandError::Usage("the name of the output file must be UTF-8".to_owned())
    })?;
    let format = match output {
        STANDARD_OUTPUT => Format::Pprof,
        output => {
            Format::of_file(output).map_err(|error| CommandError::Usage(error.to_string()))?
        }
    };
    if output == STANDARD_OUTPUT {
        check_standard_output(record)?;
    }
    if record.open && !matches!(format, Format::Html | Format::Svg) {
        return Err(CommandError::Usage(
            "--open needs an .html or .svg file: choose one with --output".to_owned(),
        ));
    }
    let selected = Selected::new(&record.pid)?;
    // Start the command before dropping capabilities, which it must keep.
    let started = match record.command.as_slice() {
        [] => None,
        command => Some(Started::waiting(command)?),
    };
    let loaded = load::load(&Configuration {
        uris: vec![load::own(&configuration(record, started.as_ref()))],
        ..on_top.clone()
    })?;
    let telemetry = SelfTelemetry::default();
    init_logs(&loaded.document.service.telemetry.logs, &[], &telemetry.log)
        .map_err(|error| CommandError::Configuration(error.to_string()))?;
    let sudo_user = SudoUser::detect();
    let mut needed = loaded.document.capabilities();
    if sudo_user.is_some() {
        needed |= Capabilities::CHOWN;
    }
    privileges::keep(needed);

    let lasted = Rc::new(Cell::new(Duration::ZERO));
    let (report, code) = in_runtime(async {
        let (session, recorded) = session(record, selected, started, &lasted);
        let report = serve(&loaded, &telemetry, session).await?;
        Ok((report, recorded.exit_code()))
    })?;
    if let Some(failure) = report.failures.first() {
        return Err(CommandError::Runtime(failure.to_string()));
    }
    if let Some(user) = sudo_user
        && output != STANDARD_OUTPUT
        && record.output.exists()
        && let Err(error) = user.give(&record.output)
    {
        print(&format!(
            "Failed to give {} to the user of sudo: {error}\n",
            line(output)
        ));
    }
    match summary(
        &report.balance,
        &telemetry.meter,
        output,
        format,
        lasted.get(),
    ) {
        Some(summary) => print(&summary),
        None if record.command.is_empty() => {
            return Err(CommandError::Runtime(NO_SAMPLE.to_owned()));
        }
        // The command's exit code counts.
        None => {
            print(&format!("{NO_SAMPLE}\n"));
            return Ok(code);
        }
    }
    if record.open {
        open_in_browser(&record.output);
    }
    Ok(code)
}

/// Refuses to mix a profile with other output.
fn check_standard_output(record: &Record) -> Result<(), CommandError> {
    if stdout().is_terminal() {
        return Err(CommandError::Usage(
            "`-o -` writes a pprof file to standard output, which is a terminal: redirect it"
                .to_owned(),
        ));
    }
    if !record.command.is_empty() {
        return Err(CommandError::Usage(
            "`-o -` writes to standard output, and so may the command: name a file".to_owned(),
        ));
    }
    Ok(())
}

/// The pipeline of a recording.
fn configuration(record: &Record, started: Option<&Started>) -> Value {
    let title = match record.command.as_slice() {
        [] => "profcol record".to_owned(),
        command => {
            let words = command.iter().map(|word| word.to_string_lossy());
            words.collect::<Vec<_>>().join(" ")
        }
    };
    json!({
        "receivers": {"ebpf_cpu": {
            "mode": "auto",
            "frequency": record.frequency,
            "interval": "1s",
            "max_waiting_batches": 60,
            "table_priority": "normal",
            "include": include(record, started),
        }},
        "processors": {
            "process": {},
            "container": {},
            "systemd": {},
            // Batches wait for symbols: the file is written at the end.
            "symbolize": {"priority": "normal", "max_cpu": 1, "timeout": "3s"},
        },
        "exporters": {"profile_file": {"path": record.output, "title": title}},
        "service": {
            "telemetry": {"logs": {"level": "warn"}, "metrics": {"level": "none"}},
            "pipelines": {"profiles": {
                "receivers": ["ebpf_cpu"],
                "processors": ["process", "container", "systemd", "symbolize"],
                "exporters": ["profile_file"],
            }},
        },
    })
}

/// The process rules; empty selects every process.
fn include(record: &Record, started: Option<&Started>) -> Vec<Value> {
    if record.all {
        return Vec::new();
    }
    let pids = record.pid.iter().map(|pid| json!({"pid": pid}));
    let names = record.comm.iter().map(|name| json!({"comm": name}));
    let cgroups = record.cgroup.iter().map(|path| json!({"cgroup": path}));
    let command = started.map(Started::rule);
    pids.chain(names).chain(cgroups).chain(command).collect()
}

/// Ends with the command or all selected processes, after the duration, or never. `lasted` is set to the time from the start to the stop.
fn session(
    record: &Record,
    selected: Selected,
    started: Option<Started>,
    lasted: &Rc<Cell<Duration>>,
) -> (Session, Recorded) {
    let duration = record.duration;
    let only_by_pid =
        record.comm.is_empty() && record.cgroup.is_empty() && record.command.is_empty();
    let (recorded, running) = match started {
        Some(started) => started.into_parts(),
        None => Default::default(),
    };
    let (release, ended) = running;
    let until = async move {
        let enough = async {
            match duration {
                Some(duration) => tokio::time::sleep(duration).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = enough => {}
            () = ended.wait() => {}
            () = selected.exited(), if only_by_pid => {}
            () = show_progress(duration) => {}
        }
    };
    let began = Rc::new(Cell::new(Instant::now()));
    let (start, lasted) = (began.clone(), lasted.clone());
    let session = Session {
        on_start: Box::new(move || {
            start.set(Instant::now());
            release.send();
        }),
        until: Box::pin(until),
        on_stop: Box::new(move || {
            lasted.set(began.get().elapsed());
            print("writing...\n");
        }),
        ..Session::default()
    };
    (session, recorded)
}

/// Never ends.
async fn show_progress(duration: Option<Duration>) {
    let of = duration.map_or_else(String::new, |duration| {
        format!(" of {}", profcol_config::Duration::from(duration))
    });
    if !stderr().is_terminal() {
        return std::future::pending().await;
    }
    let began = Instant::now();
    loop {
        let seconds = began.elapsed().as_secs();
        print(&format!(
            "\rRecording: {seconds} s{of}. Ctrl-C ends it and writes the file. "
        ));
        tokio::time::sleep(PROGRESS_INTERVAL).await;
    }
}

fn summary(
    balance: &Balance,
    meter: &Meter,
    output: &str,
    format: Format,
    time: Duration,
) -> Option<String> {
    let metric = |name: &str| {
        let name = format!("otelcol_exporter_profile_file_{name}");
        meter
            .gauge(&name, "", &[("exporter", "profile_file")])
            .get()
    };
    let samples = metric("written_samples");
    if samples == 0.0 {
        return None;
    }
    let unnamed = metric("unnamed_samples") / samples * 100.0;
    let (output, next) = match output {
        STANDARD_OUTPUT => (Cow::Borrowed("standard output"), String::new()),
        output => {
            let output = line(output);
            let next = format!("{}\n", format.how_to_open(&output));
            (output, next)
        }
    };
    Some(format!(
        "{output}: {samples} samples in {:.1} s, {} lost, {unnamed:.1}% without a function name, {:.0} kB\n{next}",
        time.as_secs_f64(),
        balance.lost(),
        metric("written_bytes") / 1000.0,
    ))
}

fn open_in_browser(file: &Path) {
    let opened = Command::new("xdg-open")
        .arg(file)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    if let Err(error) = opened {
        print(&format!("Failed to open a browser: xdg-open: {error}\n"));
    }
}
