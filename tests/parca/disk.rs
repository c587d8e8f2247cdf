//! Faults of recording directories: disks that are full, read-only or gone, several processes, invalid files.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use profcol_component::testkit::profiles;
use profcol_net::grpc::Code;
use profcol_test_harness::backend::{Destination, Mode, wait_until};
use profcol_test_harness::support::{Ended, SmallDisk, path, run, skip};

use crate::files::{names, recorded, recorder, uploader};
use crate::total;

/// The number of rows in the recordings of a directory, all of which must be complete.
fn rows_in(directory: &Path) -> usize {
    let listing = run(&["upload", path(directory), "--dry-run"]);
    assert!(!listing.stdout.contains("damaged"), "{listing:?}");
    let last = listing.stdout.lines().last().unwrap_or_default();
    let (before, _) = last.split_once(" rows").unwrap();
    before.rsplit(' ').next().unwrap().parse().unwrap()
}

fn ballast(disk: &SmallDisk) -> PathBuf {
    let ballast = disk.path().join("ballast");
    // Fails when the disk is full.
    let _ = fs::write(&ballast, vec![0; 8 << 20]);
    ballast
}

/// Makes a directory read-only while this lives; files open for writing stay writable.
struct ReadOnly(PathBuf);

impl ReadOnly {
    fn new(directory: &Path) -> Self {
        let mount = Command::new("mount")
            .args(["--bind", "-o", "ro"])
            .args([directory, directory])
            .status();
        assert!(mount.is_ok_and(|status| status.success()));
        Self(directory.to_owned())
    }
}

impl Drop for ReadOnly {
    fn drop(&mut self) {
        // If this fails, only a temporary directory remains.
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

fn is_root_or_skip() -> bool {
    let user = Command::new("id").arg("-u").output();
    user.is_ok_and(|user| user.stdout == b"0\n")
        || skip("only root can mount a directory read-only")
}

#[test]
fn a_full_disk_is_logged_and_recording_resumes_when_there_is_room() {
    let Some(disk) = SmallDisk::mount("size=2m") else {
        return;
    };
    let directory = disk.path().join("recordings");
    let (_recorder, client) = recorder(&directory, "when_full: stop");
    client.send(&profiles(10)).unwrap();
    let ballast = ballast(&disk);
    let refused = client.send(&profiles(500)).unwrap_err();
    assert_eq!(refused.code, Code::Unavailable, "{refused}");
    assert!(refused.message.contains("No space left"), "{refused}");
    fs::remove_file(ballast).unwrap();
    client.send(&profiles(20)).unwrap();
    assert!(
        names(&directory)
            .iter()
            .all(|name| !name.contains("unfinished"))
    );
    drop(_recorder);
    assert_eq!(rows_in(&directory), 10 + 20);
}

#[test]
fn on_a_full_disk_old_recordings_are_dropped_if_configured() {
    let Some(disk) = SmallDisk::mount("size=2m") else {
        return;
    };
    let directory = disk.path().join("recordings");
    let (_recorder, client) = recorder(&directory, "max_file_bytes: 1");
    for _ in 0..5 {
        client.send(&profiles(2000)).unwrap();
    }
    let before = names(&directory).len();
    let _ballast = ballast(&disk);
    for _ in 0..3 {
        client.send(&profiles(100)).unwrap();
    }
    assert!(
        names(&directory).len() < before + 3,
        "{:?}",
        names(&directory)
    );
}

#[test]
fn a_temporarily_read_only_disk_loses_nothing() {
    if !is_root_or_skip() {
        return;
    }
    let parent = tempfile::tempdir().unwrap();
    let directory = parent.path().join("recordings");
    let (_recorder, client) = recorder(&directory, "max_file_bytes: 1");
    client.send(&profiles(10)).unwrap();
    // A file that is open for writing would prevent the remount.
    wait_until("the file to be complete", || {
        names(&directory).iter().any(|name| name.ends_with(".zst"))
            && names(&directory)
                .iter()
                .all(|name| !name.ends_with(".padata"))
    });
    let read_only = ReadOnly::new(&directory);
    let refused = client.send(&profiles(5)).unwrap_err();
    drop(read_only);
    assert_eq!(refused.code, Code::Unavailable, "{refused}");
    assert!(refused.message.contains("Read-only"), "{refused}");
    client.send(&profiles(20)).unwrap();
    drop(_recorder);
    assert_eq!(rows_in(&directory), 10 + 20);
}

#[test]
fn a_deleted_directory_is_created_again() {
    let parent = tempfile::tempdir().unwrap();
    let directory = parent.path().join("recordings");
    let (mut recorder, client) = recorder(&directory, "");
    client.send(&profiles(10)).unwrap();
    fs::remove_dir_all(&directory).unwrap();
    client.send(&profiles(20)).unwrap();
    recorder.wait_for_output("to log it", |output| output.contains("was removed"));
    let second = second_recorder(&directory);
    assert!(second.stderr.contains(IN_USE), "{second:?}");
    drop(recorder);
    assert_eq!(rows_in(&directory), 20);
}

#[test]
fn a_file_that_alone_reaches_the_limit_makes_room_for_the_next() {
    let parent = tempfile::tempdir().unwrap();
    let directory = parent.path().join("recordings");
    let bounds = "max_file_bytes: 300000, max_total_bytes: 300000";
    let (_recorder, client) = recorder(&directory, bounds);
    for _ in 0..30 {
        client.send(&profiles(200)).unwrap();
    }
    assert!(rows_in(&directory) < 30 * 200, "nothing was dropped");
}

const IN_USE: &str =
    "the directory is locked by another recorder: use a separate directory for each";

/// The result of another process that tries to record into the same directory.
fn second_recorder(directory: &Path) -> Ended {
    let config = format!(
        "yaml:{{receivers: {{otlp: {{protocols: {{grpc: {{endpoint: 127.0.0.1:0}}}}}}}}, \
         exporters: {{padata: {{storage_path: \"{}\"}}}}, \
         service: {{telemetry: {{metrics: {{level: none}}}}, \
         pipelines: {{profiles: {{receivers: [otlp], exporters: [padata]}}}}}}}}",
        directory.display()
    );
    run(&["--config", &config])
}

#[test]
fn two_recorders_do_not_share_a_directory() {
    let directory = tempfile::tempdir().unwrap();
    let (_first, client) = recorder(directory.path(), "");
    client.send(&profiles(10)).unwrap();
    let second = second_recorder(directory.path());
    assert_eq!(second.code, Some(1), "{second:?}");
    assert!(second.stderr.contains(IN_USE), "{second:?}");
    client.send(&profiles(10)).unwrap();
}

#[test]
fn two_uploaders_share_a_directory_and_deliver_nothing_twice() {
    let directory = recorded("parca/offline-v2");
    let destination = Destination::new(Mode::Slow(Duration::from_millis(50)));
    let _first = uploader(directory.path(), &destination, "max_in_flight: 1");
    let _second = uploader(directory.path(), &destination, "max_in_flight: 1");
    let torn = "1795255519-23212-torn.padata.damaged";
    wait_until("the files to be gone", || names(directory.path()) == [torn]);
    assert_eq!(total(&destination), 40 + 61 + 10 + 48 + 63 + 40);
}

#[test]
fn invalid_files_are_logged_with_their_offset_and_the_others_continue() {
    let directory = recorded("parca/offline-v1");
    let good = fs::read(directory.path().join("1795255569-319.padata")).unwrap();
    for name in names(directory.path()) {
        if name != "1795255569-319.padata" {
            fs::remove_file(directory.path().join(name)).unwrap();
        }
    }
    let first_frame = u32::from_be_bytes(good[8..12].try_into().unwrap()) as usize;
    let mut hostile = good.clone();
    // The first record claims other lengths than it has.
    hostile[12 + 16..12 + 48].fill(0xff);
    let changed = |at: usize, bytes: &[u8]| {
        let mut changed = good.clone();
        changed[at..at + bytes.len()].copy_from_slice(bytes);
        changed
    };
    let bad = [
        (
            "1-1.padata",
            b"#!/bin/sh\nexit 0\n".to_vec(),
            "not a profile file",
        ),
        ("2-1.padata", Vec::new(), "not a profile file"),
        ("3-1.padata", good[..5].to_vec(), "the file ends at byte 5"),
        (
            "4-1.padata",
            changed(4, &[0, 9]),
            "unknown format version 9",
        ),
        (
            "5-1.padata",
            changed(8, &[0xff; 4]),
            "the frame at byte 8 is 4294967295 bytes long",
        ),
        (
            "6-1.padata",
            good[..first_frame].to_vec(),
            "the file ends at byte",
        ),
        (
            "7-1.padata.zst",
            b"no zstd at all".to_vec(),
            "reading failed at byte 0",
        ),
        ("8-1.padata", hostile, "the record at byte 8"),
    ];
    for (name, bytes, _) in &bad {
        fs::write(directory.path().join(name), bytes).unwrap();
    }
    let destination = Destination::new(Mode::Take);
    let uploader = uploader(directory.path(), &destination, "");
    let mut expected: Vec<String> = bad
        .iter()
        .map(|(name, ..)| format!("{name}.damaged"))
        .collect();
    expected.sort();
    wait_until("only the invalid ones to remain", || {
        names(directory.path()) == expected
    });
    assert_eq!(total(&destination), 59 + 65);
    let output = uploader.output();
    for (name, _, reason) in bad {
        let is_logged = output
            .lines()
            .any(|line| line.contains(name) && line.contains(reason));
        assert!(is_logged, "{name}: {reason}: {output}");
    }
}

#[test]
fn a_file_that_grows_during_delivery_is_delivered_completely() {
    let directory = recorded("parca/offline-v2");
    let name = "1795255519-23212.padata";
    for other in names(directory.path()) {
        if other != name {
            fs::remove_file(directory.path().join(other)).unwrap();
        }
    }
    let file = directory.path().join(name);
    let bytes = fs::read(&file).unwrap();
    let first = 12 + u32::from_be_bytes(bytes[8..12].try_into().unwrap()) as usize;
    fs::write(&file, &bytes[..first]).unwrap();
    let growing = OpenOptions::new().append(true).open(&file).unwrap();
    let counting = OpenOptions::new().write(true).open(&file).unwrap();
    counting.write_all_at(&[0, 1], 6).unwrap();
    let destination = Destination::new(Mode::Slow(Duration::from_millis(500)));
    let _uploader = uploader(directory.path(), &destination, "");
    destination.wait_for_requests(1);
    (&growing).write_all(&bytes[first..]).unwrap();
    counting.write_all_at(&[0, 2], 6).unwrap();
    wait_until("the file to be gone", || names(directory.path()).is_empty());
    assert_eq!(total(&destination), 40 + 61);
}

#[test]
fn a_file_open_for_writing_is_left_alone() {
    let directory = recorded("parca/offline-v2");
    let done = "1795255519-23212.padata";
    for other in names(directory.path()) {
        if other != done {
            fs::remove_file(directory.path().join(other)).unwrap();
        }
    }
    // Like Parca Agent: open, but not locked.
    let open = directory
        .path()
        .join(format!("9999999999-{}.padata", std::process::id()));
    fs::copy(directory.path().join(done), &open).unwrap();
    let writer = OpenOptions::new().write(true).open(&open).unwrap();
    let destination = Destination::new(Mode::Take);
    let _uploader = uploader(directory.path(), &destination, "");
    wait_until("the other to be gone", || {
        names(directory.path()).len() == 1
    });
    // Three times the interval of reading the directory.
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(total(&destination), 40 + 61);
    drop(writer);
    wait_until("it to be gone", || names(directory.path()).is_empty());
    assert_eq!(total(&destination), 2 * (40 + 61));
}

#[test]
fn leftovers_of_an_interrupted_compression_are_delivered_once() {
    let directory = recorded("parca/offline-v2");
    let plain = "1795255519-23212.padata";
    for other in names(directory.path()) {
        if other != plain {
            fs::remove_file(directory.path().join(other)).unwrap();
        }
    }
    // Parca Agent writes to the final name from the start.
    fs::write(directory.path().join(format!("{plain}.zst")), b"torn").unwrap();
    let destination = Destination::new(Mode::Take);
    let _uploader = uploader(directory.path(), &destination, "");
    wait_until("both to be gone", || names(directory.path()).is_empty());
    assert_eq!(total(&destination), 40 + 61);
}

#[test]
fn a_delivered_file_that_cannot_be_removed_is_not_delivered_again() {
    let directory = recorded("parca/offline-v1");
    if !is_root_or_skip() {
        return;
    }
    let read_only = ReadOnly::new(directory.path());
    let destination = Destination::new(Mode::Take);
    let rows = 57 + 59 + 65 + 59;
    {
        let _uploader = uploader(directory.path(), &destination, "");
        wait_until("all to arrive", || total(&destination) >= rows);
        // Five times the interval of reading the directory.
        std::thread::sleep(Duration::from_millis(500));
    }
    drop(read_only);
    assert_eq!(total(&destination), rows);
}
