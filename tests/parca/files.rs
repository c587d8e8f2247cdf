//! Recording files of a real agent and of profcol.

use std::fs;
use std::path::Path;
use std::time::Duration;

use profcol_net::grpc::{Code, Status};
use profcol_parca::padata::Reader;
use profcol_test_harness::backend::{Client, Destination, Mode, endpoint_in, wait_until};
use profcol_test_harness::peers::{Process, profcol};
use profcol_test_harness::support::golden;

use crate::{profiles, total};

/// A profcol that uploads the files of a directory.
pub fn uploader(directory: &Path, to: &Destination, options: &str) -> Process {
    let mut process = profcol(&uploader_config(directory, to, options));
    process.wait_for_output("to be ready", |output| {
        output.contains("Everything is ready")
    });
    process
}

pub fn uploader_config(directory: &Path, to: &Destination, options: &str) -> String {
    format!(
        "\
receivers:
  padata: {{storage_path: \"{}\", poll_interval: 100ms, {options}}}
exporters:
  otlp_grpc:
    endpoint: {}
    tls: {{insecure: true}}
    retry_on_failure: {{initial_interval: 50ms, max_interval: 100ms}}
service:
  telemetry: {{metrics: {{level: none}}}}
  pipelines:
    profiles: {{receivers: [padata], exporters: [otlp_grpc]}}
",
        directory.display(),
        to.address
    )
}

/// A directory with a real agent's files.
pub fn recorded(layout: &str) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    for entry in fs::read_dir(golden(layout)).unwrap() {
        let path = entry.unwrap().path();
        fs::copy(&path, directory.path().join(path.file_name().unwrap())).unwrap();
    }
    directory
}

/// All file names in a directory, except the recorder's lock.
pub fn names(directory: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .filter(|name| name != ".recorder.lock")
        .collect();
    names.sort();
    names
}

#[test]
fn files_of_a_real_agent_are_delivered_up_to_where_they_are_torn() {
    // Uncompressed, rotated, and torn after the first batch.
    for (layout, rows, torn) in [
        (
            "parca/offline-v1",
            59 + 65 + 57 + 59,
            "1795255569-319-torn.padata.damaged",
        ),
        (
            "parca/offline-v2",
            40 + 61 + 10 + 48 + 63 + 40,
            "1795255519-23212-torn.padata.damaged",
        ),
    ] {
        let directory = recorded(layout);
        let destination = Destination::new(Mode::Take);
        let _uploader = uploader(directory.path(), &destination, "");
        wait_until("the files to be gone", || names(directory.path()) == [torn]);
        assert_eq!(total(&destination), rows, "{layout}");
    }
}

#[test]
fn an_exporter_that_gives_up_costs_the_other_nothing_twice() {
    let directory = recorded("parca/offline-v1");
    fs::remove_file(directory.path().join("1795255569-319-torn.padata")).unwrap();
    let good = Destination::new(Mode::Take);
    let flaky = Destination::new(Mode::Refuse(Status::new(Code::Unavailable, "later")));
    let mut process = profcol(&format!(
        "\
receivers:
  padata: {{storage_path: \"{}\", poll_interval: 100ms}}
exporters:
  otlp_grpc/good: {}
  otlp_grpc/flaky: {}
service:
  telemetry: {{metrics: {{level: none}}, logs: {{sampling: {{enabled: false}}}}}}
  pipelines:
    profiles: {{receivers: [padata], exporters: [otlp_grpc/good, otlp_grpc/flaky]}}
",
        directory.path().display(),
        good.impatient_exporter(),
        flaky.impatient_exporter()
    ));
    // The first file has two batches, so it was read again.
    process.wait_for_output("to give up twice", |output| {
        output.matches("The recording keeps the data.").count() > 2
    });
    flaky.set(Mode::Take);
    wait_until("the files to be gone", || {
        names(directory.path()).is_empty()
    });
    for destination in [good, flaky] {
        assert_eq!(total(&destination), 59 + 65 + 57);
    }
}

#[test]
fn once_exits_with_totals_after_delivery() {
    let directory = recorded("parca/offline-v1");
    fs::remove_file(directory.path().join("1795255569-319-torn.padata")).unwrap();
    let destination = Destination::new(Mode::Take);
    let config = uploader_config(directory.path(), &destination, "follow: false");
    let (status, output) = profcol(&config).ended();
    assert_eq!(status.code(), Some(0), "{output}");
    let samples = destination.samples();
    let totals = format!(
        "files=2 delivered_files=2 skipped_files=0 batches=3 delivered_batches=3 damaged_batches=0 \
         samples={samples} delivered_samples={samples} refused_samples=0 undelivered_samples=0"
    );
    assert_eq!(output.matches(&totals).count(), 1, "{totals} in {output}");
    assert_eq!(total(&destination), 59 + 65 + 57);

    let (status, output) = profcol(&config).ended();
    assert_eq!(status.code(), Some(0), "{output}");
    assert!(output.contains("files=0 delivered_files=0"), "{output}");
}

#[test]
fn once_fails_on_undelivered_data() {
    let refusal = Mode::Refuse(Status::new(Code::InvalidArgument, "never"));
    for (mode, options, totals) in [
        (
            Mode::Take,
            "",
            "files=3 delivered_files=2 skipped_files=0 batches=4 delivered_batches=4 damaged_batches=1",
        ),
        (
            refusal,
            "",
            "files=3 delivered_files=0 skipped_files=0 batches=4 delivered_batches=0 damaged_batches=1",
        ),
        (
            Mode::Refuse(Status::new(Code::Unavailable, "not now")),
            "when_undelivered: leave, max_in_flight: 1",
            "files=3 delivered_files=0 skipped_files=0 batches=1 delivered_batches=0 damaged_batches=0",
        ),
    ] {
        let directory = recorded("parca/offline-v1");
        let destination = Destination::new(mode);
        let options = format!("follow: false, {options}");
        let config = uploader_config(directory.path(), &destination, &options);
        let config = config.replace(
            "max_interval: 100ms",
            "max_interval: 100ms, max_elapsed_time: 300ms",
        );
        let (status, output) = profcol(&config).ended();
        assert_eq!(status.code(), Some(1), "{output}");
        assert!(output.contains(totals), "{totals} in {output}");
    }
}

#[test]
fn delivered_files_are_handled_as_configured() {
    let directory = recorded("parca/offline-v1");
    fs::remove_file(directory.path().join("1795255569-319-torn.padata")).unwrap();
    let before = names(directory.path());
    let destination = Destination::new(Mode::Take);
    {
        let _uploader = uploader(directory.path(), &destination, "after: keep");
        let done = || {
            let names = names(directory.path()).into_iter();
            let marks = names.filter(|name| name.ends_with(".progress"));
            let is_complete = |name: &String| {
                let mark = fs::read_to_string(directory.path().join(name));
                mark.is_ok_and(|mark| mark == "complete\n")
            };
            marks.filter(is_complete).count() == 2
        };
        wait_until("both to be marked", done);
        wait_until("all to arrive", || total(&destination) == 59 + 65 + 57);
    }
    assert!(
        before
            .iter()
            .all(|name| directory.path().join(name).exists())
    );
    // They are not delivered again.
    let moved = tempfile::tempdir().unwrap();
    for name in names(directory.path()) {
        if name.ends_with(".progress") {
            fs::remove_file(directory.path().join(name)).unwrap();
        }
    }
    let options = format!("after: move, move_to: \"{}\"", moved.path().display());
    let _uploader = uploader(directory.path(), &destination, &options);
    wait_until("both to be moved", || names(moved.path()) == before);
    assert_eq!(names(directory.path()), [""; 0]);
    assert_eq!(total(&destination), 2 * (59 + 65 + 57));
}

#[test]
fn a_file_stays_until_its_profiles_are_delivered() {
    let directory = recorded("parca/offline-v1");
    let before = names(directory.path());
    let destination = Destination::new(Mode::Refuse(Status::new(Code::Unavailable, "not now")));
    let killed = uploader(directory.path(), &destination, "max_in_flight: 1");
    destination.wait_for_requests(3);
    // Killed before delivering anything.
    drop(killed);
    assert!(
        before
            .iter()
            .all(|name| directory.path().join(name).exists())
    );
    destination.set(Mode::Take);
    let _uploader = uploader(directory.path(), &destination, "max_in_flight: 1");
    wait_until("the files to be gone", || {
        names(directory.path()).len() == 1
    });
    // The call in flight at the kill may have arrived.
    let rows = 59 + 65 + 57 + 59;
    assert!(
        (rows..=rows + 65).contains(&total(&destination)),
        "{}",
        total(&destination)
    );
}

#[test]
fn a_batch_refused_before_a_crash_keeps_its_file() {
    let directory = recorded("parca/offline-v1");
    let name = "1795255569-319.padata";
    for other in names(directory.path()) {
        if other != name {
            fs::remove_file(directory.path().join(other)).unwrap();
        }
    }
    // The state after a crash right after the first of two batches was refused.
    let note = directory.path().join(format!(".{name}.progress"));
    fs::write(note, "1\nrefused 0\n").unwrap();
    let destination = Destination::new(Mode::Take);
    let _uploader = uploader(directory.path(), &destination, "");
    let kept = format!("{name}.refused");
    wait_until("the file to be kept", || {
        names(directory.path()) == [kept.as_str()]
    });
    assert_eq!(destination.taken().len(), 1);
}

#[test]
fn a_crash_midway_duplicates_little_and_loses_nothing() {
    let directory = recorded("parca/offline-v2");
    let destination = Destination::new(Mode::Slow(Duration::from_millis(300)));
    let killed = uploader(directory.path(), &destination, "max_in_flight: 1");
    wait_until("two batches to be delivered", || {
        destination.taken().len() >= 2
    });
    drop(killed);
    let at_crash = destination.taken().len();
    destination.set(Mode::Take);
    let _uploader = uploader(directory.path(), &destination, "max_in_flight: 1");
    wait_until("the files to be gone", || {
        names(directory.path()).len() == 1
    });
    let batches = 2 + 3 + 1;
    let delivered = destination.taken().len();
    // One was in flight at the crash, and one more may have been delivered but not recorded.
    assert!(
        (batches..=batches + 2).contains(&delivered),
        "{delivered}, {at_crash} at the crash"
    );
    assert!(total(&destination) >= 40 + 61 + 10 + 48 + 63 + 40);
}

pub fn recorder(directory: &Path, options: &str) -> (Process, Client) {
    let mut process = profcol(&recorder_config(directory, options));
    process.wait_for_output("to be ready", |output| {
        output.contains("Everything is ready")
    });
    let client = Client::new(endpoint_in(&process.output(), "grpc"));
    (process, client)
}

pub fn recorder_config(directory: &Path, options: &str) -> String {
    format!(
        "\
receivers:
  otlp: {{protocols: {{grpc: {{endpoint: 127.0.0.1:0}}}}}}
exporters:
  padata: {{storage_path: \"{}\", {options}}}
service:
  telemetry: {{metrics: {{level: none}}}}
  pipelines:
    profiles: {{receivers: [otlp], exporters: [padata]}}
",
        directory.display()
    )
}

#[test]
fn acknowledged_batches_survive_a_crash() {
    let profiles = profiles();
    for schema in ["v1", "v2"] {
        let directory = tempfile::tempdir().unwrap();
        let (killed, client) = recorder(directory.path(), &format!("schema: {schema}"));
        for _ in 0..3 {
            client.send(&profiles).unwrap();
        }
        drop(killed);
        let plain = names(directory.path());
        assert_eq!(plain.len(), 1, "{plain:?}");
        let path = directory.path().join(&plain[0]);
        let bytes = fs::read(&path).unwrap();
        assert_eq!(bytes[..8], [0xa6, 0xe7, 0xcc, 0xca, 0, 0, 0, 3]);
        assert_eq!(Reader::new(&bytes[..], 1 << 20).unwrap().count(), 3);
        // A torn batch at the end was never acknowledged.
        fs::write(&path, [&bytes[..], b"torn"].concat()).unwrap();

        // The next start completes it.
        let (_recorder, client) = recorder(directory.path(), &format!("schema: {schema}"));
        assert_eq!(names(directory.path()), [format!("{}.zst", plain[0])]);
        client.send(&profiles).unwrap();

        // The file being written is left alone.
        let destination = Destination::new(Mode::Take);
        let _uploader = uploader(directory.path(), &destination, "");
        wait_until("the complete one to be gone", || {
            let names = names(directory.path());
            names.iter().all(|name| !name.ends_with(".zst")) && names.len() == 1
        });
        let sent = profiles.model().sample_count() as i64;
        assert!(sent > 0);
        assert_eq!(total(&destination) % 3, 0, "{schema}");
        assert!(total(&destination) >= 3 * sent, "{schema}");
    }
}

#[test]
fn rotates_files_and_drops_the_oldest() {
    let profiles = profiles();
    let directory = tempfile::tempdir().unwrap();
    let options = "max_file_bytes: 4096, max_total_bytes: 300000";
    let (_recorder, client) = recorder(directory.path(), options);
    for _ in 0..20 {
        client.send(&profiles).unwrap();
        let bytes: u64 = fs::read_dir(directory.path())
            .unwrap()
            .filter_map(|entry| entry.unwrap().metadata().ok())
            .map(|file| file.len())
            .sum();
        assert!(bytes <= 300_000, "{bytes} bytes");
    }
    assert!(names(directory.path()).len() > 1);

    let directory = tempfile::tempdir().unwrap();
    let options = "max_file_bytes: 4096, max_total_bytes: 120000, when_full: stop";
    let (mut stopped, client) = recorder(directory.path(), options);
    let refused = (0..200).find_map(|_| client.send(&profiles).err()).unwrap();
    assert_eq!(refused.code, Code::Unavailable, "{refused}");
    assert!(refused.message.contains("120000 bytes"), "{refused}");
    stopped.wait_for_output("to continue", |_| true);
}
