//! Python's functions are shown, in exactly the chains in which they called each other.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use crate::host::{Profiler, Running, can_profile};
use crate::profile::{Frame, Profile, Sample};
use crate::support::{root, skip};

/// Enough for each way to be met often.
const MIN_SAMPLES: usize = 700;
const TIMEOUT: Duration = Duration::from_secs(60);

/// The chains of `calls.py`, innermost first, as the language qualifies the names since 3.11.
const CHAINS: &[&[&str]] = &[
    &["burn", "inner", "middle", "by_call"],
    &["burn", "Key.__lt__", "by_callback"],
    &["burn", "delegate", "generate", "by_generator"],
    &["burn", "delegate", "generate", "by_generator_from_c"],
    &["burn", "by_lambda.<locals>.<lambda>", "by_lambda"],
    &["burn", "inner", "middle", "by_partial"],
    &["burn", "handle", "by_exception"],
    &[
        "burn",
        "Base.method",
        "Derived.method",
        "Derived.attribute",
        "by_method",
    ],
    &["burn", "<module>", "by_execution"],
    &["burn", "wait_for", "gather", "by_coroutine"],
    &["by_hash"],
    &["burn", "by_größe"],
];
const RECURSION: usize = 31;

struct Interpreter {
    path: PathBuf,
    minor: u32,
}

/// Each version once.
fn interpreters() -> Vec<Interpreter> {
    let mut folders = vec![PathBuf::from("/usr/bin")];
    if let Some(home) = std::env::home_dir() {
        let versions = fs::read_dir(home.join(".pyenv/versions"));
        let versions = versions.into_iter().flatten().flatten();
        folders.extend(versions.map(|version| version.path().join("bin")));
    }
    let mut found = BTreeMap::new();
    for folder in folders {
        for minor in 8..=14 {
            let path = folder.join(format!("python3.{minor}"));
            if path.exists() {
                found.insert((folder.starts_with("/usr"), minor), path);
            }
        }
    }
    let found = found.into_iter();
    found
        .map(|((_, minor), path)| Interpreter { path, minor })
        .collect()
}

/// The whole chain from `burn` to the outermost function.
fn expected(way: &str, minor: u32) -> Vec<String> {
    let mut chain: Vec<String> = match way {
        "by_recursion" => ["burn"]
            .into_iter()
            .chain(std::iter::repeat_n("recurse", RECURSION))
            .chain(["by_recursion"])
            .map(str::to_owned)
            .collect(),
        _ => {
            let chain = CHAINS.iter().find(|chain| chain.last() == Some(&way));
            let chain = chain.unwrap_or_else(|| panic!("no chain for {way}"));
            chain.iter().map(|&name| name.to_owned()).collect()
        }
    };
    chain.extend(["main".to_owned(), "<module>".to_owned()]);
    if minor < 11 {
        for name in &mut chain {
            *name = name.rsplit('.').next().unwrap_or(name).to_owned();
        }
    }
    chain
}

fn is_python(frame: &&Frame) -> bool {
    frame.kind == "cpython"
}

fn name(frame: &Frame) -> &str {
    frame.function.as_deref().unwrap_or("")
}

#[derive(Default)]
struct Verdict {
    exact: usize,
    wrong: BTreeMap<String, usize>,
    by_way: BTreeMap<String, usize>,
    /// Before the first way is called, and after the last one.
    outside: usize,
}

impl Verdict {
    fn add(&mut self, sample: &Sample, minor: u32, source: &[String]) {
        let frames: Vec<&Frame> = sample.frames.iter().filter(is_python).collect();
        let way = frames
            .iter()
            .find(|frame| name(frame).starts_with("by_") && !name(frame).contains('.'));
        let Some(way) = way else {
            // Every thread ends up in the program's own code, but for its start and end.
            self.outside += sample.count;
            return;
        };
        let way = name(way);
        let names: Vec<&str> = frames.iter().map(|frame| name(frame)).collect();
        let expected = expected(way, minor);
        let is_chain = expected.ends_with(
            &names
                .iter()
                .map(|&name| name.to_owned())
                .collect::<Vec<_>>(),
        );
        let wrong_line = frames.iter().skip(1).find(|frame| {
            let (file, line) = &frame.source;
            let text = usize::try_from(*line - 1)
                .ok()
                .and_then(|line| source.get(line));
            file.ends_with("calls.py")
                && name(frame) != "<module>"
                && !text.is_some_and(|text| text.contains("# calls"))
        });
        if is_chain && wrong_line.is_none() {
            self.exact += sample.count;
            *self.by_way.entry(way.to_owned()).or_default() += sample.count;
            return;
        }
        let lines: Vec<String> = frames
            .iter()
            .map(|frame| format!("{}:{}", name(frame), frame.source.1))
            .collect();
        *self.wrong.entry(lines.join(" < ")).or_default() += sample.count;
    }
}

fn of_process(profile: &Profile, pid: u32) -> usize {
    let samples = profile.samples.iter();
    let samples = samples.filter(|sample| sample.pid == pid);
    samples.map(|sample| sample.count).sum()
}

fn judge(profile: &Profile, pid: u32, minor: u32) -> Verdict {
    let text = fs::read_to_string(program()).unwrap();
    let source: Vec<String> = text.lines().map(str::to_owned).collect();
    let mut verdict = Verdict::default();
    let samples = profile.samples.iter().filter(|sample| sample.pid == pid);
    // Before the first table is built nothing can be shown.
    let samples = samples.filter(|sample| sample.end_reason.as_deref() != Some("table_pending"));
    for sample in samples {
        verdict.add(sample, minor, &source);
    }
    verdict
}

fn program() -> PathBuf {
    root().join("tests/ebpf/programs/calls.py")
}

fn check(verdict: &Verdict, what: &str) {
    let wrong: usize = verdict.wrong.values().sum();
    let all = verdict.exact + wrong;
    println!(
        "{what}: {} of {all} exact, {} outside, {:?}",
        verdict.exact, verdict.outside, verdict.by_way
    );
    assert!(
        verdict.exact * 100 >= all * 99,
        "{what}: {wrong} of {all} are wrong: {:#?}",
        verdict.wrong
    );
    assert!(
        verdict.outside * 20 < all,
        "{what}: {} outside",
        verdict.outside
    );
    // Each way has an equal share.
    let share = all / (CHAINS.len() + 1);
    for (way, &count) in &verdict.by_way {
        assert!(
            count * 2 > share && count < share * 2,
            "{what}: {way} has {count}, not {share}"
        );
    }
    assert_eq!(verdict.by_way.len(), CHAINS.len() + 1, "{what}");
}

#[test]
fn every_version_shows_exact_chains() {
    if !can_profile() {
        return;
    }
    let interpreters = interpreters();
    if interpreters.is_empty() {
        skip("no python3.8 to python3.14");
        return;
    }
    for Interpreter { path, minor } in interpreters {
        let what = path.display().to_string();
        let program = program();
        let running = Running::start(&path, &[program.to_str().unwrap(), "60"]);
        let pid = running.pid();
        let profile =
            Profiler::start(99).until(TIMEOUT, |profile| of_process(profile, pid) >= MIN_SAMPLES);
        drop(running);
        check(&judge(&profile, pid, minor), &what);
    }
}
