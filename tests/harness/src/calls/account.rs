//! Compares the samples of a program with its own account of its time.

use std::collections::BTreeMap;

use super::clock::Run;
use super::{Finding, Judge};
use crate::profile::Sample;

/// Deviations of random samples, in standard deviations, and a few that the edges of the measured time add.
const SIGMAS: f64 = 4.0;
const EDGES: f64 = 3.0;

/// Of one chain.
#[derive(Default)]
struct Share {
    samples: usize,
    whole: usize,
    /// Known flaws.
    cut: usize,
    cpu: u64,
}

/// Samples taken while the program was in a chain by its own account.
#[derive(Default)]
pub struct Account {
    /// See [`Calls::lacking`](super::Calls::lacking).
    lacking: usize,
    by_way: BTreeMap<String, Share>,
    /// Without the innermost functions of the chain, or none of the chain.
    incomplete: BTreeMap<String, usize>,
    wrong: BTreeMap<String, usize>,
    /// Samples between the chains.
    between: usize,
    /// The CPU time of chains whose innermost function is measured, and the part in that.
    measured: u64,
    in_leaf: u64,
}

impl Account {
    /// The samples of the threads that run the chains.
    pub fn of<'s>(
        judge: &Judge<'_>,
        samples: impl Iterator<Item = &'s Sample>,
        runs: Vec<Run>,
    ) -> Self {
        let mut at: Vec<(u64, &Sample)> = samples
            .flat_map(|sample| sample.times.iter().map(move |&time| (time, sample)))
            .collect();
        at.sort_by_key(|(time, _)| *time);
        // Before the first sample with functions of the program, the profiler does not know its runtime.
        let known = at.iter().position(|(_, sample)| {
            sample.end_reason.is_none() && !judge.functions(sample).0.is_empty()
        });
        let at = at.split_off(known.unwrap_or(0));
        let (Some(&(first, _)), Some(&(last, _))) = (at.first(), at.last()) else {
            return Self::default();
        };
        let runs = runs.into_iter();
        let runs = runs.filter(|run| run.start >= first && run.end <= last);
        let runs: Vec<Run> = runs.collect();
        let mut account = Self {
            lacking: judge.calls.lacking,
            ..Self::default()
        };
        for run in &runs {
            account.add_run(run);
        }
        for (time, sample) in at {
            let later = runs.partition_point(|run| run.start <= time);
            match later.checked_sub(1).and_then(|it| runs.get(it)) {
                Some(run) if time < run.end => account.add_sample(judge, sample, run),
                _ => account.between += 1,
            }
        }
        account
    }

    fn add_run(&mut self, run: &Run) {
        self.by_way.entry(run.way.clone()).or_default().cpu += run.cpu;
        if let Some(leaf) = run.leaf {
            self.measured += run.cpu;
            self.in_leaf += leaf;
        }
    }

    fn add_sample(&mut self, judge: &Judge<'_>, sample: &Sample, run: &Run) {
        let share = self.by_way.entry(run.way.clone()).or_default();
        share.samples += 1;
        let described = || format!("{}: {}", run.way, judge.describe(sample));
        match judge.finding(sample, &run.way, run.leaf.is_none()) {
            Finding::Wrong if judge.calls.flawed.contains(&&*run.way) => share.cut += 1,
            Finding::Whole => share.whole += 1,
            Finding::WithoutLeaf if run.leaf.is_none() => share.whole += 1,
            Finding::Scheduler => {}
            Finding::WithoutLeaf | Finding::Outside => {
                *self.incomplete.entry(described()).or_default() += 1;
            }
            Finding::Wrong => *self.wrong.entry(described()).or_default() += 1,
        }
    }

    /// The number of chains with samples.
    pub fn ways(&self) -> usize {
        let mut ways: Vec<_> = self.by_way.values().collect();
        ways.retain(|share| share.whole > 0);
        ways.len()
    }

    fn all(&self) -> usize {
        self.by_way.values().map(|share| share.samples).sum()
    }

    pub fn is_exact(&self) -> bool {
        let wrong: usize = self.wrong.values().sum();
        wrong * 100 <= self.all()
    }

    #[expect(
        clippy::print_stdout,
        clippy::cast_precision_loss,
        reason = "the figures are of interest, and small"
    )]
    pub fn check(&self, what: &str) {
        let all = self.all();
        let wrong: usize = self.wrong.values().sum();
        let incomplete: usize = self.incomplete.values().sum();
        let cpu: u64 = self.by_way.values().map(|share| share.cpu).sum();
        let expected = |cpu_of_part: u64| {
            let part = cpu_of_part as f64 / cpu.max(1) as f64;
            let samples = all as f64 * part;
            (samples, (samples * (1.0 - part)).sqrt())
        };
        let flawed = all * self.lacking / 100;
        let (outside, deviation) = expected(self.measured.saturating_sub(self.in_leaf));
        println!(
            "{what}: {} of {all} exact, {wrong} wrong, {incomplete} outside of innermost functions ({outside:.1} by the \
             program's clock), {} between chains, {:.1} Hz",
            all - wrong,
            self.between,
            all as f64 * 1e9 / cpu.max(1) as f64
        );
        let mut off = Vec::new();
        let mut farthest: f64 = 0.0;
        for (way, share) in &self.by_way {
            let (samples, deviation) = expected(share.cpu);
            let distance = (share.samples as f64 - samples).abs();
            farthest = farthest.max(distance / deviation.max(1.0));
            if share.cut > 0 {
                println!(
                    "{what}: {} of {} samples of {way} are cut",
                    share.cut, share.samples
                );
            }
            assert!(share.cut * 3 <= share.samples, "{what}: {way} is cut");
            if distance > SIGMAS * deviation + EDGES {
                off.push(format!(
                    "{way} has {} instead of {samples:.1}",
                    share.samples
                ));
            }
        }
        for (title, stacks) in [("wrong", &self.wrong), ("incomplete", &self.incomplete)] {
            if !stacks.is_empty() {
                println!("{what}, {title}: {stacks:#?}");
            }
        }
        println!("{what}: shares deviate by up to {farthest:.1} standard deviations");
        assert!(self.is_exact(), "{what}: {wrong} of {all} are wrong");
        assert!(
            (incomplete - flawed.min(incomplete)) as f64 <= outside + SIGMAS * deviation + EDGES,
            "{what}: {incomplete} of {all} lack functions, {outside:.1} by the program's clock"
        );
        assert!(off.is_empty(), "{what}: of {all}: {off:?}");
        // Otherwise the above says little.
        assert!(all > 10 * self.ways(), "{what}: {all} samples");
    }
}
