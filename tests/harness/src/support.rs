//! Runs the built binary like a user.

use std::path::{Path, PathBuf};
use std::process::Command;

use profcol_config::{Sources, yaml as reader};
pub use profcol_test_skip::SmallDisk;
use serde_json::Value;

/// The `profcol` under test: that of `PROFCOL_TEST_PROGRAM`, by default the one that cargo built for the integration tests.
pub fn program() -> PathBuf {
    std::env::var_os("PROFCOL_TEST_PROGRAM").map_or_else(built, PathBuf::from)
}

fn built() -> PathBuf {
    let program = std::env::var_os("CARGO_BIN_EXE_profcol");
    program.expect("`cargo test` runs this").into()
}

/// Cargo's target directory, wherever it is; also for a bench, which `cargo run` built.
pub fn target() -> PathBuf {
    let program = match std::env::var_os("CARGO_BIN_EXE_profcol") {
        Some(program) => program.into(),
        None => std::env::current_exe().expect("/proc is mounted"),
    };
    let directory = program.ancestors().nth(2);
    directory
        .expect("programs are in a directory of it")
        .to_owned()
}

/// Copies a directory with what is in it.
pub fn copy_directory(from: &Path, to: &Path) {
    let copied = Command::new("cp").arg("-r").args([from, to]).status();
    assert!(copied.unwrap().success());
}

/// The output and the exit status of a command.
#[derive(Debug)]
pub struct Ended {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

/// `profcol`, with an environment that does not affect its output.
pub fn profcol(arguments: &[&str]) -> Command {
    let mut command = Command::new(program());
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

/// What profcol's own reader of configurations reads.
pub fn yaml(text: &str) -> Value {
    let mut sources = Sources::default();
    let id = sources.add("test.yaml", text, None);
    let id = id.expect("it is short");
    let parsed = reader::parse(&sources, id);
    parsed
        .unwrap_or_else(|problem| panic!("{problem:?}: {text}"))
        .to_json()
}

/// A configuration file in a temporary directory, deleted on drop.
pub struct File {
    pub directory: tempfile::TempDir,
    pub path: PathBuf,
}

pub fn file(name: &str, text: impl AsRef<[u8]>) -> File {
    let directory = tempfile::tempdir().expect("can create a temporary directory");
    let path = directory.path().join(name);
    std::fs::write(&path, text).expect("can create a temporary file");
    File { directory, path }
}

pub fn path(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

/// A non-root user without any files.
pub const NOBODY: u32 = 65534;

pub fn is_root() -> bool {
    let status = std::fs::read_to_string("/proc/self/status");
    status.is_ok_and(|status| status.lines().any(|line| line.starts_with("Uid:\t0\t0")))
}

/// Checks that each thread of a process has exactly these capabilities, cannot gain others, and has a seccomp filter.
#[track_caller]
pub fn check_privileges(pid: u32, expected: u64) {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).expect("it starts");
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
            "Seccomp",
        ]
        .map(field);
        let wanted = [expected, expected, expected, 0, 0, 1, 2];
        assert_eq!(found, wanted, "{status}");
    }
}

/// The project's directory.
pub fn root() -> &'static Path {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2);
    directory.expect("this crate is two directories below")
}

/// Reports a skipped test, once; fails in CI.
pub fn skip(why: &str) -> bool {
    profcol_test_skip::skip(why);
    false
}

/// Parses the first line of `--version`, such as `GNU gdb (Debian 13.1-3) 13.1` or `perf version 6.1.192`.
pub fn version_of(program: &str) -> Option<(u32, u32)> {
    let run = Command::new(program).arg("--version").output().ok()?;
    let output = String::from_utf8_lossy(&run.stdout);
    let last = output.lines().next()?.split_whitespace().next_back()?;
    let mut numbers = last.split(['.', '-']).map(|number| number.parse().ok());
    Some((numbers.next()??, numbers.next()??))
}

/// The file or directory `part` in the recordings of real programs.
pub fn golden(part: &str) -> PathBuf {
    root().join("tests/golden").join(part)
}
