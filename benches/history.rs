//! What the history of `live_view` costs on this host: three agents take the same samples at the same time, one without it, one
//! with it in memory, one with a directory. Nobody looks at the page.
//!
//! `cargo run -p profcol-benches --bin history -- --profcol target/release/profcol --minutes 60`

#![expect(
    clippy::print_stdout,
    reason = "this is a command-line tool; its report is its output"
)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::Parser;
use profcol_test_harness::procfs::{self, CpuTime};
use serde_json::json;

/// Print memory and CPU of three agents over time: without `live_view`, with it, and with its directory. Needs root.
#[derive(Parser)]
struct Options {
    /// The program
    #[arg(long, default_value = "target/release/profcol")]
    profcol: PathBuf,
    /// Samples per second on each busy CPU
    #[arg(long, default_value_t = 99)]
    frequency: u32,
    /// Duration of the measurement
    #[arg(long, default_value_t = 60)]
    minutes: u64,
    /// Time between two rows
    #[arg(long, default_value_t = 5)]
    every: u64,
}

struct Agent {
    name: &'static str,
    child: Child,
    cpu: CpuTime,
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Agent {
    fn start(
        options: &Options,
        folder: &Path,
        name: &'static str,
        exporter: &serde_json::Value,
    ) -> Result<Self> {
        let path = folder.join(format!("{name}.json"));
        let configuration = json!({
            "receivers": {"ebpf_cpu": {"frequency": options.frequency}},
            "processors": {"process": {}, "container": {}, "systemd": {}, "symbolize": {}},
            "exporters": exporter,
            "service": {
                "telemetry": {"logs": {"level": "error"}, "metrics": {"level": "none"}},
                "pipelines": {"profiles": {
                    "receivers": ["ebpf_cpu"],
                    "processors": ["process", "container", "systemd", "symbolize"],
                    "exporters": exporter.as_object().map(|it| it.keys().collect::<Vec<_>>()),
                }},
            },
        });
        fs::write(&path, configuration.to_string())?;
        let child = Command::new(&options.profcol)
            .arg("--config")
            .arg(&path)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .with_context(|| format!("failed to run {}", options.profcol.display()))?;
        let cpu = CpuTime::of(child.id())?;
        Ok(Self { name, child, cpu })
    }
}

fn main() -> Result<()> {
    let options = Options::parse();
    ensure!(options.every > 0, "--every must be positive");
    let folder = tempfile::tempdir()?;
    let directory = folder.path().join("history");
    let in_memory = json!({"live_view": {"endpoint": "127.0.0.1:0"}});
    let on_disk = json!({"live_view": {"endpoint": "127.0.0.1:0", "directory": directory}});
    let start = |name, exporter| Agent::start(&options, folder.path(), name, exporter);
    let mut agents = [
        start("without", &json!({"nop": {}}))?,
        start("memory", &in_memory)?,
        start("directory", &on_disk)?,
    ];
    println!(
        "| minutes | exporter | resident, MiB | peak, MiB | CPU, % of a core, in the last {} min |",
        options.every
    );
    println!("|---|---|---|---|---|");
    // Starting and naming what runs is not the history's cost.
    thread::sleep(Duration::from_secs(60));
    for agent in &mut agents {
        agent.cpu = CpuTime::of(agent.child.id())?;
    }
    let began = Instant::now();
    for row in 1..=options.minutes / options.every {
        let next = Duration::from_secs(60 * options.every * row);
        thread::sleep(next.saturating_sub(began.elapsed()));
        for agent in &mut agents {
            let pid = agent.child.id();
            let cpu = CpuTime::of(pid)?;
            let spent = (cpu - agent.cpu).total().as_secs_f64();
            agent.cpu = cpu;
            let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
            println!(
                "| {} | {} | {:.1} | {:.1} | {:.2} |",
                1 + row * options.every,
                agent.name,
                mib(procfs::resident(pid)?),
                mib(procfs::peak_resident(pid)?),
                spent / (60.0 * options.every as f64) * 100.0,
            );
        }
    }
    println!(
        "\n{:.1} MiB in the directory.",
        bytes_in(&directory)? as f64 / f64::from(1 << 20)
    );
    Ok(())
}

/// The size of all files below `directory`.
fn bytes_in(folder: &Path) -> Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        bytes += match entry.file_type()?.is_dir() {
            true => bytes_in(&entry.path())?,
            false => entry.metadata()?.len(),
        };
    }
    Ok(bytes)
}
