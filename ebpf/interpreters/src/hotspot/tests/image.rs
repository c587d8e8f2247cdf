//! The memory of a process that runs a release.

use std::collections::HashMap;
use std::io::{Error, ErrorKind};

use super::releases::{COMMON, Release};
use crate::memory::{Memory, MemoryError};

pub const COMPILE_ID: u32 = 77;
const BASE: u64 = 0x10_0000;
const BYTES: usize = 0x4000;
const BIAS: u64 = 0x5000;

pub struct Image {
    bytes: Vec<u8>,
    end: u64,
    strings: HashMap<String, u64>,
    /// File addresses of the runtime's exports.
    pub symbols: [u64; 10],
    pub bias: u64,
    methods: HashMap<&'static str, (u64, u64)>,
    nmethod: u64,
}

impl Image {
    pub fn new(release: &Release) -> Self {
        let mut image = Self {
            bytes: vec![0; BYTES],
            end: BASE,
            strings: HashMap::new(),
            symbols: [0; 10],
            bias: BIAS,
            methods: HashMap::new(),
            nmethod: 0,
        };
        image.make_tables(release);
        let pool = image.make_pool(release);
        image.make_method(release, pool, "outer", 2);
        image.make_method(release, pool, "inner", 3);
        image.make_nmethod(release);
        image
    }

    pub fn method(&self, name: &str) -> u64 {
        self.methods[name].0
    }

    pub fn const_method(&self, name: &str) -> u64 {
        self.methods[name].1
    }

    pub fn nmethod(&self) -> u64 {
        self.nmethod
    }

    /// Its memory from [`BASE`] on.
    pub fn used(&self) -> &[u8] {
        &self.bytes[..(self.end - BASE) as usize]
    }

    pub fn set_word(&mut self, address: u64, word: u64) {
        self.set(address, &word.to_le_bytes());
    }

    pub fn damage(&mut self, at: usize, byte: u8) {
        self.bytes[at % BYTES] = byte;
    }

    fn set(&mut self, address: u64, bytes: &[u8]) {
        let at = (address - BASE) as usize;
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
    }

    fn set_number(&mut self, address: u64, number: u32) {
        self.set(address, &number.to_le_bytes());
    }

    fn make(&mut self, bytes: usize) -> u64 {
        let address = self.end;
        self.end += (bytes as u64 + 15) & !15;
        address
    }

    fn make_bytes(&mut self, bytes: &[u8]) -> u64 {
        let address = self.make(bytes.len());
        self.set(address, bytes);
        address
    }

    fn make_string(&mut self, text: &str) -> u64 {
        if let Some(known) = self.strings.get(text) {
            return *known;
        }
        let address = self.make_bytes(format!("{text}\0").as_bytes());
        self.strings.insert(text.into(), address);
        address
    }

    fn make_tables(&mut self, release: &Release) {
        let mut members: Vec<(&str, &str, u64, u64)> = COMMON
            .iter()
            .chain(release.members)
            .map(|&(of, name, offset)| (of, name, offset, 0))
            .collect();
        let version = self.make(16);
        if release.major < 23 {
            self.set(version, &[release.major as u8, 0, 3, 0]);
            members.push(("JDK_Version", "_current", 0, version));
        } else {
            self.set_number(version, release.major);
            self.set_number(version + 8, 3);
            members.push(("Abstract_VM_Version", "_vm_major_version", 0, version));
            members.push((
                "Abstract_VM_Version",
                "_vm_security_version",
                0,
                version + 8,
            ));
        }
        for (of, name) in [
            (
                "CodeCache",
                if release.major == 8 {
                    "_heap"
                } else {
                    "_heaps"
                },
            ),
            ("AbstractInterpreter", "_code"),
            ("StubRoutines", "_call_stub_return_address"),
        ] {
            let place = self.make(8);
            members.push((of, name, 0, place));
        }
        let structs = self.make((members.len() + 1) * 48);
        for (number, (of, name, offset, address)) in (0..).zip(members) {
            let entry = structs + number * 48;
            let (of, name) = (self.make_string(of), self.make_string(name));
            for (at, word) in [
                (0, of),
                (8, name),
                (24, u64::from(address != 0)),
                (32, offset),
                (40, address),
            ] {
                self.set_word(entry + at, word);
            }
        }
        let sizes = [("ConstMethod", 56), ("ConstantPool", 72)];
        let sizes: Vec<_> = sizes.iter().chain(release.types).collect();
        let types = self.make((sizes.len() + 1) * 40);
        for (number, (name, size)) in (0..).zip(sizes) {
            let name = self.make_string(name);
            self.set_word(types + number * 40, name);
            self.set_word(types + number * 40 + 32, *size);
        }
        let values = [structs, 48, 0, 8, 24, 32, 40, types, 40, 32];
        for (number, value) in values.into_iter().enumerate() {
            let place = self.make(8);
            self.set_word(place, value);
            self.symbols[number] = place.wrapping_sub(BIAS);
        }
    }

    fn make_symbol(&mut self, text: &str) -> u64 {
        let symbol = self.make(6 + text.len());
        self.set(symbol + 4, &(text.len() as u16).to_le_bytes());
        self.set(symbol + 6, text.as_bytes());
        symbol
    }

    /// Its constants are the name of the file and of two methods.
    fn make_pool(&mut self, release: &Release) -> u64 {
        let class = self.make(320);
        let name = self.make_symbol("a/b/C");
        self.set_word(class + 24, name);
        let pool = self.make(72 + 4 * 8);
        self.set_word(pool + 24, class);
        self.set_number(pool + 60, 4);
        if release.major < 15 {
            self.set(class + 298, &[1, 0]);
        } else {
            self.set(pool + 54, &[1, 0]);
        }
        for (index, text) in [(1, "C.java"), (2, "outer"), (3, "inner")] {
            let symbol = self.make_symbol(text);
            self.set_word(pool + 72 + index * 8, symbol | (index & 1));
        }
        pool
    }

    /// Its bytecodes are on line 7, and on line 8 from index 4 on.
    fn make_method(&mut self, release: &Release, pool: u64, name: &'static str, index: u8) {
        let method = self.make(88);
        let const_method = self.make(80);
        self.set_word(method + 8, const_method);
        self.set_word(const_method + 8, pool);
        self.set_number(const_method + 24, 10);
        self.set(const_method + 28, &[1]);
        self.set(const_method + 34, &[8, 0, index, 0]);
        // Since JDK 20, integers never contain a 0 byte.
        let integer = |value: u8| value + u8::from(release.major >= 20);
        let lines = [7, 0xff, integer(8), integer(2), 0];
        self.set(const_method + 56 + 8, &lines);
        self.methods.insert(name, (method, const_method));
    }

    /// Offset 8 is in `outer`, bytecode 5; offset 16 is in `inner`, bytecode 0, inlined there.
    fn make_nmethod(&mut self, release: &Release) {
        let nmethod = self.make(400);
        let integer = |value: u8| value + u8::from(release.major >= 20);
        let scopes = [[0, 1, 6], [1, 2, 1]]
            .map(|scope| scope.map(integer))
            .concat();
        let scopes = [vec![0xee], scopes].concat();
        let descriptors: Vec<u8> = [[-1, 0], [8, 1], [16, 4], [i32::MAX, 0]]
            .iter()
            .flat_map(|[pc, scope]| [*pc, *scope, 0, 0])
            .flat_map(i32::to_le_bytes)
            .collect();
        let (data, pcs, pcs_end);
        if release.major < 23 {
            data = self.make_bytes(&scopes);
            pcs = self.make_bytes(&descriptors);
            pcs_end = pcs + 64;
        } else {
            pcs = self.make_bytes(&[descriptors, scopes].concat());
            data = pcs + 64;
            pcs_end = data;
        }
        let metadata = self.make(16);
        self.set_word(metadata, self.method("outer"));
        self.set_word(metadata + 8, self.method("inner"));
        self.set_word(nmethod + 80, self.method("outer"));
        self.set_number(nmethod + 212, COMPILE_ID);
        let name = self.make_string("nmethod");
        self.set_word(nmethod + 8, name);
        let offset = |address: u64| (address - nmethod) as u32;
        match release.major {
            8 | 13 => {
                self.set_number(nmethod + 196, offset(pcs));
                self.set_number(nmethod + 204, offset(pcs_end));
                self.set_number(nmethod + 220, offset(metadata));
                if release.major == 8 {
                    self.set_number(nmethod + 224, offset(data));
                } else {
                    self.set_word(nmethod + 120, data);
                }
            }
            major => {
                self.set_word(nmethod + 96, pcs);
                self.set_number(nmethod + 160, 64 + 7);
                self.set_number(nmethod + 200, 64);
                self.set_number(nmethod + 40, offset(metadata) - 4);
                if major == 23 {
                    self.set(nmethod + 220, &[4, 0]);
                } else {
                    self.set_word(nmethod + 16, metadata - 24);
                    self.set_number(nmethod + 28, 24);
                }
            }
        }
        self.nmethod = nmethod;
    }
}

impl Memory for Image {
    fn read(&self, address: u64, buffer: &mut [u8]) -> Result<(), MemoryError> {
        let at = address.checked_sub(BASE).map(|at| at as usize);
        let bytes = at.and_then(|at| self.bytes.get(at..at.checked_add(buffer.len())?));
        match bytes {
            Some(bytes) => {
                buffer.copy_from_slice(bytes);
                Ok(())
            }
            None => Err(MemoryError {
                address,
                error: Error::from(ErrorKind::UnexpectedEof),
            }),
        }
    }
}
