//! Checks whether files can be created in a directory, and the free disk space.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{Access, AtFlags, CWD, accessat, statvfs};
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use super::Check;

/// Names of checks.
const DIRECTORY: &str = "directory";
const DISK_SPACE: &str = "disk_space";

const CONSEQUENCE: &str = "profcol does not start, or profiles are not written";

/// Some files of a busy host take more.
const LOW_DISK_SPACE: u64 = 256 << 20;
/// Too small for anything useful.
const MIN_DISK_SPACE: u64 = 1 << 20;

/// A slower file system is on a network server that is down.
const TIMEOUT: Duration = Duration::from_secs(4);

/// Checks a directory for new files. With `is_created` it may be missing.
pub async fn of_directory(directory: &Path, is_created: bool) -> Vec<Check> {
    let shown = directory.display().to_string();
    let directory: PathBuf = directory.to_owned();
    let looking = in_time(move || look_at(&directory, is_created)).await;
    looking.unwrap_or_else(|| {
        vec![Check::new(DIRECTORY, format!("{shown}: timeout")).fail(
            CONSEQUENCE,
            format!("check its file system (`df {shown}`): the server of a network file system may be down"),
        )]
    })
}

/// Looks at files. `None` if their file system does not answer in time.
pub async fn in_time<T: Send + 'static>(look: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    timeout(TIMEOUT, spawn_blocking(look)).await.ok()?.ok()
}

/// Whether files can be created and removed in a directory.
pub fn is_writable(directory: &Path) -> io::Result<()> {
    let (needed, flags) = (Access::WRITE_OK | Access::EXEC_OK, AtFlags::EACCESS);
    Ok(accessat(CWD, directory, needed, flags)?)
}

/// Checks the directory of a file.
pub async fn of_file(file: &Path, is_created: bool) -> Vec<Check> {
    of_directory(parent(file), is_created).await
}

fn parent(file: &Path) -> &Path {
    let parent = file.parent().filter(|it| !it.as_os_str().is_empty());
    parent.unwrap_or(Path::new("."))
}

fn look_at(directory: &Path, is_created: bool) -> Vec<Check> {
    let shown = directory.display();
    let existing = match is_created {
        true => nearest(directory),
        false => directory,
    };
    let found = |error: io::Error| match existing == directory {
        true => format!("{shown}: {error}"),
        false => format!(
            "{shown} does not exist and cannot be created: {}: {error}",
            existing.display()
        ),
    };
    match std::fs::metadata(existing) {
        Ok(metadata) if !metadata.is_dir() => {
            let fix = format!(
                "move {} away, or choose another directory",
                existing.display()
            );
            return vec![
                Check::new(
                    DIRECTORY,
                    format!("{} is not a directory", existing.display()),
                )
                .fail(CONSEQUENCE, fix),
            ];
        }
        Err(error) => {
            let fix = format!("create it: mkdir -p {shown}, owned by the user of profcol");
            return vec![Check::new(DIRECTORY, found(error)).fail(CONSEQUENCE, fix)];
        }
        Ok(_) => {}
    }
    if let Err(error) = is_writable(existing) {
        let fix = format!(
            "give it to the user of profcol: chown PROFCOL_USER {}, or choose another directory",
            existing.display()
        );
        return vec![Check::new(DIRECTORY, found(error)).fail(CONSEQUENCE, fix)];
    }
    let there = match existing == directory {
        true => format!("{shown} is writable"),
        false => format!("{shown} does not exist and can be created"),
    };
    let mut checks = vec![Check::new(DIRECTORY, there)];
    if let Ok(disk) = statvfs(existing) {
        let free = disk.f_bavail.saturating_mul(disk.f_frsize);
        checks.push(free_space_check(directory, free));
    }
    checks
}

fn free_space_check(directory: &Path, free: u64) -> Check {
    let shown = directory.display();
    let check = Check::new(DISK_SPACE, format!("{} MiB free for {shown}", free >> 20));
    let fix = format!(
        "free space on the file system of {shown} (`df {shown}`), or choose another directory"
    );
    match free {
        0..MIN_DISK_SPACE => check.fail("profiles cannot be written and are dropped", fix),
        MIN_DISK_SPACE..LOW_DISK_SPACE => check.warn(
            "the disk is almost full; profiles are dropped once it is full",
            fix,
        ),
        _ => check,
    }
}

/// The directory, or its nearest existing ancestor.
fn nearest(directory: &Path) -> &Path {
    let mut directories = directory.ancestors();
    let found = directories.find(|it| it.symlink_metadata().is_ok());
    // The last ancestor of a relative path is empty, and means the working directory.
    match found {
        Some(found) => found,
        None => Path::new("."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Severity;

    fn severities(checks: &[Check]) -> Vec<Option<Severity>> {
        checks.iter().map(Check::severity).collect()
    }

    #[test]
    fn a_directory_must_exist_unless_it_is_created() {
        let root = tempfile::tempdir().unwrap();
        let missing = root.path().join("a/b");
        let made = look_at(&missing, true);
        assert_eq!(made[0].severity(), None, "{made:?}");
        assert!(
            made[0].found.ends_with("does not exist and can be created"),
            "{made:?}"
        );
        let missing = look_at(&missing, false);
        assert_eq!(severities(&missing), [Some(Severity::Failure)]);
        let there = look_at(root.path(), false);
        assert!(there[0].found.ends_with("is writable"), "{there:?}");
        assert_eq!(there.len(), 2);
    }

    #[test]
    fn reports_a_file_in_the_way() {
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join("f");
        std::fs::write(&file, "").unwrap();
        for path in [file.clone(), file.join("below")] {
            let checks = look_at(&path, true);
            assert_eq!(severities(&checks), [Some(Severity::Failure)], "{checks:?}");
            assert!(checks[0].found.contains(&*file.to_string_lossy()));
        }
    }

    #[tokio::test]
    async fn proc_is_not_writable_for_root_either() {
        let checks = of_file(Path::new("/proc/self/profile.html"), false).await;
        assert_eq!(severities(&checks), [Some(Severity::Failure)], "{checks:?}");
    }

    #[test]
    fn little_space_warns_and_none_fails() {
        let severity = |free| free_space_check(Path::new("/x"), free).severity();
        assert_eq!(severity(0), Some(Severity::Failure));
        assert_eq!(severity(MIN_DISK_SPACE), Some(Severity::Warning));
        assert_eq!(severity(LOW_DISK_SPACE), None);
    }

    #[test]
    fn a_file_without_directory_is_in_the_working_directory() {
        assert_eq!(parent(Path::new("profile.html")), Path::new("."));
        assert_eq!(parent(Path::new("/a/profile.html")), Path::new("/a"));
    }
}
