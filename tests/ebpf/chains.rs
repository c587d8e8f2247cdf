//! Programs with known call chains.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use profcol_test_harness::judge::{MinSamples, Subject, Verdict};
use profcol_test_harness::profile::{Profile, Sample};
use profcol_test_harness::programs::{GIANT, Program, program, programs};
use profcol_test_harness::toolchain::Workshop;

use crate::host::{Profiler, Running, can_profile};

const MIN_SAMPLES: MinSamples = MinSamples {
    all: 100,
    of_chain: 10,
};

/// Far longer than an idle machine needs.
pub const TIMEOUT: Duration = Duration::from_secs(180);

/// A running program, with the symbols of the file that it was started from.
pub struct Live {
    subject: Subject,
    running: Running,
}

impl Live {
    pub fn start(workshop: &Workshop, program: Program) -> Option<Self> {
        let files = workshop.build_all(&program)?;
        // Read before it starts: some programs delete themselves.
        let subject = Subject::new(program, files);
        let running = Running::start_nicely(subject.executable(), &subject.arguments());
        Some(Self { subject, running })
    }

    /// Builds all before the first one starts: running, they would take CPU time from the compilers.
    pub fn start_all(workshop: &Workshop, programs: impl Iterator<Item = Program>) -> Vec<Self> {
        let built: Vec<Program> = programs
            .filter(|program| workshop.build_all(program).is_some())
            .collect();
        let built = built.into_iter();
        built
            .filter_map(|program| Self::start(workshop, program))
            .collect()
    }

    /// Its name and process.
    pub fn running(&self) -> (&'static str, u32) {
        (self.subject.program.name, self.running.pid())
    }

    /// Judges only this process of the executable, which it knows by `path`.
    pub fn of_process(
        running: Running,
        file: &Path,
        path: &Path,
        name: &'static str,
        chain: &'static str,
    ) -> Self {
        let program = program(name, "", chain);
        Self {
            subject: Subject::of_process(running.pid(), file, path, program),
            running,
        }
    }

    pub fn stop(&mut self) {
        self.running.stop();
    }

    /// Starts the program at `path`.
    pub fn start_at(path: &Path, name: &'static str, chain: &'static str) -> Self {
        let subject = Subject::new(program(name, "", chain), vec![path.to_owned()]);
        let running = Running::start_nicely(path, &[]);
        Self { subject, running }
    }
}

/// Whether each program has enough samples.
pub fn is_enough(lives: &mut [Live], profile: &Profile) -> bool {
    let verdicts = judge_all(lives, profile);
    let mut judged = lives.iter().zip(verdicts);
    judged.all(|(live, verdict)| verdict.is_enough(&live.subject.program, MIN_SAMPLES))
}

fn judge_all(lives: &mut [Live], profile: &Profile) -> Vec<Verdict> {
    lives
        .iter_mut()
        .map(|live| live.subject.judge(profile))
        .collect()
}

/// Profiles until each program has enough samples, and compares its stacks with its chains.
#[expect(clippy::print_stdout, reason = "the figures are of interest")]
pub fn check(lives: &mut [Live], profiler: Profiler) {
    let profile = profiler.until(TIMEOUT, |profile| is_enough(lives, profile));
    let verdicts = judge_all(lives, &profile);
    let (mut right, mut failed) = (String::new(), String::new());
    for (live, verdict) in lives.iter().zip(verdicts) {
        let is_right = verdict.is_right(&live.subject.program, MIN_SAMPLES);
        let texts = if is_right { &mut right } else { &mut failed };
        *texts += &verdict.describe(live.subject.program.name);
    }
    assert!(
        failed.is_empty(),
        "\n{failed}programs seen, by path and build id: {:#?}",
        seen(lives, &profile)
    );
    print!("{right}");
}

/// The number of samples of the programs at these paths.
fn seen<'p>(lives: &[Live], profile: &'p Profile) -> BTreeMap<(&'p str, &'p str), usize> {
    let mut seen = BTreeMap::new();
    for sample in &profile.samples {
        let is_path = |path: &PathBuf| path.as_os_str() == sample.executable.as_str();
        if lives
            .iter()
            .any(|live| live.subject.files.iter().any(is_path))
        {
            *seen
                .entry((&*sample.executable, &*sample.build_id))
                .or_default() += sample.count;
        }
    }
    seen
}

/// One profile of all programs at once, since most of the time is spent waiting for samples.
#[test]
fn shows_exactly_the_known_chains() {
    if !can_profile() {
        return;
    }
    let only = std::env::var("PROGRAM").unwrap_or_default();
    let workshop = Workshop::open();
    let programs = programs().into_iter();
    let programs = programs.filter(|program| program.name.contains(&only));
    let mut lives = Live::start_all(&workshop, programs);
    check(&mut lives, Profiler::start(997));
}

const PASCAL: &str = "P$CHAIN_$$_LEAF$QWORD$$QWORD P$CHAIN_$$_INNER$QWORD$$QWORD P$CHAIN_$$_MIDDLE$QWORD$$QWORD P$CHAIN_$$_OUTER$QWORD$$QWORD main .. SI_PRC_$$__FPC_PROC_START";

/// Their instructions are the only unwind information; names come from the unstripped files.
#[test]
fn shows_the_known_chains_of_programs_without_symbols_and_unwind_information() {
    if !can_profile() {
        return;
    }
    let undescribed = "-fomit-frame-pointer -fno-asynchronous-unwind-tables";
    let plain = "leaf inner middle outer main .. _start";
    let workshop = Workshop::open();
    let programs = [
        ("pascal-O1", "fpc -v0 -Xs- -O1 chain.pas".into(), PASCAL),
        ("pascal-O2", "fpc -v0 -Xs- -O2 chain.pas".into(), PASCAL),
        ("pascal-O3", "fpc -v0 -Xs- -O3 chain.pas".into(), PASCAL),
        ("c", format!("cc -O2 {undescribed} plain.c"), plain),
        (
            "c-no-pie",
            format!("cc -O2 -no-pie {undescribed} plain.c"),
            plain,
        ),
        (
            "c-unoptimized",
            "cc -O0 -fno-asynchronous-unwind-tables plain.c".into(),
            plain,
        ),
        (
            "musl-static",
            format!("musl-gcc -O2 -static {undescribed} plain.c"),
            plain,
        ),
    ];
    let start = |(name, command, chain): (&'static str, String, &'static str)| {
        let named = workshop.build(&format!("{name}-named"), &command)?;
        let stripped = workshop.path(name);
        let strip = Command::new("strip")
            .arg("-o")
            .arg(&stripped)
            .arg(&named)
            .status();
        assert!(strip.unwrap().success());
        let running = Running::start_nicely(&stripped, &[]);
        Some(Live::of_process(running, &named, &stripped, name, chain))
    };
    let mut lives: Vec<Live> = programs.into_iter().filter_map(start).collect();
    check(&mut lives, Profiler::start(997));
}

/// A program is replaced by another: at the path of one that keeps running, and in the file of one that
/// ended.
#[test]
fn distinguishes_replaced_programs() {
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
    let mut lives = vec![
        Live::start_at(
            &named,
            "its name is taken",
            "third inner middle outer main .. _start",
        ),
        Live::start_at(
            &file,
            "its file is taken",
            "first inner middle outer main .. _start",
        ),
    ];
    profiler.wait(TIMEOUT, |profile| is_enough(&mut lives, profile));
    fs::rename(&first, &named).unwrap();
    lives.push(Live::start_at(
        &named,
        "takes a name",
        "first inner middle outer main .. _start",
    ));
    lives[1].stop();
    fs::copy(&second, &file).unwrap();
    lives.push(Live::start_at(
        &file,
        "takes a file",
        "second inner middle outer main .. _start",
    ));
    check(&mut lives, profiler);
}

/// Otherwise each stack would only request the page of the next frame.
#[test]
fn a_large_table_is_completed_after_repeated_requests() {
    if !can_profile() {
        return;
    }
    let workshop = Workshop::open();
    let Some(giant) = workshop.build("giant", "cc -O2 -fno-toplevel-reorder giant.c") else {
        return;
    };
    let mut lives = vec![Live::start_at(&giant, "giant", GIANT)];
    let mut profiler = Profiler::start_talkative("frequency: 499");
    profiler.wait_until_it_says(&format!(
        "built the remaining pages of an unwind table path={:?}",
        giant
    ));
    check(&mut lives, profiler);
}

/// Unwinding of 32-bit stacks is not supported.
#[test]
fn reports_32_bit_programs() {
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
    let profile = Profiler::start(499).until(TIMEOUT, |profile| {
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
    // Before its exec it is a 64-bit program.
    let right = reasons.iter().filter(|&&reason| reason == "32_bit").count();
    assert!(right * 100 >= reasons.len() * 95, "{reasons:?}");
}
