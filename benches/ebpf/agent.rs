//! profcol as a process that profiles the host and discards the profiles.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

const LOG: &str = "log";
const START_TIMEOUT: Duration = Duration::from_secs(60);

pub struct Agent {
    child: Child,
    metrics: SocketAddr,
    /// Time from start to readiness.
    pub start: Duration,
    /// Load time of the BPF programs in milliseconds, from the agent's log.
    pub load: f64,
    /// Keeps the configuration and log of the process.
    directory: tempfile::TempDir,
}

impl Agent {
    /// Starts it and waits until it profiles. `exporter` is an exporter configuration with its name.
    pub fn start(program: &Path, frequency: u64, exporter: &str) -> Result<Self> {
        let metrics = free_address()?;
        let directory = tempfile::tempdir().context("failed to make a temporary directory")?;
        let config = directory.path().join("config.yaml");
        fs::write(&config, configuration(frequency, exporter, metrics))
            .context("failed to write a configuration")?;
        let log = directory.path().join(LOG);
        let output = File::create(&log).context("failed to create a log")?;
        let started = Instant::now();
        let child = Command::new(program)
            .arg("--config")
            .arg(&config)
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .spawn()
            .with_context(|| format!("failed to start {}", program.display()))?;
        let mut agent = Self {
            child,
            metrics,
            start: Duration::ZERO,
            load: f64::NAN,
            directory,
        };
        agent.wait_until_ready(&log, started)?;
        agent.start = started.elapsed();
        Ok(agent)
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Stops it, which delivers all samples, and returns the totals from its log.
    pub fn finish(mut self) -> Result<Ended> {
        let pid = self.pid().to_string();
        Command::new("kill").args(["-TERM", &pid]).status()?;
        self.child.wait()?;
        let log = fs::read_to_string(self.directory.path().join(LOG))?;
        let count = |key| parse_field(&log, "Profiling ended", key);
        let (Some(samples), Some(lost)) = (count("taken="), count("lost=")) else {
            bail!("no `Profiling ended` line in the log of profcol:\n{log}");
        };
        Ok(Ended { samples, lost })
    }

    fn wait_until_ready(&mut self, log: &PathBuf, started: Instant) -> Result<()> {
        loop {
            let text = fs::read_to_string(log).unwrap_or_default();
            if text.contains("Everything is ready") {
                self.load = parse_field(&text, "Loaded the BPF programs", "milliseconds=")
                    .unwrap_or(f64::NAN);
                return Ok(());
            }
            if let Some(status) = self.child.try_wait()? {
                bail!("profcol exited ({status}); log:\n{text}");
            }
            if started.elapsed() > START_TIMEOUT {
                bail!("profcol is not ready after {START_TIMEOUT:?}; log:\n{text}");
            }
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// The receiver's counters by name and labels.
    pub fn metrics(&self) -> Result<Metrics> {
        let mut stream = TcpStream::connect(self.metrics)
            .context("failed to connect to the metrics endpoint")?;
        stream.write_all(b"GET /metrics HTTP/1.0\r\nHost: localhost\r\n\r\n")?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        let value = |line: &str| {
            let (name, value) = line.rsplit_once(' ')?;
            Some((
                name.strip_prefix("profcol_ebpf_cpu_")?.to_owned(),
                value.parse().ok()?,
            ))
        };
        Ok(Metrics(text.lines().filter_map(value).collect()))
    }
}

/// Totals of the whole run.
pub struct Ended {
    pub samples: f64,
    /// Lost before delivery.
    pub lost: f64,
}

/// The number after `key` in the log line that contains `text`.
fn parse_field(log: &str, text: &str, key: &str) -> Option<f64> {
    let line = log.lines().find(|line| line.contains(text))?;
    let mut words = line.split_whitespace();
    words.find_map(|word| word.strip_prefix(key))?.parse().ok()
}

impl Drop for Agent {
    fn drop(&mut self) {
        // Only fails if it has already exited.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[derive(Debug)]
pub struct Metrics(BTreeMap<String, f64>);

impl Metrics {
    /// The sum of a counter over all label sets.
    pub fn sum(&self, name: &str) -> f64 {
        let is_it = |key: &str| {
            key.split('{').next().is_some_and(|counter| {
                counter == name || counter.strip_suffix("_total") == Some(name)
            })
        };
        self.0
            .iter()
            .filter(|(key, _)| is_it(key))
            .map(|(_, value)| value)
            .sum()
    }

    /// User stacks by end reason.
    pub fn stacks(&self) -> BTreeMap<String, f64> {
        self.0
            .iter()
            .filter(|(key, _)| key.starts_with("stacks"))
            .filter_map(|(key, &value)| {
                let (_, reason) = key.split_once("end_reason=\"")?;
                Some((reason.split('"').next()?.to_owned(), value))
            })
            .collect()
    }
}

fn free_address() -> Result<SocketAddr> {
    let listener =
        TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("no free port on loopback")?;
    Ok(listener.local_addr()?)
}

fn configuration(frequency: u64, exporter: &str, metrics: SocketAddr) -> String {
    let (host, port) = (metrics.ip(), metrics.port());
    let (name, _) = exporter.split_once(':').unwrap_or((exporter, ""));
    format!(
        "\
receivers:
  ebpf_cpu: {{frequency: {frequency}}}
exporters:
  {exporter}
service:
  telemetry:
    metrics:
      readers:
        - pull: {{exporter: {{prometheus: {{host: {host}, port: {port}}}}}}}
  pipelines:
    profiles: {{receivers: [ebpf_cpu], exporters: [{name}]}}
"
    )
}
