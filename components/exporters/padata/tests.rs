//! The names of files, and which of them are dropped.

use std::fs::{self, File};

use profcol_component::testkit::{batch, context, load};

use super::directory::{DropOutcome, RecordingDirectory};
use super::recording::free_name;
use super::*;

#[test]
fn names_are_unique_whatever_the_clock() {
    let process = std::process::id();
    let check = |there: &[&str], now: u64, expected: u64| {
        let directory = tempfile::tempdir().unwrap();
        for name in there {
            let name = name.replace("PID", &process.to_string());
            fs::write(directory.path().join(name), "").unwrap();
        }
        let name = free_name(directory.path(), now).unwrap();
        assert_eq!(name, format!("{expected}-{process}.padata"), "{there:?}");
    };
    check(&[], 7, 7);
    check(&["7-1.padata", "8-PID.padata"], 7, 7);
    check(&["7-PID.padata"], 7, 8);
    check(&["7-PID.padata.zst", "8-PID.padata", "10-PID.padata"], 7, 9);
    check(&["7-PID.padata.zst.damaged"], 7, 8);
    check(&["7-PID.padata.refused"], 7, 8);
    // A progress file would mark the new file as delivered.
    check(&[".7-PID.padata.progress"], 7, 8);
    check(&["7-PID.padata.unfinished"], 7, 8);
    let files: Vec<String> = (0..1500)
        .map(|second| format!("{second}-PID.padata.zst"))
        .collect();
    let files: Vec<&str> = files.iter().map(String::as_str).collect();
    check(&files, 0, 1500);
}

const NOTHING_COUNTED: DropOutcome = DropOutcome::File { samples: 0 };

#[test]
fn drops_the_oldest_file_that_is_not_in_use() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    for name in ["1-1.padata.zst", "2-1.padata.zst", "3-1.padata.zst"] {
        fs::write(path(name), "nothing that could be counted").unwrap();
    }
    let mut opened = RecordingDirectory::open(directory.path(), 1).unwrap();
    let uploader = File::open(path("1-1.padata.zst")).unwrap();
    uploader.lock().unwrap();
    fs::remove_file(path("2-1.padata.zst")).unwrap();
    assert_eq!(opened.drop_oldest().unwrap(), NOTHING_COUNTED);
    assert!(path("1-1.padata.zst").exists() && !path("3-1.padata.zst").exists());
    assert_eq!(opened.drop_oldest().unwrap(), DropOutcome::InUse);
    drop(uploader);
    assert_eq!(opened.drop_oldest().unwrap(), NOTHING_COUNTED);
    assert_eq!(opened.drop_oldest().unwrap(), DropOutcome::Nothing);
}

#[test]
fn the_lock_is_held_until_it_is_removed() {
    let parent = tempfile::tempdir().unwrap();
    let path = parent.path().join("recordings");
    let directory = RecordingDirectory::open(&path, 1).unwrap();
    assert!(directory.is_lock_held());
    fs::remove_dir_all(&path).unwrap();
    assert!(!directory.is_lock_held());
    let other = RecordingDirectory::open(&path, 1).unwrap();
    assert!(other.is_lock_held() && !directory.is_lock_held());
}

/// Records a file for each of the numbers of samples, then stops.
async fn record(directory: &Path, options: &str, samples: &[usize]) -> u64 {
    let options = format!("{{storage_path: \"{}\", {options}}}", directory.display());
    let context = context("padata");
    let exporter = Padata::build(&load(&options).unwrap(), &context).unwrap();
    exporter.start().await.unwrap();
    for &samples in samples {
        exporter.export(&batch(samples)).await.unwrap();
    }
    let name = "otelcol_exporter_padata_dropped_profile_samples";
    let dropped = context.meter.counter(name, "", &[("exporter", "padata")]);
    dropped.get()
}

/// The size of a file with one batch, before compression.
async fn bytes_of_file(options: &str, samples: usize) -> u64 {
    let directory = tempfile::tempdir().unwrap();
    record(directory.path(), options, &[samples]).await;
    let [file] = recordings(directory.path()).try_into().unwrap();
    fs::metadata(file).unwrap().len()
}

#[tokio::test]
async fn dropped_samples_are_counted_for_files_of_any_run() {
    for schema in ["v1", "v2"] {
        let directory = tempfile::tempdir().unwrap();
        let options = format!("schema: {schema}, max_file_bytes: 1");
        let dropped = record(directory.path(), &options, &[30, 40]).await;
        assert_eq!(dropped, 0, "{schema}");
        // Room for one and a half files: those of the earlier run are dropped, then some of this one.
        let room = bytes_of_file(&options, 100).await * 3 / 2;
        let bounded = format!("{options}, max_total_bytes: {room}");
        let dropped = record(directory.path(), &bounded, &[100; 20]).await;
        let kept = kept_samples(directory.path());
        assert!(dropped > 70, "{dropped} at {schema}");
        assert_eq!(dropped + kept, 30 + 40 + 20 * 100, "{schema}");
    }
}

#[tokio::test]
async fn delivered_samples_of_dropped_files_are_not_counted() {
    let check = async |note: &str, expected: u64| {
        let directory = tempfile::tempdir().unwrap();
        record(directory.path(), "", &[30, 40, 50]).await;
        // Opening the directory completes the file.
        let opened = RecordingDirectory::open(directory.path(), 1).unwrap();
        drop(opened);
        let [name] = recordings(directory.path()).try_into().unwrap();
        fs::write(profcol_parca::padata::progress_file(&name), note).unwrap();
        let mut opened = RecordingDirectory::open(directory.path(), 1).unwrap();
        let dropped = DropOutcome::File { samples: expected };
        assert_eq!(opened.drop_oldest().unwrap(), dropped, "{note:?}");
    };
    check("", 120).await;
    check("0\n", 120).await;
    check("1\n", 90).await;
    check("2\nrefused 0\n", 50).await;
    check("complete\n", 0).await;
}

fn recordings(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    let is_recording =
        |path: &PathBuf| !path.file_name().unwrap().to_string_lossy().starts_with('.');
    paths.filter(is_recording).collect()
}

/// The rows of all recordings in a directory.
fn kept_samples(directory: &Path) -> u64 {
    let rows = |path: PathBuf| {
        let file = File::open(&path).unwrap();
        let mut reader = profcol_parca::padata::Reader::of_file(&path, file, 1 << 20).unwrap();
        let batches = std::iter::from_fn(|| reader.next_batch().unwrap());
        let rows = batches.map(|batch| {
            let rows = profcol_parca::ipc::read(&batch.samples, 1 << 20).unwrap();
            rows.unwrap().num_rows() as u64
        });
        rows.sum::<u64>()
    };
    recordings(directory).into_iter().map(rows).sum()
}
