//! The other files in which an executable's DWARF may be.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use profcol_debuginfo::{CommonLink, Places, Separate, common, package, separate, split};
use profcol_elf::Source;

/// Finds them. Whoever asks makes sure that what is found belongs to the executable, except for
/// `separate` and `common`, which only give what has the right id.
pub trait Companions {
    /// The file with the DWARF that was stripped from this one.
    fn separate(&self, executable: &dyn Source) -> Option<Rc<dyn Source>>;
    /// The file with what its DWARF shares with that of others.
    fn common(&self, link: &CommonLink) -> Option<Rc<dyn Source>>;
    /// A package of all `.dwo` files.
    fn package(&self) -> Option<Rc<dyn Source>>;
    /// One `.dwo` file, by the folder in which its unit was compiled and its own name.
    fn split(&self, compiled_in: &Path, name: &Path) -> Option<Rc<dyn Source>>;
}

/// There are none.
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

/// Those that lie on this host, where tools put and look for them.
pub struct OnHost {
    roots: Vec<PathBuf>,
    executable: PathBuf,
    directories: Vec<PathBuf>,
    goes_on: Box<dyn Fn() -> bool>,
    /// What was found to have the DWARF: others are named by their place beside it.
    debug_file: RefCell<Option<PathBuf>>,
}

impl OnHost {
    /// Each of the arguments as in [`Places`].
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

    fn places(&self) -> Places<'_> {
        Places {
            roots: &self.roots,
            executable: &self.executable,
            directories: &self.directories,
            goes_on: &self.goes_on,
        }
    }
}

impl Companions for OnHost {
    fn separate(&self, executable: &dyn Source) -> Option<Rc<dyn Source>> {
        let found = separate(executable, &self.places())?;
        self.debug_file.replace(Some(found.path.clone()));
        Some(opened(found))
    }

    fn common(&self, link: &CommonLink) -> Option<Rc<dyn Source>> {
        let debug_file = self.debug_file.borrow();
        let from = debug_file.as_deref().unwrap_or(&self.executable);
        common(link, from, &self.places()).map(opened)
    }

    fn package(&self) -> Option<Rc<dyn Source>> {
        let debug_file = self.debug_file.borrow();
        package(debug_file.as_deref(), &self.places()).map(opened)
    }

    fn split(&self, compiled_in: &Path, name: &Path) -> Option<Rc<dyn Source>> {
        split(compiled_in, name, &self.places()).map(opened)
    }
}

fn opened(found: Separate) -> Rc<dyn Source> {
    Rc::new(found.file)
}
