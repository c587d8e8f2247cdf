//! The capabilities of a process, and those that profiling needs.

use crate::events;

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

#[derive(Clone, Copy, Debug)]
pub(crate) struct Capabilities(u64);

impl Capabilities {
    /// The effective capabilities in `/proc/PID/status`.
    pub(crate) fn from_status(status: &str) -> Self {
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

    pub(crate) fn missing_required(self) -> impl Iterator<Item = &'static str> {
        REQUIRED
            .into_iter()
            .filter(move |&(number, _)| !self.permits(number))
            .map(|(_, name)| name)
    }

    /// Optional capabilities that are missing, and what each costs.
    pub(crate) fn missing_optional(self) -> impl Iterator<Item = (&'static str, &'static str)> {
        OPTIONAL
            .into_iter()
            .filter(move |&(number, ..)| !self.permits(number))
            .map(|(_, name, cost)| (name, cost))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_capabilities(numbers: &[u32]) -> Capabilities {
        let set = numbers.iter().fold(0u64, |set, number| set | 1 << number);
        Capabilities::from_status(&format!("Name:\tx\nCapInh:\t00\nCapEff:\t{set:016x}\n"))
    }

    #[test]
    fn names_missing_required_capabilities() {
        let check = |effective: &[u32], expected: &[&str]| {
            let missing: Vec<&str> = with_capabilities(effective).missing_required().collect();
            assert_eq!(missing, expected, "{effective:?}");
        };
        check(&[], &["CAP_BPF", "CAP_PERFMON"]);
        check(&[capability::BPF], &["CAP_PERFMON"]);
        check(&[capability::PERFMON], &["CAP_BPF"]);
        check(&[capability::BPF, capability::PERFMON], &[]);
        check(&[capability::SYS_ADMIN], &[]);
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
        assert_eq!(Capabilities::from_status("Name:\tx\n").0, 0);
        assert_eq!(Capabilities::from_status("CapEff:\tnonsense\n").0, 0);
    }
}
