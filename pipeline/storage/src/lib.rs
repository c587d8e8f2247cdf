//! Queues and histories on disk: each is an append-only, checksummed, segmented log, in a directory locked by one
//! process at a time. A queue is read once, in order; a history is [browsed](Log::browse). Besides them, components keep
//! small states in [checkpoints](Checkpoint).
//!
//! Queues share the bodies of records that several of them store.
//!
//! The log does not depend on profiles: a record is a head and a body with counts. `docs/storage-format.md` describes
//! the files.

mod ahead;
mod bodies;
mod browser;
mod checkpoint;
mod directory;
mod disk;
mod format;
mod head;
mod inspect;
mod log;
mod place;
mod recover;
mod resolve;
mod segment;
mod shared;
#[cfg(any(test, feature = "testkit"))]
pub mod simulated;
#[cfg(test)]
mod tests;
mod walk;

pub use browser::{BrowsedRecord, Browser};
pub use checkpoint::{BadCheckpoint, Checkpoint};
pub use directory::{FsyncPolicy, Storage, StorageError, StorageOptions, WhenFull};
pub use disk::{Disk, DiskFile, Folder};
pub use format::{Counts, VERSION};
pub use head::Head;
pub use inspect::{
    Contents, FoundLog, InspectError, LogReport, SegmentReport, logs, records, shared_bodies,
};
pub use log::{
    AppendError, Corrupt, Damage, FullCause, Log, Next, RecordPosition, Recovered, Unsynced,
};
pub use place::Purpose;
pub use recover::OpenError;
pub use segment::Limits;
