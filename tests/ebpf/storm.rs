//! Processes that live for milliseconds: too short to be looked up, with one or two samples each.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use profcol_test_harness::profile::{Profile, Sample};
use profcol_test_harness::toolchain::Workshop;

use crate::host::{Profiler, Running, can_profile};

/// Forks and runs one of two programs alternately, for a given time.
const STORM: &str = r#"
end=$(($(date +%s) + $1))
while [ $(date +%s) -lt $end ]; do
  i=0
  while [ $i -lt 50 ]; do
    "$2"
    "$3" -c /etc/passwd > /dev/null
    i=$((i + 1))
  done
done
"#;

/// Far longer than an idle machine needs.
const TIMEOUT: Duration = Duration::from_secs(60);

/// The kernel truncates longer names.
const NAMES: [&str; 2] = ["storm-true", "storm-gzip"];

fn program(name: &str) -> PathBuf {
    ["/usr/bin", "/bin"]
        .iter()
        .map(|directory| Path::new(directory).join(name))
        .find(|path| path.exists())
        .map(|path| fs::canonicalize(path).unwrap())
        .unwrap()
}

fn storm(seconds: u32, programs: [&Path; 2]) {
    let ran = Command::new("sh")
        .args(["-c", STORM, "storm", &seconds.to_string()])
        .args(programs)
        .status()
        .unwrap();
    assert!(ran.success());
}

fn is_user(kind: &str) -> bool {
    !kind.is_empty() && kind != "kernel"
}

/// Whether it is one of the shared objects of every process here.
fn is_library(file: &str) -> bool {
    file.contains("/lib") || file == "[vdso]"
}

#[test]
fn names_processes_that_live_for_milliseconds_and_walks_their_stacks() {
    if !can_profile() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let programs = [program("true"), program("gzip")];
    // Links to the same files, whose tables are already built.
    let [quick, busy] = [0, 1].map(|index| {
        let link = directory.path().join(NAMES[index]);
        symlink(&programs[index], &link).unwrap();
        link
    });
    let profiler = Profiler::start(499);
    storm(3, [&programs[0], &programs[1]]);
    storm(5, [&quick, &busy]);
    let profile = profiler.stop();

    let of_storm: Vec<&Sample> = profile
        .samples
        .iter()
        .filter(|sample| NAMES.contains(&sample.thread_name.as_str()))
        .collect();
    let mut reasons: BTreeMap<&str, usize> = BTreeMap::new();
    for sample in &of_storm {
        let index = usize::from(sample.thread_name == NAMES[1]);
        let own = programs[index].to_str().unwrap();
        let end = sample.end_reason.as_deref().unwrap_or("whole");
        *reasons.entry(end).or_default() += sample.count;
        let is_gone = matches!(end, "exec" | "exit");
        // At the first sample of a process its image may be gone; then only the kernel's name is known.
        assert!(
            sample.executable == own || sample.executable.is_empty() && is_gone,
            "{sample:#?} should be of {own}"
        );
        for frame in sample.frames.iter().filter(|frame| is_user(&frame.kind)) {
            assert!(!is_gone, "{sample:#?} has no image and yet a user stack");
            assert!(
                frame.file == own || is_library(&frame.file),
                "{sample:#?} has a frame of another program"
            );
        }
    }
    let all: usize = reasons.values().sum();
    let gone: usize = ["exec", "exit"]
        .iter()
        .filter_map(|end| reasons.get(end))
        .sum();
    let whole = reasons.get("whole").copied().unwrap_or(0);
    assert!(all >= 100, "only {all} samples: {reasons:?}");
    assert!(
        whole as f64 >= 0.95 * (all - gone) as f64,
        "too few whole stacks: {reasons:?}"
    );
}

#[test]
fn reused_file_numbers_do_not_mix_up_programs() {
    if !can_profile() {
        return;
    }
    const PROGRAMS: usize = 60;
    let workshop = Workshop::open();
    let Some(busy) = workshop.build("busy", "cc -O2 busy.c") else {
        return;
    };
    // Excluded processes, such as those of tests that run at the same time as this one, need no tables.
    let profiler = Profiler::start_with(
        "frequency: 997, max_executables: 64, max_table_memory_mib: 2, include: [{comm: 'copy-*'}]",
    );
    for number in 0..PROGRAMS {
        let copy = workshop.path(&format!("copy-{number}"));
        fs::copy(&busy, &copy).unwrap();
        let ran = Command::new(&copy).arg("0.1").status().unwrap();
        assert!(ran.success());
        // A file number stays in quarantine for ten seconds before reuse.
        thread::sleep(Duration::from_millis(250));
    }
    let profile = profiler.stop();

    let mut met: HashMap<&str, (usize, usize)> = HashMap::new();
    for sample in &profile.samples {
        let Some(number) = sample.thread_name.strip_prefix("copy-") else {
            continue;
        };
        let own = workshop.path(&sample.thread_name);
        let own = own.to_str().unwrap();
        let (whole, all) = met.entry(number).or_default();
        *all += sample.count;
        *whole += sample.count * usize::from(sample.end_reason.is_none());
        for frame in sample.frames.iter().filter(|frame| is_user(&frame.kind)) {
            let is_known = frame.file == own || is_library(&frame.file);
            let is_nameless = frame.file.is_empty() || frame.file == "[unknown]";
            assert!(
                is_known || is_nameless,
                "{sample:#?} has a frame of another program"
            );
        }
    }
    let with_whole = met.values().filter(|(whole, _)| *whole > 0).count();
    // There are more short-lived programs, including the host's, than file numbers: most get one.
    assert!(
        met.len() > PROGRAMS / 2 && with_whole * 2 >= met.len(),
        "{with_whole} of {} programs have whole stacks: {met:?}",
        met.len()
    );
}

/// A new program, while all CPUs are busy.
#[test]
#[expect(clippy::print_stdout, reason = "the figures are of interest")]
fn walks_the_stack_of_a_new_program() {
    if !can_profile() {
        return;
    }
    let workshop = Workshop::open();
    let Some(busy) = workshop.build("busy", "cc -O2 busy.c") else {
        return;
    };
    let mut profiler = Profiler::start(499);
    let _others = [(); 3].map(|()| Running::start(&busy, &["60"]));
    profiler.wait(TIMEOUT, |profile| shares(profile, "busy").0 >= 200);
    let new = workshop.path("new");
    fs::copy(&busy, &new).unwrap();
    let _running = Running::start(&new, &["60"]);
    let profile = profiler.until(TIMEOUT, |profile| shares(profile, "new").0 >= 200);
    let (whole, all) = shares(&profile, "new");
    // One second of CPU time at this frequency has about 500 samples.
    println!("{} samples until the first whole stack", all - whole);
    assert!(whole >= 200, "{whole} of {all} stacks are whole");
}

fn shares(profile: &Profile, name: &str) -> (usize, usize) {
    let (mut whole, mut all) = (0, 0);
    for sample in &profile.samples {
        if sample.thread_name == name {
            all += sample.count;
            whole += sample.count * usize::from(sample.end_reason.is_none());
        }
    }
    (whole, all)
}
