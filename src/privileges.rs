//! Drops all capabilities that the configuration does not need.
//!
//! profcol parses untrusted profiles, backend responses and executables. An exploited bug must not gain more than
//! profcol needs: no loading of modules, mounting, raw sockets or change of user, and no more for any program it might
//! be made to exec.
//!
//! Capabilities are per thread and inherited from the parent thread, so this runs while the process is single-threaded.

use profcol_component::Capabilities;
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, setrlimit};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, capability_is_in_bounding_set,
    remove_capability_from_bounding_set, set_capabilities, set_no_new_privs,
};

/// On kernels or container runtimes without these, CAP_SYS_ADMIN covers them.
const IN_SYS_ADMIN: [Capabilities; 3] = [
    Capabilities::BPF,
    Capabilities::PERFMON,
    Capabilities::CHECKPOINT_RESTORE,
];

/// The capabilities that profiling needs and this process lacks.
pub fn missing_to_profile() -> Capabilities {
    // Where the kernel does not tell, the receiver reports what is missing.
    match capabilities(None) {
        Ok(held) if !held.effective.contains(CapabilitySet::SYS_ADMIN) => {
            let needed = set(Capabilities::BPF | Capabilities::PERFMON);
            Capabilities::from_bits((needed - held.effective).bits())
        }
        _ => Capabilities::NONE,
    }
}

/// Drops all capabilities but `needed` for good. If the kernel refuses, keeps running unchanged.
pub fn keep(needed: Capabilities) -> Dropped {
    match reduce(needed) {
        Ok((kept, dropped)) => {
            match dropped.set.bits().count_ones() {
                0 => tracing::debug!(%kept, "No capabilities to drop."),
                given_up => tracing::info!(%kept, given_up, "Dropped unused capabilities."),
            }
            dropped
        }
        Err(error) => {
            tracing::warn!(error = %std::io::Error::from(error), "Failed to drop capabilities.");
            Dropped::default()
        }
    }
}

/// The capabilities that the process held at its start and has dropped.
#[derive(Clone, Copy, Debug)]
pub struct Dropped {
    set: CapabilitySet,
    held: CapabilitySet,
}

impl Default for Dropped {
    fn default() -> Self {
        Self {
            set: CapabilitySet::empty(),
            held: CapabilitySet::empty(),
        }
    }
}

impl Dropped {
    /// The capabilities of `needed` that a start with this configuration would have kept.
    pub fn missing(&self, needed: Capabilities) -> Capabilities {
        let needed = set(with_stand_in(needed, self.held));
        Capabilities::from_bits((needed & self.set).bits())
    }
}

fn reduce(needed: Capabilities) -> Result<(Capabilities, Dropped), Errno> {
    let held = capabilities(None)?;
    let kept = held.permitted & set(with_stand_in(needed, held.permitted));
    if kept.contains(CapabilitySet::BPF) && held.effective.contains(CapabilitySet::SYS_RESOURCE) {
        lift_locked_memory();
    }
    if held.effective.contains(CapabilitySet::SETPCAP) {
        limit_bounding_set(kept)?;
    }
    let reduced = CapabilitySets {
        effective: held.effective & kept,
        permitted: kept,
        // Clears the ambient set too.
        inheritable: CapabilitySet::empty(),
    };
    if reduced != held {
        set_capabilities(None, reduced)?;
    }
    set_no_new_privs(true)?;
    let dropped = Dropped {
        set: held.permitted - kept,
        held: held.permitted,
    };
    Ok((Capabilities::from_bits(kept.bits()), dropped))
}

fn set(capabilities: Capabilities) -> CapabilitySet {
    CapabilitySet::from_bits_retain(capabilities.bits())
}

fn with_stand_in(needed: Capabilities, permitted: CapabilitySet) -> Capabilities {
    let is_missing = |one: &Capabilities| needed.contains(*one) && !permitted.contains(set(*one));
    match IN_SYS_ADMIN.iter().any(is_missing) {
        true => needed | Capabilities::SYS_ADMIN,
        false => needed,
    }
}

/// Limits the bounding set, so that no exec'd program gets more than `kept`.
fn limit_bounding_set(kept: CapabilitySet) -> Result<(), Errno> {
    for number in 0..u64::BITS {
        let one = CapabilitySet::from_bits_retain(1 << number);
        match capability_is_in_bounding_set(one) {
            Ok(true) if !kept.contains(one) => remove_capability_from_bounding_set(one)?,
            Ok(_) => {}
            // Past the kernel's last capability.
            Err(_) => break,
        }
    }
    Ok(())
}

/// Lifts RLIMIT_MEMLOCK while `CAP_SYS_RESOURCE` is held. BPF memory counts against it before Linux 5.11, perf event
/// buffers on any kernel.
fn lift_locked_memory() {
    let unbounded = Rlimit {
        current: None,
        maximum: None,
    };
    // Whoever needs the memory reports the failure.
    let _ = setrlimit(Resource::Memlock, unbounded);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_what_a_new_configuration_misses() {
        let all = Capabilities::BPF | Capabilities::PERFMON | Capabilities::SYS_ADMIN;
        let dropped = |kept, held| Dropped {
            set: set(held) - set(kept),
            held: set(held),
        };
        let needed = Capabilities::BPF | Capabilities::PERFMON;
        for (kept, held, expected) in [
            (Capabilities::BPF, all, Capabilities::PERFMON),
            (all, all, Capabilities::NONE),
            // Never held: the component decides what that means.
            (Capabilities::NONE, Capabilities::NONE, Capabilities::NONE),
            (
                Capabilities::NONE,
                Capabilities::SYS_ADMIN,
                Capabilities::SYS_ADMIN,
            ),
        ] {
            let missing = dropped(kept, held).missing(needed);
            assert_eq!(missing.bits(), expected.bits(), "{kept} of {held}");
        }
    }

    #[test]
    fn sys_admin_is_kept_as_a_stand_in() {
        let needed = Capabilities::BPF | Capabilities::PERFMON;
        let check = |permitted: Capabilities, expected: bool| {
            let kept = with_stand_in(needed, set(permitted));
            assert_eq!(
                kept.contains(Capabilities::SYS_ADMIN),
                expected,
                "{permitted}"
            );
        };
        check(needed | Capabilities::SYS_ADMIN, false);
        check(Capabilities::BPF | Capabilities::SYS_ADMIN, true);
        let none = with_stand_in(Capabilities::NONE, CapabilitySet::empty());
        assert!(none.is_empty());
    }
}
