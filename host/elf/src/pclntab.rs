//! The header of `.gopclntab`, Go's function table, in the formats since Go 1.16.
//!
//! ```text
//! header     magic, quantum, number of functions, address of the code, offsets of the parts
//! funcnametab, cutab, filetab, pctab     names, files of each unit, names of files, streams
//! functab    start and record of each function, in the order of the code; the records
//! ```

/// The Go version that introduced the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PclntabVersion {
    Go1_16,
    Go1_18,
    Go1_20,
}

/// Offsets are relative to the start of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pclntab {
    pub version: PclntabVersion,
    /// Unit of instruction distances.
    pub quantum: u8,
    /// Number of functions.
    pub functions: u64,
    /// Address of the code; 0 if not stored.
    pub text: u64,
    pub funcnametab: u64,
    pub cutab: u64,
    pub filetab: u64,
    pub pctab: u64,
    pub functab: u64,
}

impl Pclntab {
    /// The section name; older versions use another one in position-independent programs.
    pub const SECTIONS: [&str; 2] = [".gopclntab", ".data.rel.ro.gopclntab"];

    /// Size of the longest header.
    pub const HEADER: usize = 72;

    /// `None` for unknown versions and 32-bit programs.
    pub fn parse(table: &[u8]) -> Option<Self> {
        let (magic, rest) = table.split_first_chunk::<4>()?;
        let version = match u32::from_le_bytes(*magic) {
            0xffff_fffa => PclntabVersion::Go1_16,
            0xffff_fff0 => PclntabVersion::Go1_18,
            0xffff_fff1 => PclntabVersion::Go1_20,
            _ => return None,
        };
        let (&[_, _, quantum, 8], rest) = rest.split_first_chunk()? else {
            return None;
        };
        let (words, _) = rest.as_chunks();
        let mut words = words.iter().map(|&word| u64::from_le_bytes(word));
        let (functions, _files) = (words.next()?, words.next()?);
        // The address of the code precedes the offsets.
        let text = match version {
            PclntabVersion::Go1_16 => 0,
            PclntabVersion::Go1_18 | PclntabVersion::Go1_20 => words.next()?,
        };
        Some(Self {
            version,
            quantum,
            functions,
            text,
            funcnametab: words.next()?,
            cutab: words.next()?,
            filetab: words.next()?,
            pctab: words.next()?,
            functab: words.next()?,
        })
    }
}
