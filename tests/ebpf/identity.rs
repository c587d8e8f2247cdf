//! Processes and files that look the same but are different.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use profcol_test_harness::profile::Sample;
use profcol_test_harness::support::skip;
use profcol_test_harness::toolchain::Workshop;

use crate::chains::{Live, TIMEOUT, check, is_enough};
use crate::host::{Profiler, Running, can_profile};

const FIRST: &str = "first inner middle outer main .. _start";
const SECOND: &str = "second inner middle outer main .. _start";

/// Two programs with the same structure but different frames. They are static, without a build id.
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

/// Its executable is the file in a layer, so it has that file's build id.
#[test]
fn a_program_in_a_container_has_its_build_id() {
    if !can_profile() || !has_overlay() {
        return;
    }
    let workshop = Workshop::open();
    let id = "0123456789abcdef0123456789abcdef01234567";
    let command = format!("cc -O0 -static -Wl,--build-id=0x{id} -DLEAF=first plain.c");
    let program = workshop.build("first", &command).unwrap();
    let running = Image::new(&workshop, &program).run("container", None);
    let pid = running.pid();
    let is_it = |sample: &Sample| sample.pid == pid && sample.executable == INSIDE;
    let profile = Profiler::start(499).until(TIMEOUT, |profile| {
        profile
            .samples
            .iter()
            .any(|sample| is_it(sample) && !sample.build_id.is_empty())
    });
    let build_ids: BTreeSet<&str> = profile
        .samples
        .iter()
        .filter(|sample| is_it(sample))
        .map(|sample| &*sample.build_id)
        .collect();
    assert!(build_ids.contains(id), "{build_ids:?}");
}

/// Three containers at one path: two with the same image, and one that overwrote its program.
#[test]
fn containers_share_only_equal_files() {
    if !can_profile() || !has_overlay() {
        return;
    }
    let workshop = Workshop::open();
    let [first, second] = build(&workshop);
    let image = Image::new(&workshop, &first);
    let mut lives = Vec::new();
    for (name, program, chain) in [
        ("container", &first, FIRST),
        ("container of the same", &first, FIRST),
        ("container that changed", &second, SECOND),
    ] {
        let changed = (program != &first).then_some(&**program);
        let running = image.run(name, changed);
        let path = Path::new(INSIDE);
        lives.push(Live::of_process(running, program, path, name, chain));
    }
    check(&mut lives, Profiler::start(499));
}

/// The common image of containers; each sees only its own overlay over it.
struct Image<'w> {
    workshop: &'w Workshop,
    directory: PathBuf,
    root: PathBuf,
}

/// The program's path in a container.
const INSIDE: &str = "/program";

impl<'w> Image<'w> {
    fn new(workshop: &'w Workshop, program: &Path) -> Self {
        let image = Self {
            workshop,
            directory: directory(workshop, "image"),
            root: directory(workshop, "root"),
        };
        fs::copy(program, image.directory.join("program")).unwrap();
        fs::create_dir(image.directory.join("host")).unwrap();
        image
    }

    /// Starts a container's program, optionally overwritten.
    fn run(&self, name: &str, changed: Option<&Path>) -> Running {
        let name = name.replace(' ', "-");
        let upper = directory(self.workshop, &format!("{name}-upper"));
        let work = directory(self.workshop, &format!("{name}-work"));
        if let Some(program) = changed {
            fs::copy(program, upper.join("program")).unwrap();
        }
        let layers = format!(
            "lowerdir={},upperdir={},workdir={}",
            self.directory.display(),
            upper.display(),
            work.display()
        );
        let root = self.root.display();
        let command = format!(
            "mount -t overlay overlay -o {layers} {root} && cd {root} && pivot_root . host && exec {INSIDE}"
        );
        Running::start(Path::new("unshare"), &["--mount", "sh", "-c", &command])
    }
}

fn directory(workshop: &Workshop, name: &str) -> PathBuf {
    let directory = workshop.path(name);
    fs::create_dir(&directory).unwrap();
    directory
}

fn has_overlay() -> bool {
    let systems = fs::read_to_string("/proc/filesystems").unwrap();
    let has_overlay = systems.contains("overlay");
    if !has_overlay {
        skip("the kernel has no overlay file system");
    }
    has_overlay
}

/// The second process reuses the PID of the first.
#[test]
fn a_reused_pid_is_another_process() {
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
    profiler.wait(TIMEOUT, |profile| is_enough(&mut lives, profile));
    lives[0].stop();
    let Some(running) = start_as(pid, &second) else {
        skip("others were faster to take the number of a process");
        return;
    };
    let name = "takes a number";
    lives.push(Live::of_process(running, &second, &second, name, SECOND));
    check(&mut lives, profiler);
}

/// Starts the program with this PID, unless it is in use.
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
