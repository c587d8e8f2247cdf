//! Handmade cgroup paths, and a directory in place of systemd's records of invocations, with times set by the test.

use std::path::Path;
use std::sync::OnceLock;

use profcol_component::testkit::batch;
use profcol_metadata::systemd::{InvocationIds, UnitMember, add_units, add_units_to_all, now};
use profcol_processes::timestamp;
use profcol_profile::KeyValue;
use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, utimensat};

use super::*;
use crate::shared::testkit::Keep;
use profcol_metadata::attributes::{CGROUP, PID, text_of};

#[test]
fn adds_attributes_from_the_path_and_keeps_existing_ones() {
    let check = |cgroup: &str, expected: &[&str]| {
        let mut attributes = vec![
            KeyValue::new("systemd.slice", "mine"),
            KeyValue::new(CGROUP, cgroup),
        ];
        assert_eq!(
            add_units(&mut attributes, None),
            !expected.is_empty(),
            "{cgroup}"
        );
        let shown = |it: &KeyValue| {
            let text = profcol_labels::text(&it.value).unwrap_or_default();
            format!("{}={text}", it.key)
        };
        let found: Vec<String> = attributes.iter().skip(2).map(shown).collect();
        assert_eq!(found, expected, "{cgroup}");
        assert_eq!(attributes[0].value, "mine".into());
    };
    check("/", &[]);
    check(
        "/system.slice/nginx.service",
        &["systemd.unit=nginx.service"],
    );
    check(
        "/user.slice/user-1000.slice/user@1000.service/app.slice/vte-spawn-1.scope",
        &[
            "systemd.unit=user@1000.service",
            "systemd.user_unit=vte-spawn-1.scope",
            "systemd.user_slice=app.slice",
            "systemd.owner_uid=1000",
        ],
    );
    check(
        "/user.slice/user-0.slice/session-3.scope",
        &[
            "systemd.unit=session-3.scope",
            "systemd.session=3",
            "systemd.owner_uid=0",
        ],
    );
}

#[tokio::test]
async fn adds_the_machine_id_only_for_this_host() {
    let id = "6c5e1bd2f1d74b3f8a5be1c0b9d8a7f6";
    let mut host = Host::default();
    host.name = "this".to_owned();
    host.id = Some(id.to_owned());
    let own = ("host.name", "this");
    let path = (CGROUP, "/system.slice/nginx.service");
    let other = ("host.name", "another");
    for (assume_local, attributes, expected) in [
        (false, vec![own, path], id),
        (true, vec![path], id),
        (false, vec![path], ""),
        (true, vec![other, path], ""),
        // Not a process with a known cgroup, so without a unit.
        (false, vec![own], ""),
    ] {
        let mut processor = SystemdProcessor::new(&SystemdConfig { assume_local });
        processor.enricher.host = OnceLock::from(host.clone());
        let mut batch = batch(1);
        batch.profiles.update_resources(|resource| {
            let attributes = attributes.iter();
            resource.attributes = attributes
                .map(|(key, value)| KeyValue::new(key, *value))
                .collect();
            true
        });
        let keep = Keep::default();
        processor.process(batch, &keep).await.unwrap();
        let output = keep.into_inner().remove(0);
        let found = &output.model().resources[0]
            .resource
            .as_ref()
            .unwrap()
            .attributes;
        let found = text_of(found, "systemd.machine_id");
        assert_eq!(
            found.as_deref().unwrap_or_default(),
            expected,
            "{attributes:?}"
        );
    }
}

const UNIT: &str = "shop@1.service";
const FIRST: &str = "0123456789abcdef0123456789abcdef";
const SECOND: &str = "fedcba9876543210fedcba9876543210";

/// A host whose systemd records invocations in a directory.
struct Hosted {
    processor: SystemdProcessor,
    directory: tempfile::TempDir,
}

impl Hosted {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut processor = SystemdProcessor::new(&SystemdConfig::default());
        let mut host = Host::default();
        host.name = "this".to_owned();
        processor.enricher.host = OnceLock::from(host);
        processor.enricher.invocation_ids = InvocationIds(directory.path().to_owned());
        Self {
            processor,
            directory,
        }
    }

    /// The invocation ID added for a process of this host.
    async fn run(&self, cgroup: &str, created: i64) -> Option<String> {
        let created = timestamp(created).unwrap();
        let texts = [
            ("host.name", "this"),
            ("process.creation.time", &created),
            (CGROUP, cgroup),
        ];
        self.filled(&texts).await
    }

    async fn filled(&self, texts: &[(&str, &str)]) -> Option<String> {
        let mut batch = batch(1);
        batch.profiles.update_resources(|resource| {
            let texts = texts.iter().map(|(key, text)| KeyValue::new(key, *text));
            resource.attributes = texts.collect();
            resource
                .attributes
                .push(KeyValue::new(PID, i64::from(u32::MAX)));
            true
        });
        let keep = Keep::default();
        self.processor.process(batch, &keep).await.unwrap();
        let output = keep.into_inner().remove(0);
        let resource = output.model().resources[0].resource.clone().unwrap();
        text_of(&resource.attributes, "systemd.invocation_id").map(|text| text.to_string())
    }
}

fn path(unit: &str) -> String {
    format!("/system.slice/{unit}")
}

/// Like systemd at the start of an invocation: `began` is in milliseconds since 1970.
fn note(directory: &Path, unit: &str, id: &str, began: i64) {
    let note = directory.join(format!("invocation:{unit}"));
    let _ = std::fs::remove_file(&note);
    std::os::unix::fs::symlink(id, &note).unwrap();
    let time = Timespec {
        tv_sec: began / 1000,
        tv_nsec: began % 1000 * 1_000_000,
    };
    let times = Timestamps {
        last_access: time,
        last_modification: time,
    };
    utimensat(CWD, note, &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
}

#[tokio::test]
async fn adds_the_invocations_recorded_by_systemd() {
    let hosted = Hosted::new();
    let directory = hosted.directory.path();
    let invocation = async |unit: &str, created| hosted.run(&path(unit), created).await;
    // All times are given, so the duration of the test does not matter; results for equal processes are cached for a
    // while.
    let first = now() - 60_000;
    let second = first + 10_000;
    assert_eq!(invocation(UNIT, first - 5000).await, None);
    note(directory, UNIT, FIRST, first);
    // Left over from the previous invocation.
    assert_eq!(invocation(UNIT, first - 1000).await, None);
    assert_eq!(invocation(UNIT, first).await.as_deref(), Some(FIRST));
    note(directory, UNIT, SECOND, second);
    assert_eq!(invocation(UNIT, first).await.as_deref(), Some(FIRST));
    assert_eq!(invocation(UNIT, second).await.as_deref(), Some(SECOND));
    // Processes may appear up to 20 ms older than their invocation.
    assert_eq!(invocation(UNIT, second - 20).await.as_deref(), Some(SECOND));
    assert_eq!(invocation(UNIT, second - 21).await, None);
    // A process created before the second invocation that was not seen during the first may belong to either.
    assert_eq!(invocation(UNIT, first + 2).await, None);
    // Created in the future.
    assert_eq!(invocation(UNIT, now() + 60_000).await, None);
    for (number, rubbish) in (0..).zip(["", "0123", "../../etc/passwd", &"x".repeat(32)]) {
        if !rubbish.is_empty() {
            note(directory, "odd.service", rubbish, first);
        }
        assert_eq!(
            invocation("odd.service", second + number).await,
            None,
            "{rubbish}"
        );
    }
    // Created before the scope.
    note(directory, "session-3.scope", FIRST, first);
    assert_eq!(invocation("session-3.scope", first - 1000).await, None);
    assert_eq!(
        invocation("session-3.scope", first).await.as_deref(),
        Some(FIRST)
    );
}

#[tokio::test]
async fn looks_up_only_units_of_this_hosts_systemd() {
    let hosted = Hosted::new();
    let began = now();
    note(hosted.directory.path(), UNIT, FIRST, began);
    let created = timestamp(began).unwrap();
    let (own, created) = (("host.name", "this"), ("process.creation.time", &*created));
    let cgroup = path(UNIT);
    let found = Some(FIRST.to_owned());
    let below = format!("{cgroup}/docker/{}", "0".repeat(64));
    let inside = format!("/docker/{}{cgroup}", "0".repeat(64));
    let outside = format!("/..{cgroup}");
    for (texts, expected) in [
        (vec![own, created, (CGROUP, &*cgroup)], &found),
        (vec![own, created, (CGROUP, &*below)], &found),
        (vec![own, created, (CGROUP, &*inside)], &None),
        (vec![own, created, (CGROUP, &*outside)], &None),
        (
            vec![("host.name", "other"), created, (CGROUP, &*cgroup)],
            &None,
        ),
        (vec![created, (CGROUP, &*cgroup)], &None),
        (vec![own, (CGROUP, &*cgroup)], &None),
        (vec![own, created, (CGROUP, "/system.slice")], &None),
    ] {
        assert_eq!(&hosted.filled(&texts).await, expected, "{texts:?}");
    }
}

#[tokio::test]
async fn a_process_keeps_its_invocation_after_the_unit_stopped() {
    let mut hosted = Hosted::new();
    let enricher = &mut hosted.processor.enricher;
    let began = now() - 10_000;
    let member = Some(UnitMember {
        unit: UNIT.to_owned(),
        pid: u32::MAX,
        created: began,
    });
    note(hosted.directory.path(), UNIT, FIRST, began);
    enricher
        .read_invocation_ids(std::slice::from_ref(&member))
        .await;
    enricher.invocation_ids = InvocationIds("/nowhere".into());
    enricher
        .read_invocation_ids(std::slice::from_ref(&member))
        .await;
    let mut attributes = Vec::new();
    assert!(enricher.fill(&mut attributes, member.as_ref()));
    let run = text_of(&attributes, "systemd.invocation_id");
    assert_eq!(run.as_deref(), Some(FIRST));
}

#[tokio::test]
async fn adds_units_to_processes_once() {
    let process = vec![
        KeyValue::new(PID, i64::from(u32::MAX)),
        KeyValue::new(CGROUP, &*path(UNIT)),
    ];
    let mut processes = [process, Vec::new()];
    add_units_to_all(&mut processes).await;
    let [found, nothing] = processes;
    assert!(nothing.is_empty());
    assert_eq!(text_of(&found, "systemd.unit").as_deref(), Some(UNIT));
}
