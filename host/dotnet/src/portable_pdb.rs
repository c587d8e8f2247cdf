//! Portable PDBs: the source lines of an assembly's IL.
//!
//! Their format is that of an assembly's metadata, with tables of their own. Each method has a blob of sequence points:
//! IL offset, lines, columns, each as the difference from the previous point. A hidden point has no line: it belongs to
//! code of the compiler, which a stack trace attributes to the line before.

use profcol_elf::{Extent, Source};

use crate::bytes::Bytes;
use crate::error::damaged;
use crate::metadata::Metadata;
use crate::tables::Table;
use crate::{DotNetError, PdbId};

/// Sequence points of a method: generated code can have tens of thousands, of four to eight bytes each.
const MAX_SEQUENCE_POINTS: u64 = 1 << 20;
/// The name of a document: a separator and the blobs of the parts.
const MAX_DOCUMENT_NAME: u64 = 1 << 10;
const MAX_PATH: usize = 4 << 10;
/// Lines are below 0xfeefee, which older formats use for hidden points.
const MAX_LINE: u32 = 0x00fe_efee;

#[derive(Debug)]
pub struct PortablePdb {
    metadata: Metadata,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceLine {
    /// The file, as the compiler named it.
    pub document: String,
    pub line: u32,
}

impl PortablePdb {
    /// Reads the PDB of the assembly with this id.
    pub fn read(source: &(impl Source + ?Sized), id: &PdbId) -> Result<Self, DotNetError> {
        let what = "the PDB";
        let size = source.length();
        let file = |size| Extent {
            what,
            offset: 0,
            size,
        };
        let size = size.map_err(|error| file(0).unreadable(error))?;
        let metadata = Metadata::read(source, file(size))?;
        let Some(stream) = metadata.pdb else {
            return Err(damaged("a PDB without id"));
        };
        let own = Extent {
            size: size_of::<PdbId>() as u64,
            ..stream
        };
        match own.read(source, own.size)? == id {
            true => Ok(Self { metadata }),
            false => Err(DotNetError::OtherPdb),
        }
    }

    /// The line of an IL offset of a method, by its row in `MethodDef`.
    pub fn line(
        &self,
        source: &(impl Source + ?Sized),
        method: u32,
        il_offset: u32,
    ) -> Result<Option<SourceLine>, DotNetError> {
        self.find(source, method, |point| point.il_offset <= il_offset)
    }

    /// The line where the method begins.
    pub fn first_line(
        &self,
        source: &(impl Source + ?Sized),
        method: u32,
    ) -> Result<Option<SourceLine>, DotNetError> {
        let mut is_first = true;
        self.find(source, method, |_| std::mem::take(&mut is_first))
    }

    /// The last visible point before the first one that is not wanted.
    fn find(
        &self,
        source: &(impl Source + ?Sized),
        method: u32,
        mut is_wanted: impl FnMut(Point) -> bool,
    ) -> Result<Option<SourceLine>, DotNetError> {
        let table = Table::METHOD_DEBUG_INFORMATION;
        if !(1..=self.metadata.rows(table)).contains(&method) {
            return Ok(None);
        }
        let row = self.metadata.row(source, table, method)?;
        // Of a method without IL.
        if row.get(1) == 0 {
            return Ok(None);
        }
        let blob = self
            .metadata
            .blob(source, row.get(1), MAX_SEQUENCE_POINTS)?;
        let damage = || damaged("sequence points");
        let mut points = Points::new(&blob, row.get(0)).ok_or_else(damage)?;
        let mut found = None;
        while !points.bytes.0.is_empty() {
            let point = points.next().ok_or_else(damage)?;
            if let Some(point) = point {
                if !is_wanted(point) {
                    break;
                }
                found = Some(point);
            }
        }
        let Some(Point { document, line, .. }) = found else {
            return Ok(None);
        };
        Ok(Some(SourceLine {
            document: self.document(source, document)?,
            line,
        }))
    }

    fn document(&self, source: &(impl Source + ?Sized), row: u32) -> Result<String, DotNetError> {
        let row = self.metadata.row(source, Table::DOCUMENT, row)?;
        let name = self.metadata.blob(source, row.get(0), MAX_DOCUMENT_NAME)?;
        let damage = || damaged("the name of a document");
        let mut parts = Bytes(&name);
        // None if zero.
        let separator = parts.u8().ok_or_else(damage)?;
        let mut path = Vec::new();
        let mut is_first = true;
        while !parts.0.is_empty() {
            let part = parts.compressed().ok_or_else(damage)?;
            if !std::mem::take(&mut is_first) && separator != 0 {
                path.push(separator);
            }
            // Zero is the empty part, such as before the root.
            if part != 0 {
                path.extend(self.metadata.blob(source, part, MAX_DOCUMENT_NAME)?);
            }
            if path.len() > MAX_PATH {
                return Err(damaged("the name of a document of more than 4 KiB"));
            }
        }
        Ok(String::from_utf8_lossy(&path).into_owned())
    }
}

#[derive(Clone, Copy, Debug)]
struct Point {
    il_offset: u32,
    document: u32,
    line: u32,
}

struct Points<'b> {
    bytes: Bytes<'b>,
    document: u32,
    /// The previous IL offset.
    il_offset: Option<u32>,
    /// The previous line.
    line: Option<u32>,
}

impl<'b> Points<'b> {
    /// The blob begins with the document if it is not the same for the whole method.
    fn new(blob: &'b [u8], document: u32) -> Option<Self> {
        let mut bytes = Bytes(blob);
        // The signature of the local variables.
        bytes.compressed()?;
        let document = match document {
            0 => bytes.compressed()?,
            _ => document,
        };
        Some(Self {
            bytes,
            document,
            il_offset: None,
            line: None,
        })
    }

    /// Takes a record: a point, or a hidden one or another document.
    fn next(&mut self) -> Option<Option<Point>> {
        let bytes = &mut self.bytes;
        let distance = bytes.compressed()?;
        let il_offset = match self.il_offset {
            Some(_) if distance == 0 => {
                self.document = bytes.compressed()?;
                return Some(None);
            }
            previous => previous.unwrap_or(0).checked_add(distance)?,
        };
        self.il_offset = Some(il_offset);
        let lines = bytes.compressed()?;
        let columns = match lines {
            0 => bytes.compressed()?.cast_signed(),
            _ => bytes.compressed_signed()?,
        };
        if (lines, columns) == (0, 0) {
            return Some(None);
        }
        // Then the column.
        let line = match self.line {
            None => {
                let line = bytes.compressed()?;
                bytes.compressed()?;
                line
            }
            Some(line) => {
                let line = line.checked_add_signed(bytes.compressed_signed()?)?;
                bytes.compressed_signed()?;
                line
            }
        };
        self.line = Some(line);
        Some((line < MAX_LINE).then_some(Point {
            il_offset,
            document: self.document,
            line,
        }))
    }
}
