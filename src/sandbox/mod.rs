//! Restricts the process to what its configuration needs, for good: an exploited bug in a parser must not start programs,
//! write elsewhere or reach more of the kernel.
//!
//! Both restrictions belong to a thread and are inherited by the threads it creates, so this runs while the process is
//! single-threaded.

mod paths;
mod readers;
mod seccomp;
#[cfg(test)]
mod tests;

use std::path::PathBuf;

use profcol_component::{Capabilities, Check};
use profcol_engine::Document;

use profcol_reader::Readers;
use rustix::process::{Resource, Rlimit, setrlimit};

use self::paths::Landlock;
use self::readers::Supervision;
pub use self::readers::role;
use self::seccomp::Profile;

/// The restrictions in force. A reload can neither lift nor add any.
#[derive(Clone, Debug, Default)]
pub struct Sandbox {
    seccomp: Option<Profile>,
    landlock: Option<Landlock>,
    readers: Supervision,
}

/// Why a configuration cannot run inside the sandbox.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum Missing {
    #[error(
        "the new configuration writes to {0}, which Landlock has denied since the start: restart profcol"
    )]
    Directory(String),
    #[error(
        "the new configuration reads other processes, which Landlock has denied since the start: restart profcol"
    )]
    Processes,
    #[error(
        "the new configuration profiles this host, which the seccomp filter has denied since the start: restart profcol"
    )]
    Bpf,
    #[error(
        "the new configuration reads executables, for which profcol started no process: restart profcol"
    )]
    Readers,
}

/// Restricts the calling thread, and the threads it will create. Where the kernel refuses, the process runs on without.
pub fn enter(document: &Document) -> Sandbox {
    let settings = &document.service.sandbox;
    // The processes that read executables inherit it.
    forbid_core_dumps();
    // Before the others, as no program can be started later.
    let readers = Supervision::start(document);
    let landlock = settings.landlock.then(|| landlock(document)).flatten();
    // Last, as it denies the system calls of Landlock.
    let seccomp = settings.seccomp.then(|| seccomp(document)).flatten();
    Sandbox {
        seccomp,
        landlock,
        readers,
    }
}

/// A crash must not copy the secrets of the configuration to a file or another program.
fn forbid_core_dumps() {
    // With 0, Linux still passes all memory to a program that `core_pattern` names.
    let least = Some(1);
    let limit = Rlimit {
        current: least,
        maximum: least,
    };
    if let Err(error) = setrlimit(Resource::Core, limit) {
        tracing::debug!(error = %std::io::Error::from(error), "Failed to turn off core dumps.");
    }
}

fn landlock(document: &Document) -> Option<Landlock> {
    if reads_processes(document) {
        tracing::debug!(
            "Landlock is not used: it would deny reading other processes, which this configuration needs."
        );
        return None;
    }
    match Landlock::restrict(document.writes()) {
        Ok(landlock) => {
            tracing::info!(directories = ?landlock.directories(), "Enabled Landlock: profcol starts no programs, and writes files only in these directories.");
            Some(landlock)
        }
        Err(error) => {
            tracing::info!(%error, "Landlock is not available; continuing without it.");
            None
        }
    }
}

fn seccomp(document: &Document) -> Option<Profile> {
    let profile = Profile::of(document.capabilities());
    match seccomp::restrict(profile) {
        Ok(()) => {
            tracing::debug!(
                "Installed a seccomp filter: it denies system calls that profcol does not need."
            );
            Some(profile)
        }
        Err(error) => {
            tracing::info!(%error, "seccomp is not available; continuing without it.");
            None
        }
    }
}

/// The kernel lets a process under Landlock inspect no process outside of its domain, whatever its capabilities.
fn reads_processes(document: &Document) -> bool {
    document.capabilities().contains(Capabilities::SYS_PTRACE)
}

impl Sandbox {
    /// What starts processes that read executables.
    pub fn readers(&self) -> Readers {
        self.readers.readers()
    }

    /// Whether `document` can run inside.
    pub fn admits(&self, document: &Document) -> Result<(), Missing> {
        if !self.readers.admits(document) {
            return Err(Missing::Readers);
        }
        if let Some(profile) = self.seccomp
            && !profile.includes(Profile::of(document.capabilities()))
        {
            return Err(Missing::Bpf);
        }
        let Some(landlock) = &self.landlock else {
            return Ok(());
        };
        if reads_processes(document) {
            return Err(Missing::Processes);
        }
        let denied = |directory: &PathBuf| !landlock.admits(directory);
        match document.writes().iter().find(|it| denied(it)) {
            Some(directory) => Err(Missing::Directory(directory.display().to_string())),
            None => Ok(()),
        }
    }
}

/// Whether this kernel can do what `service::sandbox` asks for.
pub fn check(document: &Document) -> Vec<Check> {
    const CONSEQUENCE: &str = "an exploited bug could do more than profcol itself does";
    let settings = &document.service.sandbox;
    let mut checks = Vec::new();
    if settings.seccomp {
        checks.push(match seccomp::is_available() {
            true => Check::new("seccomp", "system calls that profcol does not need are denied"),
            false => Check::new("seccomp", "the kernel has no seccomp filters").warn(
                CONSEQUENCE,
                "use a kernel with CONFIG_SECCOMP_FILTER, or set `service::sandbox::seccomp: false`",
            ),
        });
    }
    if settings.landlock {
        checks.push(match (reads_processes(document), Landlock::is_available()) {
            (true, _) => Check::new(
                "landlock",
                "not used: it would deny reading other processes, which this configuration needs",
            ),
            (false, true) => Check::new("landlock", "files are written only where the configuration says"),
            (false, false) => Check::new("landlock", "the kernel has no Landlock").warn(
                CONSEQUENCE,
                "boot a kernel with CONFIG_SECURITY_LANDLOCK and `landlock` in its `lsm=` list, or set \
                 `service::sandbox::landlock: false`",
            ),
        });
    }
    if settings.reader && document.reads_executables() {
        checks.push(match Supervision::check() {
            Ok(()) => Check::new("reader", "executables are read in another process without rights"),
            Err(error) => Check::new(
                "reader",
                format!("no process can be started that reads executables: {error}"),
            )
            .warn(
                CONSEQUENCE,
                "mount /proc and let profcol start itself, or set `service::sandbox::reader: false`",
            ),
        });
    }
    checks
}
