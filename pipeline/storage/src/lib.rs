//! Queues on disk: each is an append-only, checksummed, segmented log, in a directory locked by one process at a time.
//!
//! The log does not depend on profiles: a record is a head and a body with counts. `docs/storage-format.md` describes
//! the files.

mod directory;
mod disk;
mod format;
mod inspect;
mod log;
mod segment;
#[cfg(test)]
mod simulated;
#[cfg(test)]
mod tests;
mod walk;

pub use directory::{Fsync, Storage, StorageError, StorageOptions, WhenFull};
pub use disk::{Disk, DiskFile, Folder};
pub use format::{Counts, VERSION};
pub use inspect::{Contents, InspectError, QueueReport, SegmentReport, queues, records};
pub use log::{
    AppendError, Corrupt, Limits, Log, Next, OpenError, RecordPosition, Recovered, Room, Unsynced,
};
