//! What a component finds where it is to work: `profcol doctor` asks before anything runs.
//!
//! Checks look and knock; they send no data and leave nothing behind.

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// For scripts: it stays as it is from version to version.
    pub name: String,
    pub found: String,
    /// None where all is well.
    pub problem: Option<Problem>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    pub severity: Severity,
    /// What is lost by it.
    pub consequence: String,
    /// What to do, exactly.
    pub fix: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// It works, and less well than it could.
    Warning,
    /// It will not work.
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

    /// It works, and less well than it could.
    #[must_use]
    pub fn warn(self, consequence: impl Into<String>, fix: impl Into<String>) -> Self {
        self.with(Severity::Warning, consequence.into(), fix.into())
    }

    /// It will not work.
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
