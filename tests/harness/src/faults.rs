//! Faults of the disk and the clock in an unmodified program, by a preloaded library (`faults.c`).

use std::fs::File;
use std::ops::RangeInclusive;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tempfile::TempDir;

use crate::peers::Process;
use crate::support::{program, skip};

/// A program that makes more calls does not end.
const MAX_CALLS: usize = 200;

/// How a call fails.
#[derive(Clone, Copy, Debug)]
#[repr(i64)]
pub enum Error {
    /// `EIO`
    Io = 5,
    /// `ENOSPC`
    NoSpace = 28,
}

/// Calls that change files.
#[derive(Clone, Copy, Debug)]
#[repr(i64)]
pub enum Calls {
    /// Also truncation.
    Write = 1,
    Sync = 2,
    /// That create, rename and remove files and directories.
    Name = 4,
    All = 7,
}

/// The plan's fields, in the order of `faults.c`.
#[derive(Clone, Copy)]
enum Field {
    Kinds,
    First,
    Last,
    Error,
    Delay,
    Ahead,
    Calls,
}

/// The faults of one program after the other. Their count of calls goes on over a restart.
pub struct Faults {
    directory: TempDir,
    plan: File,
    /// Separated by colons.
    paths: String,
}

impl Faults {
    /// For changes of files whose paths contain one of `parts`. None without a C compiler.
    pub fn of(parts: &[&str]) -> Option<Self> {
        let directory = tempfile::tempdir().unwrap();
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/src/faults.c");
        let built = Command::new("cc")
            .args(["-shared", "-fPIC", "-O1", "-Wall", "-Werror", source, "-o"])
            .arg(directory.path().join("faults.so"))
            .output();
        match built {
            Ok(built) => assert!(built.status.success(), "{built:?}"),
            Err(_) => {
                skip("there is no C compiler for the library that injects faults");
                return None;
            }
        }
        let plan = File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .open(directory.path().join("plan"))
            .unwrap();
        // More than its fields.
        plan.set_len(4096).unwrap();
        let faults = Self {
            directory,
            plan,
            paths: parts.join(":"),
        };
        faults.set(Field::Kinds, Calls::All as i64);
        Some(faults)
    }

    fn library(&self) -> PathBuf {
        self.directory.path().join("faults.so")
    }

    /// Starts the profcol under test with these faults.
    pub fn profcol(&self, config: &str) -> Process {
        let mut command = Command::new(program());
        command
            .env("LD_PRELOAD", self.library())
            .env("FAULTS_PLAN", self.directory.path().join("plan"))
            .env("FAULTS_PATHS", &self.paths);
        Process::start_as(&mut command, &[], config)
    }

    /// Kills the program right before the n-th call from now on; of a write the first half is done.
    pub fn kill_at(&self, n: usize) {
        let n = self.calls() + n;
        self.set_range(Calls::All, n..=n, 0);
    }

    /// Kills the program at one call after the other, until `is_killed` returns false for a number of a call that it does not make.
    /// Returns the number of its calls.
    pub fn kill_at_each(&self, mut is_killed: impl FnMut(usize) -> bool) -> usize {
        for call in 1..MAX_CALLS {
            self.kill_at(call);
            if !is_killed(call) {
                return call - 1;
            }
        }
        panic!("not done after {MAX_CALLS} calls");
    }

    /// Lets all calls of this kind fail from now on.
    pub fn fail(&self, calls: Calls, error: Error) {
        self.set_range(calls, 1..=usize::MAX >> 1, error as i64);
    }

    fn set_range(&self, calls: Calls, range: RangeInclusive<usize>, error: i64) {
        self.heal();
        self.set(Field::Kinds, calls as i64);
        self.set(Field::Error, error);
        self.set(Field::First, *range.start() as i64);
        self.set(Field::Last, *range.end() as i64);
    }

    /// Delays each call.
    pub fn delay(&self, by: Duration) {
        self.set(Field::Delay, by.as_nanos() as i64);
    }

    /// No call fails or kills any more.
    pub fn heal(&self) {
        self.set(Field::Last, 0);
        self.set(Field::Kinds, Calls::All as i64);
    }

    /// How many calls were counted.
    pub fn calls(&self) -> usize {
        let mut bytes = [0; 8];
        let at = 8 * Field::Calls as u64;
        self.plan.read_exact_at(&mut bytes, at).unwrap();
        i64::from_ne_bytes(bytes) as usize
    }

    /// Moves the program's clock to so many seconds after the right time, or before it.
    pub fn set_clock_ahead(&self, seconds: i64) {
        self.set(Field::Ahead, seconds);
    }

    /// Moves the program's clock to 1970.
    pub fn set_clock_to_1970(&self) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        self.set_clock_ahead(-(now.as_secs() as i64));
    }

    fn set(&self, field: Field, value: i64) {
        let at = 8 * field as u64;
        self.plan.write_all_at(&value.to_ne_bytes(), at).unwrap();
    }
}
