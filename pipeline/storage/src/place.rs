//! Where the directories of a storage are: below one directory, or on a simulated disk.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::directory::Purpose;
use crate::disk::{Disk, Folder};
#[cfg(any(test, feature = "testkit"))]
use crate::simulated::SimulatedDisk;

#[derive(Clone)]
pub(crate) struct Place {
    pub directory: PathBuf,
    #[cfg(any(test, feature = "testkit"))]
    pub simulated: Option<SimulatedDisk>,
}

impl Place {
    pub fn of(directory: &Path) -> Self {
        Self {
            directory: directory.to_owned(),
            #[cfg(any(test, feature = "testkit"))]
            simulated: None,
        }
    }

    pub fn path(&self, folder: &str) -> PathBuf {
        self.directory.join(folder)
    }

    /// Creates the folder if it is missing.
    pub fn create(&self, folder: &str) -> io::Result<Arc<dyn Disk>> {
        #[cfg(any(test, feature = "testkit"))]
        if let Some(disk) = &self.simulated {
            return Ok(Arc::new(disk.folder(folder)));
        }
        let disk = Folder::create(&self.path(folder))?;
        // The new directory entry must survive a power loss.
        Folder::existing(&self.directory).sync()?;
        Ok(Arc::new(disk))
    }

    pub fn existing(&self, folder: &str) -> io::Result<Option<Arc<dyn Disk>>> {
        #[cfg(any(test, feature = "testkit"))]
        if let Some(disk) = &self.simulated {
            return Ok(Some(Arc::new(disk.folder(folder))));
        }
        let path = self.path(folder);
        Ok(path
            .try_exists()?
            .then(|| Arc::new(Folder::existing(&path)) as _))
    }

    /// The folders of all queues, also of exporters that are no longer configured.
    pub fn queues(&self) -> io::Result<Vec<String>> {
        let mut folders = self.folders()?;
        folders.retain(|name| matches!(Purpose::of_folder(name), Some((Purpose::Queue, _))));
        Ok(folders)
    }

    fn folders(&self) -> io::Result<Vec<String>> {
        #[cfg(any(test, feature = "testkit"))]
        if let Some(disk) = &self.simulated {
            return Ok(disk.folders());
        }
        Folder::existing(&self.directory).names()
    }
}
