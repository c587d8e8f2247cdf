//! Compares the stacks of a program with its known call chains.

#![expect(clippy::print_stdout, reason = "the figures are of interest")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use profcol_test_harness::profile::{Frame, Profile, Sample};
use profcol_test_harness::support::root;

use crate::host::{Profiler, Running};

const TIMEOUT: Duration = Duration::from_secs(60);

/// The depth of `by_recursion` in each language.
const RECURSION: usize = 31;

/// Returns the functions of a chain, innermost first, by the chain's name.
pub type ChainOf = Box<dyn Fn(&str) -> Vec<String>>;

/// A program whose functions `by_...` each reach `burn` through a different kind of call, for equal times. Lines that
/// call functions of the chains have the comment `calls`.
pub struct Calls {
    /// The frame type of the language.
    pub kind: &'static str,
    /// In `tests/ebpf/programs`.
    pub program: &'static str,
    pub ways: usize,
    /// The functions of a chain, from `burn` to the outermost one.
    pub chain: ChainOf,
    /// Whether a frame of the language is in a function of the chains.
    pub is_of_program: fn(&Frame) -> bool,
    /// Maps a displayed function name to the name in the chains.
    pub name: fn(&str) -> &str,
}

/// The functions of a chain and its caller `main`: the one of `chains` that ends with `way`, or recursion.
pub fn chain_of(way: &str, chains: &[&[&str]], main: &[&str]) -> Vec<String> {
    let chain: Vec<&str> = match way {
        "by_recursion" => ["burn"]
            .into_iter()
            .chain(std::iter::repeat_n("recurse", RECURSION))
            .chain([way])
            .collect(),
        _ => {
            let chain = chains.iter().find(|chain| chain.last() == Some(&way));
            let chain = chain.unwrap_or_else(|| panic!("no chain for {way}"));
            chain.to_vec()
        }
    };
    chain
        .iter()
        .chain(main)
        .copied()
        .map(str::to_owned)
        .collect()
}

#[derive(Default)]
struct Verdict {
    exact: usize,
    wrong: BTreeMap<String, usize>,
    by_way: BTreeMap<String, usize>,
    /// Samples before the first chain, and after the last one.
    outside: BTreeMap<String, usize>,
}

pub fn name(frame: &Frame) -> &str {
    frame.function.as_deref().unwrap_or("")
}

/// The samples of a process with frames of the language.
pub fn samples_in(kind: &str, profile: &Profile, pid: u32) -> usize {
    count(profile, |sample| {
        sample.pid == pid && !names_of(kind, sample).is_empty()
    })
}

/// The samples of a process whose executables had unwind tables.
pub fn samples_with_table(profile: &Profile, pid: u32) -> usize {
    count(profile, |sample| {
        sample.pid == pid && !sample.is_before_table()
    })
}

/// The number of samples that satisfy the condition.
pub fn count(profile: &Profile, is_it: impl Fn(&Sample) -> bool) -> usize {
    let samples = profile.samples.iter();
    let samples = samples.filter(|sample| is_it(sample));
    samples.map(|sample| sample.count).sum()
}

/// Names of the functions of a language, innermost first.
pub fn names_of<'a>(kind: &str, sample: &'a Sample) -> Vec<&'a str> {
    let frames = sample.frames.iter();
    frames
        .filter(|frame| frame.kind == kind)
        .map(name)
        .collect()
}

/// The samples of a process from the first with a function of the language on: before the first sample in the
/// interpreter, stacks end in its generated code.
pub fn since_known(kind: &str, profile: &Profile, pid: u32) -> Profile {
    let samples = profile.samples.iter().filter(|sample| sample.pid == pid);
    let known = samples.skip_while(|sample| names_of(kind, sample).is_empty());
    Profile::of(known.cloned().collect())
}

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

impl Calls {
    pub fn path(&self) -> PathBuf {
        root().join("tests/ebpf/programs").join(self.program)
    }

    /// At least 99 % of the samples match their chain exactly, including the lines of the calls.
    pub fn check(&self, profile: &Profile, pid: u32, what: &str) {
        let verdict = self.judge(profile, pid);
        let wrong: usize = verdict.wrong.values().sum();
        let all = verdict.exact + wrong;
        let outside: usize = verdict.outside.values().sum();
        println!(
            "{what}: {} of {all} exact, {} outside, {:?}",
            verdict.exact, outside, verdict.by_way
        );
        assert!(
            verdict.exact * 100 >= all * 99,
            "{what}: {wrong} of {all} are wrong: {:#?}",
            verdict.wrong
        );
        assert!(
            outside * 20 < all,
            "{what}: {outside} outside: {:#?}",
            verdict.outside
        );
        let share = all / self.ways;
        // Thirty samples deviate by six; among hundreds of ways, some have half of their share by chance.
        for (way, &count) in &verdict.by_way {
            assert!(
                count * 3 > share && count < share * 2,
                "{what}: {way} has {count}, not {share}"
            );
        }
        assert_eq!(verdict.by_way.len(), self.ways, "{what}");
    }

    /// How the program's functions ran, by the values of `profcol.frame.code`.
    pub fn codes<'a>(&self, profile: &'a Profile, pid: u32) -> BTreeSet<&'a str> {
        let samples = profile.samples.iter().filter(|sample| sample.pid == pid);
        let frames = samples.flat_map(|sample| &sample.frames);
        let of_program =
            frames.filter(|frame| frame.kind == self.kind && (self.is_of_program)(frame));
        of_program.map(|frame| frame.code.as_str()).collect()
    }

    fn judge(&self, profile: &Profile, pid: u32) -> Verdict {
        let text = fs::read_to_string(self.path()).unwrap();
        let source: Vec<&str> = text.lines().collect();
        let mut verdict = Verdict::default();
        let samples = profile.samples.iter().filter(|sample| sample.pid == pid);
        for sample in samples.filter(|sample| !sample.is_before_table()) {
            self.add(sample, &source, &mut verdict);
        }
        verdict
    }

    fn add(&self, sample: &Sample, source: &[&str], verdict: &mut Verdict) {
        let frames = sample.frames.iter();
        let frames = frames.filter(|frame| frame.kind == self.kind && (self.is_of_program)(frame));
        let frames: Vec<&Frame> = frames.collect();
        let names = frames
            .iter()
            .map(|frame| (self.name)(name(frame)).to_owned());
        let names: Vec<String> = names.collect();
        let way = names
            .iter()
            .find(|name| name.starts_with("by_") && !name.contains('.'));
        let Some(way) = way else {
            // Every thread runs the program's own code, except at its start and end.
            *verdict.outside.entry(self.describe(sample)).or_default() += sample.count;
            return;
        };
        let wrong_line = frames.iter().skip(1).find(|frame| {
            let (file, line) = &frame.source;
            let text = usize::try_from(*line - 1)
                .ok()
                .and_then(|line| source.get(line));
            file.ends_with(self.program)
                && name(frame) != "<module>"
                && !text.is_some_and(|text| text.contains(" calls"))
        });
        if (self.chain)(way).ends_with(&names) && wrong_line.is_none() {
            verdict.exact += sample.count;
            *verdict.by_way.entry(way.clone()).or_default() += sample.count;
            return;
        }
        *verdict.wrong.entry(self.describe(sample)).or_default() += sample.count;
    }

    /// Also frames of other code: a function without a name is one of them.
    fn describe(&self, sample: &Sample) -> String {
        let of_language = sample.frames.iter().filter(|frame| frame.kind == self.kind);
        let lines: Vec<String> = of_language
            .map(|frame| format!("{}:{}", name(frame), frame.source.1))
            .collect();
        lines.join(" < ")
    }
}
