//! Each restriction applies to the calling thread, so each test tries what is forbidden on a thread of its own.

use std::fs;
use std::io::ErrorKind::PermissionDenied;
use std::net::{TcpListener, TcpStream, ToSocketAddrs};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use libc::c_long;
use memmap2::MmapMut;
use profcol_component::Capabilities;
use profcol_test_skip::skip;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketType, socket};
use rustix::process::{chroot, getpid, getppid, getuid, test_kill_process};
use rustix::system::sethostname;
use rustix::thread::{capabilities, set_capabilities, set_thread_uid};

use super::paths::Landlock;
use super::seccomp::{self, Profile};

const FORWARDER: Capabilities = Capabilities::NONE;

/// Runs `attempt` on a thread that the filter for `needed` restricts.
fn under_seccomp<T: Send + 'static>(
    needed: Capabilities,
    attempt: impl FnOnce() -> T + Send + 'static,
) -> T {
    let restricted = thread::spawn(move || {
        seccomp::restrict(Profile::of(needed)).unwrap();
        attempt()
    });
    restricted.join().unwrap()
}

/// Runs `attempt` on a thread that may change files only below `directories`.
fn under_landlock(directories: &[&Path], attempt: impl FnOnce() + Send + 'static) {
    if !Landlock::is_available() {
        return skip("no Landlock in this kernel");
    }
    let directories = directories.iter().map(PathBuf::from).collect();
    let restricted = thread::spawn(move || {
        Landlock::restrict(directories).unwrap();
        attempt();
    });
    restricted.join().unwrap();
}

fn is_denied<T>(attempt: Result<T, Errno>) -> bool {
    matches!(attempt, Err(Errno::NOSYS))
}

#[test]
fn the_filter_denies_what_profcol_never_does() {
    let attempts = under_seccomp(FORWARDER, || {
        let socket = |family| is_denied(socket(family, SocketType::DGRAM, None));
        let signal = |to| is_denied(test_kill_process(to));
        let code = MmapMut::map_anon(4096).unwrap().make_exec();
        let own = capabilities(None).unwrap();
        [
            ("a program", Command::new("/bin/true").status().is_err()),
            ("a packet socket", socket(AddressFamily::PACKET)),
            ("a socket of another family", socket(AddressFamily::VSOCK)),
            ("written code", code.is_err()),
            ("another root", is_denied(chroot("/"))),
            ("another user", is_denied(set_thread_uid(getuid()))),
            ("another host name", is_denied(sethostname(b"other"))),
            ("other capabilities", is_denied(set_capabilities(None, own))),
            ("a signal to another process", signal(getppid().unwrap())),
            ("a signal to itself", !signal(getpid())),
        ]
    });
    for (attempt, holds) in attempts {
        assert!(holds, "{attempt}");
    }
}

/// Makes a system call whose arguments are all invalid or without effect.
#[allow(unsafe_code, reason = "no safe function makes these system calls")]
fn call(number: c_long, arguments: [c_long; 4]) -> Result<(), Errno> {
    let [a, b, c, d] = arguments;
    // SAFETY: pointers are null, and the kernel checks them.
    let answer = unsafe { libc::syscall(number, a, b, c, d) };
    match answer {
        -1 => Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap()),
        _ => Ok(()),
    }
}

const NETLINK: c_long = libc::AF_NETLINK as c_long;
const RAW: c_long = libc::SOCK_RAW as c_long;

/// Beyond what a profile allows, whatever it is.
const ALWAYS_DENIED: [(&str, c_long, [c_long; 4]); 22] = [
    ("ptrace", libc::SYS_ptrace, [-1, 0, 0, 0]),
    ("process_vm_writev", libc::SYS_process_vm_writev, [0; 4]),
    ("pidfd_getfd", libc::SYS_pidfd_getfd, [-1, -1, 0, 0]),
    ("unshare", libc::SYS_unshare, [0; 4]),
    ("setns", libc::SYS_setns, [-1, 0, 0, 0]),
    ("a new process", libc::SYS_clone3, [0; 4]),
    ("mount", libc::SYS_mount, [0; 4]),
    ("umount", libc::SYS_umount2, [0; 4]),
    ("pivot_root", libc::SYS_pivot_root, [0; 4]),
    ("init_module", libc::SYS_init_module, [0; 4]),
    ("finit_module", libc::SYS_finit_module, [-1, 0, 0, 0]),
    ("delete_module", libc::SYS_delete_module, [0; 4]),
    ("kexec_load", libc::SYS_kexec_load, [-1, -1, 0, -1]),
    ("execve", libc::SYS_execve, [0; 4]),
    ("execveat", libc::SYS_execveat, [-1, 0, 0, 0]),
    ("memfd_create", libc::SYS_memfd_create, [0; 4]),
    ("io_uring", libc::SYS_io_uring_setup, [0; 4]),
    ("userfaultfd", libc::SYS_userfaultfd, [-1, 0, 0, 0]),
    ("keys", libc::SYS_keyctl, [-1, 0, 0, 0]),
    ("the clock", libc::SYS_clock_settime, [-1, 0, 0, 0]),
    (
        "netlink of the audit log",
        libc::SYS_socket,
        [NETLINK, RAW, libc::NETLINK_AUDIT as c_long, 0],
    ),
    (
        "netlink of the firewall",
        libc::SYS_socket,
        [NETLINK, RAW, libc::NETLINK_NETFILTER as c_long, 0],
    ),
];

/// What only a profile for this host allows.
const OF_THE_PROFILER: [(&str, c_long, [c_long; 4]); 3] = [
    ("bpf", libc::SYS_bpf, [-1, 0, 0, 0]),
    ("perf_event_open", libc::SYS_perf_event_open, [0; 4]),
    ("process_vm_readv", libc::SYS_process_vm_readv, [0; 4]),
];

#[test]
fn the_filter_denies_system_calls_by_profile() {
    let profiler = Capabilities::BPF | Capabilities::PERFMON | Capabilities::SYS_PTRACE;
    for (needed, may_profile) in [(FORWARDER, false), (profiler, true)] {
        let attempts = under_seccomp(needed, || {
            let attempt = |(name, number, arguments)| (name, call(number, arguments));
            let own = call(
                libc::SYS_socket,
                [NETLINK, RAW, libc::NETLINK_ROUTE.into(), 0],
            );
            (
                ALWAYS_DENIED.map(attempt),
                OF_THE_PROFILER.map(attempt),
                own,
            )
        });
        let (always, of_the_profiler, own) = attempts;
        for (name, answer) in always {
            assert!(is_denied(answer), "{name} for {needed}: {answer:?}");
        }
        for (name, answer) in of_the_profiler {
            assert_eq!(!is_denied(answer), may_profile, "{name} for {needed}");
        }
        assert!(!is_denied(own), "addresses of network interfaces");
    }
}

#[test]
fn the_filter_lets_profcol_work() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    under_seccomp(FORWARDER, move || {
        fs::write(&path, "content").unwrap();
        fs::rename(&path, path.with_extension("new")).unwrap();
        UnixListener::bind(path.with_extension("sock")).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        client.set_nodelay(true).unwrap();
        let names = "localhost:1".to_socket_addrs().unwrap();
        assert_ne!(names.count(), 0);
        thread::spawn(|| ()).join().unwrap();
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(async { tokio::time::sleep(Duration::from_millis(1)).await });
    });
}

#[test]
fn a_reader_reads_what_it_is_given_and_does_nothing_else() {
    let file = fs::File::open("/proc/self/exe").unwrap();
    let parent = getppid().unwrap();
    let attempts = thread::spawn(move || {
        // Where the kernel lacks it, the filter alone denies.
        let _ = Landlock::deny_all();
        seccomp::restrict_reader().unwrap();
        let mut start = [0; 4];
        let read = file.read_exact_at(&mut start, 0);
        // More than the C library holds in reserve.
        let memory = vec![1_u8; 64 << 20];
        let length = file.metadata().map(|it| it.len());
        let code = MmapMut::map_anon(4096).map(MmapMut::make_exec);
        let socket = |family| is_denied(socket(family, SocketType::DGRAM, None));
        let signal = |to| is_denied(test_kill_process(to));
        [
            ("to read", read.is_ok() && start == *b"\x7fELF"),
            ("the length", length.is_ok_and(|it| it > 0)),
            ("memory", memory.len() == 64 << 20),
            (
                "no file by its name",
                fs::File::open("/proc/self/exe").is_err(),
            ),
            ("no directory", fs::read_dir("/").is_err()),
            ("no program", Command::new("/bin/true").status().is_err()),
            ("no Unix socket", socket(AddressFamily::UNIX)),
            ("no socket", socket(AddressFamily::INET)),
            ("no written code", !code.is_ok_and(|code| code.is_ok())),
            ("no thread", thread::Builder::new().spawn(|| ()).is_err()),
            ("no signal to another process", signal(parent)),
            ("no signal to itself", signal(getpid())),
            ("no write", file.set_len(0).is_err()),
        ]
    });
    for (attempt, holds) in attempts.join().unwrap() {
        assert!(holds, "{attempt}");
    }
}

#[test]
fn a_filter_without_bpf_does_not_include_one_with_it() {
    let profiler = Capabilities::BPF | Capabilities::PERFMON | Capabilities::SYS_PTRACE;
    let (profiler, forwarder) = (Profile::of(profiler), Profile::of(FORWARDER));
    assert!(profiler.includes(forwarder) && profiler.includes(profiler));
    assert!(!forwarder.includes(profiler));
    assert!(!forwarder.includes(Profile::of(Capabilities::SYS_PTRACE)));
}

#[test]
fn files_change_only_in_the_directories_of_the_configuration() {
    let (open, closed) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let foreign = closed.path().join("file");
    fs::write(&foreign, "content").unwrap();
    let own = open.path().join("missing/yet/file");
    under_landlock(&[&open.path().join("missing")], move || {
        fs::create_dir_all(own.parent().unwrap()).unwrap();
        fs::write(&own, "content").unwrap();
        fs::rename(&own, own.with_extension("new")).unwrap();
        fs::write("/dev/null", "content").unwrap();
        assert_eq!(fs::read(&foreign).unwrap(), b"content");

        let sibling = foreign.with_extension("new");
        let program = Command::new("/bin/true").status();
        for (attempt, result) in [
            ("a change", fs::write(&foreign, "changed")),
            ("a new file", fs::write(&sibling, "new")),
            ("a directory", fs::create_dir(&sibling)),
            ("a link", std::os::unix::fs::symlink("/", &sibling)),
            ("a rename", fs::rename(&foreign, &sibling)),
            ("a removal", fs::remove_file(&foreign)),
            ("a socket", UnixListener::bind(&sibling).map(drop)),
            ("a program", program.map(drop)),
        ] {
            let error = result.expect_err(attempt);
            assert_eq!(error.kind(), PermissionDenied, "{attempt}: {error}");
        }
    });
}

#[test]
fn landlock_admits_what_is_below_its_directories() {
    let directory = tempfile::tempdir().unwrap();
    let inside = directory.path().join("inside");
    under_landlock(&[&inside], || ());
    let landlock = thread::spawn({
        let inside = inside.clone();
        move || Landlock::restrict(vec![inside])
    });
    // A kernel without it was reported above.
    let Ok(landlock) = landlock.join().unwrap() else {
        return;
    };
    assert!(landlock.admits(&inside) && landlock.admits(&inside.join("deeper")));
    assert!(!landlock.admits(Path::new("/")) && !landlock.admits(Path::new("/nowhere")));
}
