//! The runtime's exported tables of types and members (`vmStructs`).

use std::collections::{BTreeMap, HashMap};

use profcol_elf::Source;

use crate::FunctionError;
use crate::elf_file::ElfFile;
use crate::memory::Memory;

/// The largest seen has 1,758.
const MAX_ENTRIES: u64 = 1 << 12;
const MAX_STRIDE: u64 = 256;
const MAX_NAME: usize = 128;
/// Maximum size or offset; the largest types have a few hundred bytes.
const MAX_OFFSET: u64 = 1 << 14;

/// Number of exported variables.
pub const EXPORTS: usize = 10;
const NAMES: [&str; EXPORTS] = [
    "gHotSpotVMStructs",
    "gHotSpotVMStructEntryArrayStride",
    "gHotSpotVMStructEntryTypeNameOffset",
    "gHotSpotVMStructEntryFieldNameOffset",
    "gHotSpotVMStructEntryIsStaticOffset",
    "gHotSpotVMStructEntryOffsetOffset",
    "gHotSpotVMStructEntryAddressOffset",
    "gHotSpotVMTypes",
    "gHotSpotVMTypeEntryArrayStride",
    "gHotSpotVMTypeEntrySizeOffset",
];

/// Their values in all releases on x86-64, but for the addresses of both tables: a file does not have them, since they are only
/// filled at load time.
const FILE_VALUES: [u64; EXPORTS] = [0, 48, 0, 8, 24, 32, 40, 0, 40, 32];

/// File addresses of the tables, and of their strides and member offsets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Symbols([u64; EXPORTS]);

impl Symbols {
    pub fn find<S: Source + ?Sized>(executable: &ElfFile<'_, S>) -> Option<Self> {
        let mut addresses = [0; EXPORTS];
        for (address, symbol) in addresses.iter_mut().zip(executable.symbols(NAMES)) {
            *address = symbol?.address;
        }
        Some(Self(addresses))
    }

    pub fn at(addresses: [u64; EXPORTS]) -> Self {
        Self(addresses)
    }
}

/// Types and members by name.
#[derive(Debug, Default)]
pub struct Tables {
    sizes: HashMap<String, u64>,
    members: HashMap<String, BTreeMap<String, Member>>,
}

#[derive(Clone, Copy, Debug)]
struct Member {
    is_static: bool,
    offset: u64,
    address: u64,
}

/// A cache of names by address: members of a type share the name of the type.
struct Names<'a, M> {
    memory: &'a M,
    known: HashMap<u64, String>,
}

impl<M: Memory> Names<'_, M> {
    fn read(&mut self, address: u64) -> Result<String, FunctionError> {
        if let Some(known) = self.known.get(&address) {
            return Ok(known.clone());
        }
        let name = string(self.memory, address)?;
        self.known.insert(address, name.clone());
        Ok(name)
    }
}

impl Tables {
    /// None until the runtime has filled them.
    pub fn read(
        symbols: &Symbols,
        bias: u64,
        memory: &impl Memory,
    ) -> Result<Option<Self>, FunctionError> {
        let mut values = [0; EXPORTS];
        for (value, address) in values.iter_mut().zip(symbols.0) {
            *value = memory.word(address.wrapping_add(bias))?;
        }
        let [structs, stride, .., types, type_stride, _] = values;
        if [structs, stride, types, type_stride].contains(&0) {
            return Ok(None);
        }
        Self::read_entries(values, memory).map(Some)
    }

    /// Those in a file, as far as they are filled there.
    pub fn read_file(symbols: &Symbols, image: &impl Memory) -> Result<Self, FunctionError> {
        let [structs, .., types, _, _] = symbols.0;
        let mut values = FILE_VALUES;
        values[0] = image.word(structs)?;
        values[7] = image.word(types)?;
        Self::read_entries(values, image)
    }

    /// With the values of the exported variables.
    fn read_entries(values: [u64; EXPORTS], memory: &impl Memory) -> Result<Self, FunctionError> {
        let [
            structs,
            stride,
            type_name,
            field_name,
            is_static,
            offset,
            address,
            types,
            type_stride,
            size,
        ] = values;
        let mut names = Names {
            memory,
            known: HashMap::new(),
        };
        let mut tables = Self::default();
        for entry in entries(memory, structs, stride, type_name)? {
            let member = Member {
                is_static: word(&entry, is_static)? as i32 != 0,
                offset: word(&entry, offset)?,
                address: word(&entry, address)?,
            };
            let of = names.read(word(&entry, type_name)?)?;
            let name = names.read(word(&entry, field_name)?)?;
            tables.members.entry(of).or_default().insert(name, member);
        }
        for entry in entries(memory, types, type_stride, 0)? {
            let name = names.read(word(&entry, 0)?)?;
            tables.sizes.insert(name, word(&entry, size)?);
        }
        Ok(tables)
    }

    pub fn size(&self, of: &str) -> Option<u16> {
        small(*self.sizes.get(of)?)
    }

    pub fn offset(&self, of: &str, member: &str) -> Option<u16> {
        let member = self.members.get(of)?.get(member)?;
        small(member.offset).filter(|_| !member.is_static)
    }

    /// The address of a static member in this process.
    pub fn address(&self, of: &str, member: &str) -> Option<u64> {
        let member = self.members.get(of)?.get(member)?;
        (member.is_static && member.address != 0).then_some(member.address)
    }

    /// The static members of a type with their addresses.
    pub fn statics(&self, of: &str) -> impl Iterator<Item = (&str, u64)> {
        let members = self.members.get(of).into_iter().flatten();
        let members = members.filter(|(_, member)| member.is_static && member.address != 0);
        members.map(|(name, member)| (name.as_str(), member.address))
    }
}

fn small(number: u64) -> Option<u16> {
    u16::try_from(number)
        .ok()
        .filter(|&number| u64::from(number) < MAX_OFFSET)
}

/// The entries of a table, up to the first without a name.
fn entries(
    memory: &impl Memory,
    table: u64,
    stride: u64,
    name: u64,
) -> Result<Vec<Vec<u8>>, FunctionError> {
    if stride > MAX_STRIDE {
        return Err(FunctionError::Invalid("the stride of a table"));
    }
    let mut entries = Vec::new();
    for number in 0..MAX_ENTRIES {
        let entry = memory.bytes(table.wrapping_add(number * stride), stride as usize)?;
        if word(&entry, name)? == 0 {
            return Ok(entries);
        }
        entries.push(entry);
    }
    Err(FunctionError::Invalid("the length of a table"))
}

/// A word of an entry, possibly truncated at its end.
fn word(entry: &[u8], at: u64) -> Result<u64, FunctionError> {
    let bytes = usize::try_from(at).ok().and_then(|at| entry.get(at..));
    let word = bytes.and_then(<[u8]>::first_chunk);
    word.map(|bytes| u64::from_le_bytes(*bytes))
        .ok_or(FunctionError::Invalid("an offset in a table"))
}

/// A C string of the runtime.
pub fn string(memory: &impl Memory, address: u64) -> Result<String, FunctionError> {
    const PIECE: u64 = 32;
    let mut bytes = Vec::new();
    while bytes.len() < MAX_NAME {
        // It may be at the end of the mapping.
        let at = address.wrapping_add(bytes.len() as u64);
        let piece = memory.bytes(at, (PIECE - at % PIECE) as usize)?;
        let text = piece.split(|&byte| byte == 0).next().unwrap_or_default();
        bytes.extend(text);
        if text.len() < piece.len() {
            break;
        }
    }
    String::from_utf8(bytes).map_err(|_| FunctionError::Invalid("a name"))
}
