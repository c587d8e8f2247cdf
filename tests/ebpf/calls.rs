//! Kinds of programs that are compared with their known call chains.

#![expect(clippy::print_stdout, reason = "the figures are of interest")]

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

pub use profcol_test_harness::calls::{
    Calls, chain_of, count, name, names_of, samples_in, samples_with_table, since_known,
};
use profcol_test_harness::profile::{Frame, Profile, Sample};

use crate::host::{Profiler, Running};

const TIMEOUT: Duration = Duration::from_secs(60);

/// A sequence of processes that live for about 50 ms each.
pub struct ShortLived<'a> {
    pub kind: &'a str,
    /// Shell command that starts a process, with the program as `$0` and the script as `$1`.
    pub command: &'a str,
    pub program: &'a Path,
    pub script: &'a str,
    /// The one that burns CPU time.
    pub function: &'a str,
    /// The name of functions without a name.
    pub no_name: &'a str,
    /// Excludes the longer-lived processes of other tests, which have more samples.
    pub max_samples: usize,
}

impl ShortLived<'_> {
    /// At least 95 % of the samples have names. Where other tests take all CPUs, a process may exit before it is read: the
    /// best of some rounds counts.
    pub fn check(&self) {
        const ROUNDS: usize = 3;
        let mut rounds = Vec::new();
        for _ in 0..ROUNDS {
            let (nameless, all) = self.round();
            rounds.push((nameless, all));
            if nameless * 20 <= all {
                return;
            }
        }
        panic!("functions without a name, of all: {rounds:?}");
    }

    /// The samples of functions without a name, and of all functions.
    fn round(&self) -> (usize, usize) {
        let profiler = Profiler::start(199);
        let command = format!("while :; do {}; done", self.command);
        let program = self.program.to_str().unwrap();
        let running = Running::start(Path::new("sh"), &["-c", &command, program, self.script]);
        let is_burning = |sample: &Sample| names_of(self.kind, sample).contains(&self.function);
        let profile = profiler.until(TIMEOUT, |profile| count(profile, is_burning) > 300);
        drop(running);
        let mut of_pid: BTreeMap<u32, usize> = BTreeMap::new();
        for sample in &profile.samples {
            *of_pid.entry(sample.pid).or_default() += sample.count;
        }
        let is_short = |sample: &Sample| {
            let samples = of_pid.get(&sample.pid);
            samples.is_some_and(|&count| count < self.max_samples)
        };
        let nameless = count(&profile, |sample| {
            is_short(sample) && names_of(self.kind, sample).contains(&self.no_name)
        });
        let all = count(&profile, |sample| {
            is_short(sample) && !names_of(self.kind, sample).is_empty()
        });
        assert!(all > 300, "{all}");
        (nameless, all)
    }
}

/// A program that compiles functions which are freed soon, so that others follow at their addresses.
pub struct Churn<'a> {
    pub kind: &'a str,
    pub program: &'a Path,
    pub arguments: &'a [&'a str],
    /// The name of functions that were gone before they were read.
    pub no_name: &'a str,
}

impl Churn<'_> {
    /// No sample mixes functions up: `is_right` has no answer for frames that have no counterpart.
    pub fn check(&self, is_right: impl Fn(&[&Frame]) -> Option<bool>) {
        let profiler = Profiler::start(199);
        let running = Running::start(self.program, self.arguments);
        let pid = running.pid();
        let profile = profiler.until(TIMEOUT, |profile| {
            samples_in(self.kind, profile, pid) >= 1000
        });
        drop(running);
        let (mut right, mut wrong, mut nameless) = (0, Vec::new(), 0);
        for sample in profile.samples.iter().filter(|sample| sample.pid == pid) {
            let frames = sample.frames.iter().filter(|it| it.kind == self.kind);
            let frames: Vec<&Frame> = frames.collect();
            match is_right(&frames) {
                Some(true) => right += sample.count,
                Some(false) => {
                    wrong.push(frames.iter().map(describe).collect::<Vec<_>>().join("; "))
                }
                None => {}
            }
            nameless += frames.iter().filter(|it| name(it) == self.no_name).count() * sample.count;
        }
        println!("{right} samples are right, {nameless} functions were gone");
        assert!(right + nameless > 100 && wrong.is_empty(), "{wrong:#?}");
    }
}

fn describe(frame: &&Frame) -> String {
    format!("{} {:?}", name(frame), frame.source)
}

/// The number after a prefix, in a name or a file.
pub fn number_after(text: &str, prefix: &str) -> Option<i64> {
    text.rsplit_once(prefix)?.1.parse().ok()
}

/// Runs a command in a root and a PID namespace of its own. At least 95 % of the exact samples have names. Other tests
/// also have processes of this language.
pub fn check_isolated(
    kind: &str,
    command: &str,
    no_name: &str,
    is_exact: impl Fn(&Sample) -> bool + Copy,
) {
    let profile = profile_isolated(command, |profile| count(profile, is_exact) > 200);
    let all = count(&profile, is_exact);
    let nameless = count(&profile, |sample| {
        is_exact(sample) && names_of(kind, sample).contains(&no_name)
    });
    assert!(all > 200 && nameless * 20 <= all, "{nameless} of {all}");
}

/// Profiles while a command runs in a root and a PID namespace of its own.
pub fn profile_isolated(command: &str, is_enough: impl FnMut(&Profile) -> bool) -> Profile {
    let profiler = Profiler::start(199);
    let script =
        format!("root=$(mktemp -d) && mount --rbind / $root && exec chroot $root {command}");
    let arguments = [
        "--mount",
        "--pid",
        "--fork",
        "--kill-child",
        "--mount-proc",
        "sh",
        "-c",
        &script,
    ];
    let running = Running::start(Path::new("unshare"), &arguments);
    let profile = profiler.until(TIMEOUT, is_enough);
    drop(running);
    profile
}
