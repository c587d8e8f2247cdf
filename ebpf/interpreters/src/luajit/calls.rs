//! The names by which a prototype calls functions, derived from its instructions as Lua's stack traces do.

use std::collections::HashMap;

use super::prototype_bytes::PrototypeBytes;
use super::text;
use crate::memory::Memory;

/// Maximum number of calls with names per prototype.
const MAX_NAMES: usize = 4096;
/// Maximum number of instructions and variables looked at for them.
const MAX_STEPS: usize = 1 << 20;
/// Bytes of a variable's name.
const MAX_VARIABLE_BYTES: usize = 256;

/// Instructions of LuaJIT 2.1.
mod op {
    pub const MOV: u8 = 18;
    pub const UNM: u8 = 20;
    pub const LEN: u8 = 21;
    /// Five operations each: `ADDVN` to `MODVN` of a variable and a number, `ADDNV` to `MODNV` the other way round, `ADDVV` to `MODVV`
    /// of two variables.
    pub const ADDVN: u8 = 22;
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
    #[cfg(test)]
    pub const CALL: u8 = 66;
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

/// `VARNAME__MAX`: a smaller first byte stands for a variable that a loop uses, which has no name in the source.
const VARNAME_MAX: u8 = 7;

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
            op::ADDVN..op::POW => ARITHMETIC[usize::from(op - op::ADDVN) % 5],
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
    /// Names of the functions that instructions call explicitly.
    names: HashMap<u32, String>,
    operations: Vec<u8>,
}

impl Calls {
    pub fn read(memory: &impl Memory, prototype: &PrototypeBytes) -> Self {
        let code: Vec<Instruction> = prototype
            .instructions()
            .into_iter()
            .map(Instruction)
            .collect();
        let mut reader = Reader {
            memory,
            prototype,
            code: &code,
            left: MAX_STEPS,
        };
        let calls = code.iter().enumerate().filter_map(|(at, instruction)| {
            let register = match instruction.op() {
                op::CALLM..=op::CALLT => instruction.a(),
                // The iterator's function is before the copy that is called.
                op::ITERC => instruction.a().checked_sub(3)?,
                _ => return None,
            };
            Some((at, register))
        });
        let names = calls.take(MAX_NAMES).filter_map(|(at, register)| {
            let name = reader.value(at, register)?;
            Some((u32::try_from(at).ok()?, name))
        });
        let names = names.collect();
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

    /// Memory that it takes.
    pub fn bytes(&self) -> usize {
        let names = self.names.values();
        let names = names.map(|name| size_of::<(u32, String)>() + name.len());
        names.sum::<usize>() + self.operations.len()
    }
}

struct Reader<'a, M> {
    memory: &'a M,
    prototype: &'a PrototypeBytes,
    code: &'a [Instruction],
    /// Further steps of searches.
    left: usize,
}

impl<M: Memory> Reader<'_, M> {
    fn step(&mut self) -> Option<()> {
        self.left = self.left.checked_sub(1)?;
        Some(())
    }

    /// The name of the value that a register has before an instruction.
    fn value(&mut self, at: usize, register: u32) -> Option<String> {
        let mut register = register;
        if let Some(name) = self.variable(at, register) {
            return Some(name);
        }
        // The first instruction begins the function.
        for before in (1..at).rev() {
            self.step()?;
            let instruction = *self.code.get(before)?;
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
            return match instruction.op() {
                op::MOV => {
                    register = instruction.d();
                    if let Some(name) = self.variable(before, register) {
                        return Some(name);
                    }
                    continue;
                }
                op::GGET => self.constant(instruction.d()),
                op::TGETS => self.constant(instruction.c()),
                op::UGET => upvalue(self.prototype.upvalue_names(), instruction.d()),
                _ => None,
            };
        }
        None
    }

    fn constant(&self, number: u32) -> Option<String> {
        let text = text::read(self.memory, self.prototype.constant(number)?).ok()?;
        (!text.is_empty()).then_some(text)
    }

    /// The local variable in a register: for each variable its name, and the distances from the start of the one before
    /// to its start, and from there to its end.
    fn variable(&mut self, at: usize, register: u32) -> Option<String> {
        let mut rest = self.prototype.variables();
        let mut start = 0u64;
        let mut left = register;
        let at = at as u64;
        while let Some((&kind, after)) = rest.split_first() {
            self.step()?;
            if kind == 0 {
                return None;
            }
            let mut name: &[u8] = &[];
            if kind < VARNAME_MAX {
                rest = after;
            } else {
                let mut text = rest.iter().take(MAX_VARIABLE_BYTES);
                let length = text.position(|&byte| byte == 0)?;
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

#[cfg(test)]
mod tests {
    use std::io;

    use super::super::function::Prototype;
    use super::super::generation;
    use super::*;
    use crate::FunctionError;
    use crate::memory::MemoryError;

    const ADDRESS: u64 = 0x10_000;
    const TEXTS: u64 = 0x20_000;

    /// A prototype, and texts after each other.
    struct Process {
        prototype: Vec<u8>,
        texts: Vec<u8>,
    }

    impl Memory for Process {
        fn read(&self, address: u64, buffer: &mut [u8]) -> Result<(), MemoryError> {
            let places = [(ADDRESS, &self.prototype), (TEXTS, &self.texts)];
            let found = places.iter().find_map(|(start, bytes)| {
                let at = usize::try_from(address.checked_sub(*start)?).ok()?;
                bytes.get(at..at.checked_add(buffer.len())?)
            });
            let Some(found) = found else {
                let error = io::ErrorKind::InvalidInput.into();
                return Err(MemoryError { address, error });
            };
            buffer.copy_from_slice(found);
            Ok(())
        }
    }

    fn instruction(op: u8, a: u8, d: u16) -> u32 {
        u32::from(op) | u32::from(a) << 8 | u32::from(d) << 16
    }

    /// The function of lines 10 to 14 with this code, whose constants are `@shop.lua` and the names, whose first register
    /// is the variable `each` from the second instruction on, and with the upvalue `outer`.
    fn process(code: &[u32], names: &[&str]) -> Process {
        let mut texts = Vec::new();
        let mut addresses = Vec::new();
        for text in ["@shop.lua"].iter().chain(names) {
            addresses.push(TEXTS + texts.len() as u64);
            let mut object = vec![0; 24];
            object[9] = 4;
            object[20] = text.len() as u8;
            object.extend(text.as_bytes());
            object.resize(object.len().next_multiple_of(8), 0);
            texts.extend(object);
        }
        let mut prototype = vec![0; 104];
        prototype.extend(
            code.iter()
                .flat_map(|instruction| instruction.to_le_bytes()),
        );
        prototype.resize(prototype.len().next_multiple_of(8), 0);
        for address in addresses.iter().skip(1).rev() {
            prototype.extend(address.to_le_bytes());
        }
        let put = |prototype: &mut Vec<u8>, at: usize, word: u64| {
            prototype[at..at + 8].copy_from_slice(&word.to_le_bytes());
        };
        let end = |prototype: &Vec<u8>| ADDRESS + prototype.len() as u64;
        let constants = end(&prototype);
        put(&mut prototype, 32, constants);
        let lines = end(&prototype);
        put(&mut prototype, 80, lines);
        prototype.extend((1..code.len()).map(|line| line as u8));
        let upvalues = end(&prototype);
        put(&mut prototype, 88, upvalues);
        prototype.extend(b"outer\0");
        let variables = end(&prototype);
        put(&mut prototype, 96, variables);
        prototype.extend(b"each\0\x01\x40\0");
        let size = prototype.len() as u64;
        put(&mut prototype, 56, size);
        put(&mut prototype, 8, (code.len() as u64) << 32);
        put(&mut prototype, 64, TEXTS);
        put(&mut prototype, 72, 4 << 32 | 10);
        Process { prototype, texts }
    }

    fn read(process: &Process) -> Option<Prototype> {
        let generation = generation(process, ADDRESS).ok()?;
        Prototype::read(process, ADDRESS, generation).ok()
    }

    #[test]
    fn calls_have_the_name_of_what_they_call() {
        let code = [
            instruction(89, 4, 0),
            instruction(op::GGET, 1, 0),
            instruction(op::CALL, 1, 1),
            instruction(op::TGETS, 1, 1),
            instruction(op::CALL, 1, 1),
            instruction(op::UGET, 2, 0),
            instruction(op::MOV, 1, 2),
            instruction(op::CALL, 1, 1),
            instruction(op::CALL, 0, 1),
            instruction(op::TGETV, 1, 1),
            instruction(op::CALL, 1, 1),
            instruction(op::ADDVN, 1, 1),
        ];
        let process = process(&code, &["print", "total"]);
        let read = read(&process).unwrap();
        assert_eq!((&*read.name, &*read.file), ("shop.lua:10", "shop.lua"));
        let names: Vec<_> = [2, 4, 7, 8, 10, 9, 11, 1000]
            .map(|at| read.called(at))
            .into();
        let expected = [
            Some("print"),
            Some("total"),
            Some("outer"),
            Some("each"),
            None,
            Some("__index"),
            Some("__add"),
            None,
        ];
        assert_eq!(names, expected);
        let lines = [0, 1, 11, 12, u32::MAX].map(|position| read.line(position));
        assert_eq!(lines, [10, 11, 21, 0, 0]);
    }

    #[test]
    fn a_file_name_that_was_freed_is_no_name() {
        let process = || process(&[instruction(89, 4, 0)], &[]);
        let generation = generation(&process(), ADDRESS).unwrap();
        let read = |at: usize| {
            let mut process = process();
            process.texts[at] ^= 3;
            Prototype::read(&process, ADDRESS, generation)
        };
        // The mark, which the collector changes.
        assert!(read(8).is_ok());
        // The number of the string, and the end of its text.
        for at in [12, 24 + "@shop.lua".len() - 1] {
            assert!(matches!(read(at), Err(FunctionError::Replaced)));
        }
    }

    #[test]
    fn damage_costs_names_only() {
        let code = [
            instruction(89, 4, 0),
            instruction(op::GGET, 1, 0),
            instruction(op::CALL, 1, 1),
        ];
        let whole = process(&code, &["print"]);
        assert!(read(&whole).is_some());
        for at in 0..whole.prototype.len() {
            for byte in [0, 1, 0x7f, 0xff] {
                let mut damaged = process(&code, &["print"]);
                damaged.prototype[at] = byte;
                if let Some(read) = read(&damaged) {
                    assert!(read.bytes() < 1 << 16);
                }
            }
        }
    }
}
