//! The code of the virtual machine.

use std::ops::Range;

use iced_x86::{Code, Decoder, DecoderOptions, Instruction, Mnemonic, OpKind, Register};
use profcol_ebpf_common::interpreter::luajit::Layout;
use profcol_ebpf_common::rule::{Cfa, Rule};
use profcol_ebpf_common::table::PAGE_SHIFT;
use profcol_ebpf_unwind::Index;
use profcol_elf::Source;

use crate::elf_file::ElfFile;

/// The ones seen have 14 to 17 KiB.
const BYTES: Range<u64> = 8 << 10..64 << 10;
/// Size of its native frame, with the return address.
const FRAME_BYTES: i32 = 80;
/// Jumps to the code of an instruction; those seen have 90.
const MIN_DISPATCHES: usize = 32;

pub struct VirtualMachine {
    pub range: Range<u64>,
    instructions: Vec<Instruction>,
}

impl VirtualMachine {
    /// None if this is another function.
    pub fn read<S: Source + ?Sized>(
        executable: &ElfFile<'_, S>,
        index: &Index,
        range: Range<u64>,
    ) -> Option<Self> {
        let size = range.end.checked_sub(range.start)?;
        if !BYTES.contains(&size) {
            return None;
        }
        let offset = range
            .start
            .wrapping_sub(executable.code_delta(range.start)?);
        let table = index
            .pages(executable.source, offset >> PAGE_SHIFT, 1)
            .ok()?;
        let Rule::Frame {
            cfa: Cfa::Sp(FRAME_BYTES),
            ..
        } = table.lookup(offset)
        else {
            return None;
        };
        let code = executable.loaded(range.start, usize::try_from(size).ok()?)?;
        let decoder = Decoder::with_ip(64, &code, range.start, DecoderOptions::NONE);
        let machine = Self {
            range,
            instructions: decoder.into_iter().collect(),
        };
        (machine.dispatches().count() >= MIN_DISPATCHES).then_some(machine)
    }

    /// `jmp [r14+register*8]`.
    fn dispatches(&self) -> impl Iterator<Item = &Instruction> {
        self.instructions.iter().filter(|instruction| {
            instruction.code() == Code::Jmp_rm64
                && instruction.op0_kind() == OpKind::Memory
                && instruction.memory_base() == Register::R14
                && instruction.memory_index_scale() == 8
        })
    }

    /// The offsets that depend on the build.
    pub fn layout(&self, delta: u64) -> Option<Layout> {
        // r14 points behind `global_State`.
        let mut distances = self.instructions.iter().filter(|instruction| {
            instruction.mnemonic() == Mnemonic::Add
                && instruction.op0_register() == Register::R14
                && instruction.op1_kind() == OpKind::Immediate32to64
        });
        let distance = distances.next()?.immediate32to64();
        if distances.any(|other| other.immediate32to64() != distance) {
            return None;
        }
        // Entering a trace stores the base, leaving it 0; calls store the state in the word before.
        let stores = |at: i64, register: Option<Register>| {
            self.instructions.iter().any(|instruction| {
                is_store(instruction)
                    && instruction.memory_displacement64() as i64 == at
                    && match register {
                        Some(register) => instruction.op1_register() == register,
                        None => instruction.op1_kind() == OpKind::Immediate32to64,
                    }
            })
        };
        let bases = self.instructions.iter().filter(|instruction| {
            is_store(instruction) && instruction.op1_register() == Register::RDX
        });
        let mut bases = bases.map(|instruction| instruction.memory_displacement64() as i64);
        let base = bases.find(|&at| stores(at, None) && stores(at - 8, Some(Register::RBP)))?;
        let body = self.dispatches().next()?.ip();
        Some(Layout {
            current: u32::try_from(distance.checked_add(base - 8)?).ok()?,
            body: u32::try_from(body.wrapping_sub(delta)).ok()?,
        })
    }
}

/// `mov qword ptr [r14+displacement], ...`.
fn is_store(instruction: &Instruction) -> bool {
    instruction.mnemonic() == Mnemonic::Mov
        && instruction.op0_kind() == OpKind::Memory
        && instruction.memory_base() == Register::R14
        && instruction.memory_index() == Register::None
        && instruction.memory_size().size() == 8
}
