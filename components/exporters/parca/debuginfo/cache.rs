//! A cache of build IDs for which the server needs no upload: it has the debuginfo, or refused it permanently.
//!
//! With a state directory it is stored in a file: a line for each build ID with the time. Losing an entry costs
//! one request, so the file is neither synced nor locked.

use std::collections::HashMap;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use profcol_component::files;

/// Maximum number of build IDs; beyond it the oldest quarter is evicted.
const MAX_ENTRIES: usize = 16_384;
/// A server may lose debuginfo: older entries are dropped at startup.
const TTL_SECONDS: u64 = 7 * 24 * 3600;
/// A longer file was not written by us.
const MAX_BYTES: u64 = 8 << 20;

pub struct UploadedCache {
    /// When each build ID was added, in seconds since 1970.
    since: HashMap<String, u64>,
    file: Option<PathBuf>,
}

impl UploadedCache {
    pub fn empty() -> Self {
        Self {
            since: HashMap::new(),
            file: None,
        }
    }

    /// `directory` is empty without persistence.
    pub fn open(directory: &str, server: &str) -> Self {
        let mut cache = Self::empty();
        if directory.is_empty() {
            return cache;
        }
        let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "._-".contains(letter);
        let name: String = server
            .chars()
            .map(|letter| if is_plain(letter) { letter } else { '_' })
            .collect();
        let file = Path::new(directory).join(format!("parca-debuginfo-{name}"));
        let opened = append(&file);
        match opened.and_then(|_| read(&file)) {
            Ok(text) => {
                cache.load(&text);
                cache.file = Some(file);
            }
            Err(error) => warn(&file, &error),
        }
        cache
    }

    pub fn contains(&self, build_id: &str) -> bool {
        self.since.contains_key(build_id)
    }

    /// Returns what to write to the file, if anything: only the server's own answers, since the reasons
    /// for skipping a file may change with the version of profcol.
    pub fn add(&mut self, build_id: &str, is_final_answer: bool) -> Option<CacheWrite> {
        let now = now();
        self.since.insert(build_id.to_owned(), now);
        let is_full = self.since.len() > MAX_ENTRIES;
        if is_full {
            self.evict_oldest();
        }
        let file = self.file.clone().filter(|_| is_final_answer)?;
        Some(if is_full {
            let line = |(build_id, since)| format!("{since} {build_id}\n");
            let text = self.since.iter().map(line).collect();
            CacheWrite::All { file, text }
        } else {
            let line = format!("{now} {build_id}\n");
            CacheWrite::One { file, line }
        })
    }

    fn load(&mut self, text: &str) {
        let now = now();
        for line in text.lines() {
            let Some((since, build_id)) = line.split_once(' ') else {
                continue;
            };
            // A time in the future comes from a wrong clock.
            if let Ok(since) = since.parse::<u64>()
                && since <= now
                && now - since < TTL_SECONDS
            {
                self.since.insert(build_id.to_owned(), since);
            }
        }
        if self.since.len() > MAX_ENTRIES {
            self.evict_oldest();
        }
    }

    fn evict_oldest(&mut self) {
        let mut times: Vec<u64> = self.since.values().copied().collect();
        times.sort_unstable();
        let kept = MAX_ENTRIES - MAX_ENTRIES / 4;
        let oldest = times.get(times.len().saturating_sub(kept));
        let oldest = oldest.copied().unwrap_or(0);
        // Only some of the entries with exactly this time may fit.
        let newer = times.iter().filter(|&&since| since > oldest).count();
        let mut room = kept.saturating_sub(newer);
        self.since.retain(|_, since| {
            let is_let_in = *since == oldest && room > 0;
            room -= usize::from(is_let_in);
            *since > oldest || is_let_in
        });
    }
}

/// A pending write, for a blocking thread.
#[derive(Debug)]
pub enum CacheWrite {
    One {
        file: PathBuf,
        line: String,
    },
    /// Replaces the file.
    All {
        file: PathBuf,
        text: String,
    },
}

impl CacheWrite {
    pub fn write(self) {
        let (file, written) = match self {
            Self::One { file, line } => {
                let opened = append(&file);
                let written = opened.and_then(|mut opened| opened.write_all(line.as_bytes()));
                (file, written)
            }
            Self::All { file, text } => {
                let next = file.with_added_extension("next");
                // Also recreates a removed directory.
                let opened = append(&file);
                let written = opened.and_then(|_| files::write(&next, text));
                let written = written.and_then(|()| fs::rename(&next, &file));
                (file, written)
            }
        };
        if let Err(error) = written {
            warn(&file, &error);
        }
    }
}

/// Opens the file, which may have been removed with its directory.
fn append(file: &Path) -> io::Result<fs::File> {
    if let Some(directory) = file.parent() {
        files::create_directories(directory)?;
    }
    files::options().append(true).create(true).open(file)
}

fn read(file: &Path) -> io::Result<String> {
    if fs::metadata(file)?.len() > MAX_BYTES {
        return Ok(String::new());
    }
    Ok(String::from_utf8_lossy(&fs::read(file)?).into_owned())
}

fn warn(file: &Path, error: &io::Error) {
    tracing::warn!(
        path = %file.display(),
        %error,
        "Failed to persist the cache of uploaded build IDs. Check `debuginfo::state_directory`."
    );
}

fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.unwrap_or(Duration::ZERO).as_secs()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(state: &tempfile::TempDir, server: &str) -> UploadedCache {
        UploadedCache::open(state.path().to_str().unwrap(), server)
    }

    #[test]
    fn answers_of_the_server_survive_a_restart() {
        let state = tempfile::tempdir().unwrap();
        let mut cache = open(&state, "host:7070");
        cache.add("there", true).unwrap().write();
        assert!(cache.add("skipped", false).is_none());
        assert!(cache.contains("there") && cache.contains("skipped"));
        let again = open(&state, "host:7070");
        assert!(again.contains("there") && !again.contains("skipped"));
        assert!(!open(&state, "other:7070").contains("there"));
        assert!(!UploadedCache::open("", "host:7070").contains("there"));
    }

    #[test]
    fn recreates_a_removed_directory() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("state");
        let directory = path.to_str().unwrap();
        let mut cache = UploadedCache::open(directory, "host");
        fs::remove_dir_all(&path).unwrap();
        cache.add("one", true).unwrap().write();
        assert!(UploadedCache::open(directory, "host").contains("one"));

        for number in 0..MAX_ENTRIES {
            cache.since.insert(number.to_string(), 1);
        }
        fs::remove_dir_all(&path).unwrap();
        cache.add("all", true).unwrap().write();
        assert!(UploadedCache::open(directory, "host").contains("all"));
    }

    #[test]
    fn ignores_damaged_old_and_future_entries() {
        let state = tempfile::tempdir().unwrap();
        let now = now();
        let text = format!(
            "{now} good\n{} old\n{} to_come\n\nnonsense\n-1 negative\n{now} last",
            now - TTL_SECONDS,
            now + 100,
        );
        fs::write(state.path().join("parca-debuginfo-host"), text).unwrap();
        let cache = open(&state, "host");
        let mut cached: Vec<_> = cache.since.keys().map(String::as_str).collect();
        cached.sort_unstable();
        assert_eq!(cached, ["good", "last"]);
    }

    #[test]
    fn memory_and_file_are_bounded() {
        let state = tempfile::tempdir().unwrap();
        let mut cache = open(&state, "host");
        let ids = (0..MAX_ENTRIES + 1).map(|number| number.to_string());
        for id in ids {
            cache.since.insert(id, 1);
        }
        cache.add("newest", true).unwrap().write();
        assert!(cache.contains("newest"));
        assert!(cache.since.len() <= MAX_ENTRIES);
        let text = fs::read_to_string(state.path().join("parca-debuginfo-host")).unwrap();
        assert_eq!(text.lines().count(), cache.since.len());
    }

    #[test]
    fn works_without_a_usable_directory() {
        let mut cache = UploadedCache::open("/dev/null/nowhere", "host");
        assert!(cache.add("there", true).is_none());
        assert!(cache.contains("there"));
    }
}
