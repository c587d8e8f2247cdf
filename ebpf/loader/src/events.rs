//! The perf events that run the sampling program: one per CPU for the whole host.
//!
//! CPUs may go offline and come online, so the list of CPUs is polled. On suspend all CPUs but the first
//! go offline and return unobserved; that is detected by comparing clocks.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use crate::clock::{Clock, Event};
use crate::sys;

/// How often to look for new CPUs.
const CPU_POLL_INTERVAL: Duration = Duration::from_secs(2);
/// Tolerance, since the two clocks are not read at the same time.
const SUSPEND_THRESHOLD: Duration = Duration::from_millis(100);

const PARANOID: &str = "/proc/sys/kernel/perf_event_paranoid";
/// The highest level of the mainline kernel; distributions add others.
pub(crate) const MAX_PARANOID_LEVEL: i32 = 2;

#[derive(Debug, thiserror::Error)]
pub enum EventsError {
    #[error("failed to list the online CPUs: {0}")]
    Cpus(#[source] io::Error),
    #[error(
        "no permission to open perf events on all CPUs: `kernel.perf_event_paranoid` is {level}"
    )]
    Paranoid { level: i32 },
    #[error(
        "no permission to open perf events on all CPUs ({0}) despite CAP_PERFMON: \
         seccomp or a security module blocks `perf_event_open`"
    )]
    Forbidden(#[source] io::Error),
    #[error("too many open files ({error}): profiling needs one for each of {cpus} CPUs")]
    TooManyFiles {
        #[source]
        error: io::Error,
        cpus: usize,
    },
    #[error("failed to open a perf event on CPU {cpu}: {error}")]
    Cpu {
        cpu: u32,
        #[source]
        error: io::Error,
    },
    #[error("CPU {cpu} does not count cycles, as in most virtual machines ({error})")]
    NoCycles {
        cpu: u32,
        #[source]
        error: io::Error,
    },
    #[error("failed to open perf events on any of {0} CPUs")]
    None(usize),
}

impl EventsError {
    pub(crate) fn fix(&self) -> Option<String> {
        match self {
            Self::Paranoid { .. } => Some(format!(
                "set it to {MAX_PARANOID_LEVEL} or lower, or add CAP_SYS_ADMIN"
            )),
            Self::TooManyFiles { .. } => {
                Some("raise the limit (`ulimit -n`, systemd: `LimitNOFILE=`)".to_owned())
            }
            Self::NoCycles { .. } => Some(
                "set `event` to `cpu_clock`, or to `auto` to use cycles where available".to_owned(),
            ),
            Self::Cpus(_) | Self::Forbidden(_) | Self::Cpu { .. } | Self::None(_) => None,
        }
    }
}

pub struct Events {
    program: OwnedFd,
    clock: Clock,
    frequency: u64,
    by_cpu: BTreeMap<u32, OwnedFd>,
    /// Online CPUs whose perf event failed to open.
    failed_cpus: BTreeSet<u32>,
    last_poll: Instant,
    suspended_time: Duration,
}

impl Events {
    /// Opens and starts a perf event on each online CPU.
    pub fn open(event: Event, frequency: u64, program: OwnedFd) -> Result<Self, EventsError> {
        let mut events = Self {
            program,
            clock: match event {
                Event::CpuClock => Clock::Cpu,
                Event::Cycles | Event::Auto => Clock::cycles(),
            },
            frequency,
            by_cpu: BTreeMap::new(),
            failed_cpus: BTreeSet::new(),
            last_poll: Instant::now(),
            suspended_time: sys::suspended_time(),
        };
        match events.start_all() {
            Err(EventsError::NoCycles { cpu, error }) if event == Event::Auto => {
                tracing::info!(cpu, %error, "No hardware cycle counter; sampling by CPU clock.");
                events.clock = Clock::Cpu;
                events.by_cpu.clear();
                events.start_all()?;
            }
            started => started?,
        }
        Ok(events)
    }

    /// The sampling event in use.
    pub fn clock(&self) -> Clock {
        self.clock
    }

    fn start_all(&mut self) -> Result<(), EventsError> {
        let online = online()?;
        for &cpu in &online {
            match self.start(cpu) {
                Ok(()) => {}
                Err(error) if is_gone(&error) => {
                    tracing::debug!(cpu, %error, "CPU went offline while its perf event was opened");
                }
                Err(error) if self.clock != Clock::Cpu && is_no_counter(&error) => {
                    return Err(EventsError::NoCycles { cpu, error });
                }
                Err(error) => return Err(open_error(cpu, error, online.len())),
            }
        }
        if self.by_cpu.is_empty() {
            return Err(EventsError::None(online.len()));
        }
        Ok(())
    }

    /// Handles CPUs that came online or went offline. Cheap enough to call often.
    pub fn update_cpus(&mut self) {
        if self.last_poll.elapsed() < CPU_POLL_INTERVAL {
            return;
        }
        self.last_poll = Instant::now();
        let online: BTreeSet<u32> = match online() {
            Ok(online) => online.into_iter().collect(),
            Err(error) => {
                tracing::debug!(%error, "failed to list the online CPUs");
                return;
            }
        };
        let suspended_time = sys::suspended_time();
        if suspended_time > self.suspended_time + SUSPEND_THRESHOLD {
            tracing::info!("Host resumed from suspend; reopening perf events.");
            self.by_cpu.clear();
        }
        self.suspended_time = suspended_time;
        self.by_cpu.retain(|&cpu, _| {
            let stays = online.contains(&cpu);
            if !stays {
                tracing::info!(cpu, "CPU went offline.");
            }
            stays
        });
        let added: Vec<u32> = online
            .iter()
            .filter(|cpu| !self.by_cpu.contains_key(cpu))
            .copied()
            .collect();
        self.failed_cpus.retain(|cpu| online.contains(cpu));
        for cpu in added {
            match self.start(cpu) {
                Ok(()) => {
                    self.failed_cpus.remove(&cpu);
                    tracing::info!(cpu, "CPU came online; sampling it.");
                }
                Err(error) => {
                    // Logged once, but retried.
                    if self.failed_cpus.insert(cpu) {
                        let error = open_error(cpu, error, online.len());
                        tracing::warn!(cpu, %error, "CPU came online; failed to sample it.");
                    }
                }
            }
        }
    }

    fn start(&mut self, cpu: u32) -> io::Result<()> {
        if let Entry::Vacant(entry) = self.by_cpu.entry(cpu) {
            let event = sys::open_clock(self.clock, cpu, self.frequency)?;
            sys::attach_program(event.as_fd(), self.program.as_fd())?;
            sys::enable(event.as_fd())?;
            entry.insert(event);
        }
        Ok(())
    }

    /// Sets the frequency of all perf events, including later ones.
    pub fn set_frequency(&mut self, frequency: u64) {
        self.frequency = frequency;
        for (cpu, event) in &self.by_cpu {
            if let Err(error) = sys::set_frequency(self.clock, event.as_fd(), frequency) {
                tracing::warn!(cpu, %error, "Failed to set the sampling frequency.");
            }
        }
    }

    /// Disables all perf events.
    pub fn stop(&self) {
        for (cpu, event) in &self.by_cpu {
            if let Err(error) = sys::disable(event.as_fd()) {
                tracing::debug!(cpu, %error, "failed to disable a perf event");
            }
        }
    }
}

pub fn online() -> Result<Vec<u32>, EventsError> {
    aya::util::online_cpus().map_err(|(path, error)| {
        let text = format!("cannot read {path}: {error}");
        EventsError::Cpus(io::Error::new(error.kind(), text))
    })
}

/// Whether the CPU is gone.
pub fn is_gone(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENODEV | libc::ENXIO))
}

/// Whether the CPU has no such counter, or none that can interrupt.
pub fn is_no_counter(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::EOPNOTSUPP))
}

pub fn open_error(cpu: u32, error: io::Error, cpus: usize) -> EventsError {
    open_error_at(paranoid_level(), cpu, error, cpus)
}

/// Whether the kernel requires `CAP_SYS_ADMIN` instead of `CAP_PERFMON`.
pub fn is_paranoid() -> bool {
    paranoid_level().is_some_and(|level| level > MAX_PARANOID_LEVEL)
}

fn paranoid_level() -> Option<i32> {
    let paranoid = fs::read_to_string(PARANOID);
    paranoid.ok().and_then(|text| text.trim().parse().ok())
}

fn open_error_at(
    paranoid_level: Option<i32>,
    cpu: u32,
    error: io::Error,
    cpus: usize,
) -> EventsError {
    match (error.raw_os_error(), paranoid_level) {
        (Some(libc::EPERM | libc::EACCES), Some(level)) if level > MAX_PARANOID_LEVEL => {
            EventsError::Paranoid { level }
        }
        (Some(libc::EPERM | libc::EACCES), _) => EventsError::Forbidden(error),
        (Some(libc::EMFILE | libc::ENFILE), _) => EventsError::TooManyFiles { error, cpus },
        _ => EventsError::Cpu { cpu, error },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::start_error::ProfilerStartError;

    #[test]
    fn open_errors_name_the_cause_and_the_fix() {
        let check = |error, paranoid_level, expected: &str| {
            let error = io::Error::from_raw_os_error(error);
            let error = open_error_at(paranoid_level, 3, error, 8);
            let message = ProfilerStartError::from(error).to_string();
            assert!(message.contains(expected), "{message}");
        };
        check(
            libc::EACCES,
            Some(3),
            "`kernel.perf_event_paranoid` is 3; set it to 2",
        );
        check(libc::EPERM, Some(2), "seccomp");
        check(libc::EPERM, None, "seccomp");
        check(libc::EMFILE, Some(2), "each of 8 CPUs; raise the limit");
        check(libc::ENFILE, None, "each of 8 CPUs; raise the limit");
        check(libc::ENOENT, Some(3), "a perf event on CPU 3: No such file");
    }

    #[test]
    fn detects_a_missing_counter() {
        for (number, missing) in [
            (libc::ENOENT, true),
            (libc::EOPNOTSUPP, true),
            (libc::EACCES, false),
            (libc::EMFILE, false),
        ] {
            let error = io::Error::from_raw_os_error(number);
            assert_eq!(is_no_counter(&error), missing, "{error}");
        }
    }

    #[test]
    fn detects_a_cpu_that_is_gone() {
        for (error, gone) in [
            (libc::ENODEV, true),
            (libc::ENXIO, true),
            (libc::EPERM, false),
        ] {
            assert_eq!(is_gone(&io::Error::from_raw_os_error(error)), gone);
        }
    }
}
