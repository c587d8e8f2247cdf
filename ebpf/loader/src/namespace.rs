//! The PID namespace that this process sees in /proc.

use std::os::linux::fs::MetadataExt;
use std::path::Path;
use std::{fs, io};

use crate::requirement::Requirement;

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
        let file = fs::metadata("/proc/self/ns/pid")?;
        let shown = file.st_dev();
        let (major, minor) = (libc::major(shown), libc::minor(shown));
        Ok(Self {
            inode: file.st_ino(),
            device: u64::from(major) << MINOR_BITS | u64::from(minor),
        })
    }
}

/// The inode number of the initial PID namespace.
const FIRST_PID_NAMESPACE: &str = "pid:[4026531836]";

/// The kernel uses the host's PIDs; /proc may not. A process that reads the matching /proc finds its own PID there.
pub(crate) fn requirement(root: &Path, is_sidecar: bool, own: u32) -> Requirement {
    const NAME: &str = "pid_namespace";
    const COST: &str = "processes have no names and their stacks are truncated";
    let found = fs::read_link(root.join("proc/self"));
    if found.is_ok_and(|found| found.to_str() != Some(&own.to_string())) {
        return Requirement::met(NAME, "/proc belongs to another PID namespace")
            .limits(COST, "Mount the /proc of this namespace");
    }
    if is_sidecar {
        return Requirement::met(NAME, "its own is profiled (`mode: sidecar`)");
    }
    let namespace = fs::read_link(root.join("proc/self/ns/pid")).ok();
    let namespace = namespace.as_deref().and_then(Path::to_str);
    if namespace.is_none_or(|namespace| namespace == FIRST_PID_NAMESPACE) {
        return Requirement::met(NAME, "the host's");
    }
    Requirement::met(
        NAME,
        "This process has its own PID namespace and does not see the host's processes",
    )
    .limits(
        COST,
        "Run it in the host's PID namespace (Kubernetes: `hostPID: true`, Docker: `--pid=host`), \
         or set `mode: sidecar` to profile this namespace only",
    )
}
