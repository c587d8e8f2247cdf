//! What looks like the same process or the same file and is another one.

use std::fs;
use std::path::{Path, PathBuf};

use crate::chains::{Live, PATIENCE, check, is_enough};
use crate::host::{Profiler, Running, can_profile};
use crate::support::skip;
use crate::toolchain::Workshop;

const FIRST: &str = "first inner middle outer main .. _start";
const SECOND: &str = "second inner middle outer main .. _start";

/// Two programs of one shape whose functions have other frames. They need no library, and have no build id.
fn build(workshop: &Workshop) -> [PathBuf; 2] {
    let build = |name, command| workshop.build(name, command).unwrap();
    [
        build(
            "first",
            "cc -O0 -static -Wl,--build-id=none -DLEAF=first plain.c",
        ),
        build(
            "second",
            "cc -O2 -static -Wl,--build-id=none -DLEAF=second plain.c",
        ),
    ]
}

/// Three containers at one path: two of one image, and one that wrote over its program.
#[test]
fn containers_share_what_is_equal_and_nothing_else() {
    if !can_profile() {
        return;
    }
    let systems = fs::read_to_string("/proc/filesystems").unwrap();
    if !systems.contains("overlay") {
        skip("the kernel has no overlay file system");
        return;
    }
    let workshop = Workshop::open();
    let [first, second] = build(&workshop);
    let folder = |name: &str| {
        let folder = workshop.path(name);
        fs::create_dir(&folder).unwrap();
        folder
    };
    let image = folder("image");
    fs::copy(&first, image.join("program")).unwrap();
    fs::create_dir(image.join("host")).unwrap();
    let root = folder("root");
    let mut lives = Vec::new();
    for (name, program, chain) in [
        ("container", &first, FIRST),
        ("container of the same", &first, FIRST),
        ("container that changed", &second, SECOND),
    ] {
        let upper = folder(&format!("{name} upper").replace(' ', "-"));
        let work = folder(&format!("{name} work").replace(' ', "-"));
        if program != &first {
            fs::copy(program, upper.join("program")).unwrap();
        }
        let layers = format!(
            "lowerdir={},upperdir={},workdir={}",
            image.display(),
            upper.display(),
            work.display()
        );
        let root = root.display();
        let command = format!(
            "mount -t overlay overlay -o {layers} {root} && cd {root} && pivot_root . host && exec /program"
        );
        let arguments = ["--mount", "sh", "-c", &command];
        let running = Running::start(Path::new("unshare"), &arguments);
        let path = Path::new("/program");
        lives.push(Live::of_process(running, program, path, name, chain));
    }
    check(&mut lives, Profiler::start(499));
}

/// The first process has ended when the second gets its number.
#[test]
fn a_number_that_is_used_again_is_another_process() {
    if !can_profile() {
        return;
    }
    let workshop = Workshop::open();
    let [first, second] = build(&workshop);
    let mut profiler = Profiler::start(499);
    let none: [&str; 0] = [];
    let running = Running::start(&first, &none);
    let pid = running.pid();
    let name = "its number is taken";
    let mut lives = vec![Live::of_process(running, &first, &first, name, FIRST)];
    profiler.wait(PATIENCE, |profile| is_enough(&mut lives, profile));
    lives[0].stop();
    let Some(running) = start_as(pid, &second) else {
        skip("others were faster to take the number of a process");
        return;
    };
    let name = "takes a number";
    lives.push(Live::of_process(running, &second, &second, name, SECOND));
    check(&mut lives, profiler);
}

/// Starts the program with this number, unless others take it.
fn start_as(pid: u32, program: &Path) -> Option<Running> {
    const ATTEMPTS: usize = 1000;
    const LAST: &str = "/proc/sys/kernel/ns_last_pid";
    let none: [&str; 0] = [];
    (0..ATTEMPTS).find_map(|_| {
        fs::write(LAST, (pid - 1).to_string()).unwrap();
        let running = Running::start(program, &none);
        (running.pid() == pid).then_some(running)
    })
}
