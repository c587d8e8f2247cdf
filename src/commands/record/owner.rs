//! Gives the recorded file to the user who ran `sudo`: it is for that user to open.

use std::fs::File;
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, fchown};
use std::path::Path;

use rustix::fs::OFlags;

/// The user who ran `sudo`.
#[derive(Debug, PartialEq, Eq)]
pub struct SudoUser {
    uid: u32,
    gid: u32,
}

impl SudoUser {
    /// By the variables that `sudo` sets; `None` if root runs profcol without it.
    pub fn detect() -> Option<Self> {
        let id = |name| std::env::var(name).ok();
        match rustix::process::geteuid().is_root() {
            true => Self::of(id("SUDO_UID"), id("SUDO_GID")),
            false => None,
        }
    }

    fn of(uid: Option<String>, gid: Option<String>) -> Option<Self> {
        let user = Self {
            uid: uid?.parse().ok()?,
            gid: gid?.parse().ok()?,
        };
        (user.uid != 0).then_some(user)
    }

    /// Whoever owns the directory may have put a link in the file's place, so only a file of root with a single name is
    /// given away.
    pub fn give(&self, path: &Path) -> io::Result<()> {
        let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
        let file = File::options().read(true).custom_flags(flags).open(path)?;
        let metadata = file.metadata()?;
        if !metadata.is_file() || metadata.uid() != 0 || metadata.nlink() != 1 {
            return Err(io::Error::other("another file has taken its place"));
        }
        fchown(&file, Some(self.uid), Some(self.gid))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_other_users_get_files() {
        let of = |uid: &str, gid: &str| SudoUser::of(Some(uid.to_owned()), Some(gid.to_owned()));
        assert_eq!(
            of("1000", "100"),
            Some(SudoUser {
                uid: 1000,
                gid: 100
            })
        );
        assert_eq!(of("0", "0"), None);
        assert_eq!(of("-1", "100"), None);
        assert_eq!(SudoUser::of(Some("1000".to_owned()), None), None);
    }

    #[test]
    fn links_are_not_given_away() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let [file, twin, link] = ["file", "twin", "link"].map(|name| directory.path().join(name));
        std::fs::write(&file, b"").expect("writable");
        std::os::unix::fs::symlink(&file, &link).expect("writable");
        std::fs::hard_link(&file, &twin).expect("writable");
        let user = SudoUser {
            uid: 1000,
            gid: 100,
        };
        for path in [&link, &twin] {
            assert!(user.give(path).is_err(), "{}", path.display());
        }
    }
}
