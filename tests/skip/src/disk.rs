//! A disk that is small enough to be filled.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;
use std::process::Command;

use crate::skip;

/// A small file system, unmounted on drop.
#[derive(Debug)]
pub struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    /// `options` are those of a tmpfs, such as `size=2m`. `None` without the permission to mount one.
    pub fn mount(options: &str) -> Option<Self> {
        let directory = tempfile::tempdir().expect("can create a temporary directory");
        let mount = Command::new("mount")
            .args(["-t", "tmpfs", "-o", options, "tmpfs"])
            .arg(directory.path())
            .output();
        if mount.is_ok_and(|mount| mount.status.success()) {
            return Some(Self(directory));
        }
        skip("only root can mount a disk that is small enough to be filled");
        None
    }

    /// Changes options, such as the size.
    pub fn grow(&self, options: &str) {
        let remount = format!("remount,{options}");
        let mut mount = Command::new("mount");
        let status = mount.args(["-o", &remount]).arg(self.path()).status();
        assert!(status.is_ok_and(|status| status.success()), "{remount}");
    }

    /// Takes all free space with this file below it, until that is removed.
    pub fn fill(&self, filler: &Path) {
        let mut options = OpenOptions::new();
        let file = options.create(true).append(true).open(filler);
        let mut file = file.expect("can create a file on the disk");
        while file.write_all(&[0; 4096]).is_ok() {}
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Also while files are open there. If this fails, only a temporary directory remains.
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}
