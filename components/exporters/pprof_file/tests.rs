//! The files after batches, outages and restarts, read back: sums, names, retention, and what is kept while writing
//! fails. Intervals use the paused clock. The full disk is a tmpfs of 256 KiB, which only root can mount.

mod go_tool;

use profcol_component::StatusBoard;
use profcol_test_skip::SmallDisk;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use profcol_component::testkit::{FakeSymbolizer, batch, context};
use profcol_pprof::{Limits, read};
use profcol_profile::{KeyValue, Model, NamedLine};
use tempfile::TempDir;
use tokio::task::JoinSet;

use super::*;
use profcol_component::testkit::load;

/// A started exporter, and its directory.
struct Started {
    exporter: Arc<PprofFile>,
    context: BuildContext,
    path: PathBuf,
}

impl Started {
    async fn at(path: &Path, options: &str) -> Result<Self, StartError> {
        let options = format!("{{directory: '{}', {options}}}", path.display());
        let context = context("pprof_file");
        let exporter = PprofFile::new(&load(&options).unwrap(), &context).unwrap();
        exporter.start().await?;
        Ok(Self {
            exporter: Arc::new(exporter),
            context,
            path: path.to_owned(),
        })
    }

    async fn export(&self, samples: usize) -> Result<Delivered, Refusal> {
        self.exporter.export(&batch(samples)).await
    }

    async fn export_all(&self, batches: impl IntoIterator<Item = Batch>) {
        for batch in batches {
            self.exporter.export(&batch).await.unwrap();
        }
    }

    fn run(&self) -> Running {
        let stop = Stop::new();
        let mut tasks = JoinSet::new();
        tasks.spawn(Arc::clone(&self.exporter).run(stop.clone()));
        Running { stop, tasks }
    }

    async fn stop(&self) -> Result<(), RunError> {
        self.run().stop().await
    }

    /// Waits until the current write is done.
    async fn written(&self) {
        drop(self.exporter.write_queue.lock().await);
    }

    async fn is_idle(&self) -> bool {
        self.exporter.shared.due().await.is_none()
    }

    fn count(&self, metric: &str) -> u64 {
        let text = String::from_utf8(self.context.meter.render().unwrap()).unwrap();
        let series = format!("otelcol_exporter_pprof_file_{metric}{{exporter=\"pprof_file\"}} ");
        let line = text.lines().find_map(|line| line.strip_prefix(&series));
        line.unwrap_or_else(|| panic!("{series} is not in\n{text}"))
            .parse()
            .unwrap()
    }
}

/// The exporter's task.
struct Running {
    stop: Stop,
    tasks: JoinSet<Result<(), RunError>>,
}

impl Running {
    /// Stops it like the engine.
    async fn stop(mut self) -> Result<(), RunError> {
        self.stop.cancel();
        self.tasks.join_next().await.unwrap().unwrap()
    }
}

/// Name and total of each file.
fn files(directory: &Path) -> Vec<(String, i64)> {
    let names = names(directory).into_iter();
    names
        .map(|name| {
            let model = read_file(&directory.join(&name));
            let total = sums(&model).into_values().sum();
            (name, total)
        })
        .collect()
}

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    let mut names: Vec<String> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

fn totals(directory: &Path) -> Vec<i64> {
    files(directory)
        .into_iter()
        .map(|(_, total)| total)
        .collect()
}

fn read_file(path: &Path) -> Model {
    read(&fs::read(path).unwrap(), Limits::default())
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The sums of all samples, by sample type. An observation without a value counts as one.
fn sums(model: &Model) -> BTreeMap<String, i64> {
    let strings = &model.dictionary.strings;
    let mut sums = BTreeMap::new();
    let scopes = model.resources.iter().flat_map(|resource| &resource.scopes);
    for profile in scopes.flat_map(|scope| &scope.profiles) {
        let sample_type = profile.sample_type.unwrap();
        let (kind, unit) = (strings.get(sample_type.kind), strings.get(sample_type.unit));
        let samples = profile.samples.iter().map(|sample| match sample.values {
            [] => i64::try_from(sample.timestamps.len()).unwrap(),
            values => values.iter().sum(),
        });
        *sums.entry(format!("{kind}/{unit}")).or_default() += samples.sum::<i64>();
    }
    sums
}

/// A batch with one resource with these attributes.
fn of(attributes: &[(&str, &str)], samples: usize) -> Batch {
    let mut batch = batch(samples);
    batch.profiles.update_resources(|resource| {
        let attributes = attributes.iter().copied();
        resource
            .attributes
            .extend(attributes.map(|(key, value)| KeyValue::new(key, value)));
        true
    });
    batch
}

fn directory() -> TempDir {
    tempfile::tempdir().unwrap()
}

// === interval ===

#[tokio::test]
async fn one_file_holds_the_sum_of_all_batches() {
    let directory = directory();
    let exporter = Started::at(&directory.path().join("a/b"), "")
        .await
        .unwrap();
    for samples in [3, 1, 3] {
        exporter.export(samples).await.unwrap();
    }
    assert_eq!(names(&exporter.path), [""; 0]);
    exporter.stop().await.unwrap();
    let [(name, 7)] = &files(&exporter.path)[..] else {
        panic!("{:?}", files(&exporter.path));
    };
    assert!(name.starts_with("samples-all-2"), "{name}");
    assert!(name.ends_with("Z-000001.pb.gz"), "{name}");
    assert_eq!(exporter.count("written_files"), 1);
}

/// The functions in a file.
fn functions(directory: &Path) -> Vec<String> {
    let model = read_file(&directory.join(&names(directory)[0]));
    let tables = &model.dictionary;
    let functions = tables.functions.rows()[1..].iter();
    let mut names: Vec<String> = functions
        .map(|function| tables.strings.get(function.name).to_owned())
        .collect();
    names.sort();
    names
}

#[tokio::test]
async fn a_file_has_the_symbols_available_when_it_is_written() {
    for (options, is_named, expected) in [
        ("", true, &["inner", "late"][..]),
        ("", false, &[]),
        ("interval: 0s", true, &["inner", "late"]),
    ] {
        let directory = directory();
        let exporter = Started::at(directory.path(), options).await.unwrap();
        let namer = FakeSymbolizer::new(|_| &["inner", "late"]);
        let mut batch = batch(3);
        batch.deferred_symbols = namer.names();
        let no_lines = |_| Some(std::iter::empty::<NamedLine<'_>>());
        batch.profiles.edit(|model| model.set_lines(no_lines));
        if is_named && !options.is_empty() {
            namer.finish();
        }
        exporter.export_all([batch.clone(), batch]).await;
        if is_named {
            namer.finish();
        }
        exporter.stop().await.unwrap();
        assert_eq!(functions(&exporter.path), expected, "{options}");
        assert_eq!(totals(&exporter.path).iter().sum::<i64>(), 6);
    }
}

#[tokio::test(start_paused = true)]
async fn writes_after_the_interval_and_sleeps_while_empty() {
    let directory = directory();
    let exporter = Started::at(directory.path(), "interval: 1m").await.unwrap();
    let running = exporter.run();
    assert!(exporter.is_idle().await);
    for written in 0..3 {
        exporter.export(2).await.unwrap();
        tokio::time::sleep(Duration::from_secs(59)).await;
        assert_eq!(totals(&exporter.path), vec![2; written]);
        tokio::time::sleep(Duration::from_secs(2)).await;
        exporter.written().await;
        assert_eq!(totals(&exporter.path), vec![2; written + 1]);
        assert!(exporter.is_idle().await);
    }
    running.stop().await.unwrap();
    assert_eq!(names(&exporter.path).len(), 3);
}

#[tokio::test]
async fn an_interval_of_zero_writes_before_accepting() {
    let directory = directory();
    let exporter = Started::at(directory.path(), "interval: 0s").await.unwrap();
    for samples in [3, 2] {
        exporter.export(samples).await.unwrap();
    }
    assert_eq!(totals(directory.path()), [3, 2]);
    assert!(exporter.is_idle().await);
}

#[tokio::test]
async fn a_batch_without_samples_makes_no_file() {
    let directory = directory();
    for options in ["interval: 0s", "interval: 10s"] {
        let exporter = Started::at(directory.path(), options).await.unwrap();
        exporter.export(0).await.unwrap();
        assert!(exporter.is_idle().await);
        exporter.stop().await.unwrap();
        assert_eq!(names(directory.path()), [""; 0]);
    }
}

#[tokio::test]
async fn writes_early_when_the_buffer_is_full() {
    let directory = directory();
    let exporter = Started::at(directory.path(), "interval: 1h, max_buffered_mib: 1")
        .await
        .unwrap();
    exporter.export(20_000).await.unwrap();
    assert_eq!(totals(directory.path()), [0; 0]);
    exporter.export(1).await.unwrap();
    assert_eq!(totals(directory.path()), [20_000]);
    exporter.stop().await.unwrap();
    assert_eq!(totals(directory.path()), [20_000, 1]);
}

#[tokio::test(start_paused = true)]
async fn a_full_buffer_is_written_even_if_no_batch_follows() {
    let directory = directory();
    let exporter = Started::at(directory.path(), "interval: 1h, max_buffered_mib: 1")
        .await
        .unwrap();
    let running = exporter.run();
    exporter.export(20_000).await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    exporter.written().await;
    assert_eq!(totals(directory.path()), [20_000]);
    running.stop().await.unwrap();
}

// === groups, names ===

#[tokio::test]
async fn groups_have_separate_files() {
    let directory = directory();
    let exporter = Started::at(directory.path(), "group_by: [service.name, host.name]")
        .await
        .unwrap();
    let shop = [("service.name", "shop"), ("host.name", "a")];
    let post = [("service.name", "post")];
    exporter
        .export_all([of(&shop, 1), of(&post, 2), of(&shop, 4), batch(8)])
        .await;
    exporter.stop().await.unwrap();
    let mut found: Vec<(String, i64)> = files(directory.path())
        .into_iter()
        .map(|(name, total)| (name.split("-2").next().unwrap().to_owned(), total))
        .collect();
    found.sort();
    let expected = [
        ("samples-none-none", 8),
        ("samples-post-none", 2),
        ("samples-shop-a", 5),
    ];
    assert_eq!(
        found,
        expected.map(|(name, total)| (name.to_owned(), total))
    );
}

#[tokio::test]
async fn too_many_groups_share_a_file_and_are_counted() {
    let directory = directory();
    let options = "group_by: [service.name], max_groups: 2, file_name: '{group}-{sequence}'";
    let exporter = Started::at(directory.path(), options).await.unwrap();
    let services = [("a", 1), ("b", 2), ("c", 4), ("d", 8), ("a", 16)];
    exporter
        .export_all(services.map(|(name, samples)| of(&[("service.name", name)], samples)))
        .await;
    exporter.stop().await.unwrap();
    let mut found: Vec<(char, i64)> = files(directory.path())
        .iter()
        .map(|(name, total)| (name.chars().next().unwrap(), *total))
        .collect();
    found.sort();
    assert_eq!(found, [('a', 17), ('b', 2), ('o', 12)]);
    assert_eq!(exporter.count("ungrouped_profile_samples"), 12);
}

/// A batch with as many profile types as profiles.
fn types(names: std::ops::Range<usize>) -> Batch {
    let batch = batch(1);
    let mut model = batch.profiles.model().clone();
    let strings = &mut Arc::make_mut(&mut model.dictionary).strings;
    let profiles = &mut model.resources[0].scopes[0].profiles;
    let template = profiles[0].as_ref().clone();
    *profiles = names
        .map(|name| {
            let mut profile = template.clone();
            let sample_type = profile.sample_type.as_mut().unwrap();
            sample_type.kind = strings.push(&format!("type_{name}"));
            // Distinct times keep the profiles from being taken for several types of one file.
            profile.time_unix_nano += name as u64;
            Arc::new(profile)
        })
        .collect();
    batch.with_profiles(Profiles::from_model(model))
}

#[tokio::test]
async fn the_number_of_files_per_batch_is_bounded() {
    // Syncing thousands of files to a disk takes long.
    let memory = tempfile::tempdir_in("/dev/shm");
    let directory = memory.unwrap_or_else(|_| directory());
    let exporter = Started::at(directory.path(), "interval: 1h").await.unwrap();
    let refusal = exporter.exporter.export(&types(0..4097)).await.unwrap_err();
    assert!(matches!(refusal, Refusal::TooLarge { .. }), "{refusal:?}");
    assert!(exporter.is_idle().await);
    exporter
        .export_all([types(0..4000), types(3990..4096)])
        .await;
    assert_eq!(names(directory.path()).len(), 0);
    exporter.export_all([types(5000..5001)]).await;
    assert_eq!(names(directory.path()).len(), 4096);
    exporter.stop().await.unwrap();
    assert_eq!(names(directory.path()).len(), 4097);
}

#[tokio::test]
async fn hostile_values_stay_in_the_directory() {
    let parent = directory();
    let path = parent.path().join("profiles");
    let options = "group_by: [service.name], file_name: '{group}-{sequence}', interval: 0s";
    let exporter = Started::at(&path, options).await.unwrap();
    let long = "x".repeat(100_000);
    let hostile = [
        "../../evil",
        "/etc/passwd",
        "..",
        "",
        "a\0b",
        "\n",
        "ünïcode",
        &long,
    ];
    for value in hostile {
        exporter
            .export_all([of(&[("service.name", value)], 1)])
            .await;
    }
    assert_eq!(totals(&path), vec![1; hostile.len()]);
    assert_eq!(names(parent.path()), ["profiles"]);
}

#[tokio::test]
async fn writes_the_configured_labels() {
    let check = async |options: &str, expected: &[&str]| {
        let directory = directory();
        let options = format!("interval: 0s, labels: {{{options}}}");
        let exporter = Started::at(directory.path(), &options).await.unwrap();
        exporter
            .export_all([of(
                &[
                    ("a", "1"),
                    ("b", "2"),
                    ("process.executable.path", "/bin/a"),
                    ("service.name", "unknown_service:a"),
                ],
                1,
            )])
            .await;
        let [name] = &names(directory.path())[..] else {
            panic!("{:?}", names(directory.path()));
        };
        let model = read_file(&directory.path().join(name));
        let strings = &model.dictionary.strings;
        let attributes = model.dictionary.attributes.rows().iter().skip(1);
        let keys = attributes.map(|it| strings.get(it.key));
        // Attributes of the mapping are not labels.
        let mut keys: Vec<&str> = keys.filter(|key| !key.starts_with("pprof.")).collect();
        keys.sort_unstable();
        assert_eq!(keys, expected, "{options}");
    };
    check("", &["a", "b"]).await;
    check("resource: ['*']", &["a", "b"]).await;
    check("resource: [b]", &["b"]).await;
    check("resource: []", &[]).await;
    check("sample: []", &["a", "b"]).await;
    let path = "process.executable.path";
    check("exclude: []", &["a", "b", path]).await;
    check("exclude: [a]", &["b", path]).await;
    check(&format!("resource: ['*', {path}]"), &["a", "b", path]).await;
    check(&format!("resource: [{path}]"), &[path]).await;
    check("resource: [a], exclude: [a]", &["a"]).await;
}

// === retention, restart ===

#[tokio::test]
async fn retention_removes_the_oldest_files_and_keeps_foreign_ones() {
    // The remaining ones of six files of equal size, the first two of them a day old.
    let check = async |retention: &str, expected: usize| {
        let directory = directory();
        let path = directory.path();
        let write_three = async || {
            let exporter = Started::at(path, "interval: 0s").await.unwrap();
            for _ in 0..3 {
                exporter.export(2000).await.unwrap();
            }
            exporter.stop().await.unwrap();
        };
        write_three().await;
        write_three().await;
        let all = names(path);
        assert_eq!(all.len(), 6);
        for old in &all[..2] {
            let file = fs::File::options()
                .write(true)
                .open(path.join(old))
                .unwrap();
            let yesterday = std::time::SystemTime::now() - Duration::from_secs(24 * 60 * 60);
            file.set_modified(yesterday).unwrap();
        }
        for foreign in ["profiles.jsonl", "cpu.pb.gz"] {
            fs::write(path.join(foreign), "keep").unwrap();
        }
        let options = format!("retention: {{{retention}}}");
        let exporter = Started::at(path, &options).await.unwrap();
        let mut kept = names(path);
        kept.retain(|name| all.contains(name));
        assert_eq!(kept, all[6 - expected..], "{retention}");
        assert_eq!(names(path).len(), expected + 2, "{retention}");
        assert_eq!(exporter.count("removed_files"), 6 - expected as u64);
    };
    check("", 6).await;
    check("max_files: 100", 6).await;
    check("max_files: 2", 2).await;
    check("max_files: 1", 1).await;
    check("max_age: 1h", 4).await;
    check("max_age: 48h", 6).await;
    check("max_age: 1ns", 1).await;
    check("max_total_mib: 1", 6).await;
    check("max_age: 1h, max_files: 5", 4).await;
}

#[tokio::test]
async fn retention_limits_the_total_size() {
    let directory = directory();
    let options = "interval: 0s, retention: {max_total_mib: 1}";
    let exporter = Started::at(directory.path(), options).await.unwrap();
    exporter.export(1).await.unwrap();
    exporter.stop().await.unwrap();
    let [name] = <[String; 1]>::try_from(names(directory.path())).unwrap();
    let older = fs::File::options()
        .write(true)
        .open(directory.path().join(&name));
    older.unwrap().set_len(2 << 20).unwrap();
    let exporter = Started::at(directory.path(), options).await.unwrap();
    assert_eq!(names(directory.path()), [name.as_str()], "the newest stays");
    exporter.export(1).await.unwrap();
    exporter.stop().await.unwrap();
    assert_eq!(totals(directory.path()), [1]);
    assert!(!names(directory.path()).contains(&name));
}

#[tokio::test]
async fn a_restart_removes_leftovers_and_continues_the_sequence() {
    let directory = directory();
    let finished = "samples-all-20260801T123000Z-000041.pb.gz";
    let torn = ".samples-all-20260801T123000Z-000042.pb.gz.partial";
    let foreign = [".hidden", ".other.partial"];
    for name in foreign.into_iter().chain([finished, torn]) {
        fs::write(directory.path().join(name), "half").unwrap();
    }
    let exporter = Started::at(directory.path(), "interval: 0s").await.unwrap();
    let mut expected = vec![foreign[0], foreign[1], finished];
    assert_eq!(names(directory.path()), expected);
    exporter.export(1).await.unwrap();
    let names = names(directory.path());
    let new = names.last().unwrap().as_str();
    assert!(new.ends_with("-000042.pb.gz"), "{new}");
    expected.push(new);
    assert_eq!(names, expected);
}

#[tokio::test]
async fn existing_files_are_not_overwritten() {
    let directory = directory();
    let options = "interval: 0s, file_name: '{sequence}'";
    let exporter = Started::at(directory.path(), options).await.unwrap();
    fs::write(directory.path().join("000001"), "keep").unwrap();
    exporter.export(1).await.unwrap();
    assert_eq!(names(directory.path()), ["000001", "000002"]);
    assert_eq!(fs::read(directory.path().join("000001")).unwrap(), b"keep");
}

#[tokio::test]
async fn a_directory_belongs_to_one_exporter() {
    let directory = directory();
    let first = Started::at(directory.path(), "").await.unwrap();
    let second = Started::at(directory.path(), "").await;
    let error = second.err().unwrap().to_string();
    assert!(
        error.contains("locked by another pprof_file exporter"),
        "{error}"
    );
    first.stop().await.unwrap();
    Started::at(directory.path(), "").await.unwrap();
}

#[tokio::test]
async fn startup_fails_for_an_impossible_directory() {
    let directory = directory();
    let file = directory.path().join("file");
    fs::write(&file, "").unwrap();
    let error = Started::at(&file.join("profiles"), "").await.err().unwrap();
    let error = error.to_string();
    assert!(error.starts_with("failed to create "), "{error}");
    assert!(error.contains("file/profiles"), "{error}");
}

// === failure ===

/// Replaces the directory with a file, so that nothing can be written, and restores
/// it.
struct Outage<'a> {
    path: &'a Path,
    aside: PathBuf,
}

impl<'a> Outage<'a> {
    fn of(path: &'a Path) -> Self {
        let aside = path.with_extension("aside");
        fs::rename(path, &aside).unwrap();
        fs::write(path, "").unwrap();
        Self { path, aside }
    }

    fn end(self) {
        fs::remove_file(self.path).unwrap();
        fs::rename(&self.aside, self.path).unwrap();
    }
}

fn status(exporter: &Started) -> Option<Status> {
    exporter
        .context
        .shared
        .get::<StatusBoard>()
        .snapshot()
        .remove("pprof_file")
}

#[tokio::test]
async fn unwritten_files_are_kept_up_to_the_limit_and_written_later() {
    let parent = directory();
    let path = parent.path().join("profiles");
    let exporter = Started::at(&path, "interval: 1h, max_buffered_mib: 1")
        .await
        .unwrap();
    let outage = Outage::of(&path);
    exporter.export(3).await.unwrap();
    exporter.exporter.write().await;
    assert!(matches!(
        status(&exporter),
        Some(Status::RecoverableError(_))
    ));
    assert!(!exporter.is_idle().await);
    // Still accepted: there is room.
    exporter.export(20_000).await.unwrap();
    let refusal = exporter.export(1).await.unwrap_err();
    assert!(refusal.is_retryable());
    assert!(
        refusal
            .to_string()
            .starts_with("profiles wait to be written, at most 1 MiB: failed to create ")
    );
    exporter.exporter.write().await;
    assert_eq!(exporter.count("failed_writes"), 2);
    outage.end();
    exporter.exporter.write().await;
    assert_eq!(totals(&path), [3, 20_000]);
    assert_eq!(status(&exporter), Some(Status::Ok));
    assert!(exporter.is_idle().await);
    exporter.export(1).await.unwrap();
    exporter.stop().await.unwrap();
    assert_eq!(totals(&path), [3, 20_000, 1]);
    assert_eq!(exporter.count("lost_profile_samples"), 0);
}

#[tokio::test]
async fn a_removed_or_moved_directory_is_recreated() {
    let check = async |interval: &str, take_away: fn(&Path)| {
        let parent = directory();
        let path = parent.path().join("deep/profiles");
        let options = format!("interval: {interval}");
        let exporter = Started::at(&path, &options).await.unwrap();
        exporter.export(1).await.unwrap();
        exporter.exporter.write().await;
        take_away(&path);
        for samples in [2, 3] {
            exporter.export(samples).await.unwrap();
            exporter.exporter.write().await;
        }
        assert_eq!(totals(&path), [2, 3]);
        assert_eq!(exporter.count("failed_writes"), 0);
        let second = Started::at(&path, "").await;
        let error = second.err().unwrap().to_string();
        assert!(error.contains("locked by another"), "{error}");
        exporter.stop().await.unwrap();
    };
    for interval in ["0s", "1h"] {
        check(interval, |path| fs::remove_dir_all(path).unwrap()).await;
        check(interval, |path| {
            fs::remove_dir_all(path.parent().unwrap()).unwrap();
        })
        .await;
        check(interval, |path| {
            fs::rename(path, path.with_extension("old")).unwrap();
            fs::create_dir(path).unwrap();
        })
        .await;
    }
}

#[tokio::test(start_paused = true)]
async fn retries_by_itself() {
    let parent = directory();
    let path = parent.path().join("profiles");
    let exporter = Started::at(&path, "interval: 1h").await.unwrap();
    let running = exporter.run();
    let outage = Outage::of(&path);
    exporter.export(3).await.unwrap();
    tokio::time::sleep(Duration::from_secs(60 * 60 + 1)).await;
    exporter.written().await;
    assert_eq!(exporter.count("failed_writes"), 1);
    outage.end();
    tokio::time::sleep(MAX_RETRY_INTERVAL).await;
    exporter.written().await;
    assert_eq!(totals(&path), [3]);
    running.stop().await.unwrap();
}

#[tokio::test]
async fn samples_not_written_at_shutdown_are_counted_as_lost() {
    let parent = directory();
    let path = parent.path().join("profiles");
    let exporter = Started::at(&path, "").await.unwrap();
    let _outage = Outage::of(&path);
    exporter.export(3).await.unwrap();
    let error = exporter.stop().await.unwrap_err().to_string();
    assert!(
        error.starts_with("3 samples were not written: failed to create"),
        "{error}"
    );
    assert_eq!(exporter.count("lost_profile_samples"), 3);
}

#[tokio::test]
async fn a_batch_of_several_files_is_written_completely_or_refused() {
    let parent = directory();
    let path = parent.path().join("profiles");
    let options = "interval: 0s, group_by: [service.name], file_name: '{group}-{sequence}'";
    let exporter = Started::at(&path, options).await.unwrap();
    let one = Profiles::merge([
        of(&[("service.name", "a")], 1).profiles,
        of(&[("service.name", "b")], 2).profiles,
    ]);
    // One of the two files can never be created.
    for sequence in 1..=2 {
        fs::create_dir_all(path.join(format!(".b-{sequence:06}.partial/in the way"))).unwrap();
    }
    let refusal = exporter.exporter.export(&Batch::new(one.clone())).await;
    assert!(refusal.unwrap_err().is_retryable());
    let visible = |names: Vec<String>| names.into_iter().filter(|name| !name.starts_with('.'));
    assert_eq!(visible(names(&path)).count(), 0);
    for sequence in 1..=2 {
        fs::remove_dir_all(path.join(format!(".b-{sequence:06}.partial"))).unwrap();
    }
    exporter.exporter.export(&Batch::new(one)).await.unwrap();
    let mut totals = totals(&path);
    totals.sort_unstable();
    assert_eq!(totals, [1, 2]);
    assert_eq!(exporter.count("written_files"), 2);
}

#[tokio::test]
async fn a_full_disk_leaves_no_partial_files_and_loses_no_samples() {
    let Some(disk) = SmallDisk::mount("size=256k") else {
        return;
    };
    let path = disk.path().join("profiles");
    let buffering = Started::at(&path, "interval: 1h").await.unwrap();
    let through = disk.path().join("through");
    let through = Started::at(&through, "interval: 0s").await.unwrap();
    let filler = disk.path().join("filler");
    // One page is free, so that a file can be created but not completed.
    fs::write(&filler, vec![1; 300 << 10]).unwrap_err();
    let length = fs::metadata(&filler).unwrap().len();
    let file = fs::File::options().write(true).open(&filler).unwrap();
    file.set_len(length - 4096).unwrap();
    drop(file);

    buffering.export(2000).await.unwrap();
    buffering.exporter.write().await;
    let refusal = through.export(2000).await.unwrap_err();
    assert!(refusal.is_retryable());
    assert!(
        refusal.to_string().contains("No space left on device"),
        "{refusal}"
    );
    assert_eq!((names(&path), names(&through.path)), (vec![], vec![]));

    fs::remove_file(&filler).unwrap();
    buffering.exporter.write().await;
    through.export(2000).await.unwrap();
    assert_eq!(
        (totals(&path), totals(&through.path)),
        (vec![2000], vec![2000])
    );
}

#[tokio::test]
async fn retention_makes_room_on_a_full_disk() {
    // Three files, the first a day old: the number of those that remain, and of new ones.
    let check = async |options: &str, stay: usize, come: usize| {
        let Some(disk) = SmallDisk::mount("size=256k") else {
            return;
        };
        let path = disk.path().join("profiles");
        let exporter = Started::at(&path, options).await.unwrap();
        for _ in 0..3 {
            exporter.export(2000).await.unwrap();
            exporter.exporter.write().await;
        }
        let before = names(&path);
        assert_eq!(before.len(), 3);
        let oldest = fs::File::options().write(true).open(path.join(&before[0]));
        let yesterday = std::time::SystemTime::now() - Duration::from_secs(24 * 60 * 60);
        oldest.unwrap().set_modified(yesterday).unwrap();
        fs::write(disk.path().join("filler"), vec![1; 300 << 10]).unwrap_err();

        let answer = exporter.export(1000).await;
        exporter.exporter.write().await;
        let after = names(&path);
        let stayed = before.iter().filter(|name| after.contains(name)).count();
        let added = after.len() - stayed;
        assert_eq!((stayed, added), (stay, come), "{options}: {after:?}");
        if options.contains("interval: 0s") {
            assert_eq!(answer.is_ok(), come == 1, "{options}");
        }
    };
    for interval in ["0s", "1h"] {
        let retain = |rule: &str| format!("interval: {interval}, retention: {{{rule}}}");
        check(&retain("max_files: 3"), 2, 1).await;
        check(&retain("max_age: 1h"), 2, 1).await;
        check(&retain("max_files: 100"), 3, 0).await;
        check(&retain(""), 3, 0).await;
    }
}

#[tokio::test]
async fn starts_on_a_full_disk() {
    let Some(disk) = SmallDisk::mount("size=256k") else {
        return;
    };
    let path = disk.path().join("profiles");
    fs::create_dir(&path).unwrap();
    fs::write(disk.path().join("filler"), vec![1; 300 << 10]).unwrap_err();
    let exporter = Started::at(&path, "interval: 1h").await.unwrap();
    exporter.export(1).await.unwrap();
}

// === options ===

#[test]
fn validates_the_options() {
    #[track_caller]
    fn check(options: &str, expected: &str) {
        let loaded = load::<PprofFileConfig>(options).map(drop);
        let found = loaded.err().unwrap_or_default();
        assert!(found.contains(expected), "{options}: {found}");
        assert_eq!(found.is_empty(), expected.is_empty(), "{options}: {found}");
    }
    check("directory: a", "");
    check("{directory: a, retention: , interval: 0s}", "");
    check("interval: 1s", "directory: directory must be non-empty");
    check(
        "{directory: a, interval: -1s}",
        "interval: interval must not be negative",
    );
    check(
        "{directory: a, group_by: ['']}",
        "group_by: a key of group_by must be non-empty",
    );
    check(
        "{directory: a, group_by: [b, b]}",
        "group_by: group_by contains a key twice",
    );
    check(
        "{directory: a, max_groups: 0}",
        "max_groups: max_groups must be positive",
    );
    check(
        "{directory: a, file_name: 'x'}",
        "file_name: `{sequence}` is missing",
    );
    check(
        "{directory: a, max_buffered_mib: 0}",
        "must be between 1 and 1024",
    );
    check(
        "{directory: a, max_buffered_mib: 1025}",
        "must be between 1 and 1024",
    );
    check(
        "{directory: a, retention: {max_age: -1s}}",
        "retention::max_age: max_age must not be negative",
    );
}
