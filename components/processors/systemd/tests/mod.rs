mod server;

use std::sync::OnceLock;

use profcol_component::testkit::{batch, context, load};
use profcol_dbus::testkit::{Shown, reply};
use profcol_processes::timestamp;
use profcol_profile::KeyValue;

use self::server::{Manner, Server, note};
use super::bus::object;
use super::directory::UnitInfo;
use super::runs::{Member, Process, Run, Runs};
use super::unit_enricher::add;
use super::unit_fetcher::now;
use super::*;
use crate::shared::lookup::{CGROUP, PID, text_of};
use crate::shared::testkit::{Keep, Running};

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
        let config = SystemdConfig {
            assume_local,
            ..SystemdConfig::default()
        };
        let mut processor = SystemdProcessor::new(&config, &context("systemd"));
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
    running: Running<SystemdProcessor>,
    folder: tempfile::TempDir,
}

impl Hosted {
    fn start(options: &str) -> Self {
        let config = load(options).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let mut processor = SystemdProcessor::new(&config, &context("systemd"));
        let mut host = Host::default();
        host.name = "this".to_owned();
        processor.enricher.host = OnceLock::from(host);
        processor.enricher.runs = Runs(folder.path().to_owned());
        Self {
            running: Running::start(Arc::new(processor), Arc::new(Keep::default())),
            folder,
        }
    }

    /// The description and the run that a process of this host is given.
    async fn unit_info(&self, cgroup: &str, created: i64) -> (Option<String>, Option<String>) {
        let created = timestamp(created).unwrap();
        let texts = [
            ("host.name", "this"),
            ("process.creation.time", &created),
            (CGROUP, cgroup),
        ];
        self.filled(&texts).await
    }

    async fn filled(&self, texts: &[(&str, &str)]) -> (Option<String>, Option<String>) {
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
        self.running.processor.process(batch, &keep).await.unwrap();
        let left = keep.into_inner().remove(0);
        let resource = left.model().resources[0].resource.clone().unwrap();
        let text = |key| text_of(&resource.attributes, key).map(|text| text.to_string());
        (
            text("systemd.unit_description"),
            text("systemd.invocation_id"),
        )
    }

    /// Asks again until there is a description: systemd is asked beside the batches.
    async fn until_described(&self, created: i64) -> (String, Option<String>) {
        for _ in 0..500 {
            if let (Some(description), run) = self.unit_info(&path(UNIT), created).await {
                return (description, run);
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("not described");
    }

    fn failed(&self) -> u64 {
        self.running.processor.failed.get()
    }

    async fn stop(self) {
        self.running.stop().await;
    }
}

fn path(unit: &str) -> String {
    format!("/system.slice/{unit}")
}

fn bytes(id: &str) -> Vec<u8> {
    let digits = |at: usize| u8::from_str_radix(&id[at..at + 2], 16).unwrap();
    (0..id.len()).step_by(2).map(digits).collect()
}

/// What systemd tells of a unit that began and ended then, in milliseconds; 0 is not yet.
fn unit(id: &str, began: i64, ended: i64) -> Manner {
    let microseconds = |milliseconds: i64| Shown::Number(milliseconds as u64 * 1000);
    Manner::Tells(vec![
        ("Id", Shown::Text(UNIT)),
        ("Description", Shown::Text("Sells things")),
        ("LoadState", Shown::Text("loaded")),
        ("Conditions", Shown::Nested),
        ("ConditionResult", Shown::Flag(true)),
        ("AssertResult", Shown::Flag(true)),
        ("AssertTimestamp", microseconds(began)),
        ("InactiveEnterTimestamp", microseconds(ended)),
        ("InvocationID", Shown::Bytes(bytes(id))),
    ])
}

const ALONE: &str = "dbus: {enabled: false}";

#[tokio::test]
async fn runs_are_those_that_systemd_notes() {
    let hosted = Hosted::start(&format!("{{{ALONE}}}"));
    let folder = hosted.folder.path();
    let told = async |unit: &str, created| hosted.unit_info(&path(unit), created).await.1;
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
    hosted.stop().await;
}

#[tokio::test]
async fn only_units_of_this_hosts_systemd_are_looked_for() {
    let hosted = Hosted::start(&format!("{{{ALONE}}}"));
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
        assert_eq!(&hosted.filled(&texts).await.1, expected, "{texts:?}");
    }
    hosted.stop().await;
}

#[tokio::test]
async fn systemd_describes_units_and_knows_runs_that_ended() {
    for is_big in [false, true] {
        let mut server = Server::new();
        let began = now() - 10_000;
        server.start(is_big, unit(FIRST, began, began + 5000));
        let hosted = Hosted::start(&server.options(""));
        assert_eq!(
            hosted.unit_info(&path(UNIT), began).await,
            (None, None),
            "it is not waited for"
        );
        let told = hosted.until_described(began + 2000).await;
        assert_eq!(told, ("Sells things".to_owned(), Some(FIRST.to_owned())));
        // Of the run before, and of one after it, of which it is asked at most once.
        assert_eq!(hosted.until_described(began - 2000).await.1, None);
        assert_eq!(hosted.until_described(began + 6000).await.1, None);
        hosted.stop().await;
    }
}

#[tokio::test]
async fn a_run_that_never_came_about_is_no_run() {
    let mut server = Server::new();
    let Manner::Tells(mut properties) = unit(FIRST, now() - 1000, 0) else {
        unreachable!();
    };
    for (name, value) in &mut properties {
        if *name == "ConditionResult" {
            *value = Shown::Flag(false);
        }
    }
    server.start(false, Manner::Tells(properties));
    let hosted = Hosted::start(&server.options(""));
    let told = hosted.until_described(now()).await;
    assert_eq!(told, ("Sells things".to_owned(), None));
    hosted.stop().await;
}

#[tokio::test]
async fn a_batch_waits_only_where_it_is_told_to() {
    let mut server = Server::new();
    let began = now() - 1000;
    server.start(false, unit(FIRST, began, 0));
    let hosted = Hosted::start(&server.options("wait_for: 20s"));
    let told = hosted.unit_info(&path(UNIT), began + 1).await;
    let expected = (Some("Sells things".to_owned()), Some(FIRST.to_owned()));
    assert_eq!(told, expected);
    assert_eq!(server.asked.load(std::sync::atomic::Ordering::Relaxed), 1);
    // A process that was created since then is of a run that has to be asked for anew.
    tokio::time::sleep(Duration::from_millis(5)).await;
    assert_eq!(hosted.unit_info(&path(UNIT), now()).await, expected);
    assert_eq!(server.asked.load(std::sync::atomic::Ordering::Relaxed), 2);
    hosted.stop().await;
}

#[tokio::test]
async fn nothing_holds_up_a_batch_and_all_is_well_once_the_bus_is() {
    let rubbish = "\u{0}".repeat(64);
    let endless = [b"l\x02\x01\x01".as_slice(), &[0xff; 12]].concat();
    let stray = reply(false, None, None, &[]).repeat(100);
    let other = reply(false, Some(1000), None, &[]);
    for manner in [
        Manner::Hangs,
        Manner::HangsUp,
        Manner::Says(rubbish.into_bytes()),
        Manner::Says(endless),
        Manner::Says(stray),
        Manner::Says(other),
        Manner::Greets("REJECTED KERBEROS\r\n"),
        Manner::Greets("DATA\r\nERROR\r\n"),
        Manner::Refuses("org.freedesktop.DBus.Error.AccessDenied"),
    ] {
        let mut server = Server::new();
        server.start(false, manner.clone());
        let hosted = Hosted::start(&server.options(""));
        let created = now();
        assert_eq!(hosted.unit_info(&path(UNIT), created).await, (None, None));
        until(|| hosted.failed() > 0).await;
        server.stop().await;
        // Where there is no socket this counts as no failure.
        let failed = hosted.failed();
        assert_eq!(
            hosted.unit_info(&path("other.service"), created).await,
            (None, None)
        );
        server.start(false, unit(FIRST, created, 0));
        let mut number = 0;
        let described = async |number| {
            let unit = path(&format!("new-{number}.service"));
            hosted.unit_info(&unit, created).await;
            hosted.unit_info(&path(UNIT), created).await.0.is_some()
        };
        while !described(number).await {
            // It is asked again when there is something new to ask.
            number += 1;
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        assert_eq!(hosted.failed(), failed, "{manner:?}");
        hosted.stop().await;
    }
}

#[tokio::test]
async fn units_that_systemd_does_not_know_are_not_asked_for_again() {
    let mut server = Server::new();
    server.start(
        false,
        Manner::Refuses("org.freedesktop.DBus.Error.UnknownObject"),
    );
    let hosted = Hosted::start(&server.options("wait_for: 20s"));
    let created = now();
    for _ in 0..3 {
        assert_eq!(hosted.unit_info(&path(UNIT), created).await, (None, None));
    }
    assert_eq!(server.asked.load(std::sync::atomic::Ordering::Relaxed), 1);
    assert_eq!(hosted.failed(), 0);
    hosted.stop().await;
}

#[tokio::test]
async fn systemd_itself_answers_where_there_is_no_bus() {
    let mut server = Server::new();
    server.start_private(unit(FIRST, now() - 1000, 0));
    let hosted = Hosted::start(&server.options(""));
    let told = hosted.until_described(now()).await;
    assert_eq!(told.0, "Sells things");
    assert_eq!(hosted.failed(), 0);
    hosted.stop().await;
}

#[tokio::test]
async fn a_host_without_systemd_is_none_the_worse() {
    let server = Server::new();
    let hosted = Hosted::start(&server.options(""));
    assert_eq!(hosted.unit_info(&path(UNIT), now()).await, (None, None));
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(hosted.failed(), 0);
    hosted.stop().await;
}

#[tokio::test]
async fn whoever_asks_once_is_told_what_comes_soon() {
    let began = now() - 1000;
    let mut server = Server::new();
    server.start(false, unit(FIRST, began, 0));
    for (is_there, expected) in [
        (true, (Some("Sells things"), Some(FIRST))),
        (false, (None, None)),
    ] {
        if !is_there {
            server.stop().await;
        }
        let config = load(&server.options("")).unwrap();
        let created = timestamp(began + 1).unwrap();
        let process = vec![
            KeyValue::new(PID, i64::from(u32::MAX)),
            KeyValue::new("process.creation.time", &*created),
            KeyValue::new(CGROUP, &*path(UNIT)),
        ];
        let mut processes = [process, Vec::new()];
        describe(&config, &mut processes).await;
        let [found, nothing] = processes;
        assert!(nothing.is_empty());
        let text = |key| text_of(&found, key);
        assert_eq!(text("systemd.unit").as_deref(), Some(UNIT));
        let told = (
            text("systemd.unit_description"),
            text("systemd.invocation_id"),
        );
        assert_eq!((told.0.as_deref(), told.1.as_deref()), expected);
    }
}

#[test]
fn too_many_units_are_dropped_and_counted() {
    let processor = SystemdProcessor::new(&SystemdConfig::default(), &context("systemd"));
    let directory = &processor.enricher.directory;
    let member = |number: i64| Member {
        unit: format!("{number}.service"),
        process: None,
    };
    for number in 0..2000 {
        assert!(directory.question(&member(number)).is_some());
    }
    assert_eq!(directory.take_wanted().len(), 1024);
    for number in 0..20_000 {
        let told = UnitInfo {
            at: number,
            ..UnitInfo::default()
        };
        directory.learn(format!("{number}.service"), told);
    }
    assert!(directory.question(&member(0)).is_some(), "it is forgotten");
    assert_eq!(directory.question(&member(19_999)), None);
}

#[test]
fn what_was_found_of_a_process_stays() {
    let processor = SystemdProcessor::new(&SystemdConfig::default(), &context("systemd"));
    let directory = &processor.enricher.directory;
    let run = |id: &str, since| Run {
        id: id.into(),
        since,
        until: since + 999,
    };
    let told = |id, since| UnitInfo {
        description: None,
        run: Some(run(id, since)),
        at: since + 999,
    };
    let member = |created| Member {
        unit: UNIT.to_owned(),
        process: Some(Process { pid: 1, created }),
    };
    let found = |created| directory.find(&member(created)).run;
    directory.learn(UNIT.to_owned(), told(FIRST, 1000));
    for (created, expected) in [
        (900, None),
        (990, Some(FIRST)),
        (1999, Some(FIRST)),
        (2000, None),
    ] {
        assert_eq!(found(created).as_deref(), expected, "{created}");
    }
    directory.learn(UNIT.to_owned(), told(SECOND, 2000));
    assert_eq!(found(1999).as_deref(), Some(FIRST));
    assert_eq!(found(2000).as_deref(), Some(SECOND));
    assert_eq!(
        directory.question(&member(2500)),
        None,
        "it was there when it was told"
    );
    assert!(directory.question(&member(3000)).is_some());
}

#[test]
fn options_that_cannot_work_are_refused() {
    for (options, expected) in [
        ("{dbus: {socket: bus}}", "dbus::socket"),
        ("{dbus: {socket: ''}}", "dbus::socket"),
        ("{dbus: {private_socket: private}}", "dbus::private_socket"),
        ("{dbus: {timeout: 0s}}", "dbus::timeout"),
        ("{dbus: {timeout: 2m}}", "dbus::timeout"),
        ("{wait_for: 2m}", "wait_for"),
        ("{wait_for: 1s, dbus: {enabled: false}}", "wait_for"),
    ] {
        let problems = load::<SystemdConfig>(options).unwrap_err();
        assert!(format!("{problems:?}").contains(expected), "{options}");
    }
    load::<SystemdConfig>("{dbus: {private_socket: ''}, wait_for: 1m}").unwrap();
}

async fn until(is_so: impl Fn() -> bool) {
    for _ in 0..500 {
        if is_so() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("not so within 10 s");
}

#[test]
fn paths_of_objects_are_escaped() {
    for (unit, expected) in [
        ("dbus.service", "dbus_2eservice"),
        ("getty@tty1.service", "getty_40tty1_2eservice"),
        ("dev-a\\x2db.mount", "dev_2da_5cx2db_2emount"),
        ("2d.service", "_32d_2eservice"),
        ("a_b.scope", "a_5fb_2escope"),
    ] {
        let expected = format!("/org/freedesktop/systemd1/unit/{expected}");
        assert_eq!(object(unit), expected);
    }
}
