//! The effect of an instruction on the stack and the frame pointer, and its control flow.

use iced_x86::{
    FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register,
};

/// Bytes of a return address, and of a pushed register.
pub const WORD: i32 = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Base {
    Sp,
    Fp,
}

/// A memory operand: a register plus this displacement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryOperand {
    pub base: Base,
    pub offset: i32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    Nothing,
    /// The stack grows by this many bytes.
    Grow(i32),
    PushFp,
    PopFp,
    Leave,
    SpIsFp,
    FpIsSp,
    SpIs(MemoryOperand),
    FpIs(MemoryOperand),
    LoadFp(MemoryOperand),
    SaveFp(MemoryOperand),
    ClearFp,
    SystemCall,
    /// It changes in an unsupported way.
    Lose {
        sp: bool,
        fp: bool,
    },
}

/// The control flow after an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    Next,
    Jump(u64),
    Branch(u64),
    /// To an address that is not part of the instruction.
    IndirectJump,
    /// The callee may never return.
    Call(Option<u64>),
    Return,
    /// Execution ends here.
    Stop,
}

impl Flow {
    pub fn of(instruction: &Instruction) -> Self {
        let is_near = instruction.op0_kind() == OpKind::NearBranch64;
        match instruction.flow_control() {
            FlowControl::Return => Self::Return,
            FlowControl::UnconditionalBranch if is_near => {
                Self::Jump(instruction.near_branch_target())
            }
            FlowControl::ConditionalBranch if is_near => {
                Self::Branch(instruction.near_branch_target())
            }
            FlowControl::IndirectBranch => Self::IndirectJump,
            FlowControl::Call if is_near => Self::Call(Some(instruction.near_branch_target())),
            FlowControl::IndirectCall => Self::Call(None),
            // The exit system call does not return either.
            FlowControl::Call if instruction.mnemonic() == Mnemonic::Syscall => Self::Call(None),
            FlowControl::Next if instruction.mnemonic() == Mnemonic::Hlt => Self::Stop,
            FlowControl::Next | FlowControl::XbeginXabortXend => Self::Next,
            _ => Self::Stop,
        }
    }
}

impl Effect {
    pub fn of(instruction: &Instruction, info: &mut InstructionInfoFactory) -> Self {
        let register = |operand: u32| {
            if instruction.op_count() > operand && instruction.op_kind(operand) == OpKind::Register
            {
                instruction.op_register(operand)
            } else {
                Register::None
            }
        };
        let (to, from) = (register(0), register(1));
        let immediate = match instruction.op_count() > 1 {
            true => match instruction.op1_kind() {
                OpKind::Immediate8to64 | OpKind::Immediate32to64 => {
                    i32::try_from(instruction.immediate(1) as i64).ok()
                }
                _ => None,
            },
            false => None,
        };
        let operand = || memory_operand(instruction);
        let lose = |sp: bool| Self::Lose { sp, fp: !sp };
        match (instruction.mnemonic(), to, from) {
            (Mnemonic::Push, Register::RBP, _) => Self::PushFp,
            (Mnemonic::Pop, Register::RBP, _) => Self::PopFp,
            (Mnemonic::Pop, Register::RSP, _) => lose(true),
            (Mnemonic::Leave, ..) => Self::Leave,
            (Mnemonic::Sub, Register::RSP, _) if let Some(bytes) = immediate => Self::Grow(bytes),
            (Mnemonic::Add, Register::RSP, _) if let Some(bytes) = immediate => {
                bytes.checked_neg().map_or(lose(true), Self::Grow)
            }
            (Mnemonic::Mov, Register::RSP, Register::RBP) => Self::SpIsFp,
            (Mnemonic::Mov, Register::RBP, Register::RSP) => Self::FpIsSp,
            (Mnemonic::Lea, Register::RSP, _) => operand().map_or(lose(true), Self::SpIs),
            (Mnemonic::Lea, Register::RBP, _) => operand().map_or(lose(false), Self::FpIs),
            (Mnemonic::Xor, Register::EBP | Register::RBP, from) if from == to => Self::ClearFp,
            (Mnemonic::Syscall, ..) => Self::SystemCall,
            (Mnemonic::Mov, Register::RBP, _) if instruction.op1_kind() == OpKind::Memory => {
                operand().map_or(lose(false), Self::LoadFp)
            }
            (Mnemonic::Mov, Register::None, Register::RBP) => {
                operand().map_or(Self::Nothing, Self::SaveFp)
            }
            _ => Self::of_any(instruction, info),
        }
    }

    fn of_any(instruction: &Instruction, info: &mut InstructionInfoFactory) -> Self {
        // A call restores the stack pointer on return.
        if matches!(
            instruction.flow_control(),
            FlowControl::Call | FlowControl::IndirectCall
        ) {
            return Self::Nothing;
        }
        let moved = instruction.stack_pointer_increment();
        let is_written = |register: Register| {
            let used = info.info(instruction).used_registers().iter();
            used.filter(|used| used.register().full_register() == register)
                .any(|used| {
                    !matches!(
                        used.access(),
                        OpAccess::Read | OpAccess::CondRead | OpAccess::None
                    )
                })
        };
        let mut is_written = is_written;
        let fp = is_written(Register::RBP);
        match (moved, fp) {
            (0, fp) => match is_written(Register::RSP) {
                false if !fp => Self::Nothing,
                sp => Self::Lose { sp, fp },
            },
            (moved, false) => Self::Grow(moved.wrapping_neg()),
            (_, true) => Self::Lose { sp: true, fp },
        }
    }
}

/// The memory operand, or the address computed by `lea`.
fn memory_operand(instruction: &Instruction) -> Option<MemoryOperand> {
    let base = match instruction.memory_base() {
        Register::RSP => Base::Sp,
        Register::RBP => Base::Fp,
        _ => return None,
    };
    let offset = i32::try_from(instruction.memory_displacement64() as i64).ok()?;
    let is_plain = instruction.memory_index() == Register::None;
    is_plain.then_some(MemoryOperand { base, offset })
}
