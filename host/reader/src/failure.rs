//! How a reader in another process fails.

use std::fmt;

const KILL: i32 = 9;
const ABORT: i32 = 6;

/// How a reader failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReaderFailure {
    /// The process ended; `None` if it is not known how.
    Ended(Option<Exit>),
    /// It used too much CPU time, or none at all.
    Deadline(&'static str),
    /// It sent an invalid response.
    Invalid(String),
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    Code(i32),
    Signal(i32),
}

/// Why a request was not answered.
#[derive(Debug)]
pub enum Interrupted {
    /// The next request starts another process.
    Failed(ReaderFailure),
    Stopped,
}

// === impl ReaderFailure ===

impl ReaderFailure {
    /// A short name for metrics.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Ended(Some(Exit::Signal(KILL))) => "killed",
            Self::Ended(Some(Exit::Signal(ABORT))) => "aborted",
            Self::Ended(Some(Exit::Signal(_))) => "crashed",
            Self::Ended(Some(Exit::Code(_)) | None) => "exited",
            Self::Deadline(_) => "deadline",
            Self::Invalid(_) => "invalid_answer",
        }
    }

    /// All of them.
    pub const REASONS: [&str; 6] = [
        "killed",
        "aborted",
        "crashed",
        "exited",
        "deadline",
        "invalid_answer",
    ];
}

impl fmt::Display for ReaderFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ended(None) => write!(f, "it exited"),
            Self::Ended(Some(Exit::Code(code))) => write!(f, "it exited with code {code}"),
            Self::Ended(Some(Exit::Signal(ABORT))) => write!(
                f,
                "it aborted (signal 6), probably because it reached its memory limit"
            ),
            Self::Ended(Some(Exit::Signal(signal))) => write!(f, "signal {signal} killed it"),
            Self::Deadline(why) => f.write_str(why),
            Self::Invalid(why) => write!(f, "it sent an invalid response: {why}"),
        }
    }
}
