//! .NET methods appear in exact call chains.
//!
//! There is no compiler for .NET here, and no installation: Mono's compiler makes the assembly, which runs in place of the one in
//! published single-file programs with different versions of the runtime.

#![expect(clippy::print_stdout, reason = "the figures are of interest")]

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use profcol_test_harness::backend::wait_until;
use profcol_test_harness::calls::clock::Clock;
use profcol_test_harness::profile::{Profile, Sample};
use profcol_test_harness::support::{root, skip};
use profcol_test_harness::toolchain::Workshop;

use crate::calls::{Calls, chain_of, count, name, names_of, profile_isolated};
use crate::host::{Profiler, Running, can_profile};

/// Enough to sample each chain often.
const MIN_SAMPLES: usize = 700;
/// Far longer than an idle machine needs.
const TIMEOUT: Duration = Duration::from_secs(180);

const KIND: &str = "dotnet";
const PROGRAM: &str = "Calls.cs";
/// The program's name, and its main thread's.
const NAME: &str = "calls";
const ISOLATED: &str = "isolated";
const LATER: &str = "Calls.later";

/// The chains of `Calls.cs`, innermost first, without types.
const CHAINS: &[&[&str]] = &[
    &["burn", "inner", "middle", "by_call"],
    &["burn", "<by_lambda>m__0", "by_lambda"],
    &["burn", "inner", "by_delegate"],
    &["burn", "order", "by_sort"],
    &["burn", "area", "by_interface"],
    &["burn", "ctor", "by_constructor"],
    // Handlers are called by the runtime while the method that has them waits.
    &["burn", "by_exception", "by_exception"],
    &["burn", "by_finally", "by_finally"],
    &["burn", "filters", "by_filter", "by_filter"],
    &["burn", "text", "generic[T]", "by_generics"],
    &["burn", "inner", "generic[T]", "by_generic_values"],
    &["burn", "MoveNext", "by_iterator"],
    &["burn", "inner", "thin_3", "thin_2", "thin_1", "by_thin"],
    &["burn", "large", "by_large_frame"],
    &["burn", "allocate", "by_stack_allocation"],
    &["burn", "MoveNext", "later", "by_async"],
    &["burn", "compare", "by_native"],
    &["burn", "inner", "by_reflection"],
    &["burn", "by_größe"],
];

fn calls(main: &'static [&str]) -> Calls {
    Calls {
        kind: KIND,
        program: PROGRAM,
        // And recursion.
        ways: CHAINS.len() + 1,
        chain: Box::new(move |way| chain_of(way, CHAINS, main)),
        is_of_program: |frame| {
            let name = name(frame);
            name.starts_with("Calls.") && (frame.source.0.ends_with(PROGRAM) || name == LATER)
        },
        name: |name| name.rsplit('.').next().unwrap_or(name),
        // Mono's compiler writes no lines for what begins an async method.
        is_elsewhere: |frame| name(frame) == LATER,
        // Not the runtime's own threads.
        ends: &[],
        flawed: &[],
        lacking: 0,
        is_scheduled: false,
        is_of_thread: |sample| [NAME, ISOLATED].contains(&&*sample.thread_name),
    }
}

/// A published single-file program, whose runtime and libraries are of this version.
struct DotNet {
    version: String,
    host: PathBuf,
}

impl DotNet {
    /// Those below `target/tools/dotnet-*`.
    fn all() -> Vec<Self> {
        let directories = fs::read_dir(root().join("target/tools"));
        let directories = directories.into_iter().flatten().flatten();
        let mut found: Vec<_> = directories
            .filter_map(|directory| {
                let version = directory.file_name().into_string().ok()?;
                Some(Self {
                    version: version.strip_prefix("dotnet-")?.to_owned(),
                    host: largest_file(&directory.path())?,
                })
            })
            .collect();
        found.sort_by_key(Self::major);
        if found.is_empty() {
            skip("no .NET below target/tools");
        }
        found
    }

    fn major(&self) -> u32 {
        let major = self.version.split('.').next();
        major.unwrap().parse().unwrap()
    }

    /// A program that runs the assembly. The libraries of `whole` complete those of trimmed programs.
    fn program(&self, assembly: &Path, whole: &Self, workshop: &Workshop) -> PathBuf {
        let directory = workshop.path(&self.version);
        fs::create_dir_all(&directory).unwrap();
        let program = directory.join(NAME);
        let made = Command::new("python3")
            .arg(root().join("tests/ebpf/programs/dotnet_bundle.py"))
            .args([&self.host, assembly, &program, &whole.host])
            .arg("mscorlib.dll")
            .status();
        assert!(made.unwrap().success());
        program
    }
}

fn largest_file(directory: &Path) -> Option<PathBuf> {
    let mut largest = None;
    let mut directories = vec![directory.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).ok()?.flatten() {
            let kind = entry.file_type().ok()?;
            if kind.is_dir() {
                directories.push(entry.path());
            } else if kind.is_file() {
                let size = entry.metadata().ok()?.len();
                largest = largest.max(Some((size, entry.path())));
            }
        }
    }
    largest.map(|(_, path)| path)
}

/// Compiles a source file; reports what is missing.
fn compile(source: &Path, workshop: &Workshop) -> Option<PathBuf> {
    let assembly = workshop.path("assembly.exe");
    mcs(&["-debug", "-unsafe", "-optimize+"], source, &assembly)?;
    let libraries = ["Mono.Cecil/0.11", "Mono.CompilerServices.SymbolWriter/4"].map(library);
    let [Some(cecil), Some(symbols)] = libraries else {
        skip("no Mono.Cecil: install libmono-cecil-private-cil");
        return None;
    };
    let embed = workshop.path("embed.exe");
    let libraries = [
        "-r:System.Core",
        &format!("-r:{cecil}"),
        &format!("-r:{symbols}"),
    ];
    let programs = root().join("tests/ebpf/programs");
    mcs(&libraries, &programs.join("EmbedLines.cs"), &embed)?;
    let with_lines = workshop.path("with_lines.exe");
    let embedded = Command::new("mono")
        .args([&embed, &assembly, &with_lines])
        .status();
    assert!(embedded.unwrap().success());
    Some(with_lines)
}

fn mcs(options: &[&str], source: &Path, output: &Path) -> Option<()> {
    let compiled = Command::new("mcs")
        .args(options)
        .arg(format!("-out:{}", output.display()))
        .arg(source)
        .status();
    match compiled {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            skip("no mcs: install mono-mcs");
            None
        }
        compiled => {
            assert!(compiled.unwrap().success(), "mcs failed");
            Some(())
        }
    }
}

/// A library of Mono whose directory begins like this.
fn library(directory: &str) -> Option<String> {
    let (name, version) = directory.split_once('/')?;
    let versions = fs::read_dir(Path::new("/usr/lib/mono/gac").join(name)).ok()?;
    let mut versions = versions.flatten();
    let found = versions.find(|it| it.file_name().to_string_lossy().starts_with(version))?;
    Some(format!("{}/{name}.dll", found.path().display()))
}

/// A program of `tests/ebpf/programs` for each version.
fn programs(source: &str, workshop: &Workshop) -> Vec<(String, PathBuf)> {
    let found = DotNet::all();
    // The oldest one is not trimmed.
    let Some(whole) = found.first() else {
        return Vec::new();
    };
    let source = root().join("tests/ebpf/programs").join(source);
    let Some(assembly) = compile(&source, workshop) else {
        return Vec::new();
    };
    let programs = found.iter().map(|it| {
        let program = it.program(&assembly, whole, workshop);
        (it.version.clone(), program)
    });
    programs.collect()
}

fn names(sample: &Sample) -> Vec<&str> {
    names_of(KIND, sample)
}

/// A program that runs until it is dropped.
fn start(program: &Path, variables: &[(&str, &str)], threads: usize) -> (Running, Clock) {
    let clock = Clock::new();
    let running = Command::new(program)
        .arg("200")
        .arg(clock.path())
        .arg(threads.to_string())
        .envs(variables.iter().copied())
        .spawn();
    let running = Running::of(running.unwrap());
    wait_until(&format!("{program:?} to start"), || clock.has_begun());
    (running, clock)
}

/// Begins when the programs in the kernel know the runtime of the process.
struct Settled<'a> {
    program: &'a Path,
    pid: u32,
    /// How often samples with names have arrived.
    arrivals: usize,
    /// Samples before it knew.
    before: usize,
}

impl<'a> Settled<'a> {
    fn new(program: &'a Path, pid: u32) -> Self {
        Self {
            program,
            pid,
            arrivals: 0,
            before: 0,
        }
    }

    fn is_it(&self, sample: &Sample) -> bool {
        // Not the runtime's own threads, whose names differ from the program's.
        self.program.ends_with(&sample.thread_name) && sample.pid == self.pid
    }

    /// Whether there are that many samples since then.
    fn is_enough(&mut self, profile: &Profile, samples: usize) -> bool {
        let is_named =
            |sample: &&Sample| self.is_it(sample) && names(sample).contains(&"Calls.run");
        let (before, after) = profile.samples.split_at(self.before);
        let named = after.iter().filter(is_named);
        let count: usize = named.map(|sample| sample.count).sum();
        if count > 0 && self.arrivals < 2 {
            self.arrivals += 1;
            self.before = before.len() + after.len();
            return false;
        }
        count >= samples
    }

    fn of(&self, profile: &Profile) -> Profile {
        let after = profile.samples.iter().skip(self.before);
        Profile::of(after.filter(|it| self.is_it(it)).cloned().collect())
    }
}

/// Runs the program with each of the settings at the same time.
fn check(version: &str, program: &Path, settings: &[&[(&str, &str)]]) {
    let running: Vec<_> = settings.iter().map(|it| start(program, it, 0)).collect();
    let settled = running
        .iter()
        .map(|(it, _)| Settled::new(program, it.pid()));
    let mut settled: Vec<_> = settled.collect();
    let profile = Profiler::start(199).until(TIMEOUT, |profile| {
        // Each has to see the profile.
        let is_enough: Vec<_> = settled
            .iter_mut()
            .map(|it| it.is_enough(profile, MIN_SAMPLES))
            .collect();
        !is_enough.contains(&false)
    });
    let clocks = running.into_iter().map(|(_, clock)| clock);
    for ((settled, variables), clock) in settled.iter().zip(settings).zip(clocks) {
        let what = format!(".NET {version} {variables:?}");
        let (calls, profile) = (calls(&["run", "Main"]), settled.of(&profile));
        calls.check(&profile, settled.pid, &clock, &what);
        let codes = calls.codes(&profile, settled.pid);
        assert!(codes.contains("jit"), "{what}: {codes:?}");
    }
}

#[test]
fn every_version_shows_exact_chains() {
    if !can_profile() {
        return;
    }
    let workshop = Workshop::open();
    for (version, program) in programs(PROGRAM, &workshop) {
        check(&version, &program, &[&[]]);
    }
}

/// Also before the programs in the kernel know the runtime of the process.
#[test]
fn first_stacks_are_exact_or_incomplete() {
    const MIN_SAMPLES: usize = 200;
    if !can_profile() {
        return;
    }
    let workshop = Workshop::open();
    for (version, program) in programs(PROGRAM, &workshop) {
        // Loops stay in code that replaced other code, which has no frame pointer of its own.
        let (running, _clock) = start(&program, &[("DOTNET_TC_CallCounting", "0")], 0);
        let pid = running.pid();
        let profiler = Profiler::start(499);
        let is_it = |sample: &Sample| sample.pid == pid && names(sample).contains(&"Calls.run");
        let profile = profiler.until(TIMEOUT, |profile| count(profile, is_it) > MIN_SAMPLES);
        drop(running);
        let mut wrong = 0;
        for sample in profile.samples.iter().filter(|sample| is_it(sample)) {
            let names = names(sample);
            // Its caller is never itself.
            wrong += usize::from(names.starts_with(&["Calls.burn", "Calls.burn"])) * sample.count;
        }
        let all = count(&profile, is_it);
        println!(".NET {version}: {wrong} of the first {all} are wrong");
        // Loops that were replaced while they ran: without unwind codes, what they replaced appears too.
        assert!(wrong * 10 <= all, "{wrong} of {all}");
    }
}

/// Settings that select compilers, and what they write.
#[test]
fn every_kind_of_code_shows_exact_chains() {
    if !can_profile() {
        return;
    }
    let workshop = Workshop::open();
    let programs = programs(PROGRAM, &workshop);
    let [(oldest, whole), .., (newest, trimmed)] = &*programs else {
        return;
    };
    let settings: [&[(&str, &str)]; 4] = [
        &[("DOTNET_TieredCompilation", "0")],
        &[("DOTNET_ReadyToRun", "0")],
        &[("DOTNET_EnableWriteXorExecute", "0")],
        &[
            ("DOTNET_OSR_HitLimit", "1"),
            ("DOTNET_TC_OnStackReplacement_InitialCounter", "1"),
        ],
    ];
    check(oldest, whole, &settings);
    let settings: [&[(&str, &str)]; 5] = [
        &[("DOTNET_TieredCompilation", "0")],
        &[("DOTNET_TieredPGO", "0")],
        &[("DOTNET_TC_QuickJit", "0")],
        &[("DOTNET_TC_QuickJitForLoops", "0")],
        // Methods stay as they were compiled first, but for their loops.
        &[("DOTNET_TC_CallCounting", "0")],
    ];
    check(newest, trimmed, &settings);
}

#[test]
fn many_threads_show_exact_chains() {
    const THREADS: usize = 20;
    if !can_profile() {
        return;
    }
    let workshop = Workshop::open();
    // The newest version.
    if let Some((version, program)) = programs(PROGRAM, &workshop).pop() {
        let profiler = Profiler::start(499);
        let (running, _clock) = start(&program, &[], THREADS);
        let pid = running.pid();
        let mut settled = Settled::new(&program, pid);
        let profile = profiler.until(TIMEOUT, |profile| {
            settled.is_enough(profile, 4 * MIN_SAMPLES)
        });
        drop(running);
        let of_all = settled.of(&profile);
        let is_of_main = |sample: &&Sample| names(sample).contains(&"Calls.Main");
        let of_threads = of_all.samples.iter().filter(|it| !is_of_main(it)).cloned();
        let what = format!(".NET {version}, {THREADS} threads");
        calls(&["run", "<>m__0"]).check_chains(&Profile::of(of_threads.collect()), pid, &what);
    }
}

/// Each process burns for a tenth of a second after the runtime has started.
#[test]
fn short_lived_processes_have_names() {
    const CHAIN: [&str; 5] = ["burn", "inner", "middle", "by_call", "Main"];
    if !can_profile() {
        return;
    }
    let workshop = Workshop::open();
    // The newest version.
    if let Some((version, program)) = programs(PROGRAM, &workshop).pop() {
        let profiler = Profiler::start(499);
        let command = "while :; do \"$0\" 1; done";
        let running = Running::start(Path::new("sh"), &["-c", command, program.to_str().unwrap()]);
        let path = program.to_str().unwrap();
        let is_named = |sample: &Sample| {
            let names = names(sample);
            let names = names.iter().filter_map(|name| name.strip_prefix("Calls."));
            sample.executable == path && names.eq(CHAIN)
        };
        let profile = profiler.until(TIMEOUT, |profile| count(profile, is_named) > 300);
        drop(running);
        // The tables of a new file come first, which takes seconds on a busy machine.
        let known = profile.samples.iter().skip_while(|it| !is_named(it));
        let profile = Profile::of(known.cloned().collect());
        let named = count(&profile, is_named);
        // Generated code.
        let nameless = count(&profile, |sample| {
            let innermost = sample.frames.iter().find(|frame| frame.kind != "kernel");
            let is_nameless =
                innermost.is_some_and(|it| it.kind == "native" && it.file.starts_with('['));
            sample.executable == path && is_nameless
        });
        println!(".NET {version}: {named} have names, {nameless} have not");
        assert!(named > 300 && nameless * 20 <= named);
    }
}

#[test]
fn methods_that_come_and_go_do_not_mix_up_names() {
    /// For some tenths of a second, so that addresses are reused after some seconds: methods that have the same address
    /// within one interval have one name.
    const ITERATIONS: &str = "200000000";
    if !can_profile() {
        return;
    }
    let workshop = Workshop::open();
    let mut programs = programs("Churn.cs", &workshop).into_iter();
    // The oldest and the newest version.
    let programs = programs.next().into_iter().chain(programs.next_back());
    for (version, program) in programs {
        let profiler = Profiler::start(499);
        let running = Running::start(&program, &["200", ITERATIONS]);
        let pid = running.pid();
        let is_made = |sample: &Sample| {
            let mut names = names(sample).into_iter();
            sample.pid == pid && names.any(|name| name.starts_with("DynamicClass.made_"))
        };
        let profile = profiler.until(TIMEOUT, |profile| count(profile, is_made) >= 2000);
        drop(running);
        let (mut right, mut wrong, mut nameless) = (0, 0, 0);
        let mut numbers = BTreeSet::new();
        for sample in profile.samples.iter().filter(|sample| sample.pid == pid) {
            let names = names(sample);
            let Some(at) = names.iter().position(|name| name.starts_with("Churn.by_")) else {
                continue;
            };
            let way = names[at].strip_prefix("Churn.by_").unwrap();
            let made = at
                .checked_sub(1)
                .and_then(|at| names[at].strip_prefix("DynamicClass.made_"));
            match made {
                Some(made) if made.parse::<u32>().unwrap() % 5 == way.parse::<u32>().unwrap() => {
                    right += sample.count;
                    numbers.insert(made);
                }
                Some(_) => wrong += sample.count,
                None => nameless += sample.count,
            }
        }
        let found = numbers.len();
        println!(
            ".NET {version}: {right} of {found} methods have the right caller, {wrong} have not, {nameless} were gone"
        );
        assert!(right > 1000 && found > 20 && wrong * 50 <= right);
    }
}

#[test]
fn names_methods_in_another_root_and_pid_namespace() {
    if !can_profile() {
        return;
    }
    let workshop = Workshop::open();
    // The newest version.
    if let Some((version, program)) = programs(PROGRAM, &workshop).pop() {
        let isolated = program.with_file_name(ISOLATED);
        fs::rename(&program, &isolated).unwrap();
        let path = isolated.display();
        let mut settled = None;
        let is_it = |sample: &&Sample| {
            sample.thread_name == ISOLATED && names(sample).contains(&"Calls.run")
        };
        let profile = profile_isolated(&format!("{path} 200 {path}.up 0"), |profile| {
            let pid = profile.samples.iter().find(is_it).map(|it| it.pid);
            let Some(pid) = pid else {
                return false;
            };
            settled
                .get_or_insert_with(|| Settled::new(&isolated, pid))
                .is_enough(profile, MIN_SAMPLES)
        });
        let settled = settled.expect("no samples");
        let what = format!(".NET {version} in namespaces");
        calls(&["run", "Main"]).check_chains(&settled.of(&profile), settled.pid, &what);
    }
}
