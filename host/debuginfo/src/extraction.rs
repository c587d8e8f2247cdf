//! The output of a plan, streamed from the file.

use std::fs::File;
use std::io::{self, Read};
use std::time::SystemTime;

use object::pod;

use crate::compress::Reader;
use crate::plan::Plan;
use profcol_elf::Source;

/// Maximum size of a read.
const MAX_BYTES: usize = 256 << 10;

/// The output of a plan. [`is_unchanged`](Self::is_unchanged) returns whether all bytes read so far are from the same
/// version of the file.
pub struct Extraction<S = File> {
    plan: Plan,
    file: S,
    state: Option<State>,
    position: u64,
    packing: Option<Packing>,
}

/// A section that is being compressed.
struct Packing {
    /// Offset in the output.
    to: u64,
    reader: Reader,
    /// Bytes of the current piece already returned.
    used: usize,
}

/// Detects changes of a file. ctime is ignored: it changes when a file is renamed or removed, as happens to programs
/// that are replaced properly.
#[derive(PartialEq, Eq)]
struct State {
    length: u64,
    modified: SystemTime,
}

impl State {
    fn of(file: &File) -> io::Result<Self> {
        let metadata = file.metadata()?;
        Ok(Self {
            length: metadata.len(),
            modified: metadata.modified()?,
        })
    }
}

impl Plan {
    /// Streams the output. `file` must be the one the plan was made for.
    pub fn extract(self, file: File) -> io::Result<Extraction> {
        Extraction::new(self, file)
    }
}

impl Extraction {
    fn new(plan: Plan, file: File) -> io::Result<Self> {
        let state = Some(State::of(&file)?);
        Ok(Self {
            plan,
            file,
            state,
            position: 0,
            packing: None,
        })
    }

    pub fn is_unchanged(&self) -> bool {
        State::of(&self.file).ok() == self.state
    }
}

impl<S: Source> Extraction<S> {
    /// For sources that are not files and so cannot change.
    pub fn of(plan: Plan, source: S) -> Self {
        Self {
            plan,
            file: source,
            state: None,
            position: 0,
            packing: None,
        }
    }

    pub fn size(&self) -> u64 {
        self.plan.size()
    }

    /// The next bytes of a compressed section; 0 if the position is not in one.
    fn read_packed(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let at = self.position;
        let packed = &self.plan.packed;
        let packed = packed.get(packed.partition_point(|packed| packed.end() <= at));
        let Some(packed) = packed.filter(|packed| packed.to <= at) else {
            return Ok(0);
        };
        let packing = match &mut self.packing {
            Some(packing) if packing.to == packed.to => packing,
            before => before.insert(Packing {
                to: packed.to,
                reader: packed.section.reader(),
                used: 0,
            }),
        };
        if packing.used == packing.reader.piece().len() {
            packing.used = 0;
            if packing.reader.next(&self.file)?.is_none() {
                return Err(changed());
            }
        }
        let rest = packing.reader.piece().get(packing.used..);
        let rest = rest.unwrap_or_default();
        let left = usize::try_from(packed.end() - at).unwrap_or(usize::MAX);
        if rest.len() > left {
            return Err(changed());
        }
        let read = (&mut &*rest).read(buffer)?;
        packing.used += read;
        if read == left && packing.reader.next(&self.file)?.is_some() {
            return Err(changed());
        }
        Ok(read)
    }
}

/// The size of a compressed section differs from the first pass.
fn changed() -> io::Error {
    io::ErrorKind::UnexpectedEof.into()
}

impl<S: Source> Read for Extraction<S> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let at = self.position;
        let most = buffer.len().min(MAX_BYTES);
        let own = |bytes: &[u8], start: u64, buffer: &mut [u8]| {
            let start = usize::try_from(at - start).unwrap_or(usize::MAX);
            let rest = bytes.get(start..).unwrap_or_default();
            rest.take(most as u64).read(buffer)
        };
        let head = self.plan.head.len() as u64;
        let read = if at < head {
            own(&self.plan.head, 0, buffer)?
        } else if at >= self.plan.sections_at {
            let sections = pod::bytes_of_slice(&self.plan.sections);
            own(sections, self.plan.sections_at, buffer)?
        } else if let read @ 1.. = self.read_packed(buffer.get_mut(..most).unwrap_or_default())? {
            read
        } else {
            let moves = &self.plan.moves;
            let next = moves.partition_point(|moved| moved.end() <= at);
            let next = moves.get(next);
            let (length, from) = match next {
                Some(moved) if moved.to <= at => {
                    let from = moved.from.start + (at - moved.to);
                    (moved.from.end - from, Some(from))
                }
                Some(moved) => (moved.to - at, None),
                // This includes the padding between compressed sections.
                None => (self.plan.padding_end(at) - at, None),
            };
            let length = most.min(usize::try_from(length).unwrap_or(usize::MAX));
            let buffer = buffer.get_mut(..length).unwrap_or_default();
            match from {
                Some(from) => self.file.read_at(buffer, from)?,
                None => buffer.fill(0),
            }
            length
        };
        self.position += read as u64;
        Ok(read)
    }
}
