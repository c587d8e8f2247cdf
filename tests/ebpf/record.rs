//! `profcol record`: one profile, of a command, a process or the host.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{MetadataExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output};
use std::thread::sleep;
use std::time::{Duration, Instant};

use profcol_test_harness::backend::wait_until;
use profcol_test_harness::cgroup::Cgroup;
use profcol_test_harness::profile::Profile;
use profcol_test_harness::support::NOBODY;
use profcol_test_harness::toolchain::Workshop;
use serde_json::{Value, json};

use crate::host::{PROFCOL, Profiler, Running, can_profile, on_a_terminal};

/// Takes about a second: an idle host has no samples.
const BUSY_SHELL: &str = "i=0; while [ $i -lt 1000000 ]; do i=$((i+1)); done";

/// Runs in `directory`, since the output goes to the current directory.
fn record(directory: &Path, arguments: &[&str]) -> Output {
    Command::new(PROFCOL)
        .arg("record")
        .args(arguments)
        .current_dir(directory)
        .output()
        .unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Stacks with their values.
fn stacks(file: &Path) -> Vec<(String, u64)> {
    let text = fs::read_to_string(file).unwrap();
    let line = |line: &str| {
        let (stack, value) = line.rsplit_once(' ')?;
        Some((stack.to_owned(), value.parse().ok()?))
    };
    text.lines().filter_map(line).collect()
}

#[test]
fn records_a_command_and_its_children() {
    if !can_profile() {
        return;
    }
    let workshop = Workshop::open();
    let Some(busy) = workshop.build("busy", "cc -O2 -g busy.c") else {
        return;
    };
    // A program that must not be recorded.
    let _other = Running::start_nicely(&busy, &["60"]);
    let folder = tempfile::tempdir().unwrap();
    let script = format!("{} 2; (exec {} 1); exit 7", busy.display(), busy.display());
    let ended = record(
        folder.path(),
        &["-o", "$a.folded", "--", "sh", "-c", &script],
    );
    assert_eq!(ended.status.code(), Some(7), "{}", stderr(&ended));
    let stacks = stacks(&folder.path().join("$a.folded"));
    let total = |of: &dyn Fn(&str) -> bool| {
        let fitting = stacks.iter().filter(|(stack, _)| of(stack));
        fitting.map(|(_, value)| value).sum::<u64>() as f64 / 1e9
    };
    let work = total(&|stack| stack.contains("main;work_until;work"));
    assert!((2.0..4.0).contains(&work), "{work} s of 3 s: {stacks:?}");
    // In addition to the shell and the loader.
    assert!(total(&|_| true) < work + 1.5, "{stacks:?}");
    let output = stderr(&ended);
    assert!(
        output.contains("a.folded: ") && output.contains(", 0 lost, "),
        "{output}"
    );
}

#[test]
fn records_a_process_for_a_limited_time() {
    if !can_profile() {
        return;
    }
    let workshop = Workshop::open();
    let Some(busy) = workshop.build("busy", "cc -O2 -g busy.c") else {
        return;
    };
    let running = Running::start_nicely(&busy, &["60"]);
    let _other = Running::start_nicely(&busy, &["60"]);
    let folder = tempfile::tempdir().unwrap();
    let pid = running.pid().to_string();
    // Unit tests cover the other formats.
    for file in ["profile.html", "a.pb.gz"] {
        let ended = record(folder.path(), &["-d", "2", "-p", &pid, "-o", file]);
        assert!(ended.status.success(), "{}", stderr(&ended));
        let converted = Command::new(PROFCOL)
            .args(["convert", file, "again.folded"])
            .current_dir(folder.path())
            .output()
            .unwrap();
        if file.ends_with(".pb.gz") || file.ends_with(".otlp") {
            assert!(converted.status.success(), "{}", stderr(&converted));
            let stacks = stacks(&folder.path().join("again.folded"));
            let total: u64 = stacks.iter().map(|(_, value)| value).sum();
            // One process with one thread.
            assert!(total < 3_500_000_000, "{stacks:?}");
            assert!(
                stacks
                    .iter()
                    .any(|(stack, _)| stack.ends_with("main;work_until;work")),
                "{stacks:?}"
            );
        } else {
            let text = fs::read_to_string(folder.path().join(file)).unwrap();
            assert!(text.contains("work_until"), "{file}");
        }
    }
}

/// The processes of a recording with these options. Each is busy, at low priority.
fn recorded(options: &[&str]) -> BTreeSet<u32> {
    let folder = tempfile::tempdir().unwrap();
    let arguments = [options, &["-d", "3", "-o", "a.otlp.json"]].concat();
    let ended = record(folder.path(), &arguments);
    assert!(ended.status.success(), "{options:?}: {}", stderr(&ended));
    let text = fs::read_to_string(folder.path().join("a.otlp.json")).unwrap();
    let profile: Value = serde_json::from_str(&text).unwrap();
    let dictionary = &profile["dictionary"];
    let strings = dictionary["stringTable"].as_array().unwrap();
    let key = strings.iter().position(|it| it == "process.pid");
    // No file has an attribute that no sample has.
    let attributes = dictionary["attributeTable"].as_array().unwrap().iter();
    let pids = attributes.filter(|it| it["keyStrindex"].as_u64() == key.map(|key| key as u64));
    let pid = |it: &Value| it["value"]["intValue"].as_str()?.parse().ok();
    pids.map(|it| pid(it).unwrap()).collect()
}

#[test]
fn records_the_processes_with_a_name() {
    if !can_profile() {
        return;
    }
    let workshop = Workshop::open();
    let Some(busy) = workshop.build("busy", "cc -O2 -g busy.c") else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    // At most 15 characters, and not those of another test's.
    let own = format!("rec{}", std::process::id());
    let [web, worker, other] = ["-web", "-worker", ""].map(|suffix| {
        let name = format!("{own}{suffix}");
        let program = folder.path().join(&name);
        fs::copy(&busy, &program).unwrap();
        (name, Running::start_nicely(&program, &["60"]))
    });
    let all_of_them = format!("{own}-*");
    let other_pid = other.1.pid().to_string();
    let [web_pid, worker_pid] = [&web, &worker].map(|(_, running)| running.pid());
    for (options, expected) in [
        (vec!["--comm", &web.0], vec![web_pid]),
        (vec!["--comm", &all_of_them], vec![web_pid, worker_pid]),
        (
            vec!["--comm", &web.0, "--comm", &worker.0],
            vec![web_pid, worker_pid],
        ),
        // A process that any of them selects.
        (
            vec!["--comm", &web.0, "-p", &other_pid],
            vec![web_pid, other.1.pid()],
        ),
    ] {
        let expected: BTreeSet<u32> = expected.into_iter().collect();
        assert_eq!(recorded(&options), expected, "{options:?}");
    }
    let nobody = record(
        folder.path(),
        &["-d", "1", "--comm", "nobody-has-this", "-o", "a.folded"],
    );
    assert_eq!(nobody.status.code(), Some(1), "{}", stderr(&nobody));
    assert!(stderr(&nobody).contains("no samples"));
}

#[test]
fn records_the_processes_in_a_cgroup() {
    if !can_profile() {
        return;
    }
    let Some(cgroup) = Cgroup::new("record") else {
        return;
    };
    let workshop = Workshop::open();
    let Some(busy) = workshop.build("busy", "cc -O2 -g busy.c") else {
        return;
    };
    let inside = cgroup
        .command(Path::new("nice"))
        .arg(&busy)
        .arg("60")
        .spawn();
    let inside = Running::of(inside.unwrap());
    let _outside = Running::start_nicely(&busy, &["60"]);
    let path = format!("/profcol-test-record-{}", std::process::id());
    for options in [["--cgroup", &path], ["--cgroup", &format!("*{path}")]] {
        let expected = BTreeSet::from([inside.pid()]);
        assert_eq!(recorded(&options), expected, "{options:?}");
    }
}

/// A recording in the background.
struct Recording {
    process: Child,
    errors: PathBuf,
}

impl Recording {
    /// Waits until it records.
    fn start(directory: &Path, arguments: &[&str]) -> Self {
        let errors = directory.join("stderr");
        let process = Command::new(PROFCOL)
            .args(["record", "--set", "service.telemetry.logs.level=info"])
            .args(arguments)
            .current_dir(directory)
            .stderr(fs::File::create(&errors).unwrap())
            .spawn();
        let recording = Self {
            process: process.unwrap(),
            errors,
        };
        recording.wait_for("Everything is ready");
        recording
    }

    fn stderr(&self) -> String {
        fs::read_to_string(&self.errors).unwrap()
    }

    fn wait_for(&self, text: &str) {
        wait_until(text, || self.stderr().contains(text));
    }

    fn interrupt(&self) {
        let pid = self.process.id().to_string();
        let sent = Command::new("kill").args(["-s", "INT", &pid]).status();
        assert!(sent.unwrap().success());
    }

    /// The exit code, and what it wrote to stderr.
    fn ended(mut self) -> (Option<i32>, String) {
        let code = self.process.wait().unwrap().code();
        (code, self.stderr())
    }
}

/// Of a test that fails meanwhile.
impl Drop for Recording {
    fn drop(&mut self) {
        // Both fail only if it has already exited.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A program that is busy for longer than a test, and where it is.
fn busy() -> Option<(Workshop, Running)> {
    let workshop = Workshop::open();
    let program = workshop.build("busy", "cc -O2 -g busy.c")?;
    let running = Running::start_nicely(&program, &["60"]);
    Some((workshop, running))
}

/// Waits until the process has run for many times the interval between samples.
fn wait_until_sampled(process: &Running) {
    let begin = cpu_ticks(process);
    wait_until("the process to be sampled", || {
        cpu_ticks(process) >= begin + 50
    });
}

/// CPU time of the process in user space, in hundredths of a second.
fn cpu_ticks(process: &Running) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{}/stat", process.pid())).unwrap();
    // Field 14; the name of the program, field 2, is in parentheses.
    let (_, fields) = stat.rsplit_once(") ").unwrap();
    fields.split(' ').nth(11).unwrap().parse().unwrap()
}

fn has_work(file: &Path) -> bool {
    let stacks = stacks(file);
    (stacks.iter()).any(|(stack, _)| stack.ends_with("main;work_until;work"))
}

/// As in a container: the PID is one that only this namespace knows.
#[test]
fn records_a_process_of_its_own_pid_namespace() {
    if !can_profile() {
        return;
    }
    let workshop = Workshop::open();
    let Some(busy) = workshop.build("busy", "cc -O2 -g busy.c") else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let script = format!(
        "{} 60 & {PROFCOL} record -p $! -d 2 -o a.folded; ended=$?; kill $!; exit $ended",
        busy.display()
    );
    let ended = Command::new("unshare")
        .args(["--pid", "--fork", "--kill-child", "--mount-proc"])
        .args(["sh", "-c", &script])
        .current_dir(folder.path())
        .output()
        .unwrap();
    let output = stderr(&ended);
    assert!(ended.status.success(), "{output}");
    assert!(
        output.contains("only the processes in it are profiled"),
        "{output}"
    );
    let stacks = stacks(&folder.path().join("a.folded"));
    assert!(
        stacks
            .iter()
            .any(|(stack, _)| stack.ends_with("main;work_until;work")),
        "{stacks:?}"
    );
}

#[test]
fn an_interrupt_ends_it_early_and_writes_the_file() {
    if !can_profile() {
        return;
    }
    let Some((_workshop, busy)) = busy() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let pid = busy.pid().to_string();
    let arguments = ["-d", "600", "-p", &pid, "-o", "a.folded"];
    let recording = Recording::start(folder.path(), &arguments);
    wait_until_sampled(&busy);
    recording.interrupt();
    let (code, output) = recording.ended();
    assert_eq!(code, Some(0), "{output}");
    assert!(output.contains("writing...\n"), "{output}");
    assert!(
        output.contains("a.folded: ") && output.contains(" samples in "),
        "{output}"
    );
    assert!(has_work(&folder.path().join("a.folded")), "{output}");
}

#[test]
fn with_sudo_the_file_is_the_users() {
    if !can_profile() {
        return;
    }
    let Some((_workshop, busy)) = busy() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    chown(folder.path(), Some(NOBODY), Some(NOBODY)).unwrap();
    let id = NOBODY.to_string();
    let recorded = Command::new(PROFCOL)
        .args(["record", "-d", "1s", "-p", &busy.pid().to_string()])
        .args(["-o", "a.folded"])
        .envs([("SUDO_UID", &id), ("SUDO_GID", &id)])
        .current_dir(folder.path())
        .output()
        .unwrap();
    assert_eq!(recorded.status.code(), Some(0), "{}", stderr(&recorded));
    let file = fs::metadata(folder.path().join("a.folded")).unwrap();
    assert_eq!((file.uid(), file.gid()), (NOBODY, NOBODY));
    // It is refused before it would be lost.
    let refused = record(folder.path(), &["-d", "1h", "-o", "a.folded/b.folded"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(
        stderr(&refused).contains("failed to write a.folded/b.folded: Not a directory"),
        "{}",
        stderr(&refused)
    );
}

#[test]
fn a_second_interrupt_ends_it_at_once() {
    if !can_profile() {
        return;
    }
    let Some((_workshop, busy)) = busy() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let pid = busy.pid().to_string();
    let recording = Recording::start(folder.path(), &["-p", &pid, "-o", "a.folded"]);
    // Writing into it waits for a reader.
    let unfinished = format!("a.folded.{}.tmp", recording.process.id());
    let made = Command::new("mkfifo")
        .arg(folder.path().join(unfinished))
        .status();
    assert!(made.unwrap().success());
    wait_until_sampled(&busy);
    recording.interrupt();
    recording.wait_for("writing...\n");
    // Two at once are one request.
    sleep(Duration::from_millis(800));
    let interrupted = Instant::now();
    recording.interrupt();
    let (code, output) = recording.ended();
    assert!(interrupted.elapsed() < Duration::from_secs(5), "{output}");
    assert_eq!(code, Some(1), "{output}");
    let expected = "stopped immediately by a second signal (SIGINT)";
    assert!(output.contains(expected), "{output}");
    assert!(!folder.path().join("a.folded").exists());
}

#[test]
fn a_terminal_shows_the_progress() {
    if !can_profile() {
        return;
    }
    let Some((_workshop, busy)) = busy() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.folded");
    let (pid, output) = (busy.pid().to_string(), file.to_str().unwrap());
    let steps = json!([
        {"until": "Recording: 0 s of 10m0s. Ctrl-C ends it and writes the file."},
        {"until": "Recording: 1 s of 10m0s. Ctrl-C ends it and writes the file."},
        {"type": "\u{3}"},
    ]);
    let arguments = ["record", "-d", "600", "-p", &pid, "-o", output];
    let Some(seen) = on_a_terminal(&arguments, steps) else {
        return;
    };
    assert_eq!(seen["status"], 0, "{seen:#}");
    let output = seen["after"].as_str().unwrap();
    assert!(output.contains("writing...\r\n"), "{output}");
    assert!(
        output.contains("a.folded: ") && output.contains(" samples in "),
        "{output}"
    );
    assert!(has_work(&file), "{output}");
}

#[test]
fn recordings_and_an_agent_sample_the_same_program() {
    if !can_profile() {
        return;
    }
    let Some((_workshop, busy)) = busy() else {
        return;
    };
    let agent = Profiler::start(99);
    let pid = busy.pid().to_string();
    let directories = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let arguments = ["-d", "3", "-p", &pid, "-o", "a.folded"];
    let recordings = directories
        .each_ref()
        .map(|folder| Recording::start(folder.path(), &arguments));
    for (recording, folder) in recordings.into_iter().zip(&directories) {
        let (code, output) = recording.ended();
        assert_eq!(code, Some(0), "{output}");
        assert!(has_work(&folder.path().join("a.folded")), "{output}");
    }
    let is_busy = |profile: &Profile| {
        profile
            .samples
            .iter()
            .any(|sample| sample.pid == busy.pid())
    };
    let profile = agent.until(Duration::from_secs(20), is_busy);
    assert!(is_busy(&profile));
}

#[test]
fn a_profile_is_written_to_standard_output() {
    if !can_profile() {
        return;
    }
    let workshop = Workshop::open();
    let Some(busy) = workshop.build("busy", "cc -O2 -g busy.c") else {
        return;
    };
    let running = Running::start_nicely(&busy, &["60"]);
    let folder = tempfile::tempdir().unwrap();
    let pid = running.pid().to_string();
    let ended = record(folder.path(), &["-d", "2", "-p", &pid, "-o", "-"]);
    assert!(ended.status.success(), "{}", stderr(&ended));
    assert!(
        stderr(&ended).contains("\nstandard output: "),
        "{}",
        stderr(&ended)
    );
    fs::write(folder.path().join("piped"), &ended.stdout).unwrap();
    let converted = Command::new(PROFCOL)
        .args(["convert", "piped", "again.folded"])
        .current_dir(folder.path())
        .output()
        .unwrap();
    assert!(converted.status.success(), "{}", stderr(&converted));
    let stacks = stacks(&folder.path().join("again.folded"));
    assert!(
        stacks.iter().any(|(stack, _)| stack.contains("work_until")),
        "{stacks:?}"
    );
    assert!(!folder.path().join("-").exists());
}

/// Even if its parent has not waited for it.
#[test]
fn ends_when_the_selected_processes_have_exited() {
    if !can_profile() {
        return;
    }
    let workshop = Workshop::open();
    let Some(busy) = workshop.build("busy", "cc -O2 -g busy.c") else {
        return;
    };
    let running = [(); 2].map(|()| Running::start(&busy, &["3"]));
    let pids = running.each_ref().map(|it| it.pid().to_string()).join(",");
    let folder = tempfile::tempdir().unwrap();
    let ended = record(folder.path(), &["-p", &pids, "-o", "a.folded"]);
    assert!(ended.status.success(), "{}", stderr(&ended));
    assert!(!stacks(&folder.path().join("a.folded")).is_empty());
}

#[test]
fn reports_why_nothing_was_recorded() {
    if !can_profile() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let check = |arguments: &[&str], code: i32, expected: &str| {
        let ended = record(folder.path(), arguments);
        assert_eq!(
            ended.status.code(),
            Some(code),
            "{arguments:?}: {}",
            stderr(&ended)
        );
        assert!(
            stderr(&ended).contains(expected),
            "{arguments:?}: {}",
            stderr(&ended)
        );
    };
    check(&["-o", "a.xyz"], 2, "unknown file extension");
    check(
        &["--config", "a.yaml"],
        2,
        "`record` has a built-in pipeline",
    );
    check(
        &["--set", "receivers.ebpf_cpu.interval=x"],
        78,
        "receivers.ebpf_cpu",
    );
    check(&["-d", "0"], 2, "must be longer than 0s");
    check(&["-o", "-", "--", "true"], 2, "name a file");
    check(&["-a", "-p", "1"], 2, "cannot be used with");
    // Larger than any PID.
    check(&["-p", "5000000"], 2, "no process with PID 5000000");
    check(
        &["--open", "-o", "a.pb.gz"],
        2,
        "--open needs an .html or .svg file",
    );
    let idle = Running::start(Path::new("sleep"), &["60"]);
    let pid = idle.pid().to_string();
    check(&["-d", "1", "-p", &pid], 1, "no samples");
    check(
        &["-o", "/proc/a.svg", "--", "sh", "-c", BUSY_SHELL],
        1,
        "failed to write /proc/a.svg",
    );
}
