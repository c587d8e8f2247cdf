//! System calls missing from libraries, each behind a safe function.
#![allow(unsafe_code, reason = "system calls")]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::time::Duration;

use aya_obj::generated::{
    PERF_FLAG_FD_CLOEXEC, perf_event_attr,
    perf_event_sample_format::{PERF_SAMPLE_TID, PERF_SAMPLE_TIME},
    perf_hw_id::PERF_COUNT_HW_CPU_CYCLES,
    perf_sw_ids::{PERF_COUNT_SW_CPU_CLOCK, PERF_COUNT_SW_DUMMY},
    perf_type_id::{PERF_TYPE_HARDWARE, PERF_TYPE_SOFTWARE},
};

use crate::clock::Clock;

/// Opens a disabled perf event that counts while a CPU is busy.
pub fn open_clock(clock: Clock, cpu: u32, frequency: u64) -> io::Result<OwnedFd> {
    // SAFETY: every field of the structure may be zero.
    let mut attributes: perf_event_attr = unsafe { std::mem::zeroed() };
    attributes.size = size_of::<perf_event_attr>() as u32;
    attributes.__bindgen_anon_1.sample_period = clock.period(frequency);
    attributes.set_disabled(1);
    match clock {
        Clock::Cpu => {
            attributes.type_ = PERF_TYPE_SOFTWARE as u32;
            attributes.config = PERF_COUNT_SW_CPU_CLOCK as u64;
            attributes.set_exclude_idle(1);
        }
        // A halted idle CPU has no cycles anyway, and some counters reject `exclude_idle`.
        Clock::Cycles { .. } => {
            attributes.type_ = PERF_TYPE_HARDWARE as u32;
            attributes.config = PERF_COUNT_HW_CPU_CYCLES as u64;
        }
    }
    open_event(&attributes, EventScope::Cpu(cpu))
}

fn open_event(attributes: &perf_event_attr, of: EventScope) -> io::Result<OwnedFd> {
    let (process, cpu) = match of {
        EventScope::Cpu(cpu) => (-1, cpu as libc::c_int),
        EventScope::ThisThread => (0, -1),
    };
    // SAFETY: the structure outlives the call and contains its own size.
    let opened = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            &raw const *attributes,
            process,
            cpu,
            -1,
            PERF_FLAG_FD_CLOEXEC as libc::c_ulong,
        )
    };
    if opened < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel just returned it.
    Ok(unsafe { OwnedFd::from_raw_fd(opened as i32) })
}

/// The scope of process events.
#[derive(Clone, Copy, Debug)]
pub enum EventScope {
    Cpu(u32),
    /// On any CPU.
    ThisThread,
}

/// Opens a disabled perf event for process events: fork, exit, exec, and executable mappings. Each event
/// wakes its reader.
pub fn open_process_events(of: EventScope) -> io::Result<OwnedFd> {
    // SAFETY: every field of the structure may be zero.
    let mut attributes: perf_event_attr = unsafe { std::mem::zeroed() };
    attributes.size = size_of::<perf_event_attr>() as u32;
    attributes.type_ = PERF_TYPE_SOFTWARE as u32;
    attributes.config = PERF_COUNT_SW_DUMMY as u64;
    attributes.set_disabled(1);
    attributes.set_mmap(1);
    attributes.set_mmap2(1);
    attributes.set_comm(1);
    attributes.set_comm_exec(1);
    attributes.set_task(1);
    attributes.set_sample_id_all(1);
    attributes.sample_type = PERF_SAMPLE_TID as u64 | PERF_SAMPLE_TIME as u64;
    attributes.set_use_clockid(1);
    attributes.clockid = libc::CLOCK_BOOTTIME;
    attributes.set_watermark(1);
    attributes.__bindgen_anon_2.wakeup_watermark = 1;
    open_event(&attributes, of)
}

pub fn attach_program(event: BorrowedFd<'_>, program: BorrowedFd<'_>) -> io::Result<()> {
    perf_ioctl(
        event,
        aya_obj::generated::PERF_EVENT_IOC_SET_BPF,
        program.as_raw_fd() as libc::c_ulong,
    )
}

pub fn enable(event: BorrowedFd<'_>) -> io::Result<()> {
    perf_ioctl(event, aya_obj::generated::PERF_EVENT_IOC_ENABLE, 0)
}

pub fn disable(event: BorrowedFd<'_>) -> io::Result<()> {
    perf_ioctl(event, aya_obj::generated::PERF_EVENT_IOC_DISABLE, 0)
}

pub fn set_frequency(clock: Clock, event: BorrowedFd<'_>, frequency: u64) -> io::Result<()> {
    let period = clock.period(frequency);
    // SAFETY: the request reads a number through the pointer, which outlives the call.
    let answer = unsafe {
        libc::ioctl(
            event.as_raw_fd(),
            aya_obj::generated::PERF_EVENT_IOC_PERIOD as libc::Ioctl,
            &raw const period,
        )
    };
    if answer < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

fn perf_ioctl(event: BorrowedFd<'_>, request: u32, argument: libc::c_ulong) -> io::Result<()> {
    // SAFETY: these requests take a number.
    let answer = unsafe { libc::ioctl(event.as_raw_fd(), request as libc::Ioctl, argument) };
    if answer < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Memory that is mapped until it is dropped.
pub struct Mapped {
    start: NonNull<u8>,
    length: usize,
}

// SAFETY: the mapping is not tied to a thread.
unsafe impl Send for Mapped {}
// SAFETY: as above.
unsafe impl Sync for Mapped {}

impl Mapped {
    /// Maps writable memory shared with the kernel.
    pub fn shared(file: BorrowedFd<'_>, length: usize) -> io::Result<Self> {
        Self::map(
            file,
            length,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED,
        )
    }

    /// Maps memory that the kernel writes.
    pub fn read_only(file: BorrowedFd<'_>, length: usize) -> io::Result<Self> {
        Self::map(file, length, libc::PROT_READ, libc::MAP_SHARED)
    }

    /// Maps the first page of a file without touching it.
    pub fn first_page(file: BorrowedFd<'_>) -> io::Result<Self> {
        Self::map(file, 4096, libc::PROT_READ, libc::MAP_PRIVATE)
    }

    /// The same, mapped as executable.
    pub fn first_page_of_code(file: BorrowedFd<'_>) -> io::Result<Self> {
        let protection = libc::PROT_READ | libc::PROT_EXEC;
        Self::map(file, 4096, protection, libc::MAP_PRIVATE)
    }

    /// Private memory, which is allocated on first write.
    pub fn reserved(length: usize) -> io::Result<Self> {
        Self::map_descriptor(
            -1,
            length,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
        )
    }

    /// Replaces a part of this mapping with memory shared with the kernel.
    pub fn replace(&self, at: usize, file: BorrowedFd<'_>, length: usize) -> io::Result<()> {
        let end = at.checked_add(length);
        if end.is_none_or(|end| end > self.length) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        // SAFETY: the replaced range is inside this mapping; all references to it are to atomic words,
        // which remain valid.
        let placed = unsafe {
            libc::mmap(
                self.start.as_ptr().add(at).cast(),
                length,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_FIXED,
                file.as_raw_fd(),
                0,
            )
        };
        if placed == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    }

    fn map(file: BorrowedFd<'_>, length: usize, protection: i32, flags: i32) -> io::Result<Self> {
        Self::map_descriptor(file.as_raw_fd(), length, protection, flags)
    }

    fn map_descriptor(file: RawFd, length: usize, protection: i32, flags: i32) -> io::Result<Self> {
        // SAFETY: a new mapping at an address chosen by the kernel.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), length, protection, flags, file, 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { start, length })
    }

    pub fn address(&self) -> u64 {
        self.start.as_ptr() as u64
    }

    pub fn len(&self) -> usize {
        self.length
    }

    /// A word of it, for concurrent access.
    pub fn word(&self, index: usize) -> &AtomicU32 {
        let words = self.length / 4;
        assert!(index < words, "word {index} of {words}");
        // SAFETY: inside the mapping and aligned.
        unsafe { AtomicU32::from_ptr(self.start.as_ptr().cast::<u32>().add(index)) }
    }

    /// A word of eight bytes.
    pub fn long(&self, index: usize) -> &AtomicU64 {
        let longs = self.length / 8;
        assert!(index < longs, "long word {index} of {longs}");
        // SAFETY: as above.
        unsafe { AtomicU64::from_ptr(self.start.as_ptr().cast::<u64>().add(index)) }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: we own the mapping, and no references to it remain.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.length) };
    }
}

/// Waits until the file is readable, or the timeout.
pub fn wait_readable(file: RawFd, timeout: Duration) {
    let mut waiting = libc::pollfd {
        fd: file,
        events: libc::POLLIN,
        revents: 0,
    };
    let milliseconds = i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX);
    // SAFETY: one structure on our stack. The result does not matter: the caller checks for itself.
    unsafe { libc::poll(&raw mut waiting, 1, milliseconds) };
}

/// Waits until any of these files is readable, or the timeout; returns the readable ones.
pub fn wait_for_any(files: &[RawFd], timeout: Duration) -> Vec<RawFd> {
    let mut waiting: Vec<libc::pollfd> = files
        .iter()
        .map(|&fd| libc::pollfd {
            fd,
            events: libc::POLLIN,
            revents: 0,
        })
        .collect();
    let milliseconds = i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX);
    // SAFETY: the pointer and the length describe our own structures.
    unsafe {
        libc::poll(
            waiting.as_mut_ptr(),
            waiting.len() as libc::nfds_t,
            milliseconds,
        )
    };
    let readable = waiting.iter().filter(|file| file.revents != 0);
    readable.map(|file| file.fd).collect()
}

/// The ID of the next BPF program after this one; None if there is none, or the kernel refuses.
pub fn next_bpf_program(after: u32) -> Option<u32> {
    // SAFETY: every field of the union may be zero.
    let mut attributes: aya_obj::generated::bpf_attr = unsafe { std::mem::zeroed() };
    attributes.__bindgen_anon_6.__bindgen_anon_1.start_id = after;
    // SAFETY: the union outlives the call, which gets its size.
    unsafe {
        let answer = libc::syscall(
            libc::SYS_bpf,
            aya_obj::generated::bpf_cmd::BPF_PROG_GET_NEXT_ID as libc::c_int,
            &raw mut attributes,
            size_of_val(&attributes),
        );
        (answer == 0).then_some(attributes.__bindgen_anon_6.next_id)
    }
}

/// Returns when every BPF program that was running at the call has finished.
pub fn wait_for_programs() {
    // SAFETY: the call takes numbers. It waits for an RCU grace period, so running programs have finished.
    let answer = unsafe { libc::syscall(libc::SYS_membarrier, libc::MEMBARRIER_CMD_GLOBAL, 0, 0) };
    if answer != 0 {
        // The kernel refuses it with nohz_full CPUs; a program runs for microseconds.
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The result of [`take_batch`].
pub struct Batch {
    pub taken: usize,
    pub was_last: bool,
}

/// Looks up and deletes a batch of entries of a BPF hash map, up to the capacity. `place` is the position to
/// continue from, none at the start.
pub fn take_batch<K: aya::Pod, V: aya::Pod>(
    map: BorrowedFd<'_>,
    cursor: &mut Option<u32>,
    keys: &mut [K],
    values: &mut [V],
) -> io::Result<Batch> {
    let mut next = 0u32;
    let room = keys.len().min(values.len());
    // SAFETY: every field of the union may be zero.
    let mut attributes: aya_obj::generated::bpf_attr = unsafe { std::mem::zeroed() };
    attributes.batch = aya_obj::generated::bpf_attr__bindgen_ty_3 {
        in_batch: cursor.as_mut().map_or(0, |cursor| &raw mut *cursor as u64),
        out_batch: &raw mut next as u64,
        keys: keys.as_mut_ptr() as u64,
        values: values.as_mut_ptr() as u64,
        count: u32::try_from(room).unwrap_or(u32::MAX),
        map_fd: map.as_raw_fd() as u32,
        elem_flags: 0,
        flags: 0,
    };
    // SAFETY: the buffers outlive the call, which gets their capacity. It does not check the sizes of keys and
    // values: the caller's types were checked against the map at load.
    let answer = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            aya_obj::generated::bpf_cmd::BPF_MAP_LOOKUP_AND_DELETE_BATCH as libc::c_int,
            &raw mut attributes,
            size_of_val(&attributes),
        )
    };
    // SAFETY: the field was written above and by the call.
    let taken = unsafe { attributes.batch.count } as usize;
    let was_last = answer < 0;
    if was_last {
        let error = io::Error::last_os_error();
        if error.raw_os_error() != Some(libc::ENOENT) {
            return Err(error);
        }
    }
    *cursor = Some(next);
    Ok(Batch { taken, was_last })
}

/// Raises the limit of locked memory as far as permitted, and returns it; None is unlimited.
pub fn raise_locked_memory() -> Option<u64> {
    let mut limit = libc::rlimit {
        rlim_cur: libc::RLIM_INFINITY,
        rlim_max: libc::RLIM_INFINITY,
    };
    // SAFETY: the structure is ours; raising the hard limit fails without the capability.
    unsafe {
        if libc::setrlimit(libc::RLIMIT_MEMLOCK, &raw const limit) == 0 {
            return None;
        }
        if libc::getrlimit(libc::RLIMIT_MEMLOCK, &raw mut limit) != 0 {
            return None;
        }
        limit.rlim_cur = limit.rlim_max;
        libc::setrlimit(libc::RLIMIT_MEMLOCK, &raw const limit);
    }
    (limit.rlim_cur != libc::RLIM_INFINITY).then_some(limit.rlim_cur)
}

/// Lowers the priority of the calling thread.
pub fn lower_priority(nice: i32) {
    // SAFETY: the thread's own ID; a failure changes nothing.
    unsafe {
        let thread = libc::syscall(libc::SYS_gettid);
        libc::setpriority(libc::PRIO_PROCESS, thread as libc::id_t, nice);
    }
}

/// Returns freed memory to the system.
///
/// The C library keeps freed memory for reuse. After a one-time read of megabytes there is no reuse.
pub fn release_heap() {
    #[cfg(target_env = "gnu")]
    // SAFETY: the call has no conditions.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// The page size; a power of two.
pub fn page_size() -> u64 {
    // SAFETY: the call has no conditions.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    u64::try_from(size).unwrap_or(4096)
}

/// The running kernel's version.
pub fn kernel_release() -> String {
    std::fs::read_to_string("/proc/sys/kernel/osrelease")
        .map_or_else(|_| "unknown".into(), |release| release.trim().to_owned())
}

/// CPU time of this process, summed over all threads.
pub fn own_cpu_time() -> Duration {
    Duration::from_nanos(clock(libc::CLOCK_PROCESS_CPUTIME_ID))
}

/// Whether this host's clock is synchronised; none if the kernel does not report it.
pub fn is_clock_synchronised() -> Option<bool> {
    // SAFETY: every field of the structure may be zero, which makes the call read-only.
    let mut time: libc::timex = unsafe { std::mem::zeroed() };
    // SAFETY: the structure is ours.
    let state = unsafe { libc::adjtimex(&raw mut time) };
    (state >= 0).then_some(time.status & libc::STA_UNSYNC == 0)
}

/// Nanoseconds since boot, the clock used by the programs.
pub fn since_boot() -> u64 {
    clock(libc::CLOCK_BOOTTIME)
}

/// How long the host has slept since boot.
pub fn suspended_time() -> Duration {
    let awake = clock(libc::CLOCK_MONOTONIC);
    Duration::from_nanos(since_boot().saturating_sub(awake))
}

fn clock(which: libc::clockid_t) -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the structure is ours.
    unsafe { libc::clock_gettime(which, &raw mut time) };
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000
        + u64::try_from(time.tv_nsec).unwrap_or(0)
}
