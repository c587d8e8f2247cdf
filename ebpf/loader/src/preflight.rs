//! Checks the prerequisites of profiling.
//!
//! Checking them first gives better errors: the kernel returns the same error number for most of them.

use std::fs;
use std::io;
use std::path::Path;

use crate::events;
use crate::requirements::Requirement;

/// Capability numbers.
pub(crate) mod capability {
    pub const DAC_READ_SEARCH: u32 = 2;
    pub const SYS_PTRACE: u32 = 19;
    pub const SYS_ADMIN: u32 = 21;
    pub const SYS_RESOURCE: u32 = 24;
    pub const SYSLOG: u32 = 34;
    pub const PERFMON: u32 = 38;
    pub const BPF: u32 = 39;
    pub const CHECKPOINT_RESTORE: u32 = 40;
}

#[derive(Debug, thiserror::Error)]
pub enum PreflightError {
    #[error("cannot read /proc/self/status: {0}")]
    Status(#[from] io::Error),
    #[error("profiling requires {missing}, which this process does not have")]
    Capabilities { missing: String },
    #[error(
        "the kernel is locked down for confidentiality, so BPF programs may not read kernel memory"
    )]
    LockedDown,
}

impl PreflightError {
    pub(crate) fn fix(&self) -> String {
        match self {
            Self::Status(_) => "mount /proc".to_owned(),
            Self::Capabilities { .. } => {
                format!("run it as root, or give it the capabilities ({CHANGE_CAPABILITIES})")
            }
            Self::LockedDown => "boot with `lockdown=integrity` or without lockdown".to_owned(),
        }
    }
}

/// Where a process gets its capabilities from.
pub(crate) const CHANGE_CAPABILITIES: &str =
    "systemd: `AmbientCapabilities=`, containers: `capabilities.add`";

/// Capabilities without which profiling fails.
pub(crate) const REQUIRED: [(u32, &str); 2] = [
    (capability::BPF, "CAP_BPF"),
    (capability::PERFMON, "CAP_PERFMON"),
];

/// Capabilities that some executables need, and the cost of missing them. The reader of the kernel's symbols
/// checks CAP_SYSLOG.
pub(crate) const OPTIONAL: [(u32, &str, &str); 3] = [
    (
        capability::SYS_PTRACE,
        "CAP_SYS_PTRACE",
        "executables of other users' processes are opened by path only: \
         stacks are truncated in containers and in files that were deleted or replaced",
    ),
    (
        capability::DAC_READ_SEARCH,
        "CAP_DAC_READ_SEARCH",
        "executables that this user may not read cannot be opened: stacks in them are truncated",
    ),
    (
        capability::CHECKPOINT_RESTORE,
        "CAP_CHECKPOINT_RESTORE",
        "executables that were deleted or replaced while running cannot be opened: stacks in them are truncated",
    ),
];

/// All capabilities that a profiler uses on this host.
pub fn capabilities() -> impl Iterator<Item = u32> {
    let needed = REQUIRED.into_iter().map(|(number, _)| number);
    let useful = OPTIONAL.into_iter().map(|(number, ..)| number);
    let paranoid = events::is_paranoid().then_some(capability::SYS_ADMIN);
    needed
        .chain(useful)
        .chain([capability::SYSLOG])
        .chain(paranoid)
}

/// Fails on missing prerequisites, and warns about optional ones.
pub fn check(is_sidecar: bool) -> Result<(), PreflightError> {
    let effective = Capabilities::of_status(&fs::read_to_string("/proc/self/status")?);
    effective.check_required()?;
    // Missing if the kernel has no lockdown module or securityfs is not mounted.
    let lockdown = fs::read_to_string("/sys/kernel/security/lockdown").unwrap_or_default();
    if lockdown.contains("[confidentiality]") {
        return Err(PreflightError::LockedDown);
    }
    for (name, cost) in effective.missing_optional() {
        tracing::warn!(capability = %name, effect = %cost, "Capability missing.");
    }
    let namespace = pid_namespace(Path::new("/"), is_sidecar, std::process::id());
    if let Some(shortfall) = namespace.shortfall {
        let (found, consequence, fix) = (namespace.found, shortfall.consequence, shortfall.fix);
        tracing::warn!("{found}: {consequence}. {fix}.");
    }
    Ok(())
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Capabilities(u64);

impl Capabilities {
    /// The effective capabilities in `/proc/PID/status`.
    pub(crate) fn of_status(status: &str) -> Self {
        let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
        Self(line.map_or(0, |set| {
            u64::from_str_radix(set.trim(), 16).unwrap_or_default()
        }))
    }

    pub(crate) fn has(self, number: u32) -> bool {
        self.0 >> number & 1 == 1
    }

    /// Whether the process has the capability, or CAP_SYS_ADMIN if that includes it.
    pub(crate) fn permits(self, number: u32) -> bool {
        let was_admin = matches!(
            number,
            capability::BPF | capability::PERFMON | capability::CHECKPOINT_RESTORE
        );
        self.has(number) || was_admin && self.has(capability::SYS_ADMIN)
    }

    fn check_required(self) -> Result<(), PreflightError> {
        let missing: Vec<&str> = REQUIRED
            .iter()
            .filter(|&&(number, _)| !self.permits(number))
            .map(|&(_, name)| name)
            .collect();
        if missing.is_empty() {
            return Ok(());
        }
        Err(PreflightError::Capabilities {
            missing: missing.join(" and "),
        })
    }

    fn missing_optional(self) -> impl Iterator<Item = (&'static str, &'static str)> {
        OPTIONAL
            .into_iter()
            .filter(move |&(number, ..)| !self.permits(number))
            .map(|(_, name, cost)| (name, cost))
    }
}

/// The inode number of the initial PID namespace.
const FIRST_PID_NAMESPACE: &str = "pid:[4026531836]";

/// The kernel uses the host's PIDs; /proc may not. A process that reads the matching /proc finds its own PID there.
pub(crate) fn pid_namespace(root: &Path, is_sidecar: bool, own: u32) -> Requirement {
    const NAME: &str = "pid_namespace";
    const COST: &str = "processes have no names and their stacks are truncated";
    let found = fs::read_link(root.join("proc/self"));
    if found.is_ok_and(|found| found.to_str() != Some(&own.to_string())) {
        return Requirement::met(NAME, "/proc belongs to another PID namespace")
            .limits(COST, "Mount the /proc of this namespace");
    }
    if is_sidecar {
        return Requirement::met(NAME, "its own is profiled (`mode: sidecar`)");
    }
    let namespace = fs::read_link(root.join("proc/self/ns/pid")).ok();
    let namespace = namespace.as_deref().and_then(Path::to_str);
    if namespace.is_none_or(|namespace| namespace == FIRST_PID_NAMESPACE) {
        return Requirement::met(NAME, "the host's");
    }
    Requirement::met(
        NAME,
        "This process has its own PID namespace and does not see the host's processes",
    )
    .limits(
        COST,
        "Run it in the host's PID namespace (Kubernetes: `hostPID: true`, Docker: `--pid=host`), \
         or set `mode: sidecar` to profile this namespace only",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_capabilities(numbers: &[u32]) -> Capabilities {
        let set = numbers.iter().fold(0u64, |set, number| set | 1 << number);
        Capabilities::of_status(&format!("Name:\tx\nCapInh:\t00\nCapEff:\t{set:016x}\n"))
    }

    #[test]
    fn names_missing_required_capabilities() {
        let check = |effective: &[u32], expected: Option<&str>| {
            let message = match with_capabilities(effective).check_required() {
                Err(PreflightError::Capabilities { missing }) => Some(missing),
                _ => None,
            };
            assert_eq!(message.as_deref(), expected, "{effective:?}");
        };
        check(&[], Some("CAP_BPF and CAP_PERFMON"));
        check(&[capability::BPF], Some("CAP_PERFMON"));
        check(&[capability::PERFMON], Some("CAP_BPF"));
        check(&[capability::BPF, capability::PERFMON], None);
        check(&[capability::SYS_ADMIN], None);
    }

    #[test]
    fn names_missing_optional_capabilities() {
        let check = |effective: &[u32], expected: &[&str]| {
            let missing_optional: Vec<&str> = with_capabilities(effective)
                .missing_optional()
                .map(|(name, _)| name)
                .collect();
            assert_eq!(missing_optional, expected, "{effective:?}");
        };
        let all = [
            "CAP_SYS_PTRACE",
            "CAP_DAC_READ_SEARCH",
            "CAP_CHECKPOINT_RESTORE",
        ];
        check(&[], &all);
        check(&[capability::SYS_ADMIN], &all[..2]);
        check(&[capability::SYS_PTRACE], &all[1..]);
        check(
            &[
                capability::SYS_PTRACE,
                capability::DAC_READ_SEARCH,
                capability::CHECKPOINT_RESTORE,
            ],
            &[],
        );
    }

    #[test]
    fn a_status_without_capabilities_has_none() {
        assert_eq!(Capabilities::of_status("Name:\tx\n").0, 0);
        assert_eq!(Capabilities::of_status("CapEff:\tnonsense\n").0, 0);
    }
}
