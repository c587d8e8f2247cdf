//! `perf-<pid>.map`: one line per piece of code, `7f00 40 name` with start and size in hex.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};

use super::names::{JitNames, Lines};

/// Read size.
const CHUNK: usize = 1 << 16;

pub struct PerfMap {
    file: File,
    /// Offset of the first unread line.
    at: u64,
    is_full: bool,
}

impl PerfMap {
    pub fn new(file: File) -> Self {
        Self {
            file,
            at: 0,
            is_full: false,
        }
    }

    /// Reads the lines added since the last call; an incomplete line is left for the next call.
    pub fn read_on(&mut self, names: &mut JitNames, left: &mut usize) -> io::Result<()> {
        let length = self.file.metadata()?.size();
        if length < self.at {
            // The file was rewritten.
            names.forget_all();
            self.at = 0;
            self.is_full = false;
        }
        let mut chunk = vec![0; CHUNK.min(usize::try_from(length - self.at).unwrap_or(CHUNK))];
        while !self.is_full && self.at < length && *left > 0 {
            let read = self.file.read_at(&mut chunk, self.at)?;
            *left = left.saturating_sub(read);
            let text = chunk.get(..read).unwrap_or_default();
            let Some(last) = text.iter().rposition(|&byte| byte == b'\n') else {
                if read < CHUNK {
                    break;
                }
                // Skip lines longer than a chunk.
                self.at += read as u64;
                continue;
            };
            let lines = text.get(..last).unwrap_or_default();
            for line in String::from_utf8_lossy(lines).lines() {
                if let Some((start, size, name)) = parse(line)
                    && !names.insert(start, size, name, Lines::default())
                {
                    self.is_full = true;
                }
            }
            self.at += last as u64 + 1;
        }
        Ok(())
    }
}

fn parse(line: &str) -> Option<(u64, u64, &str)> {
    let (start, rest) = line.split_once(' ')?;
    let (size, name) = rest.split_once(' ')?;
    let number = |text: &str| {
        let digits = text.strip_prefix("0x").unwrap_or(text);
        u64::from_str_radix(digits, 16).ok()
    };
    Some((number(start)?, number(size)?, name))
}
