//! The real programs that profcol is tested and measured against, built from their published sources into
//! `target/peers`:
//!
//! * `otelcol`: the OpenTelemetry Collector, by its own builder from `tests/peers/otelcol.yaml`;
//! * `pprof`: the one that comes with Go.
//!
//! Each is built once and kept as long as a stamp beside it says that it was made from the same recipe.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail};

use crate::process;
use crate::report::Report;
use crate::workspace::Workspace;

const MANIFEST: &str = "tests/peers/otelcol.yaml";
const BUILDER: &str = "go.opentelemetry.io/collector/cmd/builder@v0.162.0";

/// What is to be built; nothing, where there is no Go.
pub struct Plan {
    folder: PathBuf,
    peers: Vec<Peer>,
}

struct Peer {
    name: &'static str,
    /// Everything that the result depends on; the stamp holds it.
    recipe: String,
    /// Arguments of `go`, run in the folder.
    build: Vec<String>,
    /// Where the build leaves the program, relative to the folder.
    result: &'static str,
}

/// `cargo xtask peers`.
pub fn build(workspace: &Workspace, report: &mut Report) -> Result<()> {
    let plan = Plan::new(workspace, report);
    plan.build()?;
    for peer in &plan.peers {
        println!("{}", plan.folder.join(peer.name).display());
    }
    Ok(())
}

impl Plan {
    pub fn new(workspace: &Workspace, report: &mut Report) -> Self {
        let folder = workspace.target.join("peers");
        let go = process::output(Command::new("go").arg("version"));
        let Ok(go) = go else {
            report.skip(
                "the tests against real peers",
                "no Go here to build them with (`go version` failed)",
            );
            return Self {
                folder,
                peers: Vec::new(),
            };
        };
        let manifest = workspace.root.join(MANIFEST);
        let manifest_text = fs::read_to_string(&manifest).unwrap_or_default();
        let words = |words: &[&str]| {
            words
                .iter()
                .map(|word| (*word).to_owned())
                .collect::<Vec<_>>()
        };
        let mut run_builder = words(&["run", BUILDER, "--config"]);
        run_builder.push(manifest.to_string_lossy().into_owned());
        let peers = vec![
            Peer {
                name: "otelcol",
                recipe: format!("{BUILDER}\n{manifest_text}"),
                build: run_builder,
                result: "otelcol-build/otelcol",
            },
            Peer {
                name: "pprof",
                recipe: go,
                build: words(&["build", "-o", "pprof-build/pprof", "cmd/pprof"]),
                result: "pprof-build/pprof",
            },
        ];
        Self { folder, peers }
    }

    /// Builds what is missing or stale. Answers whether there are peers to test against.
    pub fn build(&self) -> Result<bool> {
        for peer in &self.peers {
            peer.build(&self.folder)?;
        }
        Ok(!self.peers.is_empty())
    }
}

impl Peer {
    fn build(&self, folder: &Path) -> Result<()> {
        let program = folder.join(self.name);
        let stamp = folder.join(format!("{}.stamp", self.name));
        let kept = program.exists()
            && fs::read_to_string(&stamp).is_ok_and(|made_from| made_from == self.recipe);
        if kept {
            return Ok(());
        }
        fs::create_dir_all(folder)
            .with_context(|| format!("failed to create {}", folder.display()))?;
        let log_path = folder.join(format!("{}.log", self.name));
        let log = File::create(&log_path)
            .with_context(|| format!("failed to create {}", log_path.display()))?;
        println!(
            "building {} in the background (log: {})",
            self.name,
            log_path.display()
        );
        let started = Instant::now();
        let status = Command::new("nice")
            .arg("go")
            .args(&self.build)
            .current_dir(folder)
            .stdout(log.try_clone().context("failed to share the log file")?)
            .stderr(log)
            .status()
            .context("failed to start `nice go`")?;
        if !status.success() {
            let said = fs::read_to_string(&log_path).unwrap_or_default();
            let tail: Vec<&str> = said.lines().rev().take(10).collect();
            let tail: Vec<&str> = tail.into_iter().rev().collect();
            bail!(
                "failed to build {} ({status}); the end of {}:\n{}",
                self.name,
                log_path.display(),
                tail.join("\n")
            );
        }
        fs::rename(folder.join(self.result), &program)
            .with_context(|| format!("the build left no {}", self.result))?;
        fs::write(&stamp, &self.recipe)
            .with_context(|| format!("failed to write {}", stamp.display()))?;
        println!(
            "built {} in {:.0} s",
            self.name,
            started.elapsed().as_secs_f64()
        );
        Ok(())
    }
}
