//! The values of `fsync`, profcol's own and the Collector's, and the messages for invalid options.

use std::time::Duration;

use profcol_component::testkit::load;
use profcol_storage::{FsyncPolicy, WhenFull};

use super::FileStorageConfig;

#[test]
fn accepts_its_own_fsync_values_and_the_collectors() {
    for (written, expected) in [
        ("{}", FsyncPolicy::Interval(Duration::from_secs(1))),
        (
            "{fsync: interval, fsync_interval: 5s}",
            FsyncPolicy::Interval(Duration::from_secs(5)),
        ),
        ("{fsync: always}", FsyncPolicy::Always),
        ("{fsync: never}", FsyncPolicy::Never),
        ("{fsync: true}", FsyncPolicy::Always),
        ("{fsync: false}", FsyncPolicy::Never),
    ] {
        let config: FileStorageConfig = load(written).unwrap();
        assert_eq!(config.options().fsync, expected, "{written}");
    }
    assert!(load::<FileStorageConfig>("{fsync: sometimes}").is_err());
}

#[test]
fn validates_the_options() {
    for (written, expected) in [
        ("{directory: ''}", "must be set to the directory"),
        ("{max_bytes: 1000}", "must be at least 1048576"),
        (
            "{fsync_interval: 0s}",
            "must be positive, or set `fsync: always`",
        ),
        ("{when_full: stop}", "unknown value \"stop\""),
        ("{timeout: 1s}", "timeout: is not supported"),
    ] {
        let refused = load::<FileStorageConfig>(written).unwrap_err();
        assert!(refused.contains(expected), "{written}: {refused}");
    }
    let config: FileStorageConfig = load("{when_full: drop_newest}").unwrap();
    assert_eq!(config.options().when_full, WhenFull::DropNewest);
}
