//! The test machine and its profiler.

use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use profcol_test_harness::calls::clock::Clock;
use profcol_test_harness::installation::Installation;
use profcol_test_harness::peers::Process;
use profcol_test_harness::profile::Profile;
use profcol_test_harness::support::{root, skip};
use serde_json::Value;

/// Whether this machine can load BPF programs. Tests that need it skip if not.
pub fn can_profile() -> bool {
    let is_root = fs::read_to_string("/proc/self/status")
        .is_ok_and(|status| status.lines().any(|line| line.starts_with("Uid:\t0\t0")));
    let has_types = Path::new("/sys/kernel/btf/vmlinux").exists();
    match (is_root, has_types) {
        (true, true) => true,
        (false, _) => skip("this is not root"),
        _ => skip("the kernel has no type information (BTF)"),
    }
}

pub const PROFCOL: &str = env!("CARGO_BIN_EXE_profcol");

/// What profcol shows on a terminal of its own, and its final state, as `top.py` says.
pub fn on_a_terminal(arguments: &[&str], steps: Value) -> Option<Value> {
    let has_python = Command::new("python3").arg("--version").output().is_ok();
    if !has_python {
        skip("python3, which has terminals, is not installed");
        return None;
    }
    let script = root().join("tests/ebpf/top.py");
    let output = Command::new("python3")
        .arg(script)
        .arg(steps.to_string())
        .arg(PROFCOL)
        .args(arguments)
        .output()
        .unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout);
    let seen = serde_json::from_str(&stdout);
    Some(seen.unwrap_or_else(|error| panic!("{error}: {output:?}")))
}

/// A running program, killed on drop.
pub struct Running(Child);

impl Running {
    pub fn start(program: &Path, arguments: &[impl AsRef<OsStr>]) -> Self {
        Self(Command::new(program).args(arguments).spawn().unwrap())
    }

    /// Starts a program that accounts for its time.
    pub fn start_with(clock: &Clock, program: &Path, arguments: &[impl AsRef<OsStr>]) -> Self {
        Self::start_installed(clock, &Installation::of_this_machine(program), arguments)
    }

    /// Starts a program of an installation that accounts for its time.
    pub fn start_installed(
        clock: &Clock,
        installation: &Installation,
        arguments: &[impl AsRef<OsStr>],
    ) -> Self {
        let mut command = installation.command();
        Self(clock.give_to(&mut command).args(arguments).spawn().unwrap())
    }

    pub fn of(started: Child) -> Self {
        Self(started)
    }

    /// Starts a program without output.
    pub fn start_quietly(program: &Path, arguments: &[&str]) -> Self {
        let started = Command::new(program)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        Self(started.unwrap())
    }

    /// Starts a program at low priority, so that many of them do not starve the host.
    pub fn start_nicely(program: &Path, arguments: &[&str]) -> Self {
        let all = [&["-n", "10", program.to_str().unwrap()], arguments].concat();
        Self::start(Path::new("nice"), &all)
    }
}

impl Running {
    /// Sends SIGINT, and waits until it exits.
    pub fn interrupt(&mut self) {
        let pid = self.0.id().to_string();
        let sent = Command::new("kill").args(["-s", "INT", &pid]).status();
        assert!(sent.unwrap().success());
        assert!(self.0.wait().unwrap().success());
    }

    pub fn stop(&mut self) {
        // Both fail only if it has already exited.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }

    pub fn pid(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop();
    }
}

/// A profiler of the whole host.
pub struct Profiler {
    process: Process,
    directory: tempfile::TempDir,
    profile: Profile,
}

/// A configuration that writes to this file.
pub fn config(options: &str, file: &Path) -> String {
    config_with(options, "", "info", file)
}

/// The same with an optional processor, `name: {…}`, and all logs of this level.
fn config_with(options: &str, processor: &str, level: &str, file: &Path) -> String {
    let name = processor.split(':').next().unwrap_or_default();
    format!(
        "\
receivers:
  ebpf_cpu: {{interval: 500ms, {options}}}
processors: {{{processor}}}
exporters:
  file: {{path: {}}}
service:
  telemetry: {{metrics: {{level: none}}, logs: {{level: {level}, sampling: {{enabled: false}}}}}}
  pipelines:
    profiles: {{receivers: [ebpf_cpu], processors: [{name}], exporters: [file]}}
",
        file.display()
    )
}

impl Profiler {
    pub fn start(frequency: u32) -> Self {
        Self::start_with(&format!("frequency: {frequency}"))
    }

    /// With these options of the receiver.
    pub fn start_with(options: &str) -> Self {
        Self::start_as(&mut Command::new(PROFCOL), options, "", "info")
    }

    /// With logs of everything.
    pub fn start_talkative(options: &str) -> Self {
        Self::start_as(&mut Command::new(PROFCOL), options, "", "debug")
    }

    /// With these options of the receiver, a processor, and logs of everything.
    pub fn start_with_processor(options: &str, processor: &str) -> Self {
        Self::start_as(&mut Command::new(PROFCOL), options, processor, "debug")
    }

    /// With mappings from events.
    pub fn start_by_events(frequency: u32) -> Self {
        let mut command = Command::new(PROFCOL);
        command.env("PROFCOL_EBPF_MAPPINGS", "events");
        let profiler = Self::start_as(&mut command, &format!("frequency: {frequency}"), "", "info");
        let output = profiler.process.output();
        assert!(output.contains("mappings=events: "), "{output}");
        profiler
    }

    fn start_as(command: &mut Command, options: &str, processor: &str, level: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("profiles.jsonl");
        let config = config_with(options, processor, level, &file);
        let mut process = Process::start_as(command, &[], &config);
        process.wait_for_output("to be ready", |output| {
            output.contains("Everything is ready")
        });
        Self {
            process,
            directory,
            profile: Profile::default(),
        }
    }

    pub fn wait_until_it_says(&mut self, text: &str) {
        self.process
            .wait_for_output(text, |output| output.contains(text));
    }

    /// Sends the process a signal of this name.
    pub fn signal(&self, name: &str) {
        let pid = self.process.pid().to_string();
        let sent = Command::new("kill").args(["-s", name, &pid]).status();
        assert!(sent.unwrap().success());
    }

    /// The output so far.
    pub fn output(&self) -> String {
        self.process.output()
    }

    /// The profile so far.
    pub fn stop(self) -> Profile {
        self.until(Duration::ZERO, |_| true)
    }

    /// Profiles until there are enough samples, and at most for `timeout`.
    pub fn wait(&mut self, timeout: Duration, mut is_enough: impl FnMut(&Profile) -> bool) {
        let give_up = Instant::now() + timeout;
        while Instant::now() < give_up && !is_enough(&self.profile) {
            thread::sleep(Duration::from_millis(200));
            self.profile
                .read_on(&self.directory.path().join("profiles.jsonl"));
        }
    }

    /// Waits, stops the profiler and returns everything it exported.
    pub fn until(mut self, timeout: Duration, is_enough: impl FnMut(&Profile) -> bool) -> Profile {
        self.wait(timeout, is_enough);
        self.process.stop();
        self.profile
            .read_on(&self.directory.path().join("profiles.jsonl"));
        self.profile
    }
}
