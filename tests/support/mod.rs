//! Runs the built binary as a user would.

#![allow(dead_code, reason = "each test binary uses its own part")]

use std::path::{Path, PathBuf};
use std::process::Command;

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

pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Tells what is left out and why; in CI that is a failure.
#[expect(clippy::print_stdout, reason = "a skip is told")]
pub fn skip(why: &str) -> bool {
    assert!(
        std::env::var_os("CI").is_none_or(|ci| ci != "true"),
        "{why}, and CI=true allows no skip"
    );
    println!("skipped: {why}");
    false
}

/// The file or folder `part` of the recordings that are handed on beside the repository. Without them a
/// test says so and skips itself, which in CI is a failure.
#[expect(clippy::print_stdout, reason = "a skip is told")]
pub fn golden(part: &str) -> Option<PathBuf> {
    let path = root().join("../shared/golden").join(part);
    if path.exists() {
        return Some(path);
    }
    assert!(
        std::env::var_os("CI").is_none_or(|ci| ci != "true"),
        "{} is not there, and CI=true allows no skip",
        path.display()
    );
    println!("skipped: {} is not there", path.display());
    None
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
