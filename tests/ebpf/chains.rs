//! Programs whose chains of calls are known.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::host::{Profiler, Running, can_profile};
use crate::profile::{Profile, Sample, Symbols};
use crate::programs::{GIANT, Program, program, programs};
use crate::toolchain::Workshop;

/// Samples that a program has to have, and that each of its chains has to have.
const ENOUGH: usize = 100;
const ENOUGH_OF_CHAIN: usize = 10;

/// Far more than an idle machine needs.
const PATIENCE: Duration = Duration::from_secs(180);

/// The share of stacks that are exactly what they have to be.
const EXACT: f64 = 0.99;

/// A program under way.
pub struct Subject {
    program: Program,
    files: Vec<PathBuf>,
    /// Of its files; the executable's are the last.
    symbols: Vec<Symbols>,
    chains: Vec<Vec<&'static str>>,
    running: Running,
}

#[derive(Default)]
struct Verdict {
    exact: usize,
    /// Samples of each chain that begin with its first function.
    of_chain: Vec<usize>,
    /// Before the program's table was there.
    pending: usize,
    /// With a reason why they are not whole.
    explained: BTreeMap<String, usize>,
    /// Without one: what must never be. Or with the reason that has to be, and other frames.
    wrong: BTreeMap<String, usize>,
}

impl Subject {
    pub fn start(workshop: &Workshop, program: Program) -> Option<Self> {
        let mut files = Vec::new();
        for (name, command) in &program.parts {
            files.push(workshop.build(name, command)?);
        }
        let executable = workshop.build(program.name, program.command)?;
        let arguments: Vec<&str> = files
            .iter()
            .filter(|_| program.takes_parts)
            .map(|path| path.to_str().unwrap())
            .collect();
        let mut symbols: Vec<_> = files.iter().map(|path| Symbols::read(path)).collect();
        symbols.push(Symbols::read(&executable));
        let running = Running::start_nicely(&executable, &arguments);
        files.push(executable);
        Some(Self::new(program, files, symbols, running))
    }

    /// Its name and process.
    pub fn running(&self) -> (&'static str, u32) {
        (self.program.name, self.running.pid())
    }

    /// Starts what is at `path`.
    pub fn start_at(path: &Path, name: &'static str, chain: &'static str) -> Self {
        let symbols = Symbols::read(path);
        let running = Running::start_nicely(path, &[]);
        let program = program(name, "", chain);
        Self::new(program, vec![path.to_owned()], vec![symbols], running)
    }

    fn new(program: Program, files: Vec<PathBuf>, symbols: Vec<Symbols>, running: Running) -> Self {
        Self {
            files,
            symbols,
            chains: program
                .chains
                .iter()
                .map(|chain| chain.split(' ').collect())
                .collect(),
            program,
            running,
        }
    }

    fn judge(&mut self, profile: &Profile) -> Verdict {
        let mut verdict = Verdict {
            of_chain: vec![0; self.chains.len()],
            ..Verdict::default()
        };
        for sample in &profile.samples {
            let is_path = |path: &PathBuf| path.as_os_str() == sample.executable.as_str();
            let is_build = |symbols: &Symbols| symbols.build_id == sample.build_id;
            if self.files.iter().any(is_path) && self.symbols.iter().any(is_build) {
                self.judge_sample(sample, &mut verdict);
            }
        }
        verdict
    }

    fn judge_sample(&mut self, sample: &Sample, verdict: &mut Verdict) {
        let names = self.names(sample);
        let Some(innermost) = names.first() else {
            return;
        };
        let is_in_chain = |chain: &Vec<&str>| {
            chain
                .iter()
                .any(|name| name == innermost && !["?", ".."].contains(name))
        };
        if !self.chains.iter().any(is_in_chain) {
            return;
        }
        let reason = sample.end_reason.as_deref();
        let fits = self.chains.iter().position(|chain| {
            (0..chain.len())
                .any(|start| chain[start] == innermost && matches(&chain[start..], &names))
        });
        match fits {
            Some(chain) if reason == self.program.end => {
                verdict.exact += sample.count;
                if self.chains[chain][0] == innermost {
                    verdict.of_chain[chain] += sample.count;
                }
            }
            // The second where mappings are followed by events, which come a little later.
            _ if matches!(reason, Some("table_pending" | "mappings_pending")) => {
                verdict.pending += sample.count;
            }
            _ => {
                let line = format!("{} ({})", names.join(" "), reason.unwrap_or("complete"));
                let kind = if reason == self.program.end {
                    &mut verdict.wrong
                } else {
                    &mut verdict.explained
                };
                *kind.entry(line).or_default() += sample.count;
            }
        }
    }

    /// The names of the user's frames. A frame in the image of another program than the sample's is called so.
    fn names(&mut self, sample: &Sample) -> Vec<String> {
        let mut names = Vec::new();
        for frame in &sample.frames {
            let is_marker = frame.file.is_empty() && frame.function.is_some();
            if frame.kind == "kernel" || is_marker {
                continue;
            }
            let name = self
                .symbols
                .iter_mut()
                .find_map(|symbols| symbols.name(frame));
            names.push(match name {
                Some(_) if frame.file != sample.executable && !frame.file.ends_with(".so") => {
                    "other-image".into()
                }
                Some(name) => name,
                None if frame.file.starts_with('[') => frame.file.clone(),
                None => "?".into(),
            });
        }
        names
    }
}

/// Whether the frames are those of the chain.
fn matches(chain: &[&str], names: &[String]) -> bool {
    match chain.split_first() {
        None => names.is_empty(),
        Some((&"..", rest)) => (0..=names.len()).any(|skipped| matches(rest, &names[skipped..])),
        Some((&first, rest)) => names
            .split_first()
            .is_some_and(|(name, others)| name == first && matches(rest, others)),
    }
}

impl Verdict {
    fn is_enough(&self) -> bool {
        self.all() >= ENOUGH
            && self
                .of_chain
                .iter()
                .all(|&samples| samples >= ENOUGH_OF_CHAIN)
    }

    fn all(&self) -> usize {
        let sum = |kinds: &BTreeMap<String, usize>| kinds.values().sum::<usize>();
        self.exact + sum(&self.explained) + sum(&self.wrong)
    }

    fn share(&self) -> f64 {
        self.exact as f64 / self.all().max(1) as f64
    }

    fn is_right(&self) -> bool {
        self.is_enough() && self.wrong.is_empty() && self.share() >= EXACT
    }

    fn describe(&self, name: &str) -> String {
        let mut text = format!(
            "{name:26} {:6.2} % of {:5} exact, by chain {:?}, {} before its table\n",
            self.share() * 100.0,
            self.all(),
            self.of_chain,
            self.pending
        );
        for (kind, found) in [("wrong", &self.wrong), ("not whole", &self.explained)] {
            for (line, count) in found.iter().take(12) {
                let _ = writeln!(text, "    {kind}: {count} x {line:.400}");
            }
        }
        text
    }
}

fn judge_all(subjects: &mut [Subject], profile: &Profile) -> Vec<Verdict> {
    subjects
        .iter_mut()
        .map(|subject| subject.judge(profile))
        .collect()
}

/// Profiles until each program has shown enough, and holds its stacks against its chains.
#[expect(clippy::print_stdout, reason = "the figures are of interest")]
pub fn check(subjects: &mut [Subject], profiler: Profiler) {
    let profile = profiler.until(PATIENCE, |profile| {
        judge_all(subjects, profile).iter().all(Verdict::is_enough)
    });
    let verdicts = judge_all(subjects, &profile);
    let mut failed = String::new();
    for (subject, verdict) in subjects.iter().zip(verdicts) {
        let text = verdict.describe(subject.program.name);
        print!("{text}");
        if !verdict.is_right() {
            failed += &text;
        }
    }
    assert!(
        failed.is_empty(),
        "\n{failed}programs seen, by path and build id: {:#?}",
        seen(subjects, &profile)
    );
}

/// How often the programs at the subjects' paths were seen.
fn seen<'p>(subjects: &[Subject], profile: &'p Profile) -> BTreeMap<(&'p str, &'p str), usize> {
    let mut seen = BTreeMap::new();
    for sample in &profile.samples {
        let is_path = |path: &PathBuf| path.as_os_str() == sample.executable.as_str();
        if subjects
            .iter()
            .any(|subject| subject.files.iter().any(is_path))
        {
            *seen
                .entry((&*sample.executable, &*sample.build_id))
                .or_default() += sample.count;
        }
    }
    seen
}

/// One profile of all programs at once, since most of its time goes into waiting for samples.
#[test]
fn shows_exactly_the_known_chains() {
    if !can_profile() {
        return;
    }
    let only = std::env::var("PROGRAM").unwrap_or_default();
    let workshop = Workshop::open();
    let mut subjects: Vec<Subject> = programs()
        .into_iter()
        .filter(|program| program.name.contains(&only))
        .filter_map(|program| Subject::start(&workshop, program))
        .collect();
    check(&mut subjects, Profiler::start(997));
}

/// Where there was one program there is another: under the name of one that runs on, and in the very file of one that
/// ended.
#[test]
fn programs_that_replace_others_are_not_taken_for_them() {
    replace_programs(Profiler::start);
}

pub fn replace_programs(start_profiler: fn(u32) -> Profiler) {
    if !can_profile() {
        return;
    }
    let workshop = Workshop::open();
    let build = |name, command| workshop.build(name, command).unwrap();
    let first = build("first", "cc -O0 -DLEAF=first plain.c");
    let second = build("second", "cc -O2 -DLEAF=second plain.c");
    let third = build("third", "cc -O2 -static -DLEAF=third plain.c");

    let mut profiler = start_profiler(499);
    let (named, file) = (workshop.path("named"), workshop.path("file"));
    fs::copy(&third, &named).unwrap();
    fs::copy(&first, &file).unwrap();
    let mut subjects = vec![
        Subject::start_at(
            &named,
            "its name is taken",
            "third inner middle outer main .. _start",
        ),
        Subject::start_at(
            &file,
            "its file is taken",
            "first inner middle outer main .. _start",
        ),
    ];
    profiler.wait(PATIENCE, |profile| {
        judge_all(&mut subjects, profile)
            .iter()
            .all(Verdict::is_enough)
    });
    fs::rename(&first, &named).unwrap();
    subjects.push(Subject::start_at(
        &named,
        "takes a name",
        "first inner middle outer main .. _start",
    ));
    subjects[1].running.stop();
    fs::copy(&second, &file).unwrap();
    subjects.push(Subject::start_at(
        &file,
        "takes a file",
        "second inner middle outer main .. _start",
    ));
    check(&mut subjects, profiler);
}

/// Stack by stack each would ask for the page of the next frame.
#[test]
fn a_giant_that_is_run_through_is_built_at_once() {
    if !can_profile() {
        return;
    }
    let workshop = Workshop::open();
    let Some(giant) = workshop.build("giant", "cc -O2 -fno-toplevel-reorder giant.c") else {
        return;
    };
    let mut subjects = vec![Subject::start_at(&giant, "giant", GIANT)];
    let mut profiler = Profiler::start_talkative("frequency: 499");
    profiler.wait_until_it_says(&format!(
        "built the rest of an unwind table path={:?}",
        giant
    ));
    check(&mut subjects, profiler);
}

/// A walk of such a stack would follow other rules.
#[test]
fn programs_of_32_bits_say_so() {
    if !can_profile() {
        return;
    }
    let workshop = Workshop::open();
    let flags = "cc -m32 -nostdlib -static -ffreestanding bits32.c";
    let Some(program) = workshop.build("bits32", flags) else {
        return;
    };
    let running = Running::start_nicely(&program, &[]);
    let is_its = |sample: &&Sample| program.as_os_str() == sample.executable.as_str();
    let profile = Profiler::start(499).until(PATIENCE, |profile| {
        profile.samples.iter().filter(is_its).count() >= 20
    });
    drop(running);
    let reasons: Vec<_> = profile
        .samples
        .iter()
        .filter(is_its)
        .map(|sample| sample.end_reason.as_deref().unwrap_or("complete"))
        .collect();
    assert!(reasons.len() >= 20);
    // Before it is a program of 32 bits it is one of 64.
    let right = reasons.iter().filter(|&&reason| reason == "32_bit").count();
    assert!(right * 100 >= reasons.len() * 95, "{reasons:?}");
}
