//! A virtual machine with another kernel: an initramfs with profcol, programs to profile and a script, run by qemu.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Differences between the machines.
pub struct Machine {
    /// The emulator and its options. It does not rely on hardware virtualization.
    qemu: &'static [&'static str],
    /// The second serial port's name in qemu and in the kernel.
    second: (&'static str, &'static str),
    console: &'static str,
    objcopy: &'static str,
}

pub const X86_64: Machine = Machine {
    qemu: &["qemu-system-x86_64", "-cpu", "max"],
    second: ("isa-serial", "/dev/ttyS1"),
    console: "ttyS0",
    objcopy: "objcopy",
};

/// It signs return addresses, with an algorithm that is cheap to emulate.
pub const AARCH64: Machine = Machine {
    qemu: &[
        "qemu-system-aarch64",
        "-machine",
        "virt",
        "-cpu",
        "max,pauth-impdef=on",
    ],
    second: ("pci-serial", "/dev/ttyS0"),
    console: "ttyAMA0",
    objcopy: "aarch64-linux-gnu-objcopy",
};

/// Seconds; about ten times the usual duration.
const TIMEOUT: &str = "600";
/// How often a kernel is booted until it starts the script.
const BOOTS: usize = 3;

pub struct Guest {
    machine: Machine,
    directory: tempfile::TempDir,
}

/// The results of a run.
pub struct Run {
    console: String,
    pub profiles: PathBuf,
    /// Holds the profiles.
    _directory: tempfile::TempDir,
}

impl Guest {
    /// `script` is the script to run, `config` is profcol's configuration.
    pub fn new(machine: Machine, busybox: &Path, script: &str, config: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let disk = directory.path().join("disk");
        for name in ["bin", "dev", "etc", "proc", "sys", "tmp"] {
            fs::create_dir_all(disk.join(name)).unwrap();
        }
        write_program(&disk.join("init"), script);
        fs::write(disk.join("etc/profcol.yaml"), config).unwrap();
        fs::copy(busybox, disk.join("bin/busybox")).unwrap();
        Self { machine, directory }
    }

    fn disk(&self) -> PathBuf {
        self.directory.path().join("disk")
    }

    /// Adds a file at `place`.
    pub fn add(&self, file: &Path, place: &Path) {
        let copy = self.disk().join(place.strip_prefix("/").unwrap());
        fs::create_dir_all(copy.parent().unwrap()).unwrap();
        fs::copy(file, copy).unwrap();
    }

    /// Adds the files of a directory, with their paths below it.
    pub fn add_all(&self, directory: &Path) {
        let mut copy = Command::new("cp");
        run(copy.arg("-a").arg(directory.join(".")).arg(self.disk()));
    }

    /// Adds a program without its debuginfo.
    pub fn add_program(&self, program: &Path, name: &str) {
        run(Command::new(self.machine.objcopy)
            .arg("--strip-debug")
            .arg(program)
            .arg(self.disk().join("bin").join(name)));
    }

    /// Adds the libraries that a program of this machine needs.
    pub fn add_libraries(&self, program: &Path) {
        let needed = Command::new("ldd").arg(program).output().unwrap();
        let needed = String::from_utf8_lossy(&needed.stdout).into_owned();
        for library in needed
            .split_whitespace()
            .filter(|word| word.starts_with('/'))
        {
            self.add(Path::new(library), Path::new(library));
        }
    }

    pub fn write(&self, place: &str, text: &str) {
        fs::write(self.disk().join(place), text).unwrap();
    }

    /// `environment` applies to all programs of the guest.
    pub fn boot(self, kernel: &Path, environment: &str) -> Run {
        let packed = "find . | cpio --create --format=newc --quiet >../disk.cpio";
        run(Command::new("sh")
            .args(["-c", packed])
            .current_dir(self.disk()));
        let console_path = self.directory.path().join("console");
        let packed = self.directory.path().join("profiles.jsonl.gz");
        let (device, name) = self.machine.second;
        let mut qemu = Command::new("timeout");
        qemu.arg(TIMEOUT)
            .args(self.machine.qemu)
            .args(["-accel", "tcg,thread=multi", "-smp", "2"])
            .args(["-m", "2G", "-no-reboot", "-nodefaults", "-display", "none"])
            .args(["-serial", &format!("file:{}", console_path.display())])
            .args([
                "-chardev",
                &format!("file,id=second,path={}", packed.display()),
            ])
            .args(["-device", &format!("{device},chardev=second")])
            .arg("-kernel")
            .arg(kernel)
            .arg("-initrd")
            .arg(self.directory.path().join("disk.cpio"))
            .arg("-append")
            // The kernel passes unknown parameters to the script.
            .arg(format!(
                "console={} quiet panic=-1 second={name} {environment}",
                self.machine.console
            ))
            .stdin(Stdio::null());
        let mut boot = || {
            let ended = qemu.status().unwrap();
            let console = fs::read(&console_path).unwrap_or_default();
            let console = String::from_utf8_lossy(&console).into_owned();
            assert!(ended.success(), "qemu: {ended}; the console:\n{console}");
            console
        };
        // A kernel that changes its own code while it boots may panic on an emulated machine with several CPUs.
        let mut console = boot();
        for _ in 1..BOOTS {
            if console.contains("@kernel ") {
                break;
            }
            console = boot();
        }
        let unpacked = Command::new("gzip")
            .arg("--decompress")
            .arg(&packed)
            .output();
        assert!(
            unpacked.as_ref().is_ok_and(|it| it.status.success()),
            "the guest did not get to its end ({unpacked:?}); the console:\n{console}"
        );
        Run {
            console,
            profiles: packed.with_extension(""),
            _directory: self.directory,
        }
    }
}

impl Run {
    /// Everything that the script reported under a name.
    pub fn reported(&self, name: &str) -> String {
        let begin = format!("@{name} ");
        let lines: Vec<&str> = self
            .console
            .lines()
            .filter_map(|line| line.strip_prefix(&begin))
            .collect();
        assert!(
            !lines.is_empty(),
            "no `{begin}` on the console:\n{}",
            self.console
        );
        lines.join("\n")
    }
}

fn write_program(path: &Path, text: &str) {
    let mut file = fs::File::create(path).unwrap();
    file.write_all(text.as_bytes()).unwrap();
    file.set_permissions(fs::Permissions::from_mode(0o755))
        .unwrap();
}

pub fn run(command: &mut Command) {
    let output = command
        .output()
        .unwrap_or_else(|error| panic!("{command:?} does not start: {error}"));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {stderr}");
}
