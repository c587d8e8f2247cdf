//! Small handmade ELF files.

use object::elf::{
    ELFCLASS64, ELFDATA2LSB, ELFMAG, EM_X86_64, ET_DYN, FileHeader64, Ident, PT_LOAD, PT_NOTE,
    SHT_PROGBITS, SHT_STRTAB,
};
use object::pod::bytes_of;

use profcol_elf::{Header, LE, ProgramHeader, SectionHeader};

type U16 = object::U16<object::LittleEndian>;
type U32 = object::U32<object::LittleEndian>;
type U64 = object::U64<object::LittleEndian>;

pub struct Image {
    pub header: Header,
    pub programs: Vec<ProgramHeader>,
    pub sections: Vec<SectionHeader>,
    names: Vec<u8>,
    contents: Vec<u8>,
}

/// After the ELF header and the program headers.
const CONTENTS: u64 = 64 + 3 * 56;

pub fn program(kind: u32, offset: u64, size: u64) -> ProgramHeader {
    ProgramHeader {
        p_type: U32::new(LE, kind),
        p_flags: U32::default(),
        p_offset: U64::new(LE, offset),
        p_vaddr: U64::new(LE, 0x40_0000_u64.wrapping_add(offset)),
        p_paddr: U64::default(),
        p_filesz: U64::new(LE, size),
        p_memsz: U64::new(LE, size),
        p_align: U64::new(LE, 8),
    }
}

fn empty() -> SectionHeader {
    SectionHeader {
        sh_name: U32::default(),
        sh_type: U32::default(),
        sh_flags: U64::default(),
        sh_addr: U64::default(),
        sh_offset: U64::default(),
        sh_size: U64::default(),
        sh_link: U32::default(),
        sh_info: U32::default(),
        sh_addralign: U64::default(),
        sh_entsize: U64::default(),
    }
}

impl Image {
    pub fn new() -> Self {
        Self {
            header: Header {
                e_ident: Ident {
                    magic: ELFMAG,
                    class: ELFCLASS64,
                    data: ELFDATA2LSB,
                    version: 1,
                    os_abi: 0,
                    abi_version: 0,
                    padding: [0; 7],
                },
                e_type: U16::new(LE, ET_DYN),
                e_machine: U16::new(LE, EM_X86_64),
                e_version: U32::new(LE, 1),
                e_phoff: U64::new(LE, size_of::<FileHeader64<object::LittleEndian>>() as u64),
                e_ehsize: U16::new(LE, 64),
                e_phentsize: U16::new(LE, 56),
                e_shentsize: U16::new(LE, 64),
                ..object::pod::from_bytes::<Header>(&[0; 64])
                    .unwrap()
                    .0
                    .to_owned()
            },
            programs: Vec::new(),
            sections: vec![empty()],
            names: vec![0],
            contents: Vec::new(),
        }
    }

    /// A file with code, symbols and a note.
    pub fn valid() -> Self {
        let mut image = Self::new()
            .section(".text", SHT_PROGBITS, &[0x90; 500])
            .section(".note.gnu.build-id", object::elf::SHT_NOTE, &note(b"abcd"))
            .section(".symtab", object::elf::SHT_SYMTAB, &[7; 48])
            .section(".strtab", SHT_STRTAB, b"\0main\0");
        image.programs = vec![
            program(PT_LOAD, 0, CONTENTS + 500),
            program(PT_NOTE, CONTENTS + 504, 20),
        ];
        image
    }

    pub fn section(mut self, name: &str, kind: u32, content: &[u8]) -> Self {
        self.contents
            .resize(self.contents.len().next_multiple_of(8), 0);
        self.sections.push(SectionHeader {
            sh_name: U32::new(LE, self.names.len() as u32),
            sh_type: U32::new(LE, kind),
            sh_addr: U64::new(LE, 0x40_0000 + CONTENTS + self.contents.len() as u64),
            sh_offset: U64::new(LE, CONTENTS + self.contents.len() as u64),
            sh_size: U64::new(LE, content.len() as u64),
            sh_addralign: U64::new(LE, 8),
            ..empty()
        });
        self.names.extend(name.bytes().chain([0]));
        self.contents.extend_from_slice(content);
        self
    }

    /// Changes the section added last.
    pub fn with(mut self, change: impl FnOnce(&mut SectionHeader)) -> Self {
        change(self.sections.last_mut().unwrap());
        self
    }

    pub fn bytes(mut self) -> Vec<u8> {
        let names = self.names.clone();
        let names = [&names[..], b".shstrtab\0"].concat();
        self = self.section(".shstrtab", SHT_STRTAB, &names);
        let sections_at = (CONTENTS + self.contents.len() as u64).next_multiple_of(8);
        let count = self.sections.len() as u16;
        let header = &mut self.header;
        header.e_shoff.set(LE, sections_at);
        header.e_phnum.set(LE, self.programs.len() as u16);
        if header.e_shnum.get(LE) == 0 {
            header.e_shnum.set(LE, count);
            header.e_shstrndx.set(LE, count - 1);
        }
        let mut bytes = bytes_of(header).to_vec();
        for program in &self.programs {
            bytes.extend(bytes_of(program));
        }
        bytes.resize(CONTENTS as usize, 0);
        bytes.extend(&self.contents);
        bytes.resize(sections_at as usize, 0);
        for section in &self.sections {
            bytes.extend(bytes_of(section));
        }
        bytes
    }
}

/// GNU's build id.
pub fn note(id: &[u8]) -> Vec<u8> {
    let mut note = Vec::new();
    for number in [4, id.len() as u32, 3] {
        note.extend(number.to_le_bytes());
    }
    note.extend(b"GNU\0");
    note.extend(id);
    note
}
