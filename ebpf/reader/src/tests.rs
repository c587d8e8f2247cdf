//! Tables of real files by a process in a thread: honest, broken and hostile ones.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU32, Ordering};

use profcol_ebpf_common::interpreter::Interpreter;
use profcol_ebpf_common::rule::EncodedRule;
use profcol_ebpf_common::table::{PAGE_SHIFT, Page, Row};
use profcol_ebpf_interpreters::Runtime;
use profcol_reader::testkit::{Serve, one_after_the_other};
use profcol_reader::{Channel, Received, SendMode, notify_ready};
use prost::Message;

use super::*;
use crate::messages::{
    PartialTable, Response, ResponseKind, TableChunk, WireFileFeatures, WireInterpreter,
    WireRuntime, chunks,
};

const KEY: u64 = 7;

fn honest(socket: OwnedFd) -> io::Result<()> {
    serve(socket, String::new())
}

/// Ends at the first request.
fn dies(socket: OwnedFd) -> io::Result<()> {
    answers(socket, None)
}

/// Answers the first request only.
fn serves_once(socket: OwnedFd) -> io::Result<()> {
    answers(socket, Some(ResponseKind::Lazy(messages::LazyTable {})))
}

/// Answers with rows that no table has.
fn lies(socket: OwnedFd) -> io::Result<()> {
    let table = TableChunk {
        pages: vec![0, 9],
        is_last: true,
        ..TableChunk::default()
    };
    answers(socket, Some(ResponseKind::Chunk(table)))
}

fn answers(socket: OwnedFd, answer: Option<ResponseKind>) -> io::Result<()> {
    let mut channel = Channel::new(socket);
    notify_ready(&channel, String::new())?;
    while let Received::WouldBlock = channel.receive()? {
        channel.wait(None)?;
    }
    if let Some(answer) = answer {
        let response = Response::from(answer).encode_to_vec();
        channel.send(&response, &[], SendMode::Blocking)?;
    }
    Ok(())
}

/// A reader, and how many processes of it failed.
fn reader(processes: Vec<Serve>) -> (CodeReader, Arc<AtomicU32>) {
    let failures = Arc::<AtomicU32>::default();
    let failed = Arc::clone(&failures);
    let reader = CodeReader::new(
        &one_after_the_other(processes),
        false,
        || true,
        move |_| {
            failed.fetch_add(1, Ordering::Relaxed);
        },
    );
    (reader, failures)
}

fn local() -> CodeReader {
    CodeReader::new(&Readers::default(), false, || true, |_| {})
}

fn code(path: &str) -> (CodeFile, ElfCode) {
    let file = Arc::new(File::open(path).unwrap());
    let elf = ElfCode::read(&*file).unwrap();
    let code = CodeFile {
        source: Arc::clone(&file) as _,
        file: Some(file),
    };
    (code, elf)
}

fn this_program() -> (CodeFile, ElfCode) {
    code("/proc/self/exe")
}

fn whole(built: Result<Built, ReadError>) -> Table {
    match built {
        Ok(Built::Whole(table)) => table,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_process_builds_the_same_tables() {
    let (mut remote, failures) = reader(vec![honest]);
    for path in ["/proc/self/exe", "/bin/sh", "/usr/bin/env"] {
        let (code, elf) = code(path);
        let expected = whole(local().read(KEY, &code, &elf, false).table);
        assert!(expected.rows.len() > 100, "{path}");
        assert_eq!(
            whole(remote.read(KEY, &code, &elf, false).table),
            expected,
            "{path}"
        );
    }
    assert!(remote.idle_since().is_some());
    assert_eq!(failures.load(Ordering::Relaxed), 0);
}

#[test]
fn a_process_builds_the_same_pages_also_after_a_restart() {
    let (code, elf) = this_program();
    let first = elf.segments[0].file_offset >> PAGE_SHIFT;
    let mut local = local();
    assert!(matches!(
        local.read(KEY, &code, &elf, true).table,
        Ok(Built::Lazy)
    ));
    let (mut remote, failures) = reader(vec![honest]);
    assert!(matches!(
        remote.read(KEY, &code, &elf, true).table,
        Ok(Built::Lazy)
    ));
    let mut rows = 0;
    for begin in (first..first + 64).step_by(16) {
        if begin == first + 32 {
            remote.rest();
            assert!(remote.idle_since().is_none());
        }
        let expected = local.pages(KEY, &code, begin, 16).unwrap();
        rows += expected.rows.len();
        assert_eq!(remote.pages(KEY, &code, begin, 16).unwrap(), expected);
    }
    assert!(rows > 100);
    remote.forget(KEY);
    assert_eq!(failures.load(Ordering::Relaxed), 0);
}

#[test]
fn another_process_reads_a_file_at_which_one_failed() {
    for broken in [dies as Serve, lies] {
        let (code, elf) = this_program();
        let (mut remote, failures) = reader(vec![broken, honest]);
        assert!(
            !whole(remote.read(KEY, &code, &elf, false).table)
                .rows
                .is_empty()
        );
        assert_eq!(failures.load(Ordering::Relaxed), 1);
        let (mut remote, failures) = reader(vec![broken]);
        let refused = remote.read(KEY, &code, &elf, false).table;
        assert!(matches!(refused, Err(ReadError::Reader(_))), "{refused:?}");
        assert_eq!(failures.load(Ordering::Relaxed), 2);
    }
}

#[test]
fn pages_are_read_by_another_process_after_one_failed() {
    let (code, elf) = this_program();
    let first = elf.segments[0].file_offset >> PAGE_SHIFT;
    let (mut remote, failures) = reader(vec![serves_once, honest]);
    assert!(matches!(
        remote.read(KEY, &code, &elf, true).table,
        Ok(Built::Lazy)
    ));
    assert_eq!(remote.pages(KEY, &code, first, 4).unwrap().pages.len(), 4);
    assert_eq!(failures.load(Ordering::Relaxed), 1);
}

#[test]
fn a_process_finds_the_same_interpreters_and_contexts() {
    let (mut remote, failures) = reader(vec![honest]);
    let mut interpreters = 0;
    let mut contexts = 0;
    const GO: &str = "/usr/local/go/bin/go";
    for path in ["/usr/bin/perl", "/usr/bin/python3", GO] {
        if !std::path::Path::new(path).exists() {
            continue;
        }
        let (code, elf) = code(path);
        let expected = local().read(KEY, &code, &elf, false).features;
        let features = remote.read(KEY, &code, &elf, false).features;
        assert_eq!(format!("{features:?}"), format!("{expected:?}"), "{path}");
        interpreters += usize::from(features.interpreter.is_some());
        contexts += usize::from(matches!(features.contexts, Ok(Some(_))));
    }
    assert!(interpreters > 0, "Debian always has Perl");
    assert!(contexts > 0 || !std::path::Path::new(GO).exists());
    assert_eq!(failures.load(Ordering::Relaxed), 0);
}

#[test]
fn what_was_found_survives_the_messages_and_is_checked() {
    for example in DetectedInterpreter::examples() {
        let features = FileFeatures {
            contexts: Ok(Some(ContextLayout::default())),
            runtime: Some(FileRuntime::supported(
                example.runtime,
                Some(example.version.clone()),
            )),
            interpreter: Some(example),
        };
        let decoded = WireFileFeatures::from(&features)
            .checked()
            .map_err(|it| it.0);
        assert_eq!(format!("{:?}", decoded.unwrap()), format!("{features:?}"));
    }
    let unsupported = FileFeatures {
        contexts: Err("why".to_owned()),
        interpreter: None,
        runtime: Some(FileRuntime {
            runtime: Runtime::Java,
            version: None,
            unsupported: Some("why not".to_owned()),
        }),
    };
    let decoded = WireFileFeatures::from(&unsupported)
        .checked()
        .map_err(|it| it.0);
    assert_eq!(
        format!("{:?}", decoded.unwrap()),
        format!("{unsupported:?}")
    );
    let short = WireFileFeatures {
        contexts: Some(vec![0; 3]),
        ..WireFileFeatures::default()
    };
    assert!(short.checked().is_err());
    let of_no_runtime = WireFileFeatures {
        runtime: Some(WireRuntime::default()),
        ..WireFileFeatures::default()
    };
    assert!(of_no_runtime.checked().is_err());
    let interpreter = WireInterpreter {
        text: "{}".to_owned(),
        program_data: vec![0; size_of::<Interpreter>()],
    };
    let impossible = WireFileFeatures {
        interpreter: Some(interpreter),
        ..WireFileFeatures::default()
    };
    assert!(impossible.checked().is_err());
}

#[test]
fn a_refusal_is_no_failure_of_the_process() {
    let (code, elf) = this_program();
    let (mut remote, failures) = reader(vec![honest]);
    let text = Arc::new(File::open("/etc/passwd").unwrap());
    let other = CodeFile {
        source: Arc::clone(&text) as _,
        file: Some(text),
    };
    let refused = remote.read(KEY, &other, &elf, false).table;
    assert!(matches!(refused, Err(ReadError::Refused(_))), "{refused:?}");
    assert!(
        !whole(remote.read(KEY, &code, &elf, false).table)
            .rows
            .is_empty()
    );
    assert_eq!(failures.load(Ordering::Relaxed), 0);
}

#[test]
fn after_the_stop_nothing_is_read() {
    let (code, elf) = this_program();
    let readers = one_after_the_other(vec![|socket| {
        // Never answers.
        let mut channel = Channel::new(socket);
        notify_ready(&channel, String::new())?;
        while !matches!(channel.receive()?, Received::Closed) {
            channel.wait(None)?;
        }
        Ok(())
    }]);
    let asked = AtomicU32::new(0);
    let keep_going = move || asked.fetch_add(1, Ordering::Relaxed) < 3;
    let mut remote = CodeReader::new(&readers, false, keep_going, |_| {});
    let stopped = remote.read(KEY, &code, &elf, false).table;
    assert!(matches!(stopped, Err(ReadError::Stopped)), "{stopped:?}");
}

#[test]
fn tables_that_contradict_themselves_are_rejected() {
    let sound = Table {
        first_page: 3,
        pages: vec![Page { rows: 0, count: 2 }, Page::EMPTY],
        rows: vec![Row::new(0, 0), Row::new(8, 1)],
        rules: vec![EncodedRule(1), EncodedRule(2)],
    };
    let received = |table: &Table| {
        let mut partial = PartialTable::default();
        for chunk in chunks(table) {
            partial.add(&chunk).map_err(|it| it.0)?;
        }
        partial.finish().map_err(|it| it.0)
    };
    assert_eq!(received(&sound).as_ref(), Ok(&sound));
    let changes: [fn(&mut Table); 5] = [
        |table| table.pages[0].count = 3,
        |table| table.pages[1] = Page { rows: 2, count: 1 },
        |table| {
            table.pages[1] = Page {
                rows: u32::MAX,
                count: 2,
            }
        },
        |table| table.rows[1] = Row::new(8, 2),
        |table| table.first_page = u64::from(u32::MAX),
    ];
    for change in changes {
        let mut table = sound.clone();
        change(&mut table);
        assert!(received(&table).is_err(), "{table:?}");
    }
    let mut long = sound.clone();
    long.rows = vec![Row::new(0, 0); 5000];
    long.pages[0].count = 5000;
    assert!(received(&long).is_err(), "more rows than a page has bytes");
}

#[test]
fn a_table_without_an_end_is_rejected() {
    let mut partial = PartialTable::default();
    let chunk = TableChunk {
        rows: vec![0; 256 << 10],
        ..TableChunk::default()
    };
    let accepted = (0..1000)
        .take_while(|_| partial.add(&chunk).is_ok())
        .count();
    assert!((100..200).contains(&accepted), "{accepted}");
}
