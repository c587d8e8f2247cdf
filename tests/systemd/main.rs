//! A host with a real systemd: profcol is installed there according to `deploy/systemd`, and must report the unit and
//! the invocation ID of each process, across restarts of systemd and of itself.
//!
//! `cargo xtask systemd` makes such a system, and runs this. It needs root and the right to load BPF programs.

#![allow(clippy::unwrap_used, reason = "a panic fails the test")]

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use profcol_otlp::json;
use profcol_profile::Attributes;
use profcol_test_harness::support::root;
use profcol_test_harness::systemd::Host;
use profcol_test_harness::toolchain::Workshop;

/// Set by `cargo xtask systemd`: the archive of a system.
const SYSTEM: &str = "PROFCOL_SYSTEMD";

const CONFIG: &str = "\
receivers:
  ebpf_cpu:
    frequency: 99
    interval: 1s
    # What else this machine does is another systemd's, or nobody's.
    mode: sidecar
processors:
  process:
  systemd:
exporters:
  file: {path: '${env:STATE_DIRECTORY}/profiles.jsonl', append: true}
service:
  telemetry: {metrics: {level: none}}
  pipelines:
    profiles: {receivers: [ebpf_cpu], processors: [process, systemd], exporters: [file]}
";

const PROFILES: &str = "var/lib/profcol/profiles.jsonl";

/// The names under which the test program runs.
const PROGRAMS: [&str; 9] = [
    "demo",
    "odd",
    "delegated",
    "again",
    "timed",
    "late",
    "moved",
    "shell",
    "mine",
];

#[test]
#[ignore = "cargo xtask systemd runs it"]
fn reports_units_and_invocations_under_a_real_systemd() {
    let system = std::env::var_os(SYSTEM).expect("`cargo xtask systemd` sets PROFCOL_SYSTEMD");
    let Some(mut host) = Host::unpack(Path::new(&system)) else {
        return;
    };
    let workshop = Workshop::open();
    let program = workshop.build("seldom", "cc -O2 -static seldom.c").unwrap();
    host.add(&program, "usr/local/bin/seldom");
    for name in PROGRAMS {
        host.link(&format!("usr/local/bin/{name}"), "seldom");
    }
    let profcol = Path::new(env!("CARGO_BIN_EXE_profcol"));
    host.add(profcol, "usr/local/bin/profcol");
    host.write("etc/profcol/config.yaml", CONFIG);
    let deployed = root().join("deploy/systemd");
    host.add(
        &deployed.join("profcol.service"),
        "etc/systemd/system/profcol.service",
    );
    host.add_directory("units", "etc/systemd/system");
    host.add_directory("scripts", "trial");
    host.link(
        "etc/systemd/system/multi-user.target.wants/trial.service",
        "../trial.service",
    );
    host.boot();
    let ran = Ran(host.wait_for("trial/report", "@done"));
    assert!(ran.0.contains("@done"), "it did not exit:\n{}", ran.0);
    assert!(!ran.0.contains("@missed"), "{}", ran.0);
    check_service(&ran);
    check_attributes(&ran, &host.at(PROFILES));
    check_command(&ran);
}

/// The report of the script.
struct Ran(String);

impl Ran {
    /// All under a name.
    fn reported(&self, name: &str) -> String {
        let begin = format!("@{name} ");
        let lines = self.0.lines();
        let lines: Vec<&str> = lines.filter_map(|line| line.strip_prefix(&begin)).collect();
        assert!(!lines.is_empty(), "no `{begin}`:\n{}", self.0);
        lines.join("\n")
    }
}

/// Checks the shipped unit.
fn check_service(ran: &Ran) {
    let output = ran.reported("output");
    for (name, expected) in [
        ("started", "active dynamic"),
        ("refused", "active same"),
        ("reloaded", "active same"),
        ("killed", "active"),
        ("restarted", "active"),
        ("watched", "active"),
        ("unwatched", "active"),
        ("stopped", "success 0"),
        ("wrong", "78 0"),
    ] {
        assert_eq!(ran.reported(name), expected, "{name}: {output}");
    }
    assert!(!output.contains("is missing"), "{output}");
    assert!(output.contains("Watchdog timeout"), "{output}");
    let status = ran.reported("status");
    let is_exact = status.starts_with("notify ebpf_cpu: ") && status.contains("; file: ");
    assert!(is_exact, "{status}");
}

type Texts = HashMap<String, String>;

fn check_attributes(ran: &Ran, profiles: &Path) {
    let session = ran.reported("session");
    let scope = format!("session-{session}.scope");
    let system = ("slice", "system.slice");
    let user = [("slice", "user-1000.slice"), ("owner_uid", "1000")];
    let runs = runs(ran);
    let attributes = systemd_attributes(profiles);
    let check = |program: &str, enough: usize, expected: &[(&str, &str)]| {
        let own = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        let mut expected: Texts = expected.iter().map(own).collect();
        expected.insert("machine_id".to_owned(), ran.reported("machine"));
        let mut exact = 0;
        for ((_, pid), id) in runs.iter().filter(|((name, _), _)| name == program) {
            let found = attributes.get(&(program.to_owned(), *pid));
            for mut found in found.into_iter().flatten().cloned() {
                let run = found.remove("invocation_id");
                // A finished run may have no ID, but no wrong one.
                assert!(
                    run.as_ref().is_none_or(|run| run == id),
                    "{program} {pid}: {run:?}, not {id}"
                );
                assert_eq!(found, expected, "{program} {pid}");
                exact += usize::from(run.is_some());
            }
        }
        assert!(
            exact >= enough,
            "{program}: {exact} in {attributes:?}, of {runs:?}"
        );
    };
    let demo = [("unit", "demo.service"), ("slice", "my\\x2dshop.slice")];
    check("demo", 1, &demo);
    let odd = [
        ("unit", "odd@a-b\\x2dc.service"),
        ("slice", "system-odd.slice"),
    ];
    check("odd", 1, &odd);
    for (program, enough, unit) in [
        ("delegated", 1, "delegated.service"),
        ("again", 2, "again.service"),
        // Most of its runs end before their profiles are processed.
        ("timed", 0, "timed.service"),
        ("moved", 1, "moved.scope"),
        ("late", 1, "late.service"),
    ] {
        check(program, enough, &[system, ("unit", unit)]);
    }
    let shell = [("unit", &*scope), ("session", &session)];
    check("shell", 1, &[&user[..], &shell].concat());
    let mine = [
        ("unit", "user@1000.service"),
        ("user_unit", "mine.service"),
        ("user_slice", "work.slice"),
    ];
    check("mine", 1, &[&user[..], &mine].concat());
}

/// `profcol processes` reports the same.
fn check_command(ran: &Ran) {
    let shown = ran.reported("shown");
    let shown: HashMap<i64, HashMap<String, serde_json::Value>> =
        serde_json::from_str(&shown).unwrap();
    let runs = runs(ran);
    let (pid, shown) = shown.into_iter().next().unwrap();
    for (key, expected) in [
        ("systemd.unit", "demo.service"),
        ("systemd.invocation_id", &*runs[&("demo".to_owned(), pid)]),
    ] {
        assert_eq!(shown[key], expected, "{key}");
    }
}

/// The invocation ID of each program and process.
fn runs(ran: &Ran) -> HashMap<(String, i64), String> {
    let run = |line: &str| {
        let mut words = line.split(' ').map(str::to_owned);
        let mut next = || words.next().unwrap();
        ((next(), next().parse().unwrap()), next())
    };
    ran.reported("run").lines().map(run).collect()
}

/// The systemd attributes in the profiles, by program and process.
fn systemd_attributes(profiles: &Path) -> HashMap<(String, i64), Vec<Texts>> {
    let mut attributes: HashMap<_, Vec<Texts>> = HashMap::new();
    let text = fs::read_to_string(profiles).unwrap();
    // A kill may leave an incomplete line.
    for model in text
        .lines()
        .filter_map(|line| json::decode(line.as_bytes()).ok())
    {
        for resource in model
            .resources
            .iter()
            .filter_map(|it| it.resource.as_deref())
        {
            let find = |key: &str| resource.attributes.iter().find(|it| &*it.key == key);
            let (Some(name), Some(pid)) = (find("process.comm"), find("process.pid")) else {
                continue;
            };
            let key = (
                name.value.as_str().unwrap().to_owned(),
                pid.value.as_int().unwrap(),
            );
            attributes
                .entry(key)
                .or_default()
                .push(of_systemd(&resource.attributes));
        }
    }
    attributes
}

fn of_systemd(attributes: &Attributes) -> Texts {
    let attribute = attributes.iter().filter_map(|it| {
        let key = it.key.strip_prefix("systemd.")?;
        let number = it.value.as_int().map(|number| number.to_string());
        let text = number.or_else(|| it.value.as_str().map(str::to_owned));
        Some((key.to_owned(), text?))
    });
    attribute.collect()
}
