//! Runtimes of versions that profcol does not know are named as such and show native frames. A process that changes its
//! runtime's data affects no other process.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use object::{Object, ObjectSection, ObjectSymbol};
use profcol_test_harness::backend::wait_until;
use profcol_test_harness::calls::clock::Clock;
use profcol_test_harness::peers::{Process, free_address, get};
use profcol_test_harness::profile::{Profile, Sample};
use profcol_test_harness::support::{run, skip};
use profcol_test_harness::toolchain::Workshop;
use serde_json::Value;

use crate::calls::{count, names_of};
use crate::host::{PROFCOL, Profiler, Running, can_profile};
use crate::java::classes;

const TIMEOUT: Duration = Duration::from_secs(60);
/// Processes of each file.
const PROCESSES: usize = 10;
const KINDS: [&str; 2] = ["cpython", "jvm"];

/// A profiler of the whole host that serves its metrics.
struct Observed {
    process: Process,
    metrics: SocketAddr,
    file: PathBuf,
}

impl Observed {
    fn start(folder: &Path) -> Self {
        let metrics = free_address();
        let file = folder.join("profiles.jsonl");
        let config = format!(
            "
receivers: {{ebpf_cpu: {{interval: 500ms, frequency: 99}}}}
exporters: {{file: {{path: {}}}}}
service:
  telemetry:
    metrics: {{readers: [{{pull: {{exporter: {{prometheus: {{host: {}, port: {}}}}}}}}}]}}
    logs: {{level: info, sampling: {{enabled: false}}}}
  pipelines:
    profiles: {{receivers: [ebpf_cpu], exporters: [file]}}
",
            file.display(),
            metrics.ip(),
            metrics.port()
        );
        let mut process = Process::start_as(&mut Command::new(PROFCOL), &[], &config);
        process.wait_for_output("to be ready", |said| said.contains("Everything is ready"));
        Self {
            process,
            metrics,
            file,
        }
    }

    /// The number of files that are counted as this.
    fn interpreters(&self, outcome: &str, runtime: &str, version: &str) -> u64 {
        let text = get(self.metrics, "/metrics");
        let mut series = text
            .lines()
            .filter(|line| line.starts_with("profcol_ebpf_cpu_interpreters{"));
        let labels = [
            ("outcome", outcome),
            ("runtime", runtime),
            ("version", version),
        ];
        let found = series.find(|line| {
            let mut labels = labels.iter();
            labels.all(|(key, value)| line.contains(&format!("{key}=\"{value}\"")))
        });
        found.map_or(0, |line| line.rsplit(' ').next().unwrap().parse().unwrap())
    }

    fn wait_for_samples(&self, pids: &[u32]) -> Profile {
        let mut profile = Profile::default();
        wait_until("samples of each process", || {
            profile.read_on(&self.file);
            pids.iter().all(|&pid| {
                let is_of = |sample: &Sample| sample.pid == pid && !sample.is_before_table();
                count(&profile, is_of) > 20
            })
        });
        profile
    }

    /// Log lines of unsupported interpreters with this text.
    fn refusals(&self, text: &str) -> usize {
        let said = self.process.output();
        let lines = said.lines();
        lines
            .filter(|line| line.contains("Interpreter not supported") && line.contains(text))
            .count()
    }
}

/// What `profcol processes` says of one.
pub fn described(pid: u32) -> Value {
    let pid = pid.to_string();
    let ended = run(&["processes", "--pid", &pid, "--format", "json"]);
    let known: Value = serde_json::from_str(&ended.stdout).unwrap();
    known[&pid].clone()
}

fn check(
    programs: &[Running],
    observed: &Observed,
    (runtime, version): (&str, &str),
    expected: &str,
) {
    let pids: Vec<u32> = programs.iter().map(Running::pid).collect();
    let profile = observed.wait_for_samples(&pids);
    for sample in profile.samples.iter().filter(|it| pids.contains(&it.pid)) {
        for kind in KINDS {
            let names = names_of(kind, sample);
            assert!(names.is_empty(), "{sample:?}");
        }
    }
    // Its samples may come before its library is read.
    wait_until("the runtime to be counted", || {
        observed.interpreters("unsupported", runtime, version) == 1
    });
    assert_eq!(observed.interpreters("supported", runtime, version), 0);
    assert_eq!(
        observed.refusals(expected),
        1,
        "{}",
        observed.process.output()
    );
    let described = described(pids[0]);
    assert_eq!(described["process.runtime.version"], version, "{described}");
    let unsupported = described["profcol.runtime.unsupported"].as_str();
    assert!(
        unsupported.is_some_and(|it| it.contains(expected)),
        "{described}"
    );
}

#[test]
fn a_python_of_an_unknown_version_shows_native_frames() {
    if !can_profile() {
        return;
    }
    let workshop = Workshop::open();
    let command = "cc -O1 -g -rdynamic -DVERSION=0x030f00f0 fake_python.c";
    let Some(program) = workshop.build("python3.15", command) else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let observed = Observed::start(folder.path());
    let programs: Vec<Running> = (0..PROCESSES)
        .map(|_| Running::start_nicely(&program, &["none"]))
        .collect();
    let expected = "Python 3.15.0 is not supported: this version of profcol supports 3.8 to 3.14";
    check(&programs, &observed, ("python", "3.15.0"), expected);
}

/// The newest JDK, as the folder with its files.
fn jdk() -> Option<PathBuf> {
    let folders = fs::read_dir("/usr/lib/jvm").into_iter().flatten().flatten();
    let folders = folders.map(|folder| folder.path());
    let mut jdks: Vec<PathBuf> = folders
        .filter(|folder| !folder.is_symlink() && library(folder).exists())
        .collect();
    jdks.sort();
    if jdks.is_empty() {
        skip("no JDK below /usr/lib/jvm");
    }
    jdks.pop()
}

fn library(jdk: &Path) -> PathBuf {
    jdk.join("lib/server/libjvm.so")
}

/// Starts the program, and waits until it is busy.
fn start_java(java: &Path, classes: &Path) -> Running {
    let clock = Clock::new();
    let arguments = ["-Xmx32m", "-cp", classes.to_str().unwrap(), "Calls", "200"];
    let running = Running::start_with(&clock, java, &arguments);
    wait_until(&format!("{java:?} to start"), || clock.has_begun());
    running
}

/// Links everything in a folder but one file or folder.
fn link_all_but(except: &str, from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        if entry.file_name() != except {
            symlink(entry.path(), to.join(entry.file_name())).unwrap();
        }
    }
}

/// The same JDK, whose runtime says that it is of another version. None if it has no symbols.
fn with_version(jdk: &Path, major: u8, to: &Path) -> Option<()> {
    let mut contents = fs::read(library(jdk)).unwrap();
    let file = object::File::parse(&*contents).unwrap();
    let symbol = file.symbols().find(|symbol| {
        let name = symbol.name();
        name.is_ok_and(|name| name.ends_with("_vm_major_versionE"))
    });
    let Some(symbol) = symbol else {
        skip("the JDK's runtime has no symbols");
        return None;
    };
    let section = file.section_by_index(symbol.section_index()?).unwrap();
    let (start, _) = section.file_range()?;
    let place = start + symbol.address() - section.address();
    contents[place as usize] = major;
    link_all_but("lib", jdk, to);
    // The launcher looks for the library beside itself.
    fs::remove_file(to.join("bin")).unwrap();
    link_all_but("java", &jdk.join("bin"), &to.join("bin"));
    fs::copy(jdk.join("bin/java"), to.join("bin/java")).unwrap();
    link_all_but("server", &jdk.join("lib"), &to.join("lib"));
    link_all_but("libjvm.so", &jdk.join("lib/server"), &to.join("lib/server"));
    fs::write(library(to), contents).unwrap();
    Some(())
}

#[test]
fn a_jvm_of_an_unknown_version_shows_native_frames() {
    if !can_profile() {
        return;
    }
    let workshop = Workshop::open();
    let (Some(jdk), Some(classes)) = (jdk(), classes(&workshop)) else {
        return;
    };
    let unknown = workshop.path("jdk-99");
    if with_version(&jdk, 99, &unknown).is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let observed = Observed::start(folder.path());
    let programs: Vec<Running> = (0..2)
        .map(|_| start_java(&unknown.join("bin/java"), &classes))
        .collect();
    let described = described(programs[0].pid());
    let version = described["process.runtime.version"].as_str();
    let version = version.filter(|it| it.starts_with("99.0."));
    let version = version.unwrap_or_else(|| panic!("{described}"));
    let expected = format!("HotSpot {version} is not supported: only JDK 8 to 25 are supported");
    check(&programs, &observed, ("java", version), &expected);
}

/// Before the fix, the first process of a file decided how all others are read.
#[test]
fn a_process_that_changes_the_tables_of_its_jvm_hides_no_other() {
    if !can_profile() {
        return;
    }
    let workshop = Workshop::open();
    let Some(hostile) = workshop.build("hostile_jvm", "cc -O1 -g hostile_jvm.c -ldl") else {
        return;
    };
    let (Some(jdk), Some(classes)) = (jdk(), classes(&workshop)) else {
        return;
    };
    let library = library(&jdk);
    for change in ["stride", "table", "empty", "offsets", "heaps"] {
        let mut profiler = Profiler::start_talkative("frequency: 299");
        let hostile = Running::start_nicely(&hostile, &[library.to_str().unwrap(), change]);
        // Time for several attempts to read it.
        profiler.wait(TIMEOUT, |profile| {
            count(profile, |sample| sample.pid == hostile.pid()) > 100
        });
        let java = start_java(&jdk.join("bin/java"), &classes);
        let is_named = |sample: &Sample| {
            sample.pid == java.pid() && names_of("jvm", sample).contains(&"Calls.main")
        };
        profiler.wait(TIMEOUT, |profile| count(profile, is_named) > 300);
        let profile = profiler.stop();
        let named = count(&profile, is_named);
        assert!(named > 300, "{change}: {named}");
        let of_hostile = |sample: &Sample| sample.pid == hostile.pid();
        assert!(count(&profile, of_hostile) > 100, "{change}");
        let hostile_names = profile.samples.iter().filter(|it| of_hostile(it));
        for sample in hostile_names {
            assert!(names_of("jvm", sample).is_empty(), "{change}: {sample:?}");
        }
    }
}
