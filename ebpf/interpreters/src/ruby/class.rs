//! Names of classes and modules.

use super::layout::{ClassLayout, SequenceLayout, USER_0};
use super::object::{self, is_object, kind};
use crate::FunctionError;
use crate::memory::Memory;

/// Up to 3.1: the extension pointer in a class, and the table of variables in the extension.
const EXTENSION: u64 = 24;
const VARIABLES: u64 = 8;
const ENTRIES_END: u64 = 40;
const ENTRIES: u64 = 48;
const ENTRY_BYTES: usize = 24;
const ENTRY_KEY: usize = 8;
const ENTRY_VALUE: usize = 16;
/// Maximum number of variables to search for the name; it is one of the first.
const MAX_ENTRIES: u64 = 64;
/// The scope bits of an identifier: whether it begins with `@`, a capital letter and so on.
const SCOPE: u64 = 0xe;

/// The name of a class with the separator before a method name.
pub fn prefix(
    layout: &SequenceLayout,
    memory: &impl Memory,
    class: u64,
) -> Result<Option<String>, FunctionError> {
    let flags = memory.word(class)?;
    let singleton = match layout.classes {
        ClassLayout::Members { singleton, .. } => singleton,
        ClassLayout::Variables | ClassLayout::Unknown => USER_0,
    };
    if !matches!(kind(flags), kind::CLASS | kind::MODULE) {
        return Ok(None);
    }
    if kind(flags) == kind::CLASS && flags & singleton != 0 {
        let Some(object) = attached(layout, memory, class)? else {
            return Ok(None);
        };
        let path = path(layout, memory, object)?;
        return Ok(path.map(|path| path + "."));
    }
    Ok(path(layout, memory, class)?.map(|path| path + "#"))
}

fn path(
    layout: &SequenceLayout,
    memory: &impl Memory,
    class: u64,
) -> Result<Option<String>, FunctionError> {
    let found = match layout.classes {
        ClassLayout::Unknown => None,
        ClassLayout::Members { path, .. } => {
            let path = memory.word(class.wrapping_add(path.into()))?;
            is_object(path).then_some(path)
        }
        ClassLayout::Variables => variable(memory, class, |kind| kind == kind::STRING)?,
    };
    let Some(found) = found else {
        return Ok(None);
    };
    let path = object::string(layout, memory, found)?;
    // The name of an anonymous class begins with `#<Class:`.
    Ok(path.starts_with(char::is_uppercase).then_some(path))
}

/// The class or module of this singleton class.
fn attached(
    layout: &SequenceLayout,
    memory: &impl Memory,
    class: u64,
) -> Result<Option<u64>, FunctionError> {
    let is_named = |kind| matches!(kind, kind::CLASS | kind::MODULE);
    match layout.classes {
        ClassLayout::Unknown => Ok(None),
        ClassLayout::Members { attached, .. } => {
            let object = memory.word(class.wrapping_add(attached.into()))?;
            if !is_object(object) || !is_named(kind(memory.word(object)?)) {
                return Ok(None);
            }
            Ok(Some(object))
        }
        ClassLayout::Variables => variable(memory, class, is_named),
    }
}

/// The hidden variable of a class, by the type of its value.
fn variable(
    memory: &impl Memory,
    class: u64,
    is_it: impl Fn(u64) -> bool,
) -> Result<Option<u64>, FunctionError> {
    let extension = memory.word(class.wrapping_add(EXTENSION))?;
    let table = memory.word(extension.wrapping_add(VARIABLES))?;
    if table == 0 {
        return Ok(None);
    }
    let count = memory
        .word(table.wrapping_add(ENTRIES_END))?
        .min(MAX_ENTRIES);
    let entries = memory.word(table.wrapping_add(ENTRIES))?;
    let entries = memory.bytes(entries, count as usize * ENTRY_BYTES)?;
    for entry in entries.chunks_exact(ENTRY_BYTES) {
        let key = object::word(entry, ENTRY_KEY).unwrap_or(0);
        let value = object::word(entry, ENTRY_VALUE).unwrap_or(0);
        if key & SCOPE == 0 && is_object(value) && is_it(kind(memory.word(value)?)) {
            return Ok(Some(value));
        }
    }
    Ok(None)
}
