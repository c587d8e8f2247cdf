//! The words of `runtime.moduledata`, which the linker fills in.
//!
//! The function table contains neither the start of the code nor the location of the inlining data. In
//! position-independent programs the words are in relocations, relative to the load address.

use gimli::Reader;
use object::elf::{Rela64, SHF_WRITE, SHT_RELA};
use object::{LittleEndian, pod};
use profcol_elf::{LE, SectionHeader, has_data};

use crate::image::Image;

/// The layout since Go 1.18, up to the last word needed here: the rest differs between versions.
const WORDS: usize = 41;
const TABLE: usize = 0;
const NAMES: usize = 1;
const TEXT: usize = 22;
pub const INLINED_1_18: usize = 38;
pub const INLINED_1_20: usize = 40;
/// Read size.
const PIECE: usize = 16 << 10;
/// Limit of data and relocations searched.
const MAX_BYTES: usize = 64 << 20;
/// Limit of candidates.
const MAX_LIKE: usize = 8;

pub struct Module {
    /// Start of the code.
    pub text: u64,
    /// Start of the functions' inlining data.
    pub inlined: u64,
}

impl Module {
    /// Finds it by the addresses of the function table and its names; the index of the inlining word depends on the
    /// version.
    pub fn find(image: &Image, table: u64, names: u64, inlined: usize) -> Option<Self> {
        let words = written(image, table, names).or_else(|| relocated(image, table, names))?;
        Some(Self {
            text: words[TEXT],
            inlined: *words.get(inlined)?,
        })
    }
}

type Words = [u64; WORDS];

/// Newer versions have a section for it.
fn written(image: &Image, table: u64, names: u64) -> Option<Words> {
    let sections = image.elf.sections.iter().filter(|it| has_data(it));
    let writable = sections.filter(|it| it.sh_flags.get(LE) & u64::from(SHF_WRITE) != 0);
    let mut likely: Vec<&SectionHeader> = writable.collect();
    likely.sort_by_key(|it| image.elf.name(it) != b".go.module");
    let mut left = MAX_BYTES;
    for section in likely {
        let section = image.section(section).ok()?;
        let mut view = section.view();
        while view.len() >= size_of::<Words>() && left > 0 {
            let mut piece = vec![0; view.len().min(PIECE)];
            left = left.saturating_sub(piece.len());
            view.clone().read_slice(&mut piece).ok()?;
            let (pieces, _) = piece.as_chunks::<8>();
            let index = pieces.windows(2).position(|pair| {
                matches!(pair, [first, second]
                    if u64::from_le_bytes(*first) == table && u64::from_le_bytes(*second) == names)
            });
            if let Some(index) = index {
                view.skip(index * 8).ok()?;
                let mut words = [0; WORDS];
                for word in &mut words {
                    *word = view.read_u64().ok()?;
                }
                return Some(words);
            }
            // The second word may be after the end of the piece.
            view.skip(piece.len().saturating_sub(8).max(8)).ok()?;
        }
    }
    None
}

fn relocated(image: &Image, table: u64, names: u64) -> Option<Words> {
    let mut like: Vec<(u64, Words)> = Vec::new();
    each_relocation(image, |at, value| {
        if value == table && like.len() < MAX_LIKE {
            like.push((at, [0; WORDS]));
        }
    })?;
    each_relocation(image, |at, value| {
        for (start, words) in &mut like {
            let word = usize::try_from(at.wrapping_sub(*start) / 8).ok();
            if let Some(word) = word.and_then(|it| words.get_mut(it)) {
                *word = value;
            }
        }
    })?;
    let mut candidates = like.into_iter().map(|(_, words)| words);
    candidates.find(|words| words[TABLE] == table && words[NAMES] == names)
}

/// Calls `note` with the address and value of each relocation.
fn each_relocation(image: &Image, mut note: impl FnMut(u64, u64)) -> Option<()> {
    type Relocation = Rela64<LittleEndian>;
    let mut left = MAX_BYTES;
    let sections = image.elf.sections.iter();
    for section in sections.filter(|it| it.sh_type.get(LE) == SHT_RELA && has_data(it)) {
        let section = image.section(section).ok()?;
        let mut view = section.view();
        while view.len() >= size_of::<Relocation>() && left > 0 {
            let count = view.len().min(PIECE) / size_of::<Relocation>();
            let mut piece = vec![0; count * size_of::<Relocation>()];
            left = left.saturating_sub(piece.len());
            view.read_slice(&mut piece).ok()?;
            let (relocations, _) = pod::slice_from_bytes::<Relocation>(&piece, count).ok()?;
            for relocation in relocations {
                note(
                    relocation.r_offset.get(LE),
                    relocation.r_addend.get(LE) as u64,
                );
            }
        }
    }
    Some(())
}
