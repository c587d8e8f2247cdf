//! Compares profcol with `perf record --call-graph dwarf` over the same seconds: each function has the same share of
//! the samples, on top of the stack and anywhere in it.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use profcol_test_harness::profile::{Profile, Sample, Symbols};
use profcol_test_harness::support::{root, skip, version_of};
use profcol_test_harness::toolchain::Workshop;

use crate::host::{Profiler, Running, can_profile};

const FREQUENCY: u32 = 499;
const SECONDS: &str = "6";
/// Time limit for building the program's unwind table; far longer than an idle machine needs.
const TIMEOUT: Duration = Duration::from_secs(30);
/// perf's copy of each stack must hold deep stacks.
const COPIED: &str = "dwarf,32768";

/// The number of functions to compare, those with the largest shares.
const FUNCTIONS: usize = 20;

/// Maximum random difference between two samplings, in standard deviations; smaller differences than the minimum are
/// ignored. Both clocks have the same frequency, and may resonate with a loop.
const DEVIATIONS: f64 = 4.5;
const MIN_TOLERANCE: f64 = 0.03;

/// Minimum share of whole perf stacks to compare more than their tops.
const REACHED: f64 = 0.95;

/// Samples of a program: for each function, how many have it on top, and how many anywhere.
#[derive(Default)]
struct Shares {
    samples: usize,
    /// Samples whose top is a function of the program. Others are in the kernel, more often while perf copies stacks.
    tops: usize,
    top: HashMap<String, usize>,
    anywhere: HashMap<String, usize>,
}

impl Shares {
    /// The share of samples with the function anywhere.
    fn share_of(&self, function: &str) -> f64 {
        let found = self.anywhere.get(function).copied().unwrap_or_default();
        found as f64 / self.samples.max(1) as f64
    }

    /// `names` are the program's own functions in a stack, innermost first.
    fn add(&mut self, names: &[String], is_top: bool, count: usize) {
        self.samples += count;
        if let Some(top) = names.first().filter(|_| is_top) {
            self.tops += count;
            *self.top.entry(top.clone()).or_default() += count;
        }
        for name in names.iter().collect::<HashSet<_>>() {
            *self.anywhere.entry(name.clone()).or_default() += count;
        }
    }
}

fn of_profcol(profile: &Profile, program: &Path, symbols: &mut Symbols) -> Shares {
    let mut shares = Shares::default();
    for sample in &profile.samples {
        if sample.executable != program.to_str().unwrap() || sample.is_before_table() {
            continue;
        }
        let user = sample.frames.iter().filter(|frame| frame.kind != "kernel");
        let frames: Vec<_> = user.map(|frame| symbols.name(frame)).collect();
        let is_top = frames.first().is_some_and(Option::is_some)
            && sample
                .frames
                .first()
                .is_some_and(|frame| frame.kind != "kernel");
        let names: Vec<String> = frames.into_iter().flatten().collect();
        shares.add(&names, is_top, sample.count);
    }
    shares
}

/// `perf script` prints a line per sample, one per frame, and an empty one.
fn of_perf(text: &str, program: &Path, symbols: &mut Symbols) -> Shares {
    let mut shares = Shares::default();
    for sample in text.split("\n\n") {
        let frames: Vec<Option<String>> = sample
            .lines()
            .filter(|line| line.starts_with([' ', '\t']))
            .map(|line| perf_name(line, program, symbols))
            .collect();
        if frames.is_empty() {
            continue;
        }
        let is_top = frames.first().is_some_and(Option::is_some);
        let names: Vec<String> = frames.into_iter().flatten().collect();
        shares.add(&names, is_top, 1);
    }
    shares
}

/// Parses `address symbol+0xoffset (file)`: the symbol's address and the offset give the same name as ours.
fn perf_name(line: &str, program: &Path, symbols: &mut Symbols) -> Option<String> {
    let (frame, file) = line.trim().rsplit_once(" (")?;
    if file.strip_suffix(')')? != program.to_str()? {
        return None;
    }
    let (_, symbol) = frame.split_once(' ')?;
    let name = symbol.rsplit_once("+0x").map_or(symbol, |(name, _)| name);
    Some(symbols.alias(name))
}

/// A function whose share differs by more than chance, in percent.
#[derive(Debug)]
struct Difference {
    function: String,
    place: &'static str,
    #[expect(dead_code, reason = "the test prints it")]
    by_profcol: f64,
    #[expect(dead_code, reason = "the test prints it")]
    by_perf: f64,
}

impl Difference {
    fn is_of_the_same(&self, other: &Self) -> bool {
        self.function == other.function && self.place == other.place
    }
}

fn differences(
    ours: &HashMap<String, usize>,
    all: usize,
    theirs: &HashMap<String, usize>,
    their_all: usize,
    place: &'static str,
) -> Vec<Difference> {
    let share = |counts: &HashMap<String, usize>, all: usize, function: &str| {
        counts.get(function).copied().unwrap_or_default() as f64 / all.max(1) as f64
    };
    let largest = |counts: &HashMap<String, usize>| -> Vec<String> {
        let mut functions: Vec<_> = counts.iter().collect();
        functions.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
        let first = functions.into_iter().take(FUNCTIONS);
        first.map(|(function, _)| function.clone()).collect()
    };
    let functions: BTreeSet<String> = largest(ours).into_iter().chain(largest(theirs)).collect();
    let mut different = Vec::new();
    for function in functions {
        let (a, b) = (
            share(ours, all, &function),
            share(theirs, their_all, &function),
        );
        let mean = (a + b) / 2.0;
        let spread = mean * (1.0 - mean) * (1.0 / all as f64 + 1.0 / their_all as f64);
        if (a - b).abs() > MIN_TOLERANCE.max(DEVIATIONS * spread.sqrt()) {
            different.push(Difference {
                function,
                place,
                by_profcol: a * 100.0,
                by_perf: b * 100.0,
            });
        }
    }
    different
}

/// Profiles the program with both at once, and returns the differences.
#[expect(clippy::print_stdout, reason = "the figures are of interest")]
fn check(name: &str, main: &str, program: &Path) -> Vec<Difference> {
    let running = Running::start_quietly(program, &["60"]);
    let mut profiler = Profiler::start(FREQUENCY);
    let is_walked = |sample: &Sample| {
        sample.executable == program.to_str().unwrap() && !sample.is_before_table()
    };
    profiler.wait(TIMEOUT, |profile| profile.samples.iter().any(is_walked));
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("perf.data");
    let recorded = Command::new("perf")
        .args(["record", "-q", "-e", "cpu-clock", "--call-graph", COPIED])
        .args([
            "-F",
            &FREQUENCY.to_string(),
            "-p",
            &running.pid().to_string(),
            "-o",
        ])
        .arg(&data)
        .args(["--", "sleep", SECONDS])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let output = String::from_utf8_lossy(&recorded.stderr);
    assert!(recorded.status.success(), "perf record: {output}");
    let profile = profiler.stop();
    drop(running);
    let script = Command::new("perf")
        .args([
            "script",
            "--no-demangle",
            "--no-inline",
            "-F",
            "comm,ip,sym,symoff,dso",
            "-i",
        ])
        .arg(&data)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let mut symbols = Symbols::read(program);
    let ours = of_profcol(&profile, program, &mut symbols);
    let theirs = of_perf(
        &String::from_utf8_lossy(&script.stdout),
        program,
        &mut symbols,
    );
    println!(
        "{name:12} {} samples by profcol, {} by perf, {} and {} functions",
        ours.samples,
        theirs.samples,
        ours.anywhere.len(),
        theirs.anywhere.len()
    );
    if ours.samples < 200 || theirs.samples < 200 {
        panic!("{name}: too few samples");
    }
    // perf cannot unwind static programs and Go.
    let reached = theirs.share_of(main);
    if reached < REACHED {
        println!(
            "    perf gets to {main} in {:.1} % of its stacks: only tops are compared",
            reached * 100.0
        );
    }
    let top = differences(&ours.top, ours.tops, &theirs.top, theirs.tops, "on top");
    let anywhere = differences(
        &ours.anywhere,
        ours.samples,
        &theirs.anywhere,
        theirs.samples,
        "anywhere",
    );
    let anywhere = if reached < REACHED {
        Vec::new()
    } else {
        anywhere
    };
    top.into_iter().chain(anywhere).collect()
}

#[test]
#[expect(clippy::print_stdout, reason = "the figures are of interest")]
fn time_distribution_matches_perf() {
    if !can_profile() {
        return;
    }
    if version_of("perf").is_none_or(|version| version < (6, 1)) {
        skip("no perf from 6.1 here; on Debian `apt-get install linux-perf`");
        return;
    }
    let workshop = Workshop::open();
    let programs = root().join("benches/ebpf/programs");
    let source = |name: &str| programs.join(name).to_str().unwrap().to_owned();
    let mut different = Vec::new();
    for (name, main, command) in [
        (
            "deep",
            "main",
            format!(
                "g++ -O2 -fomit-frame-pointer -fno-optimize-sibling-calls {}",
                source("deep.cc")
            ),
        ),
        (
            "rust",
            "main",
            format!(
                "rustc --edition=2024 -O -Csymbol-mangling-version=v0 {}",
                source("maps.rs")
            ),
        ),
        (
            "go",
            "runtime.goexit.abi0",
            format!("go {}", source("goroutines.go")),
        ),
        ("throws", "main", "c++ -O2 throws.cc".to_owned()),
        (
            "chain",
            "main",
            "c++ -O2 -fomit-frame-pointer chain.cc".to_owned(),
        ),
    ] {
        let Some(program) = workshop.build(name, &command) else {
            continue;
        };
        // On a busy machine both samplers compete for CPUs, so a difference only counts if it repeats.
        let once = check(name, main, &program);
        if !once.is_empty() {
            println!("{name}: measuring again: {once:#?}");
            let again = check(name, main, &program);
            different.extend(
                again
                    .into_iter()
                    .filter(|difference| once.iter().any(|first| first.is_of_the_same(difference))),
            );
        }
    }
    assert!(different.is_empty(), "{different:#?}");
}
