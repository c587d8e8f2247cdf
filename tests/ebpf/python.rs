//! Python functions appear in exact call chains.

#![expect(clippy::print_stdout, reason = "the figures are of interest")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use profcol_test_harness::calls::clock::Clock;
use profcol_test_harness::calls::python::{KIND, calls, calls_in_threads};
use profcol_test_harness::installation::Installation;
use profcol_test_harness::profile::Sample;
use profcol_test_harness::support::{root, skip};
use profcol_test_harness::toolchain::Workshop;

use crate::calls::{
    Churn, ShortLived, check_isolated, count, name, names_of, number_after, samples_with_table,
};
use crate::host::{Profiler, Running, can_profile};

const FREQUENCY: u32 = 499;
/// Enough to sample each chain often.
const MIN_SAMPLES: usize = 1000;
/// Far longer than an idle machine needs.
const TIMEOUT: Duration = Duration::from_secs(180);

pub struct Interpreter {
    pub path: PathBuf,
    pub minor: u32,
}

/// Where [`tools`] have a whole Python.
const PACKAGED: &str = "org/bytedeco/cpython/linux-x86_64";

fn tools() -> PathBuf {
    root().join("target/tools")
}

/// A version once from the system, and once from elsewhere.
pub fn interpreters() -> Vec<Interpreter> {
    let packaged = tools().join("python-3.14").join(PACKAGED).join("bin");
    let mut directories = vec![PathBuf::from("/usr/bin"), packaged];
    if let Some(home) = std::env::home_dir() {
        let versions = fs::read_dir(home.join(".pyenv/versions"));
        let versions = versions.into_iter().flatten().flatten();
        directories.extend(versions.map(|version| version.path().join("bin")));
    }
    let mut found = BTreeMap::new();
    for directory in directories {
        for minor in 8..=14 {
            let path = directory.join(format!("python3.{minor}"));
            if path.exists() {
                found.insert((directory.starts_with("/usr"), minor), path);
            }
        }
    }
    let found = found.into_iter();
    found
        .map(|((_, minor), path)| Interpreter { path, minor })
        .collect()
}

fn program() -> PathBuf {
    calls(0).path()
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
    let interpreters = interpreters.into_iter();
    let interpreters = interpreters.map(|it| (Installation::of_this_machine(it.path), it.minor));
    check(&interpreters.collect::<Vec<_>>());
}

/// Installations with their minor version, all at once.
pub fn check(pythons: &[(Installation, u32)]) {
    let program = program();
    let running = pythons.iter().map(|(python, _)| {
        let clock = Clock::new();
        let arguments = [program.to_str().unwrap(), "200"];
        let running = Running::start_installed(&clock, python, &arguments);
        (running, clock)
    });
    let running: Vec<(Running, Clock)> = running.collect();
    let profile = Profiler::start(FREQUENCY).until(TIMEOUT, |profile| {
        running
            .iter()
            .all(|(it, _)| samples_with_table(profile, it.pid()) >= MIN_SAMPLES)
    });
    for ((running, clock), (python, minor)) in running.into_iter().zip(pythons) {
        let pid = running.pid();
        drop(running);
        calls(*minor).check(&profile, pid, &clock, &python.to_string());
    }
}

/// A Python without a global lock: an executable that runs frozen programs, and the modules of the version with a lock.
struct FreeThreaded {
    minor: u32,
    workshop: Workshop,
    executable: PathBuf,
}

impl FreeThreaded {
    /// Those below `target/tools`.
    fn all() -> Vec<Self> {
        let found = [13, 14].into_iter().filter_map(|minor| {
            let executable = Self::libraries(minor).join(format!(
                "../bases/console-cpython-3{minor}t-x86_64-linux-gnu"
            ));
            let workshop = Workshop::open();
            let command = "cc -shared -fPIC -O1 start_python.c -ldl";
            if !executable.exists() || !Self::modules(minor).exists() {
                skip(&format!(
                    "no free-threaded Python 3.{minor} below target/tools"
                ));
                return None;
            }
            workshop.build("start_python.so", command)?;
            Some(Self {
                minor,
                workshop,
                executable,
            })
        });
        found.collect()
    }

    fn modules(minor: u32) -> PathBuf {
        let whole = tools().join(format!("python-3.{minor}")).join(PACKAGED);
        whole.join(format!("lib/python3.{minor}"))
    }

    fn libraries(minor: u32) -> PathBuf {
        tools().join(format!("python-3.{minor}t/freeze_core/lib"))
    }

    /// Arguments of `env` that run this Python with these.
    fn arguments(&self, arguments: &[&str]) -> Vec<String> {
        let (modules, libraries) = (Self::modules(self.minor), Self::libraries(self.minor));
        let mut all = vec![
            format!(
                "LD_PRELOAD={}",
                self.workshop.path("start_python.so").display()
            ),
            // Not the modules of another Python.
            format!("PYTHONHOME={}", self.workshop.path("home").display()),
            format!("PYTHONPATH={}:{}", modules.display(), libraries.display()),
            self.executable.display().to_string(),
        ];
        all.extend(arguments.iter().copied().map(str::to_owned));
        all
    }

    /// `env`, which becomes this Python.
    const PROGRAM: &str = "/usr/bin/env";
}

#[test]
fn free_threaded_builds_show_exact_chains() {
    if !can_profile() {
        return;
    }
    for python in FreeThreaded::all() {
        let what = format!("free-threaded Python 3.{}", python.minor);
        let program = program();
        let clock = Clock::new();
        let arguments = python.arguments(&[program.to_str().unwrap(), "200"]);
        let running = Running::start_with(&clock, FreeThreaded::PROGRAM.as_ref(), &arguments);
        let pid = running.pid();
        let profile = Profiler::start(FREQUENCY).until(TIMEOUT, |profile| {
            clock.has_begun() && samples_with_table(profile, pid) >= MIN_SAMPLES
        });
        drop(running);
        calls(python.minor).check(&profile, pid, &clock, &what);
    }
}

/// Since 3.14 each thread runs instructions of its own.
#[test]
fn threads_without_a_global_lock_show_exact_chains() {
    if !can_profile() {
        return;
    }
    for python in FreeThreaded::all() {
        let what = format!("threads of free-threaded Python 3.{}", python.minor);
        let program = program();
        let arguments = python.arguments(&[program.to_str().unwrap(), "200", "4"]);
        let running = Running::start(FreeThreaded::PROGRAM.as_ref(), &arguments);
        let pid = running.pid();
        let chains = calls_in_threads(python.minor);
        let profile = Profiler::start(FREQUENCY).until(TIMEOUT, |profile| {
            let is_in_thread =
                |it: &Sample| it.pid == pid && (chains.is_of_thread)(it) && !it.is_before_table();
            count(profile, is_in_thread) >= MIN_SAMPLES
        });
        drop(running);
        chains.check_chains(&profile, pid, &what);
    }
}

#[test]
fn short_lived_functions_of_free_threaded_builds_do_not_mix_up_names() {
    if !can_profile() {
        return;
    }
    for python in FreeThreaded::all() {
        // Compiling takes longer than with a lock.
        let churn = CHURN.replace("range(300)", "range(1500)");
        let arguments = python.arguments(&["-c", &churn]);
        check_churn(FreeThreaded::PROGRAM.as_ref(), &arguments);
    }
}

/// Python 3.11 or later, for tests that do not depend on the version.
pub fn any_interpreter() -> Option<Interpreter> {
    let found = interpreters();
    let recent = found.into_iter().rfind(|found| found.minor >= 11);
    if recent.is_none() {
        skip("no python3.11 to python3.14");
    }
    recent
}

/// The names of Python functions, innermost first.
fn names(sample: &Sample) -> Vec<&str> {
    names_of(KIND, sample)
}

#[test]
fn finds_each_of_a_thousand_threads() {
    if !can_profile() {
        return;
    }
    let Some(Interpreter { path, .. }) = any_interpreter() else {
        return;
    };
    let program = program();
    let profiler = Profiler::start(FREQUENCY);
    let running = Running::start(&path, &[program.to_str().unwrap(), "200", "1000"]);
    let pid = running.pid();
    let profile = profiler.until(TIMEOUT, |profile| {
        count(profile, |sample| {
            sample.pid == pid && names(sample).contains(&"in_thread")
        }) > 500
    });
    drop(running);
    // A thread that begins has no such function yet.
    let in_threads = |sample: &&Sample| {
        let names = names(sample);
        sample.pid == pid
            && sample.thread_name != "MainThread"
            && !names.is_empty()
            && (names.contains(&"in_thread") || sample.end_reason.is_some())
    };
    let whole = count(&profile, |sample| {
        in_threads(&sample)
            && names(sample).ends_with(&["Thread._bootstrap_inner", "Thread._bootstrap"])
    });
    let all = count(&profile, |sample| in_threads(&sample));
    let lost = count(&profile, |sample| {
        names(sample).contains(&"[python: unknown thread]")
    });
    println!("{whole} of {all} are whole, {lost} of unknown threads");
    assert!(whole > 400 && whole * 100 >= all * 98, "{whole} of {all}");
}

/// Processes that live for about 50 ms each.
const SHORT: &str = r#"
import os, time
def burn_shortly():
    end = time.thread_time() + 0.05
    while time.thread_time() < end:
        sum(range(100))
start, cpu = time.time_ns(), time.thread_time_ns()
burn_shortly()
cpu = time.thread_time_ns() - cpu
with open(os.environ['PROFCOL_TEST_CLOCK'], 'a') as clock:
    print(os.getpid(), start, time.time_ns(), cpu, cpu, file=clock)
"#;

#[test]
fn processes_that_live_for_50_ms_have_names() {
    if !can_profile() {
        return;
    }
    let Some(Interpreter { path, .. }) = any_interpreter() else {
        return;
    };
    ShortLived {
        kind: KIND,
        command: "\"$0\" -I -S -c \"$1\"",
        program: &path,
        script: SHORT,
        function: "burn_shortly",
        no_name: "[python: no name]",
        is_found_late: false,
    }
    .check();
}

/// The name of each function contains its first line, and each is freed immediately.
const CHURN: &str = "
import time
def make(number):
    source = '\\n' * number + f'def made_{number}():\\n    for i in range(300): i * i\\nmade_{number}()'
    exec(compile(source, 'made.py', 'exec'), {})
end = time.monotonic() + 200
number = 0
while time.monotonic() < end:
    number = (number + 1) % 1000
    make(number)
";

#[test]
fn short_lived_functions_do_not_mix_up_names() {
    if !can_profile() {
        return;
    }
    let Some(Interpreter { path, .. }) = any_interpreter() else {
        return;
    };
    check_churn(&path, &["-c".to_owned(), CHURN.to_owned()]);
}

/// Checks the names of a program that runs [`CHURN`].
fn check_churn(program: &Path, arguments: &[String]) {
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    Churn {
        kind: KIND,
        program,
        arguments: &arguments,
        no_name: "[python: no name]",
    }
    .check(|frames| {
        let made = frames.iter().filter_map(|frame| {
            let number = number_after(name(frame), "made_")?;
            Some((number + 1..=number + 2).contains(&frame.source.1))
        });
        made.reduce(|all, it| all && it)
    });
}

/// The same, but each is on the first line of a file of its own, and has as many instructions as the others.
const CHURN_OF_FILES: &str = "
import time
def make(number):
    source = f'def made_{number:03}():\\n    for i in range(300): i * i\\nmade_{number:03}()'
    exec(compile(source, f'file_{number:03}.py', 'exec'), {})
end = time.monotonic() + 200
number = 0
while time.monotonic() < end:
    number = (number + 1) % 1000
    make(number)
";

#[test]
fn files_of_short_lived_functions_are_not_mixed_up() {
    if !can_profile() {
        return;
    }
    let Some(Interpreter { path, .. }) = any_interpreter() else {
        return;
    };
    Churn {
        kind: KIND,
        program: &path,
        arguments: &["-c", CHURN_OF_FILES],
        no_name: "[python: no name]",
    }
    .check(|frames| {
        let files = frames
            .iter()
            .filter_map(|it| number_after(it.source.0.strip_suffix(".py")?, "file_"));
        let functions = frames
            .iter()
            .filter_map(|it| number_after(name(it), "made_"));
        let numbers: BTreeSet<i64> = files.chain(functions).collect();
        (!numbers.is_empty()).then_some(numbers.len() == 1)
    });
}

#[test]
fn names_functions_in_another_root_and_pid_namespace() {
    if !can_profile() {
        return;
    }
    let Some(Interpreter { path, .. }) = any_interpreter() else {
        return;
    };
    let command = format!("{} {} 200", path.display(), program().display());
    // The code of a module is freed after the import.
    check_isolated(KIND, &command, "[python: no name]", |sample| {
        names(sample).ends_with(&["main", "<module>"])
    });
}

#[test]
fn damage_in_an_interpreter_only_affects_its_frames() {
    if !can_profile() {
        return;
    }
    let workshop = Workshop::open();
    let Some(program) = workshop.build("fake_python", "cc -O1 -g -rdynamic fake_python.c") else {
        return;
    };
    // The frames in place of the loop, innermost first.
    let (nameless, unreadable) = ("[python: no name]", "[python: unreadable]");
    let unknown = "[python: unknown thread]";
    let damages = [
        ("none", &[nameless, nameless][..]),
        ("frame", &[nameless, nameless, unreadable]),
        ("code", &[nameless, unreadable]),
        ("huge", &[nameless, unreadable]),
        ("thread", &[unknown]),
        ("threads", &[unknown]),
        ("cframe", &[unreadable]),
        ("cycle", &[nameless; 100]),
    ];
    let profiler = Profiler::start(FREQUENCY);
    let running = damages.map(|(damage, expected)| {
        let running = Running::start(&program, &[damage]);
        (damage, expected, running)
    });
    let has_frames = |sample: &Sample| !names(sample).is_empty() && !sample.is_before_table();
    let profile = profiler.until(TIMEOUT, |profile| {
        running.iter().all(|(.., running)| {
            let is_its = |sample: &Sample| sample.pid == running.pid() && has_frames(sample);
            count(profile, is_its) > 50
        })
    });
    for (damage, expected, running) in running {
        let samples = profile.samples.iter();
        let samples = samples.filter(|it| it.pid == running.pid() && has_frames(it));
        let mut checked = 0;
        for sample in samples {
            checked += sample.count;
            let names = names(sample);
            if damage == "cycle" {
                assert!(
                    names.len() > 250 && names.starts_with(expected),
                    "{}",
                    names.len()
                );
                assert_eq!(sample.end_reason.as_deref(), Some("truncated"));
            } else {
                assert_eq!(names, expected, "{damage}");
                assert_eq!(sample.end_reason, None, "{damage}: {sample:?}");
            }
        }
        assert!(checked > 20, "{damage}: {checked}");
    }
}

/// An idle subinterpreter, and a running one.
const SUBINTERPRETERS: &str = "
try:
    import _interpreters as subinterpreters
except ImportError:
    import _xxsubinterpreters as subinterpreters
import time
source = '''
import time
def burn_inside():
    end = time.thread_time() + 0.2
    while time.thread_time() < end:
        sum(range(100))
burn_inside()
'''
def burn_beside():
    end = time.thread_time() + 0.2
    while time.thread_time() < end:
        sum(range(100))
idle = subinterpreters.create()
busy = subinterpreters.create()
run = getattr(subinterpreters, 'run_string', None) or subinterpreters.exec
while True:
    burn_beside()
    run(busy, source)
";

#[test]
fn shows_frames_of_subinterpreters() {
    if !can_profile() {
        return;
    }
    let profiler = Profiler::start(FREQUENCY);
    let interpreters = interpreters().into_iter().filter(|it| it.minor >= 9);
    let running = interpreters.map(|it| {
        let running = Running::start(&it.path, &["-c", SUBINTERPRETERS]);
        (it.path, running)
    });
    let running: Vec<(PathBuf, Running)> = running.collect();
    let profile = profiler.until(TIMEOUT, |profile| {
        running
            .iter()
            .all(|(_, it)| samples_with_table(profile, it.pid()) > 600)
    });
    for (path, running) in running {
        let pid = running.pid();
        drop(running);
        let of = |function: &str| {
            count(&profile, |sample| {
                sample.pid == pid
                    && sample.end_reason.is_none()
                    && names(sample).contains(&function)
            })
        };
        let (inside, beside) = (of("burn_inside"), of("burn_beside"));
        // The module of the subinterpreter, and below it that of the program.
        let is_whole = |sample: &Sample| {
            let names = names(sample);
            let modules = names.iter().filter(|&&name| name == "<module>").count();
            names.contains(&"burn_inside") && modules == 2 && sample.end_reason.is_none()
        };
        let whole = count(&profile, |sample| sample.pid == pid && is_whole(sample));
        println!(
            "{}: {inside} inside, {whole} of them whole, {beside} beside",
            path.display()
        );
        assert!(inside > 150 && beside > 150, "{inside}, {beside}");
        assert!(whole * 100 >= inside * 99, "{whole} of {inside}");
    }
}
