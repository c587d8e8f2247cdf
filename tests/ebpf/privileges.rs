//! Required privileges of the profiler, and its errors when they are missing.
//!
//! It is started as a user with only some capabilities, or in a restricted environment.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use profcol_test_harness::peers::Process;
use profcol_test_harness::profile::{Profile, Symbols};
use profcol_test_harness::support::{NOBODY, check_privileges, root};
use profcol_test_harness::toolchain::Workshop;

use crate::host::{Running, can_profile, config};

/// All required capabilities.
const ALL: [&str; 6] = [
    "bpf",
    "perfmon",
    "sys_ptrace",
    "syslog",
    "dac_read_search",
    "checkpoint_restore",
];

const READY: &str = "Everything is ready";
const TIMEOUT: Duration = Duration::from_secs(60);
const MIN_SAMPLES: usize = 50;

/// A directory where any user may run the program under test and write a profile.
pub struct Place {
    folder: tempfile::TempDir,
    profcol: PathBuf,
}

impl Place {
    pub fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let anybody = <fs::Permissions as std::os::unix::fs::PermissionsExt>::from_mode(0o777);
        fs::set_permissions(folder.path(), anybody).unwrap();
        let profcol = folder.path().join("profcol");
        fs::copy(env!("CARGO_BIN_EXE_profcol"), &profcol).unwrap();
        Self { folder, profcol }
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    fn profile(&self) -> PathBuf {
        self.folder.path().join("profiles.jsonl")
    }

    fn config(&self) -> PathBuf {
        let file = self.folder.path().join("config.yaml");
        fs::write(&file, config("frequency: 199", &self.profile())).unwrap();
        file
    }

    fn command(&self, wrapper: &[String]) -> Command {
        let (program, arguments) = wrapper.split_first().unwrap();
        let mut command = Command::new(program);
        command.args(arguments).arg(&self.profcol);
        command
    }

    /// Runs `wrapper profcol …` until it is ready or exits.
    fn start(&self, wrapper: &[String]) -> Process {
        let mut command = self.command(wrapper);
        let configuration = config("frequency: 199", &self.profile());
        Process::start_as(&mut command, &[], &configuration)
    }
}

/// `setpriv` to a non-root user with these capabilities.
fn with(capabilities: &[&str]) -> Vec<String> {
    let mut set = "-all".to_owned();
    for capability in capabilities {
        set.push_str(",+");
        set.push_str(capability);
    }
    vec![
        "setpriv".into(),
        "--reuid=65534".into(),
        "--regid=65534".into(),
        "--clear-groups".into(),
        format!("--inh-caps={set}"),
        format!("--ambient-caps={set}"),
        format!("--bounding-set={set}"),
    ]
}

/// As a user with only the six capabilities.
pub fn with_all(place: &Place) -> Command {
    place.command(&with(&ALL))
}

/// As a user without capabilities, and without `--config`.
pub fn with_none(place: &Place) -> Command {
    place.command(&with(&[]))
}

/// Runs it where it cannot start, and returns the error.
fn refusal(wrapper: &[String]) -> String {
    let place = Place::new();
    let (program, arguments) = wrapper.split_first().unwrap();
    let config = place.config();
    let output = Command::new("timeout")
        .args(["60", program])
        .args(arguments)
        .arg(&place.profcol)
        .arg("--config")
        .arg(&config)
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    stderr
}

/// Waits until the profile has whole stacks of the program.
fn wait_for_chain(profile: &Path, program: &Path) -> usize {
    let mut symbols = Symbols::read(program);
    let mut read = Profile::default();
    let give_up = Instant::now() + TIMEOUT;
    loop {
        read.read_on(profile);
        let whole = read
            .samples
            .iter()
            .filter(|sample| Path::new(&sample.executable) == program)
            .filter(|sample| sample.end_reason.is_none())
            .filter(|sample| {
                let names: Vec<_> = sample
                    .frames
                    .iter()
                    .map(|frame| symbols.name(frame))
                    .collect();
                let chain = ["leaf", "inner", "outer", "main"].map(|name| Some(name.to_owned()));
                chain.iter().all(|name| names.contains(name))
            })
            .map(|sample| sample.count)
            .sum();
        if whole >= MIN_SAMPLES || Instant::now() > give_up {
            return whole;
        }
        std::thread::sleep(Duration::from_millis(500));
    }
}

/// A program of another user whose file is unreadable for others.
fn start_hidden_program(workshop: &Workshop) -> (PathBuf, Running) {
    let program = workshop
        .build("hidden", "cc -O2 -fomit-frame-pointer plain.c")
        .unwrap();
    let owner = <fs::Permissions as std::os::unix::fs::PermissionsExt>::from_mode(0o700);
    fs::set_permissions(&program, owner).unwrap();
    let running = Running::start(&program, &[""; 0]);
    (program, running)
}

#[test]
fn needs_no_more_than_six_capabilities() {
    if !can_profile() {
        return;
    }
    let workshop = Workshop::open();
    let (program, _running) = start_hidden_program(&workshop);
    let place = Place::new();
    let mut process = place.start(&with(&ALL));
    process.wait_for_output("to be ready", |output| output.contains(READY));
    let whole = wait_for_chain(&place.profile(), &program);
    let (_, output) = process.stop();
    assert!(whole >= MIN_SAMPLES, "{whole} whole stacks; {output}");
    assert_eq!(warnings(&output), 0, "{output}");
}

/// How many there are, except of other programs on the host.
fn warnings(output: &str) -> usize {
    let warnings = output.lines().filter(|line| line.contains("WARN"));
    warnings
        .filter(|line| !line.contains("Interpreter not supported"))
        .count()
}

/// The capabilities that profiling needs here, and the one for writing files of other users.
fn expected_of_root() -> u64 {
    let paranoid = fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").unwrap_or_default();
    let sys_admin = match paranoid.trim().parse() {
        Ok(3..=i32::MAX) => vec![21],
        _ => vec![],
    };
    let numbers = [1, 2, 19, 34, 38, 39, 40].into_iter().chain(sys_admin);
    numbers.fold(0, |set, number| set | 1 << number)
}

#[test]
fn root_drops_other_capabilities_and_writes_to_another_users_directory() {
    if !can_profile() {
        return;
    }
    let workshop = Workshop::open();
    let (program, _running) = start_hidden_program(&workshop);
    let place = Place::new();
    // Accessible only to its owner.
    let owned = place.path().join("owned");
    fs::create_dir(&owned).unwrap();
    let owner = <fs::Permissions as std::os::unix::fs::PermissionsExt>::from_mode(0o700);
    fs::set_permissions(&owned, owner).unwrap();
    std::os::unix::fs::chown(&owned, Some(NOBODY), Some(NOBODY)).unwrap();
    let config = format!(
        "\
receivers:
  ebpf_cpu: {{interval: 1s, frequency: 199}}
processors:
  process:
  symbolize:
exporters:
  file: {{path: {}}}
  pprof_file: {{directory: {owned}/profiles, interval: 1s}}
  padata: {{storage_path: {owned}/recordings}}
  top: {{interval: 1s}}
service:
  telemetry: {{metrics: {{level: none}}}}
  pipelines:
    profiles: {{receivers: [ebpf_cpu], processors: [process, symbolize], exporters: [file, pprof_file, padata, top]}}
",
        place.profile().display(),
        owned = owned.display()
    );
    let mut command = place.command(&["env".to_owned()]);
    let mut process = Process::start_as(&mut command, &[], &config);
    process.wait_for_output("to be ready", |output| output.contains(READY));
    check_privileges(process.pid(), expected_of_root());
    let whole = wait_for_chain(&place.profile(), &program);
    process.wait_for_output("to print the hottest functions", |output| {
        output.contains("function")
    });
    check_privileges(process.pid(), expected_of_root());
    let (status, output) = process.stop();
    assert!(whole >= MIN_SAMPLES, "{whole} whole stacks; {output}");
    assert!(status.success(), "{output}");
    assert_eq!(warnings(&output), 0, "{output}");
    for (folder, ending) in [("profiles", ".pb.gz"), ("recordings", ".padata")] {
        let folder = owned.join(folder);
        let is_shut = |path: &Path, mode: u32| {
            let found = fs::metadata(path).unwrap().permissions();
            let found = std::os::unix::fs::PermissionsExt::mode(&found) & 0o777;
            assert_eq!(found & !mode, 0, "{}: {found:o}", path.display());
        };
        is_shut(&folder, 0o750);
        let files = fs::read_dir(&folder)
            .unwrap()
            .map(|file| file.unwrap().path());
        let files: Vec<PathBuf> = files.collect();
        files.iter().for_each(|file| is_shut(file, 0o640));
        let is_written = |file: &PathBuf| {
            let has_ending = file.to_str().is_some_and(|name| name.ends_with(ending));
            has_ending && fs::metadata(file).unwrap().len() > 0
        };
        assert!(files.iter().any(is_written), "{files:?}");
    }
}

#[test]
fn warns_about_a_missing_optional_capability() {
    if !can_profile() {
        return;
    }
    let check = |missing: &str, expected: &str| {
        let rest: Vec<&str> = ALL.into_iter().filter(|name| *name != missing).collect();
        let place = Place::new();
        let mut process = place.start(&with(&rest));
        process.wait_for_output("to be ready", |output| output.contains(READY));
        let (_, output) = process.stop();
        assert_eq!(warnings(&output), 1, "without {missing}: {output}");
        assert!(output.contains(expected), "without {missing}: {output}");
    };
    check(
        "sys_ptrace",
        "Capability missing. capability=CAP_SYS_PTRACE effect=",
    );
    check(
        "dac_read_search",
        "Capability missing. capability=CAP_DAC_READ_SEARCH effect=",
    );
    check(
        "checkpoint_restore",
        "Capability missing. capability=CAP_CHECKPOINT_RESTORE effect=",
    );
    check("syslog", "Add CAP_SYSLOG");
}

#[test]
fn names_a_missing_required_capability() {
    if !can_profile() {
        return;
    }
    let check = |held: &[&str], missing: &str| {
        let error = refusal(&with(held));
        let expected = format!("profiling requires {missing}, which this process does not have");
        assert!(error.contains(&expected), "{held:?}: {error}");
    };
    check(&[], "CAP_BPF and CAP_PERFMON");
    check(&["bpf"], "CAP_PERFMON");
    check(&["perfmon"], "CAP_BPF");
}

#[test]
fn reports_missing_btf() {
    if !can_profile() {
        return;
    }
    let hide = "mount -t tmpfs none /sys/kernel/btf && exec \"$@\"";
    let wrapper = ["unshare", "--mount", "sh", "-c", hide, "sh"].map(str::to_owned);
    let error = refusal(&wrapper);
    let expected = "failed to read the kernel's BTF at /sys/kernel/btf/vmlinux";
    assert!(error.contains(expected), "{error}");
}

#[test]
fn reports_a_separate_pid_namespace() {
    if !can_profile() {
        return;
    }
    let place = Place::new();
    let wrapper = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"].map(str::to_owned);
    let mut process = place.start(&wrapper);
    process.wait_for_output("to be ready", |output| output.contains(READY));
    let output = process.output();
    assert!(output.contains("has its own PID namespace"), "{output}");
}

#[test]
fn needs_no_locked_memory() {
    if !can_profile() {
        return;
    }
    let place = Place::new();
    let limit = ["prlimit", "--memlock=0:0"].map(str::to_owned);
    // Root would raise the limit.
    let mut process = place.start(&[&limit[..], &with(&ALL)].concat());
    process.wait_for_output("to be ready", |output| output.contains(READY));
}

#[test]
fn two_profilers_do_not_disturb_each_other() {
    if !can_profile() {
        return;
    }
    let workshop = Workshop::open();
    let (program, _running) = start_hidden_program(&workshop);
    let places = [Place::new(), Place::new()];
    let profilers: Vec<Process> = places
        .iter()
        .map(|place| {
            let mut process = place.start(&["env".to_owned()]);
            process.wait_for_output("to be ready", |output| output.contains(READY));
            process
        })
        .collect();
    for place in &places {
        let whole = wait_for_chain(&place.profile(), &program);
        assert!(whole >= MIN_SAMPLES, "{whole} whole stacks");
    }
    drop(profilers);
}

#[test]
fn deployments_grant_only_these_capabilities() {
    let deployed = |file: &str| fs::read_to_string(root().join("deploy").join(file)).unwrap();
    let unit = deployed("systemd/profcol.service");
    let held = |line: &str, key: &str| -> Option<BTreeSet<String>> {
        let names = line.trim().strip_prefix(key)?;
        let names = names
            .split([' ', ',', '[', ']'])
            .filter(|name| !name.is_empty());
        Some(names.map(str::to_lowercase).collect())
    };
    let all = |prefix: &str| ALL.map(|name| format!("{prefix}{name}")).into();
    for key in ["AmbientCapabilities=", "CapabilityBoundingSet="] {
        let found: Vec<_> = unit.lines().filter_map(|line| held(line, key)).collect();
        assert_eq!(found, [all("cap_")], "{key}");
    }
    let daemonset = deployed("kubernetes/daemonset.yaml");
    let found: Vec<_> = daemonset
        .lines()
        .filter_map(|line| held(line, "add: "))
        .collect();
    assert_eq!(found, [all("")]);
}
