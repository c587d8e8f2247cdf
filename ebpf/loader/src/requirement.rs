//! A requirement of profiling, and how this host meets it.

/// One requirement, and how the host meets it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requirement {
    /// A stable name, for scripts.
    pub name: &'static str,
    pub found: String,
    /// None if it is met.
    pub shortfall: Option<Shortfall>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shortfall {
    /// Whether it prevents profiling.
    pub is_fatal: bool,
    pub consequence: String,
    /// The exact fix.
    pub fix: String,
}

impl Requirement {
    pub(crate) fn met(name: &'static str, found: impl Into<String>) -> Self {
        Self {
            name,
            found: found.into(),
            shortfall: None,
        }
    }

    pub(crate) fn limits(self, consequence: impl Into<String>, fix: impl Into<String>) -> Self {
        self.falls_short(false, consequence.into(), fix.into())
    }

    pub(crate) fn prevents(self, consequence: impl Into<String>, fix: impl Into<String>) -> Self {
        self.falls_short(true, consequence.into(), fix.into())
    }

    fn falls_short(mut self, is_fatal: bool, consequence: String, fix: String) -> Self {
        self.shortfall = Some(Shortfall {
            is_fatal,
            consequence,
            fix,
        });
        self
    }
}
