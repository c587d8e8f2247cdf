//! The programs' maps, as far as the walk uses them.

use std::cell::RefCell;

use profcol_ebpf_common::settings::{REMEMBERED_SHIFT, Settings};

use crate::kernel_image::LAYOUT;
use crate::remembered::Remembered;

/// For one CPU.
const PLACES: usize = 1 << REMEMBERED_SHIFT;

pub struct Places;

pub static REMEMBERED: Places = Places;

thread_local! {
    static MEMORY: RefCell<Vec<Remembered>> = const { RefCell::new(Vec::new()) };
}

impl Places {
    pub fn get_ptr_mut(&self, index: u32) -> Option<*mut Remembered> {
        MEMORY.with_borrow_mut(|places| places.get_mut(index as usize).map(|place| &raw mut *place))
    }
}

pub fn forget() {
    MEMORY.with_borrow_mut(|places| {
        places.clear();
        places.resize_with(PLACES, nothing);
    });
}

/// As the kernel makes a map.
fn nothing() -> Remembered {
    // SAFETY: plain numbers.
    unsafe { std::mem::zeroed() }
}

pub fn settings() -> Option<&'static Settings> {
    static SETTINGS: Settings = Settings {
        layout: LAYOUT,
        arena: 0,
        rules_at: 0,
        max_frames: 0,
        with_arguments: 0,
        namespace_inode: 0,
        namespace_device: 0,
        turn: 0,
        unused: 0,
    };
    Some(&SETTINGS)
}
