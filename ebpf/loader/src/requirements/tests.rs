//! Directories in place of hosts, a complete one and ones with something missing: which requirement is unmet, and its fix.

use std::os::unix::fs::symlink;

use super::*;
use crate::preflight::PreflightError;

/// A simulated host on which root can profile.
struct Host(tempfile::TempDir);

impl Host {
    fn new() -> Self {
        let host = Self(tempfile::tempdir().unwrap());
        host.with("proc/sys/kernel/osrelease", "6.1.0-18-amd64\n")
            .with("proc/sys/kernel/perf_event_paranoid", "2\n")
            .with("proc/sys/kernel/kptr_restrict", "1\n")
            .with("proc/kallsyms", "ffffffff81000000 T _text\n")
            .with("proc/self/status", "CapEff:\t000001ffffffffff\n")
            .with(
                "proc/self/limits",
                "Max locked memory         8388608              8388608              bytes\n",
            )
            .with("sys/kernel/btf/vmlinux", "")
            .with(
                "sys/kernel/security/lockdown",
                "[none] integrity confidentiality\n",
            )
            .with_link("proc/self/ns/pid", "pid:[4026531836]")
            .with_link("proc/self/ns/cgroup", FIRST_CGROUP_NAMESPACE)
    }

    fn with(self, path: &str, content: &str) -> Self {
        let path = self.0.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
        self
    }

    fn with_link(self, path: &str, target: &str) -> Self {
        let path = self.0.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let _ = fs::remove_file(&path);
        symlink(target, path).unwrap();
        self
    }

    fn without(self, path: &str) -> Self {
        fs::remove_file(self.0.path().join(path)).unwrap();
        self
    }

    fn requirements(&self) -> Vec<Requirement> {
        requirements(self.0.path(), Scope::Host)
    }

    /// The unmet requirements, and whether each is fatal.
    fn lacks(&self) -> Vec<(&'static str, bool)> {
        let all = self.requirements().into_iter();
        all.filter_map(|it| Some((it.name, it.shortfall?.is_fatal)))
            .collect()
    }

    fn one(&self, name: &str) -> Requirement {
        let mut all = self.requirements().into_iter();
        all.find(|it| it.name == name).unwrap()
    }
}

#[test]
fn a_complete_host_meets_all_requirements() {
    let host = Host::new();
    assert_eq!(host.lacks(), [], "{:#?}", host.requirements());
    let names: Vec<_> = host.requirements().iter().map(|it| it.name).collect();
    assert_eq!(
        names,
        [
            "kernel",
            "btf",
            "lockdown",
            "CAP_BPF",
            "CAP_PERFMON",
            "CAP_SYS_PTRACE",
            "CAP_DAC_READ_SEARCH",
            "CAP_CHECKPOINT_RESTORE",
            "CAP_SYSLOG",
            "perf_event_paranoid",
            "memlock",
            "pid_namespace",
            "cgroup_namespace",
            "kernel_symbols",
        ]
    );
}

#[test]
fn kernel_versions_compare_as_numbers() {
    for (release, is_fatal) in [
        ("5.9.16", Some(true)),
        ("4.19.0-26-amd64", Some(true)),
        ("5.10.0", None),
        ("5.100.1", None),
        ("7.0-rc1", None),
        ("nonsense", Some(false)),
        ("", Some(false)),
    ] {
        let host = Host::new().with("proc/sys/kernel/osrelease", release);
        let found = host.one("kernel");
        let is_shortfall_fatal = found.shortfall.map(|it| it.is_fatal);
        assert_eq!(is_shortfall_fatal, is_fatal, "{release}");
    }
}

#[test]
fn missing_btf_and_lockdown_are_fatal() {
    let host = Host::new().without("sys/kernel/btf/vmlinux");
    assert_eq!(host.lacks(), [("btf", true)]);
    for (state, expected) in [
        (
            "none integrity [confidentiality]",
            [("lockdown", true)].as_slice(),
        ),
        ("none [integrity] confidentiality", &[]),
        ("", &[]),
    ] {
        let host = Host::new().with("sys/kernel/security/lockdown", state);
        assert_eq!(host.lacks(), expected, "{state}");
    }
}

#[test]
fn reports_each_capability_separately() {
    let held = |numbers: &[u32]| {
        let set = numbers.iter().fold(0u64, |set, number| set | 1 << number);
        Host::new().with("proc/self/status", &format!("CapEff:\t{set:016x}\n"))
    };
    assert_eq!(
        held(&[]).lacks(),
        [
            ("CAP_BPF", true),
            ("CAP_PERFMON", true),
            ("CAP_SYS_PTRACE", false),
            ("CAP_DAC_READ_SEARCH", false),
            ("CAP_CHECKPOINT_RESTORE", false),
        ]
    );
    let admin = held(&[capability::SYS_ADMIN]);
    assert_eq!(
        admin.lacks(),
        [("CAP_SYS_PTRACE", false), ("CAP_DAC_READ_SEARCH", false)]
    );
    let found = admin.one("CAP_BPF").found;
    assert!(found.contains("CAP_SYS_ADMIN"), "{found}");
    let fix = held(&[]).one("CAP_BPF").shortfall.unwrap().fix;
    assert!(fix.contains("add CAP_BPF"), "{fix}");
}

#[test]
fn a_paranoid_level_above_the_mainline_maximum_needs_sys_admin() {
    let bpf = format!("CapEff:\t{:016x}\n", 0x1ff_ffff_ffff_u64 & !(1 << 21));
    let paranoid = |level: &str| {
        let host = Host::new().with("proc/sys/kernel/perf_event_paranoid", level);
        host.with("proc/self/status", &bpf).lacks()
    };
    assert_eq!(paranoid("2"), []);
    assert_eq!(paranoid("-1"), []);
    assert_eq!(paranoid("3"), [("perf_event_paranoid", true)]);
    let root = Host::new().with("proc/sys/kernel/perf_event_paranoid", "4");
    assert_eq!(root.lacks(), []);
    let unknown = Host::new().without("proc/sys/kernel/perf_event_paranoid");
    assert_eq!(unknown.lacks(), [("perf_event_paranoid", true)]);
}

#[test]
fn locked_memory_matters_before_linux_5_11() {
    let without_resource = format!("CapEff:\t{:016x}\n", 0x1ff_ffff_ffff_u64 & !(1 << 24));
    let lacks = |release: &str, limit: &str| {
        let host = Host::new().with("proc/sys/kernel/osrelease", release);
        let limits = format!("Max locked memory         {limit}  {limit}  bytes\n");
        let host = host.with("proc/self/limits", &limits);
        host.with("proc/self/status", &without_resource).lacks()
    };
    assert_eq!(lacks("5.10.1", "65536"), [("memlock", true)]);
    assert_eq!(lacks("5.10.1", "unlimited"), []);
    assert_eq!(lacks("5.11.0", "65536"), []);
}

#[test]
fn reports_container_namespaces() {
    let contained = Host::new().with_link("proc/self/ns/pid", "pid:[4026532200]");
    assert_eq!(contained.lacks(), [("pid_namespace", false)]);
    let fix = contained.one("pid_namespace").shortfall.unwrap().fix;
    assert!(fix.contains("hostPID: true"), "{fix}");
    let lacks = |scope| {
        let all = requirements(contained.0.path(), scope).into_iter();
        all.filter_map(|it| it.shortfall).collect::<Vec<_>>()
    };
    assert!(lacks(Scope::Namespace).is_empty());
    let lacks = lacks(Scope::Visible);
    assert_eq!(lacks.len(), 1);
    assert_eq!(
        lacks[0].consequence,
        "only the processes in it are profiled"
    );
    let contained = Host::new().with_link("proc/self/ns/cgroup", "cgroup:[4026532201]");
    assert_eq!(contained.lacks(), []);
    assert!(contained.one("cgroup_namespace").found.contains("private"));
}

#[test]
fn detects_proc_of_another_pid_namespace() {
    // A symbolic link, like /proc/self.
    let host = Host::new();
    let proc = host.0.path().join("proc");
    fs::rename(proc.join("self"), proc.join("1")).unwrap();
    symlink("1", proc.join("self")).unwrap();
    let lacks = host.one("pid_namespace").shortfall.unwrap();
    assert!(lacks.fix.contains("/proc"), "{lacks:?}");
}

#[test]
fn hidden_kernel_symbols_name_the_setting() {
    let hidden = "0000000000000000 T _text\n0000000000000000 t x [ff]\n";
    let fix = |restrict: &str, capabilities: &str| {
        let host = Host::new().with("proc/kallsyms", hidden);
        let host = host.with("proc/sys/kernel/kptr_restrict", restrict);
        let host = host.with("proc/self/status", capabilities);
        host.one("kernel_symbols").shortfall.unwrap().fix
    };
    assert_eq!(
        fix("2", "CapEff:\t000001ffffffffff\n"),
        "sysctl -w kernel.kptr_restrict=1"
    );
    assert!(fix("1", "CapEff:\t0\n").contains("add CAP_SYSLOG"));
    let host = Host::new().without("proc/kallsyms");
    assert_eq!(host.lacks(), [("kernel_symbols", false)]);
}

#[test]
fn missing_cycles_matter_only_if_configured() {
    let none = || Err(io::Error::from_raw_os_error(libc::ENOENT));
    let shortfall = |event| {
        cycles_requirement(event, none())
            .shortfall
            .map(|it| it.is_fatal)
    };
    assert_eq!(shortfall(Event::Cycles), Some(true));
    assert_eq!(shortfall(Event::Auto), None);
    assert_eq!(shortfall(Event::CpuClock), None);
    assert_eq!(cycles_requirement(Event::Cycles, Ok(())).shortfall, None);
    let refused = cycles_requirement(
        Event::Cycles,
        Err(io::Error::from_raw_os_error(libc::EACCES)),
    );
    assert_eq!(refused.shortfall, None);
}

#[test]
fn trial_errors_come_with_a_fix() {
    let error = ProfilerStartError::from(PreflightError::LockedDown);
    let refused = trial_requirement(Err(error), Duration::from_millis(100));
    let shortfall = refused.shortfall.unwrap();
    assert!(shortfall.is_fatal);
    assert!(shortfall.fix.starts_with("boot with"), "{shortfall:?}");
    let trial = Trial {
        loaded_in: Duration::from_millis(120),
        samples: 7,
    };
    let taken = trial_requirement(Ok(trial), Duration::from_millis(300));
    assert_eq!(
        taken.found,
        "the programs loaded in 120 ms, and took 7 samples in 300 ms"
    );
}

#[test]
fn reports_an_unsynchronised_clock() {
    assert_eq!(clock_requirement(Some(true)).shortfall, None);
    assert_eq!(clock_requirement(None).shortfall, None);
    assert!(!clock_requirement(Some(false)).shortfall.unwrap().is_fatal);
}

#[test]
fn this_program_has_unwind_information() {
    let own = fs::File::open("/proc/self/exe").unwrap();
    assert_eq!(unwinding(&own), Some(Unwinding::ProcessDescription));
    let text = fs::File::open("/proc/self/status").unwrap();
    assert_eq!(unwinding(&text), None);
}
