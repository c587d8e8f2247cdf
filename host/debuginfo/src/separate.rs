//! The debug file of a stripped executable.
//!
//! Distributions install it under `/usr/lib/debug`, by build id or by the path of the executable, which refers to it in
//! `.gnu_debuglink` with a checksum. A candidate must have the same build id or checksum: it may be of another version,
//! or be planted by the creator of the container.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use flate2::Crc;
use profcol_elf::{DebugLink, Elf, Root, Source, hex};

const MAX_NOTES: u64 = 64 << 10;
/// A name and a checksum.
const MAX_LINK: u64 = 4096;
/// Read size for checksums.
const PIECE: usize = 256 << 10;

/// Where to search.
pub struct SearchPaths<'a> {
    /// The roots of the process that runs the executable and of profcol.
    pub roots: &'a [PathBuf],
    /// The executable's path relative to its root.
    pub executable: &'a Path,
    /// Debug file directories below each root.
    pub directories: &'a [PathBuf],
    /// Whether to continue: the checksum of a large file takes seconds.
    pub goes_on: &'a dyn Fn() -> bool,
}

/// An auxiliary file of an executable.
#[derive(Debug)]
pub struct Separate {
    pub file: File,
    pub path: PathBuf,
}

/// GNU's build id from its own section.
pub fn build_id(source: &(impl Source + ?Sized)) -> Option<Box<[u8]>> {
    Identity::of(source)?.build_id
}

/// The debug file of this executable.
pub fn separate(
    source: &(impl Source + ?Sized),
    search_paths: &SearchPaths<'_>,
) -> Option<Separate> {
    let identity = Identity::of(source)?;
    let candidates = identity.candidates(search_paths);
    first(search_paths, candidates, |file| {
        identity.is_of(file, search_paths.goes_on)
    })
}

/// The first matching candidate below any root.
pub(crate) fn first(
    search_paths: &SearchPaths<'_>,
    candidates: Vec<PathBuf>,
    is_right: impl Fn(&File) -> bool,
) -> Option<Separate> {
    for root in search_paths.roots {
        let Ok(root) = Root::open(root) else {
            continue;
        };
        for path in &candidates {
            if let Ok(file) = root.open_regular(path)
                && is_right(&file)
            {
                let path = path.clone();
                return Some(Separate { file, path });
            }
        }
    }
    None
}

/// The paths where distributions install a debug file with this build id.
pub(crate) fn by_build_id(id: &[u8], search_paths: &SearchPaths<'_>) -> Vec<PathBuf> {
    let [first, rest @ ..] = id else {
        return Vec::new();
    };
    let path = format!(".build-id/{first:02x}/{}.debug", hex(rest));
    let directories = search_paths.directories.iter();
    directories.map(|directory| directory.join(&path)).collect()
}

/// How an executable identifies its debug file.
struct Identity {
    build_id: Option<Box<[u8]>>,
    link: Option<DebugLink>,
}

impl Identity {
    fn of(source: &(impl Source + ?Sized)) -> Option<Self> {
        let elf = Elf::read(source).ok()?;
        let content = |name: &[u8], limit| {
            let section = elf.find(name)?;
            elf.content(source, "a note", section, limit).ok()
        };
        let notes = content(b".note.gnu.build-id", MAX_NOTES);
        let link = content(b".gnu_debuglink", MAX_LINK);
        Some(Self {
            build_id: notes.and_then(|notes| profcol_elf::build_id(&notes)),
            link: link.and_then(|link| DebugLink::parse(&link)),
        })
    }

    /// Most likely first.
    fn candidates(&self, search_paths: &SearchPaths<'_>) -> Vec<PathBuf> {
        let id = self.build_id.as_deref().unwrap_or_default();
        let mut candidates = by_build_id(id, search_paths);
        if let Some(DebugLink { name, .. }) = &self.link {
            let parent = search_paths.executable.parent().unwrap_or(Path::new("/"));
            candidates.push(parent.join(name));
            candidates.push(parent.join(".debug").join(name));
            let below = parent.strip_prefix("/").unwrap_or(parent);
            let in_directory = |directory: &PathBuf| directory.join(below).join(name);
            candidates.extend(search_paths.directories.iter().map(in_directory));
        }
        candidates
    }

    fn is_of(&self, candidate: &File, goes_on: &dyn Fn() -> bool) -> bool {
        let Some(actual) = Self::of(candidate) else {
            return false;
        };
        if self.build_id.is_some() && actual.build_id.is_some() {
            return self.build_id == actual.build_id;
        }
        let sum = self.link.as_ref().map(|link| link.checksum);
        sum.is_some() && checksum(candidate, goes_on).ok() == sum
    }
}

fn checksum(file: &File, goes_on: &dyn Fn() -> bool) -> io::Result<u32> {
    let length = file.length()?;
    let mut sum = Crc::new();
    let mut piece = vec![0; PIECE];
    let mut at = 0;
    while at < length {
        if !goes_on() {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let size = (length - at).min(PIECE as u64);
        let piece = piece.get_mut(..size as usize).unwrap_or_default();
        file.read_at(piece, at)?;
        sum.update(piece);
        at += size;
    }
    Ok(sum.sum())
}
