//! The real programs used to test and measure profcol, built from their published sources into `target/peers`:
//!
//! * `otelcol`: the OpenTelemetry Collector, built by its builder from `tests/peers/otelcol.yaml`;
//! * `pprof`: the one shipped with Go;
//! * `grpc`, `h2spec` and `promql`: an OTLP peer on grpc-go, the HTTP/2 conformance suite, and Prometheus' rules and queries, from the Go
//!   module `tests/peers`;
//! * `kafka`: the jars of Apache Kafka's broker, fetched by Maven as `tests/peers/kafka/pom.xml` says;
//! * `forward-client`: the load generator of `benches/forward`, on grpc-go, not needed by tests;
//! * `otelcol-kafka`: a Collector with Kafka, from `benches/forward/otelcol-kafka.yaml`, not needed by tests.
//!
//! Each is made once and kept while its stamp matches the recipe.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail};

use crate::process;
use crate::report::Report;
use crate::workspace::Workspace;

const MANIFEST: &str = "tests/peers/otelcol.yaml";
/// Our programs around third-party libraries.
const MODULE: &str = "tests/peers";
const BUILDER: &str = "go.opentelemetry.io/collector/cmd/builder@v0.162.0";
const CLIENT: &str = "benches/forward/client";
/// All modules of this version can be had, with those for Kafka.
const KAFKA_BUILDER: &str = "go.opentelemetry.io/collector/cmd/builder@v0.158.0";
const KAFKA_MANIFEST: &str = "benches/forward/otelcol-kafka.yaml";
const KAFKA: &str = "tests/peers/kafka/pom.xml";

/// The programs to build; empty without Go and Maven.
pub struct Plan {
    directory: PathBuf,
    has_go: bool,
    peers: Vec<Peer>,
}

struct Peer {
    name: &'static str,
    /// All inputs of the build, stored in the stamp.
    recipe: String,
    tool: &'static str,
    /// Arguments of the tool, run in the directory.
    build: Vec<String>,
    /// Path of the result, relative to the directory.
    result: String,
}

/// `cargo xtask peers`.
pub fn build(workspace: &Workspace, report: &mut Report) -> Result<()> {
    let mut plan = Plan::new(workspace, report);
    if plan.has_go {
        let module = workspace.root.join(CLIENT);
        let client = Peer::of_module("forward-client", &module, "", &plan.directory);
        plan.peers.push(client);
        let manifest = workspace.root.join(KAFKA_MANIFEST);
        plan.peers
            .push(Peer::collector("otelcol-kafka", KAFKA_BUILDER, &manifest));
    }
    plan.build()?;
    for peer in &plan.peers {
        println!("{}", plan.directory.join(peer.name).display());
    }
    Ok(())
}

impl Plan {
    pub fn new(workspace: &Workspace, report: &mut Report) -> Self {
        let directory = workspace.target.join("peers");
        let mut plan = Self {
            directory,
            has_go: false,
            peers: Vec::new(),
        };
        let maven = process::output(Command::new("mvn").arg("--version"));
        let java = process::output(Command::new("java").arg("-version"));
        match maven.and(java) {
            Ok(_) => {
                let kafka = Peer::kafka(workspace, &plan.directory);
                plan.peers.push(kafka);
            }
            Err(_) => report.skip(
                "the tests with Kafka",
                "Java or Maven not found (`java -version` or `mvn --version` failed)",
            ),
        }
        match process::output(Command::new("go").arg("version")) {
            Ok(go) => plan.add_go(workspace, go),
            Err(_) => report.skip(
                "the tests against real peers",
                "Go not found (`go version` failed)",
            ),
        }
        plan
    }

    /// The programs in Go; `go` is its version.
    fn add_go(&mut self, workspace: &Workspace, go: String) {
        self.has_go = true;
        let directory = &self.directory;
        let manifest = workspace.root.join(MANIFEST);
        let module = workspace.root.join(MODULE);
        let peers = [
            Peer::of_module("grpc", &module, "grpc", directory),
            Peer::of_module("h2spec", &module, "h2spec", directory),
            Peer::of_module("promql", &module, "promql", directory),
            Peer::collector("otelcol", BUILDER, &manifest),
            Peer {
                name: "pprof",
                tool: "go",
                recipe: go,
                build: ["build", "-o", "pprof-build/pprof", "cmd/pprof"]
                    .map(str::to_owned)
                    .to_vec(),
                result: "pprof-build/pprof".to_owned(),
            },
        ];
        self.peers.extend(peers);
    }

    /// Builds what is missing or stale; returns whether peers are available.
    pub fn build(&self) -> Result<bool> {
        for peer in &self.peers {
            peer.build(&self.directory)?;
        }
        Ok(!self.peers.is_empty())
    }
}

/// The sources of a program of the module.
fn sources(module: &Path, name: &str) -> String {
    let files = fs::read_dir(module.join(name)).into_iter().flatten();
    let mut files: Vec<PathBuf> = files.filter_map(|file| Some(file.ok()?.path())).collect();
    files.sort();
    let sums = ["go.mod", "go.sum"].map(|file| module.join(file));
    let texts = files.iter().chain(&sums);
    texts
        .map(|file| fs::read_to_string(file).unwrap_or_default())
        .collect()
}

impl Peer {
    /// A program of one of our Go modules.
    fn of_module(name: &'static str, module: &Path, package: &str, directory: &Path) -> Self {
        let result = format!("{name}-build/{name}");
        let module_path = module.to_string_lossy();
        let output = directory.join(&result);
        let build = [
            "build",
            "-C",
            &*module_path,
            "-buildvcs=false",
            "-o",
            &*output.to_string_lossy(),
            &format!("./{package}"),
        ];
        Self {
            name,
            tool: "go",
            recipe: sources(module, package),
            build: build.map(str::to_owned).to_vec(),
            result,
        }
    }

    /// A Collector, by its builder.
    fn collector(name: &'static str, builder: &str, manifest: &Path) -> Self {
        let text = fs::read_to_string(manifest).unwrap_or_default();
        let manifest = manifest.to_string_lossy();
        let build = ["run", builder, "--config", &*manifest];
        Self {
            name,
            tool: "go",
            recipe: format!("{builder}\n{text}"),
            build: build.map(str::to_owned).to_vec(),
            result: format!("{name}-build/{name}"),
        }
    }

    fn kafka(workspace: &Workspace, directory: &Path) -> Self {
        let output = directory.join("kafka-build");
        let pom = workspace.root.join(KAFKA);
        let build = [
            "-q",
            "-B",
            "-ntp",
            "-f",
            &*pom.to_string_lossy(),
            "dependency:copy-dependencies",
            &*format!("-DoutputDirectory={}", output.display()),
            "-DincludeScope=runtime",
        ];
        Self {
            name: "kafka",
            tool: "mvn",
            recipe: fs::read_to_string(&pom).unwrap_or_default(),
            build: build.map(str::to_owned).to_vec(),
            result: "kafka-build".to_owned(),
        }
    }

    fn build(&self, directory: &Path) -> Result<()> {
        let program = directory.join(self.name);
        let stamp = directory.join(format!("{}.stamp", self.name));
        let kept = program.exists()
            && fs::read_to_string(&stamp).is_ok_and(|made_from| made_from == self.recipe);
        if kept {
            return Ok(());
        }
        fs::create_dir_all(directory)
            .with_context(|| format!("failed to create {}", directory.display()))?;
        let log_path = directory.join(format!("{}.log", self.name));
        let log = File::create(&log_path)
            .with_context(|| format!("failed to create {}", log_path.display()))?;
        println!(
            "building {} in the background (log: {})",
            self.name,
            log_path.display()
        );
        let started = Instant::now();
        let status = Command::new("nice")
            .arg(self.tool)
            .args(&self.build)
            .current_dir(directory)
            .stdout(log.try_clone().context("failed to share the log file")?)
            .stderr(log)
            .status()
            .with_context(|| format!("failed to start `nice {}`", self.tool))?;
        if !status.success() {
            let log_text = fs::read_to_string(&log_path).unwrap_or_default();
            let tail: Vec<&str> = log_text.lines().rev().take(10).collect();
            let tail: Vec<&str> = tail.into_iter().rev().collect();
            bail!(
                "failed to build {} ({status}); the end of {}:\n{}",
                self.name,
                log_path.display(),
                tail.join("\n")
            );
        }
        if program.is_dir() {
            fs::remove_dir_all(&program)
                .with_context(|| format!("failed to remove {}", program.display()))?;
        }
        fs::rename(directory.join(&self.result), &program)
            .with_context(|| format!("the build did not create {}", self.result))?;
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
