//! Code that no unwind information describes, but that is known.

use crate::ElfCode;
use crate::gaps::{Gap, between};
use crate::span::Spans;
use memchr::memmem;
use profcol_ebpf_common::rule::Rule;
use profcol_elf::{Extent, Machine, Source};

/// The code at a program's entry is some forty bytes long.
const ENTRY: u64 = 64;

/// How much code without unwind information is searched: a whole C library.
const MAX_SEARCHED: u64 = 4 << 20;

/// Where a signal's handler returns to: the number of the system call, and the call.
fn signal_return(machine: Machine) -> &'static [u8] {
    match machine {
        Machine::X86_64 => &[0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05],
        Machine::Aarch64 => &[0x68, 0x11, 0x80, 0xd2, 0x01, 0, 0, 0xd4],
    }
}

/// How long the function is where a coroutine of the C library begins, and how many of this length
/// are looked at. `makecontext` makes a return address that is its start; it then reads what to go
/// on with.
fn context_start_sizes(machine: Machine) -> std::ops::Range<u64> {
    match machine {
        Machine::X86_64 => 20..48,
        Machine::Aarch64 => 12..20,
    }
}
const MAX_CONTEXT_STARTS: usize = 1 << 12;
/// Bytes that tell it from others.
const CONTEXT_START_HEAD: u64 = 16;

/// The function begins so, perhaps behind a mark for jumps.
const CONTEXT_START: [u8; 11] = [
    0x48, 0x89, 0xdc, 0x48, 0x8b, 0x3c, 0x24, 0x48, 0x85, 0xff, 0x74,
];
const MARK: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];
/// `mov x0, x19; cbnz x0, …; b …`: what is under the mask.
const CONTEXT_START_AARCH64: [(u32, u32); 3] = [
    (0xaa13_03e0, u32::MAX),
    (0xb500_0000, 0xff00_001f),
    (0x1400_0000, 0xfc00_0000),
];
/// `bti c`, and the `nop` in its place where the library is built without.
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

/// Who looks for a call before the address to which it returns finds the byte before the function.
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

/// Nothing comes before the code at a program's entry. To be used where nothing else is known.
pub(crate) fn entry(elf: &ElfCode) -> Vec<(u64, u64, Rule)> {
    let ElfCode { entry, .. } = *elf;
    if elf.segment_at(entry).is_none() {
        return Vec::new();
    }
    vec![(entry, entry.saturating_add(ENTRY), Rule::End)]
}

/// Addresses and their rules, to be used where nothing else is known.
pub(crate) fn signal_returns(
    elf: &ElfCode,
    source: &(impl Source + ?Sized),
    spans: &Spans,
) -> Vec<(u64, u64, Rule)> {
    let wanted = signal_return(elf.machine);
    let finder = memmem::Finder::new(wanted);
    let mut found = Vec::new();
    for Gap { start, bytes } in between(elf, source, spans, 0..u64::MAX, MAX_SEARCHED) {
        found.extend(finder.find_iter(&bytes).map(|found| {
            let at = start + found as u64;
            // One byte more, for who looks for a call before the address to which it returns.
            let early = at.saturating_sub(1).max(start);
            (early, at + wanted.len() as u64, Rule::SignalFrame)
        }));
    }
    found
}
