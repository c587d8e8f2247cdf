//! A seccomp filter: the system calls that profcol needs, and no others.
//!
//! Others answer ENOSYS, as on a kernel that lacks them: the C library then falls back to older ones, where EPERM would make it
//! fail (`clone3`, whose flags a filter cannot see), and one that is missing here costs a feature, not the process.

use libc::c_long;
use profcol_component::Capabilities;
use seccompiler::SeccompCmpArgLen::{Dword, Qword};
use seccompiler::SeccompCmpOp::{Eq, MaskedEq, Ne};
use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCondition, SeccompFilter, SeccompRule,
    TargetArch, apply_filter,
};

/// What the configuration needs beyond files, sockets and threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Profile {
    /// `bpf` and `perf_event_open`.
    bpf: bool,
    /// Reading the memory of other processes.
    processes: bool,
}

#[derive(Debug, thiserror::Error)]
pub enum SeccompError {
    #[error("no filter for this processor")]
    Architecture,
    #[error("failed to compile the filter: {0}")]
    Compile(#[from] BackendError),
    #[error(transparent)]
    Install(#[from] seccompiler::Error),
}

impl Profile {
    pub fn of(needed: Capabilities) -> Self {
        Self {
            bpf: needed.contains(Capabilities::BPF) || needed.contains(Capabilities::PERFMON),
            processes: needed.contains(Capabilities::SYS_PTRACE),
        }
    }

    pub fn includes(self, other: Self) -> bool {
        (self.bpf || !other.bpf) && (self.processes || !other.processes)
    }
}

/// Restricts the calling thread.
pub fn restrict(profile: Profile) -> Result<(), SeccompError> {
    apply_filter(&compile(profile)?)?;
    Ok(())
}

/// Whether the kernel has seccomp filters.
pub fn is_available() -> bool {
    std::fs::read_to_string("/proc/sys/kernel/seccomp/actions_avail")
        .is_ok_and(|actions| actions.split_whitespace().any(|it| it == "errno"))
}

fn compile(profile: Profile) -> Result<BpfProgram, SeccompError> {
    let everything = [
        FILES, MEMORY, THREADS, SIGNALS, TIME, POLLING, SOCKETS, IDENTITY, OLDER,
    ];
    let unconditional = everything.into_iter().flatten().copied();
    let optional = [
        (profile.bpf, libc::SYS_bpf),
        (profile.bpf, libc::SYS_perf_event_open),
        (profile.processes, libc::SYS_process_vm_readv),
    ];
    let optional = optional.into_iter().filter(|it| it.0).map(|it| it.1);
    let mut rules: Rules = unconditional
        .chain(optional)
        .map(|it| (it, Vec::new()))
        .collect();
    rules.extend(conditional()?);
    program(rules)
}

/// Restricts the calling thread to what a reader of executables does with the files that it is given.
pub fn restrict_reader() -> Result<(), SeccompError> {
    let mut rules: Rules = READER.iter().map(|&it| (it, Vec::new())).collect();
    let this = u64::from(std::process::id());
    let one = |argument, operator, value| {
        SeccompRule::new(vec![SeccompCondition::new(
            argument, Dword, operator, value,
        )?])
    };
    let executable = u64::from(libc::PROT_EXEC.unsigned_abs());
    let in_memory = SeccompRule::new(vec![
        SeccompCondition::new(2, Dword, MaskedEq(executable), 0)?,
        // Of no file: a file that shrinks while it is mapped kills its reader.
        SeccompCondition::new(4, Dword, Eq, u64::from(u32::MAX))?,
    ])?;
    rules.insert(libc::SYS_mmap, vec![in_memory]);
    rules.insert(libc::SYS_mprotect, vec![one(2, MaskedEq(executable), 0)?]);
    // How it aborts: by glibc, and by musl.
    rules.insert(libc::SYS_tgkill, vec![one(0, Eq, this)?]);
    rules.insert(libc::SYS_tkill, vec![one(0, Eq, this)?]);
    // Names of memory, by the C library.
    let names = u64::from(libc::PR_SET_VMA.unsigned_abs());
    rules.insert(libc::SYS_prctl, vec![one(0, Eq, names)?]);
    apply_filter(&program(rules)?)?;
    Ok(())
}

type Rules = std::collections::BTreeMap<c_long, Vec<SeccompRule>>;

/// A filter that answers ENOSYS to all other system calls.
fn program(rules: Rules) -> Result<BpfProgram, SeccompError> {
    let architecture = match std::env::consts::ARCH {
        "x86_64" => TargetArch::x86_64,
        "aarch64" => TargetArch::aarch64,
        _ => return Err(SeccompError::Architecture),
    };
    let filter = SeccompFilter::new(
        rules,
        SeccompAction::Errno(libc::ENOSYS as u32),
        SeccompAction::Allow,
        architecture,
    )?;
    Ok(filter.try_into()?)
}

/// System calls with some arguments only.
fn conditional() -> Result<[(c_long, Vec<SeccompRule>); 10], BackendError> {
    let bits = |number: libc::c_int| u64::from(number.unsigned_abs());
    let executable = bits(libc::PROT_EXEC);
    let writable = bits(libc::PROT_WRITE);
    let both = executable | writable;
    // The sign bit is not among them.
    let namespaces = bits(
        libc::CLONE_NEWNS
            | libc::CLONE_NEWCGROUP
            | libc::CLONE_NEWUTS
            | libc::CLONE_NEWIPC
            | libc::CLONE_NEWUSER
            | libc::CLONE_NEWPID
            | libc::CLONE_NEWNET,
    );
    let thread = bits(libc::CLONE_THREAD);
    let this = u64::from(std::process::id());
    let rule = |conditions: Vec<SeccompCondition>| SeccompRule::new(conditions);
    let one = |argument, length, operator, value| {
        rule(vec![SeccompCondition::new(
            argument, length, operator, value,
        )?])
    };
    let family = |family: libc::c_int| one(0, Dword, Eq, bits(family));
    Ok([
        // Threads, but no processes.
        (
            libc::SYS_clone,
            vec![one(0, Qword, MaskedEq(thread | namespaces), thread)?],
        ),
        // No memory that is writable and executable, now or later.
        (
            libc::SYS_mmap,
            vec![
                one(2, Dword, MaskedEq(both), 0)?,
                one(2, Dword, MaskedEq(both), writable)?,
                one(2, Dword, MaskedEq(both), executable)?,
            ],
        ),
        (
            libc::SYS_mprotect,
            vec![one(2, Dword, MaskedEq(executable), 0)?],
        ),
        (
            libc::SYS_socket,
            vec![
                family(libc::AF_UNIX)?,
                family(libc::AF_INET)?,
                family(libc::AF_INET6)?,
                // Addresses of network interfaces.
                rule(vec![
                    SeccompCondition::new(0, Dword, Eq, bits(libc::AF_NETLINK))?,
                    SeccompCondition::new(2, Dword, Eq, bits(libc::NETLINK_ROUTE))?,
                ])?,
            ],
        ),
        // No keystrokes for the terminal.
        (
            libc::SYS_ioctl,
            vec![rule(vec![
                SeccompCondition::new(1, Dword, Ne, TIOCSTI)?,
                SeccompCondition::new(1, Dword, Ne, TIOCLINUX)?,
            ])?],
        ),
        // Names of threads and, by the C library, of memory; features of the processor.
        (
            libc::SYS_prctl,
            vec![
                one(0, Dword, Eq, bits(libc::PR_SET_NAME))?,
                one(0, Dword, Eq, bits(libc::PR_GET_NAME))?,
                one(0, Dword, Eq, bits(libc::PR_SET_VMA))?,
                one(0, Dword, Eq, bits(libc::PR_CAPBSET_READ))?,
                one(0, Dword, Eq, PR_GET_AUXV)?,
            ],
        ),
        // How musl aborts.
        (
            libc::SYS_tkill,
            vec![one(1, Dword, Eq, bits(libc::SIGABRT))?],
        ),
        // Signals and limits of this process.
        (libc::SYS_tgkill, vec![one(0, Dword, Eq, this)?]),
        (libc::SYS_kill, vec![one(0, Dword, Eq, this)?]),
        (
            libc::SYS_prlimit64,
            vec![one(0, Dword, Eq, 0)?, one(0, Dword, Eq, this)?],
        ),
    ])
}

/// From `asm-generic/ioctls.h`; their type differs between C libraries.
const TIOCSTI: u64 = 0x5412;
const TIOCLINUX: u64 = 0x541c;

/// From `linux/prctl.h`, missing from the C library's bindings.
const PR_GET_AUXV: u64 = 0x4155_5856;

const FILES: &[c_long] = &[
    libc::SYS_chdir,
    libc::SYS_close,
    libc::SYS_close_range,
    libc::SYS_copy_file_range,
    libc::SYS_dup,
    libc::SYS_dup3,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_fadvise64,
    libc::SYS_fallocate,
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    libc::SYS_fcntl,
    libc::SYS_fdatasync,
    libc::SYS_flock,
    libc::SYS_fstat,
    libc::SYS_fstatfs,
    libc::SYS_fsync,
    libc::SYS_ftruncate,
    libc::SYS_getcwd,
    libc::SYS_getdents64,
    libc::SYS_inotify_add_watch,
    libc::SYS_inotify_init1,
    libc::SYS_inotify_rm_watch,
    libc::SYS_linkat,
    libc::SYS_lseek,
    libc::SYS_mkdirat,
    libc::SYS_newfstatat,
    libc::SYS_openat,
    libc::SYS_openat2,
    libc::SYS_pipe2,
    libc::SYS_pread64,
    libc::SYS_preadv,
    libc::SYS_preadv2,
    libc::SYS_pwrite64,
    libc::SYS_pwritev,
    libc::SYS_pwritev2,
    libc::SYS_read,
    libc::SYS_readahead,
    libc::SYS_readlinkat,
    libc::SYS_readv,
    libc::SYS_renameat,
    libc::SYS_renameat2,
    libc::SYS_sendfile,
    libc::SYS_splice,
    libc::SYS_statfs,
    libc::SYS_statx,
    libc::SYS_symlinkat,
    libc::SYS_sync_file_range,
    libc::SYS_umask,
    libc::SYS_unlinkat,
    libc::SYS_utimensat,
    libc::SYS_write,
    libc::SYS_writev,
];

const MEMORY: &[c_long] = &[
    libc::SYS_brk,
    libc::SYS_madvise,
    libc::SYS_membarrier,
    libc::SYS_mincore,
    libc::SYS_mlock,
    libc::SYS_mremap,
    libc::SYS_msync,
    libc::SYS_munlock,
    libc::SYS_munmap,
];

const THREADS: &[c_long] = &[
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_futex,
    libc::SYS_futex_waitv,
    libc::SYS_get_robust_list,
    libc::SYS_getcpu,
    libc::SYS_getpriority,
    libc::SYS_gettid,
    libc::SYS_rseq,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_getparam,
    libc::SYS_sched_getscheduler,
    libc::SYS_sched_setaffinity,
    libc::SYS_sched_yield,
    libc::SYS_set_robust_list,
    libc::SYS_set_tid_address,
    libc::SYS_setpriority,
];

const SIGNALS: &[c_long] = &[
    libc::SYS_restart_syscall,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigpending,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_rt_sigsuspend,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_sigaltstack,
    libc::SYS_signalfd4,
];

const TIME: &[c_long] = &[
    // Reads whether the clock is synchronized; setting it needs a capability.
    libc::SYS_adjtimex,
    libc::SYS_clock_adjtime,
    libc::SYS_clock_getres,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_gettimeofday,
    libc::SYS_nanosleep,
    libc::SYS_timerfd_create,
    libc::SYS_timerfd_gettime,
    libc::SYS_timerfd_settime,
    libc::SYS_times,
];

const POLLING: &[c_long] = &[
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_eventfd2,
    libc::SYS_ppoll,
    libc::SYS_pselect6,
];

const SOCKETS: &[c_long] = &[
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_bind,
    libc::SYS_connect,
    libc::SYS_getpeername,
    libc::SYS_getsockname,
    libc::SYS_getsockopt,
    libc::SYS_listen,
    libc::SYS_recvfrom,
    libc::SYS_recvmmsg,
    libc::SYS_recvmsg,
    libc::SYS_sendmmsg,
    libc::SYS_sendmsg,
    libc::SYS_sendto,
    libc::SYS_setsockopt,
    libc::SYS_shutdown,
    libc::SYS_socketpair,
];

/// The identity and the limits of this process.
const IDENTITY: &[c_long] = &[
    libc::SYS_capget,
    libc::SYS_getegid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getgroups,
    libc::SYS_getpgid,
    libc::SYS_getpid,
    libc::SYS_getppid,
    libc::SYS_getrandom,
    libc::SYS_getresgid,
    libc::SYS_getresuid,
    libc::SYS_getrlimit,
    libc::SYS_getrusage,
    libc::SYS_getsid,
    libc::SYS_getuid,
    libc::SYS_setrlimit,
    libc::SYS_sysinfo,
    libc::SYS_uname,
];

/// System calls that only x86-64 still has, some of them still used by C libraries.
#[cfg(target_arch = "x86_64")]
const OLDER: &[c_long] = &[
    libc::SYS_access,
    libc::SYS_arch_prctl,
    libc::SYS_chmod,
    libc::SYS_creat,
    libc::SYS_dup2,
    libc::SYS_epoll_create,
    libc::SYS_epoll_wait,
    libc::SYS_eventfd,
    libc::SYS_getdents,
    libc::SYS_getpgrp,
    libc::SYS_inotify_init,
    libc::SYS_link,
    libc::SYS_lstat,
    libc::SYS_mkdir,
    libc::SYS_open,
    libc::SYS_pipe,
    libc::SYS_poll,
    libc::SYS_readlink,
    libc::SYS_rename,
    libc::SYS_rmdir,
    libc::SYS_select,
    libc::SYS_stat,
    libc::SYS_symlink,
    libc::SYS_time,
    libc::SYS_unlink,
];

#[cfg(not(target_arch = "x86_64"))]
const OLDER: &[c_long] = &[];

/// Reads of open files, memory, the socket to the agent, and the end.
const READER: &[c_long] = &[
    libc::SYS_brk,
    libc::SYS_clock_gettime,
    libc::SYS_close,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_fstat,
    libc::SYS_futex,
    libc::SYS_getpid,
    libc::SYS_getrandom,
    libc::SYS_gettid,
    libc::SYS_madvise,
    libc::SYS_mremap,
    libc::SYS_munmap,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_poll,
    libc::SYS_ppoll,
    libc::SYS_pread64,
    libc::SYS_recvmsg,
    libc::SYS_restart_syscall,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sendmsg,
    libc::SYS_sigaltstack,
    libc::SYS_statx,
];
