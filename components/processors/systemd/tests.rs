use std::path::Path;
use std::sync::OnceLock;

use profcol_component::testkit::batch;
use profcol_processes::timestamp;
use profcol_profile::KeyValue;
use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, utimensat};

use super::runs::{Member, Runs, now};
use super::unit_enricher::add;
use super::*;
use crate::shared::lookup::{CGROUP, PID, text_of};
use crate::shared::testkit::Keep;

#[test]
fn adds_what_the_path_tells_and_leaves_what_is_there() {
    let check = |cgroup: &str, expected: &[&str]| {
        let mut attributes = vec![
            KeyValue::new("systemd.slice", "mine"),
            KeyValue::new(CGROUP, cgroup),
        ];
        assert_eq!(add(&mut attributes, None), !expected.is_empty(), "{cgroup}");
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
async fn machines_are_told_where_the_host_is_this_one() {
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
        // What is no process of a known cgroup is no unit's.
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
        let left = keep.into_inner().remove(0);
        let found = &left.model().resources[0]
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

/// It runs on a host whose systemd notes its runs in a folder.
struct Hosted {
    processor: SystemdProcessor,
    folder: tempfile::TempDir,
}

impl Hosted {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut processor = SystemdProcessor::new(&SystemdConfig::default());
        let mut host = Host::default();
        host.name = "this".to_owned();
        processor.enricher.host = OnceLock::from(host);
        processor.enricher.runs = Runs(folder.path().to_owned());
        Self { processor, folder }
    }

    /// The run that a process of this host is given.
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
        let left = keep.into_inner().remove(0);
        let resource = left.model().resources[0].resource.clone().unwrap();
        text_of(&resource.attributes, "systemd.invocation_id").map(|text| text.to_string())
    }
}

fn path(unit: &str) -> String {
    format!("/system.slice/{unit}")
}

/// As systemd does when a run of the unit begins: `began` is in milliseconds since 1970.
fn note(folder: &Path, unit: &str, id: &str, began: i64) {
    let note = folder.join(format!("invocation:{unit}"));
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
async fn runs_are_those_that_systemd_notes() {
    let hosted = Hosted::new();
    let folder = hosted.folder.path();
    let told = async |unit: &str, created| hosted.run(&path(unit), created).await;
    // Times of the notes and of the processes are given, none is the clock's: a batch whose process is equal to one of a
    // batch before has the same answer for a while, and how late a test runs decides over nothing.
    let first = now() - 60_000;
    let second = first + 10_000;
    assert_eq!(told(UNIT, first - 5000).await, None);
    note(folder, UNIT, FIRST, first);
    // Left over by the run before.
    assert_eq!(told(UNIT, first - 1000).await, None);
    assert_eq!(told(UNIT, first).await.as_deref(), Some(FIRST));
    note(folder, UNIT, SECOND, second);
    assert_eq!(told(UNIT, first).await.as_deref(), Some(FIRST));
    assert_eq!(told(UNIT, second).await.as_deref(), Some(SECOND));
    // Processes seem to be older than their run by up to 20 ms.
    assert_eq!(told(UNIT, second - 20).await.as_deref(), Some(SECOND));
    assert_eq!(told(UNIT, second - 21).await, None);
    // Whoever was created before the second run, and was never seen in the first, may be of either.
    assert_eq!(told(UNIT, first + 2).await, None);
    // Created after this look at the clock.
    assert_eq!(told(UNIT, now() + 60_000).await, None);
    for (number, rubbish) in (0..).zip(["", "0123", "../../etc/passwd", &"x".repeat(32)]) {
        if !rubbish.is_empty() {
            note(folder, "odd.service", rubbish, first);
        }
        assert_eq!(
            told("odd.service", second + number).await,
            None,
            "{rubbish}"
        );
    }
    // Nobody in a scope that is not there.
    note(folder, "session-3.scope", FIRST, first);
    assert_eq!(told("session-3.scope", first - 1000).await, None);
    assert_eq!(told("session-3.scope", first).await.as_deref(), Some(FIRST));
}

#[tokio::test]
async fn only_units_of_this_hosts_systemd_are_looked_for() {
    let hosted = Hosted::new();
    let began = now();
    note(hosted.folder.path(), UNIT, FIRST, began);
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
async fn what_was_found_of_a_process_stays_when_its_run_has_ended() {
    let mut hosted = Hosted::new();
    let enricher = &mut hosted.processor.enricher;
    let began = now() - 10_000;
    let member = Some(Member {
        unit: UNIT.to_owned(),
        pid: u32::MAX,
        created: began,
    });
    note(hosted.folder.path(), UNIT, FIRST, began);
    enricher.read_runs(std::slice::from_ref(&member)).await;
    enricher.runs = Runs("/nowhere".into());
    enricher.read_runs(std::slice::from_ref(&member)).await;
    let mut attributes = Vec::new();
    assert!(enricher.fill(&mut attributes, member.as_ref()));
    let run = text_of(&attributes, "systemd.invocation_id");
    assert_eq!(run.as_deref(), Some(FIRST));
}

#[tokio::test]
async fn whoever_asks_once_is_told_of_units() {
    let process = vec![
        KeyValue::new(PID, i64::from(u32::MAX)),
        KeyValue::new(CGROUP, &*path(UNIT)),
    ];
    let mut processes = [process, Vec::new()];
    describe(&mut processes).await;
    let [found, nothing] = processes;
    assert!(nothing.is_empty());
    assert_eq!(text_of(&found, "systemd.unit").as_deref(), Some(UNIT));
}
