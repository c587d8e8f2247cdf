//! The same questions get the same answers from memory, from disk, and from both.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use profcol_component::DeferredSymbols;
use profcol_flamegraph::{FrameKind, folded};
use profcol_profile::Model;

use crate::tests::{START, limits, query, second};
use crate::{ArchiveOptions, Flush, History, Limits, Selector, Steps};

fn options(directory: &Path) -> ArchiveOptions {
    ArchiveOptions {
        directory: directory.to_owned(),
        max_bytes: 64 << 20,
        flush_interval: Duration::from_secs(1),
    }
}

/// A minute in memory.
fn short() -> Limits {
    Limits {
        max_age: Duration::from_secs(60),
        ..limits(64 << 20)
    }
}

fn opened(limits: Limits, options: &ArchiveOptions) -> History {
    let history = History::new(limits);
    history.open_archive(options, "live_view").unwrap();
    history
}

/// Two processes for a second, with names that repeat every few minutes.
fn batches(at: u64) -> [Model; 2] {
    let hot = format!("main;hot{};[kernel] \u{fc}", at % 7);
    let stacks = [
        (hot.as_str(), "worker", 3),
        ("[stack ends: no_table];main", "main", 1),
    ];
    [
        second(START + at, 1, "nginx", &stacks),
        second(
            START + at,
            2,
            "postgres",
            &[("main@native;query@cpython;step@jvm@jit", "backend", 2)],
        ),
    ]
}

fn fill(history: &History, seconds: std::ops::Range<u64>) {
    for at in seconds {
        for model in batches(at) {
            history.add(&model, &DeferredSymbols::default());
        }
        if at % 20 == 0 {
            history.flush(Flush::Settled).unwrap();
        }
    }
}

/// The answers to all questions about these seconds.
fn answers(history: &History, from: u64, until: u64) -> String {
    let mut answers = String::new();
    for selector in [
        "",
        "pid=\"2\"",
        "thread_name=\"worker\"",
        "nothing=\"x\"",
        "language=\"Java\"",
    ] {
        let query = query(selector, START + from, START + until);
        let tree = history.call_tree(&query, None);
        let mut functions: Vec<String> = tree
            .tree
            .frames
            .iter()
            .map(|it| {
                let name = tree.tree.frames.text(it.name);
                format!("{:?} {:?} {name}", it.kind, it.language)
            })
            .collect();
        functions.sort();
        let mut stacks: Vec<_> = folded(&tree.tree).lines().map(str::to_owned).collect();
        stacks.sort();
        let steps = Steps {
            start: (START + from) * 1000,
            length: 15_000,
        };
        let by = ["service_name".to_owned(), "thread_name".to_owned()];
        answers += &format!(
            "{stacks:#?}{functions:#?}{} {:?}\n{:#?}{:#?}{:#?}{:#?}{:#?}{:#?}{:#?}",
            tree.source.samples,
            tree.source.sample_type,
            history.timeline(&query, "process_executable_name", 1),
            history.timeline(&query, "language", 9),
            history.points(&query, &by, steps, 10),
            history.label_sets(&query, &by, 10),
            history.label_names(&query),
            history.label_values(&query, "process_executable_name", 10),
            history.processes(&query, 10),
        );
    }
    answers
}

const RANGES: [(u64, u64); 5] = [(0, 600), (0, 100), (130, 135), (290, 600), (700, 800)];

#[test]
fn memory_and_disk_answer_like_memory_alone() {
    let folder = tempfile::tempdir().unwrap();
    let all = History::new(limits(64 << 20));
    fill(&all, 0..300);
    let history = opened(short(), &options(folder.path()));
    fill(&history, 0..300);
    let extent = history.extent();
    assert_eq!(
        (extent.oldest, extent.evicted_samples),
        (Some(START * 1000), 0)
    );
    assert_eq!(extent.samples, 300 * 6);
    let in_memory = history.memory.read().extent();
    assert!(
        in_memory.oldest > Some((START + 200) * 1000),
        "{in_memory:?}"
    );
    for (from, until) in RANGES {
        let expected = answers(&all, from, until);
        assert_eq!(answers(&history, from, until), expected, "{from}..{until}");
    }
    // After a restart, all of it is on disk.
    assert!(!history.flush(Flush::All).unwrap());
    drop(history);
    let history = opened(short(), &options(folder.path()));
    assert_eq!(history.extent().bytes, 0);
    assert_eq!(history.extent().samples, 300 * 6);
    for (from, until) in RANGES {
        let expected = answers(&all, from, until);
        assert_eq!(answers(&history, from, until), expected, "{from}..{until}");
    }
    // It goes on where it was.
    fill(&history, 300..400);
    fill(&all, 300..400);
    assert_eq!(answers(&history, 0, 600), answers(&all, 0, 600));
    assert_eq!(history.types(0, START * 1000), []);
    assert_eq!(history.types(0, u64::MAX), all.types(0, u64::MAX));
}

#[test]
fn frames_keep_their_kinds() {
    let folder = tempfile::tempdir().unwrap();
    let history = opened(short(), &options(folder.path()));
    fill(&history, 0..10);
    history.flush(Flush::All).unwrap();
    drop(history);
    let history = opened(short(), &options(folder.path()));
    let tree = history.call_tree(&query("", START, START + 10), None).tree;
    let kind = |name: &str| {
        let mut frames = tree.frames.iter();
        frames
            .find(|it| tree.frames.text(it.name) == name)
            .map(|it| it.kind)
    };
    assert_eq!(kind("main"), Some(FrameKind::Native));
    assert_eq!(kind("query"), Some(FrameKind::Runtime));
    assert_eq!(kind("step"), Some(FrameKind::Jit));
    assert_eq!(kind("[stack ends: no_table]"), Some(FrameKind::Marker));
}

#[test]
fn a_directory_serves_one_history_at_a_time() {
    let folder = tempfile::tempdir().unwrap();
    let first = opened(short(), &options(folder.path()));
    let refused = History::new(short()).open_archive(&options(folder.path()), "live_view");
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains("is in use by process"), "{refused}");
    drop(first);
    opened(short(), &options(folder.path()));
}

#[test]
fn its_size_is_bounded_and_the_oldest_go_first() {
    let folder = tempfile::tempdir().unwrap();
    let bounded = ArchiveOptions {
        max_bytes: 64 << 10,
        ..options(folder.path())
    };
    let history = opened(short(), &bounded);
    fill(&history, 0..1500);
    history.flush(Flush::All).unwrap();
    let extent = history.extent();
    let disk = extent.disk.clone().unwrap();
    assert!(disk.bytes <= 64 << 10, "{disk:?}");
    let on_disk: u64 = files(folder.path()).iter().map(|it| size(it)).sum();
    assert_eq!(on_disk, disk.bytes);
    assert!(disk.bytes > 48 << 10, "{disk:?}");
    assert!(extent.oldest > Some((START + 100) * 1000), "{extent:?}");
    assert_eq!(extent.newest, Some((START + 1500) * 1000));
    assert_eq!(extent.samples + extent.evicted_samples, 1500 * 6);
    let oldest = extent.oldest.unwrap() / 1000 - START;
    let rest = query("", START + oldest, START + 1500);
    assert_eq!(
        history.call_tree(&rest, None).source.samples,
        extent.samples
    );
    // Less room at the next start.
    drop(history);
    let bounded = ArchiveOptions {
        max_bytes: 32 << 10,
        ..bounded
    };
    let history = opened(short(), &bounded);
    fill(&history, 1500..1520);
    history.flush(Flush::All).unwrap();
    assert!(history.extent().disk.unwrap().bytes <= 32 << 10);
}

#[test]
fn damage_costs_only_the_damaged_records() {
    let folder = tempfile::tempdir().unwrap();
    let history = opened(short(), &options(folder.path()));
    fill(&history, 0..300);
    history.flush(Flush::All).unwrap();
    let whole = history
        .call_tree(&query("", START, START + 300), None)
        .source;
    assert_eq!(whole.samples, 300 * 6);
    drop(history);
    let segment = &files(folder.path())[0];
    let middle = size(segment) / 2;
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .open(segment)
        .unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, middle).unwrap();
    file.write_all_at(&[byte[0] ^ 0x10], middle).unwrap();
    drop(file);
    let history = opened(short(), &options(folder.path()));
    let rest = history
        .call_tree(&query("", START, START + 300), None)
        .source;
    assert!((1..whole.samples).contains(&rest.samples), "{rest:?}");
    let disk = history.extent().disk.unwrap();
    assert_eq!(disk.damaged_segments, 1);
    // Known damage is counted once.
    history.label_names(&query("", START, START + 300));
    assert_eq!(history.extent().disk.unwrap().damaged_segments, 1);
}

#[test]
fn a_torn_record_is_cut_off() {
    let folder = tempfile::tempdir().unwrap();
    let history = opened(short(), &options(folder.path()));
    fill(&history, 0..300);
    history.flush(Flush::All).unwrap();
    drop(history);
    let segment = &files(folder.path())[0];
    let len = size(segment);
    let mut samples = 300 * 6;
    for cut in [1, 40, 300, len / 2] {
        let file = OpenOptions::new().write(true).open(segment).unwrap();
        file.set_len(len - cut).unwrap();
        let history = opened(short(), &options(folder.path()));
        let extent = history.extent();
        let rest = history
            .call_tree(&query("", START, START + 300), None)
            .source;
        assert_eq!(rest.samples, extent.samples, "cut {cut}");
        assert!(
            rest.samples < 300 * 6 && rest.samples <= samples,
            "cut {cut}"
        );
        assert_eq!(extent.disk.unwrap().damaged_segments, 0, "cut {cut}");
        samples = rest.samples;
    }
}

#[test]
fn foreign_records_are_left_out() {
    let folder = tempfile::tempdir().unwrap();
    let history = opened(short(), &options(folder.path()));
    fill(&history, 0..10);
    let archive = history.archive.get().unwrap();
    let mut random = 1u64;
    for head_len in [0, 1, 5, 30] {
        let mut bytes = |len: usize| {
            let mut next = || {
                random = random
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                (random >> 56) as u8
            };
            (0..len).map(|_| next()).collect::<Vec<u8>>()
        };
        let (head, body) = (bytes(head_len), bytes(500));
        let mut content = archive.content.lock();
        content
            .log
            .append(Default::default(), &head, &body)
            .unwrap();
        content.log.publish();
    }
    history.flush(Flush::All).unwrap();
    drop(history);
    let history = opened(short(), &options(folder.path()));
    let rest = history
        .call_tree(&query("", START, START + 10), None)
        .source;
    assert_eq!(rest.samples, 60);
}

#[test]
fn unnamed_code_keeps_its_binary() {
    let folder = tempfile::tempdir().unwrap();
    let mut model = profcol_component::testkit::profiles(4).into_model();
    model.set_lines(|_| Some([]));
    let all = crate::Query {
        kind: None,
        from: 0,
        until: u64::MAX,
        selector: Selector::default(),
        call_site: Vec::new(),
    };
    let before = History::new(short());
    before.add(&model, &DeferredSymbols::default());
    let history = opened(short(), &options(folder.path()));
    history.add(&model, &DeferredSymbols::default());
    history.flush(Flush::All).unwrap();
    drop(history);
    let history = opened(short(), &options(folder.path()));
    let stacks = |history: &History| folded(&history.call_tree(&all, None).tree);
    assert_eq!(stacks(&history), stacks(&before));
    assert_ne!(stacks(&history), "");
}

/// The files with records, oldest first.
fn files(directory: &Path) -> Vec<PathBuf> {
    let folder = fs::read_dir(directory.join("history_live_view")).unwrap();
    let mut files: Vec<PathBuf> = folder.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

fn size(file: &Path) -> u64 {
    fs::metadata(file).unwrap().len()
}
