//! Compares the stacks of a profile with a program's known call chains.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use crate::profile::{Profile, Sample, Symbols};
use crate::programs::Program;

/// Minimum samples of a program, and of each of its chains.
#[derive(Clone, Copy)]
pub struct MinSamples {
    pub all: usize,
    pub of_chain: usize,
}

/// A program under test.
pub struct Subject {
    pub program: Program,
    pub files: Vec<PathBuf>,
    /// The symbols of its files; those of the executable are last.
    symbols: Vec<Symbols>,
    chains: Vec<Vec<&'static str>>,
    /// The only process to judge; None judges all processes of the executable.
    only: Option<u32>,
}

#[derive(Default)]
pub struct Verdict {
    exact: usize,
    /// For each chain, the samples that begin with its first function.
    of_chain: Vec<usize>,
    /// Samples before the program's table was built.
    pending: usize,
    /// Incomplete stacks by end reason.
    explained: BTreeMap<String, usize>,
    /// Wrong stacks without a reason, which must not occur, or with the expected reason but other frames.
    wrong: BTreeMap<String, usize>,
}

impl Subject {
    /// The executable is the last file.
    pub fn new(program: Program, files: Vec<PathBuf>) -> Self {
        Self {
            symbols: files.iter().map(|path| Symbols::read(path)).collect(),
            chains: program
                .chains
                .iter()
                .map(|chain| chain.split(' ').collect())
                .collect(),
            program,
            files,
            only: None,
        }
    }

    /// Only this process of the executable, which knows `file` as `path`.
    pub fn of_process(pid: u32, file: &Path, path: &Path, program: Program) -> Self {
        Self {
            symbols: vec![Symbols::read_as(file, path)],
            only: Some(pid),
            files: vec![path.to_owned()],
            ..Self::new(program, Vec::new())
        }
    }

    pub fn executable(&self) -> &Path {
        self.files.last().unwrap()
    }

    pub fn arguments(&self) -> Vec<&str> {
        let parts = if self.program.takes_parts {
            self.program.parts.len()
        } else {
            0
        };
        self.files
            .iter()
            .take(parts)
            .map(|path| path.to_str().unwrap())
            .collect()
    }

    pub fn judge(&mut self, profile: &Profile) -> Verdict {
        let mut verdict = Verdict {
            of_chain: vec![0; self.chains.len()],
            ..Verdict::default()
        };
        for sample in &profile.samples {
            let is_path = |path: &PathBuf| path.as_os_str() == sample.executable.as_str();
            let is_build = |symbols: &Symbols| symbols.build_id == sample.build_id;
            let is_wanted = self.only.is_none_or(|pid| pid == sample.pid);
            if is_wanted && self.files.iter().any(is_path) && self.symbols.iter().any(is_build) {
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
            // The second occurs with mappings from events, which arrive slightly later.
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

    /// The names of the user frames. Frames in another program's image are marked as such.
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
                None if frame.file == "[vdso]" && frame.function.is_none() => "nameless".into(),
                None if frame.file.starts_with('[') => frame.file.clone(),
                None if frame.file.contains("/libgcc_s") => "libgcc".into(),
                None => "?".into(),
            });
        }
        names
    }
}

/// Whether the frames match the chain.
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
    pub fn is_enough(&self, program: &Program, enough: MinSamples) -> bool {
        let of_chain = |&samples: &usize| samples >= enough.of_chain;
        let mut chains = self.of_chain.iter();
        let has_chains = match program.shows_each {
            true => chains.all(of_chain),
            false => chains.any(of_chain),
        };
        self.all() >= enough.all && has_chains
    }

    fn all(&self) -> usize {
        let sum = |kinds: &BTreeMap<String, usize>| kinds.values().sum::<usize>();
        self.exact + sum(&self.explained) + sum(&self.wrong)
    }

    fn share(&self) -> f64 {
        self.exact as f64 / self.all().max(1) as f64
    }

    pub fn is_right(&self, program: &Program, enough: MinSamples) -> bool {
        self.is_enough(program, enough)
            && self.wrong.values().sum::<usize>() <= program.max_wrong(self.all())
            && self.share() >= program.exact
    }

    pub fn describe(&self, name: &str) -> String {
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
