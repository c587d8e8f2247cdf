//! The program under test and the programs that it profiles.

use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use crate::peers::profcol;
use crate::profile::Profile;
use crate::support::root;

/// Whether this machine can load BPF programs. A test that needs it ends where it says no.
#[expect(clippy::print_stdout, reason = "a skip is told")]
pub fn can_profile() -> bool {
    let is_root = std::fs::read_to_string("/proc/self/status")
        .is_ok_and(|status| status.lines().any(|line| line.starts_with("Uid:\t0\t0")));
    let has_types = Path::new("/sys/kernel/btf/vmlinux").exists();
    let why = match (is_root, has_types) {
        (true, true) => return true,
        (false, _) => "this is not root",
        _ => "the kernel has no type information (BTF)",
    };
    assert!(
        std::env::var_os("CI").is_none_or(|ci| ci != "true"),
        "{why}, and CI=true allows no skip"
    );
    println!("skipped: {why}");
    false
}

/// Builds a program of `tests/ebpf/programs` and returns where it is.
pub fn compile(folder: &Path, name: &str, compiler: &str, source: &str, flags: &[&str]) -> PathBuf {
    let path = folder.join(name);
    let built = Command::new(compiler)
        .arg(root().join("tests/ebpf/programs").join(source))
        .arg("-o")
        .arg(&path)
        .args(flags)
        .output()
        .unwrap_or_else(|error| panic!("{compiler} does not run: {error}"));
    assert!(
        built.status.success(),
        "{}",
        String::from_utf8_lossy(&built.stderr)
    );
    path
}

/// A running program, ended with the value.
pub struct Running(Child);

impl Running {
    pub fn start(program: &Path, arguments: &[&str]) -> Self {
        Self(Command::new(program).args(arguments).spawn().unwrap())
    }

    pub fn pid(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Profiles the host while `act` runs and returns what was exported.
pub fn profile_while(frequency: u32, act: impl FnOnce()) -> Profile {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("profiles.jsonl");
    let config = format!(
        "\
receivers:
  ebpf_cpu: {{frequency: {frequency}, interval: 1s}}
exporters:
  file: {{path: {}}}
service:
  telemetry: {{metrics: {{level: none}}}}
  pipelines:
    profiles: {{receivers: [ebpf_cpu], exporters: [file]}}
",
        path.display()
    );
    let mut process = profcol(&config);
    process.wait_for_output("to be ready", |said| said.contains("Everything is ready"));
    act();
    process.stop();
    Profile::read(&path)
}
