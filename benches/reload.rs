//! Gaps that reloads of the configuration cause: the longest time without an answer to clients that keep sending, and (as
//! root) between two samples of a busy process, with and without reloads in one run.
//!
//! `cargo build --release && PROFCOL_TEST_PROGRAM=target/release/profcol cargo run --release -p profcol-benches --bin reload`

#![expect(
    clippy::print_stdout,
    reason = "this is a command-line tool; its report is its output"
)]

use std::process::{Child, Command};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use clap::Parser;
use profcol_component::testkit::profiles;
use profcol_test_harness::backend::{Destination, Mode};
use profcol_test_harness::rig::{RELOADED, Rig};
use profcol_test_harness::support::is_root;

const CLIENTS: usize = 3;
const SAMPLES_PER_REQUEST: usize = 100;
const BETWEEN_RELOADS: Duration = Duration::from_secs(1);

/// Print the longest gaps in answering and sampling, without and with a reload every second.
#[derive(Parser)]
struct Options {
    /// Duration of each of the two parts
    #[arg(long, default_value_t = 60)]
    seconds: u64,
}

/// What happened between two moments.
struct Part {
    answers: usize,
    longest_answer: Duration,
    longest_silence: Duration,
    reloads: usize,
    from: SystemTime,
    until: SystemTime,
}

struct Busy(Child);

fn main() -> Result<()> {
    let Options { seconds } = Options::parse();
    ensure!(
        std::env::var_os("PROFCOL_TEST_PROGRAM").is_some(),
        "set PROFCOL_TEST_PROGRAM to the release build of profcol"
    );
    let (requests, samples) = (
        Destination::counting(Mode::Take),
        Destination::new(Mode::Take),
    );
    let busy = Busy::start()?;
    let profiled = is_root().then_some(busy.0.id());
    let rig = Rig::start(&configuration(0, &requests, &samples, profiled));
    let length = Duration::from_secs(seconds);
    let quiet = measure(&rig, length, |_| None)?;
    let reloading = measure(&rig, length, |number| {
        Some(configuration(number, &requests, &samples, profiled))
    })?;
    let output = rig.stop();
    let loaded = output.matches("Loaded the BPF programs").count();
    ensure!(
        loaded == usize::from(profiled.is_some()),
        "{loaded} loads of the BPF programs"
    );
    println!(
        "| | without reloads | with {} reloads |\n|---|---|---|",
        reloading.reloads
    );
    let parts = [&quiet, &reloading];
    let row = |what: &str, figures: [String; 2]| println!("| {what} | {} |", figures.join(" | "));
    row("answers", parts.map(|part| part.answers.to_string()));
    row(
        "longest answer",
        parts.map(|part| milliseconds(part.longest_answer)),
    );
    row(
        "longest time without an answer",
        parts.map(|part| milliseconds(part.longest_silence)),
    );
    if profiled.is_some() {
        let taken = timestamps(&samples);
        let gaps = parts.map(|part| longest_gap(&taken, part));
        let [quiet, reloading] = gaps;
        let (quiet, reloading) = (quiet?, reloading?);
        row(
            "longest time between samples at 99 Hz",
            [quiet, reloading].map(milliseconds),
        );
    }
    Ok(())
}

/// Reloads change a processor and an exporter.
fn configuration(
    number: usize,
    requests: &Destination,
    samples: &Destination,
    profiled: Option<u32>,
) -> String {
    let (receiver, pipeline) = match profiled {
        Some(pid) => (
            format!("  ebpf_cpu: {{interval: 1s, frequency: 99, include: [{{pid: {pid}}}]}}\n"),
            "    profiles/host: {receivers: [ebpf_cpu], processors: [resource], exporters: [otlp_grpc/samples]}\n",
        ),
        None => (String::new(), ""),
    };
    let exporter = |to: &Destination| {
        let consumers = number % 2 + 1;
        let to = to.address;
        format!(
            "{{endpoint: \"{to}\", tls: {{insecure: true}}, sending_queue: {{num_consumers: {consumers}}}}}"
        )
    };
    format!(
        "\
receivers:
  otlp: {{protocols: {{grpc: {{endpoint: 127.0.0.1:0}}}}}}
{receiver}processors:
  resource: {{attributes: [{{key: reload, value: \"{number}\", action: upsert}}]}}
exporters:
  otlp_grpc: {}
  otlp_grpc/samples: {}
service:
  telemetry: {{metrics: {{level: none}}}}
  pipelines:
    profiles: {{receivers: [otlp], processors: [resource], exporters: [otlp_grpc]}}
{pipeline}",
        exporter(requests),
        exporter(samples),
    )
}

/// Clients send one request after the other, while `config` replaces the configuration.
fn measure(rig: &Rig, length: Duration, config: impl Fn(usize) -> Option<String>) -> Result<Part> {
    let has_ended = AtomicBool::new(false);
    let answers = Mutex::new(Vec::new());
    let (from, began) = (SystemTime::now(), Instant::now());
    let mut reloads = 0;
    thread::scope(|scope| -> Result<()> {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|_| {
                scope.spawn(|| {
                    let client = rig.client();
                    let batch = profiles(SAMPLES_PER_REQUEST);
                    let mut own = Vec::new();
                    while !has_ended.load(Ordering::Relaxed) {
                        let asked = Instant::now();
                        // A queue that is full refuses for now: that is an answer, too.
                        let _ = client.send(&batch);
                        own.push((Instant::now(), asked.elapsed()));
                    }
                    answers.lock().map(|mut all| all.extend(own)).is_ok()
                })
            })
            .collect();
        while began.elapsed() < length {
            thread::sleep(BETWEEN_RELOADS);
            if let Some(config) = config(reloads + 1) {
                reloads += 1;
                rig.write(&reloads.to_string(), &config);
                rig.signal("-HUP");
                rig.wait_for(RELOADED, reloads);
            }
        }
        has_ended.store(true, Ordering::Relaxed);
        for client in clients {
            ensure!(client.join().is_ok_and(|kept| kept), "a client failed");
        }
        Ok(())
    })?;
    let mut answers = answers.into_inner().ok().context("a client failed")?;
    answers.sort();
    let longest_answer = answers.iter().map(|(_, took)| *took).max();
    let times = answers.iter().map(|(at, _)| *at);
    let silences = times
        .clone()
        .zip(times.skip(1))
        .map(|(one, next)| next - one);
    Ok(Part {
        answers: answers.len(),
        longest_answer: longest_answer.context("no answer")?,
        longest_silence: silences.max().context("one answer")?,
        reloads,
        from,
        until: SystemTime::now(),
    })
}

/// Nanoseconds of all samples, in order.
fn timestamps(samples: &Destination) -> Vec<u64> {
    let mut found = Vec::new();
    for taken in samples.taken() {
        for profile in taken.model().profiles() {
            for sample in profile.samples.iter() {
                found.extend_from_slice(sample.timestamps);
            }
        }
    }
    found.sort_unstable();
    found
}

fn longest_gap(timestamps: &[u64], part: &Part) -> Result<Duration> {
    let nanoseconds = |time: SystemTime| -> Result<u64> {
        Ok(u64::try_from(time.duration_since(UNIX_EPOCH)?.as_nanos())?)
    };
    let period = nanoseconds(part.from)?..nanoseconds(part.until)?;
    let within: Vec<u64> = timestamps
        .iter()
        .copied()
        .filter(|it| period.contains(it))
        .collect();
    let gaps = within
        .iter()
        .zip(within.iter().skip(1))
        .map(|(one, next)| next - one);
    Ok(Duration::from_nanos(gaps.max().context("no samples")?))
}

fn milliseconds(time: Duration) -> String {
    format!("{:.1} ms", time.as_secs_f64() * 1e3)
}

// === impl Busy ===

impl Busy {
    fn start() -> Result<Self> {
        let child = Command::new("sh")
            .args(["-c", "while :; do :; done"])
            .spawn();
        Ok(Self(child.context("failed to start sh")?))
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        // Both fail only if it has already exited.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
