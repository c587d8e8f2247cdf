//! Finds CoreCLR in processes, and reads the methods at addresses.

use std::collections::HashMap;
use std::convert::Infallible;
use std::io;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use profcol_dotnet::{Assembly, DebugInfoFormat, IlMap, ImageLayout, ReadyToRun};
use profcol_ebpf_common::interpreter::dotnet::DotNetProcess;
use profcol_elf::{Mapping, Segment, Source};
use profcol_processes::executable_path;

use super::limits::{BudgetShare, table_memory};
use super::lines::{ProgramDirectory, SourceLines};
use super::{
    CodeAt, CodeReader, CompiledMethod, CoreClr, Described, DotNetFunction, ImageAt, Layout,
};
use crate::FunctionError;
use crate::memory::{Memory, MemoryError};
use crate::runtime_files::{Attached, RuntimeFiles, code_of, mappings_of};

const LIBRARY: &str = "libcoreclr.so";
/// Maximum number of mappings of code to look at: single-file programs also map assemblies from their file.
const MAX_MAPPINGS: usize = 4096;
/// Maximum number of assemblies of a process whose headers are cached. Large programs have some hundreds.
const MAX_ASSEMBLIES: usize = 1024;
const MAX_NAME_BYTES: usize = 256;
/// Bytes of debug information that tell how many there are, and their maximum: methods of a MiB have less.
const DEBUG_INFO_HEAD: usize = 64;
const MAX_DEBUG_INFO: usize = 1 << 20;
/// Methods that the runtime makes for calls between managed and native code.
const STUB_PREFIX: &str = "IL_STUB";

/// The tracked runtime files.
pub type DotNetFiles = RuntimeFiles<Arc<RuntimeFile>>;

#[derive(Debug)]
pub struct RuntimeFile {
    runtime: CoreClr,
    segments: Vec<Segment>,
}

/// The runtime of a process.
#[derive(Debug)]
pub struct DotNetRuntime {
    pub process: DotNetProcess,
    layout: Layout,
    pid: u32,
    assemblies: HashMap<ImageAt, Option<Arc<LoadedAssembly>>>,
}

#[derive(Debug)]
struct LoadedAssembly {
    assembly: Assembly,
    /// Read when it is needed.
    precompiled: OnceLock<Option<(ReadyToRun, BudgetShare)>>,
    lines: Option<SourceLines>,
}

/// The contents of an assembly as a source.
struct ImageMemory<'a, M> {
    memory: &'a M,
    image: ImageAt,
}

impl<M: Memory> Source for ImageMemory<'_, M> {
    fn length(&self) -> io::Result<u64> {
        Ok(self.image.size.into())
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let end = offset.checked_add(buffer.len() as u64);
        if end.is_none_or(|end| end > self.image.size.into()) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let read = self
            .memory
            .read(self.image.base.wrapping_add(offset), buffer);
        read.map_err(|MemoryError { error, .. }| error)
    }
}

impl DotNetFiles {
    /// Looks for the runtime in a process.
    pub fn attach(&mut self, pid: u32, memory: &impl Memory) -> Attached<DotNetRuntime> {
        let executable = executable_path(pid);
        let may_have_it = |mapping: &Mapping| {
            mapping.path.ends_with(LIBRARY)
                || executable.is_some() && mapping.path.to_str() == executable.as_deref()
        };
        let mut mappings = code_of(pid).filter(may_have_it).take(MAX_MAPPINGS);
        let found = mappings.find_map(|mapping| {
            let file = self.file(pid, &mapping)?;
            Some((file.bias(&mapping)?, file))
        });
        let Some((bias, file)) = found else {
            return Attached::None;
        };
        let layout = file.runtime.layout;
        let ranges = memory.word(file.runtime.debugger_table.wrapping_add(bias));
        match ranges {
            Err(_) | Ok(0) => Attached::NotYet,
            Ok(ranges) => Attached::Runtime(Box::new(DotNetRuntime::new(layout, ranges, pid))),
        }
    }

    fn file(&mut self, pid: u32, mapping: &Mapping) -> Option<Arc<RuntimeFile>> {
        let found = self.get_or_detect(pid, mapping, |code, file| {
            // The loader warned of unsupported ones when it read the file.
            let runtime = CoreClr::detect(code, file).unwrap_or(None);
            Ok::<_, Infallible>(runtime.map(|runtime| {
                Arc::new(RuntimeFile {
                    runtime,
                    segments: code.segments.clone(),
                })
            }))
        });
        let Ok(found) = found;
        found
    }
}

impl RuntimeFile {
    /// The load bias, if it is a mapping of a segment: single-file programs map assemblies from the same file.
    fn bias(&self, mapping: &Mapping) -> Option<u64> {
        let Range { start, end } = mapping.range;
        let end = mapping.offset.saturating_add(end.saturating_sub(start));
        let mut segments = self.segments.iter();
        let segment = segments
            .find(|segment| segment.file_offset < end && mapping.offset < segment.file_end())?;
        let at_offset_0 = start.wrapping_sub(mapping.offset);
        Some(at_offset_0.wrapping_sub(segment.address.wrapping_sub(segment.file_offset)))
    }
}

impl DotNetRuntime {
    /// `ranges` is the address of the map of code ranges.
    pub fn new(layout: Layout, ranges: u64, pid: u32) -> Self {
        Self {
            process: DotNetProcess {
                ranges,
                has_distances: u32::from(layout.has_distances),
                unused: 0,
            },
            layout,
            pid,
            assemblies: HashMap::new(),
        }
    }

    /// Reads the method with code at an address.
    pub fn function(
        &mut self,
        memory: &impl Memory,
        address: u64,
    ) -> Result<DotNetFunction, FunctionError> {
        let layout = self.layout;
        let reader = CodeReader {
            layout: &layout,
            process: self.process,
            memory,
        };
        match reader.code_at(address)? {
            None => Err(FunctionError::Invalid("no code of .NET at the address")),
            Some(CodeAt::Stub) => Ok(DotNetFunction::stub()),
            Some(CodeAt::Method(method)) => self.compiled(&reader, &method, address),
            Some(CodeAt::Precompiled(module)) => self.precompiled(&reader, module, address),
        }
    }

    fn compiled<M: Memory>(
        &mut self,
        reader: &CodeReader<'_, M>,
        method: &CompiledMethod,
        address: u64,
    ) -> Result<DotNetFunction, FunctionError> {
        match reader.describe(method.descriptor)? {
            Described::Dynamic { name } => {
                let name = text(reader.memory, name)?;
                Ok(DotNetFunction {
                    is_stub: name.starts_with(STUB_PREFIX),
                    is_dynamic: true,
                    name: format!("DynamicClass.{name}"),
                    ..DotNetFunction::default()
                })
            }
            Described::Row { module, row } => {
                let image = reader.image(module)?;
                let source = ImageMemory {
                    memory: reader.memory,
                    image,
                };
                let loaded = self.assembly(&source)?;
                let mut function = DotNetFunction {
                    name: loaded.assembly.method(&source, row)?,
                    ..DotNetFunction::default()
                };
                if let Some(lines) = &loaded.lines {
                    let il_offset = self.il_offset(reader.memory, method, address);
                    lines.add(&mut function, row, il_offset.ok().flatten());
                }
                Ok(function)
            }
        }
    }

    /// The IL offset of an address in a method. None if it has none.
    fn il_offset(
        &self,
        memory: &impl Memory,
        method: &CompiledMethod,
        address: u64,
    ) -> Result<Option<u32>, FunctionError> {
        let format = DebugInfoFormat::Jit(self.layout.major);
        let mut bytes = memory.padded(method.debug_info, DEBUG_INFO_HEAD)?;
        let size = IlMap::size(&bytes, format)?;
        let size = size.and_then(|size| usize::try_from(size).ok());
        match size {
            None | Some(MAX_DEBUG_INFO..) => {
                return Err(FunctionError::Invalid("debug information is too long"));
            }
            Some(size) => bytes = memory.bytes(method.debug_info, size)?,
        }
        let map = IlMap::read(&bytes, format)?;
        let offset = u32::try_from(address.wrapping_sub(method.start)).ok();
        Ok(offset.and_then(|offset| map.il_offset(offset)))
    }

    /// Code that was compiled ahead of time, in an image that the runtime copied: otherwise its file has the names.
    fn precompiled<M: Memory>(
        &mut self,
        reader: &CodeReader<'_, M>,
        module: u64,
        address: u64,
    ) -> Result<DotNetFunction, FunctionError> {
        let image = reader.image(module)?;
        let source = ImageMemory {
            memory: reader.memory,
            image,
        };
        let loaded = self.assembly(&source)?;
        let rva = u32::try_from(address.wrapping_sub(image.base)).ok();
        let method = rva.and_then(|rva| loaded.precompiled(&source)?.method_at(rva));
        let token = method.and_then(|method| method.token);
        let Some(token) = token else {
            return Ok(DotNetFunction::stub());
        };
        Ok(DotNetFunction {
            name: loaded.assembly.method_by_token(&source, token)?,
            is_precompiled: true,
            ..DotNetFunction::default()
        })
    }

    fn assembly<M: Memory>(
        &mut self,
        source: &ImageMemory<'_, M>,
    ) -> Result<Arc<LoadedAssembly>, FunctionError> {
        let unreadable = FunctionError::Invalid("an assembly is damaged");
        if let Some(known) = self.assemblies.get(&source.image) {
            return known.clone().ok_or(unreadable);
        }
        let layout = match source.image.is_mapped {
            true => ImageLayout::Loaded,
            false => ImageLayout::File,
        };
        let read = Assembly::read(source, layout).map(|assembly| {
            let mut mappings = mappings_of(self.pid);
            let mapping = mappings.find(|mapping| mapping.range.contains(&source.image.base));
            let directory =
                mapping.and_then(|mapping| ProgramDirectory::of_file(self.pid, &mapping.path));
            Arc::new(LoadedAssembly {
                lines: SourceLines::find(&assembly, source, directory.as_ref()),
                assembly,
                precompiled: OnceLock::new(),
            })
        });
        if let Err(error) = &read {
            tracing::debug!(%error, "failed to read a .NET assembly in memory");
        }
        if self.assemblies.len() >= MAX_ASSEMBLIES {
            self.assemblies.clear();
        }
        let read = read.ok();
        self.assemblies.insert(source.image, read.clone());
        read.ok_or(unreadable)
    }
}

impl LoadedAssembly {
    /// The code that was compiled ahead of time.
    fn precompiled<M: Memory>(&self, source: &ImageMemory<'_, M>) -> Option<&ReadyToRun> {
        let read = || {
            let methods = self.assembly.ready_to_run(source).ok().flatten()?;
            let reserved = table_memory(methods.bytes())?;
            Some((methods, reserved))
        };
        let (methods, _) = self.precompiled.get_or_init(read).as_ref()?;
        Some(methods)
    }
}

/// The text up to a zero.
fn text(memory: &impl Memory, address: u64) -> Result<String, FunctionError> {
    const PIECE: usize = 32;
    let mut text = Vec::new();
    while text.len() < MAX_NAME_BYTES {
        let at = address.wrapping_add(text.len() as u64);
        // A piece does not reach into the next page, which may not be mapped.
        let bytes = memory.bytes(at, PIECE - at as usize % PIECE)?;
        let end = bytes.iter().position(|byte| *byte == 0);
        text.extend_from_slice(bytes.get(..end.unwrap_or(bytes.len())).unwrap_or_default());
        if end.is_some() {
            break;
        }
    }
    Ok(String::from_utf8_lossy(&text).into_owned())
}
