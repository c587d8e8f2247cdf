//! Programs stopped anywhere: the walk finds the same frames as gdb.
//!
//! The walk is that of the BPF programs, compiled for this machine, with the same tables. Any difference comes from a
//! rule or its application, not from the kernel.

mod described;
mod gdb;
mod walker;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use profcol_ebpf_common::reason::EndReason;
use profcol_test_harness::backend::wait_until;
use profcol_test_harness::procfs::CpuTime;
use profcol_test_harness::programs::programs;
use profcol_test_harness::support::skip;
use profcol_test_harness::toolchain::Workshop;

use crate::chains::Live;
use crate::host::Running;
use gdb::{Gdb, Thread};
use walker::{Files, Stopped};

/// How often a program is stopped, and the number of short steps after each stop.
const STOPS: usize = 2;
const STEPS: u32 = 20;

/// CPU time of a program that is past its startup.
const STARTED: Duration = Duration::from_millis(200);

/// It has no caller, which some compilers do not mark.
const FIRST: &str = "_start";

#[derive(Default)]
struct Verdict {
    equal: usize,
    frames: usize,
    /// Accepted differences by reason: one of the two ends earlier, or gdb guesses.
    explained: BTreeMap<String, usize>,
    different: Vec<String>,
}

impl Verdict {
    fn add(&mut self, thread: &Thread, stopped: &mut Stopped, files: &mut Files) {
        let (ours, end) = stopped.walk(thread.registers, files);
        let theirs: Vec<u64> = thread.frames.iter().map(|frame| frame.ip).collect();
        // gdb shows a first frame's zero return address.
        let theirs = theirs.strip_suffix(&[0]).unwrap_or(&theirs);
        let is_whole = matches!(end, EndReason::Complete | EndReason::Truncated);
        if ours == theirs && is_whole {
            self.equal += 1;
            self.frames += ours.len();
            return;
        }
        let common = ours.iter().zip(theirs).take_while(|(a, b)| a == b).count();
        let last = &thread.frames[common - 1];
        // The innermost frame has its exact address, the others a return address.
        let address = last.ip - u64::from(common > 1);
        let why = if end == EndReason::Complete && ours.len() == common && last.name == FIRST {
            "gdb finds callers of"
        } else if !stopped.is_described(address, files) {
            "gdb guesses the caller of"
        } else if theirs.len() > common && ours.len() == common && !is_whole {
            end.name()
        } else if theirs.len() == common && last.stop != "no_reason" {
            last.stop.as_str()
        } else {
            self.different.push(describe(thread, &ours, end));
            return;
        };
        let why = format!("{why} {}", last.name);
        *self.explained.entry(why).or_default() += 1;
    }
}

fn describe(thread: &Thread, ours: &[u64], end: EndReason) -> String {
    let mut text = format!("we end at {:x?}: {}\n", ours.last(), end.name());
    for place in 0..ours.len().max(thread.frames.len()).min(40) {
        let theirs = thread.frames.get(place).map(|frame| {
            let is_equal = ours.get(place) == Some(&frame.ip);
            let mark = if is_equal { ' ' } else { '!' };
            format!("{mark} {:x} {} {}", frame.ip, frame.name, frame.stop)
        });
        let ours = ours.get(place).copied().unwrap_or_default();
        let _ = writeln!(text, "    {ours:12x} {}", theirs.unwrap_or_default());
    }
    text
}

fn look(gdb: &mut Gdb, pid: u32, files: &mut Files, verdict: &mut Verdict) -> Option<()> {
    let threads = gdb.look()?;
    let mut stopped = Stopped::open(pid)?;
    for thread in &threads {
        verdict.add(thread, &mut stopped, files);
    }
    Some(())
}

fn judge(pid: u32, files: &mut Files) -> Verdict {
    let mut verdict = Verdict::default();
    for stop in 0..STOPS {
        let mut gdb = Gdb::attach(pid);
        if look(&mut gdb, pid, files, &mut verdict).is_none() {
            break;
        }
        for step in 0..STEPS {
            gdb.step(1 + (stop as u32 * STEPS + step) % 7);
            if look(&mut gdb, pid, files, &mut verdict).is_none() {
                break;
            }
        }
    }
    verdict
}

/// Checks a program and returns the differences.
#[expect(clippy::print_stdout, reason = "the figures are of interest")]
fn check(name: &str, pid: u32, files: &mut Files) -> String {
    wait_until(&format!("{name} to be past its startup"), || {
        // It may have ended.
        CpuTime::of(pid).map_or(true, |spent| spent.total() >= STARTED)
    });
    let begin = Instant::now();
    let verdict = judge(pid, files);
    let explained: usize = verdict.explained.values().sum();
    let all = verdict.equal + verdict.different.len() + explained;
    println!(
        "{name:26} {} of {all} equal, {} frames, {:?} {:.1?}",
        verdict.equal,
        verdict.frames,
        verdict.explained,
        begin.elapsed()
    );
    if all == 0 {
        return format!("{name}: it could not be stopped\n");
    }
    let different = verdict.different.iter().take(3);
    different.map(|text| format!("{name}: {text}\n")).collect()
}

fn can_look() -> bool {
    let (major, minor) = Gdb::MIN_VERSION;
    Gdb::is_there()
        || skip(&format!(
            "no gdb from {major}.{minor} here; on Debian `apt-get install gdb`"
        ))
}

#[test]
fn walks_known_programs_like_gdb() {
    if !can_look() {
        return;
    }
    let only = std::env::var("PROGRAM").unwrap_or_default();
    let workshop = Workshop::open();
    let mut files = Files::default();
    let mut failed = String::new();
    for program in programs() {
        // gdb needs the file by name, and the process's first thread.
        let is_beyond_gdb = ["deleted", "leaderless"].contains(&program.name);
        if is_beyond_gdb || !program.name.contains(&only) {
            continue;
        }
        if let Some(subject) = Live::start(&workshop, program) {
            let (name, pid) = subject.running();
            failed += &check(name, pid, &mut files);
        }
    }
    assert!(failed.is_empty(), "\n{failed}");
}

/// Typical work of an interpreter.
const PYTHON: &str = "
import json, re
text = json.dumps({str(n): [n, 'x' * n] for n in range(50)})
while True:
    json.loads(text)
    re.sub(r'x(x+)x', lambda found: found[1].upper(), text)
    sorted(text.split(','), key=lambda word: word[::-1])
";
const PERL: &str = "while (1) { my %h; $h{$_ % 97} .= sprintf('%x', $_) for 1..1000; \
    my @s = sort { $h{$a} cmp $h{$b} } keys %h; (my $t = join ',', @s) =~ s/(\\d)(\\d)/$2$1/g; }";
const BASH: &str =
    "f() { local a=$1; [ $a -gt 0 ] && f $((a - 1)); }; while :; do f 20; x=${PATH//\\//:}; done";
const AWK: &str = "BEGIN { while (1) { for (i = 0; i < 1000; i++) a[i % 50] = a[i % 50] substr(\"text\", i % 4); \
    n = split(a[1], b, /t/); delete a } }";

/// Installed programs, from any compiler.
#[test]
fn walks_installed_programs_like_gdb() {
    if !can_look() {
        return;
    }
    let directories: Vec<PathBuf> =
        std::env::split_paths(&std::env::var_os("PATH").unwrap()).collect();
    let programs: [(&str, &[&str]); 6] = [
        ("python3", &["-c", PYTHON]),
        ("perl", &["-e", PERL]),
        ("bash", &["-c", BASH]),
        ("awk", &[AWK]),
        ("sort", &["--parallel=2", "/dev/urandom"]),
        ("gzip", &["-c", "/dev/urandom"]),
    ];
    let mut files = Files::default();
    let mut failed = String::new();
    for (name, arguments) in programs {
        let found = directories.iter().map(|directory| directory.join(name));
        let Some(path) = found.filter_map(real).next() else {
            skip(&format!("no {name} here"));
            continue;
        };
        let running = Running::start_quietly(&path, arguments);
        failed += &check(name, running.pid(), &mut files);
    }
    assert!(failed.is_empty(), "\n{failed}");
}

/// A program itself, not a wrapper script.
fn real(path: PathBuf) -> Option<PathBuf> {
    let path = fs::canonicalize(path).ok()?;
    let is_elf = fs::read(&path).is_ok_and(|bytes| bytes.starts_with(b"\x7fELF"));
    is_elf.then_some(path)
}
