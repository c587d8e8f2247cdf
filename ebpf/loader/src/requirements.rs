//! The requirements of profiling, as a list for `profcol doctor`.
//!
//! All except the last two are read from files below a root, so that tests can simulate hosts with directories.

use std::fs;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use profcol_ebpf_unwind::ElfCode;
use profcol_reader::Readers;

use crate::capabilities::{CHANGE_CAPABILITIES, Capabilities, OPTIONAL, REQUIRED, capability};
use crate::clock::{Clock, Event};
use crate::events::{self, MAX_PARANOID_LEVEL};
use crate::namespace::{self, Scope};
use crate::profiler::{Loaded, Settings};
use crate::requirement::Requirement;
use crate::start_error::ProfilerStartError;
use crate::sys;

/// The oldest kernel with all features that the programs use.
const OLDEST_KERNEL: (u32, u32) = (5, 10);
/// Since then BPF memory is charged to the cgroup.
const NO_LOCKED_MEMORY: (u32, u32) = (5, 11);
/// Maximum size of the maps, without unwind tables.
const LOCKED_MEMORY: u64 = 64 << 20;
/// The inode number of the initial cgroup namespace.
const FIRST_CGROUP_NAMESPACE: &str = "cgroup:[4026531835]";
/// Bytes of /proc/kallsyms to check; if addresses are hidden, all are zero.
const SYMBOLS_LOOKED_AT: usize = 64 << 10;

/// The fix of errors without their own.
const UNKNOWN_FIX: &str = "see the other lines; if they are all ok, look for seccomp or a security module that refuses \
    bpf() or perf_event_open()";

const NOTHING_IS_PROFILED: &str = "nothing on this host can be profiled";

/// The requirements checked in files; `/` is the root except in tests.
pub fn requirements(root: &Path, scope: Scope) -> Vec<Requirement> {
    let status = text(root, "proc/self/status");
    let held = Capabilities::from_status(&status);
    let kernel = Kernel::of(&text(root, "proc/sys/kernel/osrelease"));
    let level = text(root, "proc/sys/kernel/perf_event_paranoid");
    let level = level.trim().parse().ok();
    let mut all = vec![
        kernel.requirement(),
        types(root),
        lockdown(&text(root, "sys/kernel/security/lockdown")),
    ];
    all.extend(held.requirements(level));
    all.push(paranoia(level, held));
    all.push(locked_memory(
        &text(root, "proc/self/limits"),
        &kernel,
        held,
    ));
    all.push(namespace::requirement(root, scope, std::process::id()));
    all.push(cgroup_namespace(root));
    all.push(kernel_symbols(root, held));
    all
}

/// Whether this host's clock is synchronised.
pub fn clock() -> Requirement {
    clock_requirement(sys::is_clock_synchronised())
}

fn clock_requirement(is_synchronised: Option<bool>) -> Requirement {
    const NAME: &str = "clock";
    match is_synchronised {
        Some(true) => Requirement::met(NAME, "synchronised"),
        Some(false) => Requirement::met(NAME, "not synchronised").limits(
            "profiles from different hosts do not line up, and backends reject timestamps in the future",
            "run a time service: systemctl enable --now systemd-timesyncd, or chrony; in a container, synchronize the host's clock",
        ),
        None => Requirement::met(NAME, "unknown: the kernel does not report it"),
    }
}

/// How a file's code is unwound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unwinding {
    /// By the file's unwind information.
    ProcessDescription,
    /// By the effect of its instructions if they can be decoded, else by frame pointers.
    Undescribed,
}

/// None if the file is not an executable.
pub fn unwinding(file: &fs::File) -> Option<Unwinding> {
    let code = ElfCode::read(file).ok()?;
    Some(match code.is_described() {
        true => Unwinding::ProcessDescription,
        false => Unwinding::Undescribed,
    })
}

/// Whether the CPUs count cycles, asked of the first.
pub fn cycles(event: Event) -> Requirement {
    cycles_requirement(event, sys::open_clock(Clock::cycles(), 0, 99).map(drop))
}

/// Loads the programs and samples briefly, to exercise everything that the kernel may refuse.
pub fn trial(settings: &Settings, time: Duration) -> Requirement {
    trial_requirement(sample(settings, time), time)
}

struct Trial {
    loaded_in: Duration,
    samples: u64,
}

fn sample(settings: &Settings, time: Duration) -> Result<Trial, ProfilerStartError> {
    let began = Instant::now();
    let loaded = Loaded::new(settings, None, &Readers::default())?;
    let loaded_in = began.elapsed();
    let mut profiler = loaded.start()?;
    let until = Instant::now() + time;
    while Instant::now() < until {
        profiler.wait(until.saturating_duration_since(Instant::now()));
        for file in profiler.drain(|_| {}) {
            profiler.build_table(file);
        }
    }
    profiler.stop();
    Ok(Trial {
        loaded_in,
        samples: profiler.counts().samples,
    })
}

fn trial_requirement(trial: Result<Trial, ProfilerStartError>, time: Duration) -> Requirement {
    const NAME: &str = "bpf";
    match trial {
        Ok(trial) => Requirement::met(
            NAME,
            format!(
                "the programs loaded in {} ms, and took {} samples in {} ms",
                trial.loaded_in.as_millis(),
                trial.samples,
                time.as_millis()
            ),
        ),
        Err(ProfilerStartError { failure }) => {
            let fix = failure.fix().unwrap_or_else(|| UNKNOWN_FIX.to_owned());
            Requirement::met(NAME, failure.to_string()).prevents(NOTHING_IS_PROFILED, fix)
        }
    }
}

struct Kernel {
    release: String,
    version: Option<(u32, u32)>,
}

impl Kernel {
    fn of(release: &str) -> Self {
        let release = release.trim().to_owned();
        let mut parts = release.split(|c: char| !c.is_ascii_digit());
        let mut next = || parts.next()?.parse().ok();
        let version = next().zip(next());
        Self { release, version }
    }

    fn requirement(&self) -> Requirement {
        const NAME: &str = "kernel";
        let (major, minor) = OLDEST_KERNEL;
        match self.version {
            Some(version) if version >= OLDEST_KERNEL => {
                Requirement::met(NAME, format!("Linux {}", self.release))
            }
            Some(_) => Requirement::met(NAME, format!("Linux {}", self.release)).prevents(
                NOTHING_IS_PROFILED,
                format!("boot a kernel of version {major}.{minor} or later"),
            ),
            None => Requirement::met(NAME, "the kernel version cannot be read")
                .limits("some requirements cannot be checked", "mount /proc"),
        }
    }
}

fn types(root: &Path) -> Requirement {
    const NAME: &str = "btf";
    match fs::metadata(root.join("sys/kernel/btf/vmlinux")) {
        Ok(_) => Requirement::met(NAME, "available"),
        Err(error) => Requirement::met(NAME, format!("/sys/kernel/btf/vmlinux: {error}")).prevents(
            NOTHING_IS_PROFILED,
            "use a kernel built with CONFIG_DEBUG_INFO_BTF=y, as all large distributions do; \
             in a container mount /sys",
        ),
    }
}

fn lockdown(state: &str) -> Requirement {
    const NAME: &str = "lockdown";
    let state = state.trim();
    let chosen = state.split_once('[').and_then(|(_, it)| it.split_once(']'));
    match chosen {
        Some(("confidentiality", _)) => Requirement::met(NAME, "confidentiality").prevents(
            NOTHING_IS_PROFILED,
            "boot with `lockdown=integrity` or without lockdown",
        ),
        Some((level, _)) => Requirement::met(NAME, level),
        None => Requirement::met(NAME, "none"),
    }
}

impl Capabilities {
    fn requirements(self, level: Option<i32>) -> Vec<Requirement> {
        let is_paranoid = level.is_some_and(|level| level > MAX_PARANOID_LEVEL);
        let mut all = Vec::new();
        for (number, name) in REQUIRED {
            let found = self.found(number, name);
            all.push(match self.permits(number) {
                true => found,
                false => found.prevents(NOTHING_IS_PROFILED, fix(name)),
            });
        }
        for (number, name, cost) in OPTIONAL {
            let found = self.found(number, name);
            all.push(match self.permits(number) {
                true => found,
                false => found.limits(cost, fix(name)),
            });
        }
        // The check of kernel symbols covers whether they can be read.
        all.push(self.found(capability::SYSLOG, "CAP_SYSLOG"));
        if is_paranoid {
            all.push(self.found(capability::SYS_ADMIN, "CAP_SYS_ADMIN"));
        }
        all
    }

    fn found(self, number: u32, name: &'static str) -> Requirement {
        let found = match (self.has(number), self.permits(number)) {
            (true, _) => "held",
            (false, true) => "missing, but covered by CAP_SYS_ADMIN",
            (false, false) => "not held",
        };
        Requirement::met(name, found)
    }
}

fn fix(capability: &str) -> String {
    format!("run it as root, or add {capability} ({CHANGE_CAPABILITIES})")
}

fn paranoia(level: Option<i32>, held: Capabilities) -> Requirement {
    const NAME: &str = "perf_event_paranoid";
    let Some(level) = level else {
        return Requirement::met(NAME, "/proc/sys/kernel/perf_event_paranoid cannot be read")
            .prevents(
                NOTHING_IS_PROFILED,
                "mount /proc, and run a kernel that was built with CONFIG_PERF_EVENTS=y",
            );
    };
    let found = Requirement::met(NAME, level.to_string());
    match level > MAX_PARANOID_LEVEL && !held.has(capability::SYS_ADMIN) {
        false => found,
        true => found.prevents(
            NOTHING_IS_PROFILED,
            format!(
                "sysctl -w kernel.perf_event_paranoid={MAX_PARANOID_LEVEL}, or add CAP_SYS_ADMIN ({CHANGE_CAPABILITIES})"
            ),
        ),
    }
}

fn locked_memory(limits: &str, kernel: &Kernel, held: Capabilities) -> Requirement {
    const NAME: &str = "memlock";
    let line = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max locked memory"));
    let limit = line.and_then(|line| line.split_ascii_whitespace().next());
    let bytes: Option<u64> = limit.and_then(|limit| limit.parse().ok());
    let found = match bytes {
        Some(bytes) => format!("{} KiB", bytes >> 10),
        None => limit.unwrap_or("unknown").to_owned(),
    };
    if kernel.version.is_some_and(|it| it >= NO_LOCKED_MEMORY) {
        let found = format!("{found}; since Linux 5.11 BPF memory does not count");
        return Requirement::met(NAME, found);
    }
    let found = Requirement::met(NAME, found);
    match bytes.is_some_and(|bytes| bytes < LOCKED_MEMORY) && !held.has(capability::SYS_RESOURCE) {
        false => found,
        true => found.prevents(
            "before Linux 5.11 BPF memory counts as locked: the kernel rejects the programs",
            "raise the limit: `ulimit -l unlimited`, systemd: `LimitMEMLOCK=infinity`",
        ),
    }
}

fn cgroup_namespace(root: &Path) -> Requirement {
    const NAME: &str = "cgroup_namespace";
    let namespace = fs::read_link(root.join("proc/self/ns/cgroup"));
    let found = match namespace {
        Ok(namespace) if namespace.to_str() == Some(FIRST_CGROUP_NAMESPACE) => "the host's",
        // The programs read whole paths in the kernel.
        Ok(_) => "private; cgroup paths are read in the kernel",
        Err(_) => "not supported by this kernel",
    };
    Requirement::met(NAME, found)
}

fn kernel_symbols(root: &Path, held: Capabilities) -> Requirement {
    const NAME: &str = "kernel_symbols";
    const NAMELESS: &str = "kernel functions have no names";
    let mut head = Vec::new();
    let read = fs::File::open(root.join("proc/kallsyms")).and_then(|file| {
        io::Read::read_to_end(
            &mut io::Read::take(file, SYMBOLS_LOOKED_AT as u64),
            &mut head,
        )
    });
    if let Err(error) = read {
        return Requirement::met(NAME, format!("/proc/kallsyms: {error}")).limits(
            NAMELESS,
            "run a kernel that was built with CONFIG_KALLSYMS=y, and mount /proc",
        );
    }
    let restricted = text(root, "proc/sys/kernel/kptr_restrict");
    let restricted = restricted.trim();
    let lines = head.split(|&byte| byte == b'\n');
    let is_shown = lines
        .filter_map(|line| line.split(|&byte| byte == b' ').next())
        .any(|address| address.len() >= 8 && address.iter().any(|&digit| digit != b'0'));
    let found = |how| format!("{how} (kernel.kptr_restrict is {restricted})");
    if is_shown {
        return Requirement::met(NAME, found("addresses are shown"));
    }
    // Without the capability, 0 shows addresses to processes that may open perf events.
    let fix = match (held.has(capability::SYSLOG), restricted) {
        (true, "2") => "sysctl -w kernel.kptr_restrict=1".to_owned(),
        (_, "0") => fix("CAP_SYSLOG"),
        _ => format!("{}; or sysctl -w kernel.kptr_restrict=0", fix("CAP_SYSLOG")),
    };
    Requirement::met(NAME, found("addresses are hidden")).limits(NAMELESS, fix)
}

fn cycles_requirement(event: Event, opened: io::Result<()>) -> Requirement {
    const NAME: &str = "hardware_cycles";
    let error = match opened {
        Ok(()) => return Requirement::met(NAME, "hardware cycle counter available"),
        Err(error) => error,
    };
    if !events::is_no_counter(&error) {
        // The trial checks whether perf events are permitted at all.
        return Requirement::met(NAME, format!("not known: {error}"));
    }
    let found = Requirement::met(
        NAME,
        "no hardware cycle counter, as in most virtual machines",
    );
    match event {
        Event::Cycles => found.prevents(
            NOTHING_IS_PROFILED,
            "set `event` of ebpf_cpu to `cpu_clock` or `auto`",
        ),
        Event::CpuClock | Event::Auto => Requirement {
            found: format!("{}; busy time is sampled", found.found),
            ..found
        },
    }
}

fn text(root: &Path, path: &str) -> String {
    fs::read_to_string(root.join(path)).unwrap_or_default()
}

#[cfg(test)]
mod tests;
