//! Loads the BPF programs.

use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};

use aya::maps::{Array, HashMap, Map, MapData, MapError, PerCpuArray, Queue, RingBuf};
use aya::programs::{PerfEvent, ProgramError};
use aya::{EbpfError, EbpfLoader};
use profcol_ebpf_common::context::ContextLayout;
use profcol_ebpf_common::context::library::ProcessContexts;
use profcol_ebpf_common::counter::COUNTERS;
use profcol_ebpf_common::file::{FileEntry, FileId, file_number};
use profcol_ebpf_common::interpreter::Interpreter;
use profcol_ebpf_common::interpreter::beam::BeamProcess;
use profcol_ebpf_common::interpreter::dotnet::DotNetProcess;
use profcol_ebpf_common::interpreter::hotspot::JavaProcess;
use profcol_ebpf_common::layout::Layout;
use profcol_ebpf_common::published::{Area, ImageAreas, MAX_AREAS_SHIFT, ProcessImage};
use profcol_ebpf_common::record::ProcessKey;
use profcol_ebpf_common::sample_counts::count_buffer;
use profcol_ebpf_common::settings::{FRAME_CACHE_SHIFT, Settings, mappings};

use crate::addresses;
use crate::areas::AreaMemory;
use crate::arena::Arena;
use crate::identify::{self, IDENTIFY, Identifier};
use crate::load_error::LoadError;
use crate::loaded_object;
use crate::memory::Memory;
use crate::namespace::Namespace;
use crate::objects;
use crate::registers;
use crate::sample_counts::SampleCounts;
use crate::sys;

#[cfg(test)]
mod tests;

/// The kind of memory for unwind tables. The programs are compiled once for each, from the same sources.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableMemory {
    /// Since Linux 6.9.
    Arena,
    Blocks,
}

impl TableMemory {
    pub fn name(self) -> &'static str {
        match self {
            Self::Arena => "arena",
            Self::Blocks => "blocks",
        }
    }

    fn from_name(name: &OsStr) -> Option<Self> {
        [Self::Arena, Self::Blocks]
            .into_iter()
            .find(|memory| name == memory.name())
    }

    fn object(self) -> &'static [u8] {
        match self {
            Self::Arena => objects::ARENA,
            Self::Blocks => objects::BLOCKS,
        }
    }
}

/// Forces one kind of table memory, for tests.
const TABLES_VARIABLE: &str = "PROFCOL_EBPF_TABLES";

/// The source of process mappings in the programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mappings {
    /// The kernel's VMA tree.
    Tree,
    /// Mappings published by user space.
    Published,
}

/// The loaded programs and their maps.
pub struct Programs {
    /// Owns the object, which provides the other programs.
    pub identifier: Identifier,
    pub records: RingBuf<MapData>,
    pub counters: PerCpuArray<MapData, [u64; COUNTERS]>,
    pub files: HashMap<MapData, FileId, FileEntry>,
    pub free_numbers: Queue<MapData, u32>,
    pub processes: HashMap<MapData, ProcessKey, u32>,
    pub interpreters: HashMap<MapData, u32, Interpreter>,
    pub java_processes: HashMap<MapData, ProcessKey, JavaProcess>,
    pub beam_processes: HashMap<MapData, ProcessKey, BeamProcess>,
    pub dotnet_processes: HashMap<MapData, ProcessKey, DotNetProcess>,
    pub executable_contexts: HashMap<MapData, u32, ContextLayout>,
    pub process_contexts: HashMap<MapData, ProcessKey, ProcessContexts>,
    pub image_areas: HashMap<MapData, ProcessImage, ImageAreas>,
    pub areas: AreaMemory,
    pub sample_counts: SampleCounts,
    pub arena: Arena,
    pub table_memory: TableMemory,
}

/// Size limits.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    pub table_bytes: u64,
    pub files: u32,
    pub processes: u32,
    pub ring_bytes: u32,
    pub max_frames: u32,
    /// Whether process records include arguments.
    pub with_arguments: bool,
    pub namespace: Option<Namespace>,
    /// Maximum number of distinct counted samples; 0 sends each sample.
    pub sample_counts: u32,
    /// What to read of the contexts of threads.
    pub context_parts: u32,
}

/// Maximum number of tracked files with an interpreter. A host has about ten; more are counted and show
/// native frames.
const MAX_INTERPRETERS: u32 = 512;

/// Maximum number of tracked executables whose threads have contexts; threads of others have none.
const MAX_EXECUTABLE_CONTEXTS: u32 = 2048;

/// Maximum number of tracked processes with contexts in libraries. The least recently sampled ones have none until they are looked at
/// again.
const MAX_PROCESS_CONTEXTS: u32 = 2048;

/// Maximum number of cached interpreter threads; others need a look-up at each sample.
const THREADS: u32 = 1 << 14;

/// Average number of areas per process; forked processes share their parent's.
const AREAS_OF_PROCESS: u32 = 16;

impl Sizes {
    /// Room for the published areas of all processes.
    fn areas(&self) -> u32 {
        let one = 1 << MAX_AREAS_SHIFT;
        self.processes.saturating_mul(AREAS_OF_PROCESS).max(one * 2)
    }
}

const ARENA: &str = "arena";
const BLOCKS: &str = "blocks";
const FIRST_COUNTS: &str = "first_counts";
const SECOND_COUNTS: &str = "second_counts";
const IMAGE_AREAS: &str = "image_areas";
const AREAS: &str = "areas";
const INTERPRETERS: &str = "interpreters";
const JAVA_PROCESSES: &str = "java_processes";
const BEAM_PROCESSES: &str = "beam_processes";
const DOTNET_PROCESSES: &str = "dotnet_processes";
const EXECUTABLE_CONTEXTS: &str = "executable_contexts";
const PROCESS_CONTEXTS: &str = "process_contexts";
const SAMPLE: &str = "sample";

impl Programs {
    /// Loads the programs that this kernel accepts.
    pub fn load(layout: Layout, mappings: Mappings, sizes: &Sizes) -> Result<Self, LoadError> {
        sys::raise_locked_memory();
        let forced = std::env::var_os(TABLES_VARIABLE);
        if let Some(memory) = forced.as_deref().and_then(TableMemory::from_name) {
            return Self::load_with(memory, layout, mappings, sizes);
        }
        Self::load_with(TableMemory::Arena, layout, mappings, sizes).or_else(|refused| {
            tracing::debug!(error = %refused, "failed to load programs with arenas; using blocks");
            Self::load_with(TableMemory::Blocks, layout, mappings, sizes)
        })
    }

    pub fn load_with(
        memory: TableMemory,
        layout: Layout,
        mappings: Mappings,
        sizes: &Sizes,
    ) -> Result<Self, LoadError> {
        let bytes = memory.object();
        let cpus = aya::util::nr_cpus().map_err(|(_, error)| LoadError::Cpus(error))?;
        let frame_cache = u32::try_from(cpus << FRAME_CACHE_SHIFT).unwrap_or(u32::MAX);
        let page = sys::page_size();
        let pages = u32::try_from(sizes.table_bytes.div_ceil(page)).unwrap_or(u32::MAX);
        let (images, areas) = match mappings {
            Mappings::Tree => (1, 1),
            Mappings::Published => (sizes.processes, sizes.areas()),
        };
        let mut object = EbpfLoader::new()
            // The object has no CO-RE relocations, and parsing the kernel's BTF is not cheap.
            .btf(None)
            .allow_unsupported_maps()
            .map_max_entries(ARENA, pages)
            .map_max_entries(BLOCKS, Memory::blocks(sizes.table_bytes))
            .map_max_entries("files", sizes.files)
            .map_max_entries("free_numbers", sizes.files)
            .map_max_entries("processes", sizes.processes)
            .map_max_entries(INTERPRETERS, MAX_INTERPRETERS)
            .map_max_entries(EXECUTABLE_CONTEXTS, MAX_EXECUTABLE_CONTEXTS)
            .map_max_entries(PROCESS_CONTEXTS, MAX_PROCESS_CONTEXTS)
            .map_max_entries("python_threads", THREADS)
            .map_max_entries("v8_files", sizes.processes)
            .map_max_entries("runtime_processes", sizes.processes)
            .map_max_entries(JAVA_PROCESSES, sizes.processes)
            .map_max_entries(BEAM_PROCESSES, sizes.processes)
            .map_max_entries(DOTNET_PROCESSES, sizes.processes)
            .map_max_entries("frame_cache", frame_cache)
            .map_max_entries(IMAGE_AREAS, images)
            .map_max_entries(AREAS, areas)
            .map_max_entries("records", sizes.ring_bytes)
            .map_max_entries(FIRST_COUNTS, sizes.sample_counts.max(1))
            .map_max_entries(SECOND_COUNTS, sizes.sample_counts.max(1))
            .load(bytes)
            .map_err(object_error)?;

        let arena = match memory {
            TableMemory::Arena => {
                let Some(Map::Unsupported(data)) = object.map(ARENA) else {
                    return Err(LoadError::Missing(ARENA));
                };
                Memory::of_arena(data.fd().as_fd(), pages as usize * page as usize)
            }
            TableMemory::Blocks => Memory::of_blocks(loaded_object::map(&mut object, BLOCKS)?),
        };
        let arena = Arena::new(arena.map_err(LoadError::Memory)?);
        let mut settings: Array<_, Settings> = loaded_object::map(&mut object, "settings")?;
        let mut settings_value = Settings {
            layout,
            arena: arena.address(),
            rules_offset: Arena::RULES_OFFSET,
            max_frames: sizes.max_frames,
            with_arguments: sizes.with_arguments.into(),
            namespace_inode: sizes.namespace.map_or(0, |namespace| namespace.inode),
            namespace_device: sizes.namespace.map_or(0, |namespace| namespace.device),
            address_bits: addresses::bits().map_err(LoadError::Addresses)?,
            page_shift: u64::from(page.trailing_zeros()),
            count_buffer: if sizes.sample_counts > 0 {
                count_buffer::FIRST
            } else {
                count_buffer::NONE
            },
            mappings: match mappings {
                Mappings::Tree => mappings::TREE,
                Mappings::Published => mappings::PUBLISHED,
            },
            context_parts: sizes.context_parts,
            unused: 0,
            user_regs_offset: 0,
        };
        set(&mut settings, settings_value)?;
        let mut numbers: Queue<_, u32> = loaded_object::map(&mut object, "free_numbers")?;
        let last = file_number::FIRST_FILE
            .saturating_add(sizes.files)
            .min(file_number::LIMIT);
        for number in file_number::FIRST_FILE..last {
            numbers.push(number, 0).map_err(|error| LoadError::Map {
                name: "free_numbers",
                error,
            })?;
        }

        let sampler: &mut PerfEvent = loaded_object::program(&mut object, SAMPLE)?;
        sampler.load().map_err(|error| LoadError::Program {
            name: SAMPLE,
            error: error.into(),
        })?;
        identify::program(&mut object)?
            .load()
            .map_err(|error| LoadError::Program {
                name: IDENTIFY,
                error: error.into(),
            })?;
        let areas: Array<_, Area> = loaded_object::map(&mut object, AREAS)?;
        let records = loaded_object::map(&mut object, "records")?;
        let counters = loaded_object::map(&mut object, "counters")?;
        let files = loaded_object::map(&mut object, "files")?;
        let processes = loaded_object::map(&mut object, "processes")?;
        let interpreters = loaded_object::map(&mut object, INTERPRETERS)?;
        let java_processes = loaded_object::map(&mut object, JAVA_PROCESSES)?;
        let beam_processes = loaded_object::map(&mut object, BEAM_PROCESSES)?;
        let dotnet_processes = loaded_object::map(&mut object, DOTNET_PROCESSES)?;
        let executable_contexts = loaded_object::map(&mut object, EXECUTABLE_CONTEXTS)?;
        let process_contexts = loaded_object::map(&mut object, PROCESS_CONTEXTS)?;
        let image_areas = loaded_object::map(&mut object, IMAGE_AREAS)?;
        let first_counts = loaded_object::hash_map(&mut object, FIRST_COUNTS)?;
        let second_counts = loaded_object::hash_map(&mut object, SECOND_COUNTS)?;
        let mut identifier = Identifier {
            identified: loaded_object::map(&mut object, "identified")?,
            object,
        };
        settings_value.user_regs_offset = registers::find(&mut identifier).unwrap_or(0);
        set(&mut settings, settings_value)?;
        Ok(Self {
            records,
            counters,
            files,
            free_numbers: numbers,
            processes,
            interpreters,
            java_processes,
            beam_processes,
            dotnet_processes,
            executable_contexts,
            process_contexts,
            image_areas,
            areas: AreaMemory::new(&areas).map_err(LoadError::Memory)?,
            sample_counts: SampleCounts::new(settings, settings_value, first_counts, second_counts),
            arena,
            table_memory: memory,
            identifier,
        })
    }

    /// The loaded program that runs on each perf event.
    pub fn sampler_fd(&mut self) -> Result<OwnedFd, LoadError> {
        let failed = |error: ProgramError| LoadError::Program {
            name: SAMPLE,
            error: error.into(),
        };
        let sampler: &mut PerfEvent = loaded_object::program(&mut self.identifier.object, SAMPLE)?;
        let loaded = sampler.fd().map_err(failed)?;
        loaded
            .as_fd()
            .try_clone_to_owned()
            .map_err(|error| failed(error.into()))
    }
}

fn object_error(error: EbpfError) -> LoadError {
    let is_forbidden = matches!(
        &error,
        EbpfError::MapError(MapError::CreateError { io_error, .. })
            if io_error.raw_os_error() == Some(libc::EPERM)
    );
    // Capabilities were checked before, so the reason is locked memory.
    match sys::raise_locked_memory() {
        Some(limit) if is_forbidden => LoadError::LockedMemory { limit },
        _ => LoadError::Object(error.into()),
    }
}

fn set(settings: &mut Array<MapData, Settings>, settings_value: Settings) -> Result<(), LoadError> {
    settings
        .set(0, settings_value, 0)
        .map_err(|error| LoadError::Map {
            name: "settings",
            error,
        })
}
