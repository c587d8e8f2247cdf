//! The recorded command.
//!
//! It waits until sampling has started, then runs in its own cgroup, so that its descendants are recorded too, even
//! those that outlive their parent.

use std::ffi::OsString;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode};
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::fs::{CWD, Mode, mkfifoat};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tokio::sync::oneshot;

use crate::commands::CommandError;
use crate::stderr::print;

/// Waits for a line on the pipe, then execs the command.
const WAIT: &str = "read -r _ < \"$1\"; shift; exec \"$@\"";

/// A command held before its `exec`; killed on drop.
pub struct Started {
    child: Option<Child>,
    pid: u32,
    directory: PathBuf,
    cgroup: Option<Cgroup>,
}

/// The command's exit code once it has exited.
#[derive(Clone, Default)]
pub struct Recorded(Arc<Mutex<Option<i32>>>);

/// Releases the command into its `exec`; terminates it if dropped unsent.
#[derive(Default)]
pub struct Release {
    pipe: Option<PathBuf>,
    pid: u32,
    recorded: Recorded,
}

/// Resolves when the command has exited.
#[derive(Default)]
pub struct Ended(Option<oneshot::Receiver<()>>);

/// A cgroup for one command.
struct Cgroup {
    path: PathBuf,
    name: String,
}

/// Why the command has no cgroup of its own.
#[derive(Debug, thiserror::Error)]
enum CgroupError {
    #[error("failed to read {path}: {error}")]
    Read {
        path: &'static str,
        #[source]
        error: io::Error,
    },
    #[error("no cgroup hierarchy mounted")]
    NoHierarchy,
    #[error("failed to create {}: {error}", path.display())]
    Create {
        path: PathBuf,
        #[source]
        error: io::Error,
    },
}

impl Started {
    pub fn waiting(command: &[OsString]) -> Result<Self, CommandError> {
        let failed = |what: &str, error: &dyn std::fmt::Display| {
            CommandError::Runtime(format!("failed to start the command: {what}: {error}"))
        };
        let directory = std::env::temp_dir().join(format!("profcol-record-{}", std::process::id()));
        fs::create_dir_all(&directory)
            .map_err(|error| failed("cannot create a directory for its pipe", &error))?;
        let pipe = directory.join("begin");
        // A pipe left behind by an earlier process with this PID.
        let _ = fs::remove_file(&pipe);
        mkfifoat(CWD, &pipe, Mode::RUSR | Mode::WUSR)
            .map_err(|error| failed("cannot create its pipe", &io::Error::from(error)))?;
        let child = Command::new("/bin/sh")
            .args(["-c", WAIT, "sh"])
            .arg(&pipe)
            .args(command)
            .spawn()
            .map_err(|error| failed("/bin/sh", &error))?;
        let cgroup = Cgroup::with(child.id()).inspect_err(|error| {
            print(&format!(
                "Recording the command without its children: {error}\n"
            ));
        });
        Ok(Self {
            pid: child.id(),
            child: Some(child),
            directory,
            cgroup: cgroup.ok(),
        })
    }

    /// The `include` rule for the command's processes.
    pub fn rule(&self) -> Value {
        match &self.cgroup {
            Some(cgroup) => json!({"cgroup": format!("*/{}*", cgroup.name)}),
            None => json!({"pid": self.pid}),
        }
    }

    pub fn into_parts(mut self) -> (Recorded, (Release, Ended)) {
        let recorded = Recorded::default();
        let exit_code = recorded.clone();
        let (sender, receiver) = oneshot::channel();
        let release = Release {
            pipe: Some(self.directory.join("begin")),
            pid: self.pid,
            recorded: recorded.clone(),
        };
        let (child, cgroup) = (self.child.take(), self.cgroup.take());
        let directory = self.directory.clone();
        std::thread::spawn(move || {
            let Some(mut child) = child else {
                return;
            };
            let status = child.wait();
            exit_code.set(status.ok());
            let _ = fs::remove_dir_all(&directory);
            // Processes the command left running keep the cgroup.
            drop(cgroup);
            // The recording may have ended already.
            let _ = sender.send(());
        });
        (recorded, (release, Ended(Some(receiver))))
    }
}

impl Recorded {
    fn set(&self, status: Option<std::process::ExitStatus>) {
        use std::os::unix::process::ExitStatusExt;
        // 128 + signal, as shells report it.
        let code =
            status.and_then(|status| status.code().or(status.signal().map(|signal| 128 + signal)));
        *self.0.lock() = code;
    }

    fn has_ended(&self) -> bool {
        self.0.lock().is_some()
    }

    /// The command's exit code if it has exited, else success.
    pub fn exit_code(&self) -> ExitCode {
        let code = *self.0.lock();
        code.and_then(|code| u8::try_from(code).ok())
            .map_or(ExitCode::SUCCESS, ExitCode::from)
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
            let _ = fs::remove_dir_all(&self.directory);
        }
    }
}

impl Drop for Release {
    fn drop(&mut self) {
        let is_waiting = self.pipe.is_some() && !self.recorded.has_ended();
        let pid = i32::try_from(self.pid).ok().and_then(Pid::from_raw);
        if let Some(pid) = pid.filter(|_| is_waiting) {
            let _ = kill_process(pid, Signal::TERM);
        }
    }
}

impl Release {
    pub fn send(mut self) {
        let Some(pipe) = self.pipe.take() else {
            return;
        };
        // `open` blocks until the reader is there, and the reader may have been killed.
        std::thread::spawn(move || {
            let opened = fs::OpenOptions::new().write(true).open(pipe);
            // The command may have exited.
            let _ = opened.and_then(|mut pipe| pipe.write_all(b"\n"));
        });
    }
}

impl Ended {
    pub async fn wait(self) {
        match self.0 {
            Some(ended) => {
                let _ = ended.await;
            }
            None => std::future::pending().await,
        }
    }
}

impl Cgroup {
    /// Moves a process into a new child of this process's cgroup. With several hierarchies, uses the one with the
    /// deepest path, by which the `cgroup` rule matches processes.
    fn with(pid: u32) -> Result<Self, CgroupError> {
        let (mounts, own) = (read("/proc/self/mounts")?, read("/proc/self/cgroup")?);
        let name = format!("profcol-record-{pid}");
        let parent = deepest(&own).and_then(|(controllers, path)| {
            let mount = mount_of(&mounts, controllers)?;
            Some(mount.join(path.trim_start_matches('/')))
        });
        let path = parent.ok_or(CgroupError::NoHierarchy)?.join(&name);
        let failed = |error| CgroupError::Create {
            path: path.clone(),
            error,
        };
        fs::create_dir(&path).map_err(failed)?;
        let cgroup = Self {
            path: path.clone(),
            name,
        };
        fs::write(path.join("cgroup.procs"), pid.to_string()).map_err(failed)?;
        Ok(cgroup)
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // Fails while processes run in it, and at the root of the hierarchy, which needs dropped capabilities. An empty
        // cgroup costs nothing.
        let _ = fs::remove_dir(&self.path);
    }
}

fn read(path: &'static str) -> Result<String, CgroupError> {
    fs::read_to_string(path).map_err(|error| CgroupError::Read { path, error })
}

/// The controllers (empty for cgroup v2) and path of the deepest entry.
fn deepest(cgroups: &str) -> Option<(&str, &str)> {
    let entries = cgroups.lines().filter_map(|line| {
        let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
        Some((controllers, path))
    });
    let depth = |path: &str| path.split('/').filter(|name| !name.is_empty()).count();
    // The first of equally deep ones, as when matching processes.
    entries.rev().max_by_key(|(_, path)| depth(path))
}

fn mount_of<'a>(mounts: &'a str, controllers: &str) -> Option<&'a Path> {
    mounts.lines().find_map(|line| {
        let mut fields = line.split(' ').skip(1);
        let (directory, kind, options) = (fields.next()?, fields.next()?, fields.next()?);
        let is_wanted = match controllers {
            "" => kind == "cgroup2",
            // `memory`, `cpu,cpuacct`, `name=systemd`
            _ => kind == "cgroup" && options.ends_with(controllers),
        };
        is_wanted.then_some(Path::new(directory))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_deepest_hierarchy_is_found() {
        let mounts = "cgroup /c/memory cgroup rw,memory 0 0\n\
                      cgroup /c/systemd cgroup rw,relatime,name=systemd 0 0\n\
                      cgroup2 /c/unified cgroup2 rw 0 0\n";
        let found = |cgroups| {
            let (controllers, path) = deepest(cgroups)?;
            Some((mount_of(mounts, controllers)?.to_str()?, path))
        };
        assert_eq!(found("4:memory:/a/b\n0::/c\n"), Some(("/c/memory", "/a/b")));
        assert_eq!(
            found("4:memory:/a\n0::/b/c\n"),
            Some(("/c/unified", "/b/c"))
        );
        assert_eq!(
            found("1:name=systemd:/a\n0::/b\n"),
            Some(("/c/systemd", "/a"))
        );
        assert_eq!(found("0::/\n"), Some(("/c/unified", "/")));
        assert_eq!(found("7:cpuset:/x\n"), None);
        assert_eq!(found(""), None);
    }
}
