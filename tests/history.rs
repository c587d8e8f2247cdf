//! The history of `live_view` on disk with the real program: restarts, kills, full disks, damaged files.

#![allow(clippy::unwrap_used, reason = "a panic fails the test")]

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use profcol_component::testkit::profiles;
use profcol_profile::{KeyValue, Profiles};
use profcol_test_harness::backend::wait_until;
use profcol_test_harness::faults::Faults;
use profcol_test_harness::peers::{Process, free_address, post_profiles, profcol};
use profcol_test_harness::support::{SmallDisk, copy_directory, path, run};
use serde_json::Value;

/// A profcol with a minute of history in memory and all of it on disk.
struct Host {
    process: Process,
    otlp: SocketAddr,
    page: SocketAddr,
}

/// Samples per second of the test's profiles.
const PER_SECOND: u64 = 4;

impl Host {
    fn config(directory: &Path, otlp: SocketAddr, page: SocketAddr) -> String {
        let directory = directory.display();
        format!(
            "
receivers: {{otlp: {{protocols: {{http: {{endpoint: '{otlp}'}}}}}}}}
exporters:
  live_view: {{endpoint: '{page}', directory: '{directory}', flush_interval: 200ms, max_age: 1m, resolution: 1s}}
service:
  telemetry: {{metrics: {{level: none}}}}
  pipelines: {{profiles: {{receivers: [otlp], exporters: [live_view]}}}}
"
        )
    }

    fn start(directory: &Path) -> Self {
        let (otlp, page) = (free_address(), free_address());
        let process = profcol(&Self::config(directory, otlp, page));
        Self {
            process: process.listens_on(otlp).listens_on(page),
            otlp,
            page,
        }
    }

    /// Sends a profile for each of these seconds of Unix time.
    fn send(&self, seconds: std::ops::Range<u64>) {
        for second in seconds {
            let body = of_second(second).to_wire();
            let status = post_profiles(self.otlp, "application/x-protobuf", &body);
            assert!(status.starts_with("HTTP/1.1 200"), "{status}");
        }
    }

    fn get(&self, path: &str) -> Value {
        let mut stream = TcpStream::connect(self.page).unwrap();
        let head = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
        stream.write_all(head.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 200"), "{path}: {answer}");
        serde_json::from_str(body).unwrap()
    }

    fn samples(&self, from: u64, until: u64) -> u64 {
        let (from, until) = (from * 1000, until * 1000);
        let profile = self.get(&format!("/api/v1/profile?from={from}&until={until}"));
        profile["samples"].as_u64().unwrap()
    }

    /// Waits until profiles up to this second are on disk.
    fn wait_for_disk(&self, second: u64) {
        wait_until(&format!("the disk to have second {second}"), || {
            let newest = &self.get("/api/v1/status")["disk"]["newest"];
            newest.as_u64().is_some_and(|it| it >= second * 1000)
        });
    }

    fn stop(self) -> String {
        let (status, output) = self.process.stop();
        assert!(status.success(), "{status}: {output}");
        output
    }
}

fn of_second(second: u64) -> Profiles {
    let mut model = profiles(PER_SECOND as usize).into_model();
    for row in &mut model.resources {
        let resource = std::sync::Arc::make_mut(row.resource.get_or_insert_default());
        resource
            .attributes
            .push(KeyValue::new("process.executable.name", "app"));
        for profile in row.scopes.iter_mut().flat_map(|it| &mut it.profiles) {
            let profile = std::sync::Arc::make_mut(profile);
            profile.time_unix_nano = second * 1_000_000_000;
            profile.duration_nano = 1_000_000_000;
        }
    }
    Profiles::from_model(model)
}

/// Ten minutes ago, in seconds of Unix time.
fn ten_minutes_ago() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    now.as_secs() - 600
}

fn segments(directory: &Path) -> Vec<PathBuf> {
    let folder = fs::read_dir(directory.join("history_live_view")).unwrap();
    let files = folder.map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> = files
        .filter(|it| it.extension().is_some_and(|it| it == "segment"))
        .collect();
    files.sort();
    files
}

#[test]
fn the_page_shows_what_was_before_a_restart_or_a_kill() {
    let folder = tempfile::tempdir().unwrap();
    let start = ten_minutes_ago();
    let host = Host::start(folder.path());
    host.send(start..start + 300);
    // Most of it has left the memory.
    assert_eq!(host.samples(start, start + 300), 300 * PER_SECOND);
    let status = host.get("/api/v1/status");
    assert_eq!(status["oldest"], start * 1000, "{status}");
    // A regular end writes everything.
    host.stop();
    let host = Host::start(folder.path());
    let status = host.get("/api/v1/status");
    assert_eq!(status["oldest"], start * 1000, "{status}");
    assert_eq!(host.samples(start, start + 300), 300 * PER_SECOND);
    assert_eq!(host.samples(start + 10, start + 20), 10 * PER_SECOND);
    // A kill loses only what was not written yet.
    let mut host = host;
    for round in 1..=3 {
        let end = start + 300 + round * 20;
        host.send(end - 20..end);
        host.wait_for_disk(end);
        drop(host);
        host = Host::start(folder.path());
        assert_eq!(host.samples(start, end), (end - start) * PER_SECOND);
    }
    let (from, until) = (start * 1000, (start + 360) * 1000);
    let timeline = host.get(&format!(
        "/api/v1/timeline?by=process_executable_name&from={from}&until={until}"
    ));
    assert_eq!(timeline["series"][0]["value"], "app", "{timeline}");
    let points = timeline["series"][0]["points"].as_array().unwrap();
    assert_eq!(points.len(), 360);
    assert!(points.iter().all(|it| *it == points[0]), "{timeline}");
    // Pyroscope's API reads the same.
    let render = host.get(&format!(
        "/pyroscope/render?from={from}&until={until}&query={}",
        "process_cpu:samples:count:cpu:nanoseconds"
    ));
    let total = render["flamebearer"]["numTicks"].as_u64().unwrap();
    assert_eq!(total, 360 * PER_SECOND, "{render}");
}

/// Posts a profile to a profcol that may be killed meanwhile.
fn try_send(to: SocketAddr, second: u64) -> std::io::Result<()> {
    let body = of_second(second).to_wire();
    let length = body.len();
    let head = format!(
        "POST /v1development/profiles HTTP/1.1\r\nhost: {to}\r\ncontent-type: application/x-protobuf\r\n\
         content-length: {length}\r\nconnection: close\r\n\r\n"
    );
    let mut stream = TcpStream::connect(to)?;
    stream.write_all(head.as_bytes())?;
    stream.write_all(&body)?;
    stream.read_to_end(&mut Vec::new())?;
    Ok(())
}

/// From the start to the regular end, with a profile in between. A preloaded library kills the unmodified program.
#[test]
fn a_kill_at_any_change_of_a_file_costs_nothing_that_is_on_disk() {
    let Some(faults) = Faults::of(&["/live/"]) else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let kept = folder.path().join("kept");
    let start = ten_minutes_ago();
    let host = Host::start(&kept);
    for end in [start + 20, start + 40, start + 60] {
        host.send(end - 20..end);
        host.wait_for_disk(end);
    }
    drop(host);
    let calls = faults.kill_at_each(|call| {
        let parent = tempfile::tempdir_in(folder.path()).unwrap();
        let directory = parent.path().join("live");
        copy_directory(&kept, &directory);
        let [otlp, page] = [free_address(), free_address()];
        let mut process = faults.profcol(&Host::config(&directory, otlp, page));
        let listens = || [otlp, page].iter().all(|it| TcpStream::connect(it).is_ok());
        wait_until("it to listen or to be killed", || {
            process.has_ended() || listens()
        });
        let is_sent = try_send(otlp, start + 60).is_ok();
        let is_killed = process.has_ended() || !process.stop().0.success();
        let host = Host::start(&directory);
        let shown = host.samples(start, start + 60);
        assert_eq!(shown, 60 * PER_SECOND, "killed at call {call}");
        let output = host.process.output();
        assert!(!output.contains("damaged"), "call {call}: {output}");
        if !is_killed {
            assert!(is_sent && host.samples(start + 60, start + 61) == PER_SECOND);
        }
        is_killed
    });
    assert!(calls >= 3, "only {calls} calls");
}

#[test]
fn only_one_process_uses_a_directory() {
    let folder = tempfile::tempdir().unwrap();
    let host = Host::start(folder.path());
    let config = Host::config(folder.path(), free_address(), free_address());
    let (status, output) = profcol(&config).ended();
    assert_eq!(status.code(), Some(1), "{output}");
    let expected = format!(
        "failed to start exporter live_view: directory {} is in use by process {}: stop that process, or use another directory",
        folder.path().display(),
        host.process.pid()
    );
    assert!(output.contains(&expected), "{output}");
}

#[test]
fn inspect_verifies_and_exports_it() {
    let folder = tempfile::tempdir().unwrap();
    let start = ten_minutes_ago();
    let host = Host::start(folder.path());
    for part in 0..5 {
        host.send(start + part * 20..start + part * 20 + 20);
        host.wait_for_disk(start + part * 20 + 20);
    }
    host.stop();
    let directory = path(folder.path());
    let export = folder.path().join("history.jsonl");
    let inspected = run(&["storage", "inspect", directory, "--export", path(&export)]);
    assert_eq!(inspected.code, Some(0), "{inspected:?}");
    let expected = format!("history of live_view: {} samples in ", 100 * PER_SECOND);
    assert!(inspected.stdout.contains(&expected), "{inspected:?}");
    assert!(
        inspected.stdout.contains(", 0 damaged places"),
        "{inspected:?}"
    );
    // The export is OTLP with all samples.
    let text = fs::read_to_string(&export).unwrap();
    let exported = text.lines().map(|line| {
        let request: Value = serde_json::from_str(line).unwrap();
        let resource = &request["resourceProfiles"][0];
        assert_eq!(
            resource["resource"]["attributes"][0]["key"], "process.executable.name",
            "{line}"
        );
        let profiles = resource["scopeProfiles"][0]["profiles"].as_array().unwrap();
        let samples = profiles
            .iter()
            .flat_map(|it| it["samples"].as_array().unwrap());
        let values = samples.flat_map(|it| it["values"].as_array().unwrap());
        values
            .map(|it| it.as_str().unwrap().parse::<u64>().unwrap())
            .sum::<u64>()
    });
    assert_eq!(exported.sum::<u64>(), 100 * PER_SECOND);

    // A flipped byte costs one record, wherever it is; the page shows the others, and says so.
    let segment = &segments(folder.path())[0];
    let whole = fs::read(segment).unwrap();
    for place in (1..8).map(|part| whole.len() * part / 10) {
        let mut bytes = whole.clone();
        bytes[place] ^= 1;
        fs::write(segment, bytes).unwrap();
        let inspected = run(&["storage", "inspect", directory]);
        assert_eq!(inspected.code, Some(1), "{place}: {inspected:?}");
        assert!(
            inspected.stdout.contains(", 1 damaged places"),
            "{place}: {inspected:?}"
        );
        let host = Host::start(folder.path());
        let shown = host.samples(start, start + 100);
        assert!((1..100 * PER_SECOND).contains(&shown), "{place}: {shown}");
        let status = host.get("/api/v1/status");
        assert_eq!(status["disk"]["damaged_segments"], 1, "{place}: {status}");
        let output = host.stop();
        assert!(
            output.contains("A segment of the history is damaged; its other records are shown."),
            "{place}: {output}"
        );
    }
}

#[test]
fn a_full_disk_costs_nothing_that_is_in_memory_or_on_it() {
    let Some(disk) = SmallDisk::mount("size=256k") else {
        return;
    };
    let start = ten_minutes_ago();
    let host = Host::start(disk.path());
    host.send(start..start + 20);
    host.wait_for_disk(start + 20);
    let filler = disk.path().join("filler");
    disk.fill(&filler);
    let mut end = start + 20;
    wait_until("the disk to be full", || {
        host.send(end..end + 1);
        end += 1;
        host.process
            .output()
            .contains("Failed to write the history to disk")
    });
    assert_eq!(host.samples(start, end), (end - start) * PER_SECOND);
    fs::remove_file(&filler).unwrap();
    wait_until("the history to be on disk again", || {
        host.process
            .output()
            .contains("The history is written to disk again.")
    });
    host.wait_for_disk(end);
    drop(host);
    let host = Host::start(disk.path());
    assert_eq!(host.samples(start, end), (end - start) * PER_SECOND);
    let failures = host.process.output().matches("Failed to write").count();
    assert_eq!(failures, 0);
}
