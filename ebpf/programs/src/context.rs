//! Adds the context of the thread to the sample.

use aya_ebpf::helpers::generated::{bpf_get_current_task, bpf_probe_read_user};
use profcol_ebpf_common::context::library::{MAX_VARIABLES, kind};
use profcol_ebpf_common::context::otel::{self, MAX_ATTRIBUTE_BYTES};
use profcol_ebpf_common::context::{
    Context, ContextMemory, LabelHeader, Loss, MAX_KEY_BYTES, MAX_LABEL_BYTES, MAX_VALUE_BYTES,
    custom_labels, go, padded, part,
};
use profcol_ebpf_common::reason::EndReason;
use profcol_ebpf_common::record::{ProcessKey, process_state};
use profcol_ebpf_common::sample_counts::count_buffer;
use profcol_ebpf_common::walk::{Registers, Walk};
use profcol_ebpf_common::{barrier_var, counter};

use crate::kernel;
use crate::maps::{self, EXECUTABLE_CONTEXTS, PROCESS_CONTEXTS};
use crate::scratch::{CONTEXT_WORDS, FRAME_CAPACITY, Scratch, ScratchHandle};
use crate::unwind::CONTINUE;

const HEADER: usize = size_of::<LabelHeader>();

/// [`HAS_CONTEXTS`](process_state::HAS_CONTEXTS) if the threads of this executable or process may have contexts.
#[inline(always)]
pub fn flag(process: &ProcessKey, executable: u32) -> u32 {
    // SAFETY: only its presence counts.
    let has_contexts = unsafe { EXECUTABLE_CONTEXTS.get(&executable) }.is_some()
        // SAFETY: as above.
        || unsafe { PROCESS_CONTEXTS.get(process) }.is_some();
    if has_contexts {
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
    // SAFETY: the helper has no preconditions.
    let task = unsafe { bpf_get_current_task() };
    let at = task.wrapping_add(settings.layout.task_thread_pointer);
    let Some(thread_pointer) = kernel::word(at) else {
        return 0;
    };
    scratch.thread_context = Context::default();
    scratch.labels_end = 0;
    scratch.labels_added = 0;
    // SAFETY: plain numbers. The loader may replace them concurrently; each read is checked anyway.
    if let Some(layout) = unsafe { EXECUTABLE_CONTEXTS.get(&executable) } {
        if layout.go.is_go()
            && let Some(goroutine) = layout.go.goroutine(thread_pointer, scratch)
        {
            if settings.context_parts & part::GOROUTINE != 0 {
                scratch.thread_context.goroutine = goroutine.id;
            }
            if settings.context_parts & part::LABELS != 0 && goroutine.labels != 0 {
                if layout.go.form == go::labels::SLICE {
                    add_slice(scratch.handle(), goroutine.labels);
                } else {
                    add_map(scratch.handle(), goroutine.labels);
                }
            }
        }
        if let Some(record) = layout.otel.value(thread_pointer, scratch) {
            add_record(scratch.handle(), record);
        }
        if let Some(set) = layout.custom_labels.value(thread_pointer, scratch) {
            add_custom_labels(scratch.handle(), set);
        }
    }
    for index in 0..MAX_VARIABLES as u32 {
        if read_library_variable(scratch.handle(), index, thread_pointer) == 0 {
            break;
        }
    }
    if scratch.labels_end == 0 && scratch.thread_context == Context::default() {
        return 0;
    }
    let context = scratch.thread_context;
    // SAFETY: the start is bounded, and a context fits behind it.
    unsafe { start(scratch).cast::<Context>().write(context) };
    scratch.sample.context_words = (size_of::<Context>() as u64 + scratch.labels_end) as u32 / 8;
    if settings.count_buffer != count_buffer::NONE {
        hash_context(scratch.handle());
    }
    0
}

/// Reads what a variable of a library points to. Returns 0 if there are no more.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn read_library_variable(
    handle: ScratchHandle,
    index: u32,
    thread_pointer: u64,
) -> u32 {
    let Some(scratch) = Scratch::from_handle(handle) else {
        return 0;
    };
    // SAFETY: as above.
    let Some(contexts) = (unsafe { PROCESS_CONTEXTS.get(&scratch.sample.process) }) else {
        return 0;
    };
    let index = barrier_var(u64::from(index)) as usize & (MAX_VARIABLES - 1);
    // SAFETY: the mask bounds the index.
    let variable = unsafe { &*contexts.variables.as_ptr().add(index) };
    if variable.kind == kind::NONE {
        return 0;
    }
    match variable.value(&contexts.table, thread_pointer, scratch) {
        Ok(Some(record)) if variable.kind == kind::OTEL => {
            add_record(scratch.handle(), record);
        }
        Ok(Some(set)) => {
            add_custom_labels(scratch.handle(), set);
        }
        Ok(None) => {}
        Err(loss) => scratch.lose(loss),
    }
    1
}

/// Adds the trace and the span of a record of OpenTelemetry, unless another one had them, and its attributes. The verifier processes this
/// and the next ones on their own.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn add_record(handle: ScratchHandle, record: u64) -> u32 {
    let (Some(scratch), Some(settings)) = (Scratch::from_handle(handle), maps::settings()) else {
        return 0;
    };
    let Some(record) = otel::Record::read(record, scratch) else {
        return 0;
    };
    let has_link = scratch.thread_context.span_id != 0;
    if settings.context_parts & part::LINK != 0 && !has_link && record.has_link() {
        scratch.thread_context.trace_id = record.trace_id;
        scratch.thread_context.span_id = record.span_id;
    }
    if settings.context_parts & part::LABELS != 0 && record.attribute_bytes != 0 {
        append_attributes(scratch.handle(), record.attributes, record.attribute_bytes);
    }
    0
}

/// Adds the labels of a goroutine from a slice.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn add_slice(handle: ScratchHandle, labels: u64) -> u32 {
    if let Some(scratch) = Scratch::from_handle(handle) {
        go::add_slice(labels, scratch);
    }
    0
}

/// The same from a map.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn add_map(handle: ScratchHandle, labels: u64) -> u32 {
    if let Some(scratch) = Scratch::from_handle(handle) {
        go::add_map(labels, scratch);
    }
    0
}

/// Adds a set of custom labels.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn add_custom_labels(handle: ScratchHandle, set: u64) -> u32 {
    let (Some(scratch), Some(settings)) = (Scratch::from_handle(handle), maps::settings()) else {
        return 0;
    };
    if settings.context_parts & part::LABELS != 0 {
        custom_labels::add(set, scratch);
    }
    0
}

/// Continues the walk on the stack of the goroutine, if it ended on the system stack. Functions that switch there
/// without a link back, such as `morestack`, leave the place in the goroutine. Returns `CONTINUE` or an end reason.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn leave_system_stack(handle: ScratchHandle, executable: u32) -> u32 {
    let (Some(scratch), Some(settings)) = (Scratch::from_handle(handle), maps::settings()) else {
        return EndReason::NoRegisters as u32;
    };
    // SAFETY: as above.
    let Some(layout) = (unsafe { EXECUTABLE_CONTEXTS.get(&executable) }) else {
        return EndReason::Unsupported as u32;
    };
    // SAFETY: the helper has no preconditions.
    let task = unsafe { bpf_get_current_task() };
    let at = task.wrapping_add(settings.layout.task_thread_pointer);
    let thread_pointer = kernel::word(at).unwrap_or(0);
    if !layout.go.is_go() || thread_pointer == 0 {
        return EndReason::Unsupported as u32;
    }
    match layout.go.switch(thread_pointer, scratch) {
        Some(go::Switch::Goroutine { pc, sp, fp }) => {
            scratch.walk = Walk {
                registers: Registers {
                    ip: pc,
                    sp,
                    fp,
                    link: 0,
                },
                exact: 0,
                sp_is_bound: 0,
            };
            CONTINUE
        }
        Some(go::Switch::Scheduler) => EndReason::Complete as u32,
        None => EndReason::Unsupported as u32,
    }
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
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn hash_context(handle: ScratchHandle) -> u32 {
    let Some(scratch) = Scratch::from_handle(handle) else {
        return 0;
    };
    let words = scratch.sample.context_words as usize;
    let context: *const u64 = start(scratch).cast();
    for index in 0..CONTEXT_WORDS {
        if index >= words {
            break;
        }
        // SAFETY: the context has that many words.
        scratch.sample.stack.add(unsafe { *context.add(index) });
    }
    0
}

/// Appends the loaded label.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn append_label(handle: ScratchHandle) -> u32 {
    let Some(scratch) = Scratch::from_handle(handle) else {
        return 0;
    };
    scratch.labels_added += 1;
    let label = scratch.label;
    if label.key == 0 || label.key_bytes == 0 {
        return 0;
    }
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

/// Appends the attributes of a record of OpenTelemetry, as a label without a key.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn append_attributes(handle: ScratchHandle, address: u64, bytes: u64) -> u32 {
    let Some(scratch) = Scratch::from_handle(handle) else {
        return 0;
    };
    let mut bytes = bytes;
    if bytes > u64::from(MAX_ATTRIBUTE_BYTES) {
        bytes = u64::from(MAX_ATTRIBUTE_BYTES);
        scratch.lose(Loss::TooLong);
    }
    let end = barrier_var(scratch.labels_end);
    let size = padded(0, bytes);
    if end + size > MAX_LABEL_BYTES as u64 {
        scratch.lose(Loss::TooMany);
        return 0;
    }
    let bytes = bounded(bytes, MAX_ATTRIBUTE_BYTES);
    let end = bounded(end, MAX_LABEL_BYTES as u32) as usize;
    // SAFETY: the offsets are bounded; behind the frames there is room for a context and one more record.
    let at = unsafe { start(scratch).add(size_of::<Context>()).add(end) };
    let header = LabelHeader {
        key_bytes: 0,
        value_bytes: bytes as u16,
        unused: 0,
    };
    // SAFETY: as above.
    let failed = unsafe {
        // Clears the padding, which is hashed.
        let last = bounded(size - 8, MAX_ATTRIBUTE_BYTES) as usize & !7;
        at.add(last).cast::<u64>().write(0);
        at.cast::<LabelHeader>().write(header);
        bpf_probe_read_user(at.add(HEADER).cast(), bytes as u32, address as *const _) != 0
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
    fn swap_label(&mut self) {
        let label = &mut self.label;
        (label.key, label.key_bytes) = (label.key_bytes, label.key);
        (label.value, label.value_bytes) = (label.value_bytes, label.value);
    }

    #[inline(always)]
    fn add_label(&mut self) {
        append_label(self.handle());
    }

    #[inline(always)]
    fn added(&self) -> u64 {
        self.labels_added
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
