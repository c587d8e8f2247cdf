//! Checks which files there are, and whether they can be read.

use std::path::PathBuf;
use std::sync::Arc;

use profcol_component::{Check, path_check};

use super::config::OtlpFileConfig;
use super::files::Files;

/// Names of checks.
const FILES: &str = "files";
const DIRECTORIES: &str = "directories";

pub(super) async fn check(config: &OtlpFileConfig) -> Vec<Check> {
    let config = config.clone();
    let include = config.include.join(", ");
    let found = path_check::in_time(move || look_at(&config)).await;
    found.unwrap_or_else(|| {
        vec![Check::new(FILES, format!("{include}: timeout")).warn(
            "files are read slowly, or not at all",
            "check their file system, and how many files `include` matches",
        )]
    })
}

fn look_at(config: &OtlpFileConfig) -> Vec<Check> {
    let mut files = Files::new(config, Arc::default());
    files.scan();
    let mut checks = vec![match (files.error(), files.read_files()) {
        (Some(error), _) => Check::new(FILES, error).fail(
            "the profiles in files that cannot be read do not arrive",
            "let the user of profcol read the files that `include` matches",
        ),
        (None, 0) => {
            let found = format!("no file matches {}", config.include.join(", "));
            let consequence = match config.follow {
                true => "nothing is read until there is one",
                false => "nothing is read",
            };
            Check::new(FILES, found).warn(
                consequence,
                "correct `include`, or check that the program that writes the files runs",
            )
        }
        (None, count) => Check::new(FILES, format!("{count} files can be read")),
    }];
    let refused = config
        .include
        .iter()
        .filter_map(|include| unreadable(include));
    checks.extend(refused.map(|(directory, error)| {
        let shown = directory.display();
        Check::new(DIRECTORIES, format!("{shown}: {error}")).warn(
            "files below it are not found",
            format!("let the user of profcol list {shown}, or leave it out of `include`"),
        )
    }));
    checks
}

/// A directory that cannot be searched for matches.
fn unreadable(include: &str) -> Option<(PathBuf, std::io::Error)> {
    // Validated with the configuration.
    let mut paths = glob::glob(include).ok()?;
    let failed = paths.find_map(Result::err)?;
    Some((failed.path().to_owned(), failed.into()))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use profcol_component::Severity;
    use profcol_component::testkit::load;

    use super::*;

    #[tokio::test]
    async fn files_must_be_there_and_readable() {
        let root = tempfile::tempdir().unwrap();
        let include = root.path().join("*.json");
        let include = include.display();
        let config = load(&format!("{{include: ['{include}']}}")).unwrap();
        let severities =
            |checks: &[Check]| -> Vec<_> { checks.iter().map(Check::severity).collect() };
        let none = check(&config).await;
        assert_eq!(severities(&none), [Some(Severity::Warning)]);
        assert_eq!(none[0].found, format!("no file matches {include}"));
        fs::write(root.path().join("a.json"), "").unwrap();
        let found = check(&config).await;
        assert_eq!(severities(&found), [None], "{found:?}");
        assert_eq!(found[0].found, "1 files can be read");
        // It leads to itself.
        let path = root.path().join("b.json");
        symlink(&path, &path).unwrap();
        let found = check(&config).await;
        assert_eq!(severities(&found), [Some(Severity::Failure)]);
        let start = format!("failed to read {}: ", path.display());
        assert!(found[0].found.starts_with(&start), "{found:?}");
    }
}
