//! Code that no unwind information describes, but that is known.

use crate::elf::Machine;
use crate::source::Part;
use crate::span::Spans;
use crate::{Executable, Source};
use memchr::memmem;
use profcol_ebpf_common::rule::Rule;

/// The code at a program's entry is some forty bytes long.
const ENTRY: u64 = 64;

/// How much code without unwind information is searched: a whole C library.
const MAX_SEARCHED: u64 = 4 << 20;

/// Between functions lie up to fifteen bytes that are never executed.
const PADDING: u64 = 16;

/// Where a signal's handler returns to: the number of the system call, and the call.
fn signal_return(machine: Machine) -> &'static [u8] {
    match machine {
        Machine::X86_64 => &[0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05],
        Machine::Aarch64 => &[0x68, 0x11, 0x80, 0xd2, 0x01, 0, 0, 0xd4],
    }
}

/// Addresses and their rules, to be used where nothing else is known.
pub(crate) fn code(
    executable: &Executable,
    source: &(impl Source + ?Sized),
    spans: &Spans,
) -> Vec<(u64, u64, Rule)> {
    let mut known = signal_returns(executable, source, spans);
    if executable.segment_at(executable.entry).is_some() {
        known.push((
            executable.entry,
            executable.entry.saturating_add(ENTRY),
            Rule::End,
        ));
    }
    known
}

fn signal_returns(
    executable: &Executable,
    source: &(impl Source + ?Sized),
    spans: &Spans,
) -> Vec<(u64, u64, Rule)> {
    let wanted = signal_return(executable.machine);
    let finder = memmem::Finder::new(wanted);
    let mut left = MAX_SEARCHED;
    let mut found = Vec::new();
    for segment in &executable.segments {
        for (start, end) in spans.gaps(segment.address, segment.end()) {
            let size = end - start;
            if size < PADDING || size > left {
                continue;
            }
            left -= size;
            let part = Part {
                what: "the code",
                offset: segment.file_offset + (start - segment.address),
                size,
            };
            let Ok(bytes) = part.read(source, MAX_SEARCHED) else {
                continue;
            };
            found.extend(finder.find_iter(&bytes).map(|found| {
                let at = start + found as u64;
                // One byte more, for who looks for a call before the address to which it returns.
                let early = at.saturating_sub(1).max(start);
                (early, at + wanted.len() as u64, Rule::SignalFrame)
            }));
        }
    }
    found
}
