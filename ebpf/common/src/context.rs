//! What the sampled program says about the work of a thread: its goroutine, labels, trace and span.
//!
//! A sample of a process with such data ends with a [`Context`], followed by its labels. All of it is text of an
//! untrusted program: sizes and counts are bounded, and everything beyond is counted.

pub mod custom_labels;
pub mod go;
pub mod library;
pub mod otel;
#[cfg(test)]
mod tests;

/// Maximum number of labels of a sample.
pub const MAX_LABELS: u32 = 10;
/// Labels with a longer key are dropped.
pub const MAX_KEY_BYTES: u32 = 64;
/// Longer values are truncated.
pub const MAX_VALUE_BYTES: u32 = 128;
/// Maximum size of all labels of a sample, with their headers.
pub const MAX_LABEL_BYTES: usize = 1024;

/// Where the programs find the contexts of the processes of an executable. Those of libraries are in [`library`].
#[cfg_attr(feature = "host", derive(bytemuck::Pod, bytemuck::Zeroable))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct ContextLayout {
    pub go: go::Layout,
    /// See [`otel`].
    pub otel: Variable,
    /// See [`custom_labels`].
    pub custom_labels: Variable,
}

/// A thread-local pointer; 0 if the program has none.
#[cfg_attr(feature = "host", derive(bytemuck::Pod, bytemuck::Zeroable))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(transparent)]
pub struct Variable {
    /// From the thread pointer.
    pub offset: u64,
}

impl Variable {
    /// The value in a thread, if it is set.
    #[inline(always)]
    pub fn value(&self, thread_pointer: u64, memory: &mut impl ContextMemory) -> Option<u64> {
        if self.offset == 0 {
            return None;
        }
        let value = memory.word(thread_pointer.wrapping_add(self.offset))?;
        (value != 0).then_some(value)
    }
}

/// The parts of a context to read, as a set in [`Settings`](crate::settings::Settings).
pub mod part {
    pub const GOROUTINE: u32 = 1;
    pub const LABELS: u32 = 2;
    /// Trace and span.
    pub const LINK: u32 = 4;
}

/// The context of a sample, followed by its labels.
#[cfg_attr(feature = "host", derive(bytemuck::Pod, bytemuck::Zeroable))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct Context {
    /// 0 outside of goroutines.
    pub goroutine: u64,
    /// In network byte order; 0 without.
    pub trace_id: [u64; 2],
    pub span_id: u64,
}

/// Precedes the key and the value of a label, which are padded to words together. Without a key, the value is the attributes of a record
/// of [`otel`].
#[cfg_attr(feature = "host", derive(bytemuck::Pod, bytemuck::Zeroable))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct LabelHeader {
    pub key_bytes: u16,
    pub value_bytes: u16,
    pub unused: u32,
}

/// A label in the memory of the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct LabelText {
    pub key: u64,
    pub key_bytes: u64,
    pub value: u64,
    pub value_bytes: u64,
}

/// Why a label is missing or incomplete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// There are more than [`MAX_LABELS`], or no more room.
    TooMany,
    /// Its key or its value is too long.
    TooLong,
    /// Its memory could not be read.
    Unreadable,
}

/// Memory of the sampled process, and room for its labels.
pub trait ContextMemory {
    fn word(&mut self, address: u64) -> Option<u64>;
    /// Loads the next label, to be added by [`add_label`](Self::add_label), from two addresses: those of a key and a
    /// value, each with an address and a length.
    fn load_label(&mut self, key: u64, value: u64) -> bool;
    /// Swaps the address and the length in the key and the value.
    fn swap_label(&mut self);
    /// Adds the loaded label, unless it has no key.
    fn add_label(&mut self);
    /// How many labels were loaded and added. The verifier would follow each value of a variable.
    fn added(&self) -> u64;
    fn lose(&mut self, loss: Loss);
}

/// The size of a label, padded to words.
#[inline(always)]
pub const fn padded(key_bytes: u64, value_bytes: u64) -> u64 {
    (size_of::<LabelHeader>() as u64 + key_bytes + value_bytes + 7) & !7
}
