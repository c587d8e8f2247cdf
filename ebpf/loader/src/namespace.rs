//! The PID namespace that this process sees in /proc.

use std::io;
use std::os::linux::fs::MetadataExt;

/// Identified by its nsfs file, since the kernel compares device and inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Namespace {
    pub inode: u64,
    /// In the kernel's internal device encoding, which differs from user space.
    pub device: u64,
}

const MINOR_BITS: u32 = 20;

impl Namespace {
    pub fn own() -> io::Result<Self> {
        let file = std::fs::metadata("/proc/self/ns/pid")?;
        let shown = file.st_dev();
        let (major, minor) = (libc::major(shown), libc::minor(shown));
        Ok(Self {
            inode: file.st_ino(),
            device: u64::from(major) << MINOR_BITS | u64::from(minor),
        })
    }
}
