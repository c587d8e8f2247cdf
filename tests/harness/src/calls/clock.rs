//! What a program with known call chains says about itself: when it was in which chain, and its CPU time.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

/// The programs write their account to the file in this variable.
const VARIABLE: &str = "PROFCOL_TEST_CLOCK";

/// One run through a chain: `way start end cpu leaf`, in nanoseconds.
#[derive(Clone, Debug)]
pub struct Run {
    /// The chain, by its function `by_...`.
    pub way: String,
    /// Since 1970.
    pub start: u64,
    pub end: u64,
    /// CPU time from the start to the end.
    pub cpu: u64,
    /// The part of it in the innermost function; None (`?`) where that is entered and left too often to measure it.
    pub leaf: Option<u64>,
}

/// The account of a running program.
pub struct Clock {
    folder: tempfile::TempDir,
}

impl Clock {
    #[expect(clippy::new_without_default, reason = "it makes a folder")]
    pub fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self { folder }
    }

    /// Where the program writes.
    pub fn path(&self) -> PathBuf {
        self.folder.path().join("clock")
    }

    /// Tells the program where to write.
    pub fn give_to<'c>(&self, command: &'c mut Command) -> &'c mut Command {
        command.env(VARIABLE, self.path())
    }

    /// Whether the program has run through a chain.
    pub fn has_begun(&self) -> bool {
        !self.runs().is_empty()
    }

    /// Everything so far, by time.
    pub fn runs(&self) -> Vec<Run> {
        let text = fs::read_to_string(self.path()).unwrap_or_default();
        // The last line may be incomplete.
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        let mut runs: Vec<Run> = whole.lines().map(parse).collect();
        runs.sort_by_key(|run| run.start);
        runs
    }
}

fn parse(line: &str) -> Run {
    let fields: Vec<&str> = line.split(' ').collect();
    let [way, start, end, cpu, leaf] = fields[..] else {
        panic!("not an account of a chain: {line}");
    };
    let number = |field: &str| field.parse().unwrap_or_else(|_| panic!("{field}: {line}"));
    Run {
        way: way.to_owned(),
        start: number(start),
        end: number(end),
        cpu: number(cpu),
        leaf: (leaf != "?").then(|| number(leaf)),
    }
}
