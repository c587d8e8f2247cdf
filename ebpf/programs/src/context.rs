//! Adds the context of the thread to the sample.

use aya_ebpf::helpers::generated::{bpf_get_current_task, bpf_probe_read_user};
use profcol_ebpf_common::context::{
    Context, ContextMemory, LabelHeader, Loss, MAX_KEY_BYTES, MAX_LABEL_BYTES, MAX_VALUE_BYTES, go,
    padded, part,
};
use profcol_ebpf_common::record::process_state;
use profcol_ebpf_common::sample_counts::count_buffer;
use profcol_ebpf_common::{barrier_var, counter};

use crate::kernel;
use crate::maps::{self, EXECUTABLE_CONTEXTS};
use crate::scratch::{CONTEXT_WORDS, FRAME_CAPACITY, Scratch, ScratchHandle};

const HEADER: usize = size_of::<LabelHeader>();

/// [`HAS_CONTEXTS`](process_state::HAS_CONTEXTS) if the threads of this executable may have contexts.
#[inline(always)]
pub fn flag(executable: u32) -> u32 {
    // SAFETY: only its presence counts.
    if unsafe { EXECUTABLE_CONTEXTS.get(&executable) }.is_some() {
        process_state::HAS_CONTEXTS
    } else {
        0
    }
}

/// Reads the context of the current thread.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn read_context(handle: ScratchHandle, executable: u32) -> u32 {
    let (Some(scratch), Some(settings)) = (Scratch::from_handle(handle), maps::settings()) else {
        return 0;
    };
    // SAFETY: plain numbers. The loader may replace them concurrently; each read is checked anyway.
    let Some(layout) = (unsafe { EXECUTABLE_CONTEXTS.get(&executable) }) else {
        return 0;
    };
    // SAFETY: the helper has no preconditions.
    let task = unsafe { bpf_get_current_task() };
    let at = task.wrapping_add(settings.layout.task_thread_pointer);
    let Some(thread_pointer) = kernel::word(at) else {
        return 0;
    };
    let mut context = Context::default();
    scratch.labels_end = 0;
    if layout.go.is_go()
        && let Some(goroutine) = layout.go.goroutine(thread_pointer, scratch)
    {
        if settings.context_parts & part::GOROUTINE != 0 {
            context.goroutine = goroutine.id;
        }
        if settings.context_parts & part::LABELS != 0 && goroutine.labels != 0 {
            if layout.go.form == go::labels::SLICE {
                layout.go.add_slice(goroutine.labels, scratch);
            } else {
                layout.go.add_map(goroutine.labels, scratch);
            }
        }
    }
    if scratch.labels_end == 0 && context == Context::default() {
        return 0;
    }
    // SAFETY: the start is bounded, and a context fits behind it.
    unsafe { start(scratch).cast::<Context>().write(context) };
    scratch.sample.context_words = (size_of::<Context>() as u64 + scratch.labels_end) as u32 / 8;
    if settings.count_buffer != count_buffer::NONE {
        hash(scratch);
    }
    0
}

/// The end of the frames.
#[inline(always)]
fn start(scratch: &mut Scratch) -> *mut u8 {
    let slot = u64::from(scratch.sample.kernel_frames + scratch.sample.user_words);
    let slot = barrier_var(slot) as usize & (FRAME_CAPACITY - 1);
    // SAFETY: the mask bounds the index.
    unsafe { scratch.frames.as_mut_ptr().add(slot).cast() }
}

/// Samples with different contexts are counted separately.
#[inline(always)]
fn hash(scratch: &mut Scratch) {
    let words = scratch.sample.context_words as usize;
    let context: *const u64 = start(scratch).cast();
    for index in 0..CONTEXT_WORDS {
        if index >= words {
            break;
        }
        // SAFETY: the context has that many words.
        scratch.sample.stack.add(unsafe { *context.add(index) });
    }
}

/// Appends the loaded label.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn append_label(handle: ScratchHandle) -> u32 {
    let Some(scratch) = Scratch::from_handle(handle) else {
        return 0;
    };
    let label = scratch.label;
    if label.key_bytes > u64::from(MAX_KEY_BYTES) {
        scratch.lose(Loss::TooLong);
        return 0;
    }
    let mut value_bytes = label.value_bytes;
    if value_bytes > u64::from(MAX_VALUE_BYTES) {
        value_bytes = u64::from(MAX_VALUE_BYTES);
        scratch.lose(Loss::TooLong);
    }
    let end = barrier_var(scratch.labels_end);
    let size = padded(label.key_bytes, value_bytes);
    if end + size > MAX_LABEL_BYTES as u64 {
        scratch.lose(Loss::TooMany);
        return 0;
    }
    let key_bytes = bounded(label.key_bytes, MAX_KEY_BYTES);
    let value_bytes = bounded(value_bytes, MAX_VALUE_BYTES);
    let end = bounded(end, MAX_LABEL_BYTES as u32) as usize;
    // SAFETY: the offsets are bounded; behind the frames there is room for a context and one more label.
    let at = unsafe { start(scratch).add(size_of::<Context>()).add(end) };
    let header = LabelHeader {
        key_bytes: key_bytes as u16,
        value_bytes: value_bytes as u16,
        unused: 0,
    };
    // SAFETY: as above.
    let failed = unsafe {
        // Clears the padding, which is hashed.
        let last = bounded(size - 8, MAX_KEY_BYTES + MAX_VALUE_BYTES) as usize & !7;
        at.add(last).cast::<u64>().write(0);
        at.cast::<LabelHeader>().write(header);
        let text = at.add(HEADER);
        bpf_probe_read_user(text.cast(), key_bytes as u32, label.key as *const _) != 0
            || bpf_probe_read_user(
                text.add(key_bytes as usize).cast(),
                value_bytes as u32,
                label.value as *const _,
            ) != 0
    };
    if failed {
        scratch.lose(Loss::Unreadable);
        return 0;
    }
    scratch.labels_end = end as u64 + size;
    0
}

/// A bound that the compiler does not remove.
#[inline(always)]
fn bounded(value: u64, most: u32) -> u64 {
    let value = barrier_var(value);
    if value > u64::from(most) {
        u64::from(most)
    } else {
        value
    }
}

impl ContextMemory for Scratch {
    #[inline(always)]
    fn word(&mut self, address: u64) -> Option<u64> {
        read(address, &raw mut self.interpreter_word).then_some(self.interpreter_word)
    }

    #[inline(always)]
    fn load_label(&mut self, key: u64, value: u64) -> bool {
        read(key, (&raw mut self.label).cast::<[u64; 2]>())
            && read(value, (&raw mut self.label.value).cast::<[u64; 2]>())
    }

    #[inline(always)]
    fn add_label(&mut self) {
        append_label(self.handle());
    }

    #[inline(always)]
    fn lose(&mut self, loss: Loss) {
        maps::count(match loss {
            Loss::TooMany => counter::TOO_MANY_LABELS,
            Loss::TooLong => counter::TOO_LONG_LABELS,
            Loss::Unreadable => counter::UNREADABLE_LABELS,
        });
    }
}

#[inline(always)]
fn read<T>(address: u64, into: *mut T) -> bool {
    // SAFETY: the helper checks the address; the destination is valid.
    unsafe { bpf_probe_read_user(into.cast(), size_of::<T>() as u32, address as *const _) == 0 }
}
