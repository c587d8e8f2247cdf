//! Finds the mapping behind a user address in the kernel's own tree, without a lock.
//!
//! Processes need no registration: at the sample the task's tree is walked to the mapping of the
//! address: a maple tree since Linux 6.1, a red-black tree before. The tree may change meanwhile, so
//! what is read is checked: a node that is dead, a mapping of another process or range, or a file
//! that changed is a miss with its reason, never an answer. How nodes encode themselves is not in
//! BTF; the loader proves it at start on its own mappings. Where it cannot, [`crate::published`] has
//! the mappings.

use crate::file::FileId;
use crate::layout::Layout;
use crate::settings::Settings;
use crate::{hide, reason::EndReason};

/// Reads the kernel's memory.
pub trait KernelMemory {
    /// Whether the kernel may be older than its maple trees.
    const BEFORE_MAPLE_TREES: bool;

    /// Loads 256 bytes, as much as a node has; false where they cannot be read.
    fn load_node(&mut self, address: u64) -> bool;
    /// A word of what was loaded last; `index` is below 32.
    fn node_word(&self, index: u64) -> u64;
    fn word(&mut self, address: u64) -> Option<u64>;
}

/// A mapping of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mapping {
    pub start: u64,
    pub end: u64,
    /// Added to an address gives the offset in the file.
    pub to_offset: u64,
    /// The kernel's `struct file`; 0 is none.
    pub file: u64,
    pub id: FileId,
    pub has_code: bool,
}

/// Why there is no mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Miss {
    /// The address belongs to no mapping.
    None,
    /// The tree changed while it was read.
    Changing,
    /// The tree is not as it should be, or its memory cannot be read.
    Unreadable,
}

impl Miss {
    pub fn reason(self) -> EndReason {
        match self {
            Self::None | Self::Unreadable => EndReason::NoMapping,
            Self::Changing => EndReason::MappingsChanging,
        }
    }
}

const EXECUTABLE: u64 = 4;

/// Levels of a tree; five hold more mappings than a process may have.
const MAX_DEPTH: u32 = 6;
/// The same of a red-black tree: twice the logarithm of what it holds.
const MOST_LEVELS: u32 = 34;
const MOST_PIVOTS: u64 = 15;
const NODE_MASK: u64 = 255;
const LEAF: u64 = 1;
const RANGE: u64 = 2;
const ALLOCATING_RANGE: u64 = 3;

/// The mapping that holds `address`.
#[inline(always)]
pub fn find<K: KernelMemory>(
    kernel: &mut K,
    settings: &Settings,
    mm: u64,
    address: u64,
) -> Result<Mapping, Miss> {
    let layout = &settings.layout;
    let area = if K::BEFORE_MAPLE_TREES && !layout.has_maple_tree() {
        find_in_red_black_tree(kernel, layout, mm, address)?
    } else {
        find_in_maple_tree(kernel, layout, mm, address)?
    };
    // All that is asked for stands in its first 256 bytes.
    if !kernel.load_node(area) {
        return Err(Miss::Unreadable);
    }
    let member = |offset: u64| kernel.node_word(hide(offset >> 3) & 31);
    let start = member(layout.vma_start);
    let end = member(layout.vma_end);
    // Freed and used again, perhaps by another process.
    if member(layout.vma_mm) != mm || address < start || address >= end {
        return Err(Miss::Changing);
    }
    let has_code = member(layout.vma_flags) & EXECUTABLE != 0;
    let page = member(layout.vma_page);
    let file = member(layout.vma_file);
    let id = if file == 0 {
        FileId::default()
    } else {
        let id = identity(kernel, layout, file)?;
        if kernel.word(area + layout.vma_file) != Some(file)
            || kernel.word(area + layout.vma_start) != Some(start)
        {
            return Err(Miss::Changing);
        }
        id
    };
    Ok(Mapping {
        start,
        end,
        to_offset: (page << (settings.page_shift & 63)).wrapping_sub(start),
        file,
        id,
        has_code,
    })
}

/// The mapping that an anonymous one with code took a part of.
///
/// Programs copy their code to huge pages and put these in its place. What lies between two mappings
/// of one file, where that file's code would be, is taken for it; the rules for its frames are the
/// file's.
#[inline(always)]
pub fn replaced(gap: &Mapping, below: &Mapping, above: &Mapping) -> Option<Mapping> {
    let is_between = below.end == gap.start && above.start == gap.end;
    if !is_between || below.file == 0 || below.id != above.id {
        return None;
    }
    // Where nothing is left of the code, what lies around it has to agree about its place.
    if below.has_code == above.has_code && below.to_offset != above.to_offset {
        return None;
    }
    let rest = if below.has_code { below } else { above };
    let offset = gap.start.wrapping_add(rest.to_offset);
    (offset >> 63 == 0).then_some(*rest)
}

/// The identity of the file behind a `struct file`.
#[inline(always)]
pub fn identity(
    kernel: &mut impl KernelMemory,
    layout: &Layout,
    file: u64,
) -> Result<FileId, Miss> {
    let mut read = |at: u64| kernel.word(at).ok_or(Miss::Unreadable);
    let inode = read(file + layout.file_inode)?;
    if inode == 0 {
        return Err(Miss::Unreadable);
    }
    let superblock = read(inode + layout.inode_super)?;
    let seconds = read(inode + layout.inode_seconds)?;
    // The field has 32 or 64 bits.
    let nanoseconds = u64::from(read(inode + layout.inode_nanoseconds)? as u32);
    Ok(FileId::new(
        read(inode + layout.inode_number)?,
        read(superblock + layout.super_device)? as u32,
        read(inode + layout.inode_generation)? as u32,
        seconds
            .wrapping_mul(1_000_000_000)
            .wrapping_add(nanoseconds),
    ))
}

/// The address of the `vm_area_struct` that the tree has for `address`.
///
/// Nothing tells whether the tree was turned while it was walked; then the address may seem to
/// belong to no mapping.
#[inline(always)]
fn find_in_red_black_tree(
    kernel: &mut impl KernelMemory,
    layout: &Layout,
    mm: u64,
    address: u64,
) -> Result<u64, Miss> {
    let word_at = |offset: u64| hide(offset >> 3) & 31;
    let (start, end) = (word_at(layout.vma_start), word_at(layout.vma_end));
    // A node has its parent, right and left.
    let right = word_at(layout.vma_node + 8);
    let left = word_at(layout.vma_node + 16);
    let mut node = kernel
        .word(mm.wrapping_add(layout.mm_areas))
        .ok_or(Miss::Unreadable)?;
    for _ in 0..MOST_LEVELS {
        if node == 0 {
            return Err(Miss::None);
        }
        // Nodes are part of what they stand for.
        let area = node.wrapping_sub(layout.vma_node);
        if !kernel.load_node(area) {
            return Err(Miss::Unreadable);
        }
        let is_below = address < kernel.node_word(start);
        if !is_below && address < kernel.node_word(end) {
            return Ok(area);
        }
        node = kernel.node_word(if is_below { left } else { right });
    }
    Err(Miss::Changing)
}

/// The address of the `vm_area_struct` that the tree has for `address`.
#[inline(always)]
fn find_in_maple_tree(
    kernel: &mut impl KernelMemory,
    layout: &Layout,
    mm: u64,
    address: u64,
) -> Result<u64, Miss> {
    let mut entry = kernel.word(mm + layout.mm_tree).ok_or(Miss::Unreadable)?;
    // A root that is no node holds a single entry at index 0.
    if entry & 3 != 2 || entry < 4096 {
        return Err(Miss::None);
    }
    let mut kind = 0;
    for _ in 0..MAX_DEPTH {
        kind = entry >> 3 & 15;
        let node = entry & !NODE_MASK;
        if !kernel.load_node(node) {
            return Err(Miss::Unreadable);
        }
        // A dead node is its own parent.
        if kernel.node_word(0) & !NODE_MASK == node {
            return Err(Miss::Changing);
        }
        let slots = match kind {
            // Parent, nine pivots, ten slots.
            ALLOCATING_RANGE => 10,
            // Parent, fifteen pivots, sixteen slots.
            LEAF | RANGE => 16,
            _ => return Err(Miss::Unreadable),
        };
        let slot = hide(slots) + (first_not_below(kernel, address) & 15);
        entry = kernel.node_word(hide(slot) & 31);
        if kind == LEAF {
            break;
        }
        if entry < 4096 {
            return Err(Miss::Changing);
        }
    }
    if kind != LEAF {
        return Err(Miss::Unreadable);
    }
    match entry {
        0 => Err(Miss::None),
        // An entry that a fork is still copying.
        _ if entry < 4096 || entry & 3 != 0 => Err(Miss::Changing),
        _ => Ok(entry),
    }
}

/// The first of the node's pivots that is not below `address`, counted without a branch.
///
/// Where a node has less than fifteen, its first slot stands behind them: the address of a node,
/// which has the top bit set.
/// Pivots behind the node's last one are stale, hence the end at the first that is not below. The
/// tree's last pivot has the top bit set and is never below a user address.
#[inline(always)]
fn first_not_below(kernel: &impl KernelMemory, address: u64) -> u64 {
    let (mut below, mut index) = (1, 0);
    let mut next = 0;
    while next < MOST_PIVOTS {
        next += 1;
        let pivot = kernel.node_word(next);
        below &= (pivot.wrapping_sub(address) >> 63) & !(pivot >> 63);
        index += below;
    }
    index
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: u64 = 1;
    const OTHER: u64 = 2;

    fn mapping(start: u64, end: u64, offset: u64, inode: u64, has_code: bool) -> Mapping {
        Mapping {
            start,
            end,
            to_offset: offset.wrapping_sub(start),
            file: inode,
            id: FileId::new(inode, 1, 1, 1),
            has_code,
        }
    }

    #[test]
    fn code_that_was_moved_to_huge_pages_is_still_the_files() {
        let gap = mapping(0x20_0000, 0x60_0000, 0, 0, true);
        let check = |below: Mapping, above: Mapping, offset: Option<u64>| {
            let found = replaced(&gap, &below, &above);
            let place = found.map(|rest| gap.start.wrapping_add(rest.to_offset));
            assert_eq!(place, offset, "{below:x?} {above:x?}");
        };
        let below =
            |offset, inode, has_code| mapping(0x10_0000, 0x20_0000, offset, inode, has_code);
        let above =
            |offset, inode, has_code| mapping(0x60_0000, 0x70_0000, offset, inode, has_code);
        // The middle of the code.
        check(
            below(0x1000, FILE, true),
            above(0x50_1000, FILE, true),
            Some(0x10_1000),
        );
        // Its begin or its end: data lies elsewhere in the file.
        check(
            below(0, FILE, false),
            above(0x50_1000, FILE, true),
            Some(0x10_1000),
        );
        check(
            below(0x1000, FILE, true),
            above(0, FILE, false),
            Some(0x10_1000),
        );
        // All of it.
        check(
            below(0, FILE, false),
            above(0x50_0000, FILE, false),
            Some(0x10_0000),
        );
        check(below(0, FILE, false), above(0x40_0000, FILE, false), None);
        // Generated code that happens to be there.
        check(below(0, FILE, true), above(0x40_0000, FILE, true), None);
        check(below(0, FILE, true), above(0x50_0000, OTHER, true), None);
        check(below(0, 0, true), above(0x50_0000, 0, true), None);
        check(below(0, FILE, false), above(0x1000, FILE, true), None);
        let apart = mapping(0x10_0000, 0x1f_f000, 0, FILE, true);
        check(apart, above(0x50_0000, FILE, true), None);
        let apart = mapping(0x60_1000, 0x70_0000, 0x50_1000, FILE, true);
        check(below(0, FILE, true), apart, None);
    }
}
