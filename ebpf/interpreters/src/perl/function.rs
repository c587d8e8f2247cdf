//! The name of a function, and the file and line of a statement in it.

use profcol_ebpf_common::interpreter::perl::{
    Function, TEXT_BYTES, fingerprint, kind, text_fingerprint,
};

use super::layout::NameLayout;
use crate::FunctionError;
use crate::memory::{Memory, MemoryError};

/// Maximum length of a name or a path; longer ones are truncated.
const MAX_BYTES: usize = 1024;
/// Bytes of a text read at once.
const CHUNK_BYTES: usize = 64;

/// `COP`.
const LINE: u64 = 36;
const FILE: u64 = 48;
const SEQUENCE: u64 = 60;

/// `SV`.
const FLAGS: u64 = 12;
const KIND_MASK: u32 = 0xff;
const GLOB: u32 = 9;
const CODE: u32 = 13;
const FORMAT: u32 = 14;
const HASH: u32 = 12;
const CONTENT: u64 = 16;

/// The body of a `CV`.
const CODE_PACKAGE: u64 = 32;
const CODE_GLOB: u64 = 56;
const CODE_FLAGS: u64 = 92;
const NAMED: u32 = 0x8000;
const LEXICAL: u32 = 0x1_0000;

/// The body of a `GV`, and the `GP`.
const GLOB_NAME: u64 = 32;
const GLOB_PACKAGE: u64 = 40;
const EFFECTIVE_GLOB: u64 = 56;

/// The body of an `HV`, and `xpvhv_aux`.
const LAST_ENTRY: u64 = 24;
const NAMES_IN_BODY: u64 = 32;
const NAME_COUNT: u64 = 28;

/// `HEK`; a flag follows the name and a NUL.
const NAME_LENGTH: u64 = 4;
const NAME_TEXT: u64 = 8;
const IS_UTF8: u8 = 1;

/// The package of functions whose own package is gone, and the name of functions without one; as in Perl.
const ANONYMOUS: &str = "__ANON__";

/// A statement and the function that it is in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Statement {
    pub name: String,
    pub file: String,
    /// 0 if the position of the frame is the line.
    pub line: u32,
}

/// The value that distinguishes the statement and function at their addresses from earlier ones.
pub fn generation(
    layout: &NameLayout,
    memory: &impl Memory,
    statement: u64,
    function: u64,
) -> Result<u32, FunctionError> {
    let at = statement & !kind::MASK;
    if !Function::is_in(statement) {
        let file = memory.word(at.wrapping_add(FILE))?;
        return Ok(file_fingerprint(layout, memory, file));
    }
    let hash = match name_of(memory, statement, function)? {
        0 => 0,
        name => half(memory, name)?,
    };
    let sequence = half(memory, at.wrapping_add(SEQUENCE))?;
    let line = half(memory, at.wrapping_add(LINE))?;
    Ok(fingerprint(hash, sequence, line))
}

/// The `HEK` of a function; 0 if it has none.
fn name_of(memory: &impl Memory, statement: u64, function: u64) -> Result<u64, FunctionError> {
    let body = memory.word(function)?;
    if statement & kind::MASK == kind::GLOB {
        return Ok(memory.word(body.wrapping_add(GLOB_NAME))?);
    }
    Ok(memory.word(body.wrapping_add(CODE_GLOB))?)
}

/// 0 if it is unreadable, as in the BPF programs.
fn file_fingerprint(layout: &NameLayout, memory: &impl Memory, file: u64) -> u32 {
    if layout.file_is_glob {
        let hash = || {
            let body = memory.word(file)?;
            let name = memory.word(body.wrapping_add(GLOB_NAME))?;
            half(memory, name)
        };
        return hash().unwrap_or(0);
    }
    let Ok(bytes) = memory.bytes(file, TEXT_BYTES as usize) else {
        return 0;
    };
    let (words, _) = bytes.as_chunks();
    text_fingerprint(|index| {
        words
            .get(index as usize)
            .map_or(0, |word| u64::from_le_bytes(*word))
    })
}

impl Statement {
    pub fn read(
        layout: &NameLayout,
        memory: &impl Memory,
        statement: u64,
        function: u64,
        expected: u32,
    ) -> Result<Self, FunctionError> {
        match Self::read_whole(layout, memory, statement, function, expected) {
            Err(error) => Self::by_kind(statement, &error).ok_or(error),
            read => read,
        }
    }

    /// Code outside of functions is often gone soon, but its name is known.
    fn by_kind(statement: u64, error: &FunctionError) -> Option<Self> {
        let kind = statement & kind::MASK;
        let is_gone = kind == kind::EVAL || !matches!(error, FunctionError::Memory(_));
        Some(Self {
            name: code_kind(kind).filter(|_| is_gone)?.to_owned(),
            ..Self::default()
        })
    }

    fn read_whole(
        layout: &NameLayout,
        memory: &impl Memory,
        statement: u64,
        function: u64,
        expected: u32,
    ) -> Result<Self, FunctionError> {
        let check = || match generation(layout, memory, statement, function)? {
            current if current == expected => Ok(()),
            _ => Err(FunctionError::Replaced),
        };
        check()?;
        let at = statement & !kind::MASK;
        let mut found = Self {
            name: match statement & kind::MASK {
                kind::GLOB => glob_name(layout, memory, function)?,
                kind::FUNCTION => code_name(layout, memory, function)?,
                kind => code_kind(kind)
                    .ok_or(FunctionError::Invalid("the kind of a frame"))?
                    .to_owned(),
            },
            file: file_name(layout, memory, memory.word(at.wrapping_add(FILE))?)?,
            line: 0,
        };
        if Function::is_in(statement) {
            found.line = half(memory, at.wrapping_add(LINE))?;
        }
        // Its data may have been freed before the read.
        check()?;
        Ok(found)
    }

    /// Memory that it takes.
    pub fn bytes(&self) -> usize {
        size_of::<Self>() + self.name.len() + self.file.len()
    }
}

/// The name of code outside of functions.
fn code_kind(kind: u64) -> Option<&'static str> {
    match kind {
        kind::MAIN => Some("<main>"),
        kind::EVAL => Some("(eval)"),
        kind::FILE => Some("require"),
        _ => None,
    }
}

fn file_name(
    layout: &NameLayout,
    memory: &impl Memory,
    file: u64,
) -> Result<String, FunctionError> {
    if file == 0 {
        return Ok(String::new());
    }
    if !layout.file_is_glob {
        return Ok(text(&terminated(memory, file)?, false));
    }
    expect(memory, file, &[GLOB])?;
    let body = memory.word(file)?;
    let name = name(memory, memory.word(body.wrapping_add(GLOB_NAME))?)?;
    Ok(name.strip_prefix("_<").unwrap_or(&name).to_owned())
}

fn glob_name(
    layout: &NameLayout,
    memory: &impl Memory,
    glob: u64,
) -> Result<String, FunctionError> {
    expect(memory, glob, &[GLOB])?;
    let content = memory.word(glob.wrapping_add(CONTENT))?;
    let effective = match memory.word(content.wrapping_add(EFFECTIVE_GLOB)) {
        Ok(effective) if effective != 0 && expect(memory, effective, &[GLOB]).is_ok() => effective,
        _ => glob,
    };
    let body = memory.word(effective)?;
    let package = memory.word(body.wrapping_add(GLOB_PACKAGE))?;
    let name = name(memory, memory.word(body.wrapping_add(GLOB_NAME))?)?;
    qualified(layout, memory, package, &name)
}

fn code_name(
    layout: &NameLayout,
    memory: &impl Memory,
    code: u64,
) -> Result<String, FunctionError> {
    expect(memory, code, &[CODE, FORMAT])?;
    let body = memory.word(code)?;
    let package = memory.word(body.wrapping_add(CODE_PACKAGE))?;
    let flags = half(memory, body.wrapping_add(CODE_FLAGS))?;
    let name = match memory.word(body.wrapping_add(CODE_GLOB))? {
        address if address != 0 && flags & NAMED != 0 => name(memory, address)?,
        _ => ANONYMOUS.to_owned(),
    };
    if flags & LEXICAL != 0 {
        return Ok(name);
    }
    qualified(layout, memory, package, &name)
}

fn qualified(
    layout: &NameLayout,
    memory: &impl Memory,
    package: u64,
    name: &str,
) -> Result<String, FunctionError> {
    let package = match package {
        0 => None,
        package => package_name(layout, memory, package)?,
    };
    let qualified = format!("{}::{name}", package.as_deref().unwrap_or(ANONYMOUS));
    Ok(qualified.chars().take(MAX_BYTES).collect())
}

/// None if the package was deleted.
fn package_name(
    layout: &NameLayout,
    memory: &impl Memory,
    package: u64,
) -> Result<Option<String>, FunctionError> {
    expect(memory, package, &[HASH])?;
    let body = memory.word(package)?;
    let names = if layout.package_in_body {
        body.wrapping_add(NAMES_IN_BODY)
    } else {
        let last = memory.word(body.wrapping_add(LAST_ENTRY))?;
        let entries = memory.word(package.wrapping_add(CONTENT))?;
        entries.wrapping_add(last.wrapping_add(1).wrapping_mul(8))
    };
    let mut first = memory.word(names)?;
    let count = half(memory, names.wrapping_add(NAME_COUNT))? as i32;
    if count != 0 && first != 0 {
        // The first of a list; with a negative number it is not the current one.
        first = memory.word(first.wrapping_add(if count < 0 { 8 } else { 0 }))?;
    }
    match first {
        0 => Ok(None),
        address => Ok(Some(name(memory, address)?)),
    }
}

fn expect(memory: &impl Memory, address: u64, kinds: &[u32]) -> Result<(), FunctionError> {
    let kind = half(memory, address.wrapping_add(FLAGS))? & KIND_MASK;
    if kinds.contains(&kind) {
        return Ok(());
    }
    Err(FunctionError::Invalid("the type of a value"))
}

/// The text of a `HEK`.
fn name(memory: &impl Memory, address: u64) -> Result<String, FunctionError> {
    let length = half(memory, address.wrapping_add(NAME_LENGTH))? as usize;
    if length > MAX_BYTES {
        return Err(FunctionError::Invalid("the length of a name"));
    }
    let mut bytes = memory.bytes(address.wrapping_add(NAME_TEXT), length + 2)?;
    let flags = bytes.pop().unwrap_or_default();
    bytes.pop();
    Ok(text(&bytes, flags & IS_UTF8 != 0))
}

/// Perl stores a text in Latin-1 if possible; bytes of an unknown encoding are mostly UTF-8.
fn text(bytes: &[u8], is_utf8: bool) -> String {
    match str::from_utf8(bytes) {
        Ok(text) => text.to_owned(),
        Err(_) if is_utf8 => String::from_utf8_lossy(bytes).into_owned(),
        Err(_) => bytes.iter().copied().map(char::from).collect(),
    }
}

/// The bytes up to a NUL.
fn terminated(memory: &impl Memory, address: u64) -> Result<Vec<u8>, MemoryError> {
    let mut found = Vec::new();
    let mut at = address;
    while found.len() < MAX_BYTES {
        // Aligned reads do not cross into an unmapped page.
        let size = CHUNK_BYTES - (at as usize & (CHUNK_BYTES - 1));
        let chunk = memory.bytes(at, size)?;
        let text = chunk.split(|&byte| byte == 0).next().unwrap_or_default();
        found.extend_from_slice(text);
        if text.len() < chunk.len() {
            break;
        }
        at = at.wrapping_add(size as u64);
    }
    found.truncate(MAX_BYTES);
    Ok(found)
}

/// The 32-bit number at an address.
fn half(memory: &impl Memory, address: u64) -> Result<u32, FunctionError> {
    let mut bytes = [0; 4];
    memory.read(address, &mut bytes)?;
    Ok(u32::from_le_bytes(bytes))
}
