//! A host of its own for a systemd: its files are in a folder, and its processes in namespaces and in a group of this machine's.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::{root, skip};

/// Far beyond what it takes; the script gives up before.
const PATIENCE: Duration = Duration::from_secs(900);

pub struct Host {
    folder: tempfile::TempDir,
    group: PathBuf,
    systemd: Option<Child>,
}

impl Host {
    /// A whole system out of an archive. None where it cannot run.
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
        let host = Self {
            folder: tempfile::tempdir().unwrap(),
            // The path of a slice: what is below is as on a host of its own, and no business of this host's systemd.
            group: groups.join(format!("profcol{}.slice", std::process::id())),
            systemd: None,
        };
        let mut unpack = Command::new("tar");
        unpack.arg("--extract").arg("--file").arg(archive);
        run(unpack.arg("--directory").arg(host.folder.path()));
        Some(host)
    }

    /// Where a file of it is.
    pub fn at(&self, place: &str) -> PathBuf {
        self.folder.path().join(place)
    }

    fn made(&self, place: &str) -> PathBuf {
        let place = self.at(place);
        fs::create_dir_all(place.parent().unwrap()).unwrap();
        place
    }

    pub fn add(&self, file: &Path, place: &str) {
        fs::copy(file, self.made(place)).unwrap();
    }

    /// Each file of a folder beside this.
    pub fn add_folder(&self, folder: &str, place: &str) {
        for file in fs::read_dir(root().join("tests/systemd").join(folder)).unwrap() {
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
        // It ends with this test, however that ends, and all of its processes with it.
        let enter = "echo $$ >\"$0/cgroup.procs\"; exec setpriv --pdeathsig KILL unshare --fork --kill-child --mount --pid \
                     --cgroup --uts --ipc --net sh -e \"$1\" \"$2\"";
        let mut systemd = Command::new("sh");
        systemd.args(["-e", "-c", enter]);
        systemd.args([&self.group, &script, self.folder.path()]);
        systemd.stdin(Stdio::null()).stdout(Stdio::null());
        self.systemd = Some(systemd.spawn().unwrap());
    }

    /// What is in the file, once it has this line; whatever is there where it never does.
    pub fn wait_for(&mut self, place: &str, line: &str) -> String {
        let began = Instant::now();
        loop {
            let text = fs::read_to_string(self.at(place)).unwrap_or_default();
            let ended = self.systemd.as_mut().unwrap().try_wait().unwrap();
            if text.lines().any(|it| it == line) || ended.is_some() || began.elapsed() > PATIENCE {
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

/// Groups go away from below, once their processes did.
fn remove(group: &Path) {
    let groups = fs::read_dir(group).into_iter().flatten().flatten();
    for group in groups.filter(|it| it.file_type().is_ok_and(|it| it.is_dir())) {
        remove(&group.path());
    }
    let _ = fs::remove_dir(group);
}

/// Where this machine's cgroups of the second version are.
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
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {said}");
}
