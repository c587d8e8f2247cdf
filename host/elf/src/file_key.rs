//! The device and the inode that identify a file.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;

use rustix::fs::makedev;

/// The numbers of a file in lists of mappings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileKey {
    /// Encoded as in [`MetadataExt::dev`].
    pub device: u64,
    pub inode: u64,
}

impl FileKey {
    pub(crate) fn new(major: u64, minor: u64, inode: u64) -> Option<Self> {
        let device = makedev(major.try_into().ok()?, minor.try_into().ok()?);
        Some(Self { device, inode })
    }

    /// As its metadata has them, which differs from lists of mappings in the device for btrfs and overlayfs.
    pub fn of(found: &Metadata) -> Self {
        Self {
            device: found.dev(),
            inode: found.ino(),
        }
    }

    /// Whether a mapping of this file may lead to the one that was found. Another inode on the same device means that the mapping
    /// is a new one; another device means nothing.
    pub fn may_be_mapped(&self, found: &Metadata) -> bool {
        found.dev() != self.device || found.ino() == self.inode
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_inode_is_refused_if_the_device_is_the_same() {
        let file = tempfile::tempfile().unwrap().metadata().unwrap();
        let (device, inode) = (file.dev(), file.ino());
        for (device, inode, expected) in [
            (device, inode, true),
            (device, inode + 1, false),
            (device + 1, inode, true),
            (device + 1, inode + 1, true),
        ] {
            assert_eq!(FileKey { device, inode }.may_be_mapped(&file), expected);
        }
    }
}
