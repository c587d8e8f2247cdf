//! The names of rotated files, and how many are kept.
//!
//! `data.json` becomes `data-2026-08-01T12-30-00.000.json`, as in the Collector.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};

/// Number of attempts to find a free name, for files rotated in the same millisecond.
const MAX_TRIES: i64 = 1000;

#[derive(Clone, Debug)]
pub(super) struct Backups {
    pub(super) localtime: bool,
    /// 0 keeps all.
    pub(super) max_backups: usize,
    pub(super) max_age: Option<Duration>,
}

/// The parts of a path around the time.
struct Name<'a> {
    directory: &'a Path,
    stem: &'a str,
    /// With the dot; empty if there is none.
    extension: String,
}

impl Backups {
    /// Renames the file by the current time; returns its new name.
    pub(super) fn set_aside(&self, path: &Path) -> io::Result<PathBuf> {
        let name = Name::of(path)?;
        let now = Timestamp::now().as_millisecond();
        for later in 0..MAX_TRIES {
            let backup = name.at(&self.zoned(now + later)?);
            if !backup.try_exists()? {
                fs::rename(path, &backup)?;
                return Ok(backup);
            }
        }
        let message = "too many files were rotated within one second";
        Err(io::Error::new(io::ErrorKind::AlreadyExists, message))
    }

    /// Deletes files that are too old or too many. Errors are only logged.
    pub(super) fn prune(&self, path: &Path) {
        if let Err(error) = self.try_prune(path) {
            tracing::warn!(path = %path.display(), %error, "Failed to remove rotated files.");
        }
    }

    fn try_prune(&self, path: &Path) -> io::Result<()> {
        let name = Name::of(path)?;
        let mut backups = Vec::new();
        for entry in fs::read_dir(name.directory)? {
            let entry = entry?;
            if let Some(time) = entry
                .file_name()
                .to_str()
                .and_then(|file| name.time_in(file))
            {
                backups.push((time, entry.path()));
            }
        }
        backups.sort();
        let now = self.zoned(Timestamp::now().as_millisecond())?.datetime();
        let too_many = match self.max_backups {
            0 => 0,
            max => backups.len().saturating_sub(max),
        };
        for (position, (time, backup)) in backups.iter().enumerate() {
            if position < too_many || self.is_too_old(*time, now) {
                fs::remove_file(backup)?;
            }
        }
        Ok(())
    }

    fn is_too_old(&self, time: DateTime, now: DateTime) -> bool {
        self.max_age.is_some_and(|max| {
            Duration::try_from(now.duration_since(time)).is_ok_and(|age| age >= max)
        })
    }

    fn zoned(&self, milliseconds: i64) -> io::Result<Zoned> {
        let zone = if self.localtime {
            TimeZone::system()
        } else {
            TimeZone::UTC
        };
        let time = Timestamp::from_millisecond(milliseconds).map_err(io::Error::other)?;
        Ok(time.to_zoned(zone))
    }
}

impl<'a> Name<'a> {
    fn of(path: &'a Path) -> io::Result<Self> {
        let stem = path.file_stem().and_then(|stem| stem.to_str());
        let stem = stem.ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::InvalidInput,
                "the path does not end with a file name",
            )
        })?;
        let extension = path.extension().and_then(|extension| extension.to_str());
        let directory = path
            .parent()
            .filter(|parent| !parent.as_os_str().is_empty());
        Ok(Self {
            directory: directory.unwrap_or(Path::new(".")),
            stem,
            extension: extension.map(|text| format!(".{text}")).unwrap_or_default(),
        })
    }

    fn at(&self, time: &Zoned) -> PathBuf {
        let time = time.strftime("%Y-%m-%dT%H-%M-%S%.3f");
        let (stem, extension) = (self.stem, &self.extension);
        self.directory.join(format!("{stem}-{time}{extension}"))
    }

    fn time_in(&self, file: &str) -> Option<DateTime> {
        let time = file
            .strip_prefix(self.stem)?
            .strip_prefix('-')?
            .strip_suffix(self.extension.as_str())?;
        DateTime::strptime("%Y-%m-%dT%H-%M-%S%.f", time).ok()
    }
}
