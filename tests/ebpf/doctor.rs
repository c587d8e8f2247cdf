//! `profcol doctor` with the rights to profile this host, and without.

use std::process::Command;

use serde_json::Value;

use crate::host::{PROFCOL, can_profile};

/// The exit code, and the receiver's checks.
fn run_doctor(wrapper: &[&str]) -> (Option<i32>, Vec<Value>) {
    let command = [wrapper, &[PROFCOL, "doctor", "--json"]].concat();
    let (program, arguments) = command.split_first().unwrap();
    let output = Command::new(program).args(arguments).output().unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout);
    let found = serde_json::from_str(&stdout);
    (
        output.status.code(),
        found.unwrap_or_else(|error| panic!("{error}: {output:?}")),
    )
}

fn status<'a>(found: &'a [Value], check: &str) -> &'a str {
    let one = found.iter().find(|it| it["check"] == check);
    one.unwrap_or_else(|| panic!("no {check} in {found:#?}"))["status"]
        .as_str()
        .unwrap()
}

#[test]
fn all_checks_pass_on_a_host_that_can_be_profiled() {
    if !can_profile() {
        return;
    }
    let (code, found) = run_doctor(&[]);
    assert_eq!(code, Some(0), "{found:#?}");
    for check in [
        "kernel",
        "btf",
        "CAP_BPF",
        "CAP_PERFMON",
        "perf_event_paranoid",
        "bpf",
    ] {
        assert_eq!(status(&found, check), "ok", "{found:#?}");
    }
    let bpf = found.iter().find(|it| it["check"] == "bpf").unwrap();
    let found_text = bpf["found"].as_str().unwrap();
    assert!(
        found_text.starts_with("the programs loaded in "),
        "{found_text}"
    );
}

#[test]
fn reports_each_missing_right() {
    if !can_profile() {
        return;
    }
    let without = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"];
    let (code, found) = run_doctor(&without);
    assert_eq!(code, Some(1), "{found:#?}");
    for (check, expected) in [
        ("kernel", "ok"),
        ("CAP_BPF", "fail"),
        ("CAP_PERFMON", "fail"),
        ("CAP_SYS_PTRACE", "warn"),
        ("bpf", "fail"),
    ] {
        assert_eq!(status(&found, check), expected, "{check}: {found:#?}");
    }
    let perfmon = [
        "setpriv",
        "--bounding-set=-all,+perfmon,+bpf",
        "--inh-caps=-all",
    ];
    let (code, found) = run_doctor(&perfmon);
    assert_eq!(code, Some(0), "{found:#?}");
    assert_eq!(status(&found, "CAP_SYS_PTRACE"), "warn");
    assert_eq!(status(&found, "bpf"), "ok");
}
