//! Interpreted functions between native ones: their order, and what the option `interpreter_frames` shows.

#![expect(clippy::print_stdout, reason = "the figures are of interest")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use profcol_test_harness::calls::{self, python::KIND};
use profcol_test_harness::profile::{Frame, Profile, Sample, Symbols};
use profcol_test_harness::support::skip;
use profcol_test_harness::toolchain::Workshop;

use crate::calls::{Calls, count, name, samples_with_table};
use crate::host::{Profiler, Running, can_profile};
use crate::{java, javascript, python};

/// Far longer than an idle machine needs.
const TIMEOUT: Duration = Duration::from_secs(180);

/// Three calls from Python to C and back, two of them below each other.
const MIXED: &str = "
import importlib.machinery, importlib.util, sys, time
loader = importlib.machinery.ExtensionFileLoader('mixed', sys.argv[1])
mixed = importlib.util.module_from_spec(importlib.util.spec_from_loader('mixed', loader))
loader.exec_module(mixed)
def burn():
    end = time.thread_time() + 0.02
    while time.thread_time() < end:
        for number in range(200):
            number * number
def sorted_by():
    burn()
def in_turn():
    mixed.order(sorted_by)
def once():
    burn()
def twice():
    mixed.enter(once)
def plain():
    twice()
def main():
    while True:
        mixed.enter(in_turn)
        mixed.enter(plain)
main()
";
/// Innermost first, functions of the extension with an asterisk.
const CHAINS: [&str; 2] = [
    "burn sorted_by *c_compare (libc) *c_order in_turn *c_inner *c_middle *c_enter main <module>",
    "burn once *c_inner *c_middle *c_enter twice plain *c_inner *c_middle *c_enter main <module>",
];

/// The folder with the headers of this Python.
fn headers(python: &Path) -> Option<String> {
    let script = "import sysconfig; print(sysconfig.get_paths()['include'])";
    let output = Command::new(python).args(["-c", script]).output().ok()?;
    let folder = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    let found = Path::new(&folder).join("Python.h").exists();
    found.then_some(folder)
}

#[test]
fn functions_of_an_extension_keep_their_place_between_those_of_python() {
    if !can_profile() {
        return;
    }
    let workshop = Workshop::open();
    let mut running = Vec::new();
    for found in python::interpreters() {
        let Some(headers) = headers(&found.path) else {
            continue;
        };
        let command = format!("cc -O2 -g -shared -fPIC -I{headers} mixed.c");
        let library = format!("mixed-{}.so", running.len());
        let Some(extension) = workshop.build(&library, &command) else {
            return;
        };
        let arguments = ["-c", MIXED, extension.to_str().unwrap()];
        let process = Running::start(&found.path, &arguments);
        running.push((found.path.display().to_string(), extension, process));
    }
    if running.is_empty() {
        skip("no Python with headers: install python3-dev");
        return;
    }
    let profile = Profiler::start(499).until(TIMEOUT, |profile| {
        running
            .iter()
            .all(|(.., process)| samples_with_table(profile, process.pid()) >= 500)
    });
    for (python, extension, process) in running {
        check_order(&profile, process.pid(), &extension, &python);
    }
}

fn check_order(profile: &Profile, pid: u32, extension: &Path, what: &str) {
    let mut symbols = Symbols::read(extension);
    let (mut exact, mut partial, mut wrong) = ([0; 2], 0, BTreeMap::<String, usize>::new());
    for sample in profile.samples.iter().filter(|sample| sample.pid == pid) {
        if sample.is_before_table() {
            continue;
        }
        let frames = sample.frames.iter();
        let mut shown: Vec<String> = frames.filter_map(|it| shown(it, &mut symbols)).collect();
        shown.dedup_by(|one, other| one == C_LIBRARY && other == C_LIBRARY);
        // What the innermost function calls, and what starts the program.
        let shown: Vec<&str> = shown.iter().map(String::as_str).collect();
        let is_library = |&&it: &&&str| it == C_LIBRARY;
        let inside = shown.iter().take_while(is_library).count();
        let outside = shown.iter().rev().take_while(is_library).count();
        let shown = shown
            .get(inside..shown.len() - outside)
            .unwrap_or_default()
            .join(" ");
        let is_whole = sample.end_reason.is_none();
        if let Some(chain) = CHAINS.iter().position(|&chain| is_whole && chain == shown) {
            exact[chain] += sample.count;
        } else if is_whole && CHAINS.iter().any(|chain| chain.ends_with(&shown)) {
            partial += sample.count;
        } else {
            *wrong.entry(shown).or_default() += sample.count;
        }
    }
    let all = exact.iter().sum::<usize>() + partial + wrong.values().sum::<usize>();
    println!("{what}: {exact:?} of {all} exact, {partial} outside of burn, {wrong:?} wrong");
    assert!(
        exact.iter().all(|&it| it * 3 > all),
        "{what}: {exact:?} of {all}"
    );
    let right = exact.iter().sum::<usize>();
    assert!(
        right * 100 >= all * 99,
        "{what}: {right} of {all}, {partial}: {wrong:#?}"
    );
}

const C_LIBRARY: &str = "(libc)";

/// Functions of Python and of the extension, and the C library between them.
fn shown(frame: &Frame, symbols: &mut Symbols) -> Option<String> {
    if frame.kind == KIND {
        return Some(name(frame).to_owned());
    }
    if frame.file.contains("/libc.so") {
        return Some(C_LIBRARY.to_owned());
    }
    symbols.name(frame).map(|name| format!("*{name}"))
}

/// A program of the chains whose functions are interpreted.
struct Subject {
    what: &'static str,
    calls: Calls,
    running: Running,
    /// Native frames between the five functions of `by_call` that `show` adds: none if one native frame runs them all.
    between: usize,
}

impl Subject {
    fn all(workshop: &Workshop) -> Vec<Self> {
        let mut found = Vec::new();
        if let Some(python) = python::any_interpreter() {
            let calls = calls::python::calls(python.minor);
            let path = calls.path();
            found.push(Self {
                what: "CPython",
                calls,
                running: Running::start(&python.path, &[path.to_str().unwrap(), "200"]),
                between: 0,
            });
        }
        if let Some(node) = javascript::any_node() {
            let calls = calls::javascript::calls();
            let path = calls.path();
            found.push(Self {
                what: "V8",
                calls,
                running: Running::start(&node, &["--jitless", path.to_str().unwrap(), "200"]),
                between: 4,
            });
        }
        if let Some(classes) = java::classes(workshop) {
            let arguments = ["-Xint", "-cp", classes.to_str().unwrap(), "Calls", "200"];
            found.push(Self {
                what: "HotSpot",
                calls: java::calls(),
                running: Running::of(
                    java::javas()
                        .remove(0)
                        .command()
                        .args(arguments)
                        .spawn()
                        .unwrap(),
                ),
                between: 4,
            });
        }
        found
    }

    /// For a whole stack in `by_call`: the frames between its functions, and those below them.
    fn around(&self, sample: &Sample) -> Option<(usize, usize)> {
        let is_program =
            |frame: &Frame| frame.kind == self.calls.kind && (self.calls.is_of_program)(frame);
        let places = sample.frames.iter().enumerate();
        let places = places.filter(|(_, frame)| is_program(frame));
        let (places, frames): (Vec<usize>, Vec<&Frame>) = places.unzip();
        let names = frames
            .iter()
            .map(|it| (self.calls.name)(name(it)).to_owned());
        let is_it = sample.pid == self.running.pid() && sample.end_reason.is_none();
        if !is_it || !names.eq((self.calls.chain)("by_call")) {
            return None;
        }
        let (first, last) = (places.first()?, places.last()?);
        let between = (last - first + 1) - places.len();
        Some((between, sample.frames.len() - 1 - last))
    }
}

#[test]
fn native_frames_of_interpreters_are_hidden_or_shown() {
    const MIN_SAMPLES: usize = 30;
    if !can_profile() {
        return;
    }
    let workshop = Workshop::open();
    let subjects = Subject::all(&workshop);
    let seen = ["hide", "show"].map(|mode| {
        let options = format!("frequency: 499, interpreter_frames: {mode}");
        let profile = Profiler::start_with(&options).until(TIMEOUT, |profile| {
            let is_enough =
                |it: &Subject| count(profile, |sample| it.around(sample).is_some()) >= MIN_SAMPLES;
            subjects.iter().all(is_enough)
        });
        let seen = subjects.iter().map(|it| {
            let samples = profile.samples.iter();
            let around: BTreeSet<_> = samples.filter_map(|sample| it.around(sample)).collect();
            around
        });
        seen.collect::<Vec<_>>()
    });
    let [hidden, shown] = seen;
    for ((it, hidden), shown) in subjects.iter().zip(hidden).zip(shown) {
        println!(
            "{}: frames between and below {hidden:?}; with all: {shown:?}",
            it.what
        );
        let only = |seen: &BTreeSet<(usize, usize)>| match Vec::from_iter(seen)[..] {
            [only] => *only,
            _ => panic!("{}: {seen:?}", it.what),
        };
        let (hidden, shown) = (only(&hidden), only(&shown));
        assert_eq!((hidden.0, shown.0), (0, it.between), "{}", it.what);
        // What enters the interpreter.
        assert!(shown.1 > hidden.1, "{}", it.what);
    }
}
