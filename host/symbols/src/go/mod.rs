//! `.gopclntab`, Go's table of functions and lines, which is also in stripped programs.
//!
//! ```text
//! header     magic, quantum, number of functions, address of the code, offsets of the parts
//! functab    start and record of each function, in the order of the code
//! record     offsets of its name and of its streams of files and lines
//! pctab      streams of (delta of the value, delta of the address)
//! cutab      of each unit, where the names of its files are
//! ```
//!
//! The inlined calls are stored outside of the table, in a format read here since Go 1.18: each function has a stream
//! that maps addresses to its inlined calls, and each call has a name and an address whose line is the call site.
//! Without it the outer function gets the line.

mod module;

use std::rc::Rc;

use gimli::Reader;
use profcol_elf::{ElfError, LE, Pclntab, PclntabVersion, has_data};

use self::module::{INLINED_1_18, INLINED_1_20, Module};

use crate::frame::Frame;
use crate::image::Image;
use crate::view::{Fuel, Section, View};

/// Reads allowed per address.
const READS: u64 = 1 << 20;
/// How far the code of a program without C code may end before its section.
const PADDING: u64 = 256;
/// Nesting depth of inlined calls.
const MAX_FRAMES: usize = 256;
/// Indices of a function's stream and data about inlined calls.
const INLINED_STREAM: u64 = 2;
const INLINED_DATA: u64 = 3;

pub struct GoTable {
    section: Rc<Section>,
    fuel: Fuel,
    header: Pclntab,
    /// Address of the code.
    text: u64,
    inlined: Option<Inlined>,
}

/// A section, and where the functions' calls start in it.
struct Inlined {
    section: Rc<Section>,
    start: u64,
}

/// A function with its streams.
struct Function {
    record: u64,
    start_line: u32,
    files: u64,
    lines: u64,
    unit: u64,
    /// The stream, and the offset of the calls.
    calls: Option<(u64, u64)>,
}

impl GoTable {
    /// `None` if there is none, or of an unknown version.
    pub fn read(image: &Image) -> Result<Option<Self>, ElfError> {
        let mut names = Pclntab::SECTIONS.iter();
        let Some(header) = names.find_map(|name| image.elf.find(name.as_bytes())) else {
            return Ok(None);
        };
        let section = image.section(header)?;
        image.fuel.fill(READS);
        Ok(Self::parse(image, section, header.sh_addr.get(LE)))
    }

    fn parse(image: &Image, section: Rc<Section>, address: u64) -> Option<Self> {
        let mut view = section.view();
        let mut head = vec![0; view.len().min(Pclntab::HEADER)];
        view.read_slice(&mut head).ok()?;
        let header = Pclntab::parse(&head)?;
        let mut table = Self {
            header,
            text: header.text,
            fuel: image.fuel.clone(),
            section,
            inlined: None,
        };
        let names = address.wrapping_add(header.funcnametab);
        let module = match header.version {
            PclntabVersion::Go1_20 => Module::find(image, address, names, INLINED_1_20),
            PclntabVersion::Go1_18 => Module::find(image, address, names, INLINED_1_18),
            PclntabVersion::Go1_16 => None,
        };
        if header.text == 0 && header.version != PclntabVersion::Go1_16 {
            table.text = match &module {
                Some(module) => module.text,
                None => table.start_of_code(image)?,
            };
        }
        table.inlined = module.and_then(|module| Inlined::find(image, module.inlined));
        Some(table)
    }

    /// Newer versions do not store it, and position-independent programs compute it at start. It is the start of the
    /// section, unless C code comes first.
    fn start_of_code(&self, image: &Image) -> Option<u64> {
        let section = image.elf.find(b".text")?;
        let (end, _) = self.entry(self.header.functions)?;
        let rest = section.sh_size.get(LE).checked_sub(end)?;
        (rest < PADDING).then(|| section.sh_addr.get(LE))
    }

    /// The frames at an address, innermost first; empty if unknown.
    pub fn find(&self, address: u64) -> Vec<Frame> {
        self.fuel.fill(READS);
        self.frames(address).unwrap_or_default()
    }

    fn frames(&self, address: u64) -> Option<Vec<Frame>> {
        let target = address.checked_sub(self.text)?;
        let (mut low, mut high) = (0, self.header.functions);
        while low < high {
            let middle = low + (high - low) / 2;
            match self.entry(middle)? {
                (start, _) if start <= target => low = middle + 1,
                _ => high = middle,
            }
        }
        let (start, record) = self.entry(low.checked_sub(1)?)?;
        // The entry after the last function is the end of its code.
        if low == self.header.functions && self.entry(self.header.functions)?.0 <= target {
            return None;
        }
        let function = self.function(record)?;
        let name = self.text(
            self.header.funcnametab,
            self.u32(self.header.functab, function.record)?.into(),
        )?;
        let mut frames = Vec::new();
        let mut at = target - start;
        while let Some((name, start_line, called_at)) = self.inlined_call(&function, at)
            && frames.len() + 1 < MAX_FRAMES
        {
            frames.push(self.frame(&function, name, start_line, at)?);
            at = called_at;
        }
        frames.push(self.frame(&function, name, function.start_line, at)?);
        Some(frames)
    }

    fn function(&self, record: u64) -> Option<Function> {
        let head = if self.header.version == PclntabVersion::Go1_16 {
            8
        } else {
            4
        };
        let record = record.checked_add(head)?;
        let field = |number: u64| self.u32(self.header.functab, record.checked_add(4 * number)?);
        let (start_line, last) = match self.header.version {
            PclntabVersion::Go1_20 => (field(8).unwrap_or(0), 9),
            PclntabVersion::Go1_16 | PclntabVersion::Go1_18 => (0, 8),
        };
        // The record is followed by its streams and data; its last byte is the number of data items.
        let calls = || {
            self.inlined.as_ref()?;
            let (streams, data) = (u64::from(field(6)?), field(last)? >> 24);
            let is_there = streams > INLINED_STREAM && u64::from(data) > INLINED_DATA;
            let stream = field(last + 1 + INLINED_STREAM).filter(|_| is_there)?;
            let calls = field(streams.checked_add(last + 1 + INLINED_DATA)?);
            Some((stream.into(), calls.filter(|&it| it != u32::MAX)?.into()))
        };
        Some(Function {
            record,
            start_line,
            files: field(4)?.into(),
            lines: field(5)?.into(),
            unit: field(7)?.into(),
            calls: calls(),
        })
    }

    fn frame(&self, function: &Function, name: String, start_line: u32, at: u64) -> Option<Frame> {
        // A function's code is followed by padding, up to the next function.
        let line = u32::try_from(self.value(function.lines, at)?).ok();
        let file = self.value(function.files, at).and_then(|file| {
            let offset = function.unit.checked_add(u64::try_from(file).ok()?)?;
            let offset = self.u32(self.header.cutab, offset.checked_mul(4)?)?;
            self.text(self.header.filetab, offset.into())
        });
        Some(Frame {
            name: name.into(),
            file: file.unwrap_or_default().into(),
            line: line.unwrap_or(0),
            column: 0,
            start_line,
        })
    }

    /// The innermost inlined call at an address: its name, its declaration line, and an address whose line is the call
    /// site.
    fn inlined_call(&self, function: &Function, at: u64) -> Option<(String, u32, u64)> {
        let (stream, calls) = function.calls?;
        let number = u64::try_from(self.value(stream, at)?).ok()?;
        let inlined = self.inlined.as_ref()?;
        // Before version 1.20 the call's file and line precede its name.
        let (size, name) = match self.header.version {
            PclntabVersion::Go1_20 => (16, 4),
            PclntabVersion::Go1_16 | PclntabVersion::Go1_18 => (20, 12),
        };
        let offset = inlined.start.checked_add(calls)?;
        let offset = offset.checked_add(number.checked_mul(size)?)?;
        let mut call = inlined.section.view();
        call.skip(usize::try_from(offset.checked_add(name)?).ok()?)
            .ok()?;
        let mut field = || call.read_u32().ok();
        let (name, called_at) = (field()?, field()?);
        let start_line = match self.header.version {
            PclntabVersion::Go1_20 => field()?,
            PclntabVersion::Go1_16 | PclntabVersion::Go1_18 => 0,
        };
        let name = self.text(self.header.funcnametab, name.into())?;
        Some((name, start_line, called_at.into()))
    }

    /// Start of a function relative to the code, and offset of its record.
    fn entry(&self, number: u64) -> Option<(u64, u64)> {
        let is_last = number == self.header.functions;
        match self.header.version {
            PclntabVersion::Go1_16 => {
                let at = number.checked_mul(16)?;
                let record = if is_last {
                    0
                } else {
                    self.u64(self.header.functab, at + 8)?
                };
                Some((self.u64(self.header.functab, at)?, record))
            }
            PclntabVersion::Go1_18 | PclntabVersion::Go1_20 => {
                let at = number.checked_mul(8)?;
                let record = if is_last {
                    0
                } else {
                    self.u32(self.header.functab, at + 4)?
                };
                Some((self.u32(self.header.functab, at)?.into(), record.into()))
            }
        }
    }

    /// The value of a stream at this offset from the function's start.
    fn value(&self, stream: u64, target: u64) -> Option<i32> {
        // The part starts with a zero, for functions without this stream.
        let mut stream = self.at(self.header.pctab, Some(stream).filter(|&it| it > 0)?)?;
        let (mut value, mut at) = (-1i32, 0u64);
        loop {
            let change = u32::try_from(stream.read_uleb128().ok()?).ok()?;
            if change == 0 && at > 0 {
                return None;
            }
            value = value.wrapping_add((change >> 1) as i32 ^ -((change & 1) as i32));
            let length = stream.read_uleb128().ok()?;
            at = at.checked_add(length.checked_mul(self.header.quantum.into())?)?;
            if target < at {
                return Some(value);
            }
        }
    }

    fn at(&self, part: u64, offset: u64) -> Option<View> {
        let mut view = self.section.view();
        view.skip(usize::try_from(part.checked_add(offset)?).ok()?)
            .ok()?;
        Some(view)
    }

    fn u32(&self, part: u64, offset: u64) -> Option<u32> {
        self.at(part, offset)?.read_u32().ok()
    }

    fn u64(&self, part: u64, offset: u64) -> Option<u64> {
        self.at(part, offset)?.read_u64().ok()
    }

    fn text(&self, part: u64, offset: u64) -> Option<String> {
        self.at(part, offset)?.text_at(0)
    }

    pub fn forget_blocks(&self) {
        self.section.forget_blocks();
        if let Some(inlined) = &self.inlined {
            inlined.section.forget_blocks();
        }
    }
}

impl Inlined {
    /// In the section that contains this address.
    fn find(image: &Image, address: u64) -> Option<Self> {
        let mut sections = image.elf.sections.iter();
        let header = sections.find(|it| {
            let start = address.wrapping_sub(it.sh_addr.get(LE));
            has_data(it) && it.sh_addr.get(LE) > 0 && start < it.sh_size.get(LE)
        })?;
        Some(Self {
            section: image.section(header).ok()?,
            start: address - header.sh_addr.get(LE),
        })
    }
}
