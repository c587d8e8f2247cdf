//! The separate files that may have the DWARF of an executable.

use std::cell::RefCell;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use profcol_debuginfo::{CommonLink, build_id};
use profcol_elf::Source;
use profcol_symbols::{CompanionFiles, OnHost};

use super::debuginfod::FileRequest;
use super::files::{FileLookup, Files};
use super::unresolved::Module;

/// Files on this host, else from debuginfod servers where they have such files.
pub(super) struct ModuleFiles {
    executable: PathBuf,
    on_host: OnHost,
    files: Arc<Files>,
    /// The last requested file that is still being downloaded.
    download: RefCell<Option<FileRequest>>,
}

impl ModuleFiles {
    pub fn new(files: Arc<Files>, module: &Module) -> Self {
        Self {
            executable: module.path.clone(),
            on_host: files.companions(module),
            files,
            download: RefCell::default(),
        }
    }

    /// The file being downloaded that may have more information.
    pub fn download(&self) -> Option<FileRequest> {
        self.download.borrow().clone()
    }

    fn noted(&self, sought: FileLookup<File>) -> Option<File> {
        if sought.download.is_some() {
            self.download.replace(sought.download);
        }
        sought.found
    }

    fn logged(&self, found: Option<File>, what: &str) -> Option<File> {
        if found.is_some() {
            let path = self.executable.display();
            tracing::debug!(%path, what, "found DWARF in a separate file");
        }
        found
    }
}

impl CompanionFiles for ModuleFiles {
    fn separate(&self, executable: &dyn Source) -> Option<File> {
        let found = self.logged(self.on_host.separate(executable), "a debug file");
        found.or_else(|| self.noted(self.files.debug_file(&build_id(executable)?)))
    }

    fn common(&self, link: &CommonLink) -> Option<File> {
        let found = self.logged(self.on_host.common(link), "a dwz supplementary file");
        found.or_else(|| self.noted(self.files.debug_file(link.build_id()?)))
    }

    fn package(&self) -> Option<File> {
        self.logged(self.on_host.package(), "a .dwp package")
    }

    fn split(&self, compiled_in: &Path, name: &Path) -> Option<File> {
        self.logged(self.on_host.split(compiled_in, name), "a .dwo file")
    }
}
