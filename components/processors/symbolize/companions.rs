//! The separate files that may have the DWARF of an executable.

use std::cell::RefCell;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use profcol_debuginfo::{CommonLink, build_id};
use profcol_elf::Source;
use profcol_symbols::{Companions, OnHost};

use super::debuginfod::FileRequest;
use super::files::{FileLookup, Files};
use super::pace::{Stopping, UntilStop};
use super::unresolved::Module;

/// Files on this host, else from debuginfod servers where they have such files.
pub(super) struct CompanionFiles {
    executable: PathBuf,
    on_host: OnHost,
    files: Arc<Files>,
    stopping: Arc<Stopping>,
    /// The last requested file that is still being downloaded.
    download: RefCell<Option<FileRequest>>,
}

impl CompanionFiles {
    pub fn new(files: Arc<Files>, module: &Module, stopping: Arc<Stopping>) -> Self {
        Self {
            executable: module.path.clone(),
            on_host: files.companions(module),
            files,
            stopping,
            download: RefCell::default(),
        }
    }

    /// The file being downloaded that may have more information.
    pub fn download(&self) -> Option<FileRequest> {
        self.download.borrow().clone()
    }

    fn noted(&self, sought: FileLookup<File>) -> Option<Rc<dyn Source>> {
        if sought.download.is_some() {
            self.download.replace(sought.download);
        }
        let found: Rc<dyn Source> = Rc::new(sought.found?);
        Some(self.until_stop(found))
    }

    fn logged(&self, found: Option<Rc<dyn Source>>, what: &str) -> Option<Rc<dyn Source>> {
        if found.is_some() {
            let path = self.executable.display();
            tracing::debug!(%path, what, "found DWARF in a separate file");
        }
        found.map(|found| self.until_stop(found))
    }

    fn until_stop(&self, source: Rc<dyn Source>) -> Rc<dyn Source> {
        let stopping = Arc::clone(&self.stopping);
        Rc::new(UntilStop { source, stopping })
    }
}

impl Companions for CompanionFiles {
    fn separate(&self, executable: &dyn Source) -> Option<Rc<dyn Source>> {
        let found = self.logged(self.on_host.separate(executable), "a debug file");
        found.or_else(|| self.noted(self.files.debug_file(&build_id(executable)?)))
    }

    fn common(&self, link: &CommonLink) -> Option<Rc<dyn Source>> {
        let found = self.logged(self.on_host.common(link), "a dwz supplementary file");
        found.or_else(|| self.noted(self.files.debug_file(link.build_id()?)))
    }

    fn package(&self) -> Option<Rc<dyn Source>> {
        self.logged(self.on_host.package(), "a .dwp package")
    }

    fn split(&self, compiled_in: &Path, name: &Path) -> Option<Rc<dyn Source>> {
        self.logged(self.on_host.split(compiled_in, name), "a .dwo file")
    }
}
