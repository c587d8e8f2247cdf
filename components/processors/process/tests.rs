//! Real processes, started by the test: what is read of them, when they end, and when another gets their PID.
//! The choice of a PID needs root, and the process that publishes attributes needs `python3`.

use std::fs;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use profcol_component::testkit::{batch, context, load};
use profcol_metadata::attributes::PID;
use profcol_processes::ProcessDescription;
use profcol_profile::{KeyValue, Value};
use profcol_test_skip::skip;

use super::*;
use crate::shared::resource_cache::TTL;
use crate::shared::testkit::Keep;
use profcol_metadata::attributes::find;

async fn started(options: &str) -> ProcessProcessor {
    let processor = ProcessProcessor::new(&load(options).unwrap(), &context("process"));
    processor.start().await.unwrap();
    processor
}

/// The resource's attributes after processing.
async fn filled(processor: &ProcessProcessor, attributes: &[(&str, Value)]) -> Attributes {
    let mut batch = batch(1);
    batch.profiles.update_resources(|resource| {
        let attributes = attributes.iter();
        resource.attributes = attributes
            .map(|(key, value)| KeyValue::new(key, value.clone()))
            .collect();
        true
    });
    let keep = Keep::default();
    processor.process(batch, &keep).await.unwrap();
    let left = keep.into_inner().remove(0);
    left.model().resources[0]
        .resource
        .as_ref()
        .unwrap()
        .attributes
        .clone()
}

fn shown(attributes: &Attributes, key: &str) -> String {
    let found = find(attributes, key).and_then(profcol_labels::text);
    found.unwrap_or_default().into_owned()
}

/// A process that runs until it is killed.
struct Waiting(Child);

impl Waiting {
    fn start() -> Self {
        let child = Command::new("cat")
            .args(["-", "secret"])
            .env_clear()
            .envs([("OTEL_SERVICE_NAME", "shop"), ("A", "1"), ("B", "2")])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .expect("cat is installed");
        let waiting = Self(child);
        // Wait for the exec.
        let variables = Default::default();
        while ProcessDescription::read(waiting.0.id(), &variables).is_none_or(|it| it.comm != "cat")
        {
            std::thread::yield_now();
        }
        waiting
    }

    fn pid(&self) -> (&'static str, Value) {
        (PID, i64::from(self.0.id()).into())
    }

    fn end(mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

fn host() -> (&'static str, Value) {
    ("host.name", Host::read().name.as_str().into())
}

#[tokio::test]
async fn adds_missing_attributes() {
    let child = Waiting::start();
    let processor = started("environment_variables: [A]").await;
    let owner = ("process.owner", "somebody".into());
    let found = filled(&processor, &[child.pid(), host(), owner]).await;
    let text = |key| shown(&found, key);
    assert_eq!(text("process.comm"), "cat");
    assert_eq!(text("process.owner"), "somebody");
    assert_eq!(text("process.parent_pid"), std::process::id().to_string());
    assert_eq!(text("process.environment_variable.A"), "1");
    assert_eq!(text("process.environment_variable.B"), "", "not configured");
    assert_eq!(text("process.command_args"), "", "not configured");
    assert_eq!(text("service.name"), "shop");
    assert_eq!(text("process.executable.static"), "false");
    assert!(text("process.executable.path").starts_with('/'));
    assert_eq!(processor.read.get(), 1);
    let found = filled(&processor, &[child.pid(), host()]).await;
    assert_eq!(shown(&found, "process.comm"), "cat");
    assert_eq!(processor.read.get(), 1, "it is read once");
    let processor = started("{command_args: true, service_name: false}").await;
    let found = filled(&processor, &[child.pid(), host()]).await;
    assert_eq!(shown(&found, "process.command_args"), "cat - secret");
    assert_eq!(shown(&found, "service.name"), "");
    child.end();
}

#[tokio::test]
async fn describes_only_processes_of_this_host() {
    let child = Waiting::start();
    let created = ProcessDescription::read(child.0.id(), &Default::default()).unwrap();
    let created = created
        .created(&Host::read())
        .and_then(profcol_processes::timestamp);
    let created = created.unwrap();
    let created = || ("process.creation.time", Value::from(created.as_str()));
    let long_ago = || {
        (
            "process.creation.time",
            Value::from("2001-01-01T00:00:00.000Z"),
        )
    };
    let elsewhere = || ("host.name", Value::from("elsewhere.example"));
    let mut rows = vec![
        (vec![host()], "", true),
        (vec![elsewhere()], "", false),
        (vec![elsewhere(), created()], "assume_local: true", false),
        (vec![created()], "", true),
        (vec![long_ago()], "", false),
        (vec![host(), long_ago()], "", false),
        (vec![], "", false),
        (vec![], "assume_local: true", true),
        (vec![("host.id", "another".into())], "", false),
    ];
    if let Some(id) = Host::read().id {
        rows.push((vec![("host.id", id.as_str().into()), elsewhere()], "", true));
        rows.push((vec![("host.id", "another".into()), host()], "", false));
    }
    for (attributes, options, expected) in rows {
        let processor = started(&format!("{{{options}}}")).await;
        let all: Vec<_> = std::iter::once(child.pid()).chain(attributes).collect();
        let found = filled(&processor, &all).await;
        let is_described = shown(&found, "process.comm") == "cat";
        assert_eq!(is_described, expected, "{all:?} with {options:?}");
        assert_eq!(
            found.len() > all.len(),
            expected,
            "{all:?} with {options:?}"
        );
    }
    child.end();
}

#[tokio::test]
async fn ended_processes_stay_cached_and_exited_ones_are_counted() {
    let child = Waiting::start();
    let pid = child.pid();
    let processor = started("").await;
    filled(&processor, &[pid.clone(), host()]).await;
    child.end();
    let found = filled(&processor, &[pid.clone(), host()]).await;
    assert_eq!(shown(&found, "process.comm"), "cat");
    let fresh = started("").await;
    let found = filled(&fresh, &[pid, host()]).await;
    assert_eq!((found.len(), fresh.gone.get()), (2, 1));
    for pid in [-1, 0, i64::MAX] {
        let found = filled(&fresh, &[(PID, pid.into()), host()]).await;
        assert_eq!(found.len(), 2, "{pid}");
    }
}

/// A new process with this PID. `None` without permission to choose the next PID.
fn another(pid: u32) -> Option<Child> {
    loop {
        fs::write("/proc/sys/kernel/ns_last_pid", (pid - 1).to_string()).ok()?;
        let mut child = Command::new("sleep").arg("infinity").spawn().unwrap();
        if child.id() == pid {
            return Some(child);
        }
        // Another process took the PID.
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_reused_pid_is_another_process() {
    let first = Waiting::start();
    let pid = first.pid();
    let processor = started("").await;
    let found = filled(&processor, &[pid.clone(), host()]).await;
    assert_eq!(shown(&found, "process.comm"), "cat");
    let number = first.0.id();
    let created = || {
        let described = ProcessDescription::read(number, &Default::default())?;
        described.created(&Host::read())
    };
    let before = created().unwrap();
    first.end();
    // Processes created in the same second are indistinguishable.
    let (mut second, created) = loop {
        let Some(mut second) = another(number) else {
            skip("/proc/sys/kernel/ns_last_pid is not writable");
            return;
        };
        let created = created().unwrap();
        if created - before > 1000 {
            break (second, created);
        }
        second.kill().unwrap();
        second.wait().unwrap();
        std::thread::sleep(Duration::from_millis(50));
    };
    let variables = Default::default();
    while ProcessDescription::read(number, &variables).is_none_or(|it| it.comm != "sleep") {
        std::thread::yield_now();
    }
    let created = profcol_processes::timestamp(created).unwrap();
    let created = ("process.creation.time", created.as_str().into());
    let found = filled(&processor, &[pid.clone(), host(), created]).await;
    assert_eq!(
        shown(&found, "process.comm"),
        "sleep",
        "by its creation time"
    );
    tokio::time::advance(TTL).await;
    let found = filled(&processor, &[pid, host()]).await;
    assert_eq!(shown(&found, "process.comm"), "sleep", "a second later");
    second.kill().unwrap();
    second.wait().unwrap();
}

#[test]
fn validates_the_options() {
    let error = load::<ProcessConfig>("environment_variables: [A, 'OTEL_*']").unwrap_err();
    assert_eq!(
        error,
        "environment_variables::1: \"OTEL_*\" is not the name of a variable; patterns are not possible"
    );
}

/// Publishes `service.name` as OpenTelemetry's SDKs do, a new one for each line that it reads: `VERSION NAME`.
const PUBLISHER: &str = r#"
import ctypes, mmap, os, struct, sys, time
fd = os.memfd_create("OTEL_CTX")
os.ftruncate(fd, 4096)
memory = mmap.mmap(fd, 4096)
os.close(fd)
address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
def field(number, data):
    return bytes([number << 3 | 2, len(data)]) + data
for line in sys.stdin:
    version, name = line.split()
    value = field(1, name.encode())
    attribute = field(1, b"service.name") + field(2, value)
    payload = field(1, field(1, attribute))
    memory[16:24] = bytes(8)
    memory[32:32 + len(payload)] = payload
    memory[24:32] = struct.pack("Q", address + 32)
    memory[8:16] = struct.pack("II", int(version), len(payload))
    memory[16:24] = struct.pack("Q", time.monotonic_ns())
    memory[0:8] = b"OTEL_CTX"
    print(flush=True)
"#;

#[tokio::test]
async fn adds_what_a_process_publishes() {
    use std::io::{BufRead, BufReader, Write};
    let python = Command::new("python3")
        .args(["-c", PUBLISHER])
        .env("OTEL_SERVICE_NAME", "environment")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn();
    let Ok(mut child) = python else {
        skip("no python3");
        return;
    };
    let mut input = child.stdin.take().unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut publish = |context: &str| {
        writeln!(input, "{context}").unwrap();
        output.next().unwrap().unwrap();
    };
    let child = Waiting(child);

    publish("2 first");
    let processor = started("").await;
    let off = started("process_context: false").await;
    let resource = [child.pid(), host()];
    let service = async |of| shown(&filled(of, &resource).await, "service.name");
    assert_eq!(service(&processor).await, "first");
    assert_eq!(service(&off).await, "environment");

    publish("2 second");
    let mut found = String::new();
    for _ in 0..100 {
        found = service(&processor).await;
        if found == "second" {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(found, "second", "a young process is read again");
    assert_eq!(processor.invalid_contexts.get(), 0);

    publish("9 third");
    let later = started("").await;
    assert_eq!(service(&later).await, "environment");
    assert_eq!(later.invalid_contexts.get(), 1);
    child.end();
}
