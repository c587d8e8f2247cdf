//! Finds members of the kernel's structures in its own type information (BTF).
//!
//! Reads the bytes in one pass and keeps only the start of each type: aya would hold all hundred thousand
//! types as objects, for the two dozen members needed here.

use std::path::Path;

use profcol_ebpf_common::layout::{ABSENT, Layout, OPTIONAL};

const PATH: &str = "/sys/kernel/btf/vmlinux";

#[derive(Debug, thiserror::Error)]
pub enum BtfError {
    #[error("failed to read the kernel's BTF at {PATH}: {0}")]
    Unreadable(#[from] std::io::Error),
    #[error("invalid BTF at {PATH}: {0}")]
    Damaged(&'static str),
    #[error("this kernel has no `{0}`: unsupported kernel version")]
    NoMember(String),
}

impl BtfError {
    pub(crate) fn fix(&self) -> Option<String> {
        match self {
            Self::Unreadable(_) => Some(
                "run a kernel that was built with CONFIG_DEBUG_INFO_BTF=y, and mount /sys"
                    .to_owned(),
            ),
            Self::Damaged(_) | Self::NoMember(_) => None,
        }
    }
}

/// The offsets in the running kernel's structures that the programs need.
pub fn kernel_layout() -> Result<Layout, BtfError> {
    layout(&std::fs::read(Path::new(PATH))?)
}

fn layout(bytes: &[u8]) -> Result<Layout, BtfError> {
    let types = Types::parse(bytes)?;
    let mut offsets = Vec::with_capacity(Layout::MEMBERS.len());
    for &(structure, members) in Layout::MEMBERS {
        let found = types
            .structure(structure)
            .and_then(|at| members.iter().find_map(|member| types.member(at, member)));
        let may_lack = members.contains(&OPTIONAL);
        offsets.push(match found {
            Some(offset) => offset,
            None if may_lack => ABSENT,
            None => {
                let names = members.join(" or ");
                return Err(BtfError::NoMember(format!("{structure}.{names}")));
            }
        });
    }
    let mut offsets = offsets.into_iter();
    Ok(Layout::from_offsets(|| offsets.next().unwrap_or_default()))
}

/// Parsed BTF, for looking up structures and their members.
pub struct Types<'a> {
    bytes: &'a [u8],
    strings: &'a [u8],
    /// The start of each type; type numbers count from 1.
    begins: Vec<u32>,
}

const MAGIC: u16 = 0xeb9f;
const HEADER: usize = 24;
const MEMBER: usize = 12;

mod kind {
    pub const INT: u32 = 1;
    pub const ARRAY: u32 = 3;
    pub const STRUCT: u32 = 4;
    pub const UNION: u32 = 5;
    pub const ENUM: u32 = 6;
    pub const TYPEDEF: u32 = 8;
    pub const VOLATILE: u32 = 9;
    pub const CONST: u32 = 10;
    pub const FUNC_PROTO: u32 = 13;
    pub const VAR: u32 = 14;
    pub const DATASEC: u32 = 15;
    pub const DECL_TAG: u32 = 17;
    pub const TYPE_TAG: u32 = 18;
    pub const ENUM64: u32 = 19;
    pub const LAST: u32 = 19;
}

/// Maximum nesting of typedefs, qualifiers and structures; real types have less.
const DEEPEST: usize = 16;

impl<'a> Types<'a> {
    pub fn parse(file: &'a [u8]) -> Result<Self, BtfError> {
        let word = |at| word(file, at).ok_or(BtfError::Damaged("truncated header"));
        if word(0)? as u16 != MAGIC {
            return Err(BtfError::Damaged("wrong magic number"));
        }
        let header = word(4)? as usize;
        if header < HEADER {
            return Err(BtfError::Damaged("header too short"));
        }
        let section = |offset: u32, length: u32| {
            let start = header.checked_add(offset as usize)?;
            file.get(start..start.checked_add(length as usize)?)
        };
        let bytes = section(word(8)?, word(12)?).ok_or(BtfError::Damaged("truncated types"))?;
        let strings = section(word(16)?, word(20)?).ok_or(BtfError::Damaged("truncated names"))?;
        let mut types = Self {
            bytes,
            strings,
            begins: Vec::new(),
        };
        let mut at = 0;
        while at < bytes.len() {
            types.begins.push(at as u32);
            at = types
                .end_of(at)
                .ok_or(BtfError::Damaged("unknown kind of type"))?;
        }
        Ok(types)
    }

    fn word(&self, at: usize) -> Option<u32> {
        word(self.bytes, at)
    }

    fn kind(&self, at: usize) -> Option<u32> {
        Some(self.word(at + 4)? >> 24 & 0x1f)
    }

    fn count(&self, at: usize) -> Option<usize> {
        Some((self.word(at + 4)? & 0xffff) as usize)
    }

    fn end_of(&self, at: usize) -> Option<usize> {
        let kind = self.kind(at)?;
        let count = self.count(at)?;
        let more = match kind {
            kind::INT | kind::VAR | kind::DECL_TAG => 4,
            kind::ARRAY => 12,
            kind::STRUCT | kind::UNION | kind::DATASEC | kind::ENUM64 => count * 12,
            kind::ENUM | kind::FUNC_PROTO => count * 8,
            0 => return None,
            kind if kind > kind::LAST => return None,
            _ => 0,
        };
        Some(at + 12 + more)
    }

    fn name(&self, offset: u32) -> Option<&'a [u8]> {
        let rest = self.strings.get(offset as usize..)?;
        rest.split(|&byte| byte == 0).next()
    }

    /// The start of the structure with this name.
    pub fn structure(&self, name: &str) -> Option<usize> {
        self.begins.iter().map(|&at| at as usize).find(|&at| {
            self.kind(at) == Some(kind::STRUCT)
                && self.word(at).and_then(|offset| self.name(offset)) == Some(name.as_bytes())
        })
    }

    /// The offset of a member in bytes, or in bits if the path says so. Dots in the path lead through nested
    /// structures.
    pub fn member(&self, mut at: usize, path: &str) -> Option<u64> {
        let mut bits = 0;
        let (path, is_bit) = match path.strip_suffix(":bit") {
            Some(path) => (path, true),
            None => (path, false),
        };
        for name in path.split('.') {
            let (offset, kind) = self.find(at, name.as_bytes(), DEEPEST)?;
            bits += offset;
            at = self.resolve(kind)?;
        }
        if is_bit {
            return Some(bits);
        }
        (bits % 8 == 0).then_some(bits / 8)
    }

    /// A member's offset in bits and its type; searches anonymous structures, too.
    fn find(&self, at: usize, name: &[u8], depth: usize) -> Option<(u64, u32)> {
        if depth == 0 || !matches!(self.kind(at)?, kind::STRUCT | kind::UNION) {
            return None;
        }
        // If the flag is set, the highest byte of an offset is the width of a bit field.
        let has_widths = self.word(at + 4)? >> 31 != 0;
        for index in 0..self.count(at)? {
            let member = at + 12 + index * MEMBER;
            let kind = self.word(member + 4)?;
            let raw = self.word(member + 8)?;
            let offset = u64::from(if has_widths { raw & 0xff_ffff } else { raw });
            match self.name(self.word(member)?)? {
                b"" => {
                    let inner = self.resolve(kind)?;
                    if let Some((more, kind)) = self.find(inner, name, depth - 1) {
                        return Some((offset + more, kind));
                    }
                }
                found if found == name => return Some((offset, kind)),
                _ => {}
            }
        }
        None
    }

    /// The start of a type, after resolving typedefs and qualifiers.
    fn resolve(&self, mut number: u32) -> Option<usize> {
        for _ in 0..DEEPEST {
            let at = *self.begins.get((number as usize).checked_sub(1)?)? as usize;
            match self.kind(at)? {
                kind::TYPEDEF | kind::VOLATILE | kind::CONST | kind::TYPE_TAG => {
                    number = self.word(at + 8)?;
                }
                _ => return Some(at),
            }
        }
        None
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..at.checked_add(4)?)?;
    Some(u32::from_le_bytes(bytes.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use profcol_test_skip::skip;

    use super::*;

    #[test]
    fn finds_every_member_in_the_running_kernel() {
        match kernel_layout() {
            Ok(layout) => {
                assert_ne!(layout.task_mm, 0);
                assert_ne!(layout.vma_file, 0);
                assert_eq!(layout.vma_start, 0);
                assert_eq!(layout.vma_end, 8);
                assert_ne!(layout.kernfs_parent, ABSENT);
                assert_ne!(layout.kernfs_name, layout.kernfs_parent);
            }
            Err(BtfError::Unreadable(error)) => {
                skip(&format!(
                    "the kernel's type information (BTF) is not readable: {error}"
                ));
            }
            Err(error) => panic!("{error}"),
        }
    }

    #[test]
    fn rejects_input_that_is_not_btf() {
        for damaged in [
            &[][..],
            &[0x9f, 0xeb],
            &[0; 64],
            &[0x9f, 0xeb, 1, 0, 24, 0, 0, 0, 0, 0, 0, 0, 255, 255],
        ] {
            assert!(matches!(layout(damaged), Err(BtfError::Damaged(_))));
        }
    }

    #[test]
    fn survives_any_single_corrupt_byte() {
        // One int and one struct `s` with the member `m`.
        let mut file = vec![0x9f, 0xeb, 1, 0];
        for word in [24u32, 0, 40, 40, 7] {
            file.extend(word.to_le_bytes());
        }
        for word in [
            1,
            kind::INT << 24,
            4,
            32,
            3,
            kind::STRUCT << 24 | 1,
            4,
            5,
            1,
            64,
        ] {
            file.extend(u32::to_le_bytes(word));
        }
        file.extend(b"\0i\0s\0m\0");
        let types = Types::parse(&file).expect("is well-formed");
        let at = types.structure("s").expect("is there");
        assert_eq!(types.member(at, "m"), Some(8));
        assert_eq!(types.member(at, "n"), None);
        for place in 0..file.len() {
            for value in [0, 1, 127, 255] {
                let mut damaged = file.clone();
                damaged[place] = value;
                if let Ok(types) = Types::parse(&damaged)
                    && let Some(at) = types.structure("s")
                {
                    let _ = types.member(at, "m");
                }
            }
        }
    }
}
