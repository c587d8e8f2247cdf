//! Well-known code without unwind information.

use crate::ElfCode;
use crate::gaps::{Gap, between};
use crate::span::Spans;
use memchr::memmem;
use profcol_ebpf_common::rule::Rule;
use profcol_elf::{Extent, Machine, Source};

/// The code at a program's entry is about forty bytes long.
const ENTRY: u64 = 64;

/// Maximum amount of code without unwind information to search: a whole C library.
const MAX_SEARCHED: u64 = 4 << 20;

/// The code to which a signal handler returns: loads the system call number and calls it.
fn signal_return(machine: Machine) -> &'static [u8] {
    match machine {
        Machine::X86_64 => &[0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05],
        Machine::Aarch64 => &[0x68, 0x11, 0x80, 0xd2, 0x01, 0, 0, 0xd4],
    }
}

/// Sizes of the C library's function where coroutines begin. `makecontext` pushes its start as the return
/// address; it then loads the next context.
fn context_start_sizes(machine: Machine) -> std::ops::Range<u64> {
    match machine {
        Machine::X86_64 => 20..48,
        Machine::Aarch64 => 12..20,
    }
}
const MAX_CONTEXT_STARTS: usize = 1 << 12;
/// Bytes that identify it.
const CONTEXT_START_HEAD: u64 = 16;

/// The first bytes of the function, perhaps after an `endbr64`.
const CONTEXT_START: [u8; 11] = [
    0x48, 0x89, 0xdc, 0x48, 0x8b, 0x3c, 0x24, 0x48, 0x85, 0xff, 0x74,
];
const MARK: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];
/// `mov x0, x19; cbnz x0, …; b …`, as value and mask.
const CONTEXT_START_AARCH64: [(u32, u32); 3] = [
    (0xaa13_03e0, u32::MAX),
    (0xb500_0000, 0xff00_001f),
    (0x1400_0000, 0xfc00_0000),
];
/// `bti c`, or the `nop` in its place if the library is built without BTI.
const MARKS_AARCH64: [u32; 2] = [0xd503_245f, 0xd503_201f];

fn is_context_start(machine: Machine, code: &[u8]) -> bool {
    match machine {
        Machine::X86_64 => code
            .strip_prefix(&MARK)
            .unwrap_or(code)
            .starts_with(&CONTEXT_START),
        Machine::Aarch64 => {
            let (instructions, _) = code.as_chunks();
            let mut instructions = instructions
                .iter()
                .map(|&bytes| u32::from_le_bytes(bytes))
                .peekable();
            let _mark = instructions.next_if(|first| MARKS_AARCH64.contains(first));
            CONTEXT_START_AARCH64.iter().all(|(expected, mask)| {
                instructions.next().map(|found| found & mask) == Some(*expected)
            })
        }
    }
}

/// The ranges include the byte before the function, because the look-up of a return address subtracts one.
pub(crate) fn context_starts(
    elf: &ElfCode,
    source: &(impl Source + ?Sized),
    spans: &Spans,
) -> Vec<(u64, u64, Rule)> {
    let machine = elf.machine;
    let sizes = context_start_sizes(machine);
    let is_start = |start: u64| {
        let segment = elf.segment_at(start)?;
        let part = Extent {
            what: "the code",
            offset: segment.file_offset + (start - segment.address),
            size: CONTEXT_START_HEAD.min(segment.end() - start),
        };
        let code = part.read(source, part.size).ok()?;
        is_context_start(machine, &code).then_some(())
    };
    spans
        .as_slice()
        .iter()
        .filter(|span| sizes.contains(&(span.end - span.start)))
        .map(|span| span.start)
        .take(MAX_CONTEXT_STARTS)
        .filter(|&start| is_start(start).is_some())
        .map(|start| (start.saturating_sub(1), start, Rule::End))
        .collect()
}

/// The entry code of a program has no caller. Only used without other unwind information.
pub(crate) fn entry(elf: &ElfCode) -> Vec<(u64, u64, Rule)> {
    let ElfCode { entry, .. } = *elf;
    if elf.segment_at(entry).is_none() {
        return Vec::new();
    }
    vec![(entry, entry.saturating_add(ENTRY), Rule::End)]
}

/// Address ranges and their rules, only used without other unwind information.
pub(crate) fn signal_returns(
    elf: &ElfCode,
    source: &(impl Source + ?Sized),
    spans: &Spans,
) -> Vec<(u64, u64, Rule)> {
    let pattern = signal_return(elf.machine);
    let finder = memmem::Finder::new(pattern);
    let mut found = Vec::new();
    for Gap { start, bytes } in between(elf, source, spans, 0..u64::MAX, MAX_SEARCHED) {
        found.extend(finder.find_iter(&bytes).map(|found| {
            let at = start + found as u64;
            // Also covers the byte before, because the look-up of a return address subtracts one.
            let early = at.saturating_sub(1).max(start);
            (early, at + pattern.len() as u64, Rule::SignalFrame)
        }));
    }
    found
}
