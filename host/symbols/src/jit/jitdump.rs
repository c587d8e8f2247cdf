//! jitdump: records of code that was loaded or moved, each with its length.
//!
//! ```text
//! header   magic 4, version 4, its length 4, machine 4, 4, pid 4, time 8, flags 8
//! record   kind 4, its length 4, time 8
//!   load   pid 4, thread 4, 8, address 8, size 8, index 8, name, 0, code
//!   move   pid 4, thread 4, 8, old address 8, new address 8, size 8, index 8
//!   lines  address 8, count 8, then for each: address 8, line 4, 4, file, 0
//! ```
//!
//! Lines precede their code. A file name that is only `ff` repeats that of the previous line.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use super::names::{JitNames, Lines};
use super::unusable::Unusable;

/// In the byte order of this machine.
const MAGIC: u32 = 0x4a69_5444;
const RECORD: usize = 16;
const FIXED: usize = RECORD + 40;
const LOAD: u32 = 0;
const MOVE: u32 = 1;
const LINES: u32 = 2;
/// Size limit of the lines of one piece of code; larger ones are skipped.
const MAX_LINES: u32 = 4 << 20;
const SAME_FILE: &[u8] = &[0xff];
/// The fixed part of a record and the longest name kept.
const CHUNK: usize = FIXED + 1024;

pub struct Jitdump {
    file: File,
    /// Offset of the first unread record.
    at: u64,
    is_full: bool,
    /// The lines of the code at this address, which comes next.
    lines: Option<(u64, Lines)>,
}

impl Jitdump {
    pub fn open(file: File) -> Result<Self, Unusable> {
        let mut header = [0; 12];
        file.read_exact_at(&mut header, 0)?;
        let header_length = match (word(&header, 0), word(&header, 8)) {
            (Some(MAGIC), Some(length)) => length,
            _ => return Err(Unusable::Format),
        };
        Ok(Self {
            file,
            at: header_length.into(),
            is_full: false,
            lines: None,
        })
    }

    /// Reads the records added since the last call, without their code.
    pub fn read_on(&mut self, names: &mut JitNames, left: &mut usize) -> io::Result<()> {
        let length = self.file.metadata()?.len();
        let mut chunk = [0; CHUNK];
        while !self.is_full && self.at + RECORD as u64 <= length && *left > 0 {
            let read = self.file.read_at(&mut chunk, self.at)?;
            *left = left.saturating_sub(read);
            let record = chunk.get(..read).unwrap_or_default();
            let (Some(kind), Some(size)) = (word(record, 0), word(record, 4)) else {
                break;
            };
            let end = self.at + u64::from(size);
            if (size as usize) < RECORD || end > length {
                // Still being written, or damaged: the following records cannot be found.
                break;
            }
            let record = record.get(..size as usize).unwrap_or(record);
            if kind == LINES {
                self.lines = self.read_lines(size, left)?;
            } else {
                let is_room = take(kind, record, &mut self.lines, names);
                self.is_full = !is_room.unwrap_or(true);
            }
            self.at = end;
        }
        Ok(())
    }

    fn read_lines(&self, size: u32, left: &mut usize) -> io::Result<Option<(u64, Lines)>> {
        if size > MAX_LINES {
            return Ok(None);
        }
        let mut record = vec![0; size as usize];
        self.file.read_exact_at(&mut record, self.at)?;
        *left = left.saturating_sub(record.len());
        Ok(lines(&record))
    }
}

/// The lines of a record, even if truncated, and the address of their code.
fn lines(record: &[u8]) -> Option<(u64, Lines)> {
    let code = number(record, RECORD)?;
    let mut lines = Lines::default();
    let mut file = "".into();
    let mut rest = record.get(RECORD + 16..)?;
    while let (Some(address), Some(line)) = (number(rest, 0), word(rest, 8)) {
        let text = rest.get(16..)?;
        let length = text.iter().position(|&byte| byte == 0)?;
        let (name, behind) = text.split_at_checked(length)?;
        if name != SAME_FILE {
            file = String::from_utf8_lossy(name);
        }
        let offset = address.checked_sub(code).map(u32::try_from);
        if let Some(Ok(offset)) = offset {
            lines.add(offset, line, &file);
        }
        rest = behind.get(1..)?;
    }
    Some((code, lines))
}

/// `false` if there is no room left; `None` if the record is too short.
fn take(
    kind: u32,
    record: &[u8],
    lines: &mut Option<(u64, Lines)>,
    names: &mut JitNames,
) -> Option<bool> {
    let number = |at: usize| number(record, at);
    match kind {
        LOAD => {
            let (address, size) = (number(RECORD + 16)?, number(RECORD + 24)?);
            let name = record.get(FIXED..)?.split(|&byte| byte == 0).next()?;
            let lines = lines.take().filter(|(code, _)| *code == address);
            let lines = lines.map(|(_, lines)| lines).unwrap_or_default();
            Some(names.insert(address, size, &String::from_utf8_lossy(name), lines))
        }
        MOVE => {
            let (from, to) = (number(RECORD + 16)?, number(RECORD + 24)?);
            names.move_code(from, to, number(RECORD + 32)?);
            Some(true)
        }
        _ => Some(true),
    }
}

fn number(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}
