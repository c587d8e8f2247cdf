//! .NET in a file, and the names of code that was compiled ahead of time.

use std::collections::HashMap;
use std::fmt::{self, Debug};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use parking_lot::Mutex;
use profcol_dotnet::{Assembly, Bundle, DotNetError, ImageLayout, MethodToken, Part, ReadyToRun};
use profcol_ebpf_unwind::ElfCode;
use profcol_elf::Source;

use super::limits::{BudgetShare, table_memory};
use super::lines::{ProgramDirectory, SourceLines};
use super::{CoreClr, DotNetFunction};
use crate::Unsupported;

/// Maximum number of files with assemblies, each open. Code of others has no names.
const MAX_OPEN: usize = 512;
/// Maximum number of cached functions of a file.
const MAX_FUNCTIONS: usize = 1 << 14;
/// Files in a single-file program follow its executable.
const MIN_BUNDLE_BYTES: u64 = 4096;

static OPEN: AtomicUsize = AtomicUsize::new(0);

/// What a file has of .NET: the runtime, assemblies, or both, as in a single-file program.
#[derive(Debug)]
pub struct DotNetFile {
    pub runtime: Option<CoreClr>,
    assemblies: Option<Assemblies>,
}

struct Assemblies {
    source: Arc<dyn Source + Send + Sync>,
    /// None if the file is an assembly.
    bundle: Option<Bundle>,
    directory: Option<ProgramDirectory>,
    state: Mutex<State>,
    _open: BudgetShare,
}

#[derive(Default)]
struct State {
    /// By their offset in the file; None without native code.
    precompiled: HashMap<u64, Option<Arc<PrecompiledAssembly>>>,
    functions: HashMap<u64, Option<Arc<DotNetFunction>>>,
}

struct PrecompiledAssembly {
    assembly: Assembly,
    methods: ReadyToRun,
    lines: Option<SourceLines>,
    _bytes: BudgetShare,
}

impl DotNetFile {
    /// The runtime in an executable file, and the assemblies if it is a single-file program. PDBs may be in its directory.
    pub fn of_executable(
        code: &ElfCode,
        source: &Arc<dyn Source + Send + Sync>,
        directory: Option<ProgramDirectory>,
    ) -> Result<Option<Self>, Unsupported> {
        let runtime = CoreClr::detect(code, &**source)?;
        let ends = code.segments.iter().map(|segment| segment.file_end());
        let bundle_start = ends.max().unwrap_or_default();
        let length = source.length().unwrap_or_default();
        let bundle = match length.saturating_sub(bundle_start) {
            0..MIN_BUNDLE_BYTES => None,
            _ => Bundle::read(&**source).ok().flatten(),
        };
        let assemblies =
            bundle.and_then(|bundle| Assemblies::open(source, Some(bundle), directory));
        let is_found = runtime.is_some() || assemblies.is_some();
        Ok(is_found.then_some(Self {
            runtime,
            assemblies,
        }))
    }

    /// The assembly in a file that is not an executable of Linux.
    pub fn of_assembly(
        source: &Arc<dyn Source + Send + Sync>,
        directory: Option<ProgramDirectory>,
    ) -> Option<Self> {
        Assembly::read(&**source, ImageLayout::File).ok()?;
        Some(Self {
            runtime: None,
            assemblies: Some(Assemblies::open(source, None, directory)?),
        })
    }

    /// The assemblies of a single-file program.
    pub fn bundle(&self) -> Option<&Bundle> {
        self.assemblies.as_ref()?.bundle.as_ref()
    }

    /// The method with code at this offset that was compiled ahead of time.
    pub fn function(&self, offset: u64) -> Option<Arc<DotNetFunction>> {
        self.assemblies.as_ref()?.function(offset)
    }
}

impl Assemblies {
    fn open(
        source: &Arc<dyn Source + Send + Sync>,
        bundle: Option<Bundle>,
        directory: Option<ProgramDirectory>,
    ) -> Option<Self> {
        let Some(open) = BudgetShare::take(&OPEN, 1, MAX_OPEN) else {
            tracing::debug!(limit = MAX_OPEN, "too many .NET assemblies are open");
            return None;
        };
        Some(Self {
            source: Arc::clone(source),
            bundle,
            directory,
            state: Mutex::default(),
            _open: open,
        })
    }

    fn function(&self, offset: u64) -> Option<Arc<DotNetFunction>> {
        let mut state = self.state.lock();
        if let Some(known) = state.functions.get(&offset) {
            return known.clone();
        }
        let part = match &self.bundle {
            Some(bundle) => {
                let file = bundle.file_at(offset)?;
                self.part(file.offset, file.size)
            }
            None => self.part(0, self.source.length().ok()?),
        };
        let assembly = match state.precompiled.get(&part.offset) {
            Some(known) => known.clone(),
            None => {
                let read = PrecompiledAssembly::read(&part, self.directory.as_ref());
                let read = read.unwrap_or_else(|error| {
                    tracing::debug!(%error, "failed to read a .NET assembly");
                    None
                });
                state.precompiled.insert(part.offset, read.clone());
                read
            }
        };
        let found = assembly.and_then(|assembly| assembly.function(&part, offset));
        if state.functions.len() >= MAX_FUNCTIONS {
            state.functions.clear();
        }
        state.functions.insert(offset, found.clone());
        found
    }

    fn part(&self, offset: u64, size: u64) -> Part<&(dyn Source + Send + Sync)> {
        Part {
            source: &*self.source,
            offset,
            size,
        }
    }
}

impl PrecompiledAssembly {
    /// None without native code.
    fn read<S: Source>(
        part: &Part<S>,
        directory: Option<&ProgramDirectory>,
    ) -> Result<Option<Arc<Self>>, DotNetError> {
        let assembly = Assembly::read(part, ImageLayout::File)?;
        let Some(methods) = assembly.ready_to_run(part)? else {
            return Ok(None);
        };
        let Some(bytes) = table_memory(methods.bytes()) else {
            return Ok(None);
        };
        Ok(Some(Arc::new(Self {
            lines: SourceLines::find(&assembly, part, directory),
            assembly,
            methods,
            _bytes: bytes,
        })))
    }

    fn function<S: Source>(&self, part: &Part<S>, offset: u64) -> Option<Arc<DotNetFunction>> {
        let rva = self
            .assembly
            .rva_of_offset(offset.checked_sub(part.offset)?)?;
        let method = self.methods.method_at(rva)?;
        let token = method.token?;
        let mut function = DotNetFunction {
            name: self.assembly.method_by_token(part, token).ok()?,
            ..DotNetFunction::default()
        };
        if let (Some(lines), MethodToken::MethodDef(row)) = (&self.lines, token) {
            let map = self.methods.il_map(part, &method).ok().flatten();
            let il_offset = map.and_then(|map| map.il_offset(rva - method.start));
            lines.add(&mut function, row, il_offset);
        }
        Some(Arc::new(function))
    }
}

impl Debug for Assemblies {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bundle = self.bundle.as_ref();
        let count = bundle.map_or(1, |bundle| bundle.files().len());
        write!(to, "{count} assemblies")
    }
}
