//! Parses the kernel's perf event records about processes.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use profcol_ebpf_common::file::FileId;
use profcol_elf::FileKey;

/// One event, with its time in nanoseconds since boot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessEvent {
    pub time: u64,
    pub pid: u32,
    pub kind: Kind,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Code was mapped, or existing memory became executable.
    Mapped(Mapped),
    Executed,
    /// The process was forked and inherits its parent's mappings.
    Forked {
        parent: u32,
    },
    /// The first thread of the process exited; others may continue.
    Left,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mapped {
    pub start: u64,
    pub end: u64,
    pub offset: u64,
    /// None for anonymous memory.
    pub origin: Option<FileOrigin>,
    /// The path as the process sees it.
    pub path: PathBuf,
}

/// The identity of a file in an event, without the time of the last write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct FileOrigin {
    pub inode: u64,
    /// In the kernel's internal device encoding.
    pub device: u32,
    pub generation: u32,
}

impl FileOrigin {
    const MINOR_BITS: u32 = 20;

    /// The ID of this file, last written at this time.
    pub fn written(&self, time: u64) -> FileId {
        FileId::new(self.inode, self.device, self.generation, time)
    }

    pub fn of(file: FileKey) -> Self {
        Self {
            inode: file.inode,
            device: Self::device(libc::major(file.device), libc::minor(file.device)),
            generation: 0,
        }
    }

    pub fn key(&self) -> FileKey {
        let minor = self.device & ((1 << Self::MINOR_BITS) - 1);
        FileKey {
            device: libc::makedev(self.device >> Self::MINOR_BITS, minor),
            inode: self.inode,
        }
    }

    pub fn device(major: u32, minor: u32) -> u32 {
        major << Self::MINOR_BITS | minor
    }
}

/// A record in the ring.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RingRecord {
    Event(ProcessEvent),
    /// The number of lost records.
    Lost(u64),
    /// Irrelevant here.
    Other,
}

mod kind {
    pub const LOST: u32 = 2;
    pub const COMM: u32 = 3;
    pub const EXIT: u32 = 4;
    pub const FORK: u32 = 7;
    pub const MMAP2: u32 = 10;
}

/// `PERF_RECORD_MISC_COMM_EXEC`: the new name comes from an exec.
const OF_EXEC: u16 = 1 << 13;
const HEADER: usize = 8;
/// The trailer of each record: process, thread and time.
const TRAILER: usize = 16;

/// Parses one complete record. None if it is too short.
pub fn parse(bytes: &[u8]) -> Option<RingRecord> {
    let kind = word(bytes, 0)?;
    let misc = u16::from_le_bytes(bytes.get(4..6)?.try_into().ok()?);
    if kind == kind::LOST {
        return Some(RingRecord::Lost(long(bytes, HEADER + 8)?));
    }
    let time = long(bytes, bytes.len().checked_sub(8)?)?;
    let (pid, second) = (word(bytes, HEADER)?, word(bytes, HEADER + 4)?);
    let thread = word(bytes, HEADER + 8);
    let kind = match kind {
        kind::COMM if misc & OF_EXEC != 0 => Kind::Executed,
        // Ignores new threads of the same process.
        kind::FORK if pid != second => Kind::Forked { parent: second },
        kind::EXIT if thread? == pid => Kind::Left,
        kind::MMAP2 => Kind::Mapped(mapped(bytes)?),
        _ => return Some(RingRecord::Other),
    };
    // In another PID namespace, or already gone.
    if pid == 0 || pid == u32::MAX {
        return Some(RingRecord::Other);
    }
    Some(RingRecord::Event(ProcessEvent { time, pid, kind }))
}

fn mapped(bytes: &[u8]) -> Option<Mapped> {
    let start = long(bytes, 16)?;
    let end = start.checked_add(long(bytes, 24)?)?;
    let origin = FileOrigin {
        device: FileOrigin::device(word(bytes, 40)?, word(bytes, 44)?),
        inode: long(bytes, 48)?,
        generation: long(bytes, 56)? as u32,
    };
    let name = bytes.get(72..bytes.len().checked_sub(TRAILER)?)?;
    let name = name.split(|&byte| byte == 0).next()?;
    let has_file = origin.inode != 0;
    Some(Mapped {
        start,
        end,
        offset: long(bytes, 32)?,
        origin: has_file.then_some(origin),
        path: if has_file {
            OsStr::from_bytes(name).into()
        } else {
            PathBuf::new()
        },
    })
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn long(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Header, body and trailer, as the kernel would write it.
    fn record(kind: u32, misc: u16, words: &[u32], name: &[u8]) -> Vec<u8> {
        let mut body: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        body.extend(name);
        body.resize(body.len().next_multiple_of(8), 0);
        let size = (HEADER + body.len() + TRAILER) as u16;
        let mut bytes = kind.to_le_bytes().to_vec();
        bytes.extend(misc.to_le_bytes());
        bytes.extend(size.to_le_bytes());
        bytes.extend(body);
        bytes.extend([0; 8]);
        bytes.extend(77u64.to_le_bytes());
        bytes
    }

    #[test]
    fn reads_each_kind_of_record_but_no_truncated_one() {
        let check = |bytes: Vec<u8>, expected: Option<(u32, Kind)>| {
            let expected = match expected {
                Some((pid, kind)) => RingRecord::Event(ProcessEvent {
                    time: 77,
                    pid,
                    kind,
                }),
                None => RingRecord::Other,
            };
            assert_eq!(parse(&bytes), Some(expected));
            for length in 0..bytes.len() {
                // Any result is fine as long as it does not panic.
                let _ = parse(&bytes[..length]);
            }
        };
        check(
            record(3, OF_EXEC, &[5, 6], b"name"),
            Some((5, Kind::Executed)),
        );
        check(record(3, 0, &[5, 6], b"name"), None);
        check(
            record(7, 0, &[9, 5, 9, 5, 0, 0], b""),
            Some((9, Kind::Forked { parent: 5 })),
        );
        check(record(7, 0, &[5, 5, 9, 5, 0, 0], b""), None);
        check(
            record(4, 0, &[9, 5, 9, 5, 0, 0], b""),
            Some((9, Kind::Left)),
        );
        check(record(4, 0, &[9, 5, 10, 5, 0, 0], b""), None);
        check(record(4, 0, &[0, 5, 0, 5, 0, 0], b""), None);
        let place = [7, 7, 0x1000, 0, 0x2000, 0, 0x3000, 0];
        let file = [8, 1, 42, 0, 3, 0, 5, 2];
        check(
            record(10, 0, &[place, file].concat(), b"/usr/bin/true\0"),
            Some((
                7,
                Kind::Mapped(Mapped {
                    start: 0x1000,
                    end: 0x3000,
                    offset: 0x3000,
                    origin: Some(FileOrigin {
                        inode: 42,
                        device: 8 << 20 | 1,
                        generation: 3,
                    }),
                    path: "/usr/bin/true".into(),
                }),
            )),
        );
        check(
            record(
                10,
                0,
                &[place, [0, 0, 0, 0, 0, 0, 5, 2]].concat(),
                b"//anon\0",
            ),
            Some((
                7,
                Kind::Mapped(Mapped {
                    start: 0x1000,
                    end: 0x3000,
                    offset: 0x3000,
                    ..Mapped::default()
                }),
            )),
        );
        assert_eq!(
            parse(&record(2, 0, &[1, 0, 12, 0], b"")),
            Some(RingRecord::Lost(12))
        );
    }
}
