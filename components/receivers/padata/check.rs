//! Checks the directory of recordings.

use std::io;
use std::path::{Path, PathBuf};

use profcol_component::{Check, path_check};
use profcol_padata::{Recording, State, survey};

use super::config::{AfterDelivery, PadataConfig};

/// Names of checks.
const DIRECTORY: &str = "directory";
const RECORDINGS: &str = "recordings";

const NOT_MOVED: &str =
    "delivered recordings stay where they are, and are delivered again after a restart";

pub(super) async fn check(config: &PadataConfig) -> Vec<Check> {
    let recordings = PathBuf::from(&config.storage_path);
    let found = path_check::in_time(move || look_at(&recordings)).await;
    let mut checks = found.unwrap_or_else(|| {
        let shown = &config.storage_path;
        vec![Check::new(DIRECTORY, format!("{shown}: timeout")).warn(
            "recordings are read slowly, or not at all",
            format!("check its file system (`df {shown}`), and how many files are in it"),
        )]
    });
    if config.after == AfterDelivery::Move {
        let mut moved = path_check::of_directory(Path::new(&config.move_to), true).await;
        for problem in moved.iter_mut().filter_map(|check| check.problem.as_mut()) {
            NOT_MOVED.clone_into(&mut problem.consequence);
        }
        checks.extend(moved);
    }
    checks
}

fn look_at(path: &Path) -> Vec<Check> {
    let shown = path.display();
    let recordings = match survey(path) {
        Ok(recordings) => recordings,
        Err(error) => {
            let fix = match error.kind() {
                io::ErrorKind::PermissionDenied => format!("let the user of profcol read {shown}"),
                _ => format!("create it: mkdir -p {shown}, or correct `storage_path`"),
            };
            let check = Check::new(DIRECTORY, format!("{shown}: {error}"));
            return vec![check.fail("profcol does not start", fix)];
        }
    };
    let directory = match path_check::is_writable(path) {
        Ok(()) => Check::new(DIRECTORY, format!("{shown} is readable and writable")),
        Err(error) => Check::new(DIRECTORY, format!("{shown}: {error}")).warn(
            NOT_MOVED,
            format!("let the user of profcol write to {shown}"),
        ),
    };
    vec![directory, recordings_check(&recordings)]
}

fn recordings_check(recordings: &[Recording]) -> Check {
    let states = recordings.iter().map(|recording| &recording.state);
    let in_use = states.filter(|state| matches!(state, State::InUse)).count();
    let all = recordings.len();
    let found = format!("{all} recordings, {in_use} of them in use by other processes");
    let unreadable = recordings.iter().filter_map(|it| match &it.state {
        State::Unreadable(error) => Some((&it.path, error)),
        _ => None,
    });
    let unreadable: Vec<_> = unreadable.collect();
    let Some((path, error)) = unreadable.first() else {
        return Check::new(RECORDINGS, found);
    };
    let (count, path) = (unreadable.len(), path.display());
    Check::new(
        RECORDINGS,
        format!("{found}, {count} unreadable: {path}: {error}"),
    )
    .warn(
        "the profiles in unreadable recordings are not delivered",
        "let the user of profcol read them, and delete those that are damaged",
    )
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};

    use profcol_component::Severity;
    use profcol_component::testkit::load;

    use super::*;

    async fn checked(folder: &Path, more: &str) -> Vec<Check> {
        let options = format!("{{storage_path: '{}'{more}}}", folder.display());
        check(&load(&options).unwrap()).await
    }

    #[tokio::test]
    async fn a_directory_must_be_there_and_its_files_readable() {
        let root = tempfile::tempdir().unwrap();
        let missing = checked(&root.path().join("missing"), "").await;
        assert_eq!(missing.len(), 1);
        assert_eq!(missing[0].severity(), Some(Severity::Failure));
        let fix = &missing[0].problem.as_ref().unwrap().fix;
        assert!(fix.starts_with("create it: mkdir -p "), "{fix}");

        let found = checked(root.path(), "").await;
        assert_eq!(found[0].severity(), None, "{found:?}");
        assert_eq!(
            found[1].found,
            "0 recordings, 0 of them in use by other processes"
        );

        fs::write(root.path().join("1-1.padata"), "no recording").unwrap();
        let found = checked(root.path(), "").await;
        assert_eq!(found[1].severity(), Some(Severity::Warning), "{found:?}");
        let start = "1 recordings, 0 of them in use by other processes, 1 unreadable: ";
        assert!(found[1].found.starts_with(start), "{found:?}");
        assert!(root.path().join("1-1.padata").exists());
    }

    #[tokio::test]
    async fn files_of_others_and_the_directory_to_move_to_are_looked_at() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("1-1.padata");
        let locked = File::create(&path).unwrap();
        locked.lock().unwrap();
        let found = checked(
            root.path(),
            &format!(", after: move, move_to: '{}'", path.display()),
        )
        .await;
        assert_eq!(
            found[1].found,
            "1 recordings, 1 of them in use by other processes"
        );
        assert_eq!(found[1].severity(), None);
        // A file is in the way.
        assert_eq!(found[2].severity(), Some(Severity::Failure), "{found:?}");
    }
}
