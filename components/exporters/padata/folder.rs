//! The files that are complete: compressed, counted, and dropped where there are too many.
//!
//! One recorder at a time has a folder; an uploader may take files out of it meanwhile. Whoever works
//! on a file holds its lock, so that none is compressed and delivered at once.

use std::fs::{self, File, TryLockError};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use profcol_parca::padata::{Reader, begun};

const PLAIN: &str = "padata";
const COMPRESSED: &str = "padata.zst";
/// A file that is not yet what it is going to be called.
pub const UNFINISHED: &str = "padata.unfinished";

/// Locked by whoever records into the folder.
const LOCK: &str = ".recorder.lock";

/// A header is all that is read here.
const NO_RECORD: u32 = 0;

pub struct Folder {
    path: PathBuf,
    level: i32,
    _lock: File,
    /// The oldest first.
    complete: Vec<(PathBuf, u64)>,
}

impl Folder {
    /// Makes the folder where there is none, and completes what was left behind in it.
    pub fn open(path: &Path, level: i32) -> io::Result<Self> {
        fs::create_dir_all(path)?;
        let lock = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(path.join(LOCK))?;
        lock.try_lock().map_err(|error| match error {
            TryLockError::Error(error) => error,
            TryLockError::WouldBlock => io::Error::other(
                "somebody records there already: give each recorder a folder of its own",
            ),
        })?;
        let mut folder = Self {
            path: path.to_owned(),
            level,
            _lock: lock,
            complete: Vec::new(),
        };
        let mut left = Vec::new();
        for entry in fs::read_dir(path)? {
            let path = entry?.path();
            match kind(&path) {
                Some(UNFINISHED) => fs::remove_file(&path)?,
                Some(COMPRESSED) => {
                    let bytes = fs::metadata(&path)?.len();
                    folder.complete.push((path, bytes));
                }
                Some(PLAIN) => left.push(path),
                _ => {}
            }
        }
        left.sort_by_key(|path| (begun(path), path.clone()));
        for path in left {
            folder.add(&path);
        }
        folder
            .complete
            .sort_by_key(|(path, _)| (begun(path), path.clone()));
        Ok(folder)
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn bytes(&self) -> u64 {
        self.complete.iter().map(|(_, bytes)| bytes).sum()
    }

    /// Compresses a complete file, or keeps it as it is where that is not possible. It is there under
    /// one of its two names at any moment.
    pub fn add(&mut self, plain: &Path) {
        let path = match self.compress(plain) {
            Ok(Some(compressed)) => compressed,
            Ok(None) => return,
            Err(error) => {
                // It is only in the way.
                let _ = fs::remove_file(plain.with_extension(UNFINISHED));
                tracing::warn!(path = %plain.display(), %error, "A complete file cannot be compressed; it stays as it is until the next start.");
                plain.to_owned()
            }
        };
        let bytes = path.metadata().map_or(0, |file| file.len());
        self.complete.retain(|(known, _)| *known != path);
        self.complete.push((path, bytes));
    }

    /// None where nothing is left to keep, or somebody else has the file.
    fn compress(&self, plain: &Path) -> io::Result<Option<PathBuf>> {
        let mut source = match File::open(plain) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened?,
        };
        // An uploader; it removes the file when it is done.
        if source.try_lock().is_err() {
            return Ok(None);
        }
        if has_no_batch(plain) {
            fs::remove_file(plain)?;
            return Ok(None);
        }
        let compressed = plain.with_extension(COMPRESSED);
        let unfinished = plain.with_extension(UNFINISHED);
        let target = File::create(&unfinished)?;
        let mut encoder = zstd::Encoder::new(&target, self.level)?;
        encoder.include_checksum(true)?;
        io::copy(&mut source, &mut encoder)?;
        encoder.finish()?;
        target.sync_all()?;
        fs::rename(&unfinished, &compressed)?;
        File::open(&self.path)?.sync_all()?;
        fs::remove_file(plain)?;
        Ok(Some(compressed))
    }

    /// Drops the oldest file; false where there is none.
    pub fn drop_oldest(&mut self) -> io::Result<bool> {
        if self.complete.is_empty() {
            return Ok(false);
        }
        let (path, _) = self.complete.remove(0);
        match fs::remove_file(path) {
            // It was uploaded.
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(true),
        }
    }

    /// Forgets files that others removed.
    pub fn look(&mut self) {
        self.complete.retain(|(path, _)| path.exists());
    }
}

fn kind(path: &Path) -> Option<&'static str> {
    let name = path.file_name()?.to_str()?;
    let (_, ending) = name.split_once('.')?;
    [PLAIN, COMPRESSED, UNFINISHED]
        .into_iter()
        .find(|known| *known == ending)
}

fn has_no_batch(path: &Path) -> bool {
    let file = File::open(path).map(|file| file.take(8));
    file.is_ok_and(|file| Reader::new(file, NO_RECORD).is_ok_and(|file| file.count() == 0))
}
