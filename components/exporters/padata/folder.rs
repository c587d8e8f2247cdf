//! The files that are complete: compressed, counted, and dropped where there are too many.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use profcol_parca::padata::{Reader, begun};

const PLAIN: &str = "padata";
const COMPRESSED: &str = "padata.zst";
/// A compressed file that is not complete.
const UNFINISHED: &str = "padata.zst.unfinished";

/// A header is all that is read here.
const NO_RECORD: u32 = 0;

pub struct Folder {
    path: PathBuf,
    level: i32,
    /// The oldest first.
    complete: Vec<(PathBuf, u64)>,
}

impl Folder {
    /// Makes the folder where there is none, and completes what was left behind in it.
    pub fn open(path: &Path, level: i32) -> io::Result<Self> {
        fs::create_dir_all(path)?;
        let mut folder = Self {
            path: path.to_owned(),
            level,
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
            // Of another process that is recording.
            if !is_locked(&path) {
                folder.add(&path)?;
            }
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

    /// Compresses a complete file. It is there under one of its two names at any moment.
    pub fn add(&mut self, plain: &Path) -> io::Result<()> {
        if has_no_batch(plain) {
            return fs::remove_file(plain);
        }
        let compressed = plain.with_extension(COMPRESSED);
        let unfinished = plain.with_extension(UNFINISHED);
        let mut source = File::open(plain)?;
        let target = File::create(&unfinished)?;
        let mut encoder = zstd::Encoder::new(&target, self.level)?;
        encoder.include_checksum(true)?;
        io::copy(&mut source, &mut encoder)?;
        encoder.finish()?;
        target.sync_all()?;
        let bytes = target.metadata()?.len();
        fs::rename(&unfinished, &compressed)?;
        File::open(&self.path)?.sync_all()?;
        fs::remove_file(plain)?;
        self.complete.retain(|(known, _)| *known != compressed);
        self.complete.push((compressed, bytes));
        Ok(())
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

fn is_locked(path: &Path) -> bool {
    File::open(path).is_ok_and(|file| file.try_lock_shared().is_err())
}

fn has_no_batch(path: &Path) -> bool {
    let file = File::open(path).map(|file| file.take(8));
    file.is_ok_and(|file| Reader::new(file, NO_RECORD).is_ok_and(|file| file.count() == 0))
}
