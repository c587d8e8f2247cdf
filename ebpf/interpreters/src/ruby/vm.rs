//! The loop and the function that calls it.

use std::ops::Range;

use profcol_ebpf_unwind::Index;
use profcol_elf::{Segment, Source};

use crate::executable::Executable;

pub struct Vm {
    /// `vm_exec_core`.
    pub body: Range<u64>,
    /// `rb_vm_exec`.
    pub entry: Range<u64>,
}

/// Of code that is looked through; the library of 3.3 has 3 MiB.
const MAX_CODE: u64 = 64 << 20;
/// One for each instruction of Ruby; there are some 120 where they are not shared.
const MIN_JUMPS: usize = 64;
const MIN_BODY_BYTES: u64 = 8 << 10;
const MAX_BODY_BYTES: u64 = 1 << 20;

const CALL: u8 = 0xe8;
const CALL_BYTES: usize = 5;
const GROUP: u8 = 0xff;

pub fn find<S: Source + ?Sized>(executable: &Executable<'_, S>) -> Option<Vm> {
    let index = Index::open(executable.code, executable.source).ok()?;
    let function = |at: u64| index.function(executable.source, at);
    let segments = executable.code.segments.iter();
    let codes = segments.filter_map(|segment| Some((segment, code(executable, segment)?)));
    let codes: Vec<(u64, Vec<u8>)> = codes
        .map(|(segment, code)| (segment.address, code))
        .collect();
    let mut best: (usize, Option<Range<u64>>) = (MIN_JUMPS - 1, None);
    let mut current: Option<(usize, Range<u64>)> = None;
    for (start, code) in &codes {
        for at in indirect_jumps(code) {
            let address = start + at as u64;
            match &mut current {
                Some((count, range)) if range.contains(&address) => {
                    *count += 1;
                    if *count > best.0 {
                        best = (*count, Some(range.clone()));
                    }
                }
                _ => {
                    let range = function(address);
                    let range = range.filter(|it| {
                        (MIN_BODY_BYTES..MAX_BODY_BYTES).contains(&(it.end - it.start))
                            && !is_linkage(code, it.start.wrapping_sub(*start))
                    });
                    current = range.map(|range| (1, range));
                }
            }
        }
    }
    let body = best.1?;
    let mut callers = codes
        .iter()
        .flat_map(|(start, code)| calls(code, *start, body.start))
        .filter_map(function);
    let entry = callers.next()?;
    callers
        .all(|caller| caller == entry)
        .then_some(Vm { body, entry })
}

fn code<S: Source + ?Sized>(executable: &Executable<'_, S>, segment: &Segment) -> Option<Vec<u8>> {
    let size = segment.file_size.min(MAX_CODE);
    executable.loaded(segment.address, usize::try_from(size).ok()?)
}

/// Where the code may jump to what a register has or points to. What merely looks so is as frequent
/// everywhere.
fn indirect_jumps(code: &[u8]) -> impl Iterator<Item = usize> {
    let pairs = code.windows(2).enumerate();
    pairs.filter_map(|(at, pair)| {
        let &[first, mode] = pair else {
            return None;
        };
        // By an address in the instruction, as in linkage tables.
        let is_direct = mode & 0xc7 == 0x05;
        let is_jump = first == GROUP && mode >> 3 & 7 == 4 && !is_direct;
        is_jump.then_some(at)
    })
}

/// A linkage table is one function to the unwinder, and begins with `push` of an address.
fn is_linkage(code: &[u8], at: u64) -> bool {
    let bytes = usize::try_from(at).ok().and_then(|at| code.get(at..));
    bytes.is_some_and(|bytes| bytes.starts_with(&[GROUP, 0x35]))
}

/// Where a function is called.
fn calls(code: &[u8], start: u64, function: u64) -> impl Iterator<Item = u64> {
    let windows = code.windows(CALL_BYTES).enumerate();
    windows.filter_map(move |(at, window)| {
        let (&first, rest) = window.split_first()?;
        let distance = i32::from_le_bytes(*rest.first_chunk()?);
        let address = start + at as u64;
        let behind = address.wrapping_add(CALL_BYTES as u64);
        let target = behind.wrapping_add_signed(distance.into());
        (first == CALL && target == function).then_some(address)
    })
}
