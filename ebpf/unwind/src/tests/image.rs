//! Small handmade ELF files.

use object::elf::{EM_X86_64, ET_DYN, PF_R, PF_X, PT_LOAD, PT_NOTE, SHF_COMPRESSED};

pub const CODE: u64 = 0x1000;
/// The code's address in memory; its file offset is 0x40_0000 less.
pub const ADDRESS: u64 = 0x40_1000;
/// The address of `.eh_frame`.
const FRAMES: u64 = 0x80_0000;

pub struct Image {
    pub code: Vec<u8>,
    pub machine: u16,
    pub entry: u64,
    /// The code's address in memory.
    pub address: u64,
    pub notes: Vec<u8>,
    sections: Vec<(&'static str, u64, u64, Vec<u8>)>,
}

impl Image {
    pub fn new(code: usize) -> Self {
        Self {
            code: vec![0x90; code],
            machine: EM_X86_64,
            entry: 0,
            address: ADDRESS,
            notes: Vec::new(),
            sections: Vec::new(),
        }
    }

    pub fn section(mut self, name: &'static str, address: u64, content: Vec<u8>) -> Self {
        self.sections.push((name, address, 0, content));
        self
    }

    pub fn compressed(mut self, name: &'static str, content: Vec<u8>) -> Self {
        self.sections
            .push((name, 0, u64::from(SHF_COMPRESSED), content));
        self
    }

    pub fn eh_frame(self, frames: &Frames) -> Self {
        self.section(".eh_frame", FRAMES, frames.0.clone())
    }

    /// A section whose content is part of the code.
    pub fn plt(mut self, name: &'static str, offset: usize, content: &[u8]) -> Self {
        self.code[offset..offset + content.len()].copy_from_slice(content);
        self.section(name, ADDRESS + offset as u64, content.to_vec())
    }

    pub fn bytes(&self) -> Vec<u8> {
        let mut file = vec![0; CODE as usize];
        file.extend(&self.code);
        let notes = file.len();
        file.extend(&self.notes);
        let mut names = vec![0];
        let mut headers = vec![[0u64; 8]];
        let mut header = |name: u32, kind: u32, flags, address, offset: usize, size: usize| {
            let first = u64::from(name) | u64::from(kind) << 32;
            headers.push([first, flags, address, offset as u64, size as u64, 0, 1, 0]);
        };
        for (name, address, flags, content) in &self.sections {
            header(
                names.len() as u32,
                1,
                *flags,
                *address,
                file.len(),
                content.len(),
            );
            names.extend(name.bytes().chain([0]));
            file.extend(content);
        }
        header(0, 3, 0, 0, file.len(), names.len());
        file.extend(&names);
        let section_headers = file.len() as u64;
        let count = headers.len() as u16;
        for header in headers {
            file.extend(header.iter().flat_map(|word| word.to_le_bytes()));
        }

        let mut head = b"\x7fELF\x02\x01\x01".to_vec();
        head.resize(16, 0);
        head.extend(ET_DYN.to_le_bytes());
        head.extend(self.machine.to_le_bytes());
        head.extend(1u32.to_le_bytes());
        for word in [self.entry, 64, section_headers] {
            head.extend(word.to_le_bytes());
        }
        for half in [0, 0, 64, 56, 2, 64, count, count - 1] {
            head.extend(u16::to_le_bytes(half));
        }
        let code = self.code.len() as u64;
        for (kind, flags, offset, address, size) in [
            (PT_LOAD, PF_R | PF_X, CODE, self.address, code),
            (PT_NOTE, PF_R, notes as u64, 0, self.notes.len() as u64),
        ] {
            head.extend(kind.to_le_bytes());
            head.extend(flags.to_le_bytes());
            for word in [offset, address, address, size, size, 4] {
                head.extend(word.to_le_bytes());
            }
        }
        file[..head.len()].copy_from_slice(&head);
        file
    }
}

/// Call frame information: a CIE, and FDEs for ranges of the code.
#[derive(Clone)]
pub struct Frames(pub Vec<u8>);

impl Frames {
    pub fn x86_64() -> Self {
        // def_cfa rsp+8; return address at cfa-8
        Self::common(b"zR", &[0x0c, 7, 8, 0x90, 1])
    }

    /// def_cfa sp+0
    pub fn aarch64(augmentation: &[u8]) -> Self {
        Self::with(augmentation, 30, &[0x0c, 31, 0])
    }

    pub fn common(augmentation: &[u8], instructions: &[u8]) -> Self {
        Self::with(augmentation, 16, instructions)
    }

    fn with(augmentation: &[u8], return_address: u8, instructions: &[u8]) -> Self {
        let mut frames = Self(Vec::new());
        let mut body = 0u32.to_le_bytes().to_vec();
        body.push(1);
        body.extend(augmentation);
        // Code by one, data by -8, absolute addresses of 8 bytes.
        body.extend([0, 1, 0x78, return_address, 1, 0x04]);
        body.extend(instructions);
        frames.push(body);
        frames
    }

    /// `start` is relative to the start of the code.
    pub fn entry(mut self, start: u64, length: u64, instructions: &[u8]) -> Self {
        let mut body = (self.0.len() as u32 + 4).to_le_bytes().to_vec();
        body.extend((ADDRESS + start).to_le_bytes());
        body.extend(length.to_le_bytes());
        body.push(0);
        body.extend(instructions);
        self.push(body);
        self
    }

    fn push(&mut self, mut body: Vec<u8>) {
        body.resize(body.len().next_multiple_of(4), 0);
        self.0.extend((body.len() as u32).to_le_bytes());
        self.0.extend(body);
    }
}
