//! A machine with another kernel: a memory disk with profcol, programs to profile and a script, run by qemu.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What differs between the machines.
pub struct Machine {
    /// The emulator, with what it emulates. No machine that has to run this is sure to have hardware for it.
    qemu: &'static [&'static str],
    /// The second serial line, as qemu and the kernel know it.
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

/// It signs return addresses, by a way that is cheap to emulate.
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

/// Seconds; some ten times what it takes.
const PATIENCE: &str = "900";

/// What a whole system has that nobody reads there.
const SURPLUS: [&str; 5] = [
    "./usr/share/doc",
    "./usr/share/locale",
    "./usr/share/man",
    "./var/cache",
    "./var/lib/apt",
];

pub struct Guest {
    machine: Machine,
    folder: tempfile::TempDir,
}

/// What a run left behind.
pub struct Run {
    pub console: String,
    pub profiles: PathBuf,
    /// Holds the profiles.
    _folder: tempfile::TempDir,
}

impl Guest {
    /// `script` is what it does, `config` what profcol is started with.
    pub fn new(machine: Machine, busybox: &Path, script: &str, config: &str) -> Self {
        let guest = Self::empty(machine);
        for name in ["bin", "dev", "etc", "proc", "sys", "tmp"] {
            fs::create_dir_all(guest.disk().join(name)).unwrap();
        }
        guest.write_program("init", script);
        guest.write("etc/profcol.yaml", config);
        guest.add(busybox, Path::new("/bin/busybox"));
        guest
    }

    /// A whole system out of an archive, that its systemd runs.
    pub fn with_system(machine: Machine, archive: &Path) -> Self {
        let guest = Self::empty(machine);
        fs::create_dir(guest.disk()).unwrap();
        let surplus = SURPLUS.map(|folder| format!("--exclude={folder}/*"));
        run(Command::new("tar")
            .arg("--extract")
            .args(surplus)
            .arg("--file")
            .arg(archive)
            .current_dir(guest.disk()));
        guest.link("init", "lib/systemd/systemd");
        guest
    }

    fn empty(machine: Machine) -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self { machine, folder }
    }

    fn disk(&self) -> PathBuf {
        self.folder.path().join("disk")
    }

    /// Puts a file in, at `place`.
    pub fn add(&self, file: &Path, place: &Path) {
        let place = place.strip_prefix("/").unwrap();
        fs::copy(file, self.place(place.to_str().unwrap())).unwrap();
    }

    /// Puts a program in, without what only debuggers read.
    pub fn add_program(&self, program: &Path, place: &str) {
        run(Command::new(self.machine.objcopy)
            .arg("--strip-debug")
            .arg(program)
            .arg(self.place(place)));
    }

    /// Puts in the libraries that a program of this machine asks for.
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
        fs::write(self.place(place), text).unwrap();
    }

    pub fn write_program(&self, place: &str, text: &str) {
        let mut file = fs::File::create(self.place(place)).unwrap();
        file.write_all(text.as_bytes()).unwrap();
        file.set_permissions(fs::Permissions::from_mode(0o755))
            .unwrap();
    }

    /// Puts in each file of a folder, as it may be used.
    pub fn add_folder(&self, folder: &Path, place: &str) {
        for file in fs::read_dir(folder).unwrap() {
            let file = file.unwrap().path();
            let name = file.file_name().unwrap().to_str().unwrap();
            fs::copy(&file, self.place(&format!("{place}/{name}"))).unwrap();
        }
    }

    pub fn link(&self, place: &str, to: &str) {
        std::os::unix::fs::symlink(to, self.place(place)).unwrap();
    }

    /// In a folder that is there.
    fn place(&self, place: &str) -> PathBuf {
        let place = self.disk().join(place);
        fs::create_dir_all(place.parent().unwrap()).unwrap();
        place
    }

    /// `environment` is that of all programs there.
    pub fn boot(self, kernel: &Path, environment: &str) -> Run {
        let packed = "find . | cpio --create --format=newc --quiet >../disk.cpio";
        run(Command::new("sh")
            .args(["-c", packed])
            .current_dir(self.disk()));
        let console = self.folder.path().join("console");
        let packed = self.folder.path().join("profiles.jsonl.gz");
        let (device, name) = self.machine.second;
        let mut qemu = Command::new("timeout");
        qemu.arg(PATIENCE)
            .args(self.machine.qemu)
            .args(["-accel", "tcg,thread=multi", "-smp", "2"])
            .args(["-m", "2G", "-no-reboot", "-nodefaults", "-display", "none"])
            .args(["-serial", &format!("file:{}", console.display())])
            .args([
                "-chardev",
                &format!("file,id=second,path={}", packed.display()),
            ])
            .args(["-device", &format!("{device},chardev=second")])
            .arg("-kernel")
            .arg(kernel)
            .arg("-initrd")
            .arg(self.folder.path().join("disk.cpio"))
            .arg("-append")
            // What the kernel does not know it hands on to the script.
            .arg(format!(
                "console={} quiet panic=-1 second={name} {environment}",
                self.machine.console
            ))
            .stdin(Stdio::null());
        let ended = qemu.status().unwrap();
        let console = String::from_utf8_lossy(&fs::read(&console).unwrap_or_default()).into_owned();
        assert!(ended.success(), "qemu: {ended}; the console:\n{console}");
        run(Command::new("gzip").arg("--decompress").arg(&packed));
        Run {
            console,
            profiles: packed.with_extension(""),
            _folder: self.folder,
        }
    }
}

impl Run {
    /// All that the script told under a name.
    pub fn told(&self, name: &str) -> String {
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

pub fn run(command: &mut Command) {
    let output = command
        .output()
        .unwrap_or_else(|error| panic!("{command:?} does not start: {error}"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {said}");
}
