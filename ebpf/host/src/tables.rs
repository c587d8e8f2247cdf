//! Opens the files that samples meet and gives the programs their unwind tables.
//!
//! One thread, which yields to everything else on the host. A file is found through the process
//! that was sampled; whether what was opened is what was sampled is not guessed from paths or times
//! but asked of the kernel: the file is mapped here, and the program that identifies mappings says
//! what it is.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use aya::maps::{HashMap, MapData, Queue};
use profcol_ebpf_common::file::{self, FileEntry, FileId, TableRef};
use profcol_ebpf_common::record;
use profcol_ebpf_unwind as unwind;

use crate::arena::{Arena, NoRoom, Piece};
use crate::executables::{Executable, Executables};
use crate::identify::{Identifier, IdentifyError};
use crate::sys::{self, Mapped};

/// Files that wait to be read. A file that finds no room is announced again by a later sample.
const QUEUE: usize = 1024;

/// How long a number is not given to another file, so that no frame that is under way is mistaken.
const NUMBER_RESTS: Duration = Duration::from_secs(60);

/// A table of a process that wants the CPU can wait, if not for long.
const NICE: i32 = 5;

/// The thread and the way to it.
pub struct Tables {
    announced: Option<SyncSender<record::File>>,
    thread: Option<JoinHandle<()>>,
    stats: Arc<Stats>,
}

#[derive(Default)]
pub struct Stats {
    built: AtomicU64,
    refused: AtomicU64,
    vanished: AtomicU64,
    no_room: AtomicU64,
    table_bytes: AtomicU64,
}

/// What became of the files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TableCounts {
    pub built: u64,
    /// No executable, damaged, or of a kind that is not supported.
    pub refused: u64,
    /// Gone before it could be opened.
    pub vanished: u64,
    /// Found no room in the memory for tables.
    pub no_room: u64,
    /// Memory that the tables use.
    pub bytes: u64,
}

/// What the thread works with.
pub struct Worker {
    pub arena: Arena,
    pub files: HashMap<MapData, FileId, FileEntry>,
    pub free_numbers: Queue<MapData, u32>,
    pub identifier: Identifier,
    pub executables: Executables,
    pub resting: VecDeque<(Instant, u32)>,
    pub stats: Arc<Stats>,
}

#[derive(Debug, thiserror::Error)]
enum Unusable {
    #[error("it is gone: {0}")]
    Vanished(io::Error),
    #[error("what is found in its place is another file")]
    Replaced,
    #[error(transparent)]
    Identify(#[from] IdentifyError),
}

impl Tables {
    pub fn start(worker: Worker) -> io::Result<Self> {
        let (announced, files) = sync_channel(QUEUE);
        let stats = Arc::clone(&worker.stats);
        let thread = std::thread::Builder::new()
            .name("profcol-tables".into())
            .spawn(move || worker.run(&files))?;
        Ok(Self {
            announced: Some(announced),
            thread: Some(thread),
            stats,
        })
    }

    pub fn counts(&self) -> TableCounts {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        TableCounts {
            built: count(&self.stats.built),
            refused: count(&self.stats.refused),
            vanished: count(&self.stats.vanished),
            no_room: count(&self.stats.no_room),
            bytes: count(&self.stats.table_bytes),
        }
    }

    /// Hands a file to the thread.
    pub fn announce(&self, file: record::File) {
        let Some(announced) = &self.announced else {
            return;
        };
        if let Err(TrySendError::Full(file)) = announced.try_send(file) {
            // It stays without a table; its samples say so.
            self.stats.vanished.fetch_add(1, Ordering::Relaxed);
            tracing::debug!(number = file.number, "too many new executables at once");
        }
    }
}

impl Drop for Tables {
    fn drop(&mut self) {
        self.announced.take();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread that builds unwind tables ended in a panic");
        }
    }
}

impl Worker {
    fn run(mut self, files: &Receiver<record::File>) {
        sys::lower_priority(NICE);
        loop {
            match files.recv_timeout(NUMBER_RESTS) {
                Ok(file) => self.take_in(&file),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            self.free_rested_numbers();
        }
    }

    fn take_in(&mut self, announced: &record::File) {
        match self.open(announced) {
            Ok((path, source)) => {
                let table = self.read(announced, path, &*source);
                self.publish(announced, table);
            }
            Err(error) => {
                self.stats.vanished.fetch_add(1, Ordering::Relaxed);
                tracing::debug!(pid = announced.pid, inode = announced.id.inode, %error, "an executable cannot be opened");
                self.forget(announced);
            }
        }
    }

    /// The file and its path as the sampled process sees it.
    fn open(
        &mut self,
        announced: &record::File,
    ) -> Result<(String, Box<dyn unwind::Source>), Unusable> {
        if announced.id == file::VDSO {
            let bytes = read_vdso().map_err(Unusable::Vanished)?;
            return Ok(("[vdso]".into(), Box::new(bytes)));
        }
        let link = link_to(announced);
        let opened = File::open(&link).map_err(Unusable::Vanished)?;
        let mapped = Mapped::first_page(opened.as_fd()).map_err(Unusable::Vanished)?;
        if self.identifier.identify(mapped.address())? != Some(announced.id) {
            return Err(Unusable::Replaced);
        }
        let path = fs::read_link(&link).unwrap_or_default();
        Ok((display_path(&path), Box::new(opened)))
    }

    /// Reads what names its frames need, and its table.
    fn read(
        &mut self,
        announced: &record::File,
        path: String,
        source: &dyn unwind::Source,
    ) -> Option<InArena> {
        let mut executable = Executable {
            path,
            ..Executable::default()
        };
        let elf = match unwind::Executable::read(source) {
            Ok(elf) => elf,
            Err(refused) => {
                self.refuse(&executable.path, &refused);
                self.executables.insert(announced.number, executable);
                return None;
            }
        };
        executable.gnu_build_id = elf.build_id.as_deref().map(hex);
        executable.go_build_id = elf.go_build_id.as_deref().map(str::to_owned);
        executable.file_id = unwind::htlhash(source).ok().map(|hash| hex(&hash));
        executable.is_go = elf.is_go();
        executable.segments = elf.segments.clone();
        let path = executable.path.clone();
        self.executables.insert(announced.number, executable);

        let table = match unwind::Table::build(&elf, source) {
            Ok(table) => table,
            Err(refused) => {
                self.refuse(&path, &refused);
                return None;
            }
        };
        match self.arena.insert(&table) {
            Ok(piece) => {
                self.stats.built.fetch_add(1, Ordering::Relaxed);
                self.stats
                    .table_bytes
                    .store(self.arena.used_bytes(), Ordering::Relaxed);
                tracing::debug!(path, rows = table.rows.len(), "built an unwind table");
                Some(InArena {
                    piece,
                    first_page: table.first_page as u32,
                    page_count: table.pages.len() as u32,
                })
            }
            Err(error @ (NoRoom::Full | NoRoom::TooManyRules)) => {
                self.stats.no_room.fetch_add(1, Ordering::Relaxed);
                tracing::warn!(path, %error, "an executable gets no unwind table; raise `max_table_memory`");
                None
            }
        }
    }

    fn refuse(&self, path: &str, refused: &unwind::Refused) {
        self.stats.refused.fetch_add(1, Ordering::Relaxed);
        tracing::debug!(path, error = %refused, "an executable has no unwind table");
    }

    /// From now on the programs use the table.
    fn publish(&mut self, announced: &record::File, table: Option<InArena>) {
        let entry = FileEntry {
            number: announced.number,
            table: table.map_or(TableRef::REFUSED, |table| TableRef {
                pages: table.piece.start,
                first_page: table.first_page,
                page_count: table.page_count,
            }),
            used: sys::since_boot(),
        };
        if let Err(error) = self.files.insert(announced.id, entry, 0) {
            tracing::debug!(%error, "an unwind table cannot be published");
            if let Some(table) = table {
                self.arena.remove(table.piece);
            }
        }
    }

    /// The next sample that meets the file announces it again, through a process that may live longer.
    fn forget(&mut self, announced: &record::File) {
        if self.files.remove(&announced.id).is_ok() {
            self.resting.push_back((Instant::now(), announced.number));
        }
    }

    fn free_rested_numbers(&mut self) {
        while let Some(&(since, number)) = self.resting.front()
            && since.elapsed() >= NUMBER_RESTS
        {
            self.resting.pop_front();
            self.executables.remove(number);
            if let Err(error) = self.free_numbers.push(number, 0) {
                tracing::debug!(number, %error, "a number cannot be freed");
            }
        }
    }
}

/// A table in the arena.
#[derive(Clone, Copy)]
struct InArena {
    piece: Piece,
    first_page: u32,
    page_count: u32,
}

/// What leads to the very file that the process has mapped, whatever its path says by now.
fn link_to(announced: &record::File) -> PathBuf {
    let record::File {
        pid, start, end, ..
    } = *announced;
    if start == 0 && end == 0 {
        return format!("/proc/{pid}/exe").into();
    }
    format!("/proc/{pid}/map_files/{start:x}-{end:x}").into()
}

fn display_path(path: &Path) -> String {
    let path = path.to_string_lossy();
    path.strip_suffix(" (deleted)").unwrap_or(&path).to_owned()
}

/// The kernel maps the same page of code into every process.
fn read_vdso() -> io::Result<Vec<u8>> {
    /// It has two or three pages.
    const MOST: u64 = 1 << 20;
    let maps = fs::read_to_string("/proc/self/maps")?;
    let missing = || io::Error::new(io::ErrorKind::NotFound, "this process has no vDSO");
    let line = maps
        .lines()
        .find(|line| line.ends_with("[vdso]"))
        .ok_or_else(missing)?;
    let range = line
        .split_once(' ')
        .and_then(|(range, _)| range.split_once('-'));
    let (start, end) = range.ok_or_else(missing)?;
    let address = |text| u64::from_str_radix(text, 16).map_err(|_| missing());
    let (start, end) = (address(start)?, address(end)?);
    let mut memory = File::open("/proc/self/mem")?;
    memory.seek(SeekFrom::Start(start))?;
    let mut bytes = Vec::new();
    memory
        .take(end.saturating_sub(start).min(MOST))
        .read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
