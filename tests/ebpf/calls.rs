//! Kinds of programs that are compared with their known call chains.

#![expect(clippy::print_stdout, reason = "the figures are of interest")]

use std::path::Path;
use std::time::Duration;

pub use profcol_test_harness::calls::clock::Clock;
pub use profcol_test_harness::calls::{
    Calls, chain_of, count, is_main_thread, name, names_of, samples_in, samples_with_table,
};
use profcol_test_harness::profile::{Frame, Profile, Sample};

use crate::host::{Profiler, Running};

/// Far longer than an idle machine needs.
const TIMEOUT: Duration = Duration::from_secs(180);

/// A sequence of processes that live for about 50 ms each, and account for the time in their function.
pub struct ShortLived<'a> {
    pub kind: &'a str,
    /// Shell command that starts a process, with the program as `$0` and the script as `$1`.
    pub command: &'a str,
    pub program: &'a Path,
    pub script: &'a str,
    /// How the names of those begin that burn CPU time.
    pub function: &'a str,
    /// The name of functions without a name.
    pub no_name: &'a str,
    /// Stacks of each process end in generated code at first, until profcol has found its runtime. They only count afterwards.
    pub is_found_late: bool,
}

impl ShortLived<'_> {
    /// At least 95 % of the samples in the function have names, of those that its CPU time must have. Where other tests take all
    /// CPUs, a process may exit before it is read: the best of some rounds counts.
    pub fn check(&self) {
        const ROUNDS: usize = 3;
        let mut rounds = Vec::new();
        for _ in 0..ROUNDS {
            let round = self.round();
            println!("{}: {round:?}", self.function);
            if round.is_right() {
                return;
            }
            rounds.push(round);
        }
        panic!("{rounds:#?}");
    }

    fn round(&self) -> Round {
        let profiler = Profiler::start(ShortLived::FREQUENCY);
        let clock = Clock::new();
        let script = format!("while :; do {}; done", self.command);
        let arguments = ["-c", &script, self.program.to_str().unwrap(), self.script];
        let running = Running::start_with(&clock, Path::new("sh"), &arguments);
        let is_named = |sample: &Sample| {
            let names = names_of(self.kind, sample);
            let mut all = names.iter();
            all.any(|name| name.starts_with(self.function)) && !names.contains(&self.no_name)
        };
        let profile = profiler.until(TIMEOUT, |profile| count(profile, is_named) > 300);
        drop(running);
        let samples = profile.samples.iter();
        let times = samples.filter(|it| is_named(it)).flat_map(|it| &it.times);
        let (first, last) = (times.clone().min(), times.max());
        let mut round = Round::default();
        // The tables of new files come first, which takes seconds on a busy machine.
        for run in clock.runs() {
            if Some(&run.start) < first || Some(&run.end) > last {
                continue;
            }
            round.processes += 1;
            round.cpu += Duration::from_nanos(run.cpu);
            let samples = profile.samples.iter();
            let samples = samples.filter(|it| it.pid.to_string() == run.way);
            let inside = samples.flat_map(|sample| {
                let times = sample.times.iter().copied();
                let inside = times.filter(|time| (run.start..run.end).contains(time));
                let inside: Vec<u64> = inside.collect();
                if names_of(self.kind, sample).contains(&self.no_name) {
                    round.nameless += inside.len();
                }
                let is_named = is_named(sample);
                round.samples += inside.len();
                // Not those that compile and collect.
                let inside = inside.into_iter();
                inside
                    .filter(|_| self.is_found_late || sample.thread == sample.pid)
                    .map(move |time| (time, is_named))
            });
            let mut inside: Vec<(u64, bool)> = inside.collect();
            inside.sort_unstable();
            round.of_function += inside.len();
            if self.is_found_late {
                let found = inside.iter().position(|(_, is_named)| *is_named);
                let before = found.unwrap_or(inside.len());
                round.before += before;
                inside.drain(..before);
            }
            round.named += inside.iter().filter(|(_, is_named)| *is_named).count();
        }
        round
    }

    const FREQUENCY: u32 = 199;
}

/// What processes that live shortly said of themselves, and their samples meanwhile.
#[derive(Debug, Default)]
struct Round {
    processes: usize,
    cpu: Duration,
    samples: usize,
    /// Of the threads that run the function.
    of_function: usize,
    /// Of these, before the runtime was found.
    before: usize,
    named: usize,
    /// Those that a process took with it that exited before its functions were read.
    nameless: usize,
}

impl Round {
    #[expect(clippy::cast_precision_loss, reason = "they are small")]
    fn is_right(&self) -> bool {
        let expected = self.cpu.as_secs_f64() * f64::from(ShortLived::FREQUENCY);
        let is_complete = self.samples as f64 >= expected - 4.0 * expected.sqrt();
        let known = self.of_function - self.before;
        known > 100 && is_complete && self.named * 100 >= known * 95
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
        let profiler = Profiler::start(499);
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
    let profiler = Profiler::start(499);
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
