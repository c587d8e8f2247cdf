//! Converts a row of call frame information to a rule.
//!
//! A row that no rule can express becomes [`Rule::Unsupported`], never the closest rule.

use gimli::{
    CfaRule, Encoding, EndianSlice, Expression, Format, LittleEndian, Operation, Register,
    RegisterRule, UnwindExpression, UnwindTableRow,
};
use profcol_ebpf_common::rule::{Cfa, PUSHED, ReturnAddress, Rule, SavedFp};
use profcol_elf::Machine;

/// The DWARF numbers of the registers in rules.
struct Registers {
    sp: Register,
    fp: Register,
}

fn registers(machine: Machine) -> Registers {
    match machine {
        Machine::X86_64 => Registers {
            sp: gimli::X86_64::RSP,
            fp: gimli::X86_64::RBP,
        },
        Machine::Aarch64 => Registers {
            sp: gimli::AArch64::SP,
            fp: gimli::AArch64::X29,
        },
    }
}

/// Offsets of registers in the kernel's signal frame, relative to the stack pointer at the return of the handler.
const SIGNAL_RBP: i64 = 120;
const SIGNAL_RSP: i64 = 160;
const SIGNAL_RIP: i64 = 168;

/// A section with call frame information.
pub(crate) type Bytes<'a> = EndianSlice<'a, LittleEndian>;

/// One row of call frame information.
pub(crate) struct Facts<'a> {
    pub machine: Machine,
    /// The section of the row, for its expressions.
    pub section: &'a [u8],
    pub row: &'a UnwindTableRow<usize>,
    pub return_address: Register,
    /// The code returns from a signal, so the next frame's address is not a return address.
    pub signal: bool,
}

/// `register + offset`, or the word at that address, plus a number.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Location {
    register: Register,
    offset: i64,
    /// The number added to the word at that address; none if that is not read.
    plus: Option<i64>,
}

impl<'a> Facts<'a> {
    pub fn rule(&self) -> Rule {
        if self.row.register(self.return_address) == Some(RegisterRule::Undefined) {
            return Rule::End;
        }
        if self.signal {
            return self.signal_frame();
        }
        self.frame().unwrap_or(Rule::Unsupported)
    }

    fn frame(&self) -> Option<Rule> {
        let registers = registers(self.machine);
        if self.row.register(registers.sp).is_some() {
            return None;
        }
        let fp = self.frame_pointer(&registers)?;
        let ra = self.return_address()?;
        let cfa = match *self.row.cfa() {
            CfaRule::RegisterAndOffset { register, offset } => {
                let offset = i32::try_from(offset).ok()?;
                if register == registers.sp {
                    Cfa::Sp(offset)
                } else if register == registers.fp {
                    Cfa::Fp(offset)
                } else {
                    return None;
                }
            }
            CfaRule::Expression(expression) => {
                if let Some(pushed) = self.linkage_entry(&expression) {
                    return (fp == SavedFp::Same && ra == PUSHED).then_some(Rule::Plt { pushed });
                }
                let location = self.location(&expression)?;
                let slot = i32::try_from(location.offset).ok()?;
                let plus = i32::try_from(location.plus?).ok()?;
                if location.register == registers.sp {
                    Cfa::SpSlot { slot, plus }
                } else if location.register == registers.fp {
                    Cfa::FpSlot { slot, plus }
                } else {
                    return None;
                }
            }
        };
        Some(Rule::frame(cfa, fp, ra))
    }

    fn frame_pointer(&self, registers: &Registers) -> Option<SavedFp> {
        match self.row.register(registers.fp) {
            None | Some(RegisterRule::SameValue) => Some(SavedFp::Same),
            Some(RegisterRule::Offset(offset)) => i32::try_from(offset).ok().map(SavedFp::At),
            Some(RegisterRule::Expression(expression)) => {
                let location = self.location(&expression)?;
                let plain = location.register == registers.fp && location.plus.is_none();
                plain.then_some(SavedFp::AtFp(i32::try_from(location.offset).ok()?))
            }
            _ => None,
        }
    }

    fn return_address(&self) -> Option<ReturnAddress> {
        match (self.machine, self.row.register(self.return_address)) {
            (Machine::X86_64, Some(RegisterRule::Offset(-8))) => Some(PUSHED),
            (Machine::X86_64, Some(RegisterRule::Register(gimli::X86_64::RDI))) => {
                Some(ReturnAddress::LinkRegister)
            }
            (Machine::X86_64, _) => None,
            (Machine::Aarch64, None | Some(RegisterRule::SameValue)) => {
                Some(ReturnAddress::LinkRegister)
            }
            (Machine::Aarch64, Some(RegisterRule::Offset(offset))) => {
                i32::try_from(offset).ok().map(ReturnAddress::At)
            }
            (Machine::Aarch64, _) => None,
        }
    }

    fn signal_frame(&self) -> Rule {
        let at = |offset| {
            Some(Location {
                register: gimli::X86_64::RSP,
                offset,
                plus: None,
            })
        };
        let register = |register| match self.row.register(register) {
            Some(RegisterRule::Expression(expression)) => self.location(&expression),
            _ => None,
        };
        let cfa = match self.row.cfa() {
            CfaRule::Expression(expression) => self.location(expression),
            CfaRule::RegisterAndOffset { .. } => None,
        };
        let stack_pointer = Some(Location {
            register: gimli::X86_64::RSP,
            offset: SIGNAL_RSP,
            plus: Some(0),
        });
        let known = match self.machine {
            Machine::X86_64 => {
                cfa == stack_pointer
                    && register(gimli::X86_64::RBP) == at(SIGNAL_RBP)
                    && register(self.return_address) == at(SIGNAL_RIP)
            }
            // The vDSO can only express it as a frame record, which it is not.
            Machine::Aarch64 => true,
        };
        if known {
            Rule::SignalFrame
        } else {
            Rule::Unsupported
        }
    }

    fn expression(&self, expression: &UnwindExpression<usize>) -> Option<Expression<Bytes<'a>>> {
        let end = expression.offset.checked_add(expression.length)?;
        let bytes = self.section.get(expression.offset..end)?;
        Some(Expression(Bytes::new(bytes, LittleEndian)))
    }

    /// Matches `rsp + 8 + ((rip & 15) >= pushed) * 8`, in the only form that linkers write.
    fn linkage_entry(&self, expression: &UnwindExpression<usize>) -> Option<u8> {
        let Expression(bytes) = self.expression(expression)?;
        match *bytes.slice() {
            [
                0x77,
                8,
                0x80,
                0,
                0x3f,
                0x1a,
                literal @ 0x30..=0x3f,
                0x2a,
                0x33,
                0x24,
                0x22,
            ] => Some(literal - 0x30),
            _ => None,
        }
    }

    fn location(&self, expression: &UnwindExpression<usize>) -> Option<Location> {
        let encoding = Encoding {
            address_size: 8,
            format: Format::Dwarf32,
            version: 4,
        };
        let mut operations = self.expression(expression)?.operations(encoding);
        let mut next = || operations.next().ok().flatten();
        let Some(Operation::RegisterOffset {
            register, offset, ..
        }) = next()
        else {
            return None;
        };
        let plus = match next() {
            None => None,
            Some(Operation::Deref {
                size: 8,
                space: false,
                ..
            }) => Some(match next() {
                None => 0,
                Some(Operation::PlusConstant { value }) => i64::try_from(value).ok()?,
                Some(Operation::UnsignedConstant { value }) => {
                    matches!(next(), Some(Operation::Plus)).then_some(())?;
                    i64::try_from(value).ok()?
                }
                Some(_) => return None,
            }),
            Some(_) => return None,
        };
        next().is_none().then_some(Location {
            register,
            offset,
            plus,
        })
    }
}
