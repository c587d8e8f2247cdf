//! The other files that may hold an executable's DWARF.

use std::cell::RefCell;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use profcol_debuginfo::{CommonLink, SearchPaths, Separate, common, package, separate, split};
use profcol_elf::Source;

/// Finds companion files. The caller verifies that they belong to the executable, except for `separate` and `common`,
/// which only return files with a matching id.
pub trait Companions {
    /// The debug file of a stripped executable.
    fn separate(&self, executable: &dyn Source) -> Option<Rc<dyn Source>>;
    /// The file with the DWARF shared by several files.
    fn common(&self, link: &CommonLink) -> Option<Rc<dyn Source>>;
    /// The package of all `.dwo` files.
    fn package(&self) -> Option<Rc<dyn Source>>;
    /// A `.dwo` file, by the compilation directory of its unit and its name.
    fn split(&self, compiled_in: &Path, name: &Path) -> Option<Rc<dyn Source>>;
}

/// Finds companion files as open files: for a reader in another process, or for one in this process, as [`Companions`].
pub trait CompanionFiles {
    fn separate(&self, executable: &dyn Source) -> Option<File>;
    fn common(&self, link: &CommonLink) -> Option<File>;
    fn package(&self) -> Option<File>;
    fn split(&self, compiled_in: &Path, name: &Path) -> Option<File>;
}

impl<F: CompanionFiles> Companions for F {
    fn separate(&self, executable: &dyn Source) -> Option<Rc<dyn Source>> {
        source(CompanionFiles::separate(self, executable))
    }

    fn common(&self, link: &CommonLink) -> Option<Rc<dyn Source>> {
        source(CompanionFiles::common(self, link))
    }

    fn package(&self) -> Option<Rc<dyn Source>> {
        source(CompanionFiles::package(self))
    }

    fn split(&self, compiled_in: &Path, name: &Path) -> Option<Rc<dyn Source>> {
        source(CompanionFiles::split(self, compiled_in, name))
    }
}

fn source(file: Option<File>) -> Option<Rc<dyn Source>> {
    Some(Rc::new(file?))
}

/// No companions.
impl Companions for () {
    fn separate(&self, _: &dyn Source) -> Option<Rc<dyn Source>> {
        None
    }

    fn common(&self, _: &CommonLink) -> Option<Rc<dyn Source>> {
        None
    }

    fn package(&self) -> Option<Rc<dyn Source>> {
        None
    }

    fn split(&self, _: &Path, _: &Path) -> Option<Rc<dyn Source>> {
        None
    }
}

/// Searches this host in the usual places.
pub struct OnHost {
    roots: Vec<PathBuf>,
    executable: PathBuf,
    directories: Vec<PathBuf>,
    goes_on: Box<dyn Fn() -> bool>,
    /// The debug file, once found: other files are searched relative to it.
    debug_file: RefCell<Option<PathBuf>>,
}

impl OnHost {
    /// The arguments as in [`Places`].
    pub fn new(
        roots: Vec<PathBuf>,
        executable: PathBuf,
        directories: Vec<PathBuf>,
        goes_on: impl Fn() -> bool + 'static,
    ) -> Self {
        Self {
            roots,
            executable,
            directories,
            goes_on: Box::new(goes_on),
            debug_file: RefCell::default(),
        }
    }

    fn search_paths(&self) -> SearchPaths<'_> {
        SearchPaths {
            roots: &self.roots,
            executable: &self.executable,
            directories: &self.directories,
            goes_on: &self.goes_on,
        }
    }
}

impl CompanionFiles for OnHost {
    fn separate(&self, executable: &dyn Source) -> Option<File> {
        let debug_file = separate(executable, &self.search_paths())?;
        self.debug_file.replace(Some(debug_file.path));
        Some(debug_file.file)
    }

    fn common(&self, link: &CommonLink) -> Option<File> {
        let debug_file = self.debug_file.borrow();
        let from = debug_file.as_deref().unwrap_or(&self.executable);
        common(link, from, &self.search_paths()).map(opened)
    }

    fn package(&self) -> Option<File> {
        let debug_file = self.debug_file.borrow();
        package(debug_file.as_deref(), &self.search_paths()).map(opened)
    }

    fn split(&self, compiled_in: &Path, name: &Path) -> Option<File> {
        split(compiled_in, name, &self.search_paths()).map(opened)
    }
}

fn opened(separate: Separate) -> File {
    separate.file
}
