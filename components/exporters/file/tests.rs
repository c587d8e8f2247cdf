//! Files as their readers find them: formats, rotation, groups, and files that others move, empty or remove.
//! The full disk is a tmpfs of 64 KiB, which only root can mount.

use profcol_component::StatusBoard;
use profcol_test_skip::SmallDisk;
use std::fs;
use std::path::{Path, PathBuf};

use profcol_component::testkit::{batch, context};
use profcol_otlp::json;
use profcol_profile::{KeyValue, Validation};
use tempfile::TempDir;
use tokio::task::JoinSet;

use super::*;
use profcol_component::testkit::load;

/// A started exporter, and its path.
struct Started {
    exporter: Arc<File>,
    context: BuildContext,
    path: PathBuf,
}

impl Started {
    async fn at(path: PathBuf, options: &str) -> Result<Self, StartError> {
        let options = format!("{{path: '{}', {options}}}", path.display());
        let context = context("file");
        let exporter = Arc::new(File::new(&load(&options).unwrap(), &context));
        exporter.start().await?;
        Ok(Self {
            exporter,
            context,
            path,
        })
    }

    async fn export(&self, samples: usize) -> Result<Delivered, Refusal> {
        self.exporter.export(&batch(samples)).await
    }
}

fn directory() -> TempDir {
    tempfile::tempdir().unwrap()
}

/// Number of samples in each line of OTLP JSON.
fn lines(path: &Path) -> Vec<usize> {
    let text = fs::read(path).unwrap();
    assert!(text.is_empty() || text.ends_with(b"\n"));
    let lines = text.split_inclusive(|&byte| byte == b'\n');
    lines
        .map(|line| {
            json::receive(line, Validation::Reject)
                .unwrap()
                .profiles
                .sample_count()
        })
        .collect()
}

/// The length-prefixed records.
fn records(path: &Path) -> Vec<Vec<u8>> {
    let bytes = fs::read(path).unwrap();
    let mut rest = bytes.as_slice();
    let mut records = Vec::new();
    while let Some((length, after)) = rest.split_first_chunk::<4>() {
        let (record, after) = after.split_at(u32::from_be_bytes(*length) as usize);
        records.push(record.to_vec());
        rest = after;
    }
    assert!(rest.is_empty());
    records
}

fn backups(path: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(path.parent().unwrap()).unwrap();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.retain(|found| found != path);
    paths.sort();
    paths
}

fn named(service: &str, samples: usize) -> Batch {
    let mut batch = batch(samples);
    batch.profiles.update_resources(|resource| {
        resource
            .attributes
            .push(KeyValue::new("service.name", service));
        true
    });
    batch
}

#[tokio::test]
async fn json_is_a_line_per_batch() {
    let directory = directory();
    let file = Started::at(directory.path().join("out.jsonl"), "")
        .await
        .unwrap();
    for samples in [3, 1, 2] {
        file.export(samples).await.unwrap();
    }
    assert_eq!(lines(&file.path), [3, 1, 2]);
}

#[tokio::test]
async fn other_formats_are_length_prefixed_records() {
    let directory = directory();
    let unpack = |record: &[u8]| zstd::bulk::decompress(record, 1 << 20).unwrap();
    let from_wire = |wire: Vec<u8>| Profiles::from_wire(wire.into(), Validation::Reject);
    type Read<'a> = &'a dyn Fn(&[u8]) -> Profiles;
    let check = async |options: &str, read: Read<'_>| {
        let file = Started::at(directory.path().join("out"), options)
            .await
            .unwrap();
        file.export(3).await.unwrap();
        file.export(2).await.unwrap();
        let records = records(&file.path);
        let samples: Vec<usize> = records
            .iter()
            .map(|record| read(record).sample_count())
            .collect();
        assert_eq!(samples, [3, 2], "{options}");
    };
    check("format: proto", &|record| {
        from_wire(record.to_vec()).unwrap().profiles
    })
    .await;
    check("format: proto, compression: zstd", &|record| {
        from_wire(unpack(record)).unwrap().profiles
    })
    .await;
    check("compression: zstd", &|record| {
        json::receive(&unpack(record), Validation::Reject)
            .unwrap()
            .profiles
    })
    .await;
}

#[tokio::test]
async fn truncates_the_file_unless_configured_to_append() {
    let directory = directory();
    let check = async |options: &str, expected: &[usize]| {
        let path = directory.path().join("out");
        let file = Started::at(path, options).await.unwrap();
        file.export(1).await.unwrap();
        assert_eq!(lines(&file.path), expected, "{options}");
    };
    check("", &[1]).await;
    check("append: true", &[1, 1]).await;
    check("rotation: {}", &[1, 1, 1]).await;
    check("append: false", &[1]).await;
}

/// What another program does with the file.
enum Change {
    Move,
    Remove,
    Replace,
    Empty,
    RemoveDirectory,
}

#[tokio::test]
async fn continues_at_its_path_when_the_file_is_moved_or_truncated() {
    let check = async |options: &str, change: Change, moved: &[usize], found: &[usize]| {
        let directory = directory();
        let path = directory.path().join("profiles/out.jsonl");
        fs::create_dir(directory.path().join("profiles")).unwrap();
        let file = Started::at(path.clone(), options).await.unwrap();
        file.export(1).await.unwrap();
        let aside = directory.path().join("out.jsonl.1");
        match change {
            Change::Move => fs::rename(&path, &aside).unwrap(),
            Change::Remove => fs::remove_file(&path).unwrap(),
            Change::Replace => {
                fs::rename(&path, &aside).unwrap();
                fs::copy(&aside, &path).unwrap();
            }
            Change::Empty => {
                fs::copy(&path, &aside).unwrap();
                let emptied = fs::File::options().write(true).open(&path).unwrap();
                emptied.set_len(0).unwrap();
            }
            Change::RemoveDirectory => fs::remove_dir_all(path.parent().unwrap()).unwrap(),
        }
        for samples in [2, 3] {
            file.export(samples).await.unwrap();
        }
        assert_eq!(lines(&path), found, "{options}");
        if !moved.is_empty() {
            assert_eq!(lines(&aside), moved, "{options}");
        }
    };
    for options in ["", "append: true", "rotation: {}"] {
        check(options, Change::Move, &[1], &[2, 3]).await;
        check(options, Change::Remove, &[], &[2, 3]).await;
        check(options, Change::Replace, &[1], &[1, 2, 3]).await;
        check(options, Change::Empty, &[1], &[2, 3]).await;
        let options = format!("create_directory: true, {options}");
        check(&options, Change::RemoveDirectory, &[], &[2, 3]).await;
    }
}

#[tokio::test]
async fn refusal_is_retryable_while_the_directory_is_missing() {
    let parent = directory();
    let directory = parent.path().join("profiles");
    fs::create_dir(&directory).unwrap();
    let file = Started::at(directory.join("out.jsonl"), "").await.unwrap();
    file.export(1).await.unwrap();
    fs::remove_dir_all(&directory).unwrap();
    let refusal = file.export(2).await.unwrap_err();
    assert!(refusal.is_retryable());
    assert!(refusal.to_string().contains("No such file"), "{refusal}");
    fs::create_dir(&directory).unwrap();
    file.export(3).await.unwrap();
    assert_eq!(lines(&file.path), [3]);
}

#[tokio::test]
async fn groups_continue_at_their_paths_when_files_are_moved() {
    let directory = directory();
    let options = "group_by: {enabled: true, resource_attribute: service.name}";
    let file = Started::at(directory.path().join("*.jsonl"), options)
        .await
        .unwrap();
    let path = |name: &str| directory.path().join(name);
    for service in ["a", "b"] {
        file.exporter.export(&named(service, 1)).await.unwrap();
    }
    fs::rename(path("a.jsonl"), path("a.jsonl.1")).unwrap();
    for service in ["a", "b"] {
        file.exporter.export(&named(service, 2)).await.unwrap();
    }
    assert_eq!(lines(&path("a.jsonl.1")), [1]);
    assert_eq!(lines(&path("a.jsonl")), [2]);
    assert_eq!(lines(&path("b.jsonl")), [1, 2]);
}

#[tokio::test]
async fn terminates_a_truncated_line_before_appending() {
    let directory = directory();
    let path = directory.path().join("out");
    fs::write(&path, "{\"resourceProf").unwrap();
    let file = Started::at(path, "append: true").await.unwrap();
    file.export(1).await.unwrap();
    let text = fs::read_to_string(&file.path).unwrap();
    let (torn, rest) = text.split_once('\n').unwrap();
    assert_eq!(torn, "{\"resourceProf");
    json::receive(rest.as_bytes(), Validation::Reject).unwrap();
}

#[tokio::test]
async fn renames_a_file_with_a_truncated_record() {
    let directory = directory();
    let path = directory.path().join("out.bin");
    let torn = [&[0, 0, 0, 1, 7][..], &[0, 0, 0, 9, 7]].concat();
    fs::write(&path, &torn).unwrap();
    let file = Started::at(path, "append: true, format: proto")
        .await
        .unwrap();
    file.export(1).await.unwrap();
    assert_eq!(records(&file.path).len(), 1);
    let [aside] = backups(&file.path).try_into().unwrap();
    assert_eq!(fs::read(aside).unwrap(), torn);
}

#[tokio::test]
async fn appends_to_a_file_of_complete_records() {
    let directory = directory();
    let path = directory.path().join("out.bin");
    fs::write(&path, [0, 0, 0, 1, 7]).unwrap();
    let file = Started::at(path, "append: true, format: proto")
        .await
        .unwrap();
    file.export(1).await.unwrap();
    assert_eq!(records(&file.path).len(), 2);
}

fn lines_rules(max_bytes: u64, max_age: Option<Duration>, max_backups: usize) -> FileRules {
    let options = load::<FileConfig>("path: unused").unwrap();
    let format = RecordFormat {
        format: options.format,
        compression: options.compression,
    };
    FileRules {
        format,
        rotation: Some(RotationRules { max_bytes, max_age }),
        backups: Backups {
            localtime: false,
            max_backups,
            max_age,
        },
    }
}

fn write_lines(path: &Path, rules: FileRules, texts: &[&str]) {
    let mut files = Files::new(rules, false, None, 1);
    for text in texts {
        files.append(path, format!("{text}\n").as_bytes()).unwrap();
    }
}

#[test]
fn rotates_by_size_and_keeps_max_backups() {
    let check = |max_bytes, max_backups, texts: &[&str], expected: &[&str]| {
        let directory = directory();
        let path = directory.path().join("out.jsonl");
        write_lines(&path, lines_rules(max_bytes, None, max_backups), texts);
        let mut files = backups(&path);
        files.push(path);
        let found: Vec<String> = files
            .iter()
            .map(|path| fs::read_to_string(path).unwrap())
            .collect();
        assert_eq!(found, expected);
        for backup in &files[..files.len() - 1] {
            let name = backup.file_name().unwrap().to_str().unwrap();
            assert!(
                name.starts_with("out-20") && name.ends_with(".jsonl"),
                "{name}"
            );
        }
    };
    check(
        4,
        0,
        &["a", "b", "c", "d", "e"],
        &["a\nb\n", "c\nd\n", "e\n"],
    );
    check(4, 1, &["a", "b", "c", "d", "e"], &["c\nd\n", "e\n"]);
    check(
        4,
        0,
        &["a", "too large", "c"],
        &["a\n", "too large\n", "c\n"],
    );
    check(2, 2, &["a", "b", "c", "d", "e"], &["c\n", "d\n", "e\n"]);
}

#[test]
fn rotates_and_deletes_by_age() {
    let directory = directory();
    let path = directory.path().join("out.jsonl");
    let kept = directory.path().join("out-2999-01-01T00-00-00.000.jsonl");
    let foreign = directory.path().join("out-of-date.jsonl");
    let old = directory.path().join("out-2001-01-01T00-00-00.000.jsonl");
    for path in [&kept, &foreign, &old] {
        fs::write(path, "").unwrap();
    }
    let days = Duration::from_secs(3 * 24 * 60 * 60);
    write_lines(&path, lines_rules(2, Some(days), 0), &["a", "b"]);
    let left = backups(&path);
    assert!(
        left.contains(&kept) && left.contains(&foreign) && !left.contains(&old),
        "{left:?}"
    );
    assert_eq!(left.len(), 3);

    write_lines(&path, lines_rules(1000, Some(Duration::ZERO), 0), &["c"]);
    assert_eq!(fs::read_to_string(&path).unwrap(), "c\n");
}

#[test]
fn a_segment_cannot_escape_the_directory() {
    let check = |path: &str, segment: &str, expected: &str| {
        let (prefix, suffix) = path.split_once('*').unwrap();
        let groups = layout::Groups::new("service.name", prefix, suffix);
        assert_eq!(
            groups.path(segment),
            Path::new(expected),
            "{path} {segment}"
        );
    };
    check("/data/*.json", "shop", "/data/shop.json");
    check("/data/*.json", "shop/cart", "/data/shop/cart.json");
    check("/data/*.json", "./shop", "/data/shop.json");
    check("/data/*.json", "../shop", "/data/shop.json");
    check("/data/*.json", "../../etc/passwd", "/data/etc/passwd.json");
    check(
        "/data/*.json",
        "a/../../../etc/passwd",
        "/data/etc/passwd.json",
    );
    check("/data/*.json", "/etc/passwd", "/data/etc/passwd.json");
    check("/data/*.json", "", "/data/.json");
    check("data/./*/out", "..", "data/out");
    check("data/file-*", "a/b", "data/file-a/b");
}

#[tokio::test]
async fn writes_each_group_to_its_own_file_with_one_open_at_a_time() {
    let directory = directory();
    let options = "group_by: {enabled: true, resource_attribute: service.name, max_open_files: 1}";
    let file = Started::at(directory.path().join("new/*.jsonl"), options)
        .await
        .unwrap();
    let parts = [named("a", 1), named("b", 2), named("c", 3)].map(|batch| batch.profiles);
    let merged = Batch::new(Profiles::merge(parts));
    for _ in 0..2 {
        assert_eq!(
            file.exporter.export(&merged).await.unwrap(),
            Delivered::default()
        );
    }
    for (name, samples) in [("a", 1), ("b", 2), ("c", 3)] {
        let path = directory.path().join(format!("new/{name}.jsonl"));
        assert_eq!(lines(&path), [samples, samples]);
    }
}

#[tokio::test]
async fn drops_and_counts_resources_without_a_file_name() {
    let directory = directory();
    let options = "group_by: {enabled: true, resource_attribute: service.name}";
    let file = Started::at(directory.path().join("*.jsonl"), options)
        .await
        .unwrap();
    let impossible = "x".repeat(5000);
    let parts = [named("a", 1), batch(2), named(&impossible, 4)].map(|batch| batch.profiles);
    let delivered = file
        .exporter
        .export(&Batch::new(Profiles::merge(parts)))
        .await
        .unwrap();
    assert_eq!(delivered.rejected_profiles, 2);
    assert_eq!(lines(&directory.path().join("a.jsonl")), [1]);
    let metrics = String::from_utf8(file.context.meter.render().unwrap()).unwrap();
    let line = "otelcol_exporter_file_ungrouped_profile_samples{exporter=\"file\"} 6";
    assert!(metrics.contains(line), "{metrics}");
}

#[tokio::test]
async fn startup_fails_for_a_missing_directory_unless_created() {
    use std::os::unix::fs::PermissionsExt;
    let directory = directory();
    let path = directory.path().join("a/b/out");
    let error = Started::at(path.clone(), "").await.err().unwrap();
    assert!(
        error.to_string().starts_with("failed to write to "),
        "{error}"
    );
    let options = "create_directory: true, directory_permissions: '0700'";
    Started::at(path.clone(), options).await.unwrap();
    let mode = fs::metadata(path.parent().unwrap())
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o700);
}

#[tokio::test(start_paused = true)]
async fn syncs_after_the_interval_and_at_the_end() {
    let directory = directory();
    let file = Started::at(directory.path().join("out"), "flush_interval: 3s")
        .await
        .unwrap();
    let stop = Stop::new();
    let mut running = JoinSet::new();
    running.spawn(Arc::clone(&file.exporter).run(stop.clone()));
    let unsynced = || file.exporter.shared.files.lock().take_unsynced().len();
    file.export(1).await.unwrap();
    tokio::time::sleep(Duration::from_secs(10)).await;
    // The sync runs on its own thread, which the paused clock does not wait for.
    while Arc::strong_count(&file.exporter.shared) > 1 {
        tokio::task::yield_now().await;
    }
    assert_eq!(unsynced(), 0);
    file.export(1).await.unwrap();
    stop.cancel();
    running.join_next().await.unwrap().unwrap().unwrap();
    assert_eq!(unsynced(), 0);
}

#[tokio::test]
async fn a_full_disk_leaves_no_partial_record_and_writing_resumes() {
    let Some(disk) = SmallDisk::mount("size=64k") else {
        return;
    };
    let ballast = disk.path().join("ballast");
    fs::write(&ballast, vec![0; 40 << 10]).unwrap();
    let file = Started::at(disk.path().join("out"), "format: proto")
        .await
        .unwrap();
    let mut taken = 0;
    let refusal = loop {
        match file.export(20).await {
            Ok(_) => taken += 1,
            Err(refusal) => break refusal,
        }
    };
    assert!(refusal.is_retryable(), "{refusal}");
    assert!(taken > 0);
    assert_eq!(records(&file.path).len(), taken);
    let status = || file.context.shared.get::<StatusBoard>().snapshot()["file"].clone();
    assert!(
        matches!(status(), Status::RecoverableError(_)),
        "{:?}",
        status()
    );

    fs::remove_file(ballast).unwrap();
    file.export(20).await.unwrap();
    assert_eq!(records(&file.path).len(), taken + 1);
    assert_eq!(status(), Status::Ok);
}

#[tokio::test]
async fn a_batch_is_written_to_all_of_its_files_or_none() {
    let Some(disk) = SmallDisk::mount("size=64k") else {
        return;
    };
    let options = "group_by: {enabled: true, resource_attribute: service.name, max_open_files: 1}";
    let file = Started::at(disk.path().join("*.jsonl"), options)
        .await
        .unwrap();
    let parts = [named("a", 1), named("b", 2), named("c", 1000)].map(|batch| batch.profiles);
    let merged = Batch::new(Profiles::merge(parts));
    let refusal = file.exporter.export(&merged).await.unwrap_err();
    assert!(refusal.is_retryable(), "{refusal}");
    for name in ["a", "b", "c"] {
        assert!(lines(&disk.path().join(format!("{name}.jsonl"))).is_empty());
    }
}

#[test]
fn has_the_collectors_defaults() {
    let config = load::<FileConfig>("{path: out, rotation: , group_by: }").unwrap();
    assert_eq!(
        serde_json::to_value(config).unwrap(),
        serde_json::json!({
            "path": "out",
            "append": false,
            "rotation": {"max_megabytes": 100, "max_days": 0, "max_backups": 100, "localtime": false},
            "format": "json",
            "compression": "none",
            "flush_interval": "1s",
            "group_by": {
                "enabled": false,
                "resource_attribute": "fileexporter.path_segment",
                "max_open_files": 100,
            },
            "create_directory": false,
            "directory_permissions": "",
        })
    );
}

#[test]
fn validates_the_options() {
    let check = |options: &str, expected: &str| {
        assert_eq!(
            load::<FileConfig>(options).unwrap_err(),
            expected,
            "{options}"
        );
    };
    check("", "path: path must be non-empty");
    check(
        "{path: a, format: text}",
        "format: format type is not supported: \"text\"",
    );
    check(
        "{path: a, compression: gzip}",
        "compression: compression is not supported: \"gzip\"",
    );
    check(
        "{path: a, append: true, rotation: , compression: zstd}",
        "append: append and compression enabled at the same time is not supported\n\
         append: append and rotation enabled at the same time is not supported",
    );
    check(
        "{path: a, flush_interval: -1s}",
        "flush_interval: flush_interval must be larger than zero",
    );
    check(
        "{path: a, group_by: {enabled: true, resource_attribute: '', max_open_files: 0}}",
        "path: path must contain exactly one * when group_by is enabled\n\
         group_by::resource_attribute: resource_attribute must not be empty when group_by is enabled\n\
         group_by::max_open_files: must provide a positive size",
    );
    check(
        "{path: '*a', group_by: {enabled: true}}",
        "path: path must not start with * when group_by is enabled",
    );
    check(
        "{path: a, directory_permissions: '0755'}",
        "directory_permissions: directory_permissions requires create_directory to be true",
    );
    check(
        "{path: a, create_directory: true, directory_permissions: '9'}",
        "directory_permissions: directory_permissions value must be a valid octal representation",
    );
    check(
        "{path: a, create_directory: true, directory_permissions: '7777'}",
        "directory_permissions: directory_permissions contain invalid bits for file access",
    );
}
