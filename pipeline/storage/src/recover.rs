//! Recovers the segments of earlier runs.

use std::collections::BTreeMap;
use std::io;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use crate::bodies::Bodies;
use crate::disk::Disk;
use crate::format::{BadSegment, VERSION};
use crate::segment::{Segment, SegmentScan};

#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error(
        "segment {segment} has format version {version}, but this profcol uses version {VERSION}: deliver it with the profcol that wrote it, or use another directory"
    )]
    Version { segment: u64, version: u32 },
    #[error("segment {segment}: {error}")]
    Segment {
        segment: u64,
        #[source]
        error: io::Error,
    },
    #[error(transparent)]
    Folder(io::Error),
}

pub type FoundSegment = io::Result<Result<(Segment, SegmentScan), BadSegment>>;

/// Recovers the segments, on several threads: each waits for one read after the other.
pub fn recover_segments(
    disk: &dyn Disk,
    numbers: &[u64],
    may_write: bool,
    bodies: &dyn Bodies,
) -> BTreeMap<u64, FoundSegment> {
    let next = AtomicUsize::new(0);
    let work = || {
        let mut segments = Vec::new();
        while let Some(&number) = numbers.get(next.fetch_add(1, Ordering::Relaxed)) {
            // Without writing nothing is truncated, so that the last one needs no closer look.
            let is_last = may_write && numbers.last() == Some(&number);
            let segment = Segment::recover(disk, number, is_last, may_write, bodies);
            segments.push((number, segment));
        }
        segments
    };
    thread::scope(|scope| {
        let helpers = 1..disk.concurrent_readers().min(numbers.len());
        // This thread does the work of those that cannot be started.
        let helpers = helpers.filter_map(|_| {
            let thread = thread::Builder::new().name("storage".to_owned());
            thread.spawn_scoped(scope, work).ok()
        });
        let helpers: Vec<_> = helpers.collect();
        let mut segments: BTreeMap<u64, FoundSegment> = work().into_iter().collect();
        for helper in helpers {
            segments.extend(helper.join().unwrap_or_else(|panic| resume_unwind(panic)));
        }
        segments
    })
}
