//! The profiled programs. Each exits after its time, in case this program dies before it can stop them.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::options::Workload;

const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/ebpf/programs");
const IDLE_PROCESSES: usize = 200;
const SPAWN: &str = "while kill -0 $PPID; do env true; echo text | gzip > /dev/null; done";

/// The compiled programs.
pub struct Programs {
    directory: tempfile::TempDir,
}

impl Programs {
    /// Compiles the programs of `workloads`.
    pub fn build(workloads: &[Workload]) -> Result<Self> {
        let directory = tempfile::tempdir().context("failed to make a temporary directory")?;
        let programs = Self { directory };
        let needed =
            |workload| workloads.contains(&workload) || workloads.contains(&Workload::Mixed);
        let deep = [
            Workload::Deep,
            Workload::ManyDeep,
            Workload::FewStacks,
            Workload::MoreStacks,
        ];
        if deep.into_iter().any(needed) {
            let flags = [
                "-O2",
                "-fomit-frame-pointer",
                "-fno-optimize-sibling-calls",
                "-o",
            ];
            programs.compile("g++", &flags, "deep", "deep.cc")?;
        }
        if needed(Workload::Go) {
            programs.compile("go", &["build", "-o"], "goroutines", "goroutines.go")?;
        }
        if needed(Workload::Rust) {
            programs.compile("rustc", &["--edition=2024", "-O", "-o"], "maps", "maps.rs")?;
        }
        Ok(programs)
    }

    fn compile(&self, compiler: &str, flags: &[&str], name: &str, source: &str) -> Result<()> {
        let status = Command::new(compiler)
            .args(flags)
            .arg(self.path(name))
            .arg(Path::new(SOURCES).join(source))
            .stdin(Stdio::null())
            .status()
            .with_context(|| format!("failed to start {compiler}"))?;
        if !status.success() {
            bail!("{compiler} failed to compile {source}");
        }
        Ok(())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The deep program, if compiled.
    pub fn deep(&self) -> Option<PathBuf> {
        Some(self.path("deep")).filter(|path| path.exists())
    }

    /// Starts a workload that exits after `longest` at the latest.
    pub fn start(&self, workload: Workload, longest: Duration) -> Result<Running> {
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        let mut running = Running(Vec::new());
        self.add(workload, cpus, longest, &mut running)?;
        Ok(running)
    }

    fn add(
        &self,
        workload: Workload,
        copies: usize,
        longest: Duration,
        running: &mut Running,
    ) -> Result<()> {
        let seconds = longest.as_secs().to_string();
        let texts = Path::new(SOURCES).join("texts.py");
        match workload {
            Workload::Idle => {}
            Workload::Sleepers => {
                for _ in 0..IDLE_PROCESSES {
                    running.spawn(Command::new("sleep").arg(&seconds))?;
                }
            }
            // It starts as many threads as there are CPUs itself.
            Workload::Go => running.spawn(Command::new(self.path("goroutines")).arg(&seconds))?,
            Workload::ManyDeep => self.add(Workload::Deep, copies * 10, longest, running)?,
            Workload::FewStacks | Workload::MoreStacks => {
                let stacks = if workload == Workload::FewStacks {
                    "10"
                } else {
                    "100"
                };
                for _ in 0..copies {
                    let mut deep = Command::new(self.path("deep"));
                    running.spawn(deep.args([&seconds, stacks]))?;
                }
            }
            Workload::Deep | Workload::Python | Workload::Rust | Workload::Spawn => {
                for _ in 0..copies {
                    match workload {
                        Workload::Deep => {
                            running.spawn(Command::new(self.path("deep")).arg(&seconds))
                        }
                        Workload::Rust => {
                            running.spawn(Command::new(self.path("maps")).arg(&seconds))
                        }
                        Workload::Python => {
                            running.spawn(Command::new("python3").arg(&texts).arg(&seconds))
                        }
                        _ => running
                            .spawn(Command::new("timeout").args([&seconds, "sh", "-c", SPAWN])),
                    }?;
                }
            }
            Workload::Mixed => {
                for part in [
                    Workload::Sleepers,
                    Workload::Deep,
                    Workload::Go,
                    Workload::Python,
                    Workload::Rust,
                    Workload::Spawn,
                ] {
                    self.add(part, 1, longest, running)?;
                }
            }
        }
        Ok(())
    }
}

/// The processes of a workload, killed on drop.
#[derive(Default)]
pub struct Running(Vec<Child>);

impl Running {
    pub fn pids(&self) -> Vec<u32> {
        self.0.iter().map(Child::id).collect()
    }

    pub fn spawn(&mut self, command: &mut Command) -> Result<()> {
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .with_context(|| format!("failed to start {}", command.get_program().display()))?;
        self.0.push(child);
        Ok(())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // Only fails if it has already exited.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
