//! `profcol top`: a busy program on a real terminal, and as lines for scripts.

use std::path::Path;
use std::process::Command;

use profcol_test_harness::toolchain::Workshop;
use serde_json::{Value, json};

use crate::host::{PROFCOL, Running, can_profile, on_a_terminal};

/// Busy for a minute in `work`, called by `work_until`.
fn busy(workshop: &Workshop) -> Option<Running> {
    let program = workshop.build("busy", "cc -O2 -g busy.c")?;
    Some(Running::start_nicely(&program, &["60"]))
}

#[track_caller]
fn check_terminal(seen: &Value) {
    assert_eq!(seen["was_raw"], true, "{seen:#}");
    assert_eq!(seen["restored"], true, "{seen:#}");
    assert_eq!(seen["left"], true, "{seen:#}");
}

#[test]
fn shows_a_busy_function_and_its_details() {
    if !can_profile() {
        return;
    }
    let workshop = Workshop::open();
    let Some(busy) = busy(&workshop) else {
        return;
    };
    let pid = busy.pid().to_string();
    let steps = json!([
        {"until": "work_until"},
        {"type": "2"},
        {"until": "busy  "},
        {"type": "\r"},
        {"until": &format!("functions of busy ({pid})")},
        {"until": "work_until"},
        {"type": "/work_until\r"},
        {"until": "filter: work_until"},
        {"type": "\r"},
        {"until": "called by"},
        {"type": "p"},
        {"until": "PAUSED"},
        {"type": "q"},
    ]);
    let Some(seen) = on_a_terminal(&["top", "-p", &pid, "-i", "1s"], steps) else {
        return;
    };
    assert_eq!(seen["status"], 0, "{}", seen["last"].as_str().unwrap());
    check_terminal(&seen);
    let screens = seen["screens"].as_array().unwrap();
    let first = screens[0].as_str().unwrap();
    assert!(first.contains("self% total%   CPU% function"), "{first}");
    let around = screens.last().unwrap().as_str().unwrap();
    assert!(
        around.contains("callers and callees of work_until"),
        "{around}"
    );
    assert!(around.contains("calls "), "{around}");
}

#[test]
fn signals_and_errors_restore_the_terminal() {
    if !can_profile() {
        return;
    }
    for signal in [15, 2] {
        let steps = json!([{"until": "profcol top"}, {"signal": signal}]);
        let Some(seen) = on_a_terminal(&["top"], steps) else {
            return;
        };
        assert_eq!(seen["status"], 0, "signal {signal}: {seen:#}");
        check_terminal(&seen);
    }
    // It fails to start, and prints the error on the normal screen.
    let seen = on_a_terminal(
        &[
            "top",
            "--set",
            "receivers.ebpf_cpu.event=cycles",
            "--set",
            "receivers.ebpf_cpu.max_table_memory_mib=1000000",
        ],
        json!([]),
    );
    let Some(seen) = seen else {
        return;
    };
    assert_ne!(seen["status"], 0, "{seen:#}");
    assert_eq!(seen["restored"], true, "{seen:#}");
    assert!(
        seen["after"].as_str().unwrap().contains("Error: "),
        "{seen:#}"
    );
}

#[test]
fn scripts_get_one_object_per_interval() {
    if !can_profile() {
        return;
    }
    let workshop = Workshop::open();
    let Some(busy) = busy(&workshop) else {
        return;
    };
    let pid = busy.pid().to_string();
    let objects = lines(&["--json", "-n", "2", "-i", "3s", "-p", &pid]);
    assert_eq!(objects.len(), 2, "{objects:#?}");
    let last: Value = serde_json::from_str(&objects[1]).unwrap();
    assert_eq!(last["unit"], "nanoseconds", "{last:#}");
    assert_eq!(last["processes"][0]["pid"], busy.pid(), "{last:#}");
    let functions = last["functions"].as_array().unwrap();
    let work = functions.iter().find(|it| it["name"] == "work");
    let own = work.unwrap_or_else(|| panic!("{last:#}"))["self"]
        .as_u64()
        .unwrap();
    let total = last["total"].as_u64().unwrap();
    assert!(own * 2 > total, "{last:#}");
    // Without a terminal there are tables.
    let tables = lines(&["-n", "2", "--rows", "30", "-i", "3s", "-p", &pid]).join("\n");
    assert!(tables.contains("self%  total%  function"), "{tables}");
    assert!(tables.contains(&format!("busy ({pid})")), "{tables}");
}

fn lines(arguments: &[&str]) -> Vec<String> {
    let output = Command::new(PROFCOL)
        .arg("top")
        .args(arguments)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let stdout = String::from_utf8(output.stdout).unwrap();
    stdout.lines().map(str::to_owned).collect()
}

#[test]
fn ends_when_the_reader_is_gone() {
    if !can_profile() {
        return;
    }
    let script = format!("timeout 30 {PROFCOL} top --batch --json -i 1s | head -n 1");
    let output = Command::new("bash")
        .args(["-c", &format!("set -o pipefail; {script}")])
        .current_dir(Path::new("/"))
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let object: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(object["samples"].is_u64(), "{object}");
}
