//! Runs the built binary as a user would.

#![allow(dead_code, reason = "each test binary uses its own part")]

use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

/// What a command printed and how it ended.
#[derive(Debug)]
pub struct Ended {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

/// `profcol`, with nothing in the environment that could change what it says.
pub fn profcol(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_profcol"));
    command.env_clear().args(arguments);
    command
}

pub fn ended(command: &mut Command) -> Ended {
    let output = command
        .output()
        .expect("the binary was built for this test");
    let text = |bytes| String::from_utf8(bytes).expect("profcol prints UTF-8");
    Ended {
        code: output.status.code(),
        stdout: text(output.stdout),
        stderr: text(output.stderr),
    }
}

pub fn run(arguments: &[&str]) -> Ended {
    ended(&mut profcol(arguments))
}

/// A configuration file in a folder of its own, which goes away with the value.
pub struct File {
    pub folder: tempfile::TempDir,
    pub path: PathBuf,
}

pub fn file(name: &str, text: impl AsRef<[u8]>) -> File {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join(name);
    std::fs::write(&path, text).expect("a temporary file");
    File { folder, path }
}

pub fn path(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

/// A user who is not root and owns nothing.
pub const NOBODY: u32 = 65534;

pub fn is_root() -> bool {
    let status = std::fs::read_to_string("/proc/self/status");
    status.is_ok_and(|status| status.lines().any(|line| line.starts_with("Uid:\t0\t0")))
}

/// Holds each thread of a process to have these capabilities and none to win.
#[track_caller]
pub fn check_privileges(pid: u32, expected: u64) {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).expect("it runs");
    let threads: Vec<String> = tasks
        .filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("status")).ok())
        .collect();
    assert!(threads.len() > 1, "it has threads of its own");
    for status in threads {
        let field = |key: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(key));
            let text = line.and_then(|line| line.strip_prefix(':'));
            u64::from_str_radix(text.unwrap_or("?").trim(), 16).unwrap_or(u64::MAX)
        };
        let found = [
            "CapPrm",
            "CapEff",
            "CapBnd",
            "CapInh",
            "CapAmb",
            "NoNewPrivs",
        ]
        .map(field);
        let wanted = [expected, expected, expected, 0, 0, 1];
        assert_eq!(found, wanted, "{status}");
    }
}

pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Tells what is left out and why, once; in CI that is a failure.
pub fn skip(why: &str) -> bool {
    static TOLD: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    assert!(
        std::env::var_os("CI").is_none_or(|ci| ci != "true"),
        "{why}, and CI=true allows no skip"
    );
    let mut told = TOLD.lock().unwrap_or_else(PoisonError::into_inner);
    if told.insert(why.to_owned()) {
        // Not by the macros, whose output is shown of failed tests alone.
        let _ = writeln!(std::io::stderr(), "skipped: {why}");
    }
    false
}

/// Of a program whose `--version` begins with a line such as `GNU gdb (Debian 13.1-3) 13.1` or `perf version 6.1.192`.
pub fn version_of(program: &str) -> Option<(u32, u32)> {
    let run = Command::new(program).arg("--version").output().ok()?;
    let output = String::from_utf8_lossy(&run.stdout);
    let last = output.lines().next()?.split_whitespace().next_back()?;
    let mut numbers = last.split(['.', '-']).map(|number| number.parse().ok());
    Some((numbers.next()??, numbers.next()??))
}

/// The file or folder `part` of the recordings of real programs.
pub fn golden(part: &str) -> PathBuf {
    root().join("tests/golden").join(part)
}

/// A file system that is full soon; taken away with the value.
pub struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    pub fn mount(options: &str) -> Option<Self> {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let mount = Command::new("mount")
            .args(["-t", "tmpfs", "-o", options, "tmpfs"])
            .arg(folder.path())
            .output();
        if mount.is_ok_and(|mount| mount.status.success()) {
            return Some(Self(folder));
        }
        skip("only root can mount a disk that is small enough to be filled");
        None
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // What is left if this fails is a temporary folder.
        let _ = Command::new("umount").arg(self.0.path()).status();
    }
}
