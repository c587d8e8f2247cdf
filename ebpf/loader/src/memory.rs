//! The table memory: words that the programs read while this process writes them.
//!
//! On kernels with arenas it is one arena, whose pages the kernel allocates on first touch. On others it is a
//! map of blocks, each a map of its own. The blocks are mapped next to each other in one address range and
//! created on demand.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::AtomicU32;

use aya::maps::{ArrayOfMaps, MapData, MapError};
use aya_obj::generated::bpf_map_type::BPF_MAP_TYPE_ARRAY;
use profcol_ebpf_common::table::{BLOCK_SHIFT, BLOCK_WORDS};

use crate::sys::Mapped;

const BLOCK_BYTES: usize = BLOCK_WORDS * 4;
const BPF_F_MMAPABLE: u32 = 1 << 10;

pub struct Memory {
    mapped: Mapped,
    blocks: Option<Blocks>,
}

struct Blocks {
    map: ArrayOfMaps<MapData>,
    is_there: Vec<bool>,
}

impl Memory {
    pub fn of_arena(file: BorrowedFd<'_>, bytes: usize) -> io::Result<Self> {
        Ok(Self {
            mapped: Mapped::shared(file, bytes)?,
            blocks: None,
        })
    }

    pub fn of_blocks(map: ArrayOfMaps<MapData>) -> io::Result<Self> {
        let count = map.len() as usize;
        Ok(Self {
            mapped: Mapped::reserved(count * BLOCK_BYTES)?,
            blocks: Some(Blocks {
                map,
                is_there: vec![false; count],
            }),
        })
    }

    /// The number of blocks for this many bytes.
    pub fn blocks(bytes: u64) -> u32 {
        u32::try_from(bytes.div_ceil(BLOCK_BYTES as u64)).unwrap_or(u32::MAX)
    }

    /// The arena's address in the programs.
    pub fn address(&self) -> u64 {
        self.mapped.address()
    }

    pub fn words(&self) -> u32 {
        u32::try_from(self.mapped.len() / 4).unwrap_or(u32::MAX)
    }

    /// Makes the words from `start` on readable for the programs.
    pub fn ensure_mapped(&mut self, start: u32, words: u32) -> Result<(), MapError> {
        let Some(blocks) = &mut self.blocks else {
            return Ok(());
        };
        let last = start.saturating_add(words.saturating_sub(1)) >> BLOCK_SHIFT;
        for block in start >> BLOCK_SHIFT..=last {
            if blocks.is_there.get(block as usize) == Some(&false) {
                blocks.add(&self.mapped, block)?;
            }
        }
        Ok(())
    }

    /// Unmapped words are private to this process.
    pub fn word(&self, index: u32) -> &AtomicU32 {
        self.mapped.word(index as usize)
    }
}

impl Blocks {
    fn add(&mut self, mapped: &Mapped, block: u32) -> Result<(), MapError> {
        let map = aya_obj::Map::new_from_params(
            BPF_MAP_TYPE_ARRAY as u32,
            4,
            BLOCK_BYTES as u32,
            1,
            BPF_F_MMAPABLE,
        );
        let data = MapData::create(map, "block", None)?;
        // The kernel keeps the block while it is mapped or in the map.
        mapped
            .replace(block as usize * BLOCK_BYTES, data.fd().as_fd(), BLOCK_BYTES)
            .map_err(MapError::IoError)?;
        self.map.set(block, &data, 0)?;
        if let Some(there) = self.is_there.get_mut(block as usize) {
            *there = true;
        }
        Ok(())
    }
}
