//! Builds small assemblies, PDBs and programs.

use std::collections::BTreeMap;

/// The one section of a built image: its address, and its offset in the file.
pub const SECTION_RVA: u32 = 0x2000;
pub const SECTION_OFFSET: u32 = 0x400;

#[derive(Clone, Copy)]
pub enum Cell {
    Two(u16),
    Four(u32),
}

use Cell::{Four, Two};

/// Metadata with narrow columns.
pub struct Metadata {
    strings: Vec<u8>,
    blobs: Vec<u8>,
    tables: BTreeMap<u8, (u32, Vec<u8>)>,
    pdb: Option<Vec<u8>>,
}

impl Metadata {
    pub fn new() -> Self {
        Self {
            strings: vec![0],
            blobs: vec![0],
            tables: BTreeMap::new(),
            pdb: None,
        }
    }

    /// A PDB with this id, of an assembly with so many methods.
    pub fn pdb(id: [u8; 20], methods: u32) -> Self {
        let mut stream = id.to_vec();
        stream.extend(0_u32.to_le_bytes());
        stream.extend((1_u64 << 0x06).to_le_bytes());
        stream.extend(methods.to_le_bytes());
        Self {
            pdb: Some(stream),
            ..Self::new()
        }
    }

    pub fn string(&mut self, string: &str) -> Cell {
        let at = self.strings.len() as u16;
        self.strings.extend(string.bytes());
        self.strings.push(0);
        Two(at)
    }

    pub fn blob(&mut self, blob: &[u8]) -> Cell {
        let at = self.blobs.len() as u16;
        self.blobs.extend(compressed(blob.len() as u32));
        self.blobs.extend(blob);
        Two(at)
    }

    pub fn row(&mut self, table: u8, cells: &[Cell]) {
        let (rows, bytes) = self.tables.entry(table).or_default();
        *rows += 1;
        for cell in cells {
            match cell {
                Two(value) => bytes.extend(value.to_le_bytes()),
                Four(value) => bytes.extend(value.to_le_bytes()),
            }
        }
    }

    /// A type whose methods begin at this row.
    pub fn type_def(&mut self, namespace: &str, name: &str, methods: u16) {
        let (name, namespace) = (self.string(name), self.string(namespace));
        let none = Two(0);
        self.row(0x02, &[Four(0), name, namespace, none, none, Two(methods)]);
    }

    pub fn method_def(&mut self, name: &str) {
        let name = self.string(name);
        let none = Two(0);
        self.row(0x06, &[Four(0), none, none, name, none, none]);
    }

    pub fn build(&self) -> Vec<u8> {
        let mut tables = vec![0; 8];
        let mask = self
            .tables
            .keys()
            .fold(0, |mask, table| mask | 1_u64 << table);
        tables.extend(mask.to_le_bytes());
        tables.extend([0; 8]);
        for (rows, _) in self.tables.values() {
            tables.extend(rows.to_le_bytes());
        }
        for (_, bytes) in self.tables.values() {
            tables.extend(bytes);
        }
        let streams = [
            (&b"#~\0\0"[..], Some(&tables)),
            (b"#Strings\0\0\0\0", Some(&self.strings)),
            (b"#Blob\0\0\0", Some(&self.blobs)),
            (b"#Pdb\0\0\0\0", self.pdb.as_ref()),
        ];
        let streams = streams.map(|(name, bytes)| bytes.map(|bytes| (name, bytes)));
        let streams: Vec<_> = streams.into_iter().flatten().collect();
        let mut root = b"BSJB\x01\0\x01\0\0\0\0\0\x04\0\0\0v4\0\0\0\0".to_vec();
        root.extend((streams.len() as u16).to_le_bytes());
        let headers: usize = streams.iter().map(|(name, _)| 8 + name.len()).sum();
        let mut offset = root.len() + headers;
        for (name, bytes) in &streams {
            root.extend((offset as u32).to_le_bytes());
            root.extend((bytes.len() as u32).to_le_bytes());
            root.extend(*name);
            offset += bytes.len();
        }
        for (_, bytes) in &streams {
            root.extend(*bytes);
        }
        root
    }
}

/// An image of one section with a CLI header at its start.
pub struct Image {
    machine: u16,
    section: Vec<u8>,
    debug: (u32, u32),
}

impl Image {
    pub fn new(machine: u16, metadata: &Metadata) -> Self {
        let mut image = Self {
            machine,
            section: vec![0; 72],
            debug: (0, 0),
        };
        let range = image.put(&metadata.build());
        image.set_directory(8, range);
        image
    }

    /// Appends bytes. Returns their address and size.
    pub fn put(&mut self, bytes: &[u8]) -> (u32, u32) {
        self.section
            .resize(self.section.len().next_multiple_of(8), 0);
        let rva = SECTION_RVA + self.section.len() as u32;
        self.section.extend(bytes);
        (rva, bytes.len() as u32)
    }

    /// In the CLI header.
    fn set_directory(&mut self, at: usize, (rva, size): (u32, u32)) {
        self.section[at..at + 4].copy_from_slice(&rva.to_le_bytes());
        self.section[at + 4..at + 8].copy_from_slice(&size.to_le_bytes());
    }

    pub fn set_ready_to_run(&mut self, major: u16, flags: u32, sections: &[(u32, Vec<u8>)]) {
        let mut header = b"RTR\0".to_vec();
        header.extend(major.to_le_bytes());
        header.extend(1_u16.to_le_bytes());
        header.extend(flags.to_le_bytes());
        header.extend((sections.len() as u32).to_le_bytes());
        for (kind, bytes) in sections {
            let (rva, size) = self.put(bytes);
            for word in [*kind, rva, size] {
                header.extend(word.to_le_bytes());
            }
        }
        let range = self.put(&header);
        self.set_directory(64, range);
    }

    /// Entries of the debug directory: stamp, minor version, kind, content.
    pub fn set_debug(&mut self, entries: &[(u32, u16, u32, Vec<u8>)]) {
        let mut directory = Vec::new();
        for (stamp, minor, kind, bytes) in entries {
            let (rva, size) = self.put(bytes);
            directory.extend([0; 4]);
            directory.extend(stamp.to_le_bytes());
            directory.extend([0; 2]);
            directory.extend(minor.to_le_bytes());
            for word in [*kind, size, rva, rva - SECTION_RVA + SECTION_OFFSET] {
                directory.extend(word.to_le_bytes());
            }
        }
        self.debug = self.put(&directory);
    }

    /// The image as a file.
    pub fn file(&self) -> Vec<u8> {
        let mut file = self.headers();
        file.extend(&self.section);
        file
    }

    /// The image as loaded.
    pub fn loaded(&self) -> Vec<u8> {
        let mut loaded = self.headers();
        loaded.resize(SECTION_RVA as usize, 0);
        loaded.extend(&self.section);
        loaded
    }

    fn headers(&self) -> Vec<u8> {
        let mut headers = vec![0; SECTION_OFFSET as usize];
        let mut put =
            |at: usize, bytes: &[u8]| headers[at..at + bytes.len()].copy_from_slice(bytes);
        let size = (self.section.len() as u32).to_le_bytes();
        put(0, b"MZ");
        put(0x3c, &0x80_u32.to_le_bytes());
        put(0x80, b"PE\0\0");
        put(0x84, &self.machine.to_le_bytes());
        put(0x86, &1_u16.to_le_bytes());
        put(0x94, &240_u16.to_le_bytes());
        let optional = 0x98;
        put(optional, &0x20b_u16.to_le_bytes());
        put(optional + 60, &SECTION_OFFSET.to_le_bytes());
        put(optional + 108, &16_u32.to_le_bytes());
        put(optional + 112 + 6 * 8, &self.debug.0.to_le_bytes());
        put(optional + 116 + 6 * 8, &self.debug.1.to_le_bytes());
        put(optional + 112 + 14 * 8, &SECTION_RVA.to_le_bytes());
        put(optional + 116 + 14 * 8, &72_u32.to_le_bytes());
        let section = optional + 240;
        put(section, b".text");
        put(section + 8, &size);
        put(section + 12, &SECTION_RVA.to_le_bytes());
        put(section + 16, &size);
        put(section + 20, &SECTION_OFFSET.to_le_bytes());
        headers
    }
}

/// An unsigned integer of blobs.
pub fn compressed(value: u32) -> Vec<u8> {
    match value {
        0..0x80 => vec![value as u8],
        0x80..0x4000 => (value | 0x8000).to_be_bytes()[2..].to_vec(),
        _ => (value | 0xc000_0000).to_be_bytes().to_vec(),
    }
}

/// A signed integer of blobs.
pub fn compressed_signed(value: i32) -> Vec<u8> {
    let sign = u32::from(value < 0);
    match value {
        -0x40..0x40 => compressed((value << 1) as u32 & 0x7e | sign),
        -0x2000..0x2000 => {
            ((value << 1) as u32 & 0x3ffe | sign | 0x8000).to_be_bytes()[2..].to_vec()
        }
        _ => ((value << 1) as u32 & 0x1fff_fffe | sign | 0xc000_0000)
            .to_be_bytes()
            .to_vec(),
    }
}

/// An integer of native code, in four bytes.
pub fn native(value: u32) -> [u8; 4] {
    (value << 4 | 0b0111).to_le_bytes()
}

/// A sparse array of native code.
pub fn native_array(elements: &BTreeMap<u32, Vec<u8>>) -> Vec<u8> {
    let count = elements.last_key_value().map_or(0, |(&last, _)| last + 1);
    let blocks: Vec<Vec<u8>> = (0..count.div_ceil(16))
        .map(|block| {
            let elements: Vec<_> = elements.range(block * 16..block * 16 + 16).collect();
            match elements.is_empty() {
                // A leaf of no element.
                true => native(16 << 2).to_vec(),
                false => tree(&elements, 8),
            }
        })
        .collect();
    let mut array = native(count << 2 | 2).to_vec();
    let mut offset = blocks.len() * 4;
    for block in &blocks {
        array.extend((offset as u32).to_le_bytes());
        offset += block.len();
    }
    array.extend(blocks.concat());
    array
}

fn tree(elements: &[(&u32, &Vec<u8>)], bit: u32) -> Vec<u8> {
    let (&first, data) = elements[0];
    if bit == 0 {
        return data.clone();
    }
    if elements.len() == 1 {
        return [&native((first % 16) << 2)[..], data].concat();
    }
    let (right, left): (Vec<_>, Vec<_>) = elements.iter().partition(|&&(&at, _)| at & bit != 0);
    let left = match left.is_empty() {
        true => Vec::new(),
        false => tree(&left, bit / 2),
    };
    let flags = u32::from(!left.is_empty()) | u32::from(!right.is_empty()) << 1;
    let node = native((4 + left.len() as u32) << 2 | flags);
    let right = match right.is_empty() {
        true => Vec::new(),
        false => tree(&right, bit / 2),
    };
    [&node[..], &left, &right].concat()
}

/// A hash table of native code with one bucket.
pub fn native_hashtable(entries: &[Vec<u8>]) -> Vec<u8> {
    let bucket = 8;
    let end = bucket + entries.len() * 5;
    let mut table = vec![2];
    table.extend((bucket as u32).to_le_bytes());
    table.extend((end as u32).to_le_bytes());
    let mut offset = end;
    for (number, entry) in entries.iter().enumerate() {
        table.push(0);
        let from = bucket + number * 5 + 1;
        table.extend(native((offset - from) as u32));
        offset += entry.len();
    }
    table.extend(entries.concat());
    table
}

/// Integers of debug information: octal digits, highest first.
pub fn nibbles(values: &[u32]) -> Vec<u8> {
    let mut nibbles = Vec::new();
    for value in values {
        let digits = format!("{value:o}");
        for (at, digit) in digits.bytes().enumerate() {
            let follows = u8::from(at + 1 < digits.len()) << 3;
            nibbles.push((digit - b'0') | follows);
        }
    }
    nibbles
        .chunks(2)
        .map(|pair| pair[0] | pair.get(1).map_or(0, |high| high << 4))
        .collect()
}

/// A little-endian program for x86-64 with one writable segment, the whole file.
pub fn program(content: &[u8]) -> Vec<u8> {
    let length = 120 + content.len() as u64;
    let mut file = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x03\0\x3e\0\x01\0\0\0".to_vec();
    for word in [0_u64, 64, 0] {
        file.extend(word.to_le_bytes());
    }
    for half in [0_u16, 0, 64, 56, 1, 64, 0, 0] {
        file.extend(half.to_le_bytes());
    }
    for word in [1_u32, 6] {
        file.extend(word.to_le_bytes());
    }
    for word in [0, 0, 0, length, length, 4096] {
        file.extend(word.to_le_bytes());
    }
    assert_eq!(file.len(), 120);
    file.extend(content);
    file
}
