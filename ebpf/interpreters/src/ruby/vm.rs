//! The loop and the function that calls it.

use std::ops::Range;

use iced_x86::{Decoder, DecoderOptions, FlowControl};
use memchr::memchr_iter;
use profcol_ebpf_unwind::Index;
use profcol_elf::{Segment, Source};

use crate::elf_file::ElfFile;

pub struct Vm {
    /// `vm_exec_core`.
    pub body: Range<u64>,
    /// `rb_vm_exec`.
    pub entry: Range<u64>,
}

/// Maximum amount of code to search; the library of 3.3 has 3 MiB.
const MAX_CODE: u64 = 64 << 20;
/// Minimum number of indirect jumps of the loop; there are about 120, one per Ruby instruction, unless shared.
const MIN_JUMPS: usize = 64;
const MIN_BODY_BYTES: u64 = 8 << 10;
const MAX_BODY_BYTES: u64 = 1 << 20;

const CALL: u8 = 0xe8;
const CALL_BYTES: u64 = 5;
const GROUP: u8 = 0xff;

pub fn find<S: Source + ?Sized>(executable: &ElfFile<'_, S>) -> Option<Vm> {
    let index = Index::open(executable.code, executable.source).ok()?;
    let function = |at: u64| index.function(executable.source, at);
    let segments = executable.code.segments.iter();
    let codes = segments.filter_map(|segment| Some((segment, code(executable, segment)?)));
    let codes: Vec<(u64, Vec<u8>)> = codes
        .map(|(segment, code)| (segment.address, code))
        .collect();
    let mut best: Option<(usize, Range<u64>)> = None;
    let mut end = 0;
    for (start, code) in &codes {
        for at in jump_like(code) {
            let address = start + at as u64;
            if address < end {
                continue;
            }
            let Some(range) = function(address) else {
                continue;
            };
            end = range.end;
            let size = range.end - range.start;
            if !(MIN_BODY_BYTES..MAX_BODY_BYTES).contains(&size) {
                continue;
            }
            let first = range.start.checked_sub(*start);
            let bytes =
                first.and_then(|at| code.get(usize::try_from(at).ok()?..)?.get(..size as usize));
            let count = bytes.map_or(0, |bytes| indirect_jumps(bytes, range.start));
            if count >= best.as_ref().map_or(MIN_JUMPS, |(most, _)| most + 1) {
                best = Some((count, range));
            }
        }
    }
    let (_, body) = best?;
    let mut callers = codes
        .iter()
        .flat_map(|(start, code)| calls(code, *start, body.start))
        .filter_map(function);
    let entry = callers.next()?;
    callers
        .all(|caller| caller == entry)
        .then_some(Vm { body, entry })
}

fn code<S: Source + ?Sized>(executable: &ElfFile<'_, S>, segment: &Segment) -> Option<Vec<u8>> {
    let size = segment.file_size.min(MAX_CODE);
    executable.loaded(segment.address, usize::try_from(size).ok()?)
}

/// Candidate positions of indirect jumps: includes every function with such jumps, and few others.
fn jump_like(code: &[u8]) -> impl Iterator<Item = usize> {
    memchr_iter(GROUP, code).filter(|at| {
        let mode = code.get(at + 1);
        mode.is_some_and(|mode| mode >> 3 & 7 == 4)
    })
}

/// Excludes PLTs, which look like functions to the unwinder but use RIP-relative jumps.
fn indirect_jumps(code: &[u8], start: u64) -> usize {
    let decoder = Decoder::with_ip(64, code, start, DecoderOptions::NONE);
    let jumps = decoder.into_iter().filter(|instruction| {
        instruction.flow_control() == FlowControl::IndirectBranch
            && !instruction.is_ip_rel_memory_operand()
    });
    jumps.count()
}

/// The positions of calls to a function.
fn calls(code: &[u8], start: u64, function: u64) -> impl Iterator<Item = u64> {
    memchr_iter(CALL, code).filter_map(move |at| {
        let distance = i32::from_le_bytes(*code.get(at + 1..)?.first_chunk()?);
        let address = start + at as u64;
        let behind = address.wrapping_add(CALL_BYTES);
        let target = behind.wrapping_add_signed(distance.into());
        (target == function).then_some(address)
    })
}
