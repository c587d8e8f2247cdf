//! Finds the parts of a function that compilers moved elsewhere, through its jumps.

use std::collections::BTreeSet;
use std::ops::Range;

use iced_x86::{Decoder, DecoderOptions, FlowControl};
use profcol_ebpf_unwind::Index;
use profcol_elf::{Machine, Source};

use crate::elf_file::ElfFile;

/// The largest loop seen has 85 KiB.
pub const MAX_FUNCTION_BYTES: u64 = 1 << 20;
/// Maximum number of moved parts of a function.
const MAX_PARTS: usize = 64;

/// File ranges of a function, which comes first, and of its moved parts: jump targets with unwind information
/// that are not the start of another function.
pub fn parts<S: Source + ?Sized>(
    executable: &ElfFile<'_, S>,
    function: Range<u64>,
    delta: u64,
) -> Vec<Range<u64>> {
    let index = Index::open(executable.code, executable.source).ok();
    let described = |at: u64| {
        let function = index.as_ref()?.function(executable.source, at)?;
        (function.end - function.start <= MAX_FUNCTION_BYTES).then_some(function)
    };
    let first = described(function.start).unwrap_or(function);
    let code = executable.loaded(first.start, (first.end - first.start) as usize);
    let targets = targets(executable.machine(), &code.unwrap_or_default(), &first);
    let mut parts = vec![first];
    for target in targets {
        if parts.len() >= MAX_PARTS {
            break;
        }
        if parts.iter().any(|part| part.contains(&target)) {
            continue;
        }
        // A jump to the start of a function is a tail call.
        if let Some(part) = described(target)
            && part.start != target
        {
            parts.push(part);
        }
    }
    let offset = |at: u64| at.wrapping_sub(delta);
    let parts = parts.into_iter();
    parts
        .map(|part| offset(part.start)..offset(part.end))
        .collect()
}

/// The targets of direct jumps out of the function.
fn targets(machine: Machine, code: &[u8], function: &Range<u64>) -> BTreeSet<u64> {
    match machine {
        Machine::X86_64 => x86_64(code, function),
        Machine::Aarch64 => aarch64(code, function),
    }
}

fn x86_64(code: &[u8], function: &Range<u64>) -> BTreeSet<u64> {
    let decoder = Decoder::with_ip(64, code, function.start, DecoderOptions::NONE);
    let jumps = decoder.into_iter().filter(|instruction| {
        matches!(
            instruction.flow_control(),
            FlowControl::UnconditionalBranch | FlowControl::ConditionalBranch
        )
    });
    jumps
        .map(|jump| jump.near_branch_target())
        .filter(|target| *target != 0 && !function.contains(target))
        .collect()
}

fn aarch64(code: &[u8], function: &Range<u64>) -> BTreeSet<u64> {
    let (instructions, _) = code.as_chunks();
    let mut found = BTreeSet::new();
    for (&bytes, at) in instructions.iter().zip((function.start..).step_by(4)) {
        let Some(distance) = branch_distance(u32::from_le_bytes(bytes)) else {
            continue;
        };
        let target = at.wrapping_add_signed(distance);
        if !function.contains(&target) {
            found.insert(target);
        }
    }
    found
}

/// The distance of `b`, `b.cond`, `cbz` and `tbz`.
fn branch_distance(instruction: u32) -> Option<i64> {
    // Sign-extends the field.
    let field = |low: u32, bits: u32| {
        let value = instruction << (32 - low - bits);
        i64::from(value as i32 >> (32 - bits)) * 4
    };
    if instruction >> 26 == 0b000101 {
        Some(field(0, 26))
    } else if instruction >> 24 == 0x54 || instruction >> 25 & 0x3f == 0b011010 {
        Some(field(5, 19))
    } else if instruction >> 25 & 0x3f == 0b011011 {
        Some(field(5, 14))
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_jumps_that_leave_the_function() {
        // jmp +0 ; je far ; jmp rax ; call far
        let code = [
            0xeb, 0x00, 0x0f, 0x84, 0x00, 0x10, 0x00, 0x00, 0xff, 0xe0, 0xe8, 0, 0x20, 0, 0,
        ];
        let function = 0x1000..0x1000 + code.len() as u64;
        let found = targets(Machine::X86_64, &code, &function);
        assert_eq!(found, BTreeSet::from([0x2008]));
    }

    #[test]
    fn finds_jumps_on_aarch64() {
        let code: Vec<u8> = [
            0x1400_0400u32, // b +0x1000
            0x5480_0001,    // b.ne -0x100000
            0xb400_8000,    // cbz x0, +0x1000
            0x3600_8000,    // tbz w0, #0, +0x1000
            0x1400_0001,    // b +4
            0x9400_0400,    // bl +0x1000
            0xd65f_03c0,    // ret
        ]
        .iter()
        .flat_map(|word| word.to_le_bytes())
        .collect();
        let function = 0x20_0000..0x20_0000 + code.len() as u64;
        let found = targets(Machine::Aarch64, &code, &function);
        let expected = [0x20_1000, 0x10_0004, 0x20_1008, 0x20_100c];
        assert_eq!(found, BTreeSet::from(expected));
    }
}
