//! Unwind table memory: an arena that the loader maps too and fills by plain stores.

use core::arch::asm;
use core::cell::UnsafeCell;

use profcol_ebpf_common::rule::EncodedRule;
use profcol_ebpf_common::settings::Settings;
use profcol_ebpf_common::table::Words;
use profcol_ebpf_common::walk::Tables;

/// A legacy map definition; aya has no BTF definition for arenas yet.
#[repr(C)]
struct Definition {
    kind: u32,
    key_size: u32,
    value_size: u32,
    max_entries: u32,
    flags: u32,
    id: u32,
    pinning: u32,
}

/// A cell, so that it ends up in the section of the other maps, which has to be writable for the kernel
/// to accept the object's BTF.
#[repr(transparent)]
struct Cell(UnsafeCell<Definition>);

// SAFETY: only the loader reads it.
unsafe impl Sync for Cell {}

const BPF_MAP_TYPE_ARENA: u32 = 33;
const BPF_F_MMAPABLE: u32 = 1 << 10;

#[unsafe(link_section = "maps")]
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals, reason = "the name of the map")]
static arena: Cell = Cell(UnsafeCell::new(Definition {
    kind: BPF_MAP_TYPE_ARENA,
    key_size: 0,
    value_size: 0,
    max_entries: 16384,
    flags: BPF_F_MMAPABLE,
    id: 0,
    pinning: 0,
}));

/// The arena, by the address at which the loader mapped it.
#[derive(Clone, Copy)]
pub struct Arena {
    base: u64,
    rules: u64,
}

impl Arena {
    #[inline(always)]
    pub fn new(settings: &Settings) -> Self {
        // The verifier allows access to an arena only if the program references its map.
        // SAFETY: the template is empty.
        unsafe { asm!("", in("r5") &arena, options(nostack)) };
        Self {
            base: settings.arena,
            rules: settings.arena + settings.rules_offset,
        }
    }

    #[inline(always)]
    fn load<T: Copy>(address: u64) -> T {
        let mut pointer = address;
        // SAFETY: casts a user-space arena address to a kernel address; a load outside of the arena
        // reads zero.
        unsafe {
            asm!("{0} = addr_space_cast({0}, 0, 1)", inout(reg) pointer, options(pure, nomem, nostack));
            (pointer as *const T).read_volatile()
        }
    }
}

impl Words for Arena {
    #[inline(always)]
    fn word(&self, index: u32) -> u32 {
        Self::load(self.base + u64::from(index) * 4)
    }
}

impl Tables for Arena {
    #[inline(always)]
    fn rule(&self, index: u32) -> EncodedRule {
        EncodedRule(Self::load(self.rules + u64::from(index) * 8))
    }
}
