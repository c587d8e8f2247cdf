//! Inspects a storage read-only, even while a process uses it.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io;
use std::path::{Path, PathBuf};

use crate::bodies::{Bodies, Body};
use crate::checkpoint::Checkpoint;
use crate::directory::owner_of;
use crate::disk::{Disk, Folder};
use crate::format::{BadSegment, Counts, Reference};
use crate::place::Purpose;
use crate::resolve::BodiesOn;
use crate::segment::{Segment, SegmentScan, numbers, records_name};
use crate::shared::FOLDER;
use crate::walk::{Step, Walk, read_payload};

/// The log of an exporter.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FoundLog {
    pub exporter: String,
    pub purpose: Purpose,
    pub directory: PathBuf,
}

/// The content of a log.
#[derive(Clone, Debug)]
pub struct LogReport {
    pub segments: Vec<SegmentReport>,
    /// How many records that are not settled have their bodies in these segments of the [shared ones](shared_bodies).
    pub references: BTreeMap<u64, u64>,
}

#[derive(Clone, Debug)]
pub struct SegmentReport {
    pub number: u64,
    pub file: PathBuf,
    pub bytes: u64,
    /// Records that are not settled.
    pub waiting: Counts,
    pub settled: u64,
    /// Damaged places, and records with checksum mismatches.
    pub corrupt: u64,
    /// Bytes of an incomplete record at the end, in progress or interrupted.
    pub torn_bytes: u64,
    /// Records that are not settled and whose shared bodies are missing.
    pub missing: u64,
    /// Why nothing in it is readable.
    pub unreadable: Option<String>,
}

/// The logs in a directory, by exporter, the checkpoints, and the process that uses it.
pub struct Contents {
    pub owner: Option<String>,
    pub logs: Vec<FoundLog>,
    pub checkpoints: Vec<Checkpoint>,
}

#[derive(Debug, thiserror::Error)]
#[error("{path}: {error}")]
pub struct InspectError {
    pub path: PathBuf,
    #[source]
    pub error: io::Error,
}

/// The logs and checkpoints in a directory.
pub fn logs(directory: &Path) -> Result<Contents, InspectError> {
    let failed = |error| InspectError {
        path: directory.to_owned(),
        error,
    };
    let (mut found, mut checkpoints) = (Vec::new(), Vec::new());
    for entry in std::fs::read_dir(directory).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let name = entry.file_name();
        let Some(name) = name.to_str() else {
            continue;
        };
        checkpoints.extend(Checkpoint::of_file(directory, name));
        let log = Purpose::of_folder(name);
        found.extend(log.map(|(purpose, exporter)| FoundLog {
            exporter,
            purpose,
            directory: entry.path(),
        }));
    }
    found.sort();
    checkpoints.sort_by(|a, b| a.path().cmp(b.path()));
    Ok(Contents {
        owner: owner_of(directory),
        logs: found,
        checkpoints,
    })
}

/// The bodies that the queues in a directory share, if there are any; each waits. Verifies every byte.
pub fn shared_bodies(directory: &Path) -> Result<Option<LogReport>, InspectError> {
    let folder = directory.join(FOLDER);
    if !folder.is_dir() {
        return Ok(None);
    }
    match records(&folder, |_, _, _| Ok::<_, Infallible>(()))? {
        Ok(report) => Ok(Some(report).filter(|report| !report.segments.is_empty())),
        Err(never) => match never {},
    }
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
    let shared = folder.parent().unwrap_or(folder).join(FOLDER);
    let bodies = BodiesOn(Folder::existing(&shared));
    let mut report = LogReport {
        segments: Vec::new(),
        references: BTreeMap::new(),
    };
    let (found, _) = numbers(&disk.names().map_err(failed)?);
    for &number in &found {
        let file = folder.join(records_name(number));
        let is_last = found.last() == Some(&number);
        let references = &mut report.references;
        match segment(&disk, number, is_last, &bodies, references, &mut each) {
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
    bodies: &dyn Bodies,
    references: &mut BTreeMap<u64, u64>,
    each: &mut impl FnMut(&Counts, &[u8], Vec<u8>) -> Result<(), E>,
) -> io::Result<Result<SegmentReport, E>> {
    let mut report = SegmentReport {
        number,
        file: PathBuf::new(),
        bytes: disk.open(&records_name(number))?.size()?,
        waiting: Counts::default(),
        settled: 0,
        corrupt: 0,
        torn_bytes: 0,
        missing: 0,
        unreadable: None,
    };
    let (mut segment, scan) = match Segment::recover(disk, number, is_last, false, bodies)? {
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
        missing,
        ..
    } = scan;
    report.settled = settled;
    report.corrupt = damaged;
    report.torn_bytes = torn_bytes;
    report.missing = missing.batches;
    let file = segment.open_records(disk)?;
    segment.open_settled(disk).ok();
    let settled = segment.read_settled()?;
    let mut walk = Walk::new(segment.header.salt);
    loop {
        match walk.step(&*file, segment.len)? {
            Step::Record { header, .. } if settled.contains(header.index) => {}
            Step::Record { at, header } => {
                let payload = read_payload(&*file, segment.header.salt, at, &header)?;
                let whole = match payload {
                    Some((head, stored)) if header.has_reference => {
                        match referred(&stored, header.body_len, bodies, references)? {
                            Body::Intact(body) => Some((head, body)),
                            Body::Damaged => None,
                            // Delivered and removed in the meantime.
                            Body::Missing => continue,
                        }
                    }
                    payload => payload,
                };
                match whole {
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

fn referred(
    stored: &[u8],
    len: u32,
    bodies: &dyn Bodies,
    references: &mut BTreeMap<u64, u64>,
) -> io::Result<Body> {
    let Some(reference) = Reference::decode(stored) else {
        return Ok(Body::Damaged);
    };
    *references.entry(reference.segment).or_default() += 1;
    bodies.read(&reference, len)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::sync::Arc;

    use super::*;
    use crate::format::RECORD_HEADER;
    use crate::{FsyncPolicy, Limits, Log, Next, Storage, StorageOptions, WhenFull};

    const SAMPLES: u64 = 5;

    /// A log of six records in two segments; the first is settled.
    fn log_in(folder: &Path) -> Log {
        let limits = Limits {
            max_bytes: 1 << 20,
            segment_bytes: 600,
        };
        let disk = Arc::new(Folder::create(folder).unwrap());
        let (mut log, _) = Log::open(disk, limits).unwrap();
        for number in 0..6 {
            let counts = Counts {
                samples: SAMPLES,
                ..Counts::default()
            };
            log.append(counts, b"head", &[number; 100]).unwrap();
        }
        log.publish();
        let Some(Next::Record { place, .. }) = log.read() else {
            panic!("a record");
        };
        log.settle(&[place]);
        log
    }

    fn inspect(folder: &Path) -> (LogReport, Vec<u8>) {
        let mut found = Vec::new();
        let report = records(folder, |counts, head, body| {
            assert_eq!((counts.samples, head), (SAMPLES, &b"head"[..]));
            found.push(body[0]);
            Ok::<_, ()>(())
        });
        (report.unwrap().unwrap(), found)
    }

    fn totals(report: &LogReport) -> (u64, u64, u64, u64, u64) {
        let sum = |of: fn(&SegmentReport) -> u64| report.segments.iter().map(of).sum();
        (
            sum(|it| it.settled),
            sum(|it| it.waiting.batches),
            sum(|it| it.waiting.samples),
            sum(|it| it.corrupt),
            sum(|it| it.torn_bytes),
        )
    }

    #[test]
    fn counts_what_waits_what_is_settled_and_what_is_damaged() {
        let folder = tempfile::tempdir().unwrap();
        let log = log_in(folder.path());
        let (report, found) = inspect(folder.path());
        assert_eq!(found, [1, 2, 3, 4, 5]);
        assert_eq!(totals(&report), (1, 5, 5 * SAMPLES, 0, 0));
        assert_eq!(report.segments.len(), 2);
        for segment in &report.segments {
            let bytes = fs::metadata(&segment.file).unwrap().len();
            assert_eq!((segment.bytes, &segment.unreadable), (bytes, &None));
        }
        drop(log);

        // In the body of the last but one, then the last is incomplete.
        let last = &report.segments[1].file;
        let intact = fs::read(last).unwrap();
        let record = RECORD_HEADER + 4 + 100;
        let mut damaged = intact.clone();
        damaged[intact.len() - record - 1] ^= 1;
        fs::write(last, &damaged).unwrap();
        let (report, found) = inspect(folder.path());
        assert_eq!(found, [1, 2, 3, 5]);
        assert_eq!(totals(&report), (1, 4, 4 * SAMPLES, 1, 0));
        fs::write(last, &intact[..intact.len() - 1]).unwrap();
        let (report, found) = inspect(folder.path());
        assert_eq!(found, [1, 2, 3, 4]);
        assert_eq!(totals(&report), (1, 4, 4 * SAMPLES, 0, record as u64 - 1));

        // Each file has the header of the other.
        for file in [last.clone(), last.with_extension("settled")] {
            fs::write(file, b"no header").unwrap();
        }
        let (report, found) = inspect(folder.path());
        assert_eq!(found, [1, 2]);
        let unreadable = report.segments[1].unreadable.as_deref();
        assert_eq!(unreadable, Some("its header is damaged"));
    }

    #[test]
    fn follows_references_and_says_which_segments_have_none() {
        let folder = tempfile::tempdir().unwrap();
        let storage = Storage::new(StorageOptions {
            directory: folder.path().to_owned(),
            create_directory: true,
            fsync: FsyncPolicy::Never,
            max_bytes: 64 << 10,
            when_full: WhenFull::Block,
        });
        assert!(shared_bodies(folder.path()).unwrap().is_none());
        let mut logs = ["a", "b"].map(|name| storage.open(Purpose::Queue, name).unwrap().0);
        for number in 0..6 {
            for log in &mut logs {
                let body = [number; 2000];
                log.append(Counts::default(), b"head", &body).unwrap();
                log.publish();
            }
        }
        let queue = folder.path().join("exporter_b");
        let inspect = || {
            let mut found = Vec::new();
            let report = records(&queue, |_, head, body| {
                assert_eq!((head, body.len()), (&b"head"[..], 2000));
                found.push(body[0]);
                Ok::<_, ()>(())
            });
            (report.unwrap().unwrap(), found)
        };
        let (report, found) = inspect();
        assert_eq!(found, [0, 1, 2, 3, 4, 5]);
        assert_eq!(
            report.references,
            BTreeMap::from([(1, 1), (2, 1), (3, 1), (4, 1), (5, 1), (6, 1)])
        );
        let shared = shared_bodies(folder.path()).unwrap().unwrap();
        assert_eq!(totals(&shared), (0, 6, 0, 0, 0));
        // Damage in one that no longer waits is damage all the same.
        let file = &shared.segments[2].file;
        let mut damaged = fs::read(file).unwrap();
        damaged[1000] ^= 1;
        fs::write(file, damaged).unwrap();
        let (report, found) = inspect();
        assert_eq!(found, [0, 1, 3, 4, 5]);
        assert_eq!(totals(&report).3, 1);
        let shared = shared_bodies(folder.path()).unwrap().unwrap();
        assert_eq!(totals(&shared), (0, 5, 0, 1, 0));
    }

    #[test]
    fn stops_if_asked_to_and_names_what_it_cannot_read() {
        let folder = tempfile::tempdir().unwrap();
        drop(log_in(folder.path()));
        let stopped = records(folder.path(), |_, _, _| Err("enough"));
        assert_eq!(stopped.unwrap().err(), Some("enough"));
        let missing = folder.path().join("missing");
        let failed = records(&missing, |_, _, _| Ok::<_, ()>(())).unwrap_err();
        assert_eq!(failed.path, missing);
        // A folder where a segment should be.
        let segment = folder.path().join(records_name(99));
        fs::create_dir(&segment).unwrap();
        let failed = records(folder.path(), |_, _, _| Ok::<_, ()>(())).unwrap_err();
        assert_eq!(failed.path, segment);
    }
}
