//! On each tick: who runs here, and where.

use aya_ebpf::EbpfContext;
use aya_ebpf::bindings::BPF_NOEXIST;
use aya_ebpf::helpers::generated::{
    bpf_get_current_comm, bpf_get_current_task, bpf_get_smp_processor_id, bpf_get_stack,
    bpf_ktime_get_boot_ns, bpf_ringbuf_output,
};
use aya_ebpf::macros::perf_event;
use aya_ebpf::programs::PerfEventContext;
use profcol_ebpf_common::file::number;
use profcol_ebpf_common::layout::Layout;
use profcol_ebpf_common::mappings;
use profcol_ebpf_common::reason::EndReason;
use profcol_ebpf_common::record::{
    self, MAX_KERNEL_FRAMES, MAX_USER_FRAMES, ProcessKey, Sample, kind, known,
};
use profcol_ebpf_common::settings::Settings;
use profcol_ebpf_common::walk::{Code, Walk};
use profcol_ebpf_common::{counter, hide};

use crate::files::{self, Met};
use crate::kernel::{self, Kernel};
use crate::maps::{self, PROCESSES, RECORDS};
use crate::scratch::{KNOWN_CODES, Scratch};
use crate::unwind::{self, CLIMB, GO_ON, NO_WINDOW, NO_WINDOW_BYTES};
use crate::{names, process, registers, remembered, repeats, task};

/// The loader reads the ring by the clock: waking it would cost more than the sample.
const NO_WAKEUP: u64 = 1;
const WAKEUP: u64 = 2;

/// The magic number of an overlay file system.
const OVERLAY: u64 = 0x794c_7630;

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
    // SAFETY: the helper has no conditions.
    let task = unsafe { bpf_get_current_task() };
    describe(scratch, settings, task, ids);
    scratch.mm = kernel::word(task + settings.layout.task_mm).unwrap_or(0);
    scratch.epoch = remembered::epoch(&settings.layout, scratch.mm, &scratch.sample);
    let known = process::known(scratch.epoch, &scratch.sample);
    if known == known::EXCLUDED {
        maps::count(counter::EXCLUDED);
        return 0;
    }
    maps::count(counter::SAMPLES);
    scratch.sample.kernel_frames = kernel_stack(&context, scratch);
    scratch.sample.user_frames = 0;
    repeats::begin_hash(scratch.lend());
    let end = hide(u64::from(walk(&context, scratch, settings, task))) as u32;
    scratch.sample.end = end;
    maps::count(end);
    if known != known::ANNOUNCED {
        announce(scratch, settings, task);
    }
    if !repeats::is_repeat(scratch, settings.turn) && send(scratch) {
        repeats::was_sent(scratch);
    }
    // SAFETY: the helper has no conditions.
    let now = unsafe { bpf_ktime_get_boot_ns() };
    maps::add(counter::NANOSECONDS, now.wrapping_sub(scratch.sample.time));
    0
}

#[inline(always)]
fn describe(scratch: &mut Scratch, settings: &Settings, task: u64, ids: u64) {
    let layout = &settings.layout;
    let leader = task::leader(layout, task);
    let sample = &mut scratch.sample;
    sample.kind = kind::SAMPLE;
    sample.process = ProcessKey {
        pid: (ids >> 32) as u32,
        exec: kernel::word(leader + layout.task_exec).unwrap_or(0) as u32,
        started: kernel::word(leader + layout.task_started).unwrap_or(0),
    };
    sample.thread = ids as u32;
    // SAFETY: the helpers write no further than they are told.
    unsafe {
        sample.time = bpf_ktime_get_boot_ns();
        sample.cpu = bpf_get_smp_processor_id();
        bpf_get_current_comm((&raw mut sample.thread_name).cast(), 16);
    }
}

/// Writes the kernel's stack to the front of the frames and returns how many they are.
#[inline(always)]
fn kernel_stack(context: &PerfEventContext, scratch: &mut Scratch) -> u32 {
    if registers::is_user(context.as_ptr() as *const u64) {
        return 0;
    }
    // SAFETY: the frames have room for all of it.
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

/// Walks the user's stack and returns the reason why it ended.
#[inline(always)]
fn walk(context: &PerfEventContext, scratch: &mut Scratch, settings: &Settings, task: u64) -> u32 {
    let layout = &settings.layout;
    let flags = kernel::word(task + layout.task_flags).unwrap_or(0);
    if flags & task::KERNEL_THREAD != 0 {
        return EndReason::KernelThread as u32;
    }
    if scratch.mm == 0 {
        let exiting = flags & task::EXITING != 0;
        let reason = if exiting {
            EndReason::Exit
        } else {
            EndReason::KernelThread
        };
        return reason as u32;
    }
    if task::is_between_images(layout, task, flags, scratch.mm) {
        return EndReason::Exec as u32;
    }
    let stand = match registers::of_user(
        context.as_ptr() as *const u64,
        settings,
        task,
        &mut scratch.window,
    ) {
        Ok(stand) => stand,
        Err(reason) => return reason as u32,
    };
    scratch.walk = Walk {
        registers: stand.registers,
        exact: u32::from(stand.exact),
        sp_is_bound: 0,
    };
    scratch.code = Code::default();
    scratch.known = [Code::default(); KNOWN_CODES];
    scratch.known_next = 0;
    scratch.address_bits = settings.address_bits;
    scratch.gap.start = 0;
    scratch.window_at = NO_WINDOW;
    scratch.window_bytes = NO_WINDOW_BYTES;
    for _ in 0..MAX_USER_FRAMES as u32 / CLIMB {
        let end = hide(u64::from(unwind::climb(
            scratch.lend(),
            settings.max_frames,
        ))) as u32;
        if end != GO_ON {
            return end;
        }
    }
    EndReason::Truncated as u32
}

/// Tells of the process where this is its first sample.
#[inline(always)]
fn announce(scratch: &mut Scratch, settings: &Settings, task: u64) {
    let key = scratch.sample.process;
    let layout = &settings.layout;
    let leader = task::leader(layout, task);
    let executable = executable(scratch, settings);
    names::note_cgroup(scratch.lend(), task);
    let (own_pid, pid_namespace) = task::own_pid(layout, leader);
    let names_bytes = scratch.names_bytes as u16;
    let mut arguments_bytes = 0;
    if settings.with_arguments != 0 && scratch.mm != 0 && !is_between_images(scratch) {
        arguments_bytes = hide(u64::from(names::note_arguments(scratch.lend()))) as u16;
    }
    scratch.told.process = record::Process {
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
    // SAFETY: it was written as a process just now.
    kernel::read(leader + layout.task_comm, unsafe {
        &raw mut scratch.told.process.name
    });
    if !names::send(scratch, NO_WAKEUP) {
        maps::count(counter::RING_FULL_PROCESS);
        return;
    }
    // What is not known between two images is told with the next sample.
    if executable == number::REPLACED {
        return;
    }
    let announced = hide(u64::from(known::ANNOUNCED)) as u32;
    // The loader may be faster and exclude it before.
    let _ = PROCESSES.insert(&key, &announced, u64::from(BPF_NOEXIST));
}

/// The name may still be the old one's while the memory is already the new one's.
fn is_between_images(scratch: &Scratch) -> bool {
    scratch.sample.end == EndReason::Exec as u32
}

/// The number of the executable's file.
#[inline(always)]
fn executable(scratch: &mut Scratch, settings: &Settings) -> u32 {
    let layout = &settings.layout;
    if is_between_images(scratch) {
        return number::REPLACED;
    }
    if scratch.mm == 0 {
        return number::NOWHERE;
    }
    let mut kernel = Kernel {
        node: &mut scratch.node,
    };
    let file = kernel::word(scratch.mm + layout.mm_exe).unwrap_or(0);
    if file == 0 {
        return number::NOWHERE;
    }
    let Ok(id) = mappings::identity(&mut kernel, layout, file) else {
        return number::NOWHERE;
    };
    let mut met = Met {
        id,
        file,
        start: 0,
        end: 0,
    };
    if is_on_overlay(layout, file) {
        // Mappings are of the file of a layer, and that is what the tables are of.
        let code = kernel::word(scratch.mm + layout.mm_start_code).unwrap_or(0);
        let mapping = unwind::mapping_at(scratch, code);
        if mapping.file != 0 {
            met.id = mapping.id;
            met.start = mapping.start;
            met.end = mapping.end;
        }
    }
    files::entry(scratch, &met).number
}

fn is_on_overlay(layout: &Layout, file: u64) -> bool {
    let inode = kernel::word(file + layout.file_inode).unwrap_or(0);
    let superblock = kernel::word(inode.wrapping_add(layout.inode_super)).unwrap_or(0);
    let magic = kernel::word(superblock.wrapping_add(layout.super_magic));
    magic == Some(OVERLAY)
}

#[inline(always)]
fn send(scratch: &mut Scratch) -> bool {
    let frames = scratch.sample.kernel_frames + scratch.sample.user_frames;
    let mut frames = hide(u64::from(frames));
    let most = (MAX_KERNEL_FRAMES + MAX_USER_FRAMES) as u64;
    if frames > most {
        frames = most;
    }
    let bytes = size_of::<Sample>() as u64 + frames * 8;
    // A page of a table is wanted.
    let is_pending = scratch.sample.end == EndReason::TablePending as u32;
    let flags = if is_pending { WAKEUP } else { NO_WAKEUP };
    // SAFETY: the frames stand right behind the sample, and there are no more than they have room for.
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
