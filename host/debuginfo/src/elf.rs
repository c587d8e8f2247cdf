//! The headers of an ELF file.

use object::elf::{
    ELFCLASS64, ELFDATA2LSB, ELFMAG, EM_AARCH64, EM_X86_64, FileHeader64, PN_XNUM, ProgramHeader64,
    SHN_XINDEX, SHT_NOBITS, SHT_STRTAB, SectionHeader64,
};
use object::pod::{self, Pod};
use object::{LittleEndian, U32};

use crate::{Refused, Source};

/// The kernel runs no file with more.
const MAX_PROGRAM_HEADERS: u64 = 65_536;
/// Executables have some forty sections, unless their linker kept one for each function.
const MAX_SECTION_HEADERS: u64 = 4 << 20;
/// The longest seen is a few hundred bytes.
const MAX_NAMES: u64 = 4 << 20;

pub type Header = FileHeader64<LittleEndian>;
pub type ProgramHeader = ProgramHeader64<LittleEndian>;
pub type SectionHeader = SectionHeader64<LittleEndian>;
pub const LE: LittleEndian = LittleEndian;

pub struct Elf {
    pub length: u64,
    pub header: Header,
    pub programs: Vec<ProgramHeader>,
    pub sections: Vec<SectionHeader>,
    /// The section with the names of sections, and its content.
    pub names_section: usize,
    names: Vec<u8>,
}

impl Elf {
    pub fn read(source: &(impl Source + ?Sized)) -> Result<Self, Refused> {
        let length = source.length().map_err(|error| Refused::Unreadable {
            what: "the file",
            offset: 0,
            error,
        })?;
        let file = Reading { source, length };
        let header = file.header()?;
        let programs: Vec<ProgramHeader> = file.table(
            "the program headers",
            header.e_phoff.get(LE),
            header.e_phnum.get(LE).into(),
            MAX_PROGRAM_HEADERS,
        )?;
        let sections_at = header.e_shoff.get(LE);
        if sections_at == 0 {
            return Err(Refused::NoNames);
        }
        let what = "the section headers";
        let first = file.table::<SectionHeader>(what, sections_at, 1, MAX_SECTION_HEADERS)?;
        // Where the header has no room for the numbers, the first section has them.
        let (count, names_section) = match &first[..] {
            [first] => (
                match header.e_shnum.get(LE) {
                    0 => first.sh_size.get(LE),
                    count => count.into(),
                },
                match header.e_shstrndx.get(LE) {
                    SHN_XINDEX => first.sh_link.get(LE),
                    index => index.into(),
                },
            ),
            _ => return Err(Refused::NoNames),
        };
        let sections: Vec<SectionHeader> =
            file.table(what, sections_at, count, MAX_SECTION_HEADERS)?;
        let names_section = names_section as usize;
        let names = match sections.get(names_section) {
            Some(section) if section.sh_type.get(LE) == SHT_STRTAB => {
                file.content("the names of sections", section, MAX_NAMES)?
            }
            _ => return Err(unsupported("its sections have no names")),
        };
        Ok(Self {
            length,
            header,
            programs,
            sections,
            names_section,
            names,
        })
    }

    /// Empty where there is none.
    pub fn name(&self, section: &SectionHeader) -> &[u8] {
        let start = section.sh_name.get(LE) as usize;
        let rest = self.names.get(start..).unwrap_or_default();
        let end = rest.iter().position(|&byte| byte == 0);
        rest.get(..end.unwrap_or(0)).unwrap_or_default()
    }

    pub fn find(&self, name: &[u8]) -> Option<&SectionHeader> {
        let is_it = |section: &&SectionHeader| has_data(section) && self.name(section) == name;
        self.sections.iter().find(is_it)
    }

    /// What stands in a section, if that is not too much.
    pub fn content(
        &self,
        source: &(impl Source + ?Sized),
        what: &'static str,
        section: &SectionHeader,
        limit: u64,
    ) -> Result<Vec<u8>, Refused> {
        let length = self.length;
        Reading { source, length }.content(what, section, limit)
    }
}

/// Whether the section has bytes in the file.
pub fn has_data(section: &SectionHeader) -> bool {
    section.sh_type.get(LE) != SHT_NOBITS && section.sh_size.get(LE) > 0
}

/// Whether so much stands there in a file of that length.
pub fn inside(
    what: &'static str,
    offset: u64,
    size: u64,
    length: u64,
) -> Result<std::ops::Range<u64>, Refused> {
    match offset.checked_add(size) {
        Some(end) if end <= length => Ok(offset..end),
        _ => Err(Refused::Outside {
            what,
            offset,
            size,
            length,
        }),
    }
}

fn unsupported(why: &'static str) -> Refused {
    Refused::Unsupported { why }
}

struct Reading<'s, S: ?Sized> {
    source: &'s S,
    length: u64,
}

impl<S: Source + ?Sized> Reading<'_, S> {
    fn header(&self) -> Result<Header, Refused> {
        if self.length < size_of::<Header>() as u64 {
            return Err(unsupported("shorter than an ELF header"));
        }
        let mut bytes = [0; size_of::<Header>()];
        self.read("the ELF header", 0, &mut bytes)?;
        let short = |()| unsupported("shorter than an ELF header");
        let (header, _) = pod::from_bytes::<Header>(&bytes).map_err(short)?;
        let ident = &header.e_ident;
        if ident.magic != ELFMAG {
            return Err(unsupported("it does not begin with ELF's magic number"));
        }
        if ident.class != ELFCLASS64 {
            return Err(unsupported("its class is not 64-bit"));
        }
        if ident.data != ELFDATA2LSB {
            return Err(unsupported("it is not little-endian"));
        }
        if ![EM_X86_64, EM_AARCH64].contains(&header.e_machine.get(LE)) {
            return Err(unsupported("its code is for neither x86-64 nor aarch64"));
        }
        let programs = header.e_phnum.get(LE);
        if programs == PN_XNUM
            || programs > 0 && usize::from(header.e_phentsize.get(LE)) != size_of::<ProgramHeader>()
        {
            return Err(unsupported("its program headers have another size"));
        }
        if header.e_shoff.get(LE) > 0
            && usize::from(header.e_shentsize.get(LE)) != size_of::<SectionHeader>()
        {
            return Err(unsupported("its section headers have another size"));
        }
        Ok(*header)
    }

    /// Nothing is allocated for what is over the limit or outside of the file.
    fn table<T: Pod>(
        &self,
        what: &'static str,
        offset: u64,
        count: u64,
        limit: u64,
    ) -> Result<Vec<T>, Refused> {
        let size = count.saturating_mul(size_of::<T>() as u64);
        self.check(what, offset, size, limit)?;
        let empty = vec![0; size_of::<T>()];
        let Ok((&empty, _)) = pod::from_bytes::<T>(&empty) else {
            return Err(unsupported("its tables cannot be held"));
        };
        let mut table = vec![empty; count as usize];
        self.read(what, offset, pod::bytes_of_slice_mut(&mut table))?;
        Ok(table)
    }

    fn content(
        &self,
        what: &'static str,
        section: &SectionHeader,
        limit: u64,
    ) -> Result<Vec<u8>, Refused> {
        if !has_data(section) {
            return Ok(Vec::new());
        }
        let (offset, size) = (section.sh_offset.get(LE), section.sh_size.get(LE));
        self.check(what, offset, size, limit)?;
        let mut content = vec![0; size as usize];
        self.read(what, offset, &mut content)?;
        Ok(content)
    }

    fn check(&self, what: &'static str, offset: u64, size: u64, limit: u64) -> Result<(), Refused> {
        if size > limit {
            return Err(Refused::TooLarge {
                what,
                offset,
                size,
                limit,
            });
        }
        inside(what, offset, size, self.length).map(|_| ())
    }

    fn read(&self, what: &'static str, offset: u64, buffer: &mut [u8]) -> Result<(), Refused> {
        let unreadable = |error| Refused::Unreadable {
            what,
            offset,
            error,
        };
        self.source.read_at(buffer, offset).map_err(unreadable)
    }
}

/// The descriptor of GNU's build id among notes.
pub fn build_id(notes: &[u8]) -> Option<&[u8]> {
    const GNU_BUILD_ID: u32 = 3;
    let mut rest = notes;
    loop {
        let (numbers, after) = rest.split_first_chunk::<12>()?;
        let ([names, sizes, kinds], _) = pod::from_bytes::<[U32<LittleEndian>; 3]>(numbers).ok()?;
        let name_length = names.get(LE) as usize;
        let length = sizes.get(LE) as usize;
        let name = after.get(..name_length)?;
        let after = after.get(name_length.checked_next_multiple_of(4)?..)?;
        let descriptor = after.get(..length)?;
        if name == b"GNU\0" && kinds.get(LE) == GNU_BUILD_ID && !descriptor.is_empty() {
            return Some(descriptor);
        }
        rest = after.get(length.checked_next_multiple_of(4)?..)?;
    }
}
