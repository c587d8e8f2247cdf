//! Identifies the file behind a mapping event.
//!
//! An event has the file's device, inode and generation, but not the time of the last write: a file
//! overwritten in place would pass for its predecessor. So the file is checked with stat, once per batch of
//! events.

use std::collections::HashMap;
use std::fs::{self, Metadata};
use std::os::linux::fs::MetadataExt;
use std::path::{Path, PathBuf};

use profcol_ebpf_common::file::FileId;
use profcol_elf::{FileKey, map_files_link};

use super::records::{FileOrigin, Mapped};

/// Maximum number of cached files; the cache is cleared when it is full.
const MAX_ORIGINS: usize = 1 << 16;

#[derive(Default)]
pub struct Origins {
    /// Already checked, for the current batch of events.
    fresh: HashMap<FileOrigin, FileId>,
    /// The last known time of the last write.
    written: HashMap<FileOrigin, u64>,
    paths: HashMap<FileId, PathBuf>,
    /// By device and inode as shown in /proc.
    by_inode: HashMap<(u32, u64), FileOrigin>,
}

impl Origins {
    /// Starts a new batch of events: files are checked again.
    pub fn begin(&mut self) {
        self.fresh.clear();
    }

    /// All zero for anonymous memory.
    pub fn identify(&mut self, pid: u32, mapped: &Mapped) -> FileId {
        let Some(origin) = mapped.origin else {
            return FileId::default();
        };
        if let Some(&id) = self.fresh.get(&origin) {
            return id;
        }
        let seen = metadata(pid, mapped, &origin).map(|found| written(&found));
        let id = self.note(origin, seen);
        bounded(&mut self.paths)
            .entry(id)
            .or_insert_with(|| mapped.path.clone());
        id
    }

    /// The identity of a file with this origin and time of the last write, if known.
    fn note(&mut self, origin: FileOrigin, written: Option<u64>) -> FileId {
        let inode_key = (origin.device, origin.inode);
        bounded(&mut self.by_inode).insert(inode_key, origin);
        let all = bounded(&mut self.written);
        let written = match written {
            Some(written) => {
                all.insert(origin, written);
                written
            }
            None => all.get(&origin).copied().unwrap_or(0),
        };
        let id = origin.written(written);
        self.fresh.insert(origin, id);
        id
    }

    pub fn forget_inodes(&mut self) {
        self.by_inode.clear();
    }

    /// The origin, from earlier events, of the file with these numbers in /proc.
    pub fn by_inode(&self, device: u32, inode: u64) -> Option<FileOrigin> {
        self.by_inode.get(&(device, inode)).copied()
    }

    pub fn path(&self, id: &FileId) -> Option<&Path> {
        self.paths.get(id).map(PathBuf::as_path)
    }
}

fn bounded<K, V>(map: &mut HashMap<K, V>) -> &mut HashMap<K, V> {
    if map.len() >= MAX_ORIGINS {
        map.clear();
    }
    map
}

/// The link to a mapped file, valid while it is mapped.
pub fn link(pid: u32, mapped: &Mapped) -> PathBuf {
    let process = PathBuf::from(format!("/proc/{pid}"));
    map_files_link(&process, &(mapped.start..mapped.end))
}

/// The file's metadata, found through its mapping, else through its path.
fn metadata(pid: u32, mapped: &Mapped, origin: &FileOrigin) -> Option<Metadata> {
    let key = origin.key();
    if let Ok(found) = fs::metadata(link(pid, mapped))
        && key.may_be_mapped(&found)
    {
        return Some(found);
    }
    let inside = mapped.path.strip_prefix("/").ok()?;
    let root = PathBuf::from(format!("/proc/{pid}/root"));
    [root.join(inside), mapped.path.clone()]
        .iter()
        .filter_map(|path| fs::metadata(path).ok())
        .find(|found| FileKey::of(found) == key)
}

/// The time of the last write, in nanoseconds.
pub fn written(found: &Metadata) -> u64 {
    (found.st_mtime() as u64)
        .wrapping_mul(1_000_000_000)
        .wrapping_add(found.st_mtime_nsec() as u64)
}
