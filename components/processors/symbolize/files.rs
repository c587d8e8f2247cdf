//! Where an executable is found.

use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use profcol_component::{Executable, IntCounter, Subscription};
use profcol_debuginfo::{build_id, open_regular};
use profcol_symbols::OnHost;

use super::asked::Module;
use super::debuginfod::{Debuginfod, Fetched, Wanted, What};
use super::pace::Stopping;
use crate::shared::locks::lock;
use crate::values::hex;

/// Executables that a receiver handed over, and places to look for others.
pub(super) struct Files {
    /// None where nothing is to be named.
    offered: Option<Subscription>,
    shelf: Mutex<Shelf>,
    most: usize,
    dropped: IntCounter,
    debug_directories: Vec<PathBuf>,
    debuginfod: Option<Arc<Debuginfod>>,
    stopping: Arc<Stopping>,
}

/// Open files by build id, and the ids in the order in which they came.
#[derive(Default)]
struct Shelf {
    held: HashMap<Arc<str>, Executable>,
    order: VecDeque<Arc<str>>,
}

impl Files {
    pub fn new(
        offered: Option<Subscription>,
        most: usize,
        dropped: IntCounter,
        debug_directories: Vec<PathBuf>,
        debuginfod: Option<Arc<Debuginfod>>,
        stopping: Arc<Stopping>,
    ) -> Self {
        Self {
            offered,
            shelf: Mutex::default(),
            most,
            dropped,
            debug_directories,
            debuginfod,
            stopping,
        }
    }

    /// Takes what was handed over since the last time; the oldest go when there are too many.
    pub fn take_offered(&self) {
        let mut shelf = lock(&self.shelf);
        for executable in self.offered.iter().flat_map(Subscription::take) {
            let build_id: Arc<str> = executable.build_id.text().into();
            if shelf
                .held
                .insert(Arc::clone(&build_id), executable)
                .is_some()
            {
                continue;
            }
            shelf.order.push_back(build_id);
            if shelf.order.len() > self.most
                && let Some(oldest) = shelf.order.pop_front()
            {
                shelf.held.remove(&oldest);
                self.dropped.inc();
            }
        }
    }

    /// The executable with this build id, from this host or from a debuginfod server.
    pub fn open(&self, module: &Module) -> Sought<Arc<File>> {
        match self.open_here(module) {
            Some(file) => Sought::of(file),
            None => self.ask(&module.build_id, What::Executable).map(Arc::new),
        }
    }

    /// Where it was not handed over, its path is tried in the
    /// processes that have it and on this host: what is there may be another version, or be laid
    /// there by whoever made the container, so it has to have the same build id.
    fn open_here(&self, module: &Module) -> Option<Arc<File>> {
        let held = lock(&self.shelf).held.get(&module.build_id).cloned();
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

    /// Where its other files are on this host.
    pub fn beside(&self, module: &Module) -> OnHost {
        let stopping = Arc::clone(&self.stopping);
        OnHost::new(
            roots(module).collect(),
            module.path.clone(),
            self.debug_directories.clone(),
            move || !stopping.is_set(),
        )
    }

    /// A file with DWARF, from a debuginfod server.
    pub fn debug_file(&self, build_id: &[u8]) -> Sought<File> {
        self.ask(&hex(build_id).into(), What::DebugInfo)
    }

    /// Whether it is still asked for.
    pub fn is_coming(&self, wanted: &Wanted) -> bool {
        let debuginfod = self.debuginfod.as_ref();
        debuginfod.is_some_and(|debuginfod| debuginfod.is_coming(wanted))
    }

    fn ask(&self, build_id: &Arc<str>, what: What) -> Sought<File> {
        let Some(debuginfod) = &self.debuginfod else {
            return Sought::nowhere();
        };
        let build_id = Arc::clone(build_id);
        let wanted = Wanted { build_id, what };
        match debuginfod.find(&wanted) {
            Fetched::Here(file) => Sought::of(file),
            Fetched::Coming => Sought {
                found: None,
                coming: Some(wanted),
            },
            Fetched::Nowhere => Sought::nowhere(),
        }
    }
}

/// Of the processes that have the module, and of this one.
fn roots(module: &Module) -> impl Iterator<Item = PathBuf> {
    let processes = module.processes.iter();
    let processes = processes.map(|pid| format!("/proc/{pid}/root").into());
    processes.chain([Path::new("/").to_owned()])
}

/// A file, or that it may come later.
pub(super) struct Sought<T> {
    pub found: Option<T>,
    pub coming: Option<Wanted>,
}

impl<T> Sought<T> {
    fn of(found: T) -> Self {
        Self {
            found: Some(found),
            coming: None,
        }
    }

    fn nowhere() -> Self {
        Self {
            found: None,
            coming: None,
        }
    }

    fn map<U>(self, change: impl FnOnce(T) -> U) -> Sought<U> {
        Sought {
            found: self.found.map(change),
            coming: self.coming,
        }
    }
}
