//! `profcol` without a configuration on an overloaded host.
//!
//! A separate test binary, so that no other test runs next to the busy programs. Needs root.

#![allow(clippy::unwrap_used, reason = "a panic fails the test")]

use std::collections::HashMap;
use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use profcol_pprof::{Limits, read};
use profcol_profile::Model;
use profcol_test_harness::support::{is_root, root, skip};

const PROFCOL: &str = env!("CARGO_BIN_EXE_profcol");
/// Busy programs per CPU.
const BUSY_PER_CPU: usize = 8;
/// Time limit for the first names. At low priority the profiler had none for longer than this.
const NAMES: Duration = Duration::from_secs(60);
/// Minimum profiling time.
const MIN_RUNTIME: Duration = Duration::from_secs(20);
/// Time limit for shutdown; it took 19 to 31 seconds when each queued batch waited for its names.
const END: Duration = Duration::from_secs(12);

/// A program that is killed on drop.
struct Running(Child);

impl Running {
    fn start(command: &mut Command) -> Self {
        Self(command.stdin(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Both fail only if it has already exited.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn can_profile() -> bool {
    match Path::new("/sys/kernel/btf/vmlinux").exists() {
        _ if !is_root() => skip("this is not root"),
        false => skip("the kernel has no type information (BTF)"),
        true => true,
    }
}

fn cpus() -> usize {
    let stat = fs::read_to_string("/proc/stat").unwrap();
    let is_cpu = |line: &&str| line.starts_with("cpu") && !line.starts_with("cpu ");
    stat.lines().filter(is_cpu).count()
}

fn wait_until(what: &str, limit: Duration, is_so: impl Fn() -> bool) -> Duration {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < limit, "{what} took longer than {limit:?}");
        thread::sleep(Duration::from_millis(50));
    }
    began.elapsed()
}

/// CPU time in a file: total, of leaves in the busy executable, and of its named leaves.
#[derive(Default)]
struct Profiled {
    all: Duration,
    busy: Duration,
    busy_named: Duration,
}

impl Profiled {
    fn add(&mut self, model: &Model, executable: &str) {
        let tables = &model.dictionary;
        let scopes = model.resources.iter().flat_map(|row| &row.scopes);
        for profile in scopes.flat_map(|scope| &scope.profiles) {
            let mut is_busy = HashMap::new();
            for sample in profile.samples.iter() {
                let count = u64::try_from(sample.observed()).unwrap();
                let period = u64::try_from(profile.period).unwrap();
                let time = Duration::from_nanos(count * period);
                self.all += time;
                let Some(&leaf) = tables.stacks.get(sample.stack).first() else {
                    continue;
                };
                let row = tables.locations.get(leaf);
                let is_busy = is_busy.entry(row.location.mapping).or_insert_with(|| {
                    let mapping = tables.mappings.get(row.location.mapping).mapping;
                    tables.strings.get(mapping.filename).ends_with(executable)
                });
                if *is_busy {
                    self.busy += time;
                    if !row.lines.is_empty() {
                        self.busy_named += time;
                    }
                }
            }
        }
    }
}

#[test]
fn an_overloaded_host_gets_names_and_a_whole_profile() {
    if !can_profile() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let busy = directory.path().join("busy_program");
    let built = Command::new("cc")
        .args(["-O2", "-g", "-o"])
        .arg(&busy)
        .arg(root().join("tests/ebpf/programs/busy.c"))
        .status();
    assert!(built.unwrap().success());
    let cpus = cpus();
    let mut others = Vec::new();
    for _ in 0..BUSY_PER_CPU * cpus {
        others.push(Running::start(Command::new(&busy).arg("600")));
    }

    let [output, errors] = ["output", "errors"].map(|name| directory.path().join(name));
    let text = |path: &Path| fs::read_to_string(path).unwrap();
    let mut profcol = Running::start(
        Command::new(PROFCOL)
            .args(["--set", "service.telemetry.logs.level=info"])
            .current_dir(directory.path())
            .env("OUTPUT", "profiles")
            .stdout(File::create(&output).unwrap())
            .stderr(File::create(&errors).unwrap()),
    );
    wait_until("starting", NAMES, || {
        text(&errors).contains("Everything is ready")
    });
    let began = Instant::now();
    wait_until("naming", NAMES, || {
        text(&output).contains("  work  [busy_program]")
    });
    thread::sleep(MIN_RUNTIME.saturating_sub(began.elapsed()));

    let profiled = began.elapsed();
    let pid = profcol.0.id().to_string();
    let sent = Command::new("kill").args(["-s", "INT", &pid]).status();
    assert!(sent.unwrap().success());
    let interrupted = Instant::now();
    wait_until("\"writing...\"", END, || {
        text(&errors).lines().any(|line| line == "writing...")
    });
    let ended = loop {
        if let Some(ended) = profcol.0.try_wait().unwrap() {
            break ended;
        }
        assert!(
            interrupted.elapsed() < END,
            "shutdown took longer than {END:?}"
        );
        thread::sleep(Duration::from_millis(20));
    };
    drop(others);
    let (output, errors) = (text(&output), text(&errors));
    assert!(ended.success(), "{errors}");
    assert!(!errors.contains("ERROR"), "{errors}");

    let mut found = Profiled::default();
    for file in fs::read_dir(directory.path().join("profiles")).unwrap() {
        let file = fs::read(file.unwrap().path()).unwrap();
        found.add(&read(&file, Limits::default()).unwrap(), "/busy_program");
    }
    let Profiled {
        all,
        busy,
        busy_named,
    } = found;
    // Every CPU was busy all the time, except for time stolen from the virtual machine.
    let expected = profiled * u32::try_from(cpus).unwrap();
    assert!(
        all > expected.mul_f64(0.7),
        "{all:?} of {expected:?} is in the files\n{output}\n{errors}"
    );
    assert!(busy > all / 10, "{busy:?} of {all:?}\n{output}");
    assert!(
        busy_named > busy.mul_f64(0.9),
        "{busy_named:?} of {busy:?} has names\n{output}"
    );
}
