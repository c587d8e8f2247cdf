//! A component's requirement checks, run by `profcol doctor`.
//!
//! Checks inspect and connect; they send no data and leave nothing behind.

mod listen;
pub mod path_check;

pub use listen::Listening;

/// The result of one check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// Stable across versions, for scripts.
    pub name: String,
    pub found: String,
    /// `None` if the check passed.
    pub problem: Option<Problem>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    pub severity: Severity,
    /// What does not work because of it.
    pub consequence: String,
    /// How to fix it.
    pub fix: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Works, with limitations.
    Warning,
    /// Does not work.
    Failure,
}

impl Check {
    pub fn new(name: impl Into<String>, found: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            found: found.into(),
            problem: None,
        }
    }

    /// Works, with limitations.
    #[must_use]
    pub fn warn(self, consequence: impl Into<String>, fix: impl Into<String>) -> Self {
        self.with(Severity::Warning, consequence.into(), fix.into())
    }

    /// Does not work.
    #[must_use]
    pub fn fail(self, consequence: impl Into<String>, fix: impl Into<String>) -> Self {
        self.with(Severity::Failure, consequence.into(), fix.into())
    }

    pub fn severity(&self) -> Option<Severity> {
        self.problem.as_ref().map(|problem| problem.severity)
    }

    fn with(mut self, severity: Severity, consequence: String, fix: String) -> Self {
        self.problem = Some(Problem {
            severity,
            consequence,
            fix,
        });
        self
    }
}
