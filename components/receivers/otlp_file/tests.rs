//! Files that the test appends to, truncates, renames and damages, read for a scripted consumer.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use profcol_component::testkit::{context, load, profiles, wait_until};
use profcol_component::{
    Answer, Batch, Consumer, Finalizers, Meter, Outcome, Refusal, StatusBoard,
};
use profcol_otlp::json::{self, ResourceAttrEncoding};
use profcol_storage::{FsyncPolicy, StorageOptions, WhenFull};
use tempfile::TempDir;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::*;

/// Accepts batches, or refuses them as configured, and records the number of samples of each.
#[derive(Default)]
struct Consumed {
    samples: watch::Sender<Vec<usize>>,
    refusals: Mutex<Vec<Refusal>>,
    /// Keeps finalizers here instead of settling them.
    held: Option<Mutex<Vec<Finalizers>>>,
}

#[async_trait]
impl Consumer for Consumed {
    async fn consume(&self, batch: Batch) -> Answer {
        if let Some(refusal) = self.refusals.lock().pop() {
            return batch.refuse(refusal);
        }
        let samples = batch.profiles.sample_count();
        match &self.held {
            Some(held) => held.lock().push(batch.finalizers),
            None => batch.finalizers.settle(Outcome::Delivered),
        }
        self.samples.send_modify(|all| all.push(samples));
        Ok(())
    }
}

impl Consumed {
    async fn wait_for(&self, expected: &[usize]) {
        let mut samples = self.samples.subscribe();
        let long_enough = samples.wait_for(|all| all.len() >= expected.len());
        assert_eq!(*long_enough.await.unwrap(), expected);
    }
}

/// A receiver that reads its own temporary directory.
struct Running {
    directory: TempDir,
    consumed: Arc<Consumed>,
    meter: Meter,
    board: StatusBoard,
    stop: Stop,
    task: JoinSet<Result<(), RunError>>,
}

impl Running {
    async fn start(directory: TempDir, options: &str, consumed: Consumed) -> Self {
        Self::start_within(directory, options, consumed, Admission::unlimited()).await
    }

    async fn start_within(
        directory: TempDir,
        options: &str,
        consumed: Consumed,
        admission: Admission,
    ) -> Self {
        let root = directory.path().display();
        let options = format!("{{include: ['{root}/in*'], poll_interval: 1ms, {options}}}");
        let config: OtlpFileConfig = load(&options).unwrap();
        let mut context = context("otlp_file");
        context.admission = admission;
        let storage = config.storage.as_ref().map(|_| storage(directory.path()));
        let mut receiver = OtlpFile::new(&config, storage.as_ref(), &context);
        receiver.start().await.unwrap();
        let consumed = Arc::new(consumed);
        let next = Arc::clone(&consumed) as Arc<dyn Consumer>;
        let output = Output::new(next, context.meter.clone(), "otlp_file");
        let stop = Stop::new();
        let mut task = JoinSet::new();
        task.spawn(Box::new(receiver).run(output, stop.clone()));
        Self {
            directory,
            consumed,
            meter: context.meter,
            board: context.shared.get(),
            stop,
            task,
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn append(&self, name: &str, bytes: &[u8]) {
        append(&self.path(name), bytes);
    }

    async fn stop(mut self) -> TempDir {
        self.stop.cancel();
        self.ended().await.unwrap();
        self.directory
    }

    /// Ends it without a chance to store anything.
    async fn kill(mut self) -> TempDir {
        self.task.abort_all();
        let ended = self.task.join_next().await.unwrap();
        assert!(ended.unwrap_err().is_cancelled());
        self.directory
    }

    /// What the consumer holds without an outcome.
    fn held(&self) -> Vec<Finalizers> {
        std::mem::take(&mut *self.consumed.held.as_ref().unwrap().lock())
    }

    async fn ended(&mut self) -> Result<(), String> {
        let ended = self.task.join_next().await;
        let ended = ended.unwrap().unwrap();
        ended.map_err(|error| error.to_string())
    }

    fn count(&self, name: &str) -> u64 {
        let labels = &[("receiver", "otlp_file")];
        let name = format!("otelcol_receiver_otlp_file_{name}");
        self.meter.counter(&name, "", labels).get()
    }
}

fn directory() -> TempDir {
    tempfile::tempdir().unwrap()
}

fn storage(directory: &Path) -> Storage {
    Storage::new(StorageOptions {
        directory: directory.to_owned(),
        create_directory: false,
        fsync: FsyncPolicy::Never,
        max_bytes: 1 << 20,
        when_full: WhenFull::Block,
    })
}

/// Holds batches without an outcome.
fn holding() -> Consumed {
    Consumed {
        held: Some(Mutex::default()),
        ..Consumed::default()
    }
}

#[tokio::test]
async fn the_status_shows_files_that_cannot_be_read() {
    let directory = directory();
    let [first, second] = ["in1", "in2"].map(|name| directory.path().join(name));
    for path in [&first, &second] {
        std::os::unix::fs::symlink(path, path).unwrap();
    }
    let running = Running::start(directory, "", Consumed::default()).await;
    let shows = async |expected: Status| {
        wait_until("the status", async || {
            running.board.snapshot().get("otlp_file") == Some(&expected)
        })
        .await;
    };
    let error = fs::metadata(&first).unwrap_err();
    let reason = format!("failed to read {}: {error}", first.display());
    let both = format!("{reason}; 2 files cannot be read");
    shows(Status::RecoverableError(both.into())).await;
    fs::remove_file(second).unwrap();
    shows(Status::RecoverableError(reason.into())).await;
    fs::remove_file(first).unwrap();
    shows(Status::Ok).await;
    running.stop().await;
}

fn append(path: &Path, bytes: &[u8]) {
    let file = fs::OpenOptions::new().create(true).append(true).open(path);
    file.unwrap().write_all(bytes).unwrap();
}

fn json(samples: usize) -> Vec<u8> {
    json::encode(profiles(samples).model(), ResourceAttrEncoding::Plain)
}

fn line(samples: usize) -> Vec<u8> {
    [json(samples), b"\n".to_vec()].concat()
}

fn with_length(bytes: &[u8]) -> Vec<u8> {
    [&(bytes.len() as u32).to_be_bytes(), bytes].concat()
}

fn proto(samples: usize) -> Vec<u8> {
    with_length(&profiles(samples).to_wire())
}

fn zstd(bytes: &[u8]) -> Vec<u8> {
    with_length(&zstd::bulk::compress(bytes, 1).unwrap())
}

const ONCE: &str = "start_at: beginning, follow: false";

/// Reads a file once; the damaged records are counted.
async fn read_once(bytes: &[u8], options: &str) -> (Vec<usize>, u64) {
    let directory = directory();
    append(&directory.path().join("in"), bytes);
    let options = format!("{ONCE}, {options}");
    let mut running = Running::start(directory, &options, Consumed::default()).await;
    let ended = running.ended().await;
    let samples = running.consumed.samples.borrow().clone();
    let damaged = running.count("damaged_records");
    let expected = match damaged {
        0 => Ok(()),
        damaged => Err(format!(
            "not everything was delivered (damaged records: {damaged})"
        )),
    };
    assert_eq!(ended, expected);
    (samples, damaged)
}

#[tokio::test]
async fn detects_the_format_of_records() {
    let check = async |records: [Vec<u8>; 2]| {
        assert_eq!(read_once(&records.concat(), "").await, (vec![3, 2], 0));
    };
    check([line(3), line(2)]).await;
    check([line(3), json(2)]).await;
    check([[b"\n \r\n".to_vec(), line(3)].concat(), line(2)]).await;
    check([proto(3), proto(2)]).await;
    check([zstd(&profiles(3).to_wire()), zstd(&profiles(2).to_wire())]).await;
    check([zstd(&json(3)), zstd(&json(2))]).await;
    check([with_length(&json(3)), proto(2)]).await;
}

#[tokio::test]
async fn accepts_only_the_configured_format() {
    let both = [with_length(&json(3)), proto(2)].concat();
    assert_eq!(read_once(&both, "format: json").await, (vec![3], 1));
    assert_eq!(read_once(&both, "format: proto").await, (vec![2], 1));
}

#[tokio::test]
async fn skips_and_counts_damaged_records() {
    let check = async |records: &[Vec<u8>], expected: &[usize], damaged| {
        let read = read_once(&records.concat(), "max_record_size: 4000").await;
        assert_eq!(
            read,
            (expected.to_vec(), damaged),
            "{:?}",
            String::from_utf8_lossy(&records.concat())
        );
    };
    let bad = b"{\"resourceProfiles\": [}\n".to_vec();
    check(&[line(1), bad, line(2)], &[1, 2], 1).await;
    check(&[line(1), line(2)[..50].to_vec()], &[1], 1).await;
    check(&[line(1), line(200), line(2)], &[1, 2], 1).await;
    check(&[line(1), line(200)], &[1], 1).await;
    check(&[proto(1), with_length(&[0xff; 9]), proto(2)], &[1, 2], 1).await;
    check(&[proto(1), proto(200), proto(2)], &[1, 2], 1).await;
    check(&[proto(1), proto(2)[..50].to_vec()], &[1], 1).await;
    check(&[proto(1), vec![0, 0]], &[1], 1).await;
    check(
        &[proto(1), vec![0x7f, 0xff, 0xff, 0xff, 1, 2, 3], proto(2)],
        &[1],
        1,
    )
    .await;
    check(&[zstd(&[b' '; 10_000]), proto(1)], &[1], 1).await;
    check(&[zstd(&profiles(1).to_wire())[..40].to_vec()], &[], 1).await;
    check(
        &[with_length(&[0x28, 0xb5, 0x2f, 0xfd, 0xff]), proto(1)],
        &[1],
        1,
    )
    .await;
    check(&[], &[], 0).await;
    check(&[vec![0, 0, 0, 0], proto(1)], &[1], 0).await;
}

#[tokio::test]
async fn follows_appended_records_and_partial_lines() {
    let directory = directory();
    append(&directory.path().join("in"), &line(1));
    let running = Running::start(directory, "start_at: beginning", Consumed::default()).await;
    running.consumed.wait_for(&[1]).await;
    let added = line(2);
    let (first, rest) = added.split_at(100);
    running.append("in", first);
    running.append("in2", &proto(3));
    running.consumed.wait_for(&[1, 3]).await;
    running.append("in", rest);
    running.consumed.wait_for(&[1, 3, 2]).await;
    assert_eq!(running.count("damaged_records"), 0);
    running.stop().await;
}

#[tokio::test]
async fn start_at_end_begins_with_an_incomplete_record() {
    let check = async |whole: Vec<u8>, next: Vec<u8>| {
        let directory = directory();
        let (first, rest) = next.split_at(60);
        append(&directory.path().join("in"), &[&whole, first].concat());
        let running = Running::start(directory, "", Consumed::default()).await;
        running.append("in", rest);
        running.append("in-new", &line(5));
        let mut samples = running.consumed.samples.subscribe();
        let mut both = samples
            .wait_for(|all| all.len() >= 2)
            .await
            .unwrap()
            .clone();
        both.sort_unstable();
        assert_eq!(both, [2, 5]);
        running.stop().await;
    };
    check([line(1), line(1)].concat(), line(2)).await;
    check([proto(1), proto(1)].concat(), proto(2)).await;
    check(Vec::new(), line(2)).await;
}

#[tokio::test]
async fn follows_a_renamed_file_and_its_replacement() {
    let check = async |renamed: &str| {
        let directory = directory();
        append(&directory.path().join("in"), &line(1));
        let running = Running::start(directory, "start_at: beginning", Consumed::default()).await;
        running.consumed.wait_for(&[1]).await;
        fs::rename(running.path("in"), running.path(renamed)).unwrap();
        running.append(renamed, &line(2));
        running.consumed.wait_for(&[1, 2]).await;
        running.append("in", &line(3));
        running.consumed.wait_for(&[1, 2, 3]).await;
        running.stop().await;
    };
    check("in-2026-08-01").await;
    check("out-of-the-pattern").await;
}

#[tokio::test]
async fn reads_a_truncated_file_from_the_beginning() {
    let directory = directory();
    append(&directory.path().join("in"), &[line(1), line(2)].concat());
    let running = Running::start(directory, "start_at: beginning", Consumed::default()).await;
    running.consumed.wait_for(&[1, 2]).await;
    fs::write(running.path("in"), proto(3)).unwrap();
    running.consumed.wait_for(&[1, 2, 3]).await;
    running.stop().await;
}

#[test]
fn reads_a_truncated_file_that_has_grown_since_from_the_beginning() {
    let directory = directory();
    let path = directory.path().join("in");
    let config: OtlpFileConfig = load(&format!(
        "{{include: ['{}'], start_at: beginning}}",
        path.display()
    ))
    .unwrap();
    let read = |files: &mut Files| -> Vec<usize> {
        let records = std::iter::from_fn(|| Some(files.read()).filter(|read| !read.is_empty()));
        let contents = records.flatten().map(|record| record.content);
        contents
            .map(|content| content.unwrap().profiles.sample_count())
            .collect()
    };
    append(&path, &line(1));
    let mut files = Files::new(&config, Arc::default());
    files.begin(false);
    assert_eq!(read(&mut files), [1]);
    // Longer than before each time, and then only appended to.
    for (text, expected) in [
        (proto(20), &[20][..]),
        ([line(30), line(4)].concat(), &[30, 4]),
        ([line(30), line(4), line(5)].concat(), &[5]),
    ] {
        fs::write(&path, text).unwrap();
        files.scan();
        assert_eq!(read(&mut files), expected);
    }
}

#[tokio::test(start_paused = true)]
async fn retries_a_refused_record_until_it_is_accepted() {
    let directory = directory();
    append(&directory.path().join("in"), &[line(1), line(2)].concat());
    let consumed = Consumed::default();
    let later = Refusal::retry_after("later", Duration::from_secs(60));
    *consumed.refusals.lock() = vec![Refusal::retry("full"), later, Refusal::retry("full")];
    let mut running = Running::start(directory, ONCE, consumed).await;
    assert_eq!(running.ended().await, Ok(()));
    running.consumed.wait_for(&[1, 2]).await;
    assert_eq!(running.count("undelivered_profile_samples"), 0);
}

#[tokio::test]
async fn skips_and_counts_a_permanently_refused_record() {
    let directory = directory();
    append(&directory.path().join("in"), &[line(1), line(2)].concat());
    let consumed = Consumed::default();
    *consumed.refusals.lock() = vec![Refusal::permanent("no")];
    let mut running = Running::start(directory, ONCE, consumed).await;
    let ended = running.ended().await.unwrap_err();
    assert_eq!(ended, "not everything was delivered (refused samples: 1)");
    running.consumed.wait_for(&[2]).await;
    assert_eq!(running.count("undelivered_profile_samples"), 1);
}

#[tokio::test]
async fn reading_once_fails_if_a_file_is_unreadable() {
    let directory = directory();
    append(&directory.path().join("in"), &line(1));
    // Reading this file fails.
    std::os::unix::fs::symlink("/proc/self/mem", directory.path().join("in-memory")).unwrap();
    let mut running = Running::start(directory, ONCE, Consumed::default()).await;
    let ended = running.ended().await.unwrap_err();
    assert_eq!(ended, "not everything was delivered (unreadable files: 1)");
    running.consumed.wait_for(&[1]).await;
}

#[tokio::test]
async fn stops_while_a_record_is_refused() {
    let directory = directory();
    append(&directory.path().join("in"), &line(1));
    let consumed = Consumed::default();
    let later = Refusal::retry_after("later", Duration::from_secs(3600));
    *consumed.refusals.lock() = vec![later];
    let running = Running::start(directory, ONCE, consumed).await;
    running.stop().await;
}

#[tokio::test]
async fn reading_once_ends_when_the_outcome_of_all_records_is_known() {
    let directory = directory();
    append(&directory.path().join("in"), &[line(1), line(2)].concat());
    let options = format!("{ONCE}, when_undelivered: leave");
    let mut running = Running::start(directory, &options, holding()).await;
    running.consumed.wait_for(&[1, 2]).await;
    let [first, second] = running.held().try_into().unwrap();
    first.settle(Outcome::Delivered);
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert!(running.task.try_join_next().is_none());
    second.settle(Outcome::Undelivered);
    let ended = running.ended().await.unwrap_err();
    assert_eq!(
        ended,
        "not everything was delivered (undelivered samples: 2)"
    );
    assert_eq!(running.count("undelivered_profile_samples"), 2);
}

#[tokio::test(start_paused = true)]
async fn pushes_a_record_again_until_it_is_delivered() {
    let directory = directory();
    append(&directory.path().join("in"), &[line(1), line(2)].concat());
    let mut running = Running::start(directory, ONCE, holding()).await;
    running.consumed.wait_for(&[1, 2]).await;
    let [first, second] = running.held().try_into().unwrap();
    first.settle(Outcome::Undelivered);
    second.settle(Outcome::Delivered);
    running.consumed.wait_for(&[1, 2, 1]).await;
    // Dropped without an outcome.
    drop(running.held());
    running.consumed.wait_for(&[1, 2, 1, 1]).await;
    let [again] = running.held().try_into().unwrap();
    again.settle(Outcome::Delivered);
    assert_eq!(running.ended().await, Ok(()));
    assert_eq!(running.count("repeated_records"), 2);
    assert_eq!(running.count("undelivered_profile_samples"), 0);
}

#[tokio::test]
async fn only_so_many_records_are_in_flight() {
    let directory = directory();
    let lines: Vec<Vec<u8>> = (1..=5).map(line).collect();
    append(&directory.path().join("in"), &lines.concat());
    let options = format!("{ONCE}, max_in_flight: 2");
    let mut running = Running::start(directory, &options, holding()).await;
    let mut count = 0;
    while count < 5 {
        let mut samples = running.consumed.samples.subscribe();
        let is_full = |all: &Vec<usize>| all.len() >= (count + 2).min(5);
        samples.wait_for(is_full).await.unwrap();
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        let held = running.held();
        assert!(held.len() <= 2, "{}", held.len());
        count += held.len();
        for finalizers in held {
            finalizers.settle(Outcome::Delivered);
        }
    }
    assert_eq!(running.ended().await, Ok(()));
}

#[tokio::test(start_paused = true)]
async fn reads_no_more_while_memory_is_short_and_records_are_in_flight() {
    const LIMIT: u64 = 10 << 20;
    static IN_USE: AtomicU64 = AtomicU64::new(LIMIT);
    let admission = Admission::with_memory_reader(|| Some(IN_USE.load(Ordering::Relaxed)), LIMIT);
    let directory = directory();
    append(&directory.path().join("in"), &line(1));
    let options = "start_at: beginning";
    let running = Running::start_within(directory, options, holding(), admission).await;
    running.consumed.wait_for(&[1]).await;
    running.append("in", &line(2));
    tokio::time::sleep(Duration::from_secs(60)).await;
    running.consumed.wait_for(&[1]).await;
    assert_eq!(running.consumed.samples.borrow().len(), 1);
    IN_USE.store(0, Ordering::Relaxed);
    running.consumed.wait_for(&[1, 2]).await;
    running.stop().await;
}

const STORED: &str = "start_at: beginning, storage: file_storage";

#[tokio::test]
async fn after_a_stop_continues_where_it_stopped() {
    let directory = directory();
    append(&directory.path().join("in"), &[line(1), line(2)].concat());
    let running = Running::start(directory, STORED, Consumed::default()).await;
    running.consumed.wait_for(&[1, 2]).await;
    let directory = running.stop().await;
    append(&directory.path().join("in"), &line(3));
    append(&directory.path().join("in2"), &line(4));
    let running = Running::start(directory, STORED, Consumed::default()).await;
    let mut samples = running.consumed.samples.subscribe();
    let two = samples.wait_for(|all| all.len() >= 2).await.unwrap();
    let mut both = two.clone();
    drop(two);
    both.sort_unstable();
    assert_eq!(both, [3, 4]);
    let directory = running.stop().await;
    // The same with the other default.
    append(&directory.path().join("in3"), &line(5));
    let options = "start_at: end, storage: file_storage";
    let running = Running::start(directory, options, Consumed::default()).await;
    running.consumed.wait_for(&[5]).await;
    running.stop().await;
}

#[tokio::test]
async fn after_a_kill_reads_again_what_was_not_delivered() {
    let directory = directory();
    append(&directory.path().join("in"), &line(1));
    // From the end on: what is appended counts.
    let options = "storage: file_storage";
    let running = Running::start(directory, options, holding()).await;
    running.append("in", &[line(2), line(3), line(4)].concat());
    running.consumed.wait_for(&[2, 3, 4]).await;
    let directory = running.kill().await;

    let running = Running::start(directory, options, holding()).await;
    running.consumed.wait_for(&[2, 3, 4]).await;
    let [first, second, third] = running.held().try_into().unwrap();
    first.settle(Outcome::Delivered);
    third.settle(Outcome::Delivered);
    let stored = running.path("receiver_otlp_file.checkpoint");
    let end = line(1).len() + line(2).len();
    wait_until("the position to be stored", async || {
        let stored = fs::read_to_string(&stored).unwrap();
        stored.contains(&format!("\"offset\":{end},"))
    })
    .await;
    drop(second);
    let directory = running.kill().await;

    let running = Running::start(directory, options, Consumed::default()).await;
    running.consumed.wait_for(&[3, 4]).await;
    let directory = running.stop().await;
    append(&directory.path().join("in"), &line(5));
    let running = Running::start(directory, options, Consumed::default()).await;
    running.consumed.wait_for(&[5]).await;
    running.stop().await;
}

#[tokio::test]
async fn recognizes_files_that_were_rotated_truncated_or_replaced_while_it_was_stopped() {
    let check = async |change: &dyn Fn(&Path), expected: &[usize]| {
        let directory = directory();
        append(&directory.path().join("in"), &[line(1), line(2)].concat());
        let running = Running::start(directory, STORED, Consumed::default()).await;
        running.consumed.wait_for(&[1, 2]).await;
        let directory = running.stop().await;
        change(directory.path());
        let running = Running::start(directory, STORED, Consumed::default()).await;
        let mut samples = running.consumed.samples.subscribe();
        let enough = |all: &Vec<usize>| all.len() >= expected.len();
        let mut read = samples.wait_for(enough).await.unwrap().clone();
        read.sort_unstable();
        assert_eq!(read, expected);
        running.stop().await;
    };
    let rotated = |folder: &Path| {
        fs::rename(folder.join("in"), folder.join("in-1")).unwrap();
        append(&folder.join("in-1"), &line(3));
        append(&folder.join("in"), &line(4));
    };
    check(&rotated, &[3, 4]).await;
    let truncated = |folder: &Path| fs::write(folder.join("in"), line(3)).unwrap();
    check(&truncated, &[3]).await;
    // The inode is the same, and the file longer than before.
    let replaced = |folder: &Path| {
        let lines = [line(30), line(40), line(50)].concat();
        fs::write(folder.join("in"), lines).unwrap();
    };
    check(&replaced, &[30, 40, 50]).await;
}

#[tokio::test]
async fn with_damaged_positions_reads_everything_again() {
    for damage in [
        &(|path: &Path| {
            let stored = fs::read(path).unwrap();
            fs::write(path, &stored[..stored.len() / 2]).unwrap();
        }) as &dyn Fn(&Path),
        &|path| fs::write(path, "").unwrap(),
        &|path| {
            fs::remove_file(path).unwrap();
            fs::create_dir(path).unwrap();
        },
    ] {
        let directory = directory();
        append(&directory.path().join("in"), &[line(1), line(2)].concat());
        let running = Running::start(directory, STORED, Consumed::default()).await;
        running.consumed.wait_for(&[1, 2]).await;
        let directory = running.stop().await;
        damage(&directory.path().join("receiver_otlp_file.checkpoint"));
        let options = "start_at: end, storage: file_storage";
        let running = Running::start(directory, options, Consumed::default()).await;
        running.consumed.wait_for(&[1, 2]).await;
        running.stop().await;
    }
}

#[tokio::test]
async fn the_status_shows_that_positions_cannot_be_stored() {
    let directory = directory();
    // A directory is in the way.
    let path = directory.path().join("receiver_otlp_file.checkpoint");
    fs::create_dir(&path).unwrap();
    append(&directory.path().join("in"), &line(1));
    let running = Running::start(directory, STORED, Consumed::default()).await;
    running.consumed.wait_for(&[1]).await;
    let status = || running.board.snapshot().remove("otlp_file");
    wait_until("an error", async || {
        matches!(status(), Some(Status::RecoverableError(error))
            if error.to_string().starts_with("failed to store positions: "))
    })
    .await;
    fs::remove_dir(&path).unwrap();
    wait_until("its end", async || status() == Some(Status::Ok)).await;
    running.stop().await;
}

#[tokio::test]
async fn skips_excluded_files_and_reads_no_file_twice() {
    let directory = directory();
    let root = directory.path().display().to_string();
    append(&directory.path().join("in"), &line(1));
    append(&directory.path().join("in.tmp"), &line(2));
    fs::create_dir(directory.path().join("in-directory")).unwrap();
    fs::hard_link(
        directory.path().join("in"),
        directory.path().join("in-again"),
    )
    .unwrap();
    let options = format!("{ONCE}, exclude: ['{root}/*.tmp']");
    let mut running = Running::start(directory, &options, Consumed::default()).await;
    assert_eq!(running.ended().await, Ok(()));
    running.consumed.wait_for(&[1]).await;
    assert_eq!(running.consumed.samples.borrow().len(), 1);
}

#[test]
fn closes_finished_files_beyond_the_limit() {
    let directory = directory();
    let config: OtlpFileConfig = load(&format!(
        "{{include: ['{}/*'], start_at: beginning}}",
        directory.path().display()
    ))
    .unwrap();
    for number in 0..200 {
        append(&directory.path().join(number.to_string()), &line(1));
    }
    let mut files = Files::new(&config, Arc::default());
    files.begin(false);
    let read = |files: &mut Files| {
        let mut count = 0;
        loop {
            match files.read().len() {
                0 => return count,
                some => count += some,
            }
        }
    };
    assert_eq!(read(&mut files), 200);
    assert!(files.open_files() <= 128, "{}", files.open_files());
    for number in 0..200 {
        append(&directory.path().join(number.to_string()), &line(2));
    }
    files.scan();
    assert_eq!(read(&mut files), 200);
}

#[test]
fn has_the_collectors_defaults() {
    let config = load::<OtlpFileConfig>("include: [a]").unwrap();
    assert_eq!(
        serde_json::to_value(config).unwrap(),
        serde_json::json!({
            "include": ["a"],
            "exclude": [],
            "start_at": "end",
            "follow": true,
            "poll_interval": "200ms",
            "format": "auto",
            "max_record_size": 67_108_864,
            "storage": null,
            "max_in_flight": 100,
            "when_undelivered": "retry",
        })
    );
}

#[test]
fn validates_the_options() {
    let check = |options: &str, expected: &str| {
        assert_eq!(load::<OtlpFileConfig>(options).unwrap_err(), expected);
    };
    check("", "include: required argument `include` is empty");
    check(
        "{include: [a], start_at: now}",
        "start_at: invalid start_at location \"now\"",
    );
    check(
        "{include: ['a***'], poll_interval: 0s, follow: false, max_record_size: 0, max_in_flight: 0}",
        "include: parse include glob \"a***\": Pattern syntax error near position 3: wildcards are either regular `*` or recursive `**`\n\
         poll_interval: `poll_interval` must be positive\n\
         start_at: with `follow: false` nothing would be read: set `start_at: beginning`\n\
         max_record_size: must be between 1 and 4294967295\n\
         max_in_flight: must be positive",
    );
    check(
        "{include: [a], when_undelivered: leave}",
        "when_undelivered: `leave` requires `follow: false`",
    );
}
