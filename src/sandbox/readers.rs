//! The processes that read executables for the service: this program, started again before the sandbox is entered.
//!
//! | process | what it may do |
//! |---|---|
//! | supervisor | starts and kills readers; no capabilities |
//! | reader | reads the files that it is given: no capabilities, no other file, no program, no socket, limited memory |

use std::ffi::OsString;
use std::os::fd::AsFd;
use std::process::ExitCode;

use nix::sys::signal::{SigSet, Signal as BlockedSignal};
use profcol_component::Capabilities;
use profcol_engine::Document;
use profcol_reader::{LOW_NICE, LOW_TABLE_NICE, ReaderKind, Readers, StartError, serve, supervise};
use rustix::process::{
    Resource, Rlimit, Signal, getrlimit, set_parent_process_death_signal, setrlimit,
};

use super::paths::Landlock;
use super::seccomp;
use crate::privileges;

/// The hidden command.
const COMMAND: &str = "read-files";
const SUPERVISOR: &str = "supervisor";
const SYMBOLS: &str = "symbols";
const UNWIND_TABLES: &str = "unwind-tables";
/// The priority of a reader.
const LOW: &str = "low";
const NORMAL: &str = "normal";
/// Of at most 1000: the kernel ends readers first when memory runs out.
const OOM_SCORE_ADJ: &str = "500";
/// Address space besides the tables: the program, and what is built before it is dropped as too large (200 MiB for a hostile
/// file).
const BASE_MEMORY: u64 = 384 << 20;
/// Files that a reader may hold open.
const MAX_FILES: u64 = 4096;

/// Whether executables are read in other processes.
#[derive(Clone, Debug, Default)]
pub enum Supervision {
    Started(Readers),
    /// They are read in this process.
    #[default]
    InProcess,
    /// The configuration has no component that reads them.
    NotNeeded,
}

impl Supervision {
    pub fn start(document: &Document) -> Self {
        if !document.service.sandbox.reader {
            return Self::InProcess;
        }
        if !document.reads_executables() {
            return Self::NotNeeded;
        }
        match Readers::start(&[COMMAND, SUPERVISOR]) {
            Ok(readers) => {
                tracing::debug!("Started the supervisor of reader processes.");
                Self::Started(readers)
            }
            Err(error) => {
                tracing::warn!(
                    %error,
                    "Failed to start a reader process; reading executables in this one, where a bug does more harm."
                );
                Self::InProcess
            }
        }
    }

    /// Whether such a process can be started.
    pub fn check() -> Result<(), StartError> {
        Readers::start(&[COMMAND, SUPERVISOR]).map(|readers| readers.stop())
    }

    pub fn readers(&self) -> Readers {
        match self {
            Self::Started(readers) => readers.clone(),
            Self::InProcess | Self::NotNeeded => Readers::default(),
        }
    }

    pub fn admits(&self, document: &Document) -> bool {
        !matches!(self, Self::NotNeeded) || !document.reads_executables()
    }
}

/// What this process is for, if not for the command line.
#[derive(Debug, PartialEq, Eq)]
pub enum Role {
    Supervisor,
    Reader {
        kind: ReaderKind,
        max_memory: u64,
        low_priority: bool,
    },
}

/// The role that these arguments ask for; the first is the program.
pub fn role(arguments: impl Iterator<Item = OsString>) -> Option<Role> {
    let arguments: Vec<OsString> = arguments.skip(1).take(4).collect();
    let words: Option<Vec<&str>> = arguments.iter().map(|it| it.to_str()).collect();
    match words?[..] {
        [COMMAND, SUPERVISOR] => Some(Role::Supervisor),
        [COMMAND, kind, max_memory, priority] => Some(Role::Reader {
            kind: match kind {
                SYMBOLS => ReaderKind::Symbols,
                UNWIND_TABLES => ReaderKind::UnwindTables,
                _ => return None,
            },
            max_memory: max_memory.parse().ok()?,
            low_priority: priority == LOW,
        }),
        _ => None,
    }
}

fn reader_arguments(kind: ReaderKind, max_memory: u64, low_priority: bool) -> Vec<String> {
    let kind = match kind {
        ReaderKind::Symbols => SYMBOLS,
        ReaderKind::UnwindTables => UNWIND_TABLES,
    };
    let priority = if low_priority { LOW } else { NORMAL };
    [COMMAND, kind, &max_memory.to_string(), priority]
        .map(str::to_owned)
        .into()
}

impl Role {
    /// Runs until the agent is gone; its socket is the standard input.
    pub fn run(&self) -> ExitCode {
        let Ok(socket) = std::io::stdin().as_fd().try_clone_to_owned() else {
            return ExitCode::FAILURE;
        };
        // Else the name is that of the link to the program.
        let _ = rustix::thread::set_name(match self {
            Self::Supervisor => c"profcol-readers",
            Self::Reader { .. } => c"profcol-reader",
        });
        let ended = match *self {
            Self::Supervisor => {
                block_stop_signals();
                give_up_rights();
                supervise(socket, reader_arguments)
            }
            Self::Reader {
                kind,
                max_memory,
                low_priority,
            } => {
                let nice = low_priority.then(|| low_nice(kind));
                let missing = restrict(max_memory, nice).join(", ");
                match kind {
                    ReaderKind::Symbols => serve(socket, missing),
                    #[cfg(feature = "ebpf_cpu")]
                    ReaderKind::UnwindTables => profcol_ebpf_reader::serve(socket, missing),
                    #[cfg(not(feature = "ebpf_cpu"))]
                    ReaderKind::UnwindTables => Err(std::io::ErrorKind::Unsupported.into()),
                }
            }
        };
        match ended {
            Ok(()) => ExitCode::SUCCESS,
            Err(_) => ExitCode::FAILURE,
        }
    }
}

/// Signals to stop are for the agent, which still needs its readers then: systemd sends them to all processes of a service.
/// Readers inherit this.
fn block_stop_signals() {
    let signals = [
        BlockedSignal::SIGTERM,
        BlockedSignal::SIGINT,
        BlockedSignal::SIGHUP,
        BlockedSignal::SIGQUIT,
        BlockedSignal::SIGUSR1,
        BlockedSignal::SIGUSR2,
        BlockedSignal::SIGALRM,
    ];
    // Then they end as the agent begins to stop.
    let _ = signals.into_iter().collect::<SigSet>().thread_block();
}

fn give_up_rights() {
    // The parent has done so, too; the socket ends this process where the kernel does not.
    privileges::keep(Capabilities::NONE);
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
}

/// The niceness of a reader that yields to other programs. Stacks stay incomplete until their tables are built, while
/// names may come later.
fn low_nice(kind: ReaderKind) -> i32 {
    match kind {
        ReaderKind::Symbols => LOW_NICE,
        ReaderKind::UnwindTables => LOW_TABLE_NICE,
    }
}

/// Restricts a reader. Returns what the kernel lacks.
fn restrict(max_memory: u64, nice: Option<i32>) -> Vec<&'static str> {
    give_up_rights();
    let mut missing = Vec::new();
    if let Some(nice) = nice
        && rustix::process::setpriority_process(None, nice).is_err()
    {
        missing.push("low priority");
    }
    // If memory runs out, the kernel kills this process before others.
    if std::fs::write("/proc/self/oom_score_adj", OOM_SCORE_ADJ).is_err() {
        missing.push("a higher score for the out-of-memory killer");
    }
    let memory = max_memory.saturating_add(BASE_MEMORY);
    if limit(Resource::As, memory).is_err() {
        missing.push("limit of memory");
    }
    if limit(Resource::Nofile, MAX_FILES).is_err() {
        missing.push("limit of open files");
    }
    if Landlock::deny_all().is_err() {
        missing.push("Landlock");
    }
    // Last, as it denies the others.
    if seccomp::restrict_reader().is_err() {
        missing.push("seccomp");
    }
    missing
}

/// Lowers a limit for good.
fn limit(resource: Resource, most: u64) -> Result<(), rustix::io::Errno> {
    let held = getrlimit(resource).maximum;
    let most = Some(held.map_or(most, |held| held.min(most)));
    setrlimit(
        resource,
        Rlimit {
            current: most,
            maximum: most,
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_are_those_that_profcol_gives_itself() {
        let read = |words: &[&str]| {
            let words = ["profcol"].iter().chain(words);
            role(words.map(|&word| word.into()))
        };
        assert_eq!(read(&[COMMAND, SUPERVISOR]), Some(Role::Supervisor));
        let kinds = [ReaderKind::Symbols, ReaderKind::UnwindTables];
        for (kind, low_priority) in kinds.into_iter().zip([true, false]) {
            let given = reader_arguments(kind, 1 << 20, low_priority);
            let given: Vec<&str> = given.iter().map(String::as_str).collect();
            let max_memory = 1 << 20;
            assert_eq!(
                read(&given),
                Some(Role::Reader {
                    kind,
                    max_memory,
                    low_priority
                })
            );
        }
        for other in [
            &[][..],
            &["run"],
            &[COMMAND],
            &[COMMAND, SYMBOLS, "much", LOW],
            &[COMMAND, "walnuts", "1", LOW],
            &[COMMAND, SUPERVISOR, "more"],
        ] {
            assert_eq!(read(other), None, "{other:?}");
        }
    }
}
