//! The PID namespaces whose processes are sampled, and the one that this process sees in /proc.

use std::os::linux::fs::MetadataExt;
use std::path::Path;
use std::{fs, io};

use profcol_processes::has_own_pid_namespace;

use crate::requirement::Requirement;

/// Which processes are sampled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scope {
    /// All of this host.
    #[default]
    Host,
    /// Processes in the PID namespace of this process, with their PIDs in it.
    Namespace,
    /// As many as this process can see.
    Visible,
}

impl Scope {
    /// Whether only the processes in the PID namespace of this process are sampled.
    pub fn is_namespace(self, root: &Path) -> bool {
        match self {
            Self::Host => false,
            Self::Namespace => true,
            Self::Visible => has_own_pid_namespace(root),
        }
    }
}

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

/// The kernel uses the host's PIDs; /proc may not. A process that reads the matching /proc finds its own PID there.
pub(crate) fn requirement(root: &Path, scope: Scope, own: u32) -> Requirement {
    const NAME: &str = "pid_namespace";
    const COST: &str = "processes have no names and their stacks are truncated";
    let found = fs::read_link(root.join("proc/self"));
    if found.is_ok_and(|found| found.to_str() != Some(&own.to_string())) {
        return Requirement::met(NAME, "/proc belongs to another PID namespace")
            .limits(COST, "Mount the /proc of this namespace");
    }
    if scope == Scope::Namespace {
        return Requirement::met(NAME, "its own is profiled (`mode: sidecar`)");
    }
    if !has_own_pid_namespace(root) {
        return Requirement::met(NAME, "the host's");
    }
    const FIX: &str =
        "Run it in the host's PID namespace (Kubernetes: `hostPID: true`, Docker: `--pid=host`)";
    let found = Requirement::met(
        NAME,
        "This process has its own PID namespace and does not see the host's processes",
    );
    match scope {
        Scope::Visible => found.limits("only the processes in it are profiled", FIX),
        Scope::Host | Scope::Namespace => found.limits(
            COST,
            format!("{FIX}, or set `mode: sidecar` to profile this namespace only"),
        ),
    }
}
