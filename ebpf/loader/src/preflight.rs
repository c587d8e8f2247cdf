//! Checks the prerequisites of profiling.
//!
//! Checking them first gives better errors: the kernel returns the same error number for most of them.

use std::fs;
use std::io;
use std::path::Path;

use crate::capabilities::{CHANGE_CAPABILITIES, Capabilities};
use crate::namespace::{self, Scope};

#[derive(Debug, thiserror::Error)]
pub enum PreflightError {
    #[error("failed to read /proc/self/status: {0}")]
    Status(#[from] io::Error),
    #[error("profiling requires {missing}, which this process does not have")]
    Capabilities { missing: String },
    #[error(
        "the kernel is locked down for confidentiality, so BPF programs may not read kernel memory"
    )]
    LockedDown,
}

impl PreflightError {
    pub(crate) fn fix(&self) -> String {
        match self {
            Self::Status(_) => "mount /proc".to_owned(),
            Self::Capabilities { .. } => {
                format!("run it as root, or give it the capabilities ({CHANGE_CAPABILITIES})")
            }
            Self::LockedDown => "boot with `lockdown=integrity` or without lockdown".to_owned(),
        }
    }
}

/// Fails on missing prerequisites, and warns about optional ones.
pub fn check(scope: Scope) -> Result<(), PreflightError> {
    let effective = Capabilities::from_status(&fs::read_to_string("/proc/self/status")?);
    check_capabilities(effective)?;
    // Missing if the kernel has no lockdown module or securityfs is not mounted.
    let lockdown = fs::read_to_string("/sys/kernel/security/lockdown").unwrap_or_default();
    if lockdown.contains("[confidentiality]") {
        return Err(PreflightError::LockedDown);
    }
    for (name, cost) in effective.missing_optional() {
        tracing::warn!(capability = %name, effect = %cost, "Capability missing.");
    }
    let namespace = namespace::requirement(Path::new("/"), scope, std::process::id());
    if let Some(shortfall) = namespace.shortfall {
        let (found, consequence, fix) = (namespace.found, shortfall.consequence, shortfall.fix);
        tracing::warn!("{found}: {consequence}. {fix}.");
    }
    Ok(())
}

fn check_capabilities(effective: Capabilities) -> Result<(), PreflightError> {
    let missing: Vec<&str> = effective.missing_required().collect();
    if missing.is_empty() {
        return Ok(());
    }
    Err(PreflightError::Capabilities {
        missing: missing.join(" and "),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_all_missing_capabilities() {
        let error = check_capabilities(Capabilities::from_status("")).unwrap_err();
        assert_eq!(
            error.to_string(),
            "profiling requires CAP_BPF and CAP_PERFMON, which this process does not have"
        );
    }
}
