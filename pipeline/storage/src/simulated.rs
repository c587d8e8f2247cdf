//! A simulated disk that loses power, fills up and fails, driven by a seed.
//!
//! After a power loss, unsynced data may be lost from any byte on or contain holes of zeros, and unsynced file names
//! may be lost. As on Linux, data whose sync failed stays unsynced even if a later sync succeeds.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::io::Errno;

use crate::disk::{Disk, DiskFile};

/// SplitMix64 random numbers.
pub struct Random(pub u64);

/// A folder on it; the first one is that without a name.
#[derive(Clone)]
pub struct SimulatedDisk {
    state: Arc<Mutex<DiskState>>,
    /// Begins the names of its files.
    prefix: String,
}

/// Failure rates per thousand operations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    pub append: u64,
    pub sync: u64,
    pub read: u64,
    pub remove: u64,
}

struct DiskState {
    random: Random,
    faults: Faults,
    capacity: u64,
    concurrent_readers: usize,
    names: BTreeMap<String, Arc<Mutex<Content>>>,
    durable_names: BTreeMap<String, Arc<Mutex<Content>>>,
    /// The process was killed: its operations have no effect.
    is_killed: bool,
    /// Its last write has happened.
    has_ended: bool,
    changes_left: Option<u64>,
    /// Changes in this folder fail.
    broken: Option<String>,
    /// Syncs in this folder fail.
    unsyncable: Option<String>,
}

#[derive(Default)]
struct Content {
    now: Vec<u8>,
    durable: Vec<u8>,
    is_lost: bool,
}

struct SimulatedFile {
    disk: SimulatedDisk,
    content: Arc<Mutex<Content>>,
}

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number less than `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end.max(1)
    }

    pub fn happens(&mut self, of_a_thousand: u64) -> bool {
        self.below(1000) < of_a_thousand
    }
}

impl SimulatedDisk {
    pub fn new(seed: u64) -> Self {
        let state = DiskState {
            random: Random(seed),
            faults: Faults::default(),
            capacity: u64::MAX,
            concurrent_readers: 1,
            names: BTreeMap::new(),
            durable_names: BTreeMap::new(),
            is_killed: false,
            has_ended: false,
            changes_left: None,
            broken: None,
            unsyncable: None,
        };
        Self {
            state: Arc::new(Mutex::new(state)),
            prefix: String::new(),
        }
    }

    pub(crate) fn folder(&self, name: &str) -> Self {
        Self {
            state: Arc::clone(&self.state),
            prefix: format!("{name}/"),
        }
    }

    /// The names of the folders with files.
    pub(crate) fn folders(&self) -> Vec<String> {
        let world = self.state.lock();
        let folders = world.names.keys().filter_map(|name| name.split_once('/'));
        let mut folders: Vec<String> = folders.map(|(folder, _)| folder.to_owned()).collect();
        folders.dedup();
        folders
    }

    fn path(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    pub fn set_faults(&self, faults: Faults) {
        self.state.lock().faults = faults;
    }

    pub fn set_capacity(&self, bytes: u64) {
        self.state.lock().capacity = bytes;
    }

    /// With more than one, the order of operations while a log is opened is no longer that of the seed.
    pub fn set_concurrent_readers(&self, readers: usize) {
        self.state.lock().concurrent_readers = readers;
    }

    /// Lets changes in a folder fail.
    pub fn break_folder(&self, name: Option<&str>) {
        self.state.lock().broken = name.map(|name| format!("{name}/"));
    }

    /// Lets syncs in a folder fail.
    pub fn break_syncs(&self, folder: Option<&str>) {
        self.state.lock().unsyncable = folder.map(|name| format!("{name}/"));
    }

    /// Size of the files in this folder and below.
    pub fn bytes(&self) -> u64 {
        self.state.lock().bytes(&self.prefix)
    }

    pub fn files(&self) -> usize {
        let world = self.state.lock();
        let names = world.names.keys();
        names.filter(|name| name.starts_with(&self.prefix)).count()
    }

    /// Kills the process after this many changes: the next write is partial, and later operations have no effect.
    pub fn kill_after(&self, changes: u64) {
        self.state.lock().changes_left = Some(changes);
    }

    /// Kills the process: its operations have no effect from now on.
    pub fn kill(&self) {
        let mut world = self.state.lock();
        world.is_killed = true;
        world.has_ended = true;
    }

    /// Starts the next process.
    pub fn restart(&self) {
        let mut world = self.state.lock();
        world.is_killed = false;
        world.has_ended = false;
        world.changes_left = None;
    }

    /// Simulates a power loss.
    pub fn lose_power(&self) {
        let mut guard = self.state.lock();
        let world = &mut *guard;
        let mut names = BTreeMap::new();
        let all: Vec<String> = world
            .names
            .keys()
            .chain(world.durable_names.keys())
            .cloned()
            .collect();
        for name in all {
            let (now, durable) = (world.names.get(&name), world.durable_names.get(&name));
            let survivor = match world.random.happens(500) {
                true => now,
                false => durable,
            };
            if let (Some(a), Some(b)) = (now, durable)
                && Arc::ptr_eq(a, b)
            {
                names.insert(name, Arc::clone(a));
            } else if let Some(content) = survivor {
                names.insert(name, Arc::clone(content));
            }
        }
        for content in names.values() {
            let mut content = content.lock();
            let Content { now, durable, .. } = &mut *content;
            let safe = durable.len().min(now.len());
            // A truncation may not have been synced.
            if now.len() < durable.len() && world.random.happens(500) {
                *now = durable.clone();
            }
            now[..safe].copy_from_slice(&durable[..safe]);
            let unsynced = now.len().saturating_sub(safe) as u64;
            if unsynced > 0 {
                now.truncate(safe + world.random.below(unsynced + 1) as usize);
                if world.random.happens(300) && now.len() > safe {
                    let from = safe + world.random.below((now.len() - safe) as u64) as usize;
                    let until = from + world.random.below((now.len() - from) as u64 + 1) as usize;
                    now[from..until].fill(0);
                }
            }
            *durable = now.clone();
            content.is_lost = false;
        }
        world.durable_names = names.clone();
        world.names = names;
        world.is_killed = false;
    }

    /// Flips a bit of a random file; returns its name.
    pub fn flip(&self, name_ends: &str) -> Option<String> {
        let mut guard = self.state.lock();
        let world = &mut *guard;
        let names: Vec<String> = world
            .names
            .keys()
            .filter(|name| name.ends_with(name_ends))
            .cloned()
            .collect();
        let name = names
            .get(world.random.below(names.len() as u64) as usize)?
            .clone();
        let mut content = world.names.get(&name)?.lock();
        let place = world.random.below(content.now.len() as u64) as usize;
        let bit = 1 << world.random.below(8);
        *content.now.get_mut(place)? ^= bit;
        if let Some(byte) = content.durable.get_mut(place) {
            *byte ^= bit;
        }
        Some(name)
    }
}

impl SimulatedDisk {
    /// Edits a file.
    pub fn edit(&self, name: &str, change: impl FnOnce(&mut Vec<u8>)) {
        change(&mut self.state.lock().names[&self.path(name)].lock().now);
    }
}

impl DiskState {
    fn bytes(&self, prefix: &str) -> u64 {
        let files = self
            .names
            .iter()
            .filter(|(name, _)| name.starts_with(prefix));
        files
            .map(|(_, content)| content.lock().now.len() as u64)
            .sum()
    }

    fn sync_fails(&mut self, prefix: &str) -> io::Result<()> {
        let chance = match self.unsyncable.as_deref() == Some(prefix) {
            true => 1000,
            false => self.faults.sync,
        };
        self.fails(prefix, chance)
    }

    fn fails(&mut self, prefix: &str, of_a_thousand: u64) -> io::Result<()> {
        match &mut self.changes_left {
            Some(0) => self.is_killed = true,
            Some(changes) => *changes -= 1,
            None => {}
        }
        let is_broken = self.broken.as_deref() == Some(prefix);
        match self.is_killed || is_broken || self.random.happens(of_a_thousand) {
            true => Err(Errno::IO.into()),
            false => Ok(()),
        }
    }
}

impl Disk for SimulatedDisk {
    fn names(&self) -> io::Result<Vec<String>> {
        let world = self.state.lock();
        let names = world.names.keys();
        let names = names.filter_map(|name| name.strip_prefix(&self.prefix));
        let names = names.filter(|name| !name.contains('/'));
        Ok(names.map(str::to_owned).collect())
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        let mut world = self.state.lock();
        let chance = world.faults.append;
        world.fails(&self.prefix, chance)?;
        let path = self.path(name);
        if world.names.contains_key(&path) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let content = Arc::new(Mutex::new(Content::default()));
        world.names.insert(path, Arc::clone(&content));
        Ok(Arc::new(SimulatedFile {
            disk: self.clone(),
            content,
        }))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        let world = self.state.lock();
        let content = world
            .names
            .get(&self.path(name))
            .cloned()
            .ok_or(io::ErrorKind::NotFound)?;
        Ok(Arc::new(SimulatedFile {
            disk: self.clone(),
            content,
        }))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut world = self.state.lock();
        let chance = world.faults.remove;
        world.fails(&self.prefix, chance)?;
        world
            .names
            .remove(&self.path(name))
            .map(drop)
            .ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn sync(&self) -> io::Result<()> {
        let mut world = self.state.lock();
        world.sync_fails(&self.prefix)?;
        let DiskState {
            names,
            durable_names,
            ..
        } = &mut *world;
        let is_here = |path: &String| {
            let name = path.strip_prefix(&self.prefix);
            name.is_some_and(|name| !name.contains('/'))
        };
        durable_names.retain(|path, _| !is_here(path));
        let here = names.iter().filter(|(path, _)| is_here(path));
        durable_names.extend(here.map(|(path, content)| (path.clone(), Arc::clone(content))));
        Ok(())
    }

    fn concurrent_readers(&self) -> usize {
        self.state.lock().concurrent_readers
    }
}

impl DiskFile for SimulatedFile {
    fn append(&self, parts: &[&[u8]]) -> io::Result<()> {
        let mut guard = self.disk.state.lock();
        let world = &mut *guard;
        let bytes = parts.concat();
        let chance = world.faults.append;
        let room = world.capacity.saturating_sub(world.bytes("")) as usize;
        let failed = match world.fails(&self.disk.prefix, chance) {
            Err(error) => Some((error, world.random.below(bytes.len() as u64 + 1) as usize)),
            Ok(()) if room < bytes.len() => Some((Errno::NOSPC.into(), room)),
            Ok(()) => None,
        };
        let was_killed = std::mem::replace(&mut world.has_ended, world.is_killed);
        let mut content = self.content.lock();
        match failed {
            Some((error, _)) if was_killed => Err(error),
            Some((error, written)) => {
                content.now.extend(&bytes[..written]);
                Err(error)
            }
            None => {
                content.now.extend(bytes);
                Ok(())
            }
        }
    }

    fn read_at(&self, at: u64, into: &mut [u8]) -> io::Result<()> {
        let mut world = self.disk.state.lock();
        let chance = world.faults.read;
        world.fails(&self.disk.prefix, chance)?;
        let content = self.content.lock();
        let at = at as usize;
        let found = content
            .now
            .get(at..at + into.len())
            .ok_or(io::ErrorKind::UnexpectedEof)?;
        into.copy_from_slice(found);
        Ok(())
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.content.lock().now.len() as u64)
    }

    fn truncate(&self, size: u64) -> io::Result<()> {
        let mut world = self.disk.state.lock();
        let chance = world.faults.append;
        world.fails(&self.disk.prefix, chance)?;
        self.content.lock().now.truncate(size as usize);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let mut world = self.disk.state.lock();
        let failed = world.sync_fails(&self.disk.prefix);
        let mut content = self.content.lock();
        content.is_lost |= failed.is_err();
        if !content.is_lost {
            content.durable = content.now.clone();
        }
        failed
    }
}
