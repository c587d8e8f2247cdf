//! Landlock: files change only below the directories of the configuration, no program is started, no signal is sent.
//!
//! Reading is not restricted: certificates, tokens and name resolution read in places that no configuration names.

use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, AccessNet, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset,
    RulesetAttr, RulesetCreatedAttr, RulesetError, RulesetStatus, Scope,
};

/// The newest version whose rights are used. Older kernels apply those they know.
const VERSION: ABI = ABI::V6;

/// The directories that Landlock lets this process change.
#[derive(Clone, Debug)]
pub struct Landlock {
    directories: Vec<PathBuf>,
}

#[derive(Debug, thiserror::Error)]
pub enum LandlockError {
    #[error("the kernel does not support it, or it is not in the kernel's list `lsm=`")]
    Unsupported,
    #[error(transparent)]
    Rules(#[from] RulesetError),
}

impl Landlock {
    /// Restricts the calling thread. A directory that does not exist yet opens its nearest existing parent, where it will
    /// be created.
    pub fn restrict(directories: Vec<PathBuf>) -> Result<Self, LandlockError> {
        let mut directories: Vec<PathBuf> = directories.iter().map(|it| existing(it)).collect();
        directories.sort();
        directories.dedup();
        let null = PathBuf::from("/dev/null");
        let mut rules = Ruleset::default()
            .set_compatibility(CompatLevel::BestEffort)
            .handle_access(denied())?
            .scope(Scope::Signal)?
            .create()?;
        for path in directories.iter().chain([&null]) {
            // One that vanished in between stays denied.
            if let Ok(opened) = PathFd::new(path) {
                rules = rules.add_rule(PathBeneath::new(opened, allowed(path)))?;
            }
        }
        match rules.restrict_self()?.ruleset {
            RulesetStatus::NotEnforced => Err(LandlockError::Unsupported),
            RulesetStatus::FullyEnforced | RulesetStatus::PartiallyEnforced => {
                Ok(Self { directories })
            }
        }
    }

    /// Denies the calling thread all files, TCP, sockets outside of it, and signals. Open files stay open.
    pub fn deny_all() -> Result<(), LandlockError> {
        let rules = Ruleset::default()
            .set_compatibility(CompatLevel::BestEffort)
            .handle_access(AccessFs::from_all(VERSION))?
            .handle_access(AccessNet::from_all(VERSION))?
            .scope(Scope::from_all(VERSION))?
            .create()?;
        match rules.restrict_self()?.ruleset {
            RulesetStatus::NotEnforced => Err(LandlockError::Unsupported),
            RulesetStatus::FullyEnforced | RulesetStatus::PartiallyEnforced => Ok(()),
        }
    }

    /// Whether the kernel has Landlock.
    pub fn is_available() -> bool {
        let rules = Ruleset::default().set_compatibility(CompatLevel::HardRequirement);
        let handled = rules.handle_access(AccessFs::Execute);
        handled.and_then(|rules| rules.create()).is_ok()
    }

    pub fn directories(&self) -> &[PathBuf] {
        &self.directories
    }

    /// Whether files below `directory` may change.
    pub fn admits(&self, directory: &Path) -> bool {
        let directory = existing(directory);
        self.directories.iter().any(|it| directory.starts_with(it))
    }
}

/// All ways to change files, and starting programs.
fn denied() -> landlock::BitFlags<AccessFs> {
    AccessFs::from_write(VERSION) | AccessFs::Execute
}

fn allowed(path: &Path) -> landlock::BitFlags<AccessFs> {
    let rights = AccessFs::from_write(VERSION) & !AccessFs::IoctlDev;
    match path.is_dir() {
        true => rights,
        false => rights & AccessFs::from_file(VERSION),
    }
}

/// The nearest existing parent of `path`, without symbolic links.
fn existing(path: &Path) -> PathBuf {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let mut candidates = absolute.ancestors();
    candidates
        .find_map(|it| it.canonicalize().ok())
        .unwrap_or(absolute)
}
