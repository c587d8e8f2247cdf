//! The header of `.gopclntab`, Go's table of functions, as its linker wrote it since 1.16.
//!
//! ```text
//! header     magic, quantum, number of functions, address of the code, offsets of the parts
//! funcnametab, cutab, filetab, pctab     names, files of each unit, names of files, streams
//! functab    start and record of each function, in the order of the code; the records
//! ```

/// Since which version of Go the table looks so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PclntabVersion {
    Go1_16,
    Go1_18,
    Go1_20,
}

/// Offsets count from the start of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pclntab {
    pub version: PclntabVersion,
    /// What distances between instructions are counted in.
    pub quantum: u8,
    /// How many functions there are.
    pub functions: u64,
    /// Address of the code; 0 where it is not written.
    pub text: u64,
    pub funcnametab: u64,
    pub cutab: u64,
    pub filetab: u64,
    pub pctab: u64,
    pub functab: u64,
}

impl Pclntab {
    /// As the section is called; in position-independent programs of older versions otherwise.
    pub const SECTIONS: [&str; 2] = [".gopclntab", ".data.rel.ro.gopclntab"];

    /// Bytes of the longest header.
    pub const HEADER: usize = 72;

    /// `None` where it is not of a version that is known, or not of a 64-bit program.
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
        // The address of the code was added before the offsets.
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
