//! The map of files and the numbers in it, shared by the two threads that fill it.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use aya::maps::{HashMap, MapData, Queue};
use profcol_ebpf_common::file::{FileEntry, FileId, TableRef};
use profcol_ebpf_common::record;

use crate::executables::Executables;
use crate::sys;

/// How long a number is not given to another file, so that no frame that is under way is mistaken.
const NUMBER_RESTS: Duration = Duration::from_secs(60);

pub struct Files {
    held: Mutex<Held>,
    executables: Executables,
}

struct Held {
    files: HashMap<MapData, FileId, FileEntry>,
    free_numbers: Queue<MapData, u32>,
    resting: VecDeque<(Instant, u32)>,
}

impl Files {
    pub fn new(
        files: HashMap<MapData, FileId, FileEntry>,
        free_numbers: Queue<MapData, u32>,
        executables: Executables,
    ) -> Self {
        Self {
            held: Mutex::new(Held {
                files,
                free_numbers,
                resting: VecDeque::new(),
            }),
            executables,
        }
    }

    pub fn executables(&self) -> &Executables {
        &self.executables
    }

    /// From now on the programs use the table. False where they could not be told.
    pub fn publish(&self, announced: &record::File, table: TableRef) -> bool {
        let entry = FileEntry {
            number: announced.number,
            table,
            used: sys::since_boot(),
        };
        match self.lock().files.insert(announced.id, entry, 0) {
            Ok(()) => true,
            Err(error) => {
                tracing::debug!(%error, "an unwind table cannot be published");
                false
            }
        }
    }

    /// The next sample that meets the file announces it again, through a process that may live longer.
    pub fn forget(&self, announced: &record::File) {
        let mut held = self.lock();
        if held.files.remove(&announced.id).is_ok() {
            held.resting.push_back((Instant::now(), announced.number));
        }
    }

    pub fn free_rested_numbers(&self) {
        let mut held = self.lock();
        while let Some(&(since, number)) = held.resting.front()
            && since.elapsed() >= NUMBER_RESTS
        {
            held.resting.pop_front();
            self.executables.remove(number);
            if let Err(error) = held.free_numbers.push(number, 0) {
                tracing::debug!(number, %error, "a number cannot be freed");
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
