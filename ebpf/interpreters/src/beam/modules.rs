//! The loaded modules of a process.
//!
//! Loading a module changes the table of modules, and purging one frees its addresses for others. A sampled address belongs to
//! the module that the table had at the time of the sample, which [`beam::generation`] tells: with another table now, an address is
//! only named if its module is the same before and after.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use profcol_ebpf_common::interpreter::beam;
use profcol_ebpf_common::interpreter::hotspot::AddressRange;

use super::atoms::Atoms;
use super::layout::Layout;
use crate::FunctionError;
use crate::memory::Memory;

const TABLE_BYTES: usize = 104;
/// Bytes of a code index: address, count, size and last result.
const INDEX_BYTES: u64 = 32;
const ACTIVE_INDEX: usize = 100;
const CODE_INDICES: u32 = 3;

/// Maximum number of modules; large systems have some thousands.
const MAX_MODULES: u64 = 1 << 14;
/// The largest modules have some thousand functions and some ten thousand lines.
const MAX_FUNCTIONS: u64 = 1 << 16;
const MAX_LINES: u64 = 1 << 16;
/// Memory of the modules of one process whose functions were sampled.
const MAX_BYTES: usize = 8 << 20;
const MAX_PATH_CHARACTERS: usize = 1024;

/// In a module's header.
const FUNCTION_COUNT: u64 = 0;
const LINES: u64 = 72;
/// Pointers that differ between modules.
const IDENTITY_BYTES: usize = 96;

/// In a function, before its code: module, name and number of arguments.
const FUNCTION_NAME: u64 = 16;
const FUNCTION_NAME_BYTES: usize = 24;

/// The table of lines: files, size and array of locations, then for each function its range of addresses.
mod lines {
    pub const FILES: u64 = 0;
    pub const LOCATION_BYTES: u64 = 8;
    pub const LOCATIONS: u64 = 16;
    pub const RANGES: u64 = 24;
}
const FILE_SHIFT: u32 = 24;
const LINE_MASK: u32 = (1 << FILE_SHIFT) - 1;

const SHARED_CODE: &str = "[beam: shared code]";

/// The prefix of modules that Elixir compiled.
const ELIXIR: &str = "Elixir.";

/// An address in generated code.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BeamFunction {
    /// `lists:map/2`, or `Enum.map/2`.
    pub name: String,
    pub file: String,
    pub first_line: u32,
    /// 0 if unknown, as for `first_line`.
    pub line: u32,
    /// Code that all functions share.
    pub is_shared_code: bool,
}

impl BeamFunction {
    fn shared_code() -> Self {
        Self {
            name: SHARED_CODE.to_owned(),
            is_shared_code: true,
            ..Self::default()
        }
    }

    pub fn bytes(&self) -> usize {
        size_of::<Self>() + self.name.len() + self.file.len()
    }
}

/// The modules of one process.
#[derive(Debug)]
pub struct Modules {
    layout: Layout,
    /// Address of the table.
    table: u64,
    atoms: Atoms,
    generation: Option<u32>,
    /// Sorted; in the table of this generation.
    loaded: Vec<Range<u64>>,
    previous: PreviousTable,
    /// Modules by the start of their code.
    known: HashMap<u64, Arc<Module>>,
    bytes: usize,
}

/// The table of modules before the current one.
#[derive(Debug, Default)]
struct PreviousTable {
    generation: Option<u32>,
    /// Modules of the previous code index that the current one does not have, and what was read of them.
    unloaded: Vec<(Range<u64>, Option<Arc<Module>>)>,
}

/// It has all names: the process may exit before more of its functions are sampled.
#[derive(Debug)]
struct Module {
    name: Arc<str>,
    identity: Vec<u8>,
    /// Start of each function, and the end of the last one.
    functions: Vec<u64>,
    /// For each function, its name and number of arguments.
    names: Vec<(Arc<str>, u8)>,
    /// For each function, the range of its lines.
    line_ranges: Vec<Range<usize>>,
    lines: Vec<(u64, u32)>,
    files: Vec<String>,
}

impl Modules {
    pub fn new(layout: Layout, table: u64, atoms: u64) -> Self {
        Self {
            layout,
            table,
            atoms: Atoms::new(atoms),
            generation: None,
            loaded: Vec::new(),
            previous: PreviousTable::default(),
            known: HashMap::new(),
            bytes: 0,
        }
    }

    /// Reads the table unless it is of this generation. Returns its generation if that is new.
    pub fn refresh(
        &mut self,
        memory: &impl Memory,
        generation: Option<u32>,
    ) -> Result<Option<u32>, FunctionError> {
        if generation.is_some() && self.generation == generation {
            return Ok(None);
        }
        let (now, loaded) = self.read_table(memory)?;
        if self.generation == Some(now) {
            return Ok(None);
        }
        let mut unloaded = Vec::new();
        for range in &self.loaded {
            let is_loaded = loaded
                .binary_search_by_key(&range.start, |range| range.start)
                .is_ok_and(|at| loaded.get(at) == Some(range));
            let is_same = is_loaded
                && self.known.get(&range.start).is_none_or(|known| {
                    let identity = memory.bytes(range.start, IDENTITY_BYTES);
                    identity.is_ok_and(|identity| identity == known.identity)
                });
            if !is_same {
                let module = self.known.remove(&range.start);
                let bytes = module.as_ref().map_or(0, |module| module.bytes());
                self.bytes = self.bytes.saturating_sub(bytes);
                unloaded.push((range.clone(), module));
            }
        }
        let generation = self.generation.replace(now);
        self.previous = PreviousTable {
            generation,
            unloaded,
        };
        self.loaded = loaded;
        Ok(Some(now))
    }

    /// The part of a mapping with this address that is between modules.
    pub fn gap(&self, address: u64, mapping: AddressRange) -> AddressRange {
        let after = self.loaded.partition_point(|range| range.start <= address);
        let before = after.checked_sub(1).and_then(|at| self.loaded.get(at));
        let after = self.loaded.get(after);
        AddressRange {
            start: before.map_or(mapping.start, |range| range.end.max(mapping.start)),
            end: after.map_or(mapping.end, |range| range.start.min(mapping.end)),
        }
    }

    /// The function at an address that was sampled with this generation of the table.
    pub fn function(
        &mut self,
        memory: &impl Memory,
        address: u64,
        generation: u32,
    ) -> Result<BeamFunction, FunctionError> {
        let mut unloaded = self.previous.unloaded.iter();
        if self.generation != Some(generation)
            && let Some((_, module)) = unloaded.find(|(range, _)| range.contains(&address))
        {
            // With yet another table, it was in this module or in what replaced it.
            let module = module
                .as_ref()
                .filter(|_| self.previous.generation == Some(generation));
            let module = module.ok_or(FunctionError::Replaced)?;
            return Ok(module.function(address));
        }
        let after = self.loaded.partition_point(|range| range.start <= address);
        let range = after.checked_sub(1).and_then(|at| self.loaded.get(at));
        let Some(range) = range.filter(|range| range.contains(&address)).cloned() else {
            return Ok(BeamFunction::shared_code());
        };
        Ok(self.module(memory, range)?.function(address))
    }

    /// The generation of the table, and the modules of the current code index.
    fn read_table(&self, memory: &impl Memory) -> Result<(u32, Vec<Range<u64>>), FunctionError> {
        let bytes = memory.bytes(self.table, TABLE_BYTES)?;
        let word = |index: u32| {
            let at = index as usize * 8;
            let word = bytes.get(at..).and_then(|rest| rest.first_chunk());
            word.map_or(0, |word| u64::from_le_bytes(*word))
        };
        let active = bytes
            .get(ACTIVE_INDEX..)
            .and_then(|rest| rest.first_chunk());
        let active = active.map_or(CODE_INDICES, |bytes| u32::from_le_bytes(*bytes));
        if active >= CODE_INDICES {
            return Err(FunctionError::Invalid("the code index is out of range"));
        }
        let first_word = active * (INDEX_BYTES as u32 / 8);
        let (address, count) = (word(first_word), word(first_word + 1));
        if count > MAX_MODULES {
            return Err(FunctionError::Invalid("there are too many modules"));
        }
        let ranges = memory.bytes(address, count as usize * 16)?;
        let (words, _) = ranges.as_chunks::<8>();
        let (pairs, _) = words.as_chunks::<2>();
        let ranges: Vec<Range<u64>> = pairs
            .iter()
            .map(|[start, end]| u64::from_le_bytes(*start)..u64::from_le_bytes(*end))
            .collect();
        if !ranges.is_sorted_by(|first, second| first.end <= second.start) {
            return Err(FunctionError::Invalid("modules overlap"));
        }
        Ok((beam::generation(word), ranges))
    }

    fn module(
        &mut self,
        memory: &impl Memory,
        range: Range<u64>,
    ) -> Result<Arc<Module>, FunctionError> {
        if let Some(known) = self.known.get(&range.start) {
            return Ok(Arc::clone(known));
        }
        let module = Arc::new(Module::read(
            &self.layout,
            memory,
            &mut self.atoms,
            range.start,
        )?);
        if self.bytes + module.bytes() > MAX_BYTES {
            self.known.clear();
            self.bytes = 0;
        }
        self.bytes += module.bytes();
        self.known.insert(range.start, Arc::clone(&module));
        Ok(module)
    }
}

impl Module {
    fn read(
        layout: &Layout,
        memory: &impl Memory,
        atoms: &mut Atoms,
        header: u64,
    ) -> Result<Self, FunctionError> {
        let identity = memory.bytes(header, IDENTITY_BYTES)?;
        let count = memory.word(header.wrapping_add(FUNCTION_COUNT))?;
        if count > MAX_FUNCTIONS {
            return Err(FunctionError::Invalid("the module has too many functions"));
        }
        let functions = words(memory, header.wrapping_add(layout.functions), count + 1)?;
        if !functions.is_sorted() || functions.first().is_some_and(|start| *start < header) {
            return Err(FunctionError::Invalid("functions are not in order"));
        }
        let mut name = Arc::default();
        let mut names = Vec::new();
        for start in functions.iter().take(count as usize) {
            let mut bytes = [0; FUNCTION_NAME_BYTES];
            memory.read(start.wrapping_add(FUNCTION_NAME), &mut bytes)?;
            let (words, _) = bytes.as_chunks();
            let [module_name, function, arity] = *words else {
                continue;
            };
            name = atoms.name(memory, u64::from_le_bytes(module_name))?;
            let function = atoms.name(memory, u64::from_le_bytes(function))?;
            names.push((function, u64::from_le_bytes(arity) as u8));
        }
        let mut module = Self {
            name,
            identity,
            functions,
            names,
            line_ranges: Vec::new(),
            lines: Vec::new(),
            files: Vec::new(),
        };
        let table = memory.word(header.wrapping_add(LINES))?;
        if table != 0 {
            module.read_lines(memory, table, count)?;
        }
        Ok(module)
    }

    fn read_lines(
        &mut self,
        memory: &impl Memory,
        table: u64,
        functions: u64,
    ) -> Result<(), FunctionError> {
        let member = |place: u64| memory.word(table.wrapping_add(place));
        let ranges = words(memory, table.wrapping_add(lines::RANGES), functions + 1)?;
        let first = ranges.first().copied().unwrap_or_default();
        let last = ranges.last().copied().unwrap_or_default();
        let count = last.wrapping_sub(first) / 8;
        if !ranges.is_sorted() || count > MAX_LINES {
            return Err(FunctionError::Invalid("lines are not in order"));
        }
        let addresses = words(memory, first, count)?;
        let locations = member(lines::LOCATIONS)?;
        let locations: Vec<u32> = match member(lines::LOCATION_BYTES)? as u32 {
            2 => {
                let bytes = memory.bytes(locations, count as usize * 2)?;
                let (numbers, _) = bytes.as_chunks();
                numbers
                    .iter()
                    .map(|it| u16::from_le_bytes(*it).into())
                    .collect()
            }
            4 => {
                let bytes = memory.bytes(locations, count as usize * 4)?;
                let (numbers, _) = bytes.as_chunks();
                numbers.iter().map(|it| u32::from_le_bytes(*it)).collect()
            }
            _ => return Err(FunctionError::Invalid("the size of locations is unknown")),
        };
        self.lines = addresses.into_iter().zip(locations).collect();
        let place = |address: u64| (address.wrapping_sub(first) / 8) as usize;
        self.line_ranges = ranges
            .windows(2)
            .filter_map(|pair| Some(place(*pair.first()?)..place(*pair.last()?)))
            .collect();
        let most = self
            .lines
            .iter()
            .map(|(_, location)| location >> FILE_SHIFT)
            .max();
        let files = words(
            memory,
            member(lines::FILES)?,
            most.unwrap_or_default().into(),
        )?;
        for term in files {
            self.files.push(text(memory, term)?);
        }
        Ok(())
    }

    fn function_at(&self, address: u64) -> Option<usize> {
        let after = self.functions.partition_point(|start| *start <= address);
        // The last one is the end.
        (after < self.functions.len()).then(|| after.checked_sub(1))?
    }

    /// The first line of a function, and the location of an address in it; 0 if unknown.
    fn locations(&self, index: usize, address: u64) -> (u32, u32) {
        let range = self.line_ranges.get(index).cloned().unwrap_or_default();
        let lines = self.lines.get(range).unwrap_or_default();
        let after = lines.partition_point(|(start, _)| *start <= address);
        let location = |at: usize| lines.get(at).map_or(0, |(_, location)| *location);
        let found = after.checked_sub(1).map_or(0, location);
        (location(0) & LINE_MASK, found)
    }

    fn function(&self, address: u64) -> BeamFunction {
        let index = self.function_at(address);
        let found = index.and_then(|index| Some((index, self.names.get(index)?)));
        let Some((index, (name, arity))) = found else {
            return BeamFunction::shared_code();
        };
        let (first_line, location) = self.locations(index, address);
        let line = location & LINE_MASK;
        let file = match location >> FILE_SHIFT {
            _ if line == 0 => String::new(),
            0 => format!("{}.erl", self.name),
            number => {
                let file = self.files.get(number as usize - 1);
                file.cloned().unwrap_or_default()
            }
        };
        BeamFunction {
            name: match self.name.strip_prefix(ELIXIR) {
                Some(module) => format!("{module}.{name}/{arity}"),
                None => format!("{}:{name}/{arity}", self.name),
            },
            file,
            first_line,
            line,
            is_shared_code: false,
        }
    }

    fn bytes(&self) -> usize {
        let files = self.files.iter();
        size_of::<Self>()
            + files
                .map(|file| size_of::<String>() + file.len())
                .sum::<usize>()
            + self.names.len() * size_of::<(Arc<str>, u8)>()
            + self.functions.len() * size_of::<u64>()
            + self.line_ranges.len() * size_of::<Range<usize>>()
            + self.lines.len() * size_of::<(u64, u32)>()
    }
}

fn words(memory: &impl Memory, address: u64, count: u64) -> Result<Vec<u64>, FunctionError> {
    let bytes = memory.bytes(address, count as usize * 8)?;
    let (words, _) = bytes.as_chunks();
    Ok(words.iter().map(|word| u64::from_le_bytes(*word)).collect())
}

/// A list of characters.
fn text(memory: &impl Memory, mut term: u64) -> Result<String, FunctionError> {
    const POINTER_TAG: u64 = 3;
    const LIST: u64 = 1;
    const NIL: u64 = 0x3b;
    const SMALL_TAG: u64 = 0xf;
    let mut text = String::new();
    while term != NIL && text.len() < MAX_PATH_CHARACTERS {
        if term & POINTER_TAG != LIST {
            return Err(FunctionError::Invalid("a file name is not a list"));
        }
        let cell = term - LIST;
        let character = memory.word(cell)?;
        if character & SMALL_TAG != SMALL_TAG {
            return Err(FunctionError::Invalid("a file name is not text"));
        }
        let character = u32::try_from(character >> 4).ok().and_then(char::from_u32);
        text.push(character.unwrap_or(char::REPLACEMENT_CHARACTER));
        term = memory.word(cell.wrapping_add(8))?;
    }
    Ok(text)
}
