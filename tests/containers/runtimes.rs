//! Private runtimes: their daemons, their files in one directory, and their containers.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use profcol_test_harness::support::{path, skip};

const PROGRAMS: [&str; 9] = [
    "busybox",
    "containerd",
    "ctr",
    "docker",
    "dockerd",
    "lxc-start",
    "podman",
    "runc",
    "tar",
];

/// Does a little work repeatedly, so that it is sampled without starving others.
pub const BUSY: [&str; 4] = [
    "/bin/busybox",
    "sh",
    "-c",
    "while :; do i=0; while [ $i -lt 5000 ]; do i=$((i+1)); done; /bin/busybox sleep 0.05; done",
];

pub struct Runtimes {
    directory: tempfile::TempDir,
    daemons: Vec<Child>,
}

impl Runtimes {
    /// Finds the runtimes without starting a daemon. None if they cannot run.
    pub fn find() -> Option<Self> {
        let lacks = PROGRAMS.iter().find(|program| !is_installed(program));
        if let Some(program) = lacks {
            skip(&format!("{program} is not installed"));
            return None;
        }
        if std::fs::read_dir("/proc/1/fd").is_err() {
            skip("containers need root");
            return None;
        }
        let runtimes = Self {
            daemons: Vec::new(),
            directory: tempfile::tempdir().expect("can create a temporary directory"),
        };
        let programs = runtimes.directory("root/bin");
        std::fs::copy("/bin/busybox", programs.join("busybox")).expect("busybox is there");
        runtimes.pack("root");
        Some(runtimes)
    }

    pub fn at(&self, name: &str) -> String {
        path(&self.directory.path().join(name)).to_owned()
    }

    /// The directory of all files.
    pub fn all(&self) -> &Path {
        self.directory.path()
    }

    pub fn directory(&self, name: &str) -> PathBuf {
        let directory = self.directory.path().join(name);
        std::fs::create_dir_all(&directory).expect("created");
        directory
    }

    /// Packs a directory into an archive for an image.
    pub fn pack(&self, name: &str) -> String {
        let (directory, archive) = (self.at(name), self.at(&format!("{name}.tar")));
        output(Command::new("tar").args(["-C", &directory, "-cf", &archive, "."])).expect("packed");
        archive
    }

    pub fn run(&mut self, program: &str, arguments: &[&str]) {
        let log = std::fs::File::create(self.at(&format!("{program}.log"))).expect("created");
        let child = Command::new(program)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn();
        self.daemons.push(child.expect("it is installed"));
    }

    pub fn until(&self, what: &str, is_so: impl Fn(&Self) -> bool) {
        for _ in 0..600 {
            if is_so(self) {
                return;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        panic!("not so within 30 s: {what}\n{}", self.logs());
    }

    fn logs(&self) -> String {
        let files = std::fs::read_dir(self.all()).into_iter().flatten();
        let logs = files
            .filter_map(|file| Some(file.ok()?.path()))
            .filter(|path| path.extension().is_some_and(|end| end == "log"));
        let texts = logs.map(|path| std::fs::read_to_string(path).unwrap_or_default());
        texts.collect()
    }
}

impl Drop for Runtimes {
    fn drop(&mut self) {
        self.remove_inner();
        self.remove_pods();
        let _ = self.docker(&["rm", "--force", "web", "late", "outer", "profcol"]);
        let _ = self.ctr(&["tasks", "kill", "--signal", "9", "demo"]);
        let _ = self.ctr(&["tasks", "rm", "--force", "demo"]);
        let _ = self.podman(&["rm", "--force", "--time", "0", "db"]);
        let _ = self.lxc("lxc-stop", &["-k"]);
        for daemon in self.daemons.iter_mut().rev() {
            // They clean up when they are terminated.
            let _ = output(Command::new("kill").arg(daemon.id().to_string()));
            let _ = daemon.wait();
        }
        // Remaining mounts would prevent removing the directory.
        let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        let ours = mounts
            .lines()
            .rev()
            .filter_map(|line| line.split(' ').nth(1));
        for mount in ours.filter(|mount| Path::new(mount).starts_with(self.all())) {
            let _ = output(Command::new("umount").args(["--lazy", mount]));
        }
    }
}

fn is_installed(program: &str) -> bool {
    let directories = ["/usr/bin", "/usr/sbin", "/bin", "/sbin", "/usr/local/bin"];
    directories
        .iter()
        .any(|directory| Path::new(directory).join(program).exists())
}

pub fn output(command: &mut Command) -> Result<String, String> {
    let output = command.output().map_err(|error| error.to_string())?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    match output.status.success() {
        true => Ok(text(&output.stdout)),
        false => Err(text(&output.stderr)),
    }
}

/// The integer in a command's output.
pub fn number(output_text: Result<String, String>) -> u32 {
    output_text
        .expect("it starts")
        .trim()
        .parse()
        .expect("a number")
}
