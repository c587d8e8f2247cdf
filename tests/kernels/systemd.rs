//! A host that a real systemd runs: profcol is installed there as `deploy/systemd` says, and has to tell of each process its
//! unit, what that is for and which run of it this is, through restarts of systemd, of the bus and of itself.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use profcol_profile::{Attributes, json};

use crate::guest::{Guest, Run, X86_64};
use crate::kernels;
use crate::support::root;
use crate::toolchain::Workshop;

const CONFIG: &str = "\
receivers:
  ebpf_cpu:
    frequency: 99
    interval: 1s
    # Its own table is the largest of all, and not what is looked at.
    exclude: [{executable: /usr/local/bin/profcol}]
processors:
  process:
  systemd: {wait_for: 5s}
exporters:
  file: {path: '${env:STATE_DIRECTORY}/profiles.jsonl', append: true}
service:
  telemetry: {metrics: {level: none}}
  pipelines:
    profiles: {receivers: [ebpf_cpu], processors: [process, systemd], exporters: [file]}
";

#[test]
fn tells_units_and_runs_under_a_real_systemd() {
    let Some(kernels) = kernels() else {
        return;
    };
    let workshop = Workshop::open();
    let program = workshop.build("seldom", "cc -O2 -static seldom.c");
    let guest = Guest::with_system(X86_64, &kernels.join("systemd.tar"));
    let profcol = Path::new(env!("CARGO_BIN_EXE_profcol"));
    guest.add_program(profcol, "usr/local/bin/profcol");
    guest.add_program(&program.unwrap(), "usr/local/bin/seldom");
    let unit = root().join("deploy/systemd/profcol.service");
    guest.add(&unit, Path::new("/etc/systemd/system/profcol.service"));
    guest.write("etc/profcol/config.yaml", CONFIG);
    guest.write(
        "etc/sysctl.d/profcol.conf",
        "kernel.perf_event_paranoid = 2\n",
    );
    let parts = root().join("tests/kernels/systemd");
    guest.add_folder(&parts.join("units"), "etc/systemd/system");
    guest.add_folder(&parts.join("scripts"), "trial");
    for program in [
        "demo",
        "odd",
        "delegated",
        "again",
        "timed",
        "blind",
        "late",
        "moved",
        "shell",
        "mine",
    ] {
        guest.link(&format!("usr/local/bin/{program}"), "seldom");
    }
    guest.link(
        "etc/systemd/system/multi-user.target.wants/trial.service",
        "../trial.service",
    );

    let ran = guest.boot(&kernels.join("6.1/vmlinuz"), "systemd.show_status=false");
    let said = ran.told("said");
    assert!(!ran.console.contains("@missed"), "{}\n{said}", ran.console);
    check_service(&ran);
    check_attributes(&ran);
}

/// Users that systemd makes up for a service.
const DYNAMIC: std::ops::RangeInclusive<u32> = 61184..=65519;

/// The unit that is handed out does what it says.
fn check_service(ran: &Run) {
    let said = ran.told("said");
    let started = ran.told("started");
    let user: u32 = started.strip_prefix("active ").unwrap().parse().unwrap();
    assert!(DYNAMIC.contains(&user), "{started}: {said}");
    for (name, expected) in [
        ("killed", "active"),
        ("restarted", "active"),
        ("stopped", "success 0"),
        ("wrong", "78 0"),
    ] {
        assert_eq!(ran.told(name), expected, "{name}: {said}");
    }
    assert!(!said.contains("is missing"), "{said}");
}

type Texts = HashMap<String, String>;

fn check_attributes(ran: &Run) {
    let machine = ran.told("machine");
    let session = ran.told("session");
    let scope = format!("session-{session}.scope");
    let service = |unit: &str, slice: &str, description: &str| {
        expected(&[
            ("unit", unit),
            ("slice", slice),
            ("unit_description", description),
        ])
    };
    let of_system = |unit: &str, description: &str| service(unit, "system.slice", description);
    let odd = "odd@a-b\\x2dc.service";
    let of_user = |more: &[(&str, &str)]| {
        let own = [("slice", "user-1000.slice"), ("owner_uid", "1000")];
        expected(&[&own, more].concat())
    };
    let user = [
        ("unit", "user@1000.service"),
        ("unit_description", "User Manager for UID 1000"),
        ("user_unit", "mine.service"),
        ("user_slice", "work.slice"),
    ];
    let login = format!("Session {session} of User dev");
    let shell = [
        ("unit", &*scope),
        ("unit_description", &login),
        ("session", &session),
    ];
    let runs = runs(ran);
    let told = told(&ran.profiles);
    for (program, expected) in [
        (
            "demo",
            service("demo.service", "my\\x2dshop.slice", "Sells things"),
        ),
        ("odd", service(odd, "system-odd.slice", "Odd a/b-c")),
        (
            "delegated",
            of_system("delegated.service", "Has groups below"),
        ),
        ("again", of_system("again.service", "Ends and begins")),
        ("timed", of_system("timed.service", "Now and then")),
        ("late", of_system("late.service", "Comes late")),
        ("moved", of_system("moved.scope", "Moved in")),
        ("shell", of_user(&shell)),
        ("mine", of_user(&user)),
        // Nobody could say more while there was no bus.
        (
            "blind",
            expected(&[("unit", "blind.service"), ("slice", "system.slice")]),
        ),
    ] {
        let mut processes = 0;
        for ((_, pid), id) in runs.iter().filter(|((name, _), _)| name == program) {
            let Some(told) = told.get(&(program.to_owned(), *pid)) else {
                continue;
            };
            processes += 1;
            for told in told {
                let mut expected = expected.clone();
                expected.insert("invocation_id".to_owned(), id.clone());
                expected.insert("machine_id".to_owned(), machine.clone());
                let mut told = told.clone();
                if program == "blind" {
                    told.remove("unit_description");
                }
                assert_eq!(told, expected, "{program} {pid}");
            }
        }
        let enough = if ["again", "timed"].contains(&program) {
            3
        } else {
            1
        };
        assert!(processes >= enough, "{program}: {processes} of {runs:?}");
    }
}

fn expected(attributes: &[(&str, &str)]) -> Texts {
    let owned = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
    attributes.iter().map(owned).collect()
}

/// Of each program and process the id of its run.
fn runs(ran: &Run) -> HashMap<(String, i64), String> {
    let run = |line: &str| {
        let mut words = line.split(' ').map(str::to_owned);
        let mut next = || words.next().unwrap();
        ((next(), next().parse().unwrap()), next())
    };
    ran.told("run").lines().map(run).collect()
}

/// What the profiles say of systemd, by program and process.
fn told(profiles: &Path) -> HashMap<(String, i64), Vec<Texts>> {
    let mut told: HashMap<_, Vec<Texts>> = HashMap::new();
    let text = fs::read_to_string(profiles).unwrap();
    // When it was killed a line may have been under way.
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
            told.entry(key)
                .or_default()
                .push(of_systemd(&resource.attributes));
        }
    }
    told
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
