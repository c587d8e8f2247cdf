//! The shipped configurations: profiles of this host reach their destinations.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use profcol_otlp::json;
use profcol_profile::Model;
use profcol_test_harness::peers::{Process, free_address, profcol};
use profcol_test_harness::support::{root, skip};
use profcol_test_harness::toolchain::Workshop;

use crate::host::{PROFCOL, Running, can_profile};
use crate::privileges::{Place, with_all};

const TIMEOUT: Duration = Duration::from_secs(60);

/// A second profcol, which receives OTLP and Parca Agent profiles.
struct FarEnd {
    directory: tempfile::TempDir,
    otlp: SocketAddr,
    parca: SocketAddr,
    process: Process,
}

impl FarEnd {
    fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let (otlp, parca) = (free_address(), free_address());
        let process = profcol(&format!(
            "\
receivers:
  otlp: {{protocols: {{grpc: {{endpoint: {otlp}}}}}}}
  parca: {{endpoint: {parca}}}
exporters:
  file/otlp: {{path: {0}/otlp.jsonl}}
  file/parca: {{path: {0}/parca.jsonl}}
service:
  telemetry: {{metrics: {{level: none}}}}
  pipelines:
    profiles/otlp: {{receivers: [otlp], exporters: [file/otlp]}}
    profiles/parca: {{receivers: [parca], exporters: [file/parca]}}
",
            directory.path().display()
        ));
        Self {
            process: process.listens_on(otlp).listens_on(parca),
            directory,
            otlp,
            parca,
        }
    }

    fn received(&self, protocol: &str) -> PathBuf {
        self.directory.path().join(format!("{protocol}.jsonl"))
    }
}

/// Whether the file has samples of this program's code, with each of these attributes.
fn is_there(file: &Path, program: &str, attributes: &[&str]) -> bool {
    let text = fs::read_to_string(file).unwrap_or_default();
    // The last line may be incomplete.
    let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
    whole.lines().any(|line| {
        let model = json::decode(line.as_bytes()).unwrap();
        is_in(&model, program, attributes)
    })
}

fn is_in(model: &Model, program: &str, attributes: &[&str]) -> bool {
    let has_code = model.dictionary.mappings.iter().any(|mapping| {
        let file = model.dictionary.strings.get(mapping.mapping.filename);
        file.rsplit('/').next() == Some(program)
    });
    has_code
        && model.resources.iter().any(|resource| {
            let Some(output) = &resource.resource else {
                return false;
            };
            let find = |key: &str| output.attributes.iter().find(|a| &*a.key == key);
            let name = find("process.comm").and_then(|name| name.value.as_str());
            let profiles = || resource.scopes.iter().flat_map(|scope| &scope.profiles);
            name == Some(program)
                && attributes.iter().all(|key| find(key).is_some())
                && profiles().any(|profile| profile.samples.iter().next().is_some())
        })
}

/// Starts the example like its systemd unit, and waits for the program's samples in each of `places`.
fn deliver(example: &str, places: &[(&str, &[&str])]) {
    if !can_profile() {
        return;
    }
    let workshop = Workshop::open();
    let Some(busy) = workshop.build("busy", "cc -O2 -g busy.c") else {
        return;
    };
    let _busy = Running::start(&busy, &["300"]);
    let far = FarEnd::start();
    let place = Place::new();
    let mut command = with_all(&place);
    let environment: [(&str, &dyn ToString); 5] = [
        ("PARCA", &far.parca),
        ("PARCA_INSECURE", &true),
        ("BACKEND", &far.otlp),
        ("BACKEND_INSECURE", &true),
        ("STATE_DIRECTORY", &place.path().display()),
    ];
    for (name, value) in environment {
        command.env(name, value.to_string());
    }
    let config = root().join("config-examples").join(example);
    command.arg("--config").arg(config);
    for set in [
        "receivers.ebpf_cpu.interval=1s",
        "receivers.ebpf_cpu.frequency=99",
        "service.extensions=[]",
        "service.telemetry.metrics.level=none",
    ] {
        command.args(["--set", set]);
    }
    let mut near = Process::start_as(&mut command, &[], "{}");
    let missing = || {
        let places = places.iter();
        let mut missing = places.filter(|(protocol, attributes)| {
            !is_there(&far.received(protocol), "busy", attributes)
        });
        missing.next()
    };
    let give_up = Instant::now() + TIMEOUT;
    while missing().is_some() && Instant::now() < give_up && !near.has_ended() {
        std::thread::sleep(Duration::from_millis(500));
    }
    let missing = missing();
    let (_, output) = near.stop();
    let (_, far_said) = far.process.stop();
    assert_eq!(missing, None, "{output}\n{far_said}");
    for output in [output, far_said] {
        assert!(
            !output.contains("WARN") && !output.contains("ERROR"),
            "{output}"
        );
    }
}

#[test]
fn systemd_host_delivers_to_both_places() {
    deliver(
        "systemd-host.yaml",
        &[
            ("otlp", &["service.name", "deployment.environment.name"]),
            ("parca", &["host.name", "deployment_environment_name"]),
        ],
    );
}

#[test]
fn migrate_parca_agent_delivers() {
    deliver(
        "migrate-parca-agent.yaml",
        &[("parca", &["host.name", "exec", "compiler"])],
    );
}

#[test]
fn migrate_otel_profiler_delivers() {
    deliver(
        "migrate-otel-profiler.yaml",
        &[("otlp", &["process.pid", "process.executable.path"])],
    );
}

#[test]
fn systemd_accepts_the_unit() {
    let unit = fs::read_to_string(root().join("deploy/systemd/profcol.service")).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("profcol.service");
    // It checks whether the program exists.
    fs::write(&file, unit.replace("/usr/local/bin/profcol", PROFCOL)).unwrap();
    let verified = Command::new("systemd-analyze")
        .args(["verify", "--man=no"])
        .arg(&file)
        .output();
    let Ok(verified) = verified else {
        skip("systemd-analyze is not there");
        return;
    };
    let output = String::from_utf8_lossy(&verified.stderr);
    // It also reports on other units, and succeeds despite unknown keys.
    let ours: Vec<_> = output
        .lines()
        .filter(|line| line.contains("profcol"))
        .collect();
    assert!(verified.status.success() && ours.is_empty(), "{output}");
}
