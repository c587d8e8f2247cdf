//! `.gopclntab`, Go's table of functions and lines, which is in stripped programs too.
//!
//! ```text
//! header     magic, quantum, number of functions, address of the code, offsets of the parts
//! functab    start and record of each function, in the order of the code
//! record     offsets of its name and of its streams of files and lines
//! pctab      streams of (delta of the value, delta of the address)
//! cutab      of each unit, where the names of its files are
//! ```
//!
//! What was inlined where stands elsewhere, in data that only the program itself finds: the function
//! around it has the line.

use std::rc::Rc;

use gimli::Reader;
use profcol_debuginfo::Refused;
use profcol_debuginfo::elf::LE;

use crate::Frame;
use crate::image::Image;
use crate::view::{Fuel, Section, View};

/// As the table is called; in position-independent programs of older versions otherwise.
const NAMES: [&[u8]; 2] = [b".gopclntab", b".data.rel.ro.gopclntab"];
const MAGIC_1_16: u32 = 0xffff_fffa;
const MAGIC_1_18: u32 = 0xffff_fff0;
const MAGIC_1_20: u32 = 0xffff_fff1;
/// Reads that one address may take.
const READS: u64 = 1 << 20;
/// By how much the code of a program without C may end before its section.
const PADDING: u64 = 256;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Version {
    Go1_16,
    Go1_18,
    Go1_20,
}

pub struct GoTable {
    section: Rc<Section>,
    fuel: Fuel,
    version: Version,
    quantum: u64,
    count: u64,
    /// Address of the code.
    text: u64,
    names: u64,
    units: u64,
    files: u64,
    streams: u64,
    functions: u64,
}

impl GoTable {
    /// `None` where there is none, or it is not of a version that is known.
    pub fn read(image: &Image) -> Result<Option<Self>, Refused> {
        let mut found = NAMES.iter().filter_map(|name| image.elf.find(name));
        let Some(section) = found.next() else {
            return Ok(None);
        };
        let section = image.section(section)?;
        image.fuel.fill(READS);
        Ok(Self::parse(image, section))
    }

    fn parse(image: &Image, section: Rc<Section>) -> Option<Self> {
        let mut view = section.view();
        let version = match view.read_u32().ok()? {
            MAGIC_1_16 => Version::Go1_16,
            MAGIC_1_18 => Version::Go1_18,
            MAGIC_1_20 => Version::Go1_20,
            _ => return None,
        };
        view.skip(2).ok()?;
        let (quantum, pointer) = (view.read_u8().ok()?, view.read_u8().ok()?);
        if pointer != 8 {
            return None;
        }
        let mut word = || view.read_u64().ok();
        let (count, _files) = (word()?, word()?);
        let text = match version {
            Version::Go1_16 => 0,
            Version::Go1_18 | Version::Go1_20 => word()?,
        };
        let mut table = Self {
            version,
            quantum: quantum.into(),
            count,
            text,
            names: word()?,
            units: word()?,
            files: word()?,
            streams: word()?,
            functions: word()?,
            fuel: image.fuel.clone(),
            section,
        };
        if text == 0 && version != Version::Go1_16 {
            table.text = table.start_of_code(image)?;
        }
        Some(table)
    }

    /// Newer versions do not write it, and position-independent programs get it when they start.
    /// It is where the section begins, unless C code is in front.
    fn start_of_code(&self, image: &Image) -> Option<u64> {
        let section = image.elf.find(b".text")?;
        let (end, _) = self.entry(self.count)?;
        let rest = section.sh_size.get(LE).checked_sub(end)?;
        (rest < PADDING).then(|| section.sh_addr.get(LE))
    }

    pub fn find(&self, address: u64) -> Option<Frame> {
        self.fuel.fill(READS);
        let target = address.checked_sub(self.text)?;
        let (mut low, mut high) = (0, self.count);
        while low < high {
            let middle = low + (high - low) / 2;
            match self.entry(middle)? {
                (start, _) if start <= target => low = middle + 1,
                _ => high = middle,
            }
        }
        let (start, record) = self.entry(low.checked_sub(1)?)?;
        // Behind the last function stands its end.
        if low == self.count && self.entry(self.count)?.0 <= target {
            return None;
        }
        let head = if self.version == Version::Go1_16 {
            8
        } else {
            4
        };
        let field = |number: u64| self.u32(self.functions, record.checked_add(head + 4 * number)?);
        let name = self.text(self.names, field(0)?.into())?;
        let value = |number| self.value(field(number)?.into(), target - start);
        // Behind the end of its code is padding, up to the next function.
        let line = u32::try_from(value(5)?).ok();
        let file = value(4).and_then(|file| {
            let unit = u64::from(field(7)?);
            let place = unit
                .checked_add(u64::try_from(file).ok()?)?
                .checked_mul(4)?;
            self.text(self.files, self.u32(self.units, place)?.into())
        });
        let start_line = match self.version {
            Version::Go1_20 => field(8).unwrap_or(0),
            Version::Go1_16 | Version::Go1_18 => 0,
        };
        Some(Frame {
            name: name.into(),
            file: file.unwrap_or_default().into(),
            line: line.unwrap_or(0),
            column: 0,
            start_line,
        })
    }

    /// Start of a function, counted from the code, and offset of its record.
    fn entry(&self, number: u64) -> Option<(u64, u64)> {
        let is_last = number == self.count;
        match self.version {
            Version::Go1_16 => {
                let at = number.checked_mul(16)?;
                let record = if is_last {
                    0
                } else {
                    self.u64(self.functions, at + 8)?
                };
                Some((self.u64(self.functions, at)?, record))
            }
            Version::Go1_18 | Version::Go1_20 => {
                let at = number.checked_mul(8)?;
                let record = if is_last {
                    0
                } else {
                    self.u32(self.functions, at + 4)?
                };
                Some((self.u32(self.functions, at)?.into(), record.into()))
            }
        }
    }

    /// What a stream says of an address so far behind the function's start.
    fn value(&self, stream: u64, target: u64) -> Option<i32> {
        // At the start of the part stands a zero, for functions that have none.
        let mut stream = self.at(self.streams, Some(stream).filter(|&it| it > 0)?)?;
        let (mut value, mut at) = (-1i32, 0u64);
        loop {
            let change = u32::try_from(stream.read_uleb128().ok()?).ok()?;
            if change == 0 && at > 0 {
                return None;
            }
            value = value.wrapping_add((change >> 1) as i32 ^ -((change & 1) as i32));
            let length = stream.read_uleb128().ok()?;
            at = at.checked_add(length.checked_mul(self.quantum)?)?;
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
    }
}
