//! Metadata (ECMA-335 II.24): heaps of strings, blobs and GUIDs, and tables whose columns are as wide as the heaps and
//! tables to which they point require.
//!
//! ```text
//! "BSJB", version, streams   #~        sizes of heaps, mask of tables, their row counts, their rows
//!                            #Strings  names, each with a NUL
//!                            #Blob     blobs, each after its length
//!                            #GUID     ids of 16 bytes
//!                            #Pdb      in a portable PDB: its id, row counts of the assembly's tables
//! ```

use profcol_elf::{Extent, Source};

use crate::DotNetError;
use crate::bytes::{Bytes, Window, read_at};
use crate::error::{damaged, unsupported};
use crate::tables::{Column, MAX_ROW, TABLES, Table, columns};

/// The root with the list of streams: five of them, with names of at most 32 bytes.
const MAX_ROOT: u64 = 4 << 10;
const MAX_STREAMS: u16 = 16;
/// The header of `#~` with 64 row counts.
const MAX_TABLES_HEADER: u64 = 24 + 64 * 4 + 4;
/// Tokens have 24 bits for the row.
const MAX_ROWS: u32 = 0x00ff_ffff;
/// The runtime refuses longer names.
const MAX_NAME: usize = 1 << 10;
/// Bytes of a name to read at once.
const NAME_PIECE: usize = 64;

#[derive(Clone, Copy, Debug, Default)]
struct Geometry {
    offset: u64,
    rows: u32,
    /// Size of a row.
    size: u8,
}

#[derive(Debug)]
pub(crate) struct Metadata {
    strings: Extent,
    blobs: Extent,
    /// Missing in an assembly.
    pub pdb: Option<Extent>,
    tables: [Geometry; TABLES],
    widths: Widths,
}

/// Which columns have four bytes instead of two.
#[derive(Debug)]
struct Widths {
    heap_sizes: u8,
    /// Row counts, for a portable PDB including those of its assembly.
    rows: [u32; TABLES],
}

impl Widths {
    fn rows(&self, table: u8) -> u32 {
        self.rows.get(usize::from(table)).copied().unwrap_or(0)
    }

    fn of(&self, column: Column) -> u8 {
        let wide = match column {
            Column::U16 => false,
            Column::U32 => true,
            Column::String => self.heap_sizes & 1 != 0,
            Column::Guid => self.heap_sizes & 2 != 0,
            Column::Blob => self.heap_sizes & 4 != 0,
            Column::Row(table) => self.rows(table) > 0xffff,
            Column::Coded(bits, tables) => {
                let most = tables.iter().map(|&table| self.rows(table)).max();
                most.unwrap_or(0) > 0xffff >> bits
            }
        };
        if wide { 4 } else { 2 }
    }
}

impl Metadata {
    pub fn read(source: &(impl Source + ?Sized), range: Extent) -> Result<Self, DotNetError> {
        let root = Extent {
            size: range.size.min(MAX_ROOT),
            ..range
        };
        let root = root.read(source, MAX_ROOT)?;
        let streams = Streams::read(&root, range).ok_or_else(|| damaged("the metadata root"))?;
        if streams.uncompressed {
            return Err(unsupported("uncompressed metadata tables"));
        }
        let tables = streams
            .tables
            .ok_or_else(|| damaged("no metadata tables"))?;
        let mut external = [0; TABLES];
        if let Some(pdb) = streams.pdb {
            read_external_rows(source, pdb, &mut external)?;
        }
        let header = Extent {
            size: tables.size.min(MAX_TABLES_HEADER),
            ..tables
        };
        let bytes = header.read(source, MAX_TABLES_HEADER)?;
        let mut rest = Bytes(&bytes);
        let damage = || damaged("the header of the metadata tables");
        let (heap_sizes, rows) = row_counts(&mut rest).ok_or_else(damage)?;
        let mut widths = Widths {
            heap_sizes,
            rows: external,
        };
        for (all, own) in widths.rows.iter_mut().zip(rows) {
            *all = own.max(*all);
        }
        let mut offset = tables.offset + (bytes.len() - rest.0.len()) as u64;
        let end = tables.offset.saturating_add(tables.size);
        let mut geometry = [Geometry::default(); TABLES];
        for ((number, geometry), rows) in (0..).zip(&mut geometry).zip(rows) {
            if rows == 0 {
                continue;
            }
            let columns = columns(Table(number)).ok_or_else(damage)?;
            let size = columns.iter().map(|&column| widths.of(column)).sum();
            *geometry = Geometry { offset, rows, size };
            offset += u64::from(rows) * u64::from(size);
            if rows > MAX_ROWS || offset > end {
                return Err(damage());
            }
        }
        Ok(Self {
            strings: streams.strings,
            blobs: streams.blobs,
            pdb: streams.pdb,
            tables: geometry,
            widths,
        })
    }

    fn geometry(&self, table: Table) -> Geometry {
        let geometry = self.tables.get(usize::from(table.0));
        geometry.copied().unwrap_or_default()
    }

    pub fn rows(&self, table: Table) -> u32 {
        self.geometry(table).rows
    }

    /// Rows count from 1.
    pub fn row(
        &self,
        source: &(impl Source + ?Sized),
        table: Table,
        row: u32,
    ) -> Result<Row<'_>, DotNetError> {
        let Geometry { offset, rows, size } = self.geometry(table);
        let mut bytes = [0; MAX_ROW];
        let (Some(before), Some(filled)) = (
            row.checked_sub(1).filter(|_| row <= rows),
            bytes.get_mut(..size.into()),
        ) else {
            return Err(damaged("a row outside of its metadata table"));
        };
        let at = u64::from(before) * u64::from(size);
        read_at(source, "a metadata row", offset, at, filled)?;
        Ok(Row {
            widths: &self.widths,
            columns: columns(table).unwrap_or_default(),
            bytes,
        })
    }

    /// The last row whose value in a sorted column is at most this.
    pub fn last_at_most(
        &self,
        source: &(impl Source + ?Sized),
        table: Table,
        column: usize,
        value: u32,
    ) -> Result<Option<u32>, DotNetError> {
        let (mut low, mut high) = (0, self.rows(table));
        while low < high {
            let middle = low + (high - low).div_ceil(2);
            match self.row(source, table, middle)?.get(column) <= value {
                true => low = middle,
                false => high = middle - 1,
            }
        }
        Ok((low > 0).then_some(low))
    }

    /// A name. Not all are valid UTF-8: obfuscators leave out what the runtime does not check.
    pub fn string(&self, source: &(impl Source + ?Sized), at: u32) -> Result<String, DotNetError> {
        let window = Window {
            source,
            extent: self.strings,
        };
        let mut name = Vec::new();
        while name.len() < MAX_NAME {
            let at = u64::from(at) + name.len() as u64;
            let (piece, count) = window.peek::<NAME_PIECE>(at)?;
            let piece = piece.get(..count).unwrap_or_default();
            let end = memchr::memchr(0, piece);
            name.extend_from_slice(piece.get(..end.unwrap_or(count)).unwrap_or_default());
            if end.is_some() {
                return Ok(String::from_utf8_lossy(&name).into_owned());
            }
            if count < NAME_PIECE {
                break;
            }
        }
        Err(damaged("a name without end"))
    }

    /// A blob of limited size.
    pub fn blob(
        &self,
        source: &(impl Source + ?Sized),
        at: u32,
        limit: u64,
    ) -> Result<Vec<u8>, DotNetError> {
        let extent = self.blobs;
        let window = Window { source, extent };
        let (bytes, count) = window.peek::<4>(at.into())?;
        let mut bytes = Bytes(bytes.get(..count).unwrap_or_default());
        let size = bytes.compressed().ok_or_else(|| damaged("a blob"))?;
        let start = u64::from(at) + (count - bytes.0.len()) as u64;
        if start + u64::from(size) > extent.size {
            return Err(damaged("a blob beyond the end of its heap"));
        }
        let blob = Extent {
            what: "a blob",
            offset: extent.offset.saturating_add(start),
            size: size.into(),
        };
        Ok(blob.read(source, limit)?)
    }
}

/// A row of a table, with its columns as numbers.
#[derive(Debug)]
pub(crate) struct Row<'m> {
    widths: &'m Widths,
    columns: &'static [Column],
    bytes: [u8; MAX_ROW],
}

impl Row<'_> {
    /// Zero, which means "none", for a column that the table does not have.
    pub fn get(&self, column: usize) -> u32 {
        let (before, from) = self.columns.split_at_checked(column).unwrap_or_default();
        let start = before.iter().map(|&it| usize::from(self.widths.of(it)));
        let mut bytes = Bytes(self.bytes.get(start.sum()..).unwrap_or_default());
        let width = from.first().map(|&it| self.widths.of(it));
        let value = match width {
            Some(4) => bytes.u32(),
            Some(_) => bytes.u16().map(u32::from),
            None => None,
        };
        value.unwrap_or(0)
    }

    /// A coded index as table and row.
    pub fn coded(&self, column: usize) -> Option<(Table, u32)> {
        match self.columns.get(column)? {
            &Column::Coded(bits, tables) => coded(self.get(column), bits, tables),
            _ => None,
        }
    }
}

pub(crate) fn coded(value: u32, bits: u32, tables: &[u8]) -> Option<(Table, u32)> {
    let tag = value & ((1 << bits) - 1);
    let &table = tables.get(tag as usize)?;
    Some((Table(table), value >> bits))
}

struct Streams {
    tables: Option<Extent>,
    strings: Extent,
    blobs: Extent,
    pdb: Option<Extent>,
    /// Tables as the debugger's "edit and continue" leaves them.
    uncompressed: bool,
}

impl Streams {
    fn read(root: &[u8], range: Extent) -> Option<Self> {
        let empty = |what| Extent {
            what,
            size: 0,
            ..range
        };
        let mut streams = Self {
            tables: None,
            strings: empty("a name"),
            blobs: empty("a blob"),
            pdb: None,
            uncompressed: false,
        };
        let mut bytes = Bytes(root);
        if bytes.array()? != *b"BSJB" {
            return None;
        }
        bytes.take(8)?;
        let version = bytes.u32()?;
        bytes.take(version.try_into().ok()?)?;
        bytes.take(2)?;
        let count = bytes.u16()?;
        if count > MAX_STREAMS {
            return None;
        }
        for _ in 0..count {
            let (offset, size) = (u64::from(bytes.u32()?), u64::from(bytes.u32()?));
            let end = memchr::memchr(0, bytes.0)?;
            let name = bytes.take(end)?;
            bytes.take(4 - end % 4)?;
            if offset + size > range.size {
                return None;
            }
            let stream = |what| Extent {
                what,
                offset: range.offset.saturating_add(offset),
                size,
            };
            match name {
                b"#~" => streams.tables = Some(stream("the metadata tables")),
                b"#-" => streams.uncompressed = true,
                b"#Strings" => streams.strings = stream("a name"),
                b"#Blob" => streams.blobs = stream("a blob"),
                b"#Pdb" => streams.pdb = Some(stream("the id of a PDB")),
                _ => {}
            }
        }
        Some(streams)
    }
}

/// The sizes of the heaps and the row counts.
fn row_counts(bytes: &mut Bytes<'_>) -> Option<(u8, [u32; TABLES])> {
    bytes.take(6)?;
    let heap_sizes = bytes.u8()?;
    bytes.take(1)?;
    let tables = bytes.u64()?;
    bytes.take(8)?;
    let rows = masked_rows(bytes, tables)?;
    // A field without meaning follows.
    if heap_sizes & 0x40 != 0 {
        bytes.take(4)?;
    }
    Some((heap_sizes, rows))
}

/// The row counts of the tables in the mask.
fn masked_rows(bytes: &mut Bytes<'_>, mask: u64) -> Option<[u32; TABLES]> {
    let mut rows = [0; TABLES];
    for (number, rows) in rows.iter_mut().enumerate() {
        if mask >> number & 1 != 0 {
            *rows = bytes.u32()?;
        }
    }
    Some(rows)
}

/// `#Pdb`: id of 20 bytes, entry point, mask and row counts of the tables of the assembly.
fn read_external_rows(
    source: &(impl Source + ?Sized),
    pdb: Extent,
    rows: &mut [u32; TABLES],
) -> Result<(), DotNetError> {
    let limit = 32 + 4 * TABLES as u64;
    let pdb = Extent {
        size: pdb.size.min(limit),
        ..pdb
    };
    let bytes = pdb.read(source, limit)?;
    let mut bytes = Bytes(&bytes);
    let mut read = || {
        bytes.take(24)?;
        let mask = bytes.u64()?;
        masked_rows(&mut bytes, mask)
    };
    *rows = read().ok_or_else(|| damaged("the row counts in a PDB"))?;
    Ok(())
}
