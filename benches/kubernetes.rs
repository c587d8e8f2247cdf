//! The cost of the `k8s_attributes` processor: memory, CPU, and the time until it has cached a whole cluster.
//!
//! `cargo run --release -p profcol-benches --bin kubernetes -- --pods 110,10000,150000`
//!
//! With `--collector PROGRAM` it measures a Collector on the same server in the same run; it must be built with
//! `k8sattributesprocessor`, which that of `cargo xtask peers` is not.
//!
//! The API server is simulated: it lists copies of recorded pods in pages of the requested size, as fast as they are
//! read, and then changes some of them. The baseline of each size is the same process with `passthrough`, which sends
//! no requests.

#![expect(
    clippy::print_stdout,
    reason = "this is a command-line tool; its report is its output"
)]

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Parser;
use profcol_test_harness::procfs::{self, CpuTime};

const RECORDED: &str = include_str!("../components/processors/k8s_attributes/testdata/pods.json");
const REPLICA_SETS: &str = r#"{"metadata":{"resourceVersion":"1"},"items":[]}"#;
/// The response of a server without streaming lists.
const NO_STREAMED_LISTS: &str = concat!(
    "HTTP/1.1 422 Unprocessable Entity\r\ncontent-type: application/json\r\nconnection: close\r\n\r\n",
    r#"{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Invalid","code":422}"#
);
/// Time limit of a list.
const READY_TIMEOUT: Duration = Duration::from_secs(300);
/// Delay before watches send their events, after the list has been measured.
const SETTLE_TIME: Duration = Duration::from_secs(4);

#[derive(Parser)]
struct Options {
    /// Number of pods, one measurement for each
    #[arg(long, value_delimiter = ',', default_value = "110,10000,150000")]
    pods: Vec<usize>,
    /// Number of pods that change afterwards
    #[arg(long, default_value_t = 20_000)]
    changes: usize,
    #[arg(long, default_value = "target/release/profcol")]
    profcol: PathBuf,
    #[arg(long)]
    collector: Option<PathBuf>,
}

struct Cluster {
    pods: usize,
    changes: usize,
    /// A pod with placeholders for its name, uid, address and container ids.
    template: String,
}

struct Measured {
    ready_after: Duration,
    cpu: f64,
    resident: u64,
    peak: u64,
    change_cpu: f64,
}

fn main() -> Result<()> {
    let options = Options::parse();
    let template = template()?;
    println!("a pod is {} bytes of JSON", template.len());
    for &pods in &options.pods {
        let cluster = Arc::new(Cluster {
            pods,
            changes: options.changes,
            template: template.clone(),
        });
        let port = serve(&cluster)?;
        for program in options.collector.iter().chain([&options.profcol]) {
            println!(
                "{}: {}",
                program.display(),
                compare(program, port, &cluster)?
            );
        }
    }
    Ok(())
}

/// Compares the processor with the same program in `passthrough` mode.
fn compare(program: &Path, port: u16, cluster: &Cluster) -> Result<String> {
    let Cluster { pods, changes, .. } = cluster;
    let without = measure(program, port, "passthrough: true")?;
    let with = measure(
        program,
        port,
        "wait_for_metadata: true, wait_for_metadata_timeout: 5m",
    )?;
    let resident = with.resident.saturating_sub(without.resident);
    let change_cpu = (with.change_cpu - without.change_cpu).max(0.0);
    Ok(format!(
        "{pods} pods: {:.1} MiB more, {:.0} bytes a pod; at most {:.1} MiB more, {:.1} MiB in all; known after {:.2} s; {:.2} s of CPU, {:.0} us a pod; {changes} changes {change_cpu:.2} s of CPU, {:.0} us each",
        mib(resident),
        resident as f64 / *pods as f64,
        mib(with.peak.saturating_sub(without.peak)),
        mib(with.peak),
        with.ready_after.as_secs_f64(),
        with.cpu,
        (with.cpu - without.cpu) / *pods as f64 * 1e6,
        change_cpu / *changes as f64 * 1e6,
    ))
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

/// A recorded pod with its unique values replaced by a number.
fn template() -> Result<String> {
    let recorded: serde_json::Value = serde_json::from_str(RECORDED)?;
    let items = recorded["items"].as_array().context("no pod list")?;
    let named = |name: &&serde_json::Value| name["metadata"]["name"] == "web-5d4f8c7b9-abcde";
    let pod = items.iter().find(named).context("pod not found")?;
    let uid = pod["metadata"]["uid"].as_str().context("pod has no uid")?;
    let text = pod.to_string();
    // Ids have 64 digits and start with the pod's number.
    let ids = format!("containerd://{:032x}", 1);
    Ok(text
        .replace(uid, "0000NUMBER-4e5f-6789-abcd-ef0123456789")
        .replace("web-5d4f8c7b9-abcde", "web-5d4f8c7b9-NUMBER")
        .replace("10.244.0.1", "fd01::NUMBER")
        .replace(&ids, "containerd://000000000000000000000000NUMBER"))
}

impl Cluster {
    fn pod(&self, number: usize) -> String {
        self.template.replace("NUMBER", &format!("{number:08x}"))
    }

    fn page(&self, begin: usize, limit: usize) -> String {
        let end = (begin + limit).min(self.pods);
        let next = if end < self.pods {
            end.to_string()
        } else {
            String::new()
        };
        let mut page =
            format!(r#"{{"metadata":{{"resourceVersion":"1","continue":"{next}"}},"items":["#);
        for number in begin..end {
            if number > begin {
                page.push(',');
            }
            page.push_str(&self.pod(number));
        }
        page.push_str("]}");
        page
    }

    fn answer(&self, mut stream: TcpStream) -> Result<()> {
        let mut reader = BufReader::new(stream.try_clone()?);
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line)? == 0 {
                return Ok(());
            }
            let target = line.split(' ').nth(1).unwrap_or_default().to_owned();
            while line.trim_end() != "" {
                line.clear();
                reader.read_line(&mut line)?;
            }
            let parameter = |name: &str| {
                let (_, query) = target.split_once('?')?;
                let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
                pairs.find(|(key, _)| *key == name).map(|(_, value)| value)
            };
            let is_pods = target.contains("/pods");
            if parameter("sendInitialEvents").is_some() {
                stream.write_all(NO_STREAMED_LISTS.as_bytes())?;
                return Ok(());
            }
            if parameter("watch").is_some() {
                stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n\r\n")?;
                thread::sleep(SETTLE_TIME);
                for number in (0..self.changes).filter(|_| is_pods) {
                    let pod = self.pod(number % self.pods);
                    writeln!(stream, r#"{{"type":"MODIFIED","object":{pod}}}"#)?;
                }
                thread::sleep(READY_TIMEOUT);
                return Ok(());
            }
            let number = |name: &str| parameter(name).and_then(|it| it.parse().ok());
            let body = match is_pods {
                true => self.page(
                    number("continue").unwrap_or(0),
                    number("limit").unwrap_or(500),
                ),
                false => REPLICA_SETS.to_owned(),
            };
            write!(
                stream,
                "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
                body.len()
            )?;
        }
    }
}

fn serve(cluster: &Arc<Cluster>) -> Result<u16> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let port = listener.local_addr()?.port();
    let cluster = Arc::clone(cluster);
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let cluster = Arc::clone(&cluster);
            // The connection was closed by one of our own processes.
            thread::spawn(move || cluster.answer(stream).ok());
        }
    });
    Ok(port)
}

/// Killed on drop.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        // Both only fail if it has already exited.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn measure(program: &Path, port: u16, options: &str) -> Result<Measured> {
    let directory = tempfile::tempdir()?;
    let kubeconfig = directory.path().join("kubeconfig");
    std::fs::write(
        &kubeconfig,
        format!(
            "{{apiVersion: v1, kind: Config, current-context: c, clusters: [{{name: c, cluster: {{server: 'http://127.0.0.1:{port}'}}}}], \
             users: [{{name: u, user: {{}}}}], contexts: [{{name: c, context: {{cluster: c, user: u}}}}]}}"
        ),
    )?;
    let listening = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
    let config = format!(
        "yaml:{{receivers: {{otlp: {{protocols: {{http: {{endpoint: '{listening}'}}}}}}}}, \
         processors: {{k8sattributes: {{auth_type: kubeConfig, {options}}}}}, exporters: {{nop: }}, \
         service: {{telemetry: {{metrics: {{level: none}}}}, \
         pipelines: {{profiles: {{receivers: [otlp], processors: [k8sattributes], exporters: [nop]}}}}}}}}"
    );
    let started = Instant::now();
    let child = Command::new(program)
        .args([
            "--feature-gates=+service.profilesSupport",
            "--config",
            &config,
        ])
        .env("KUBECONFIG", &kubeconfig)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .with_context(|| format!("failed to start {}", program.display()))?;
    let mut process = Process(child);
    let pid = process.0.id();
    while TcpStream::connect(listening).is_err() {
        if process.0.try_wait()?.is_some() || started.elapsed() > READY_TIMEOUT {
            bail!("{} did not become ready", program.display());
        }
        thread::sleep(Duration::from_millis(2));
    }
    let ready_after = started.elapsed();
    thread::sleep(SETTLE_TIME / 4);
    let at_rest = CpuTime::of(pid)?;
    let (resident, peak) = (procfs::resident(pid)?, procfs::peak_resident(pid)?);
    thread::sleep(SETTLE_TIME + Duration::from_secs(6));
    let changed = CpuTime::of(pid)? - at_rest;
    Ok(Measured {
        ready_after,
        cpu: at_rest.total().as_secs_f64(),
        resident,
        peak,
        change_cpu: changed.total().as_secs_f64(),
    })
}
