//! A machine with another kernel: a memory disk with profcol, a program to profile and a script, run by qemu.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const SCRIPT: &str = include_str!("init");
const CONFIG: &str = "\
receivers:
  ebpf_cpu: {frequency: 199, interval: 1s}
exporters:
  file: {path: /tmp/profiles.jsonl}
service:
  telemetry: {metrics: {level: none}, logs: {level: debug}}
  pipelines:
    profiles: {receivers: [ebpf_cpu], exporters: [file]}
";

/// Seconds; some ten times what it takes.
const PATIENCE: &str = "300";

pub struct Guest {
    folder: tempfile::TempDir,
}

/// What a run left behind.
pub struct Run {
    console: String,
    pub profiles: PathBuf,
    /// Holds the profiles.
    _folder: tempfile::TempDir,
}

impl Guest {
    /// `programs` and what they are called there.
    pub fn new(programs: &[(&Path, &str)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let disk = folder.path().join("disk");
        for name in ["bin", "dev", "etc", "proc", "sys", "tmp"] {
            fs::create_dir_all(disk.join(name)).unwrap();
        }
        write_program(&disk.join("init"), SCRIPT);
        fs::write(disk.join("etc/profcol.yaml"), CONFIG).unwrap();
        fs::copy("/bin/busybox", disk.join("bin/busybox")).unwrap();
        for &(program, name) in programs {
            copy_program(program, &disk, name);
        }
        let packed = "find . | cpio --create --format=newc --quiet >../disk.cpio";
        run(Command::new("sh").args(["-c", packed]).current_dir(&disk));
        Self { folder }
    }

    /// `environment` is that of all programs there.
    pub fn boot(self, kernel: &Path, environment: &str) -> Run {
        let console = self.folder.path().join("console");
        let profiles = self.folder.path().join("profiles.jsonl");
        let serial = |path: &Path| format!("file:{}", path.display());
        let mut qemu = Command::new("timeout");
        qemu.args([PATIENCE, "qemu-system-x86_64"])
            // No machine that has to run this is sure to have hardware for it.
            .args(["-accel", "tcg,thread=multi", "-cpu", "max", "-smp", "2"])
            .args(["-m", "1G", "-no-reboot", "-nodefaults", "-display", "none"])
            .args(["-serial", &serial(&console), "-serial", &serial(&profiles)])
            .arg("-kernel")
            .arg(kernel)
            .arg("-initrd")
            .arg(self.folder.path().join("disk.cpio"))
            // The kernel gives its first program what it does not know itself.
            .arg("-append")
            .arg(format!("console=ttyS0 quiet panic=-1 {environment}"))
            .stdin(Stdio::null());
        let ended = qemu.status().unwrap();
        let console = String::from_utf8_lossy(&fs::read(&console).unwrap_or_default()).into_owned();
        assert!(ended.success(), "qemu: {ended}; the console:\n{console}");
        Run {
            console,
            profiles,
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

/// Copies a program, without what only debuggers read, and the libraries that it asks for.
fn copy_program(program: &Path, disk: &Path, name: &str) {
    let copy = disk.join("bin").join(name);
    run(Command::new("objcopy")
        .arg("--strip-debug")
        .arg(program)
        .arg(&copy));
    let needed = Command::new("ldd").arg(program).output().unwrap();
    let needed = String::from_utf8_lossy(&needed.stdout).into_owned();
    for library in needed
        .split_whitespace()
        .filter(|word| word.starts_with('/'))
    {
        let place = disk.join(library.trim_start_matches('/'));
        fs::create_dir_all(place.parent().unwrap()).unwrap();
        fs::copy(library, place).unwrap();
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
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {said}");
}
