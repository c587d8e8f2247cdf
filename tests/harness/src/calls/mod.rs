//! Compares the stacks of a program with its known call chains.

pub mod javascript;
pub mod php;
pub mod python;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;

use crate::profile::{Frame, Profile, Sample};
use crate::support::root;

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

impl Calls {
    pub fn path(&self) -> PathBuf {
        root().join("tests/ebpf/programs").join(self.program)
    }

    /// At least 99 % of the samples match their chain exactly, including the lines of the calls, and each kind of call has its
    /// share.
    pub fn check(&self, profile: &Profile, pid: u32, what: &str) {
        let by_way = self.check_chains(profile, pid, what);
        let share = by_way.values().sum::<usize>() / self.ways;
        // Thirty samples deviate by six; among hundreds of ways, some have half of their share by chance.
        for (way, &count) in &by_way {
            assert!(
                count * 3 > share && count < share * 2,
                "{what}: {way} has {count}, not {share}"
            );
        }
    }

    /// Whether [`check_chains`](Self::check_chains) would accept the chains.
    pub fn are_exact(&self, profile: &Profile, pid: u32) -> bool {
        let verdict = self.judge(profile, pid);
        let wrong: usize = verdict.wrong.values().sum();
        verdict.exact * 100 >= (verdict.exact + wrong) * 99
    }

    /// The same without the shares, which are others where some instructions are emulated. Returns the samples by kind of call.
    #[expect(clippy::print_stdout, reason = "the figures are of interest")]
    pub fn check_chains(&self, profile: &Profile, pid: u32, what: &str) -> BTreeMap<String, usize> {
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
        assert_eq!(verdict.by_way.len(), self.ways, "{what}");
        verdict.by_way
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
