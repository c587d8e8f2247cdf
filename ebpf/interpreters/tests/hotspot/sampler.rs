//! Stops threads at random moments, and walks their Java frames.

use std::collections::BTreeMap;
use std::fmt;
use std::thread;
use std::time::Duration;

use nix::sys::ptrace::{self, Options};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use profcol_ebpf_common::interpreter::BlockMemory;
use profcol_ebpf_common::interpreter::hotspot::Walk;
use profcol_ebpf_interpreters::Memory;
use profcol_ebpf_interpreters::hotspot::{FrameKind, JavaFrame};

use crate::expected::Verdict;
use crate::jvm::Jvm;
use crate::target::Target;

const MAX_FRAMES: usize = 200;
/// Number of wrong stacks to print.
const SHOWN: usize = 3;

#[derive(Debug, Default)]
pub struct Outcome {
    pub right: usize,
    /// See [`Verdict::Vague`].
    pub vague: usize,
    pub wrong: usize,
    /// Stacks without the program's functions.
    pub other: usize,
    pub native: usize,
    pub reads: usize,
    pub frames: usize,
    pub kinds: BTreeMap<String, usize>,
    pub examples: Vec<String>,
}

impl Outcome {
    pub fn stacks(&self) -> usize {
        self.right + self.vague + self.wrong
    }

    /// The share of correct stacks, and of stacks with correct callers.
    pub fn shares(&self) -> (f64, f64) {
        let share = |count: usize| count as f64 / self.stacks().max(1) as f64;
        (share(self.right), share(self.right + self.vague))
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "{:.2} % of {} stacks right, {:.2} % but for inlined functions ({} other, {} native), \
             {:.1} reads a frame",
            self.shares().0 * 100.0,
            self.stacks(),
            self.shares().1 * 100.0,
            self.other,
            self.native,
            self.reads as f64 / self.frames.max(1) as f64,
        )?;
        for (kind, count) in &self.kinds {
            write!(formatter, "\n    {count} {kind}")?;
        }
        for example in &self.examples {
            write!(formatter, "\n{example}")?;
        }
        Ok(())
    }
}

pub fn sample(jvm: &Jvm, samples: usize) -> Outcome {
    let threads: Vec<Pid> = jvm.threads().into_iter().map(Pid::from_raw).collect();
    assert!(!threads.is_empty(), "no thread runs chains");
    let mut outcome = Outcome::default();
    for &thread in &threads {
        ptrace::seize(thread, Options::empty()).unwrap();
    }
    let mut attempts = threads.iter().cycle().take(samples * 5);
    while outcome.stacks() < samples
        && let Some(&thread) = attempts.next()
    {
        thread::sleep(Duration::from_micros(1500));
        stop(thread);
        look(jvm, thread, &mut outcome);
        ptrace::cont(thread, None).unwrap();
    }
    for &thread in &threads {
        stop(thread);
        ptrace::detach(thread, None).unwrap();
    }
    outcome
}

/// Stops a thread; delivers pending signals first.
fn stop(thread: Pid) {
    let wait = |flags| waitpid(thread, Some(flags | WaitPidFlag::__WALL)).unwrap();
    let pass = |stopped| match stopped {
        WaitStatus::Stopped(_, signal) => {
            ptrace::cont(thread, signal).unwrap();
            true
        }
        _ => false,
    };
    while pass(wait(WaitPidFlag::WNOHANG)) {}
    ptrace::interrupt(thread).unwrap();
    while pass(wait(WaitPidFlag::empty())) {}
}

fn look(jvm: &Jvm, thread: Pid, outcome: &mut Outcome) {
    let registers = ptrace::getregs(thread).unwrap();
    if !jvm.cache.holds(registers.rip) {
        outcome.native += 1;
        return;
    }
    let mut walk = Walk {
        ip: registers.rip,
        sp: registers.rsp,
        fp: registers.rbp,
        bcp: registers.r13,
        method: registers.rbx,
        result: registers.rax,
        exact: 1,
        unused: 0,
    };
    let mut target = Target::new(&jvm.memory);
    let result = stack(jvm, &mut walk, &mut target);
    outcome.reads += target.reads;
    let (frames, failure) = match result {
        Ok((frames, is_part)) => {
            outcome.frames += frames.len();
            let java: Vec<JavaFrame> = frames
                .iter()
                .filter(|frame| frame.kind != FrameKind::Stub && !frame.begins_virtual_thread())
                .cloned()
                .collect();
            match jvm.expected.judge(&java, is_part) {
                Verdict::Right => {
                    outcome.right += 1;
                    return;
                }
                Verdict::Vague => {
                    outcome.vague += 1;
                    return;
                }
                Verdict::Other => {
                    outcome.other += 1;
                    return;
                }
                Verdict::Wrong => (frames, "unknown".to_owned()),
            }
        }
        Err((frames, failure)) => (frames, failure),
    };
    outcome.wrong += 1;
    let top = frames.first();
    let kind = top.map_or(String::new(), |frame| match frame.kind {
        FrameKind::Stub => frame.name.clone(),
        kind => format!("{kind:?}"),
    });
    *outcome
        .kinds
        .entry(format!("{failure} below {kind}"))
        .or_default() += 1;
    if outcome.examples.len() < SHOWN {
        outcome
            .examples
            .push(example(&registers, &mut target, &frames));
    }
}

type Stack = Result<(Vec<JavaFrame>, bool), (Vec<JavaFrame>, String)>;

/// The frames, and whether more of them are on the heap.
fn stack(jvm: &Jvm, walk: &mut Walk, target: &mut Target<'_>) -> Stack {
    let mut frames = Vec::new();
    while frames.len() < MAX_FRAMES {
        let is_part = jvm.cache.continuation.holds(walk.ip) && walk.exact == 0;
        let before = *walk;
        let found = match walk.step(&jvm.layout.common, &jvm.cache, target) {
            Ok(found) => found,
            Err(failure) => return Err((frames, format!("{failure:?}"))),
        };
        match jvm.names(found) {
            Ok(named) => frames.extend(named),
            Err(error) => return Err((frames, error.to_string())),
        }
        if walk.ip == 0 || frames.last().is_some_and(JavaFrame::begins_virtual_thread) {
            return Ok((frames, is_part));
        }
        if !jvm.cache.holds(walk.ip) {
            if before.exact == 1 {
                // A stub called by native code.
                return Ok((frames, false));
            }
            match leave_native(target, &before) {
                Some(caller) => *walk = caller,
                None => return Ok((frames, false)),
            }
        }
    }
    Err((frames, "too deep".into()))
}

/// The Java frame below native code that called Java, saved on the stack by the call stub. None if there is
/// none, or the frame is not an entry.
fn leave_native(target: &mut Target<'_>, entry: &Walk) -> Option<Walk> {
    const CALL_WRAPPER: u64 = 48;
    const ANCHOR: u64 = 32;
    let mut word = |address: u64| BlockMemory::word(target, address);
    let anchor = word(entry.fp.wrapping_sub(CALL_WRAPPER))? + ANCHOR;
    let sp = word(anchor)?;
    if sp == 0 {
        return None;
    }
    let ip = match word(anchor + 8)? {
        0 => word(sp - 8)?,
        ip => ip,
    };
    let fp = word(anchor + 16)?;
    Some(Walk {
        ip,
        sp,
        fp,
        ..Walk::default()
    })
}

fn example(
    registers: &nix::libc::user_regs_struct,
    target: &mut Target<'_>,
    frames: &[JavaFrame],
) -> String {
    let mut code = [0; 48];
    let _ = target.memory.read(registers.rip - 24, &mut code);
    let mut text = format!(
        "  ip {:x} sp {:x} fp {:x} r13 {:x} rbx {:x} rax {:x}\n  code {:02x?} | {:02x?}\n  stack",
        registers.rip,
        registers.rsp,
        registers.rbp,
        registers.r13,
        registers.rbx,
        registers.rax,
        &code[..24],
        &code[24..]
    );
    for slot in 0..12 {
        let word = BlockMemory::word(target, registers.rsp + slot * 8).unwrap_or(0);
        text += &format!(" {word:x}");
    }
    for frame in frames {
        text += &format!("\n    {:?} {}:{}", frame.kind, frame.name, frame.line);
    }
    text
}
