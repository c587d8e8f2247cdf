//! The names by which a prototype calls functions, derived from its instructions as Lua's stack traces do.

use std::collections::HashMap;

use super::function::{Image, string};
use crate::memory::Memory;

/// Maximum number of names per prototype; further calls have none.
const MAX_NAMES: usize = 4096;
/// Instructions before a call that are searched for the one that loaded the function.
const MAX_BEFORE: usize = 256;
/// Bytes of a variable's name.
const MAX_VARIABLE_BYTES: usize = 256;

/// Instructions of LuaJIT 2.1.
mod op {
    pub const MOV: u8 = 18;
    pub const UNM: u8 = 20;
    pub const LEN: u8 = 21;
    /// With a number, a number before, and two variables; five each.
    pub const ARITHMETIC: u8 = 22;
    pub const POW: u8 = 37;
    pub const CAT: u8 = 38;
    pub const KPRI: u8 = 43;
    pub const KNIL: u8 = 44;
    pub const UGET: u8 = 45;
    pub const FNEW: u8 = 51;
    pub const GGET: u8 = 54;
    pub const GSET: u8 = 55;
    pub const TGETV: u8 = 56;
    pub const TGETS: u8 = 57;
    pub const TGETR: u8 = 59;
    pub const TSETV: u8 = 60;
    pub const TSETR: u8 = 64;
    pub const TSETM: u8 = 63;
    pub const CALLM: u8 = 65;
    pub const CALLT: u8 = 68;
    pub const ITERC: u8 = 69;
    pub const ISNEXT: u8 = 72;
    pub const RETM: u8 = 73;
    pub const FORI: u8 = 77;
    pub const JITERL: u8 = 84;
    pub const ISLT: u8 = 0;
    pub const ISGE: u8 = 1;
    pub const ISLE: u8 = 2;
    pub const ISGT: u8 = 3;
    pub const ISEQV: u8 = 4;
    pub const ISNEP: u8 = 11;
    pub const ISTC: u8 = 12;
    pub const ISFC: u8 = 13;
}

const ARITHMETIC: [&str; 5] = ["__add", "__sub", "__mul", "__div", "__mod"];

/// The names of variables that loops use.
const UNNAMED: u8 = 7;

#[derive(Clone, Copy)]
struct Instruction(u32);

impl Instruction {
    fn op(self) -> u8 {
        self.0 as u8
    }

    fn a(self) -> u32 {
        self.0 >> 8 & 0xff
    }

    fn c(self) -> u32 {
        self.0 >> 16 & 0xff
    }

    fn d(self) -> u32 {
        self.0 >> 16
    }

    /// Whether its first operand is the only register that it changes.
    fn sets(self) -> bool {
        matches!(
            self.op(),
            op::ISTC | op::ISFC | op::MOV..=op::KPRI | op::UGET | op::FNEW..=op::GGET | op::TGETV..=op::TGETR
        )
    }

    /// Whether it changes all registers from its first operand on.
    fn sets_rest(self) -> bool {
        let op = self.op();
        op == op::TSETM
            || (op::CALLM..=op::ISNEXT).contains(&op)
            || op == op::RETM
            || (op::FORI..=op::JITERL).contains(&op)
    }

    /// The metamethod that implements it.
    fn metamethod(self) -> Option<&'static str> {
        let op = self.op();
        Some(match op {
            op::ISLT | op::ISGE => "__lt",
            op::ISLE | op::ISGT => "__le",
            op::ISEQV..=op::ISNEP => "__eq",
            op::UNM => "__unm",
            op::LEN => "__len",
            op::ARITHMETIC..op::POW => ARITHMETIC[usize::from(op - op::ARITHMETIC) % 5],
            op::POW => "__pow",
            op::CAT => "__concat",
            op::GGET | op::TGETV..=op::TGETR => "__index",
            op::GSET | op::TSETV..=op::TSETR => "__newindex",
            _ => return None,
        })
    }
}

/// Names by the position of the calling instruction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Calls {
    /// Of those that call functions explicitly.
    names: HashMap<u32, String>,
    operations: Vec<u8>,
}

impl Calls {
    pub fn read(memory: &impl Memory, image: &Image) -> Self {
        let code: Vec<Instruction> = image.instructions().into_iter().map(Instruction).collect();
        let mut names = HashMap::new();
        for (at, instruction) in code.iter().enumerate() {
            if names.len() >= MAX_NAMES {
                break;
            }
            let name = match instruction.op() {
                op::CALLM..=op::CALLT => value(memory, image, &code, at, instruction.a()),
                // The iterator's function is before the copy that is called.
                op::ITERC => {
                    let slot = instruction.a().checked_sub(3);
                    slot.and_then(|slot| value(memory, image, &code, at, slot))
                }
                _ => None,
            };
            if let (Some(name), Ok(at)) = (name, u32::try_from(at)) {
                names.insert(at, name);
            }
        }
        let operations = code.iter().map(|instruction| instruction.op());
        Self {
            names,
            operations: operations.collect(),
        }
    }

    pub fn name(&self, position: u32) -> Option<&str> {
        if let Some(name) = self.names.get(&position) {
            return Some(name);
        }
        let operation = self.operations.get(usize::try_from(position).ok()?)?;
        Instruction(u32::from(*operation)).metamethod()
    }

    /// Its memory size.
    pub fn bytes(&self) -> usize {
        let names = self.names.values();
        let names = names.map(|name| size_of::<(u32, String)>() + name.len());
        names.sum::<usize>() + self.operations.len()
    }
}

/// The name of the value that a register has before an instruction.
fn value(
    memory: &impl Memory,
    image: &Image,
    code: &[Instruction],
    at: usize,
    register: u32,
) -> Option<String> {
    let mut register = register;
    if let Some(name) = variable(image.variables(), at, register) {
        return Some(name);
    }
    // The first instruction begins the function.
    for before in (1..at).rev().take(MAX_BEFORE) {
        let instruction = *code.get(before)?;
        let a = instruction.a();
        if instruction.sets_rest() && register >= a {
            return None;
        }
        if instruction.op() == op::KNIL && (a..=instruction.d()).contains(&register) {
            return None;
        }
        if !instruction.sets() || register != a {
            continue;
        }
        let constant = |number| {
            let text = string(memory, image.constant(number)?).ok()?;
            (!text.is_empty()).then_some(text)
        };
        match instruction.op() {
            op::MOV => {
                register = instruction.d();
                if let Some(name) = variable(image.variables(), before, register) {
                    return Some(name);
                }
            }
            op::GGET => return constant(instruction.d()),
            op::TGETS => return constant(instruction.c()),
            op::UGET => return upvalue(image.upvalue_names(), instruction.d()),
            _ => return None,
        }
    }
    None
}

/// The local variable in a register: for each variable its name, and the distances from the start of the one before to
/// its start, and from there to its end.
fn variable(variables: &[u8], at: usize, register: u32) -> Option<String> {
    let mut rest = variables;
    let mut start = 0u64;
    let mut left = register;
    let at = at as u64;
    while let Some((&kind, after)) = rest.split_first() {
        if kind == 0 {
            return None;
        }
        let mut name: &[u8] = &[];
        if kind < UNNAMED {
            rest = after;
        } else {
            let length = rest
                .iter()
                .take(MAX_VARIABLE_BYTES)
                .position(|&it| it == 0)?;
            (name, rest) = rest.split_at_checked(length)?;
            rest = rest.get(1..)?;
        }
        start = start.saturating_add(number(&mut rest)?);
        if start > at {
            return None;
        }
        let end = start.saturating_add(number(&mut rest)?);
        if at < end {
            if left == 0 {
                let name = String::from_utf8_lossy(name).into_owned();
                return (!name.is_empty()).then_some(name);
            }
            left -= 1;
        }
    }
    None
}

/// A number in groups of seven bits.
fn number(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..35).step_by(7) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

/// The name of a variable of an enclosing function.
fn upvalue(names: &[u8], number: u32) -> Option<String> {
    let name = names.split(|&byte| byte == 0).nth(number as usize)?;
    let name = name.get(..name.len().min(MAX_VARIABLE_BYTES))?;
    let name = String::from_utf8_lossy(name).into_owned();
    (!name.is_empty()).then_some(name)
}
