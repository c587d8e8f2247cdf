//! Why mappings cannot be followed by events, and the fix.

use std::io;

use crate::events::EventsError;

#[derive(Debug, thiserror::Error)]
pub enum SideBandError {
    #[error("failed to open perf events for mappings: {0}")]
    Events(#[from] EventsError),
    #[error("failed to allocate perf ring buffers for mappings: {0}")]
    Memory(#[source] io::Error),
    #[error("failed to start the mapping tracker thread: {0}")]
    Thread(#[source] io::Error),
}

impl SideBandError {
    pub(crate) fn fix(&self) -> Option<String> {
        match self {
            Self::Events(error) => error.fix(),
            Self::Memory(_) => {
                Some("raise `kernel.perf_event_mlock_kb` or the limit of locked memory".to_owned())
            }
            Self::Thread(_) => None,
        }
    }
}
