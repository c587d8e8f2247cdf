//! A host for systemd: its files are in a directory, its processes in namespaces and in a cgroup of this machine.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::{root, skip};

/// Far longer than it takes; the script gives up earlier.
const TIMEOUT: Duration = Duration::from_secs(900);

pub struct Host {
    directory: tempfile::TempDir,
    group: PathBuf,
    systemd: Option<Child>,
}

impl Host {
    /// Unpacks a whole system from an archive. None if it cannot run here.
    pub fn unpack(archive: &Path) -> Option<Self> {
        if fs::read_dir("/proc/1/fd").is_err() {
            skip("a systemd needs root");
            return None;
        }
        if !Path::new("/sys/kernel/btf/vmlinux").exists() {
            skip("the kernel has no type information (BTF)");
            return None;
        }
        let Some(groups) = groups() else {
            skip("a systemd needs cgroups of the second version");
            return None;
        };
        // Letters and digits: tests of one process have a host each.
        let prefix = format!("profcol{}", std::process::id());
        let directory = tempfile::Builder::new().prefix(&prefix).tempdir().unwrap();
        let name = directory.path().file_name().unwrap().to_str().unwrap();
        let host = Self {
            // The path of a slice: paths below it look like on a real host, and this host's systemd ignores them.
            group: groups.join(format!("{name}.slice")),
            directory,
            systemd: None,
        };
        let mut unpack = Command::new("tar");
        unpack.arg("--extract").arg("--file").arg(archive);
        run(unpack.arg("--directory").arg(host.directory.path()));
        Some(host)
    }

    /// The path of one of its files.
    pub fn at(&self, place: &str) -> PathBuf {
        self.directory.path().join(place)
    }

    fn made(&self, place: &str) -> PathBuf {
        let place = self.at(place);
        fs::create_dir_all(place.parent().unwrap()).unwrap();
        place
    }

    pub fn add(&self, file: &Path, place: &str) {
        fs::copy(file, self.made(place)).unwrap();
    }

    /// Adds all files of a directory.
    pub fn add_directory(&self, directory: &str, place: &str) {
        for file in fs::read_dir(root().join("tests/systemd").join(directory)).unwrap() {
            let file = file.unwrap();
            let name = file.file_name();
            self.add(&file.path(), &format!("{place}/{}", name.to_str().unwrap()));
        }
    }

    pub fn write(&self, place: &str, text: &str) {
        fs::write(self.made(place), text).unwrap();
    }

    pub fn link(&self, place: &str, to: &str) {
        std::os::unix::fs::symlink(to, self.made(place)).unwrap();
    }

    pub fn boot(&mut self) {
        fs::create_dir(&self.group).unwrap();
        let script = root().join("tests/systemd/scripts/boot");
        // It dies with this test, including all of its processes.
        let enter = "echo $$ >\"$0/cgroup.procs\"; exec setpriv --pdeathsig KILL unshare --fork --kill-child --mount --pid \
                     --cgroup --uts --ipc --net sh -e \"$1\" \"$2\"";
        let mut systemd = Command::new("sh");
        systemd.args(["-e", "-c", enter]);
        systemd.args([&self.group, &script, self.directory.path()]);
        systemd.stdin(Stdio::null()).stdout(Stdio::null());
        self.systemd = Some(systemd.spawn().unwrap());
    }

    /// Waits until the file has this line, and returns its content in any case.
    pub fn wait_for(&mut self, place: &str, line: &str) -> String {
        let began = Instant::now();
        loop {
            let text = fs::read_to_string(self.at(place)).unwrap_or_default();
            let ended = self.systemd.as_mut().unwrap().try_wait().unwrap();
            if text.lines().any(|it| it == line) || ended.is_some() || began.elapsed() > TIMEOUT {
                return text;
            }
            std::thread::sleep(Duration::from_millis(200));
        }
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        if let Some(systemd) = &mut self.systemd {
            let _ = systemd.kill();
            let _ = systemd.wait();
        }
        let began = Instant::now();
        while self.group.exists() && began.elapsed() < Duration::from_secs(10) {
            remove(&self.group);
        }
    }
}

/// Removes cgroups bottom-up, after their processes have exited.
fn remove(group: &Path) {
    let groups = fs::read_dir(group).into_iter().flatten().flatten();
    for group in groups.filter(|it| it.file_type().is_ok_and(|it| it.is_dir())) {
        remove(&group.path());
    }
    let _ = fs::remove_dir(group);
}

/// The mount point of this machine's cgroup v2.
fn groups() -> Option<PathBuf> {
    let mounts = fs::read_to_string("/proc/mounts").ok()?;
    let mut mounts = mounts.lines().map(|mount| mount.split(' '));
    mounts.find_map(|mut mount| {
        let place = mount.nth(1)?;
        (mount.next()? == "cgroup2").then(|| place.into())
    })
}

fn run(command: &mut Command) {
    let output = command.output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {stderr}");
}
