//! Inspects a storage read-only, even while a process uses it.

use std::io;
use std::path::{Path, PathBuf};

use crate::directory::{Purpose, owner_of};
use crate::disk::{Disk, Folder};
use crate::format::{BadSegment, Counts};
use crate::segment::{Segment, SegmentScan, numbers, records_name};
use crate::walk::{Step, Walk, read_payload};

/// The log of an exporter.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FoundLog {
    pub exporter: String,
    pub purpose: Purpose,
    pub folder: PathBuf,
}

/// The content of a log.
#[derive(Clone, Debug)]
pub struct LogReport {
    pub segments: Vec<SegmentReport>,
}

#[derive(Clone, Debug)]
pub struct SegmentReport {
    pub file: PathBuf,
    pub bytes: u64,
    /// Records that are not settled.
    pub waiting: Counts,
    pub settled: u64,
    /// Damaged places, and records with checksum mismatches.
    pub corrupt: u64,
    /// Bytes of an incomplete record at the end, in progress or interrupted.
    pub torn_bytes: u64,
    /// Why nothing in it is readable.
    pub unreadable: Option<String>,
}

/// The logs in a directory, by exporter, and the process that uses it.
pub struct Contents {
    pub owner: Option<String>,
    pub logs: Vec<FoundLog>,
}

#[derive(Debug, thiserror::Error)]
#[error("{path}: {error}")]
pub struct InspectError {
    pub path: PathBuf,
    #[source]
    pub error: io::Error,
}

/// The logs in a directory.
pub fn logs(directory: &Path) -> Result<Contents, InspectError> {
    let failed = |error| InspectError {
        path: directory.to_owned(),
        error,
    };
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let log = entry.file_name().to_str().and_then(Purpose::of_folder);
        found.extend(log.map(|(purpose, exporter)| FoundLog {
            exporter,
            purpose,
            folder: entry.path(),
        }));
    }
    found.sort();
    Ok(Contents {
        owner: owner_of(directory),
        logs: found,
    })
}

/// Reads a log and calls `each` for each record that is not settled, oldest first. Verifies every byte.
pub fn records<E>(
    folder: &Path,
    mut each: impl FnMut(&Counts, &[u8], Vec<u8>) -> Result<(), E>,
) -> Result<Result<LogReport, E>, InspectError> {
    let disk = Folder::existing(folder);
    let failed = |error| InspectError {
        path: folder.to_owned(),
        error,
    };
    let mut report = LogReport {
        segments: Vec::new(),
    };
    let (found, _) = numbers(&disk.names().map_err(failed)?);
    for &number in &found {
        let file = folder.join(records_name(number));
        let is_last = found.last() == Some(&number);
        match segment(&disk, number, is_last, &mut each) {
            Ok(Ok(segment)) => report.segments.push(SegmentReport { file, ..segment }),
            Ok(Err(stopped)) => return Ok(Err(stopped)),
            // Delivered and removed in the meantime.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(InspectError { path: file, error }),
        }
    }
    Ok(Ok(report))
}

fn segment<E>(
    disk: &dyn Disk,
    number: u64,
    is_last: bool,
    each: &mut impl FnMut(&Counts, &[u8], Vec<u8>) -> Result<(), E>,
) -> io::Result<Result<SegmentReport, E>> {
    let mut report = SegmentReport {
        file: PathBuf::new(),
        bytes: disk.open(&records_name(number))?.size()?,
        waiting: Counts::default(),
        settled: 0,
        corrupt: 0,
        torn_bytes: 0,
        unreadable: None,
    };
    let (mut segment, scan) = match Segment::recover(disk, number, is_last, false)? {
        Ok(found) => found,
        Err(bad) => {
            report.unreadable = Some(match bad {
                BadSegment::Damaged => "its header is damaged".to_owned(),
                BadSegment::Version(version) => format!("has format version {version}"),
            });
            return Ok(Ok(report));
        }
    };
    let SegmentScan {
        settled,
        damaged,
        torn_bytes,
        ..
    } = scan;
    report.settled = settled;
    report.corrupt = damaged;
    report.torn_bytes = torn_bytes;
    let file = segment.open_records(disk)?;
    segment.open_settled(disk).ok();
    let settled = segment.read_settled()?;
    let mut walk = Walk::new(segment.header.salt);
    loop {
        match walk.step(&*file, segment.len)? {
            Step::Record { header, .. } if settled.contains(header.index) => {}
            Step::Record { at, header } => {
                match read_payload(&*file, segment.header.salt, at, &header)? {
                    Some((head, body)) => {
                        report.waiting += header.counts;
                        if let Err(stopped) = each(&header.counts, &head, body) {
                            return Ok(Err(stopped));
                        }
                    }
                    None => report.corrupt += 1,
                }
            }
            Step::Damage { .. } | Step::Tail { .. } => {}
            Step::End => return Ok(Ok(report)),
        }
    }
}
