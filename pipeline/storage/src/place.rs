//! Where the directories of a storage are: below one directory, or on a simulated disk.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

use crate::disk::{Disk, Folder};
#[cfg(any(test, feature = "testkit"))]
use crate::simulated::SimulatedDisk;

/// Escaped in the names of directories.
pub const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'_').remove(b'-').remove(b'.');

/// What a log is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Purpose {
    /// The sending queue of an exporter.
    Queue,
    /// The past profiles of an exporter.
    History,
}

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

impl Purpose {
    const ALL: [Self; 2] = [Self::Queue, Self::History];

    fn prefix(self) -> &'static str {
        match self {
            Self::Queue => "exporter_",
            Self::History => "history_",
        }
    }

    /// The exporter's id, percent-encoded for file names.
    pub(crate) fn folder_of(self, exporter: &str) -> String {
        format!(
            "{}{}",
            self.prefix(),
            utf8_percent_encode(exporter, ESCAPED)
        )
    }

    /// The purpose and the exporter of a directory name.
    pub(crate) fn of_folder(folder: &str) -> Option<(Self, String)> {
        let (purpose, name) = Self::ALL
            .into_iter()
            .find_map(|it| Some((it, folder.strip_prefix(it.prefix())?)))?;
        let exporter = percent_decode_str(name).decode_utf8().ok()?.into_owned();
        // Other spellings of the same name, such as `%61` for `a`, belong to no exporter.
        (purpose.folder_of(&exporter) == folder).then_some((purpose, exporter))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_log_has_its_own_folder() {
        for id in [
            "otlp_grpc",
            "otlp_grpc/a b",
            "otlp/../../etc",
            "otlp/%2F",
            "parca/ä",
        ] {
            for purpose in Purpose::ALL {
                let folder = purpose.folder_of(id);
                assert!(!folder.contains('/'), "{folder}");
                assert_eq!(Purpose::of_folder(&folder), Some((purpose, id.to_owned())));
            }
        }
        for folder in [
            "lock",
            "exporter_%",
            "exporter_%4",
            "exporter_%zz",
            "exporter_%ff",
            "exporter_%+5",
            "exporter_%2f",
            "exporter_%61",
            "exporter_a b",
        ] {
            assert_eq!(Purpose::of_folder(folder), None, "{folder}");
        }
    }
}
