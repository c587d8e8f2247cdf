//! Why profiling cannot start, and the fix.

use crate::btf::BtfError;
use crate::events::EventsError;
use crate::load_error::LoadError;
use crate::preflight::PreflightError;
use crate::self_test::SelfTestError;
use crate::sideband::SideBandError;

/// The text ends with the fix, if it is known.
#[derive(Debug, thiserror::Error)]
#[error("{failure}{}", fix_of(.failure))]
pub struct ProfilerStartError {
    #[source]
    pub failure: StartFailure,
}

/// Why profiling cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartFailure {
    #[error(transparent)]
    Preflight(#[from] PreflightError),
    #[error(transparent)]
    Btf(#[from] BtfError),
    #[error(transparent)]
    Load(#[from] LoadError),
    #[error(transparent)]
    SelfTest(#[from] SelfTestError),
    #[error(transparent)]
    SideBand(#[from] SideBandError),
    #[error(transparent)]
    Events(#[from] EventsError),
    #[error("failed to read the PID namespace of this process: {0}")]
    Namespace(#[source] std::io::Error),
    #[error("failed to map the ring buffer of the BPF programs: {0}")]
    RecordBuffer(#[source] std::io::Error),
    #[error("failed to start the unwind table thread: {0}")]
    Thread(#[source] std::io::Error),
}

impl StartFailure {
    pub fn fix(&self) -> Option<String> {
        match self {
            Self::Preflight(error) => Some(error.fix()),
            Self::Btf(error) => error.fix(),
            Self::Load(error) => error.fix(),
            Self::SelfTest(error) => error.fix(),
            Self::SideBand(error) => error.fix(),
            Self::Events(error) => error.fix(),
            Self::Namespace(_) => Some("mount /proc".to_owned()),
            Self::RecordBuffer(_) | Self::Thread(_) => None,
        }
    }
}

fn fix_of(failure: &StartFailure) -> String {
    failure
        .fix()
        .map_or_else(String::new, |fix| format!("; {fix}"))
}

impl<E: Into<StartFailure>> From<E> for ProfilerStartError {
    fn from(error: E) -> Self {
        Self {
            failure: error.into(),
        }
    }
}
