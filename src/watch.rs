//! Watches the files of the configuration.
//!
//! An editor or a configuration manager replaces a file, and Kubernetes replaces a symbolic link on the way to it
//! (`..data` in a mounted ConfigMap). So the directory of each file and of each such link is watched, for these names only.
//! inotify through rustix, which the binary uses anyway: a library for several systems would add a thread and its own queue.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use profcol_config::content_hash;
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::io::Errno;
use tokio::io::unix::AsyncFd;

use crate::async_fd::async_fd;

/// Changes within this time count as one: several files of one deployment, or a file that is still being written.
const DEBOUNCE: Duration = Duration::from_millis(250);

/// As many as the kernel follows.
const MAX_LINKS: usize = 40;

/// A few dozen events; the rest is read with the next call.
const BUFFER: usize = 4096;

pub struct Watcher {
    events: AsyncFd<OwnedFd>,
    names: Names,
    /// As of the last change.
    files: FileHashes,
}

/// The names of interest by watched directory.
type Names = HashMap<i32, HashSet<OsString>>;

/// Files and hashes of their contents; `None` for those that cannot be read.
pub type FileHashes = BTreeMap<PathBuf, Option<u64>>;

impl Watcher {
    /// Watches the files of a configuration, which may have changed since they were loaded.
    pub fn new(files: FileHashes) -> io::Result<Self> {
        let (events, names) = watch(&files)?;
        Ok(Self {
            events,
            names,
            files,
        })
    }

    /// Resolves when the content of a file has changed.
    pub async fn changed(&mut self) -> io::Result<()> {
        loop {
            let files = current(&self.files);
            if files != self.files {
                self.files = files;
                return Ok(());
            }
            self.event().await?;
            tokio::time::sleep(DEBOUNCE).await;
            // Watches what the links point to now.
            (self.events, self.names) = watch(&self.files)?;
        }
    }

    /// Waits for an event at one of the names.
    async fn event(&self) -> io::Result<()> {
        loop {
            let mut ready = self.events.readable().await?;
            let mut buffer = [MaybeUninit::uninit(); BUFFER];
            let mut reader = inotify::Reader::new(self.events.get_ref(), &mut buffer);
            let mut is_relevant = false;
            loop {
                match reader.next() {
                    Ok(event) => {
                        let name = event
                            .file_name()
                            .map(|name| OsStr::from_bytes(name.to_bytes()));
                        let names = self.names.get(&event.wd());
                        is_relevant |= event.events().contains(ReadFlags::QUEUE_OVERFLOW)
                            || (name.zip(names)).is_some_and(|(name, names)| names.contains(name));
                    }
                    Err(Errno::AGAIN) => break,
                    Err(Errno::INTR) => {}
                    Err(error) => return Err(error.into()),
                }
            }
            ready.clear_ready();
            if is_relevant {
                return Ok(());
            }
        }
    }
}

fn watch(files: &FileHashes) -> io::Result<(AsyncFd<OwnedFd>, Names)> {
    let events = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
    let mut names = Names::new();
    let wanted = WatchFlags::CREATE | WatchFlags::MOVED_TO | WatchFlags::CLOSE_WRITE;
    for (directory, name) in files.keys().flat_map(|file| watched_entries(file)) {
        match inotify::add_watch(&events, &directory, wanted) {
            Ok(watch) => {
                names.entry(watch).or_default().insert(name);
            }
            // Missing: a change of the link that leads to it is noticed.
            Err(Errno::NOENT) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok((async_fd(events)?, names))
}

fn current(files: &FileHashes) -> FileHashes {
    let hash = |file: &PathBuf| fs::read(file).ok().map(|content| content_hash(&content));
    let files = files.keys().map(|file| (file.clone(), hash(file)));
    files.collect()
}

/// The directory and the name of the file, and of each symbolic link on the way to it.
fn watched_entries(file: &Path) -> Vec<(PathBuf, OsString)> {
    let Ok(file) = std::path::absolute(file) else {
        return Vec::new();
    };
    let mut watched_entries = Vec::new();
    let mut directory = PathBuf::from("/");
    let mut rest: VecDeque<OsString> = parts(&file);
    let mut links = 0;
    while let Some(part) = rest.pop_front() {
        if part == ".." {
            directory.pop();
            continue;
        }
        let here = directory.join(&part);
        let target = fs::read_link(&here).ok();
        if target.is_some() || rest.is_empty() {
            watched_entries.push((directory.clone(), part));
        }
        let Some(target) = target else {
            directory = here;
            continue;
        };
        links += 1;
        if links > MAX_LINKS {
            break;
        }
        if target.is_absolute() {
            directory = PathBuf::from("/");
        }
        let mut followed = parts(&target);
        followed.append(&mut rest);
        rest = followed;
    }
    watched_entries
}

fn parts(path: &Path) -> VecDeque<OsString> {
    let parts = path.components().filter_map(|part| match part {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        Component::Prefix(_) | Component::RootDir | Component::CurDir => None,
    });
    parts.collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    async fn notices(watcher: &mut Watcher, change: impl FnOnce()) -> bool {
        change();
        let waiting = tokio::time::timeout(Duration::from_secs(1), watcher.changed());
        waiting.await.is_ok()
    }

    #[tokio::test]
    async fn notices_each_way_to_change_a_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        // As in a ConfigMap.
        for version in ["1", "2"] {
            fs::create_dir(path(version)).unwrap();
            fs::write(path(version).join("config.yaml"), version).unwrap();
        }
        symlink("1", path("..data")).unwrap();
        symlink("..data/config.yaml", path("config.yaml")).unwrap();
        fs::write(path("part.yaml"), "a").unwrap();
        let files = [path("config.yaml"), path("part.yaml"), path("later.yaml")];
        let files = files.map(|file| (file, None)).into();
        let mut watcher = Watcher::new(current(&files)).unwrap();
        let rename = |name: &str, text: &str| {
            fs::write(path("new"), text).unwrap();
            fs::rename(path("new"), path(name)).unwrap();
        };
        assert!(!notices(&mut watcher, || rename("other.yaml", "x")).await);
        assert!(!notices(&mut watcher, || rename("part.yaml", "a")).await);
        assert!(notices(&mut watcher, || fs::write(path("part.yaml"), "b").unwrap()).await);
        assert!(notices(&mut watcher, || rename("part.yaml", "c")).await);
        assert!(notices(&mut watcher, || rename("later.yaml", "d")).await);
        let swap = |version: &str| {
            symlink(version, path("..data_tmp")).unwrap();
            fs::rename(path("..data_tmp"), path("..data")).unwrap();
        };
        assert!(notices(&mut watcher, || swap("2")).await);
        fs::remove_dir_all(path("1")).unwrap();
        fs::create_dir(path("3")).unwrap();
        fs::write(path("3").join("config.yaml"), "3").unwrap();
        assert!(notices(&mut watcher, || swap("3")).await);
    }

    #[test]
    fn a_loop_of_links_ends() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        symlink(path("b"), path("a")).unwrap();
        symlink(path("a"), path("b")).unwrap();
        assert!(watched_entries(&path("a")).len() > MAX_LINKS);
    }
}
