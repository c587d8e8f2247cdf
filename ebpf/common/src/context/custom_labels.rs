//! Labels of a thread in version 1 of Polar Signals' custom labels: the thread-local variable
//! `custom_labels_current_set` points to a set.

use super::{ContextMemory, Loss, MAX_LABELS};

pub const SYMBOL: &str = "custom_labels_current_set";
pub const VERSION_SYMBOL: &str = "custom_labels_abi_version";
pub const VERSION: u32 = 1;

/// A string is a length and an address, a label two of them, a set the address and the number of its labels.
const STRING: u64 = 16;
const COUNT: u64 = 8;

/// Adds the labels of a set.
#[inline(always)]
pub fn add(set: u64, memory: &mut impl ContextMemory) {
    let Some(first) = memory.word(set) else {
        return memory.lose(Loss::Unreadable);
    };
    let Some(count) = memory.word(set.wrapping_add(COUNT)) else {
        return memory.lose(Loss::Unreadable);
    };
    for index in 0..u64::from(MAX_LABELS) {
        if index >= count {
            return;
        }
        let key = first.wrapping_add(index * 2 * STRING);
        if !memory.load_label(key, key.wrapping_add(STRING)) {
            return memory.lose(Loss::Unreadable);
        }
        memory.swap_label();
        memory.add_label();
    }
    if count > u64::from(MAX_LABELS) {
        memory.lose(Loss::TooMany);
    }
}
