//! The targets of a jump table.
//!
//! ```text
//! cmp $last, index; ja …      gives the number of entries
//! lea table(%rip), base       addresses relative to the table:
//! movslq (base,index,4), r
//! add base, r; jmp *r
//!
//! jmp *table(,index,8)        or absolute ones, with or without a register in between
//! ```

use iced_x86::{ConditionCode, FlowControl, Instruction, Mnemonic, OpKind, Register};

use super::code::Code;

/// Maximum number of cases of one switch.
const MAX_CASES: u64 = 1 << 12;

enum Entries {
    Relative,
    Whole,
}

/// The targets of a jump, derived from the instructions before it. None if these do not determine all targets.
pub fn targets(
    code: &mut Code<'_>,
    before: &[Instruction],
    jump: &Instruction,
) -> Option<Vec<u64>> {
    let (loads, entries) = match jump.op0_kind() {
        OpKind::Memory => (before.len(), Entries::Whole),
        OpKind::Register => load(before, jump.op0_register())?,
        _ => return None,
    };
    let load = before.get(loads).unwrap_or(jump);
    let before = before.get(..loads)?;
    let table = address(before, load)?;
    let count = count(before)?;
    let (size, scale) = match entries {
        Entries::Relative => (count * 4, 4),
        Entries::Whole => (count * 8, 8),
    };
    if load.memory_index() == Register::None || load.memory_index_scale() != scale {
        return None;
    }
    // An entry costs as much as an instruction.
    code.left = code.left.saturating_sub(count as usize);
    let bytes = code.memory(table, size)?;
    let targets = match entries {
        Entries::Relative => {
            let (entries, _) = bytes.as_chunks();
            let distances = entries.iter().map(|&entry| i32::from_le_bytes(entry));
            distances
                .map(|distance| table.wrapping_add_signed(distance.into()))
                .collect()
        }
        Entries::Whole => {
            let (entries, _) = bytes.as_chunks();
            entries
                .iter()
                .map(|&entry| u64::from_le_bytes(entry))
                .collect()
        }
    };
    Some(targets)
}

/// The instruction that loads a table entry into the register of the jump.
fn load(before: &[Instruction], register: Register) -> Option<(usize, Entries)> {
    let is_to = |instruction: &Instruction| {
        instruction.op_count() > 0
            && instruction.op0_kind() == OpKind::Register
            && instruction.op0_register().full_register() == register
    };
    let (last, instruction) = before.iter().enumerate().rfind(|(_, i)| is_to(i))?;
    match instruction.mnemonic() {
        Mnemonic::Mov if instruction.op1_kind() == OpKind::Memory => Some((last, Entries::Whole)),
        Mnemonic::Add if instruction.op1_kind() == OpKind::Register => {
            let added = [register, instruction.op1_register()];
            let (index, load) = before[..last]
                .iter()
                .enumerate()
                .rfind(|(_, i)| i.mnemonic() == Mnemonic::Movsxd)?;
            let is_its = added.contains(&load.op0_register().full_register())
                && added.contains(&load.memory_base())
                && load.op1_kind() == OpKind::Memory;
            is_its.then_some((index, Entries::Relative))
        }
        _ => None,
    }
}

/// The address of the table that the instruction reads.
fn address(before: &[Instruction], load: &Instruction) -> Option<u64> {
    let offset = load.memory_displacement64();
    if load.memory_base() == Register::None {
        return Some(offset);
    }
    let lea = before.iter().rfind(|instruction| {
        instruction.op_count() > 0
            && instruction.op0_kind() == OpKind::Register
            && instruction.op0_register().full_register() == load.memory_base()
    })?;
    let is_address = lea.mnemonic() == Mnemonic::Lea && lea.is_ip_rel_memory_operand();
    is_address.then(|| lea.ip_rel_memory_address().wrapping_add(offset))
}

/// The number of cases, from the bounds check.
fn count(before: &[Instruction]) -> Option<u64> {
    let index = before
        .iter()
        .rposition(|i| i.flow_control() == FlowControl::ConditionalBranch)?;
    let more = match before[index].condition_code() {
        ConditionCode::a => 1,
        ConditionCode::ae => 0,
        _ => return None,
    };
    let compare = before[..index].last()?;
    let is_constant = compare.mnemonic() == Mnemonic::Cmp
        && compare.op_count() == 2
        && !matches!(
            compare.op1_kind(),
            OpKind::Register | OpKind::Memory | OpKind::NearBranch64
        );
    let count = is_constant
        .then(|| compare.immediate(1))?
        .checked_add(more)?;
    (1..=MAX_CASES).contains(&count).then_some(count)
}
