//! Files that hold a part of an executable's DWARF.
//!
//! * The common part of several files, extracted by `dwz`: referenced by `.gnu_debugaltlink` with a build id, or by
//!   `.debug_sup` with a checksum.
//! * `.dwo` files written by the compiler next to its objects, or a package of them (`.dwp`). Each unit states which
//!   skeleton it belongs to: the reader has to compare that.

use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use profcol_elf::{Elf, Source};

use crate::separate::{by_build_id, first};
use crate::{SearchPaths, Separate, build_id};

/// A path and an id.
const MAX_LINK: u64 = 8192;

/// How a file refers to the file with its common part.
#[derive(Debug, PartialEq, Eq)]
pub struct CommonLink {
    path: PathBuf,
    id: Id,
}

#[derive(Debug, PartialEq, Eq)]
enum Id {
    Build(Vec<u8>),
    Checksum(Vec<u8>),
}

impl CommonLink {
    /// A link by build id, or by checksum.
    pub fn new(path: PathBuf, id: Vec<u8>, is_checksum: bool) -> Self {
        let id = match is_checksum {
            true => Id::Checksum(id),
            false => Id::Build(id),
        };
        Self { path, id }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The checksum of the file, if the link uses one.
    pub fn checksum(&self) -> Option<&[u8]> {
        match &self.id {
            Id::Build(_) => None,
            Id::Checksum(sum) => Some(sum),
        }
    }

    pub fn of(source: &(impl Source + ?Sized), elf: &Elf) -> Option<Self> {
        let content = |name: &[u8]| {
            let section = elf.find(name)?;
            elf.content(source, "a link", section, MAX_LINK).ok()
        };
        let link = content(b".gnu_debugaltlink").and_then(|link| alternate(&link));
        link.or_else(|| match supplementary(&content(b".debug_sup")?)? {
            Supplementary::Named(link) => Some(link),
            Supplementary::Itself(_) => None,
        })
    }

    /// The build id of the file, if the link uses one.
    pub fn build_id(&self) -> Option<&[u8]> {
        match &self.id {
            Id::Build(id) => Some(id),
            Id::Checksum(_) => None,
        }
    }

    fn is_to(&self, candidate: &File) -> bool {
        match &self.id {
            Id::Build(id) => build_id(candidate).as_deref() == Some(&id[..]),
            Id::Checksum(sum) => {
                let supplementary = Elf::read(candidate).ok().and_then(|elf| {
                    let section = elf.find(b".debug_sup")?;
                    let content = elf.content(candidate, "a link", section, MAX_LINK).ok()?;
                    supplementary(&content)
                });
                matches!(supplementary, Some(Supplementary::Itself(actual)) if actual == *sum)
            }
        }
    }
}

/// The file with the common part; `from` is the path of the file with the link.
pub fn common(link: &CommonLink, from: &Path, search_paths: &SearchPaths<'_>) -> Option<Separate> {
    let mut candidates = Vec::new();
    if let Some(id) = link.build_id() {
        candidates.extend(by_build_id(id, search_paths));
    }
    candidates.push(directory(from).join(&link.path));
    first(search_paths, candidates, |file| link.is_to(file))
}

/// The package of all `.dwo` files of an executable; `debug_file` is the file with the rest of its DWARF.
pub fn package(debug_file: Option<&Path>, search_paths: &SearchPaths<'_>) -> Option<Separate> {
    let add = |path: &Path| {
        let mut path = path.as_os_str().to_owned();
        path.push(".dwp");
        PathBuf::from(path)
    };
    let siblings = [Some(search_paths.executable), debug_file]
        .into_iter()
        .flatten();
    let mut candidates: Vec<PathBuf> = siblings.map(add).collect();
    let below = search_paths.executable.strip_prefix("/");
    let below = add(below.unwrap_or(search_paths.executable));
    candidates.extend(search_paths.directories.iter().map(|it| it.join(&below)));
    first(search_paths, candidates, has_split_units)
}

/// A `.dwo` file by its name and the compilation directory of its unit.
pub fn split(compiled_in: &Path, name: &Path, search_paths: &SearchPaths<'_>) -> Option<Separate> {
    let directory = directory(search_paths.executable);
    let mut candidates = vec![directory.join(compiled_in).join(name)];
    // A relocated build has it next to the executable.
    candidates.extend(name.file_name().map(|name| directory.join(name)));
    first(search_paths, candidates, has_split_units)
}

/// Whether a file has the units of a `.dwo` file or a package. The executable names the path: no other file must be read
/// for it.
fn has_split_units(file: &File) -> bool {
    let elf = Elf::read(file).ok();
    elf.is_some_and(|elf| elf.find_debug("info.dwo").is_some())
}

fn directory(path: &Path) -> &Path {
    path.parent().unwrap_or(Path::new("/"))
}

/// A path, a zero byte, and the build id.
fn alternate(link: &[u8]) -> Option<CommonLink> {
    let (path, id) = path(link)?;
    let id = Id::Build(id.to_vec());
    Some(CommonLink { path, id })
}

/// The contents of `.debug_sup`.
enum Supplementary {
    Named(CommonLink),
    /// The file is the supplementary file itself and has this checksum.
    Itself(Vec<u8>),
}

/// A version, the is-supplementary flag, the path, a zero byte, and the length and bytes of a checksum.
fn supplementary(section: &[u8]) -> Option<Supplementary> {
    let (version, rest) = section.split_first_chunk::<2>()?;
    let (&is_itself, rest) = rest.split_first()?;
    if u16::from_le_bytes(*version) != 5 {
        return None;
    }
    let end = rest.iter().position(|&byte| byte == 0)?;
    let (&length, sum) = rest.get(end + 1..)?.split_first()?;
    let sum = sum.get(..length.into()).filter(|sum| !sum.is_empty())?;
    match is_itself {
        0 => {
            let (path, _) = path(rest)?;
            let id = Id::Checksum(sum.to_vec());
            Some(Supplementary::Named(CommonLink { path, id }))
        }
        _ => Some(Supplementary::Itself(sum.to_vec())),
    }
}

fn path(bytes: &[u8]) -> Option<(PathBuf, &[u8])> {
    let end = bytes.iter().position(|&byte| byte == 0)?;
    let (path, rest) = bytes.split_at_checked(end)?;
    let rest = rest.get(1..).filter(|rest| !rest.is_empty())?;
    let is_path = !path.is_empty();
    is_path.then(|| (OsStr::from_bytes(path).into(), rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_links() {
        let alternate = |link: &[u8]| alternate(link).map(|it| (it.path, it.id));
        let id = |bytes: &[u8]| Id::Build(bytes.to_vec());
        assert_eq!(
            alternate(b"a/b\0\x01\x02"),
            Some(("a/b".into(), id(&[1, 2])))
        );
        assert_eq!(alternate(b"a/b\0"), None);
        assert_eq!(alternate(b"\0\x01\x02"), None);
        assert_eq!(alternate(b"a/b"), None);

        let named = |section: &[u8]| match supplementary(section) {
            Some(Supplementary::Named(link)) => Some((link.path, link.id)),
            _ => None,
        };
        let sum = |bytes: &[u8]| Id::Checksum(bytes.to_vec());
        assert_eq!(
            named(b"\x05\0\0a\0\x02\x01\x02"),
            Some(("a".into(), sum(&[1, 2])))
        );
        assert_eq!(named(b"\x05\0\0a\0\x03\x01\x02"), None);
        assert_eq!(named(b"\x05\0\0a\0\0"), None);
        assert_eq!(named(b"\x04\0\0a\0\x01\x01"), None);
        assert_eq!(named(b"\x05\0\x01\0\x01\x01"), None);
        let itself = supplementary(b"\x05\0\x01\0\x01\x09");
        assert!(matches!(itself, Some(Supplementary::Itself(sum)) if sum == [9]));
    }
}
