//! Finds executables.

use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use profcol_component::{Executable, IntCounter, Subscription};
use profcol_debuginfo::build_id;
use profcol_elf::{hex, open_regular};
use profcol_symbols::OnHost;

use super::debuginfod::{Debuginfod, Fetched, FileKind, FileRequest};
use super::pace::Stopping;
use super::unresolved::Module;

/// Executables offered by receivers, and where to look for others.
pub(super) struct Files {
    /// `None` if nothing is symbolized.
    offered: Option<Subscription>,
    open_files: Mutex<OpenFiles>,
    capacity: usize,
    dropped: IntCounter,
    debug_directories: Vec<PathBuf>,
    debuginfod: Option<Arc<Debuginfod>>,
    stopping: Arc<Stopping>,
}

/// Open files by build ID, and the IDs in order of arrival.
#[derive(Default)]
struct OpenFiles {
    held: HashMap<Arc<str>, Executable>,
    order: VecDeque<Arc<str>>,
}

impl Files {
    pub fn new(
        offered: Option<Subscription>,
        capacity: usize,
        dropped: IntCounter,
        debug_directories: Vec<PathBuf>,
        debuginfod: Option<Arc<Debuginfod>>,
        stopping: Arc<Stopping>,
    ) -> Self {
        Self {
            offered,
            open_files: Mutex::default(),
            capacity,
            dropped,
            debug_directories,
            debuginfod,
            stopping,
        }
    }

    /// Takes the newly offered executables; the oldest are closed beyond the limit.
    pub fn take_offered(&self) {
        let mut open_files = self.open_files.lock();
        for executable in self.offered.iter().flat_map(Subscription::take) {
            let build_id: Arc<str> = executable.build_id.text().into();
            if open_files
                .held
                .insert(Arc::clone(&build_id), executable)
                .is_some()
            {
                continue;
            }
            open_files.order.push_back(build_id);
            if open_files.order.len() > self.capacity
                && let Some(oldest) = open_files.order.pop_front()
            {
                open_files.held.remove(&oldest);
                self.dropped.inc();
            }
        }
    }

    /// The executable with this build ID, from this host or from a debuginfod server.
    pub fn open(&self, module: &Module) -> FileLookup<Arc<File>> {
        match self.open_here(module) {
            Some(file) => FileLookup::of(file),
            None => self
                .ask(&module.build_id, FileKind::Executable)
                .map(Arc::new),
        }
    }

    /// An executable that was not offered is looked up by its path in the processes that map it, and on this host. It
    /// may be another version, or planted by the owner of the container, so it must have the same
    /// build ID.
    fn open_here(&self, module: &Module) -> Option<Arc<File>> {
        let held = self.open_files.lock().held.get(&module.build_id).cloned();
        if let Some(executable) = held {
            return Some(executable.file);
        }
        let below = module.path.strip_prefix("/").ok()?;
        let found = roots(module).find_map(|root| {
            let file = open_regular(&root, below).ok()?;
            let is_it = build_id(&file).is_some_and(|id| hex(&id) == *module.build_id);
            is_it.then_some(file)
        });
        found.map(Arc::new)
    }

    /// Where its companion files are on this host.
    pub fn companions(&self, module: &Module) -> OnHost {
        let stopping = Arc::clone(&self.stopping);
        OnHost::new(
            roots(module).collect(),
            module.path.clone(),
            self.debug_directories.clone(),
            move || !stopping.is_set(),
        )
    }

    /// A file with DWARF, from a debuginfod server.
    pub fn debug_file(&self, build_id: &[u8]) -> FileLookup<File> {
        self.ask(&hex(build_id).into(), FileKind::DebugInfo)
    }

    /// Whether it is still being downloaded.
    pub fn is_downloading(&self, request: &FileRequest) -> bool {
        let debuginfod = self.debuginfod.as_ref();
        debuginfod.is_some_and(|debuginfod| debuginfod.is_downloading(request))
    }

    fn ask(&self, build_id: &Arc<str>, what: FileKind) -> FileLookup<File> {
        let Some(debuginfod) = &self.debuginfod else {
            return FileLookup::nowhere();
        };
        let build_id = Arc::clone(build_id);
        let request = FileRequest { build_id, what };
        match debuginfod.find(&request) {
            Fetched::Here(file) => FileLookup::of(file),
            Fetched::Downloading => FileLookup {
                found: None,
                download: Some(request),
            },
            Fetched::Nowhere => FileLookup::nowhere(),
        }
    }
}

/// The root directories of the processes with the module, and this process's.
fn roots(module: &Module) -> impl Iterator<Item = PathBuf> {
    let processes = module.processes.iter();
    let processes = processes.map(|pid| format!("/proc/{pid}/root").into());
    processes.chain([Path::new("/").to_owned()])
}

/// A file, and a pending download that may provide it later.
pub(super) struct FileLookup<T> {
    pub found: Option<T>,
    pub download: Option<FileRequest>,
}

impl<T> FileLookup<T> {
    fn of(found: T) -> Self {
        Self {
            found: Some(found),
            download: None,
        }
    }

    fn nowhere() -> Self {
        Self {
            found: None,
            download: None,
        }
    }

    fn map<U>(self, change: impl FnOnce(T) -> U) -> FileLookup<U> {
        FileLookup {
            found: self.found.map(change),
            download: self.download,
        }
    }
}
