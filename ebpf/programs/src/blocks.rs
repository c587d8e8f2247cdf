//! Unwind table memory for kernels without arenas: blocks that the loader maps too and fills by plain
//! stores. It adds blocks on demand.

use aya_ebpf::btf_maps::{Array, ArrayOfMaps};
use aya_ebpf::macros::btf_map;
use profcol_ebpf_common::rule::EncodedRule;
use profcol_ebpf_common::settings::Settings;
use profcol_ebpf_common::table::{BLOCK_SHIFT, BLOCK_WORDS, Words};
use profcol_ebpf_common::walk::Tables;

const BPF_F_MMAPABLE: usize = 1 << 10;

type Block = Array<[u32; BLOCK_WORDS], 1, BPF_F_MMAPABLE>;

#[btf_map(name = "blocks")]
static BLOCKS: ArrayOfMaps<Block, 1> = ArrayOfMaps::new();

/// The blocks as one array of words.
#[derive(Clone, Copy)]
pub struct Arena {
    rules: u32,
}

impl Arena {
    #[inline(always)]
    pub fn new(settings: &Settings) -> Self {
        Self {
            rules: (settings.rules_offset / 4) as u32,
        }
    }
}

impl Words for Arena {
    /// Words of missing blocks read as zero.
    #[inline(always)]
    fn word(&self, index: u32) -> u32 {
        let Some(block) = BLOCKS.get_value_ptr_mut(index >> BLOCK_SHIFT, &0) else {
            return 0;
        };
        let place = profcol_ebpf_common::barrier_var(u64::from(index)) as usize & (BLOCK_WORDS - 1);
        // SAFETY: the mask bounds the index. The loader may be writing unpublished words.
        unsafe { block.cast::<u32>().add(place).read_volatile() }
    }
}

impl Tables for Arena {
    #[inline(always)]
    fn rule(&self, index: u32) -> EncodedRule {
        let at = self.rules.wrapping_add(index.wrapping_mul(2));
        EncodedRule(u64::from(self.word(at)) | u64::from(self.word(at.wrapping_add(1))) << 32)
    }
}
