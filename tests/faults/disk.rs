//! Full disks: accepted data is never lost silently, no record is torn, and writing resumes when there is room again.

use std::fs;
use std::path::Path;

use profcol_component::testkit::profiles;
use profcol_net::grpc::Code;
use profcol_pprof::Limits;
use profcol_profile::{Model, Profiles, Validation};
use profcol_test_harness::backend::{Client, wait_until};
use profcol_test_harness::support::SmallDisk;

use crate::Rig;

#[test]
fn a_full_disk_refuses_the_client_and_tears_no_record() {
    let Some(disk) = SmallDisk::mount("size=256k") else {
        return;
    };
    let path = disk.path().join("profiles");
    let exporters = format!("  file: {{path: {}, format: proto}}", path.display());
    let rig = Rig::new(&exporters, "file");
    let client = Client::new(rig.grpc);
    let mut written = 0;
    let mut send = |samples| {
        let answer = client.send(&profiles(samples));
        written += if answer.is_ok() { samples } else { 0 };
        answer
    };
    send(10).unwrap();
    let ballast = disk.path().join("ballast");
    // Fails when the disk is full.
    let _ = fs::write(&ballast, vec![0; 1 << 20]);
    let refused = send(2000).unwrap_err();
    assert_eq!(refused.code, Code::Unavailable, "{refused}");
    assert!(refused.message.contains("space"), "{refused}");
    fs::remove_file(&ballast).expect("the test owns the file");
    send(20).unwrap();
    rig.stop();
    assert_eq!(samples_in(&path), written);
}

/// Sends until the disk is full, deletes files to make room, and continues.
fn rotates_until(options: &str) {
    let Some(disk) = SmallDisk::mount(options) else {
        return;
    };
    let folder = disk.path();
    let path = folder.join("profiles.bin").display().to_string();
    let exporters = format!(
        "  file: {{path: {path}, format: proto, rotation: {{max_megabytes: 1, max_backups: 0}}}}"
    );
    let rig = Rig::new(&exporters, "file");
    let client = Client::new(rig.grpc);
    let (mut taken, mut read) = (0, 0);
    for _ in 0..3 {
        let refused = loop {
            match client.send(&profiles(5000)) {
                Ok(()) => taken += 5000,
                Err(refused) => break refused,
            }
            assert!(taken < 1_000_000, "the disk is never full");
        };
        assert_eq!(refused.code, Code::Unavailable, "{refused}");
        assert!(refused.message.contains("No space left"), "{refused}");
        // Complete files may be deleted by others.
        let files = fs::read_dir(folder).expect("it exists");
        let names = files.map(|file| file.expect("it is readable").path());
        let done: Vec<_> = names
            .filter(|name| !name.ends_with("profiles.bin"))
            .collect();
        assert!(done.len() > 1, "{done:?}");
        for file in done {
            read += samples_in(&file);
            fs::remove_file(file).expect("the test owns the file");
        }
    }
    client.send(&profiles(7)).unwrap();
    drop(client);
    rig.stop();
    for file in fs::read_dir(folder).expect("it exists") {
        read += samples_in(&file.expect("it is readable").path());
    }
    assert_eq!(read, taken + 7, "{options}");
}

#[test]
fn a_full_disk_in_the_middle_of_a_rotation_loses_and_tears_nothing() {
    rotates_until("size=5m");
    // No free inode for another file.
    rotates_until("size=100m,nr_inodes=5");
}

/// A full disk, and a profcol that writes to it.
fn pprof_on_a_full_disk() -> Option<(SmallDisk, Rig)> {
    let disk = SmallDisk::mount("size=8m")?;
    let folder = disk.path().join("pprof");
    let exporters = format!(
        "  pprof_file: {{directory: {}, interval: 20ms, max_buffered_mib: 1}}",
        folder.display()
    );
    let rig = Rig::new(&exporters, "pprof_file");
    // Fails when the disk is full.
    let _ = fs::write(disk.path().join("ballast"), vec![0; 9 << 20]);
    Some((disk, rig))
}

#[test]
fn pprof_file_holds_unwritten_profiles_then_refuses_and_writes_later() {
    let Some((disk, mut rig)) = pprof_on_a_full_disk() else {
        return;
    };
    let client = Client::new(rig.grpc);
    let mut taken = 0;
    let mut refused = None;
    wait_until("the held profiles to reach the limit", || {
        match client.send(&profiles(3000)) {
            Ok(()) => taken += 3000,
            Err(why) => refused = Some(why),
        }
        refused.is_some()
    });
    let refused = refused.expect("the child has exited");
    assert_eq!(refused.code, Code::Unavailable, "{refused}");
    assert!(refused.message.contains("No space left"), "{refused}");
    assert!(taken > 0);

    fs::remove_file(disk.path().join("ballast")).expect("the test owns the file");
    rig.process
        .wait_for_output("to be able to write", |output| {
            output.contains("Writing files succeeds again")
        });
    client.send(&profiles(5)).unwrap();
    drop(client);
    rig.stop();
    assert_eq!(sum_of_pprof(&disk.path().join("pprof")), taken + 5);
}

#[test]
fn profiles_unwritten_at_shutdown_are_counted_and_fail_the_program() {
    let Some((disk, rig)) = pprof_on_a_full_disk() else {
        return;
    };
    Client::new(rig.grpc).send(&profiles(3000)).unwrap();
    let (status, output) = rig.process.stop();
    assert_eq!(status.code(), Some(1), "{output}");
    assert!(output.contains("3000 samples were not written"), "{output}");
    assert!(output.contains("No space left"), "{output}");
    assert_eq!(sum_of_pprof(&disk.path().join("pprof")), 0);
}

/// The number of samples in a file of length-prefixed protobuf.
fn samples_in(path: &Path) -> usize {
    let bytes = fs::read(path).expect("the file was written");
    let (mut rest, mut samples) = (&bytes[..], 0);
    while let Some((length, tail)) = rest.split_first_chunk() {
        let (record, tail) = tail.split_at(u32::from_be_bytes(*length) as usize);
        let record = Profiles::from_wire(record.to_vec().into(), Validation::Reject);
        samples += record
            .expect("records are complete")
            .profiles
            .sample_count();
        rest = tail;
    }
    assert!(rest.is_empty(), "the last record is torn");
    samples
}

/// The sum of all values in the files of a directory, each of which must be complete.
fn sum_of_pprof(folder: &Path) -> usize {
    let files = fs::read_dir(folder).expect("it exists");
    let sum = |file: std::io::Result<fs::DirEntry>| {
        let path = file.expect("it is readable").path();
        let bytes = fs::read(&path).expect("it is readable");
        let model = profcol_pprof::read(&bytes, Limits::default());
        let model: Model = model.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let profiles = model.profiles();
        let values = profiles.flat_map(|profile| profile.samples.iter().flat_map(|row| row.values));
        values.sum::<i64>()
    };
    usize::try_from(files.map(sum).sum::<i64>()).expect("values are not negative")
}
