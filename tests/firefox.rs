//! The Firefox Profiler's own command line reads the profiles written for it.
//!
//! Needs Node and its package @firefox-devtools/profiler-cli (`NODE_PATH`).

#![allow(clippy::unwrap_used, reason = "a panic fails the test")]

use std::path::{Path, PathBuf};
use std::process::Command;

use profcol_test_harness::support::{ended, path, profcol};
use profcol_test_skip::skip;

const THREADS: &str = "formats/files/testdata/threads.otlp.json";

/// Serves one profile until it is dropped.
struct Profiler {
    program: PathBuf,
    sessions: tempfile::TempDir,
}

impl Profiler {
    fn load(program: PathBuf, profile: &Path) -> Self {
        let profiler = Self {
            program,
            sessions: tempfile::tempdir().unwrap(),
        };
        // It waits half a second for its own server, which needs longer on a busy machine.
        for _ in 0..10 {
            match profiler.try_ask(&["load", path(profile)]) {
                Ok(_) => return profiler,
                Err(error) => assert!(error.contains("did not become ready"), "{error}"),
            }
        }
        panic!("its server does not start");
    }

    fn ask(&self, question: &[&str]) -> String {
        self.try_ask(question)
            .unwrap_or_else(|error| panic!("{question:?}: {error}"))
    }

    fn try_ask(&self, question: &[&str]) -> Result<String, String> {
        let answer = Command::new("node")
            .arg(&self.program)
            .args(question)
            .env("PROFILER_CLI_SESSION_DIR", self.sessions.path())
            .env("PROFILER_CLI_NO_SYMBOLICATE", "1")
            .output()
            .unwrap();
        match answer.status.success() {
            true => Ok(String::from_utf8(answer.stdout).unwrap()),
            false => Err(String::from_utf8_lossy(&answer.stderr).into_owned()),
        }
    }
}

impl Drop for Profiler {
    fn drop(&mut self) {
        self.ask(&["stop", "--all"]);
    }
}

#[test]
fn the_firefox_profiler_shows_threads_functions_and_kinds_of_code() {
    let Some(program) = profiler() else {
        return skip("there is no @firefox-devtools/profiler-cli in NODE_PATH for Node");
    };
    let directory = tempfile::tempdir().unwrap();
    for name in ["a.firefox.json", "a.firefox.json.gz"] {
        let profile = directory.path().join(name);
        let converted = ended(&mut profcol(&["convert", THREADS, path(&profile)]));
        assert_eq!(converted.code, Some(0));
        let profiler = Profiler::load(program.clone(), &profile);
        let threads = profiler.ask(&["thread", "list"]);
        for row in [
            ["app", "app", "100", "20.000ms"],
            ["reader", "app", "100", "20.000ms"],
            ["python3", "python3", "200", "40.000ms"],
        ] {
            let is_row = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
            let expected = row.join(" ");
            let mut lines = threads.lines().map(is_row);
            assert!(lines.any(|line| line.contains(&expected)), "{threads}");
        }
        let functions = profiler.ask(&["thread", "samples", "--thread", "t-2"]);
        for text in ["Runtime", "JIT", "handle - self: 30ms", "hot - self: 10ms"] {
            assert!(functions.contains(text), "no {text:?} in {functions}");
        }
        let functions = profiler.ask(&["thread", "samples", "--thread", "t-1"]);
        for text in [
            "Kernel",
            "vmlinux!sys_read - self: 10ms",
            "app!main - total: 20ms",
        ] {
            assert!(functions.contains(text), "no {text:?} in {functions}");
        }
    }
}

fn profiler() -> Option<PathBuf> {
    let has_node = Command::new("node").arg("--version").output();
    has_node.ok().filter(|it| it.status.success())?;
    let directories = std::env::var("NODE_PATH").unwrap_or_default();
    let program = |directory| {
        Path::new(directory).join("@firefox-devtools/profiler-cli/dist/profiler-cli.js")
    };
    let mut programs = directories.split(':').map(program);
    programs.find(|it| it.is_file())
}
