//! A method: its name, file and lines.

use super::layout::Layout;
use super::lines::Lines;
use super::members::SourceFile;
use super::{FrameKind, JavaFrame};
use crate::FunctionError;
use crate::memory::Memory;

/// Maximum length of a name; longer ones are truncated.
const MAX_NAME: usize = 1024;
/// Maximum size of the bytecodes and all data after them; a method has at most 64 KiB of bytecode.
const MAX_CONST_METHOD: u64 = 512 << 10;
const HAS_LINES: u64 = 1;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Method {
    /// `java.util.HashMap.put`
    pub name: String,
    pub file: String,
    /// The generation of its frames.
    pub generation: u32,
    lines: Lines,
}

impl Method {
    pub fn read(
        layout: &Layout,
        memory: &impl Memory,
        address: u64,
    ) -> Result<Self, FunctionError> {
        let members = &layout.method;
        let const_method = const_method(layout, memory, address)?;
        let at = |offset: u16| const_method.wrapping_add(offset.into());
        let constants = memory.word(at(members.const_method_constants))?;
        let name = memory.word(at(members.const_method_name))? & 0xffff;
        let name = constant(layout, memory, constants, name)?;
        let holder = memory.word(constants.wrapping_add(members.pool_holder.into()))?;
        let class = memory.word(holder.wrapping_add(members.class_name.into()))?;
        let class = symbol(layout, memory, class)?;
        let file = match members.source_file {
            SourceFile::Class(offset) => holder.wrapping_add(offset.into()),
            SourceFile::Pool(offset) => constants.wrapping_add(offset.into()),
        };
        let file = match memory.word(file)? & 0xffff {
            0 => String::new(),
            index => constant(layout, memory, constants, index)?,
        };
        // Lines are optional.
        let lines = lines(layout, memory, const_method).unwrap_or_default();
        // Its data may have been freed before the read.
        if self::const_method(layout, memory, address)? != const_method {
            return Err(FunctionError::Replaced);
        }
        Ok(Self {
            name: format!("{}.{name}", class_name(&class)),
            file,
            generation: generation(const_method),
            lines,
        })
    }

    /// A frame at a bytecode index, if known.
    pub fn frame(&self, kind: FrameKind, bci: Option<u32>) -> JavaFrame {
        let line = match bci {
            None => self.lines.first(),
            Some(bci) => self.lines.find(bci),
        };
        JavaFrame {
            kind,
            name: self.name.clone(),
            file: self.file.clone(),
            line,
        }
    }

    pub fn bytes(&self) -> usize {
        size_of::<Self>() + self.name.len() + self.file.len() + self.lines.bytes()
    }
}

fn generation(const_method: u64) -> u32 {
    (const_method >> 3) as u32
}

fn const_method(layout: &Layout, memory: &impl Memory, method: u64) -> Result<u64, FunctionError> {
    let field = method.wrapping_add(layout.common.method_const_method.into());
    match memory.word(field)? {
        address if address != 0 && address & 7 == 0 => Ok(address),
        _ => Err(FunctionError::Invalid("a method")),
    }
}

/// A symbol of a constant pool.
fn constant(
    layout: &Layout,
    memory: &impl Memory,
    constants: u64,
    index: u64,
) -> Result<String, FunctionError> {
    let members = &layout.method;
    let length = memory.word(constants.wrapping_add(members.pool_length.into()))? as u32;
    if index == 0 || index >= u64::from(length) {
        return Err(FunctionError::Invalid("an index of a constant"));
    }
    let slot = constants.wrapping_add(u64::from(members.pool_bytes) + index * 8);
    // The lowest bit says whether a constant is resolved.
    symbol(layout, memory, memory.word(slot)? & !1)
}

fn symbol(layout: &Layout, memory: &impl Memory, address: u64) -> Result<String, FunctionError> {
    let members = &layout.method;
    let length = memory.word(address.wrapping_add(members.symbol_length.into()))? & 0xffff;
    let length = (length as usize).min(MAX_NAME);
    let bytes = memory.bytes(address.wrapping_add(members.symbol_body.into()), length)?;
    if bytes.is_empty() {
        return Err(FunctionError::Invalid("a name"));
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The name as in source code. Removes the address from the name of a hidden class, since it differs between
/// processes.
fn class_name(internal: &str) -> String {
    let is_address = |suffix: &str| {
        let digits = suffix.strip_prefix("0x").unwrap_or(suffix);
        !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_hexdigit())
    };
    let visible = match internal.rsplit_once(['+', '/']) {
        Some((class, suffix)) if suffix.starts_with("0x") && is_address(suffix) => class,
        _ => internal,
    };
    visible.replace('/', ".")
}

fn lines(layout: &Layout, memory: &impl Memory, const_method: u64) -> Result<Lines, FunctionError> {
    let members = &layout.method;
    let half = |offset: u16| {
        Ok::<_, FunctionError>(memory.word(const_method.wrapping_add(offset.into()))? as u32)
    };
    let flags = half(members.const_method_flags)?;
    if u64::from(flags) & HAS_LINES == 0 {
        return Ok(Lines::default());
    }
    let code_size = u64::from(half(layout.common.const_method_code_size)? & 0xffff);
    let size = u64::from(half(members.const_method_size)?) * 8;
    let start = u64::from(layout.common.const_method_bytes) + code_size;
    if size > MAX_CONST_METHOD || start >= size {
        return Err(FunctionError::Invalid("a line table"));
    }
    let table = memory.bytes(const_method.wrapping_add(start), (size - start) as usize)?;
    Ok(Lines::parse(&table, layout.nmethod.excludes_zero))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn class_names_match_source_code() {
        for (internal, expected) in [
            ("java/util/HashMap", "java.util.HashMap"),
            ("a/B$$Lambda$14+0x0000000800c03000", "a.B$$Lambda$14"),
            ("a/B$$Lambda/0x00007f0001000400", "a.B$$Lambda"),
            ("a/0xyz", "a.0xyz"),
            ("B", "B"),
        ] {
            assert_eq!(class_name(internal), expected);
        }
    }
}
