//! A jitdump: records of code that was loaded or moved, each with its length.
//!
//! ```text
//! header   magic 4, version 4, its length 4, machine 4, 4, pid 4, time 8, flags 8
//! record   kind 4, its length 4, time 8
//!   load   pid 4, thread 4, 8, address 8, size 8, index 8, name, 0, code
//!   move   pid 4, thread 4, 8, old address 8, new address 8, size 8, index 8
//! ```

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use super::Unusable;
use super::names::JitNames;

/// As it stands in a file of this machine's byte order.
const MAGIC: u32 = 0x4a69_5444;
const RECORD: usize = 16;
const FIXED: usize = RECORD + 40;
const LOAD: u32 = 0;
const MOVE: u32 = 1;
/// The fixed part of a record, and as much of a name as is kept.
const CHUNK: usize = FIXED + 1024;

pub struct Jitdump {
    file: File,
    /// Where the first record begins that was not read.
    at: u64,
    is_full: bool,
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
        })
    }

    /// Reads the records that came since the last time, but not the code in them.
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
                // Still being written, or damaged: then nothing behind it can be found.
                break;
            }
            let record = record.get(..size as usize).unwrap_or(record);
            self.is_full = !take(kind, record, names).unwrap_or(true);
            self.at = end;
        }
        Ok(())
    }
}

/// False where there is no room for more; none where the record is too short.
fn take(kind: u32, record: &[u8], names: &mut JitNames) -> Option<bool> {
    let number = |at: usize| Some(u64::from_le_bytes(*record.get(at..)?.first_chunk()?));
    match kind {
        LOAD => {
            let (address, size) = (number(RECORD + 16)?, number(RECORD + 24)?);
            let name = record.get(FIXED..)?.split(|&byte| byte == 0).next()?;
            Some(names.insert(address, size, &String::from_utf8_lossy(name)))
        }
        MOVE => {
            let (from, to) = (number(RECORD + 16)?, number(RECORD + 24)?);
            names.move_code(from, to, number(RECORD + 32)?);
            Some(true)
        }
        _ => Some(true),
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}
