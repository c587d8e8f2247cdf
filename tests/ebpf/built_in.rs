//! `profcol` without a configuration: the first thing that a new user sees.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use profcol_test_harness::backend::wait_until;
use profcol_test_harness::peers;
use profcol_test_harness::support::root;
use profcol_test_harness::toolchain::Workshop;

use crate::host::{PROFCOL, Running, can_profile};
use crate::privileges::{Place, with_none};

#[test]
fn without_a_configuration_the_host_is_profiled_with_names() {
    if !can_profile() {
        return;
    }
    let workshop = Workshop::open();
    let Some(busy) = workshop.build("busy", "cc -O2 -g busy.c") else {
        return;
    };
    let _busy = Running::start(&busy, &["60"]);
    let directory = tempfile::tempdir().unwrap();
    let page = peers::free_address();
    let output = directory.path().join("output");
    let errors = directory.path().join("errors");
    let started = Command::new(PROFCOL)
        .args(["--set", "exporters.top.interval=2s"])
        .args(["--set", "receivers.ebpf_cpu.interval=1s"])
        .args(["--set", &format!("exporters.live_view.endpoint={page}")])
        .env("OUTPUT", "profiles")
        .current_dir(directory.path())
        .stdout(File::create(&output).unwrap())
        .stderr(File::create(&errors).unwrap())
        .stdin(Stdio::null())
        .spawn();
    let mut profcol = Running::of(started.unwrap());
    let text = |path: &Path| fs::read_to_string(path).unwrap();
    let is_told = |text: &str| {
        let function = text.lines().any(|line| line.contains("  work  [busy]"));
        let process = text.lines().any(|line| line.contains("%  busy "));
        function && process
    };
    let give_up = Instant::now() + Duration::from_secs(60);
    while !is_told(&text(&output)) && Instant::now() < give_up {
        thread::sleep(Duration::from_millis(200));
    }
    let stacks = get(
        page,
        "/api/v1/download?format=folded&query=process_executable_name%3D%22busy%22",
    );
    let status = get(page, "/api/v1/status");
    profcol.interrupt();
    assert!(stacks.contains(";main;work_until;work "), "{stacks}");
    assert!(
        status.contains("\"name\":\"cpu\",\"unit\":\"nanoseconds\""),
        "{status}"
    );
    let (output, errors) = (text(&output), text(&errors));
    assert!(is_told(&output), "{output}\n{errors}");
    assert_eq!(errors.lines().count(), 7, "{errors}");
    assert!(
        errors.contains(&format!("live:  http://{page}/\n")),
        "{errors}"
    );
    assert_eq!(errors.lines().last(), Some("writing..."));
    let profiles = fs::read_dir(directory.path().join("profiles")).unwrap();
    let profiles: Vec<_> = profiles.map(|file| file.unwrap().path()).collect();
    assert!(!profiles.is_empty(), "{errors}");
    assert!(
        profiles
            .iter()
            .all(|path| path.to_string_lossy().ends_with(".pb.gz")),
        "{profiles:?}"
    );
}

/// Two of them: the port of the second is in use at the latest.
#[test]
fn it_prints_five_lines_writes_no_file_and_takes_another_port_if_its_own_is_in_use() {
    if !can_profile() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let start = |name: &str| {
        let place = directory.path().join(name);
        fs::create_dir(&place).unwrap();
        let errors = directory.path().join(format!("{name}.errors"));
        let started = Command::new(PROFCOL)
            .current_dir(&place)
            .env_remove("OUTPUT")
            .stdout(Stdio::null())
            .stderr(File::create(&errors).unwrap())
            .stdin(Stdio::null())
            .spawn();
        let profcol = Running::of(started.unwrap());
        let text = || fs::read_to_string(&errors).unwrap();
        wait_until("profcol to introduce itself", || text().contains("Ctrl-C"));
        let text = text();
        let page = text.lines().find_map(|line| line.split_once("http://"));
        let page: SocketAddr = page.unwrap().1.trim_end_matches('/').parse().unwrap();
        wait_until("the page to have samples", || {
            get(page, "/api/v1/status").contains("\"name\":\"cpu\"")
        });
        (profcol, place, page, text)
    };
    let [first, second] = ["first", "second"].map(start);
    let usual = "127.0.0.1:7071";
    let another = format!("serving it on another one. taken=\"{usual}\"");
    for (_, _, page, text) in [&first, &second] {
        let is_usual = page.to_string() == usual;
        assert_eq!(text.contains(&another), !is_usual, "{text}");
        assert_eq!(text.lines().count(), if is_usual { 5 } else { 6 }, "{text}");
    }
    assert_ne!(first.2, second.2);
    for (mut profcol, place, ..) in [first, second] {
        profcol.interrupt();
        assert_eq!(fs::read_dir(place).unwrap().count(), 0);
    }
}

#[test]
fn without_root_it_says_what_is_missing_and_shows_what_it_receives() {
    if !can_profile() {
        return;
    }
    let place = Place::new();
    let (grpc, http, page) = (
        peers::free_address(),
        peers::free_address(),
        peers::free_address(),
    );
    let (output, errors) = (place.path().join("output"), place.path().join("errors"));
    let started = with_none(&place)
        .args(["--set", "exporters.top.interval=1s"])
        .args([
            "--set",
            &format!("receivers.otlp.protocols.grpc.endpoint={grpc}"),
        ])
        .args([
            "--set",
            &format!("receivers.otlp.protocols.http.endpoint={http}"),
        ])
        .args(["--set", &format!("exporters.live_view.endpoint={page}")])
        .current_dir(place.path())
        .stdout(File::create(&output).unwrap())
        .stderr(File::create(&errors).unwrap())
        .stdin(Stdio::null())
        .spawn();
    let mut profcol = Running::of(started.unwrap());
    let text = |path: &Path| fs::read_to_string(path).unwrap();
    wait_until("profcol to introduce itself", || {
        text(&errors).contains("Ctrl-C")
    });
    let body = fs::read(root().join("tests/golden/otlp/profiler/export-01.pb")).unwrap();
    let status = peers::post_profiles(http, "application/x-protobuf", &body);
    assert!(status.starts_with("HTTP/1.1 200"), "{status}");
    wait_until("the received profile to be listed", || {
        text(&output).contains("  main.leaf  [demo_go]")
    });
    let log = get(page, "/api/v1/log");
    profcol.interrupt();
    let missing = "Cannot profile this host. Run profcol as root. missing=CAP_PERFMON, CAP_BPF";
    let errors = text(&errors);
    assert!(errors.contains(missing), "{errors}");
    assert!(errors.contains("receives over OTLP"), "{errors}");
    assert!(log.contains("Cannot profile this host"), "{log}");
}

/// The response to a request of the page.
fn get(address: SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    answer
}
