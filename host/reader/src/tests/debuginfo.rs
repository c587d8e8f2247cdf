//! Debuginfo by readers in threads: honest, hostile, broken ones.

use std::cell::Cell;
use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use profcol_debuginfo::ExternalDwarf;

use super::{HONEST, answering, asks_for, stripped};
use crate::extract::{ExtractOptions, ExtractionFailure, MAX_PIECE, Planned};
use crate::messages::{
    CompanionKind, Empty, ExtractionFailureKind, RequestKind, ResponseKind, Shrunk,
    WireExternalDwarf, WireExtractionFailure, WirePlanned, WireReason,
};
use crate::testkit::{Serve, in_threads, one_after_the_other};
use crate::{DebuginfoReader, ReaderFailure, Readers};

fn options() -> ExtractOptions {
    ExtractOptions {
        strip: true,
        max_bytes: u64::MAX,
        max_compression_time: None,
        build_id: None,
    }
}

fn this_program() -> PathBuf {
    std::env::current_exe().unwrap()
}

fn plan(
    reader: &mut DebuginfoReader,
    path: &Path,
    options: &ExtractOptions,
) -> Result<Planned, ExtractionFailure> {
    let file = File::open(path).unwrap();
    reader.plan(file, options, &|| None, &|| true)
}

fn rest(reader: &mut DebuginfoReader) -> Result<Vec<u8>, ExtractionFailure> {
    let mut all = Vec::new();
    while let Some(piece) = reader.next(&|| true)? {
        all.extend(piece);
    }
    Ok(all)
}

/// The plan and the debuginfo.
fn extract(
    readers: &Readers,
    path: &Path,
    options: &ExtractOptions,
) -> Result<(Planned, Vec<u8>), ExtractionFailure> {
    let mut reader = DebuginfoReader::new(readers);
    let planned = plan(&mut reader, path, options)?;
    Ok((planned, rest(&mut reader)?))
}

/// Both ways to read.
fn both() -> [Readers; 2] {
    [Readers::default(), in_threads()]
}

#[test]
fn another_process_extracts_the_same_as_this_one() {
    let path = this_program();
    let whole = fs::read(&path).unwrap();
    let own = |options: &ExtractOptions| extract(&Readers::default(), &path, options).unwrap();
    let (planned, all) = own(&options());
    assert_eq!(planned.size, all.len() as u64);
    assert!(!planned.is_without_dwarf && planned.elsewhere.is_none());
    for limit in [planned.size, planned.size - 1, planned.size / 8, 1] {
        let options = ExtractOptions {
            max_bytes: limit,
            ..options()
        };
        let (planned, content) = own(&options);
        assert_eq!(content == all, limit == all.len() as u64);
        let (planned_there, content_there) = extract(&in_threads(), &path, &options).unwrap();
        assert_eq!(planned_there, planned);
        assert!(content_there == content, "{limit}");
    }
    let options = ExtractOptions {
        strip: false,
        ..options()
    };
    for readers in both() {
        assert!(extract(&readers, &path, &options).unwrap().1 == whole);
    }
}

#[test]
fn both_report_the_same_failures() {
    let directory = tempfile::tempdir().unwrap();
    let script = directory.path().join("script");
    fs::write(&script, "#!/bin/sh\n".repeat(100)).unwrap();
    for readers in both() {
        let failure = |path: &Path, options: &ExtractOptions| {
            extract(&readers, path, options).map(drop).unwrap_err()
        };
        let refused = failure(&script, &options());
        assert_eq!(refused.reason(), "unsupported", "{refused}");
        let other = ExtractOptions {
            build_id: Some("00".repeat(20)),
            ..options()
        };
        let replaced = failure(&this_program(), &other);
        let ExtractionFailure::Replaced { found } = &replaced else {
            panic!("{replaced}");
        };
        assert_eq!(found.len(), 40, "{found}");
    }
}

#[test]
fn reads_the_debug_file_of_a_stripped_program() {
    let directory = tempfile::tempdir().unwrap();
    let stripped = stripped(directory.path());
    for readers in both() {
        let (_, expected) = extract(&readers, &this_program(), &options()).unwrap();
        let mut reader = DebuginfoReader::new(&readers);
        let was_searched = Cell::new(0);
        let find = || {
            was_searched.set(was_searched.get() + 1);
            File::open(this_program()).ok()
        };
        let file = File::open(&stripped).unwrap();
        let planned = reader.plan(file, &options(), &find, &|| true).unwrap();
        assert_eq!(was_searched.get(), 1);
        assert_eq!(planned.size, expected.len() as u64);
        assert!(rest(&mut reader).unwrap() == expected);
    }
}

#[test]
fn a_change_of_the_file_is_noticed() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("program");
    fs::copy(this_program(), &path).unwrap();
    for readers in both() {
        let mut reader = DebuginfoReader::new(&readers);
        plan(&mut reader, &path, &options()).unwrap();
        reader.next(&|| true).unwrap().unwrap();
        let file = File::options().append(true).open(&path).unwrap();
        io::Write::write_all(&mut &file, b"more").unwrap();
        let failure = rest(&mut reader).unwrap_err();
        assert!(matches!(failure, ExtractionFailure::Changed), "{failure}");
    }
}

#[test]
fn reading_stops_when_it_is_not_needed_any_more() {
    let mut reader = DebuginfoReader::new(&in_threads());
    plan(&mut reader, &this_program(), &options()).unwrap();
    let stopped = reader.next(&|| false).map(drop);
    assert!(
        matches!(stopped, Ok(()) | Err(ExtractionFailure::Stopped)),
        "{stopped:?}"
    );
}

/// Plans this many bytes, and answers requests for pieces with one of this size.
fn with_pieces(socket: OwnedFd, planned: u64, piece: usize) -> io::Result<()> {
    answering(socket, |request| {
        Some(match request {
            RequestKind::Extract(_) => ResponseKind::Planned(WirePlanned {
                size: planned,
                ..WirePlanned::default()
            }),
            _ => ResponseKind::Piece(vec![1; piece]),
        })
    })
}

#[test]
fn pieces_have_the_planned_size() {
    let wrong: [Serve; 3] = [
        |socket| with_pieces(socket, 10, 11),
        |socket| with_pieces(socket, 10, 0),
        |socket| with_pieces(socket, 1 << 30, MAX_PIECE + 1),
    ];
    for wrong in wrong {
        let failure = extract(
            &one_after_the_other(vec![wrong]),
            &this_program(),
            &options(),
        );
        let failure = failure.map(drop).unwrap_err();
        assert!(
            matches!(
                failure,
                ExtractionFailure::Reader(ReaderFailure::Invalid(_))
            ),
            "{failure}"
        );
    }
    let right: Serve = |socket| with_pieces(socket, 20, 10);
    let (_, content) = extract(
        &one_after_the_other(vec![right]),
        &this_program(),
        &options(),
    )
    .unwrap();
    assert_eq!(content, [1; 20]);
}

#[test]
fn a_reader_that_fails_is_replaced_once() {
    let broken: [Serve; 5] = [
        |socket| answering(socket, |_| None),
        |socket| answering(socket, |_| Some(ResponseKind::Shrunk(Shrunk { weight: 1 }))),
        |socket| {
            answering(socket, |_| {
                let refused = ExtractionFailureKind::Refused(WireReason {
                    reason: "a label of its own".to_owned(),
                    why: String::new(),
                });
                let kind = Some(refused);
                Some(ResponseKind::NotExtracted(WireExtractionFailure { kind }))
            })
        },
        // Again and again.
        |socket| answering(socket, |_| asks_for(CompanionKind::Separate(Empty {}))),
        |socket| answering(socket, |_| asks_for(CompanionKind::Package(Empty {}))),
    ];
    for broken in broken {
        let replaced = one_after_the_other(vec![broken, HONEST]);
        extract(&replaced, &this_program(), &options()).unwrap();
        let given_up = one_after_the_other(vec![broken, broken, HONEST]);
        let failure = extract(&given_up, &this_program(), &options());
        let failure = failure.map(drop).unwrap_err();
        assert_eq!(failure.reason(), "reader", "{failure}");
    }
}

#[test]
fn without_a_process_this_one_extracts() {
    let none: Serve = |_| Ok(());
    let (planned, content) = extract(
        &one_after_the_other(vec![none]),
        &this_program(),
        &options(),
    )
    .unwrap();
    assert_eq!(planned.size, content.len() as u64);
}

#[test]
fn plans_and_options_arrive_as_they_were_given() {
    let options = ExtractOptions {
        strip: false,
        max_bytes: 7,
        max_compression_time: Some(Duration::from_millis(5)),
        build_id: Some("ab".to_owned()),
    };
    let wire = crate::messages::WireExtractOptions::from(&options);
    assert_eq!(ExtractOptions::from(wire), options);
    for elsewhere in [
        None,
        Some(ExternalDwarf::Split),
        Some(ExternalDwarf::Common),
    ] {
        let planned = Planned {
            size: 3,
            elsewhere,
            is_without_dwarf: true,
        };
        assert_eq!(Planned::from(WirePlanned::from(planned)), planned);
    }
    let unknown = WirePlanned {
        elsewhere: 9,
        ..WirePlanned::default()
    };
    assert_eq!(unknown.elsewhere(), WireExternalDwarf::None);
}
