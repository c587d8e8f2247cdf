//! Why the programs cannot be loaded; errors of the kernel in one line.

use std::error::Error;
use std::fmt;

use aya::EbpfError;
use aya::maps::MapError;
use aya::programs::ProgramError;
use profcol_printable::with_causes;

use crate::btf::BtfError;

#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    #[error(transparent)]
    Btf(#[from] BtfError),
    #[error("failed to create the BPF maps: {0}")]
    Object(#[source] ProgramLoadError),
    #[error(
        "failed to create the BPF maps: before Linux 5.11 they count as locked memory, which is limited to {limit} bytes \
         for this process"
    )]
    LockedMemory { limit: u64 },
    #[error("failed to load the BPF program `{name}`: {error}")]
    Program {
        name: &'static str,
        #[source]
        error: ProgramLoadError,
    },
    #[error("the BPF object has no `{0}`")]
    Missing(&'static str),
    #[error("failed to access the BPF map `{name}`: {error}")]
    Map {
        name: &'static str,
        #[source]
        error: MapError,
    },
    #[error("failed to read the number of CPUs: {0}")]
    Cpus(#[source] std::io::Error),
    #[error("failed to map the memory shared with the BPF programs: {0}")]
    Memory(#[source] std::io::Error),
    #[error("failed to detect the user address range: {0}")]
    Addresses(#[source] std::io::Error),
}

impl LoadError {
    pub(crate) fn fix(&self) -> Option<String> {
        match self {
            Self::Btf(error) => error.fix(),
            Self::LockedMemory { .. } => Some(
                "raise the limit (`ulimit -l unlimited`, systemd: `LimitMEMLOCK=infinity`)"
                    .to_owned(),
            ),
            Self::Addresses(_) => Some("mount /proc".to_owned()),
            Self::Object(_)
            | Self::Program { .. }
            | Self::Missing(_)
            | Self::Map { .. }
            | Self::Cpus(_)
            | Self::Memory(_) => None,
        }
    }
}

/// An error with its causes and the decisive line of the verifier log.
///
/// More of the log, for bug reports, is logged at debug level.
/// As text only: nothing is decided by the causes.
#[derive(Debug)]
pub struct ProgramLoadError(String);

impl fmt::Display for ProgramLoadError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl Error for ProgramLoadError {}

impl From<EbpfError> for ProgramLoadError {
    fn from(error: EbpfError) -> Self {
        Self(with_causes(&error))
    }
}

impl From<ProgramError> for ProgramLoadError {
    fn from(error: ProgramError) -> Self {
        match &error {
            ProgramError::LoadError {
                io_error,
                verifier_log,
            } => {
                let log = verifier_log.to_string();
                tracing::debug!("end of the verifier log:\n{}", tail(&log));
                match rejection(&log) {
                    Some(rejection) => Self(format!("{io_error}: {rejection}")),
                    None => Self(io_error.to_string()),
                }
            }
            error => Self(with_causes(error)),
        }
    }
}

/// Lines to keep of a log, which has one or more lines per instruction.
const LINES: usize = 40;

fn tail(log: &str) -> &str {
    let end = log.trim_end();
    match end.rmatch_indices('\n').nth(LINES - 1) {
        Some((at, _)) => end.get(at + 1..).unwrap_or_default(),
        None => end,
    }
}

/// The reason in the verifier log: the last line that is neither an instruction, nor the state before one, nor
/// a statistic.
fn rejection(log: &str) -> Option<&str> {
    log.lines().map(str::trim).rev().find(|line| {
        let is_figure = ["processed ", "verification time ", "stack depth "]
            .iter()
            .any(|begin| line.starts_with(begin));
        let is_instruction = line.starts_with(|first: char| first.is_ascii_digit() || first == ';');
        !line.is_empty() && !is_figure && !is_instruction
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_rejection() {
        let check = |log: &str, expected: Option<&str>| assert_eq!(rejection(log), expected);
        check("", None);
        check(
            "Func#3 ('locate') is safe for any args that match its prototype\n\
             combined stack size of 3 calls is 672. Too large\n\
             verification time 1118719 usec\n\
             stack depth 320+0+160+184\n\
             processed 22261 insns (limit 1000000) max_states_per_insn 4\n",
            Some("combined stack size of 3 calls is 672. Too large"),
        );
        check(
            "0: R1=ctx(off=0,imm=0) R10=fp0\n\
             ; let x = read(1)\n\
             0: (85) call bpf_probe_read_kernel#113\n\
             unknown func bpf_probe_read_kernel#113\n\
             processed 1 insns (limit 1000000) max_states_per_insn 0\n",
            Some("unknown func bpf_probe_read_kernel#113"),
        );
    }

    #[test]
    fn keeps_the_end_of_a_long_log() {
        let log: String = (0..100).map(|line| format!("{line}\n")).collect();
        assert_eq!(tail(&log).lines().count(), LINES);
        assert!(tail(&log).starts_with("60\n") && tail(&log).ends_with("\n99"));
        assert_eq!(tail("one\ntwo\n"), "one\ntwo");
    }

    #[test]
    fn includes_causes_missing_from_the_error_message() {
        let error = EbpfError::MapError(MapError::CreateError {
            name: "arena".into(),
            io_error: std::io::Error::from_raw_os_error(22),
        });
        assert_eq!(
            ProgramLoadError::from(error).to_string(),
            "map error: failed to create map `arena`: Invalid argument (os error 22)"
        );
    }
}
