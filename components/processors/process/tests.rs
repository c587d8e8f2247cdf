use std::fs;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use profcol_component::testkit::{batch, context, load};
use profcol_profile::{KeyValue, Value};

use super::*;
use crate::shared::lookup::find;
use crate::shared::resource_cache::TTL;
use crate::shared::testkit::Keep;

async fn started(options: &str) -> ProcessProcessor {
    let processor = ProcessProcessor::new(&load(options).unwrap(), &context("process"));
    processor.start().await.unwrap();
    processor
}

/// What a resource with these attributes has afterwards.
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

/// A program that waits until it is told to end.
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
            .expect("cat is everywhere");
        let waiting = Self(child);
        // Until it became what it is to be.
        let wanted = Default::default();
        while Described::read(waiting.0.id(), &wanted).is_none_or(|it| it.comm != "cat") {
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
async fn fills_in_what_is_missing() {
    let child = Waiting::start();
    let processor = started("environment_variables: [A]").await;
    let owner = ("process.owner", "somebody".into());
    let found = filled(&processor, &[child.pid(), host(), owner]).await;
    let text = |key| shown(&found, key);
    assert_eq!(text("process.comm"), "cat");
    assert_eq!(text("process.owner"), "somebody");
    assert_eq!(text("process.parent_pid"), std::process::id().to_string());
    assert_eq!(text("process.environment_variable.A"), "1");
    assert_eq!(
        text("process.environment_variable.B"),
        "",
        "nobody asked for it"
    );
    assert_eq!(text("process.command_args"), "", "nobody asked for them");
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
async fn describes_processes_of_this_host_alone() {
    let child = Waiting::start();
    let created = Described::read(child.0.id(), &Default::default()).unwrap();
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
async fn what_ended_is_still_known_and_what_is_gone_is_no_error() {
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

/// Another process with that number. `None` where this one may not say which number comes next.
fn another(pid: u32) -> Option<Child> {
    loop {
        fs::write("/proc/sys/kernel/ns_last_pid", (pid - 1).to_string()).ok()?;
        let mut child = Command::new("sleep").arg("infinity").spawn().unwrap();
        if child.id() == pid {
            return Some(child);
        }
        // Somebody else was faster.
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

#[expect(clippy::print_stderr, reason = "skipped tests say so")]
#[tokio::test(start_paused = true)]
async fn a_number_that_is_used_again_is_another_process() {
    let first = Waiting::start();
    let pid = first.pid();
    let processor = started("").await;
    let found = filled(&processor, &[pid.clone(), host()]).await;
    assert_eq!(shown(&found, "process.comm"), "cat");
    let number = first.0.id();
    first.end();
    // Two that were created in one second may be the same.
    std::thread::sleep(Duration::from_millis(1100));
    let Some(mut second) = another(number) else {
        eprintln!("skipped: /proc/sys/kernel/ns_last_pid cannot be written");
        return;
    };
    let wanted = Default::default();
    while Described::read(number, &wanted).is_none_or(|it| it.comm != "sleep") {
        std::thread::yield_now();
    }
    let created = Described::read(number, &wanted).unwrap();
    let created = created.created(&Host::read()).unwrap();
    let created = profcol_processes::timestamp(created).unwrap();
    let created = ("process.creation.time", created.as_str().into());
    let found = filled(&processor, &[pid.clone(), host(), created]).await;
    assert_eq!(shown(&found, "process.comm"), "sleep", "its time tells");
    tokio::time::advance(TTL).await;
    let found = filled(&processor, &[pid, host()]).await;
    assert_eq!(shown(&found, "process.comm"), "sleep", "a second later");
    second.kill().unwrap();
    second.wait().unwrap();
}

#[test]
fn services_are_named_by_the_usual_fallbacks() {
    let check = |variables: [&str; 2], attributes: &[(&str, &str)], expected: &str| {
        let [name, others] = variables;
        let variable = |asked: &str| match asked {
            "OTEL_SERVICE_NAME" => Some(name),
            _ => Some(others),
        };
        let mut known = CachedProcess::default();
        known.executable = Some("exe".to_owned());
        known.service = service::from_environment(variable);
        let attributes = attributes.iter();
        let mut attributes = attributes
            .map(|(key, value)| KeyValue::new(key, *value))
            .collect();
        service::add_name(&mut attributes, &known);
        assert_eq!(
            shown(&attributes, "service.name"),
            expected,
            "{variables:?}"
        );
    };
    let pod = ("k8s.pod.name", "pod");
    check(["a", "service.name=b"], &[], "a");
    check(["", "x=y, service.name = b%20c "], &[pod], "b c");
    // All of a variable or nothing, as the SDKs have it.
    check(["", "service.name=b,z"], &[pod], "pod");
    check(["", "service.name="], &[pod], "pod");
    check(["", ""], &[pod, ("k8s.deployment.name", "shop")], "shop");
    check(["", ""], &[], "unknown_service:exe");
    check(["a", ""], &[("service.name", "mine")], "mine");
}

#[test]
fn says_what_is_wrong_with_the_options() {
    let error = load::<ProcessConfig>("environment_variables: [A, 'OTEL_*']").unwrap_err();
    assert_eq!(
        error,
        "environment_variables::1: \"OTEL_*\" is not the name of a variable; patterns are not possible"
    );
}
