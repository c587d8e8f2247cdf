//! Queues on disk: an append-only, checksummed log in segments for each, in a folder that one process at a time has.
//!
//! The log knows nothing of profiles: a record is a head and a body, with the numbers by which its owner counts it.
//! `docs/storage-format.md` describes the files.

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
    AppendError, Corrupt, Limits, Log, Next, OpenError, Place, Recovered, Room, Unsynced,
};
