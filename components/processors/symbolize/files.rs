//! Where an executable is found.

use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::{Arc, Mutex};

use profcol_component::{Executable, IntCounter, Subscription};
use profcol_debuginfo::{Places, Source, build_id, open_regular, separate};

use super::asked::Module;
use super::names::lock;

/// Executables that a receiver handed over, and places to look for others.
pub(super) struct Files {
    /// None where nothing is to be named.
    offered: Option<Subscription>,
    shelf: Mutex<Shelf>,
    most: usize,
    dropped: IntCounter,
    debug_directories: Vec<PathBuf>,
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
    ) -> Self {
        Self {
            offered,
            shelf: Mutex::default(),
            most,
            dropped,
            debug_directories,
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

    /// The executable with this build id. Where it was not handed over, its path is tried in the
    /// processes that have it and on this host: what is there may be another version, or be laid
    /// there by whoever made the container, so it has to have the same build id.
    pub fn open(&self, module: &Module) -> Option<Arc<File>> {
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

    /// The file with its DWARF.
    pub fn separate(&self, module: &Module, file: &File) -> Option<Rc<dyn Source>> {
        let roots: Vec<PathBuf> = roots(module).collect();
        let found = separate(
            file,
            &Places {
                roots: &roots,
                executable: &module.path,
                directories: &self.debug_directories,
                goes_on: &|| true,
            },
        )?;
        tracing::debug!(
            path = %module.path.display(),
            debug_file = %found.path.display(),
            "an executable has its DWARF in a file of its own"
        );
        Some(Rc::new(found.file))
    }
}

/// Of the processes that have the module, and of this one.
fn roots(module: &Module) -> impl Iterator<Item = PathBuf> {
    let processes = module.processes.iter();
    let processes = processes.map(|pid| format!("/proc/{pid}/root").into());
    processes.chain([Path::new("/").to_owned()])
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
