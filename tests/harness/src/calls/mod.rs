//! Compares the stacks of a program with its known call chains.

mod account;
pub mod clock;
pub mod javascript;
pub mod php;
pub mod python;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;

use crate::profile::{Frame, Profile, Sample};
use crate::support::root;

use account::Account;
use clock::Clock;

/// The depth of `by_recursion` in each language.
const RECURSION: usize = 31;

/// A chain that each program has.
const ANY_WAY: &str = "by_call";

/// Returns the functions of a chain, innermost first, by the chain's name.
pub type ChainOf = Box<dyn Fn(&str) -> Vec<String>>;

/// A program whose functions `by_...` each reach `burn` through a different kind of call, and that accounts for its time.
/// Lines that call functions of the chains have the comment `calls`; all lines of innermost functions have the comment `burns`.
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
    /// Whether a function of the chains is in no line of the program.
    pub is_elsewhere: fn(&Frame) -> bool,
    /// Chains with a stack of their own, which ends where it was switched to.
    pub ends: &'static [&'static str],
    /// Chains that profcol is known to cut: two thirds of their samples must be whole, and they do not count with the others.
    pub flawed: &'static [&'static str],
    /// Percent of the samples that lack their innermost function by a known flaw.
    pub lacking: usize,
    /// Whether the runtime schedules the chains itself, in stacks of its own: the program does not know how long that takes.
    pub is_scheduled: bool,
    /// Whether a sample is of a thread that runs the chains.
    pub is_of_thread: fn(&Sample) -> bool,
}

/// Most programs run their chains in the main thread.
pub fn is_main_thread(sample: &Sample) -> bool {
    sample.thread == sample.pid
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

impl Calls {
    pub fn path(&self) -> PathBuf {
        root().join("tests/ebpf/programs").join(self.program)
    }

    /// At least 99 % of the samples in which the program was in a chain by its own account have that chain, with all lines. Its
    /// innermost function is only missing as often as the program was outside of it, and each chain has its share of the samples.
    pub fn check(&self, profile: &Profile, pid: u32, clock: &Clock, what: &str) {
        let account = self.account(profile, pid, clock);
        account.check(what);
        assert_eq!(account.ways(), self.ways, "{what}");
    }

    /// Whether [`check`](Self::check) would accept the chains.
    pub fn are_exact(&self, profile: &Profile, pid: u32, clock: &Clock) -> bool {
        self.account(profile, pid, clock).is_exact()
    }

    fn account(&self, profile: &Profile, pid: u32, clock: &Clock) -> Account {
        let judge = self.judge();
        let samples = profile.samples.iter();
        let samples = samples.filter(|it| it.pid == pid && (self.is_of_thread)(it));
        let samples = samples.filter(|it| !it.is_before_table());
        Account::of(&judge, samples, clock.runs())
    }

    /// The same without an account, and so without shares: for programs that run where their time means nothing.
    #[expect(clippy::print_stdout, reason = "the figures are of interest")]
    pub fn check_chains(&self, profile: &Profile, pid: u32, what: &str) {
        let judge = self.judge();
        let (mut without_leaf, mut outside) = (0, 0);
        let mut wrong = BTreeMap::<String, usize>::new();
        let mut by_way = BTreeMap::<String, usize>::new();
        for sample in profile.samples.iter().filter(|it| it.pid == pid) {
            if sample.is_before_table() || !(self.is_of_thread)(sample) {
                continue;
            }
            let way = judge.way_of(sample);
            if way.is_none() && judge.finding(sample, ANY_WAY, true) == Finding::Outside {
                outside += sample.count;
                continue;
            }
            let way = way.filter(|way| judge.finding(sample, way, true) != Finding::Wrong);
            let Some(way) = way else {
                *wrong.entry(judge.describe(sample)).or_default() += sample.count;
                continue;
            };
            let is_whole = judge.finding(sample, &way, true) == Finding::Whole;
            without_leaf += if is_whole { 0 } else { sample.count };
            *by_way.entry(way).or_default() += sample.count;
        }
        let right: usize = by_way.values().sum();
        let all = right + wrong.values().sum::<usize>();
        println!(
            "{what}: {right} of {all} exact, {without_leaf} without the innermost function, {by_way:?}; {outside} between the chains"
        );
        assert!(
            right * 100 >= all * 99,
            "{what}: {right} of {all}: {wrong:#?}"
        );
        // Some chains constantly enter and leave it.
        assert!(without_leaf * 10 < all, "{what}: {without_leaf} of {all}");
        assert!(outside * 50 < all, "{what}: {outside} between the chains");
        assert_eq!(by_way.len(), self.ways, "{what}");
    }

    fn judge(&self) -> Judge<'_> {
        let text = fs::read_to_string(self.path()).unwrap();
        Judge {
            calls: self,
            source: text.lines().map(str::to_owned).collect(),
        }
    }

    /// How the program's functions ran, by the values of `profcol.frame.code`.
    pub fn codes<'a>(&self, profile: &'a Profile, pid: u32) -> BTreeSet<&'a str> {
        let samples = profile.samples.iter().filter(|sample| sample.pid == pid);
        let frames = samples.flat_map(|sample| &sample.frames);
        let of_program =
            frames.filter(|frame| frame.kind == self.kind && (self.is_of_program)(frame));
        of_program.map(|frame| frame.code.as_str()).collect()
    }
}

/// How a stack compares with a chain.
#[derive(Clone, Copy, Eq, PartialEq)]
enum Finding {
    Whole,
    /// Without the innermost functions: right if the program had not called them yet, or had left them.
    WithoutLeaf,
    /// The program has not entered the chain yet, or has left it.
    Outside,
    /// In the runtime's scheduler.
    Scheduler,
    Wrong,
}

/// Compares stacks with the chains and the source of a program.
struct Judge<'c> {
    calls: &'c Calls,
    source: Vec<String>,
}

impl Judge<'_> {
    /// The program's functions, innermost first, with their names in the chains.
    fn functions<'s>(&self, sample: &'s Sample) -> (Vec<&'s Frame>, Vec<String>) {
        let calls = self.calls;
        let frames = sample.frames.iter();
        let frames = frames.filter(|it| it.kind == calls.kind && (calls.is_of_program)(it));
        let frames: Vec<&Frame> = frames.collect();
        let names = frames.iter().map(|it| (calls.name)(name(it)).to_owned());
        let names = names.collect();
        (frames, names)
    }

    /// The chain that a stack says it is in.
    fn way_of(&self, sample: &Sample) -> Option<String> {
        let (_, names) = self.functions(sample);
        let mut names = names.into_iter();
        names.find(|name| name.starts_with("by_") && !name.contains('.'))
    }

    /// Whether a stack is that of a chain. If its innermost function is entered and left all the time (`is_short`), that may have
    /// its caller's line, or none, before its first statement.
    fn finding(&self, sample: &Sample, way: &str, is_short: bool) -> Finding {
        let (frames, names) = self.functions(sample);
        let chain = (self.calls.chain)(way);
        let is_whole = names == chain;
        let mut lines = frames.iter().enumerate();
        let has_right_lines = lines.all(|(depth, frame)| match (depth, is_whole) {
            (0, true) if self.is_in_leaf(frame) || (self.calls.is_elsewhere)(frame) => true,
            (0, true) => is_short && (self.is_call(frame) || frame.source.1 == 0),
            // It may be anywhere in its function.
            (0, false) => self.is_known_file(frame),
            _ => self.is_call(frame),
        });
        // A stack of its own begins and ends on another.
        let is_other_stack = self.calls.ends.contains(&way) && !names.iter().any(|it| it == way);
        if is_other_stack && self.is_complete(sample, "") {
            return Finding::Outside;
        }
        if !chain.ends_with(&names) || !has_right_lines || !self.is_complete(sample, way) {
            Finding::Wrong
        } else if is_whole {
            Finding::Whole
        } else if names.is_empty() && self.calls.is_scheduled {
            Finding::Scheduler
        } else if names.iter().any(|name| name == way) {
            Finding::WithoutLeaf
        } else {
            Finding::Outside
        }
    }

    /// Whether the whole stack was seen, and each of its frames is in known code.
    fn is_complete(&self, sample: &Sample, way: &str) -> bool {
        let mut frames = sample.frames.iter();
        let is_end = sample.end_reason.is_none() || self.calls.ends.contains(&way);
        is_end && frames.all(|frame| !frame.file.is_empty() || !name(frame).is_empty())
    }

    fn line(&self, number: i64) -> Option<&str> {
        let index = usize::try_from(number - 1).ok()?;
        self.source.get(index).map(String::as_str)
    }

    fn is_known_file(&self, frame: &Frame) -> bool {
        frame.source.0.ends_with(self.calls.program) || (self.calls.is_elsewhere)(frame)
    }

    fn is_call(&self, frame: &Frame) -> bool {
        if (self.calls.is_elsewhere)(frame) {
            return true;
        }
        let line = self.line(frame.source.1);
        frame.source.0.ends_with(self.calls.program) && line.is_some_and(|it| it.contains(" calls"))
    }

    /// The lines up to it with the comment include one with the name of the function.
    fn is_in_leaf(&self, frame: &Frame) -> bool {
        let (file, line) = &frame.source;
        let burning = |number: i64| self.line(number).filter(|it| it.contains(" burns"));
        let mut lines = (1..=*line)
            .rev()
            .map_while(|number| Some((number, burning(number)?)));
        let is_part = |c: char| !c.is_alphanumeric() && c != '_';
        let shown = (self.calls.name)(name(frame));
        let mut words = shown.rsplit(is_part);
        let word = words.find(|word| !word.is_empty()).unwrap_or_default();
        let defines = |(number, text): (i64, &str)| {
            // A function without a name may have that of its place.
            word.parse() == Ok(number) || text.split(is_part).any(|part| part == word)
        };
        file.ends_with(self.calls.program) && lines.any(defines)
    }

    /// Also frames of other code: a function without a name is one of them.
    fn describe(&self, sample: &Sample) -> String {
        let frames = sample.frames.iter();
        let lines = frames.map(|frame| {
            let file = frame.file.rsplit('/').next().unwrap_or_default();
            match &frame.function {
                Some(function) if frame.kind == self.calls.kind => {
                    format!("{function}:{}", frame.source.1)
                }
                Some(function) => format!("({function})"),
                None => format!("({file}+{:#x})", frame.address),
            }
        });
        let mut lines: Vec<String> = lines.collect();
        lines.extend(sample.end_reason.clone());
        lines.join(" < ")
    }
}
