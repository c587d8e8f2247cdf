//! A function: its name, class, file and lines.

use profcol_ebpf_common::interpreter::php;

use super::layout::FunctionLayout;
use crate::FunctionError;
use crate::memory::Memory;

/// Maximum length of a name or a path; longer ones are truncated.
const MAX_BYTES: usize = 1024;

const INTERNAL: u8 = 1;
const KIND: u64 = 0;
const NAME: u64 = 8;
const SCOPE: u64 = 16;
const CLASS_NAME: u64 = 8;
const STRING_HASH: u64 = 8;
const STRING_LENGTH: u64 = 16;
const STRING_DATA: u64 = 24;

/// The name in PHP's own stack traces.
const MAIN: &str = "{main}";

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PhpFunction {
    pub name: String,
    /// Empty for C functions.
    pub file: String,
    pub first_line: u32,
    pub last_line: u32,
}

/// The value that distinguishes the function at an address from earlier ones.
pub fn generation(
    layout: &FunctionLayout,
    memory: &impl Memory,
    address: u64,
) -> Result<u32, FunctionError> {
    let member = |at: u64| memory.word(address.wrapping_add(at));
    let name = member(NAME)?;
    let mut identity = php::Identity {
        name,
        scope: member(SCOPE)?,
        ..php::Identity::default()
    };
    if member(KIND)? as u8 != INTERNAL {
        identity.name_text = text(memory, name);
        identity.file_text = text(memory, member(layout.file.into())?);
        identity.lines = member(layout.first_line.into())?;
    }
    Ok(identity.generation())
}

/// The hash and the length of a string; 0 if it cannot be read.
fn text(memory: &impl Memory, address: u64) -> [u64; 2] {
    let read = |at: u64| memory.word(address.wrapping_add(at));
    match (read(STRING_HASH), read(STRING_LENGTH)) {
        (Ok(hash), Ok(length)) => [hash, length],
        _ => [0; 2],
    }
}

impl PhpFunction {
    pub fn read(
        layout: &FunctionLayout,
        memory: &impl Memory,
        address: u64,
        expected: u32,
    ) -> Result<Self, FunctionError> {
        if generation(layout, memory, address)? != expected {
            return Err(FunctionError::Replaced);
        }
        let member = |at: u64| memory.word(address.wrapping_add(at));
        let name = match member(NAME)? {
            0 => MAIN.to_owned(),
            name => string(memory, name)?,
        };
        let name = match member(SCOPE)? {
            0 => name,
            class => {
                let class = memory.word(class.wrapping_add(CLASS_NAME))?;
                format!("{}::{name}", string(memory, class)?)
            }
        };
        let mut function = Self {
            name: name.chars().take(MAX_BYTES).collect(),
            ..Self::default()
        };
        if member(KIND)? as u8 != INTERNAL {
            function.file = string(memory, member(layout.file.into())?)?;
            let lines = member(layout.first_line.into())?;
            function.first_line = lines as u32;
            function.last_line = (lines >> 32) as u32;
        }
        // Its data may have been freed before the read.
        if generation(layout, memory, address)? != expected {
            return Err(FunctionError::Replaced);
        }
        Ok(function)
    }

    /// A line of the function; 0 if it is none: in code of the JIT compiler, the register with the
    /// instruction may hold another value.
    pub fn line(&self, line: u32) -> u32 {
        let is_its = (self.first_line..=self.last_line).contains(&line);
        if is_its { line } else { 0 }
    }

    /// Memory that it takes.
    pub fn bytes(&self) -> usize {
        size_of::<Self>() + self.name.len() + self.file.len()
    }
}

/// A `zend_string`.
fn string(memory: &impl Memory, address: u64) -> Result<String, FunctionError> {
    let length = memory.word(address.wrapping_add(STRING_LENGTH))?;
    let length = usize::try_from(length).unwrap_or(usize::MAX).min(MAX_BYTES);
    let bytes = memory.bytes(address.wrapping_add(STRING_DATA), length)?;
    let hash = memory.word(address.wrapping_add(STRING_HASH))?;
    if length < MAX_BYTES && !may_have_hash(&bytes, hash) {
        // Its memory is used for something else by now.
        return Err(FunctionError::Replaced);
    }
    // The name of an anonymous class continues with its location after a NUL byte.
    let name = bytes.split(|&byte| byte == 0).next().unwrap_or_default();
    let text = String::from_utf8_lossy(name);
    Ok(text.chars().take(MAX_BYTES).collect())
}

/// Whether PHP may keep this hash with a string; 0 there means that it is not known yet. Only x86-64 is known to have signed
/// bytes; elsewhere, text that is not ASCII has any hash.
fn may_have_hash(text: &[u8], hash: u64) -> bool {
    hash == 0 || hash == hash_of(text) || !cfg!(target_arch = "x86_64") && !text.is_ascii()
}

fn hash_of(text: &[u8]) -> u64 {
    const INITIAL: u64 = 5381;
    let hash = text.iter().fold(INITIAL, |hash, &byte| {
        let byte = i64::from(byte.cast_signed()).cast_unsigned();
        hash.wrapping_mul(33).wrapping_add(byte)
    });
    hash | 1 << 63
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As PHP's `DJBX33A` has them.
    #[test]
    fn strings_have_the_hashes_of_php() {
        assert_eq!(hash_of(b""), 5381 | 1 << 63);
        assert_eq!(hash_of(b"a"), (5381 * 33 + 97) | 1 << 63);
        assert_eq!(hash_of(b"\xc3"), (5381 * 33 - 61) | 1 << 63);
        assert!(may_have_hash(b"a", 0) && !may_have_hash(b"a", 1));
    }

    #[test]
    fn lines_of_other_code_are_not_shown() {
        let function = PhpFunction {
            first_line: 18,
            last_line: 26,
            ..PhpFunction::default()
        };
        let shown = [0, 17, 18, 22, 26, 27, 4_151_887_248].map(|line| function.line(line));
        assert_eq!(shown, [0, 0, 18, 22, 26, 0, 0]);
    }
}
