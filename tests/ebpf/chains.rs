//! Programs whose chains of calls are known.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use crate::host::{Profiler, Running, can_profile};
use crate::profile::{Profile, Sample, Symbols};
use crate::programs::{Program, programs};
use crate::toolchain::Workshop;

/// Samples that a program has to have, and that each of its chains has to have.
const ENOUGH: usize = 200;
const ENOUGH_OF_CHAIN: usize = 20;

/// Far more than an idle machine needs.
const PATIENCE: Duration = Duration::from_secs(120);

/// The share of stacks that are exactly what they have to be.
const EXACT: f64 = 0.99;

/// A program under way.
struct Subject {
    program: Program,
    files: Vec<PathBuf>,
    symbols: Vec<Symbols>,
    chains: Vec<Vec<&'static str>>,
    _running: Running,
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
    fn start(workshop: &Workshop, program: Program) -> Option<Self> {
        let mut files = Vec::new();
        for (name, command) in &program.parts {
            files.push(workshop.build(name, command)?);
        }
        let executable = workshop.build(program.name, program.command)?;
        let arguments: Vec<String> = files
            .iter()
            .filter(|_| program.takes_parts)
            .map(|path| path.to_str().unwrap().to_owned())
            .collect();
        files.push(executable.clone());
        Some(Self {
            symbols: files.iter().map(|path| Symbols::read(path)).collect(),
            files,
            chains: program
                .chains
                .iter()
                .map(|chain| chain.split(' ').collect())
                .collect(),
            _running: Running::start(&executable, &arguments),
            program,
        })
    }

    fn judge(&mut self, profile: &Profile) -> Verdict {
        let mut verdict = Verdict {
            of_chain: vec![0; self.chains.len()],
            ..Verdict::default()
        };
        for sample in &profile.samples {
            if self
                .files
                .iter()
                .any(|file| file.as_os_str() == sample.executable.as_str())
            {
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
            _ if reason == Some("table_pending") => verdict.pending += sample.count,
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
            if frame.kind == "kernel" || frame.function.is_some() {
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

/// One profile of all programs at once, since most of its time goes into waiting for samples.
#[test]
#[expect(clippy::print_stdout, reason = "the figures are of interest")]
fn shows_exactly_the_known_chains() {
    if !can_profile() {
        return;
    }
    let only = std::env::var("PROGRAM").ok();
    let workshop = Workshop::open();
    let mut subjects: Vec<Subject> = programs()
        .into_iter()
        .filter(|program| only.as_ref().is_none_or(|only| program.name.contains(only)))
        .filter_map(|program| Subject::start(&workshop, program))
        .collect();
    let profiler = Profiler::start(997);
    let profile = profiler.until(PATIENCE, |profile| {
        subjects
            .iter_mut()
            .all(|subject| subject.judge(profile).is_enough())
    });
    let verdicts: Vec<(&str, Verdict)> = subjects
        .iter_mut()
        .map(|subject| (subject.program.name, subject.judge(&profile)))
        .collect();
    let mut failed = String::new();
    for (name, verdict) in &verdicts {
        let text = verdict.describe(name);
        print!("{text}");
        if !verdict.is_right() {
            failed += &text;
        }
    }
    assert!(failed.is_empty(), "\n{failed}");
}
