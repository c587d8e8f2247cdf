//! Looks up the VMA for a user address in the kernel's tree, without a lock.
//!
//! Each sample walks the task's tree: a maple tree since Linux 6.1, a red-black tree before. The tree
//! may change during the walk, so every read is checked: a dead node, a VMA of another process or
//! range, or a changed file gives an error, never a wrong mapping. BTF does not describe the node
//! encoding; the loader verifies it at start with its own mappings. If that fails, the programs use
//! the mappings of [`crate::published`].

use crate::file::FileId;
use crate::layout::Layout;
use crate::settings::Settings;
use crate::{barrier_var, reason::EndReason};

/// Reads the kernel's memory.
pub trait KernelMemory {
    /// Whether to support kernels before 6.1, which have no maple tree.
    const SUPPORTS_RED_BLACK_TREE: bool;

    /// Loads 256 bytes, the size of a node; false if they cannot be read.
    fn load_node(&mut self, address: u64) -> bool;
    /// A word of the last loaded node; `index` is below 32.
    fn node_word(&self, index: u64) -> u64;
    fn word(&mut self, address: u64) -> Option<u64>;
}

/// A mapping of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mapping {
    pub start: u64,
    pub end: u64,
    /// Offset in the file = address + this.
    pub offset_delta: u64,
    /// The kernel's `struct file`; 0 is none.
    pub file: u64,
    pub id: FileId,
    pub has_code: bool,
}

/// Why the lookup found no mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MappingError {
    /// The address is not mapped.
    NotMapped,
    /// The tree changed during the walk.
    Changing,
    /// The tree is malformed, or its memory cannot be read.
    Unreadable,
}

impl MappingError {
    pub fn reason(self) -> EndReason {
        match self {
            Self::NotMapped | Self::Unreadable => EndReason::NoMapping,
            Self::Changing => EndReason::MappingsChanging,
        }
    }
}

const VM_EXEC: u64 = 4;

/// Five levels hold more mappings than a process may have.
const MAX_MAPLE_DEPTH: u32 = 6;
/// A red-black tree is at most twice as deep as the logarithm of its size.
const MAX_RED_BLACK_DEPTH: u32 = 34;
const MAX_PIVOTS: u64 = 15;
const MAPLE_NODE_MASK: u64 = 255;
const MAPLE_LEAF_64: u64 = 1;
const MAPLE_RANGE_64: u64 = 2;
const MAPLE_ARANGE_64: u64 = 3;

/// The mapping that holds `address`.
#[inline(always)]
pub fn find<K: KernelMemory>(
    kernel: &mut K,
    settings: &Settings,
    mm: u64,
    address: u64,
) -> Result<Mapping, MappingError> {
    let layout = &settings.layout;
    let area = if K::SUPPORTS_RED_BLACK_TREE && !layout.has_maple_tree() {
        find_in_red_black_tree(kernel, layout, mm, address)?
    } else {
        find_in_maple_tree(kernel, layout, mm, address)?
    };
    // The members needed are in its first 256 bytes.
    if !kernel.load_node(area) {
        return Err(MappingError::Unreadable);
    }
    let member = |offset: u64| kernel.node_word(barrier_var(offset >> 3) & 31);
    let start = member(layout.vma_start);
    let end = member(layout.vma_end);
    // Freed and reused, perhaps by another process.
    if member(layout.vma_mm) != mm || address < start || address >= end {
        return Err(MappingError::Changing);
    }
    let has_code = member(layout.vma_flags) & VM_EXEC != 0;
    let page = member(layout.vma_pgoff);
    let file = member(layout.vma_file);
    let id = if file == 0 {
        FileId::default()
    } else {
        let id = identity(kernel, layout, file)?;
        if kernel.word(area + layout.vma_file) != Some(file)
            || kernel.word(area + layout.vma_start) != Some(start)
        {
            return Err(MappingError::Changing);
        }
        id
    };
    Ok(Mapping {
        start,
        end,
        offset_delta: (page << (settings.page_shift & 63)).wrapping_sub(start),
        file,
        id,
        has_code,
    })
}

/// The file mapping that an anonymous executable mapping replaced a part of.
///
/// Programs remap their code to huge pages. An anonymous mapping between two mappings of one file, at
/// the place of that file's code, is treated as that file and uses its unwind table.
#[inline(always)]
pub fn file_behind_anonymous(gap: &Mapping, below: &Mapping, above: &Mapping) -> Option<Mapping> {
    let is_between = below.end == gap.start && above.start == gap.end;
    if !is_between || below.file == 0 || below.id != above.id {
        return None;
    }
    // If no code mapping is left, both neighbours must agree on the offset.
    if below.has_code == above.has_code && below.offset_delta != above.offset_delta {
        return None;
    }
    let rest = if below.has_code { below } else { above };
    let offset = gap.start.wrapping_add(rest.offset_delta);
    (offset >> 63 == 0).then_some(*rest)
}

/// The identity of the file behind a `struct file`.
#[inline(always)]
pub fn identity(
    kernel: &mut impl KernelMemory,
    layout: &Layout,
    file: u64,
) -> Result<FileId, MappingError> {
    let mut read = |at: u64| kernel.word(at).ok_or(MappingError::Unreadable);
    let inode = read(file + layout.file_inode)?;
    if inode == 0 {
        return Err(MappingError::Unreadable);
    }
    let superblock = read(inode + layout.inode_super)?;
    let seconds = read(inode + layout.inode_mtime_sec)?;
    // The field has 32 or 64 bits.
    let nanoseconds = u64::from(read(inode + layout.inode_mtime_nsec)? as u32);
    Ok(FileId::new(
        read(inode + layout.inode_number)?,
        read(superblock + layout.super_dev)? as u32,
        read(inode + layout.inode_generation)? as u32,
        seconds
            .wrapping_mul(1_000_000_000)
            .wrapping_add(nanoseconds),
    ))
}

/// The address of the `vm_area_struct` that the tree has for `address`.
///
/// A concurrent rotation of the tree goes unnoticed; the address may then look unmapped.
#[inline(always)]
fn find_in_red_black_tree(
    kernel: &mut impl KernelMemory,
    layout: &Layout,
    mm: u64,
    address: u64,
) -> Result<u64, MappingError> {
    let word_at = |offset: u64| barrier_var(offset >> 3) & 31;
    let (start, end) = (word_at(layout.vma_start), word_at(layout.vma_end));
    // A node has its parent, right and left.
    let right = word_at(layout.vma_rb + 8);
    let left = word_at(layout.vma_rb + 16);
    let mut node = kernel
        .word(mm.wrapping_add(layout.mm_rb_root))
        .ok_or(MappingError::Unreadable)?;
    for _ in 0..MAX_RED_BLACK_DEPTH {
        if node == 0 {
            return Err(MappingError::NotMapped);
        }
        // The node is embedded in its VMA.
        let area = node.wrapping_sub(layout.vma_rb);
        if !kernel.load_node(area) {
            return Err(MappingError::Unreadable);
        }
        let is_below = address < kernel.node_word(start);
        if !is_below && address < kernel.node_word(end) {
            return Ok(area);
        }
        node = kernel.node_word(if is_below { left } else { right });
    }
    Err(MappingError::Changing)
}

/// The address of the `vm_area_struct` that the tree has for `address`.
#[inline(always)]
fn find_in_maple_tree(
    kernel: &mut impl KernelMemory,
    layout: &Layout,
    mm: u64,
    address: u64,
) -> Result<u64, MappingError> {
    let mut entry = kernel
        .word(mm + layout.mm_maple_root)
        .ok_or(MappingError::Unreadable)?;
    // A root that is not a node holds a single entry at index 0.
    if entry & 3 != 2 || entry < 4096 {
        return Err(MappingError::NotMapped);
    }
    let mut kind = 0;
    for _ in 0..MAX_MAPLE_DEPTH {
        kind = entry >> 3 & 15;
        let node = entry & !MAPLE_NODE_MASK;
        if !kernel.load_node(node) {
            return Err(MappingError::Unreadable);
        }
        // A dead node is its own parent.
        if kernel.node_word(0) & !MAPLE_NODE_MASK == node {
            return Err(MappingError::Changing);
        }
        let slots = match kind {
            // Parent, nine pivots, ten slots.
            MAPLE_ARANGE_64 => 10,
            // Parent, fifteen pivots, sixteen slots.
            MAPLE_LEAF_64 | MAPLE_RANGE_64 => 16,
            _ => return Err(MappingError::Unreadable),
        };
        let slot = barrier_var(slots) + (first_pivot_at_or_above(kernel, address) & 15);
        entry = kernel.node_word(barrier_var(slot) & 31);
        if kind == MAPLE_LEAF_64 {
            break;
        }
        if entry < 4096 {
            return Err(MappingError::Changing);
        }
    }
    if kind != MAPLE_LEAF_64 {
        return Err(MappingError::Unreadable);
    }
    match entry {
        0 => Err(MappingError::NotMapped),
        // An entry that a fork is still copying.
        _ if entry < 4096 || entry & 3 != 0 => Err(MappingError::Changing),
        _ => Ok(entry),
    }
}

/// Index of the node's first pivot at or above `address`, without a branch.
///
/// A node with fewer than fifteen pivots has its first slot after them: a kernel address, with the
/// top bit set. Unused pivots are stale, so counting stops at the first one not below `address`. The
/// tree's last pivot has the top bit set and is never below a user address.
#[inline(always)]
fn first_pivot_at_or_above(kernel: &impl KernelMemory, address: u64) -> u64 {
    let (mut below, mut index) = (1, 0);
    let mut next = 0;
    while next < MAX_PIVOTS {
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
            offset_delta: offset.wrapping_sub(start),
            file: inode,
            id: FileId::new(inode, 1, 1, 1),
            has_code,
        }
    }

    #[test]
    fn code_that_was_moved_to_huge_pages_is_still_the_files() {
        let gap = mapping(0x20_0000, 0x60_0000, 0, 0, true);
        let check = |below: Mapping, above: Mapping, offset: Option<u64>| {
            let found = file_behind_anonymous(&gap, &below, &above);
            let place = found.map(|rest| gap.start.wrapping_add(rest.offset_delta));
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
        // Its start or its end: data has another offset in the file.
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
