//! Samples the current task on each perf event.

use aya_ebpf::EbpfContext;
use aya_ebpf::bindings::BPF_NOEXIST;
use aya_ebpf::helpers::generated::{
    bpf_get_current_comm, bpf_get_current_task, bpf_get_smp_processor_id, bpf_get_stack,
    bpf_ktime_get_boot_ns, bpf_ringbuf_output,
};
use aya_ebpf::macros::perf_event;
use aya_ebpf::programs::PerfEventContext;
use profcol_ebpf_common::file::file_number;
use profcol_ebpf_common::layout::Layout;
use profcol_ebpf_common::mappings;
use profcol_ebpf_common::reason::EndReason;
use profcol_ebpf_common::record::{
    self, MAX_KERNEL_FRAMES, MAX_USER_FRAMES, MAX_USER_WORDS, ProcessKey, Sample, kind,
    process_state,
};
use profcol_ebpf_common::settings::Settings;
use profcol_ebpf_common::walk::{CodeMapping, Walk};
use profcol_ebpf_common::{barrier_var, counter};

use crate::files::{self, MappedFile};
use crate::interpreter::stage;
use crate::kernel::{self, Kernel};
use crate::maps::{self, PROCESSES, RECORDS};
use crate::scratch::{CONTEXT_WORDS, Scratch};
use crate::unwind::{self, CONTINUE, FRAMES_PER_CALL, NO_WINDOW, NO_WINDOW_BYTES};
use crate::{
    context as thread_context, frame_cache, names, process, registers, sample_counts, task,
};

/// The loader polls the ring: a wakeup would cost more than the sample.
const BPF_RB_NO_WAKEUP: u64 = 1;
const BPF_RB_FORCE_WAKEUP: u64 = 2;

/// A native frame of an interpreter needs steps for the frames that it runs.
const MAX_STEPS: u32 = MAX_USER_FRAMES as u32 * 2;

/// A process younger than this, in nanoseconds, may exit before the ring is polled.
const YOUNG: u64 = 1 << 30;

const OVERLAYFS_SUPER_MAGIC: u64 = 0x794c_7630;

#[perf_event]
pub fn sample(context: PerfEventContext) -> u32 {
    let (Some(settings), Some(scratch)) = (maps::settings(), maps::scratch()) else {
        return 0;
    };
    let Some(ids) = process::ids() else {
        return 0;
    };
    if ids >> 32 == 0 {
        return 0;
    }
    // SAFETY: the helper has no preconditions.
    let task = unsafe { bpf_get_current_task() };
    fill_header(scratch, settings, task, ids);
    scratch.mm = kernel::word(task + settings.layout.task_mm).unwrap_or(0);
    scratch.epoch = frame_cache::epoch(&settings.layout, scratch.mm, &scratch.sample);
    let state = process::process_state(scratch.epoch, &scratch.sample);
    if state & process_state::EXCLUDED != 0 {
        maps::count(counter::EXCLUDED);
        return 0;
    }
    maps::count(counter::SAMPLES);
    scratch.sample.kernel_frames = kernel_stack(&context, scratch);
    scratch.sample.user_words = 0;
    scratch.depth = 0;
    scratch.needs_names = 0;
    scratch.python_file = 0;
    scratch.php_file = 0;
    scratch.perl_file = 0;
    scratch.luajit_file = 0;
    scratch.ruby_file = 0;
    scratch.ruby_loop = 0;
    scratch.runtime_looked_up = 0;
    scratch.v8_file = 0;
    scratch.v8_looked_up = 0;
    scratch.v8_skipped = 0;
    scratch.java_looked_up = 0;
    scratch.beam_looked_up = 0;
    scratch.dotnet_looked_up = 0;
    scratch.interpreter_stage = stage::NATIVE;
    sample_counts::begin_hash(scratch.handle());
    let end = barrier_var(u64::from(walk(&context, scratch, settings, task, state))) as u32;
    scratch.sample.end = end;
    maps::count(end);
    let mut state = state;
    if state & process_state::ANNOUNCED == 0 {
        state = announce(scratch, settings, task);
    }
    scratch.sample.context_words = 0;
    if state & process_state::HAS_CONTEXTS != 0 {
        thread_context::read_context(scratch.handle(), process_state::executable(state));
    }
    if !sample_counts::count_if_sent(scratch, settings.count_buffer) && send(scratch) {
        sample_counts::start_counting(scratch);
    }
    // SAFETY: the helper has no preconditions.
    let now = unsafe { bpf_ktime_get_boot_ns() };
    maps::add(
        counter::RUN_NANOSECONDS,
        now.wrapping_sub(scratch.sample.time),
    );
    0
}

#[inline(always)]
fn fill_header(scratch: &mut Scratch, settings: &Settings, task: u64, ids: u64) {
    let layout = &settings.layout;
    let leader = task::leader(layout, task);
    let sample = &mut scratch.sample;
    sample.kind = kind::SAMPLE;
    sample.process = ProcessKey {
        pid: (ids >> 32) as u32,
        exec: kernel::word(leader + layout.task_exec).unwrap_or(0) as u32,
        started: kernel::word(leader + layout.task_start_time).unwrap_or(0),
    };
    sample.thread = ids as u32;
    // SAFETY: the helpers write within the given sizes.
    unsafe {
        sample.time = bpf_ktime_get_boot_ns();
        sample.cpu = bpf_get_smp_processor_id();
        bpf_get_current_comm((&raw mut sample.thread_name).cast(), 16);
    }
}

/// Writes the kernel stack to the start of the frames and returns their number.
#[inline(always)]
fn kernel_stack(context: &PerfEventContext, scratch: &mut Scratch) -> u32 {
    if registers::is_user(context.as_ptr() as *const u64) {
        return 0;
    }
    // SAFETY: there is room for the maximum number of frames.
    let bytes = unsafe {
        bpf_get_stack(
            context.as_ptr(),
            scratch.frames.as_mut_ptr().cast(),
            (MAX_KERNEL_FRAMES * 8) as u32,
            0,
        )
    };
    if bytes > 0 { bytes as u32 / 8 } else { 0 }
}

/// Unwinds the user stack and returns the end reason.
#[inline(always)]
fn walk(
    context: &PerfEventContext,
    scratch: &mut Scratch,
    settings: &Settings,
    task: u64,
    state: u32,
) -> u32 {
    let layout = &settings.layout;
    let flags = kernel::word(task + layout.task_flags).unwrap_or(0);
    if flags & task::PF_KTHREAD != 0 {
        return EndReason::KernelThread as u32;
    }
    if scratch.mm == 0 {
        let exiting = flags & task::PF_EXITING != 0;
        let reason = if exiting {
            EndReason::Exit
        } else {
            EndReason::KernelThread
        };
        return reason as u32;
    }
    if task::is_in_exec(layout, task, flags, scratch.mm) {
        return EndReason::Exec as u32;
    }
    let user = match registers::user_registers(
        context.as_ptr() as *const u64,
        settings,
        task,
        &mut scratch.window,
        &mut scratch.java_registers,
        &mut scratch.loop_registers,
    ) {
        Ok(user) => user,
        Err(reason) => return reason as u32,
    };
    scratch.walk = Walk {
        registers: user.registers,
        exact: u32::from(user.exact),
        sp_is_bound: 0,
    };
    scratch.first = scratch.walk;
    scratch.first_stack = scratch.sample.stack;
    scratch.code = CodeMapping::default();
    for code in &mut scratch.recent_code {
        // Holds no address.
        code.end = 0;
    }
    scratch.recent_next = 0;
    scratch.address_bits = settings.address_bits;
    scratch.anonymous.start = 0;
    scratch.window_at = NO_WINDOW;
    scratch.window_bytes = NO_WINDOW_BYTES;
    let has_contexts = state & process_state::HAS_CONTEXTS != 0;
    // Not in a variable: the verifier would process the loop once for each value that it knows.
    scratch.may_switch_to = if has_contexts {
        process_state::executable(state)
    } else {
        0
    };
    for _ in 0..MAX_STEPS / FRAMES_PER_CALL {
        let end = barrier_var(u64::from(unwind::walk_frames(
            scratch.handle(),
            settings.max_frames,
        ))) as u32;
        let executable = scratch.may_switch_to;
        if end == EndReason::Unsupported as u32 && executable != 0 {
            // Once, or a forged goroutine would lead back.
            scratch.may_switch_to = 0;
            let end = thread_context::leave_system_stack(scratch.handle(), executable);
            let end = barrier_var(u64::from(end)) as u32;
            if end != CONTINUE {
                return end;
            }
        } else if end != CONTINUE {
            return end;
        }
    }
    EndReason::Truncated as u32
}

/// Announces the process at its first sample, and returns its state.
#[inline(always)]
fn announce(scratch: &mut Scratch, settings: &Settings, task: u64) -> u32 {
    let key = scratch.sample.process;
    let layout = &settings.layout;
    let leader = task::leader(layout, task);
    let executable = executable(scratch, settings);
    names::write_cgroup(scratch.handle(), task);
    let (own_pid, pid_namespace) = task::own_pid(layout, leader);
    let names_bytes = scratch.names_bytes as u16;
    let mut arguments_bytes = 0;
    if settings.with_arguments != 0 && scratch.mm != 0 && !is_in_exec(scratch) {
        arguments_bytes = barrier_var(u64::from(names::write_arguments(scratch.handle()))) as u16;
    }
    scratch.announcement.process = record::Process {
        kind: kind::PROCESS,
        parent: task::parent(layout, leader),
        process: key,
        user: kernel::word(task + layout.task_cred)
            .and_then(|cred| kernel::word(cred + layout.cred_uid))
            .unwrap_or(0) as u32,
        executable,
        name: [0; 16],
        own_pid,
        pid_namespace,
        mount_namespace: task::mount_namespace(layout, task),
        names_bytes,
        arguments_bytes,
    };
    // SAFETY: it was initialized as a process above.
    kernel::read(leader + layout.task_comm, unsafe {
        &raw mut scratch.announcement.process.name
    });
    if !names::send(scratch, BPF_RB_NO_WAKEUP) {
        maps::count(counter::RING_FULL_PROCESS);
        return 0;
    }
    // Inside execve the executable is unknown; the next sample announces the process again.
    if executable == file_number::IN_EXEC {
        return 0;
    }
    let announced = barrier_var(u64::from(process_state::announced(executable))) as u32;
    // The loader may have excluded it already.
    let _ = PROCESSES.insert(&key, &announced, u64::from(BPF_NOEXIST));
    announced | thread_context::flag(&key, executable)
}

/// The name may belong to the old image while the memory belongs to the new one.
fn is_in_exec(scratch: &Scratch) -> bool {
    scratch.sample.end == EndReason::Exec as u32
}

/// The file number of the executable.
#[inline(always)]
fn executable(scratch: &mut Scratch, settings: &Settings) -> u32 {
    let layout = &settings.layout;
    if is_in_exec(scratch) {
        return file_number::IN_EXEC;
    }
    if scratch.mm == 0 {
        return file_number::UNMAPPED;
    }
    let mut kernel = Kernel {
        node: &mut scratch.node,
    };
    let file = kernel::word(scratch.mm + layout.mm_exe).unwrap_or(0);
    if file == 0 {
        return file_number::UNMAPPED;
    }
    let Ok(id) = mappings::identity(&mut kernel, layout, file) else {
        return file_number::UNMAPPED;
    };
    let mut mapped = MappedFile {
        id,
        file,
        start: 0,
        end: 0,
    };
    if is_on_overlay(layout, file) {
        // Mappings and unwind tables refer to the file of the lower layer.
        let code = kernel::word(scratch.mm + layout.mm_start_code).unwrap_or(0);
        let mapping = unwind::mapping_at(scratch, code);
        if mapping.file != 0 {
            mapped.id = mapping.id;
            mapped.start = mapping.start;
            mapped.end = mapping.end;
        }
    }
    files::entry(scratch, &mapped).number
}

fn is_on_overlay(layout: &Layout, file: u64) -> bool {
    let inode = kernel::word(file + layout.file_inode).unwrap_or(0);
    let superblock = kernel::word(inode.wrapping_add(layout.inode_super)).unwrap_or(0);
    let magic = kernel::word(superblock.wrapping_add(layout.super_magic));
    magic == Some(OVERLAYFS_SUPER_MAGIC)
}

#[inline(always)]
fn send(scratch: &mut Scratch) -> bool {
    let sample = &scratch.sample;
    let words = sample.kernel_frames + sample.user_words + sample.context_words;
    let mut words = barrier_var(u64::from(words));
    let most = (MAX_KERNEL_FRAMES + MAX_USER_WORDS + CONTEXT_WORDS) as u64;
    if words > most {
        words = most;
    }
    let bytes = size_of::<Sample>() as u64 + words * 8;
    // A page of a table is missing.
    let is_pending = scratch.sample.end == EndReason::TablePending as u32;
    // Its functions must be read before it exits.
    let age = scratch
        .sample
        .time
        .wrapping_sub(scratch.sample.process.started);
    let is_urgent = scratch.needs_names != 0 && age < YOUNG;
    let flags = if is_pending || is_urgent {
        BPF_RB_FORCE_WAKEUP
    } else {
        BPF_RB_NO_WAKEUP
    };
    // SAFETY: the frames and the context directly follow the sample, and their number is bounded.
    let failed = unsafe {
        bpf_ringbuf_output(
            (&raw const RECORDS).cast_mut().cast(),
            (scratch as *mut Scratch).cast(),
            bytes,
            flags,
        )
    };
    if failed != 0 {
        maps::count(counter::RING_FULL_SAMPLE);
    }
    failed == 0
}
