//! A cgroup with limits for one program, version 1 or 2.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use crate::support::{is_root, skip};

const ROOT: &str = "/sys/fs/cgroup";

/// Removed on drop, after its processes have ended.
pub struct Cgroup {
    /// One for each controller, or the same.
    memory: PathBuf,
    cpu: PathBuf,
    is_v2: bool,
}

impl Cgroup {
    /// None without the right to make one.
    pub fn new(name: &str) -> Option<Self> {
        if !is_root() {
            skip("only root can make cgroups");
            return None;
        }
        let is_v2 = Path::new(ROOT).join("cgroup.controllers").exists();
        let name = format!("profcol-test-{name}-{}", std::process::id());
        let [memory, cpu] = ["memory", "cpu"].map(|controller| match is_v2 {
            true => Path::new(ROOT).join(&name),
            false => Path::new(ROOT).join(controller).join(&name),
        });
        if is_v2 {
            // It may be the case already.
            let _ = fs::write(
                Path::new(ROOT).join("cgroup.subtree_control"),
                "+memory +cpu",
            );
        }
        let made = fs::create_dir_all(&memory).and_then(|()| fs::create_dir_all(&cpu));
        let group = Self { memory, cpu, is_v2 };
        let limits = [group.memory_limit(), group.cpu_limit()];
        if made.is_err() || !limits.iter().all(|file| file.exists()) {
            skip("this machine has no cgroups with limits of memory and CPU");
            return None;
        }
        Some(group)
    }

    fn memory_limit(&self) -> PathBuf {
        self.memory.join(match self.is_v2 {
            true => "memory.max",
            false => "memory.limit_in_bytes",
        })
    }

    fn cpu_limit(&self) -> PathBuf {
        self.cpu.join(match self.is_v2 {
            true => "cpu.max",
            false => "cpu.cfs_quota_us",
        })
    }

    /// Fails if it has more that cannot be given back.
    pub fn limit_memory(&self, bytes: u64) -> io::Result<()> {
        fs::write(self.memory_limit(), bytes.to_string())
    }

    pub fn unlimit_memory(&self) {
        let unlimited = if self.is_v2 { "max" } else { "-1" };
        fs::write(self.memory_limit(), unlimited).unwrap();
    }

    /// To so many percent of one CPU.
    pub fn limit_cpu(&self, percent: u32) {
        // Of a period of 100 ms, which is the default of both versions.
        let micros = 1000 * percent;
        fs::write(self.cpu_limit(), micros.to_string()).unwrap();
    }

    /// Becomes `program` inside the cgroup.
    pub fn command(&self, program: &Path) -> Command {
        let script =
            r#"echo $$ > "$0/cgroup.procs" && echo $$ > "$1/cgroup.procs" && shift && exec "$@""#;
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command.arg(&self.memory).arg(&self.cpu).arg(program);
        command
    }

    /// How many of its processes the kernel killed for want of memory.
    pub fn kills(&self) -> u64 {
        let file = self.memory.join(match self.is_v2 {
            true => "memory.events",
            false => "memory.oom_control",
        });
        let text = fs::read_to_string(file).unwrap();
        let count = text.lines().find_map(|it| it.strip_prefix("oom_kill "));
        count.and_then(|count| count.parse().ok()).unwrap()
    }

    /// How often its processes had to wait for the next period.
    pub fn throttled(&self) -> u64 {
        let text = fs::read_to_string(self.cpu.join("cpu.stat")).unwrap();
        let count = text.lines().find_map(|it| it.strip_prefix("nr_throttled "));
        count.and_then(|count| count.parse().ok()).unwrap()
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        for directory in [&self.memory, &self.cpu] {
            // Its last process may still be leaving.
            for _ in 0..100 {
                if fs::remove_dir(directory).is_ok() || !directory.exists() {
                    break;
                }
                thread::sleep(Duration::from_millis(20));
            }
        }
    }
}
