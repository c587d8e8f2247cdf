//! The checks of `profcol doctor`: what this host offers for profiling, and what it lacks.

mod executables;
mod profilers;
mod runtimes;

use std::path::{Path, PathBuf};
use std::time::Duration;

use profcol_component::Check;
use profcol_ebpf_loader::{Requirement, Settings};
use profcol_processes::{Mapping, mapped_code, pids_in};

/// Duration of the trial run.
const TRIAL: Duration = Duration::from_millis(300);
/// Time for checking executables: a part of the time limit for all checks of a component.
const LOOK: Duration = Duration::from_secs(2);

pub(super) fn all(settings: &Settings) -> Vec<Check> {
    let root = Path::new("/");
    let proc = root.join("proc");
    let mut requirements = profcol_ebpf_loader::requirements(root, settings.scope);
    requirements.push(profcol_ebpf_loader::cycles(settings.event));
    requirements.push(profcol_ebpf_loader::clock());
    requirements.push(profcol_ebpf_loader::trial(settings, TRIAL));
    let mut checks: Vec<Check> = requirements.into_iter().map(requirement_check).collect();
    checks.push(profilers::check(&proc, std::process::id()));
    checks.extend(programs_check(&proc));
    checks
}

/// The runtimes, executables and profilers on this host.
fn programs_check(proc: &Path) -> Vec<Check> {
    let processes = Processes::read(proc);
    let mut checks = vec![executables::check(&processes, LOOK)];
    checks.extend(runtimes::checks(&processes));
    checks
}

struct Processes {
    seen: Vec<Process>,
    /// Processes that this process may not inspect.
    refused: usize,
}

/// A process, with the files that it maps as executable.
struct Process {
    pid: u32,
    /// Its directory in `/proc`.
    directory: PathBuf,
    files: Vec<Mapping>,
}

impl Processes {
    fn read(proc: &Path) -> Self {
        let (mut seen, mut refused) = (Vec::new(), 0);
        for pid in pids_in(proc) {
            let directory = proc.join(pid.to_string());
            match mapped_code(&directory) {
                // Kernel threads map no files.
                Ok(files) if files.is_empty() => {}
                Ok(files) => seen.push(Process {
                    pid,
                    directory,
                    files,
                }),
                Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => refused += 1,
                // The process exited.
                Err(_) => {}
            }
        }
        Self { seen, refused }
    }
}

fn requirement_check(requirement: Requirement) -> Check {
    let check = Check::new(requirement.name, requirement.found);
    match requirement.shortfall {
        None => check,
        Some(it) if it.is_fatal => check.fail(it.consequence, it.fix),
        Some(it) => check.warn(it.consequence, it.fix),
    }
}

/// A fake `/proc`.
#[cfg(test)]
struct Host(tempfile::TempDir);

#[cfg(test)]
impl Host {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn with(self, path: &str, content: &str) -> Self {
        let path = self.0.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
        self
    }

    /// Adds a process that maps these files as executable, on no real device, and runs the first.
    fn with_process(self, pid: u32, comm: &str, files: &[&str]) -> Self {
        let lines = files.iter().enumerate().map(|(at, path)| {
            let inode = path.bytes().map(usize::from).sum::<usize>();
            format!("{at}000-{at}fff r-xp 0 00:00 {inode} {path}\n")
        });
        let maps: String = lines.collect();
        self.with(&format!("{pid}/comm"), &format!("{comm}\n"))
            .with(&format!("{pid}/maps"), &maps)
            .with(
                &format!("{pid}/status"),
                &format!("Name:\t{comm}\nUid:\t0\t0\t0\t0\nNSpid:\t{pid}\n"),
            )
    }

    fn processes(&self) -> Processes {
        Processes::read(self.0.path())
    }
}
