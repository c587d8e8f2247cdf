//! The file in which the DWARF of a stripped executable may stand.
//!
//! Distributions put it under `/usr/lib/debug`, by the build id or beside the executable's own path,
//! and the executable names it in `.gnu_debuglink`, with a checksum. A file counts only if it has
//! the same build id or that checksum: what is found may be of another version, or be laid there by
//! whoever made the container.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use flate2::Crc;
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat, openat2};

use profcol_elf::{DebugLink, Elf, Source};

const MAX_NOTES: u64 = 64 << 10;
/// A name and a checksum.
const MAX_LINK: u64 = 4096;
/// What is read at a time for a checksum.
const PIECE: usize = 256 << 10;

/// Where to look.
pub struct Places<'a> {
    /// The roots of the process that has the executable and of this one.
    pub roots: &'a [PathBuf],
    /// The executable's path below its root.
    pub executable: &'a Path,
    /// Where debug files are below each root.
    pub directories: &'a [PathBuf],
    /// Whether to go on: the checksum of a large file takes seconds.
    pub goes_on: &'a dyn Fn() -> bool,
}

/// A file that belongs to an executable.
#[derive(Debug)]
pub struct Separate {
    pub file: File,
    pub path: PathBuf,
}

/// GNU's build id, where a section of its own has it.
pub fn build_id(source: &(impl Source + ?Sized)) -> Option<Box<[u8]>> {
    Identity::of(source)?.build_id
}

/// The file with the DWARF of this one.
pub fn separate(source: &(impl Source + ?Sized), places: &Places<'_>) -> Option<Separate> {
    let wanted = Identity::of(source)?;
    let candidates = wanted.candidates(places);
    first(places, candidates, |file| {
        wanted.is_of(file, places.goes_on)
    })
}

/// The first of these, below any root, that is the right one.
pub(crate) fn first(
    places: &Places<'_>,
    candidates: Vec<PathBuf>,
    is_right: impl Fn(&File) -> bool,
) -> Option<Separate> {
    for root in places.roots {
        let Ok(root_fd) = openat(CWD, root, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()) else {
            continue;
        };
        for path in &candidates {
            if let Ok(file) = open_below(&root_fd, path)
                && is_right(&file)
            {
                let path = path.clone();
                return Some(Separate { file, path });
            }
        }
    }
    None
}

/// Where distributions put a debug file with this build id.
pub(crate) fn by_build_id(id: &[u8], places: &Places<'_>) -> Vec<PathBuf> {
    let [first, rest @ ..] = id else {
        return Vec::new();
    };
    let rest: String = rest.iter().map(|byte| format!("{byte:02x}")).collect();
    let path = format!(".build-id/{first:02x}/{rest}.debug");
    let folders = places.directories.iter();
    folders.map(|folder| folder.join(&path)).collect()
}

/// How an executable says which file is its own.
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

    /// The likeliest first.
    fn candidates(&self, places: &Places<'_>) -> Vec<PathBuf> {
        let id = self.build_id.as_deref().unwrap_or_default();
        let mut candidates = by_build_id(id, places);
        if let Some(DebugLink { name, .. }) = &self.link {
            let folder = places.executable.parent().unwrap_or(Path::new("/"));
            candidates.push(folder.join(name));
            candidates.push(folder.join(".debug").join(name));
            let below = folder.strip_prefix("/").unwrap_or(folder);
            let in_folder = |directory: &PathBuf| directory.join(below).join(name);
            candidates.extend(places.directories.iter().map(in_folder));
        }
        candidates
    }

    fn is_of(&self, candidate: &File, goes_on: &dyn Fn() -> bool) -> bool {
        let Some(found) = Self::of(candidate) else {
            return false;
        };
        if self.build_id.is_some() && found.build_id.is_some() {
            return self.build_id == found.build_id;
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

/// A file below a root: see [`separate`] for why neither its path nor what it is can be trusted.
pub fn open_regular(root: &Path, path: &Path) -> io::Result<File> {
    let root = openat(CWD, root, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    open_below(&root, path)
}

/// A path in a container may lead anywhere by its links: not out of its root, and to no pipe or
/// device, of which some act when they are opened.
fn open_below(root: &impl std::os::fd::AsFd, path: &Path) -> io::Result<File> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    let found = File::from(openat2(root, path, flags, Mode::empty(), resolve)?);
    if !found.metadata()?.is_file() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    File::open(format!("/proc/self/fd/{}", found.as_raw_fd()))
}
