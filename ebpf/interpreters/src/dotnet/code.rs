//! Which method the code at an address belongs to, from the tables of a running CoreCLR.

use profcol_ebpf_common::interpreter::dotnet::{self, DotNetProcess, Header};
use profcol_ebpf_common::interpreter::{BLOCK_BYTES, BLOCK_WORDS, BlockMemory};

use super::layout::{Layout, code_header, method_chunk, method_desc, module};
use crate::FunctionError;
use crate::memory::Memory;

/// Blocks of the nibble map before the address, for methods of 16 MiB.
const MAX_BLOCKS: u32 = 2048;

/// What is at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CodeAt {
    Method(CompiledMethod),
    /// Code in this module's image.
    Precompiled(u64),
    /// Code of the runtime between methods.
    Stub,
}

/// A method that the JIT compiler compiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompiledMethod {
    pub start: u64,
    /// Address of its debug information.
    pub debug_info: u64,
    pub descriptor: u64,
}

/// What the descriptor of a method says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Described {
    /// A row of `MethodDef` in the metadata of a module.
    Row { module: u64, row: u32 },
    /// A method without metadata, with the address of its name.
    Dynamic { name: u64 },
}

/// The contents of an assembly in the memory of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ImageAt {
    pub base: u64,
    pub size: u32,
    pub is_mapped: bool,
}

/// Reads the tables of a process.
pub struct CodeReader<'a, M> {
    pub layout: &'a Layout,
    pub process: DotNetProcess,
    pub memory: &'a M,
}

/// Reads like the programs.
struct Blocks<'a, M> {
    memory: &'a M,
    block: [u64; BLOCK_WORDS],
}

impl<M: Memory> BlockMemory for Blocks<'_, M> {
    fn load_block(&mut self, address: u64, bytes: u32) -> bool {
        let mut block = [0; BLOCK_BYTES as usize];
        let Some(part) = block.get_mut(..bytes as usize) else {
            return false;
        };
        if self.memory.read(address, part).is_err() {
            return false;
        }
        let (words, _) = block.as_chunks();
        for (to, from) in self.block.iter_mut().zip(words) {
            *to = u64::from_le_bytes(*from);
        }
        true
    }

    fn block_word(&self, index: u32) -> u64 {
        let word = self.block.get(index as usize % BLOCK_WORDS);
        word.copied().unwrap_or_default()
    }

    fn word(&mut self, address: u64) -> Option<u64> {
        self.memory.word(address).ok()
    }
}

impl<M: Memory> CodeReader<'_, M> {
    /// None where the runtime has no code, or it could not be read.
    pub fn code_at(&self, address: u64) -> Result<Option<CodeAt>, FunctionError> {
        let mut blocks = Blocks {
            memory: self.memory,
            block: [0; BLOCK_WORDS],
        };
        let Some(section) = self.process.section(address, &mut blocks) else {
            return Ok(None);
        };
        if section.is_stubs() {
            return Ok(Some(CodeAt::Stub));
        }
        if !section.is_code_heap() {
            return Ok((section.module != 0).then_some(CodeAt::Precompiled(section.module)));
        }
        let Some(mut search) = self.process.search(section.heap, address, &mut blocks) else {
            return Ok(None);
        };
        for _ in 0..MAX_BLOCKS {
            if !self.process.search_step(&mut search, &mut blocks) {
                break;
            }
        }
        let start = search.start;
        if start == 0 {
            return Ok(None);
        }
        Ok(match dotnet::header(start, &mut blocks) {
            None => None,
            Some(Header::Stub) => Some(CodeAt::Stub),
            Some(Header::Method(header)) => Some(CodeAt::Method(CompiledMethod {
                start,
                debug_info: self.word(header.wrapping_add(code_header::DEBUG_INFO))?,
                descriptor: self.word(header.wrapping_add(code_header::METHOD))?,
            })),
        })
    }

    pub fn describe(&self, descriptor: u64) -> Result<Described, FunctionError> {
        if !descriptor.is_multiple_of(method_desc::ALIGN) {
            return Err(FunctionError::Invalid(
                "the descriptor of a method is not aligned",
            ));
        }
        let bytes = self.memory.bytes(descriptor, method_desc::BYTES)?;
        let half = |at: usize| number(&bytes, at as u64) as u16;
        if half(method_desc::FLAGS) & method_desc::KIND == method_desc::DYNAMIC {
            let name = self.word(descriptor.wrapping_add(self.layout.dynamic_name))?;
            return Ok(Described::Dynamic { name });
        }
        let index = u64::from(half(method_desc::CHUNK_INDEX) as u8);
        let chunk = descriptor
            .wrapping_sub(index * method_desc::ALIGN)
            .wrapping_sub(method_chunk::BYTES);
        let head = self.memory.bytes(chunk, method_chunk::BYTES as usize)?;
        let table = number(&head, method_chunk::METHOD_TABLE as u64);
        let mask = (1 << method_desc::TOKEN_BITS) - 1;
        let range = number(&head, method_chunk::TOKEN_RANGE as u64) as u32 & mask;
        let rest = u32::from(half(method_desc::TOKEN_REMAINDER)) & mask;
        Ok(Described::Row {
            module: self.word(table.wrapping_add(module::OF_METHOD_TABLE))?,
            row: range << method_desc::TOKEN_BITS | rest,
        })
    }

    /// The contents of a module.
    pub fn image(&self, module: u64) -> Result<ImageAt, FunctionError> {
        let assembly = self.word(module.wrapping_add(self.layout.module_assembly))?;
        let image = self.word(assembly.wrapping_add(module::IMAGE))?;
        let loaded = self.word(image.wrapping_add(self.layout.loaded_image))?;
        let contents = match loaded {
            0 => self.word(image.wrapping_add(self.layout.flat_image))?,
            loaded => loaded,
        };
        let head = self.memory.bytes(contents, 24)?;
        let flags = number(&head, module::IMAGE_FLAGS) as u32;
        Ok(ImageAt {
            base: number(&head, module::IMAGE_BASE),
            size: number(&head, module::IMAGE_SIZE) as u32,
            is_mapped: flags & module::IS_MAPPED != 0,
        })
    }

    fn word(&self, address: u64) -> Result<u64, FunctionError> {
        Ok(self.memory.word(address)?)
    }
}

/// The number of up to eight bytes at a place.
fn number(bytes: &[u8], at: u64) -> u64 {
    let rest = bytes.get(at as usize..).unwrap_or_default();
    let mut word = [0; 8];
    for (to, from) in word.iter_mut().zip(rest) {
        *to = *from;
    }
    u64::from_le_bytes(word)
}
