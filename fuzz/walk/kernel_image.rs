//! The kernel memory of a process: its mappings in a maple tree, and the files behind them.

use profcol_ebpf_common::layout::Layout;

use crate::process::{File, Mapping};

/// Struct offsets: not those of any kernel, but with the same member sizes.
pub const LAYOUT: Layout = {
    // SAFETY: all fields are integers.
    let mut layout: Layout = unsafe { std::mem::zeroed() };
    layout.mm_maple_root = 0x40;
    layout.mm_vdso = 0x50;
    // The same object also serves as task.
    layout.task_thread_pointer = 0x70;
    layout.mm_seq = 0x5c;
    layout.vma_start = 0x00;
    layout.vma_end = 0x08;
    layout.vma_mm = 0x10;
    layout.vma_flags = 0x20;
    layout.vma_pgoff = 0x78;
    layout.vma_file = 0xf8;
    layout.file_inode = 0x20;
    layout.inode_number = 0x40;
    layout.inode_super = 0x28;
    layout.inode_generation = 0x74;
    layout.inode_mtime_sec = 0x58;
    layout.inode_mtime_nsec = 0x64;
    layout.super_dev = 0x10;
    layout
};

const BASE: u64 = 0xffff_8880_0001_0000;
/// The size of each object, which also satisfies the alignment of the tree's nodes.
const OBJECT: usize = 256;
pub const MM: u64 = BASE;
const DEVICE: u32 = 0x0800_0002;

const VM_EXEC: u64 = 4;

/// Node types of the tree, and their slot counts.
const MAPLE_LEAF_64: (u64, usize) = (1, 16);
const INNER: (u64, usize) = (3, 10);

/// Objects of [`OBJECT`] bytes starting at [`BASE`].
#[derive(Default)]
pub struct KernelImage {
    bytes: Vec<u8>,
}

/// Fill level of the tree's nodes: fewer entries make the tree deeper.
#[derive(Clone, Copy, Default)]
pub struct Shape {
    pub of_leaf: usize,
    pub of_inner: usize,
    /// The value after the last pivot and slot of a node.
    pub stale: u64,
}

impl KernelImage {
    pub fn new(mappings: &[Mapping], files: &[File], changes: u32, shape: Shape) -> Self {
        let mut image = Self::default();
        let mm = image.add();
        let superblock = image.add();
        image.set(superblock + LAYOUT.super_dev, u64::from(DEVICE));
        let opened: Vec<u64> = files
            .iter()
            .map(|file| image.add_file(file, superblock))
            .collect();
        // Pairs of last address and entry.
        let mut ranges: Vec<(u64, u64)> = Vec::new();
        let mut free_from = 0;
        for mapping in mappings {
            if mapping.start > free_from {
                ranges.push((mapping.start - 1, 0));
            }
            ranges.push((mapping.end - 1, image.add_mapping(mapping, &opened)));
            free_from = mapping.end;
            if mapping.is_vdso {
                image.set(mm + LAYOUT.mm_vdso, mapping.start);
            }
        }
        ranges.push((u64::MAX, 0));
        let root = image.add_tree(ranges, shape);
        image.set(mm + LAYOUT.mm_maple_root, root);
        image.bytes[LAYOUT.mm_seq as usize..][..4].copy_from_slice(&changes.to_le_bytes());
        image
    }

    fn add_file(&mut self, file: &File, superblock: u64) -> u64 {
        let opened = self.add();
        let inode = self.add();
        self.set(opened + LAYOUT.file_inode, inode);
        self.set(inode + LAYOUT.inode_number, file.id.inode);
        self.set(inode + LAYOUT.inode_super, superblock);
        self.set(inode + LAYOUT.inode_mtime_sec, 1);
        self.set(inode + LAYOUT.inode_mtime_nsec, 2);
        self.set(inode + LAYOUT.inode_generation, 3);
        opened
    }

    fn add_mapping(&mut self, mapping: &Mapping, opened: &[u64]) -> u64 {
        let area = self.add();
        let flags = if mapping.has_code { VM_EXEC } else { 0 };
        let page = if mapping.is_vdso { 0 } else { mapping.page };
        self.set(area + LAYOUT.vma_start, mapping.start);
        self.set(area + LAYOUT.vma_end, mapping.end);
        self.set(area + LAYOUT.vma_mm, MM);
        self.set(area + LAYOUT.vma_flags, flags | 1);
        self.set(area + LAYOUT.vma_pgoff, page);
        let file = mapping.file.filter(|_| !mapping.is_vdso);
        self.set(
            area + LAYOUT.vma_file,
            file.map_or(0, |number| opened[number]),
        );
        area
    }

    /// Returns the entry for the tree's root.
    fn add_tree(&mut self, mut ranges: Vec<(u64, u64)>, shape: Shape) -> u64 {
        let mut of_node = shape.of_leaf.clamp(2, MAPLE_LEAF_64.1);
        let (mut kind, mut slots) = MAPLE_LEAF_64;
        loop {
            let is_root = ranges.len() <= of_node;
            let nodes = ranges.chunks(of_node).map(|ranges| {
                let node = self.add_node(ranges, slots, shape.stale);
                let last = ranges.last().map_or(u64::MAX, |&(last, _)| last);
                (last, node | kind << 3 | if is_root { 2 } else { 4 })
            });
            ranges = nodes.collect();
            if let [(_, root)] = ranges[..] {
                return root;
            }
            (kind, slots) = INNER;
            // The kernel fills its nodes more: with two entries each, the tree would be deeper than any of the
            // kernel's.
            of_node = shape.of_inner.clamp(3, INNER.1);
        }
    }

    fn add_node(&mut self, ranges: &[(u64, u64)], slots: usize, stale: u64) -> u64 {
        let node = self.add();
        let place = |index: usize| node + 8 * index as u64;
        // The parent must be a different node.
        self.set(node, BASE | 1);
        for index in 0..slots {
            let (last, entry) = ranges.get(index).copied().unwrap_or((stale, stale));
            if index + 1 < slots {
                self.set(place(1 + index), last);
            }
            self.set(place(slots + index), entry);
        }
        node
    }

    fn add(&mut self) -> u64 {
        let at = BASE + self.bytes.len() as u64;
        self.bytes.resize(self.bytes.len() + OBJECT, 0);
        at
    }

    pub fn set(&mut self, address: u64, value: u64) {
        let at = (address - BASE) as usize;
        // A 32-bit member may be at the end.
        let length = (self.bytes.len() - at).min(8);
        self.bytes[at..at + length].copy_from_slice(&value.to_le_bytes()[..length]);
    }

    /// Overwrites an arbitrary word.
    pub fn damage(&mut self, place: usize, value: u64) {
        let words = self.bytes.len() / 8;
        self.set(BASE + (place % words * 8) as u64, value);
    }

    pub fn read(&self, address: u64, into: &mut [u8]) -> bool {
        let from = usize::try_from(address.wrapping_sub(BASE)).unwrap_or(usize::MAX);
        let end = from.saturating_add(into.len());
        self.bytes
            .get(from..end)
            .map(|bytes| into.copy_from_slice(bytes))
            .is_some()
    }
}

/// The identity of a file in this image.
pub fn identity(inode: u64) -> profcol_ebpf_common::file::FileId {
    profcol_ebpf_common::file::FileId::new(inode, DEVICE, 3, 1_000_000_002)
}
