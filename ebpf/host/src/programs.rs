//! Loads the BPF programs.

use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};

use aya::maps::{Array, HashMap, Map, MapData, PerCpuArray, Queue, RingBuf};
use aya::programs::{PerfEvent, ProgramError, RawTracePoint};
use aya::{Ebpf, EbpfLoader};
use profcol_ebpf_common::counter::COUNTERS;
use profcol_ebpf_common::file::{FileEntry, FileId, number};
use profcol_ebpf_common::identify::Answer;
use profcol_ebpf_common::layout::Layout;
use profcol_ebpf_common::record::ProcessKey;
use profcol_ebpf_common::repeat::turn;
use profcol_ebpf_common::settings::{REMEMBERED_SHIFT, Settings};

use crate::arena::Arena;
use crate::auxiliary::Auxiliary;
use crate::btf::BtfError;
use crate::memory::Memory;
use crate::namespace::Namespace;
use crate::refusal::Refusal;
use crate::repeats::Repeats;

#[cfg(test)]
mod tests;

/// Where the programs find the unwind tables. The step machine is the same: the sources are
/// compiled once for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableMemory {
    /// From Linux 6.9.
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

/// Built by `cargo xtask bpf`.
mod objects {
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    compile_error!(
        "there are no BPF programs for this machine; build without the feature `ebpf_cpu`"
    );

    #[cfg(target_arch = "x86_64")]
    pub static ARENA: &[u8] = aya::include_bytes_aligned!("../../objects/x86_64.o");
    #[cfg(target_arch = "x86_64")]
    pub static BLOCKS: &[u8] = aya::include_bytes_aligned!("../../objects/x86_64-blocks.o");

    #[cfg(target_arch = "aarch64")]
    pub static ARENA: &[u8] = aya::include_bytes_aligned!("../../objects/aarch64.o");
    #[cfg(target_arch = "aarch64")]
    pub static BLOCKS: &[u8] = aya::include_bytes_aligned!("../../objects/aarch64-blocks.o");
}

/// Names the only table memory to try, for tests.
const FORCED: &str = "PROFCOL_EBPF_TABLES";

#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    #[error(transparent)]
    Btf(#[from] BtfError),
    #[error("the kernel does not take the BPF maps: {0}")]
    Object(Refusal),
    #[error("the kernel does not take the BPF program `{name}`: {error}")]
    Program { name: &'static str, error: Refusal },
    #[error("the BPF object has no `{0}`")]
    Missing(&'static str),
    #[error("the BPF map `{name}` cannot be used: {error}")]
    Map {
        name: &'static str,
        error: aya::maps::MapError,
    },
    #[error("the number of CPUs cannot be read: {0}")]
    Cpus(std::io::Error),
    #[error("the memory of the unwind tables cannot be mapped: {0}")]
    Memory(std::io::Error),
    #[error("cannot tell how large pages are: {0}; mount /proc")]
    Auxiliary(std::io::Error),
}

/// The loaded programs and their maps.
pub struct Programs {
    pub object: Ebpf,
    pub records: RingBuf<MapData>,
    pub counters: PerCpuArray<MapData, [u64; COUNTERS]>,
    pub files: HashMap<MapData, FileId, FileEntry>,
    pub free_numbers: Queue<MapData, u32>,
    pub processes: HashMap<MapData, ProcessKey, u32>,
    pub answer: Array<MapData, Answer>,
    pub repeats: Repeats,
    pub arena: Arena,
    pub table_memory: TableMemory,
}

/// How large everything may grow.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    pub table_bytes: u64,
    pub files: u32,
    pub processes: u32,
    pub ring_bytes: u32,
    pub max_frames: u32,
    /// Whether processes are told with their arguments.
    pub with_arguments: bool,
    pub namespace: Option<Namespace>,
    /// Samples that are counted at once; 0 sends each.
    pub repeats: u32,
}

const ARENA: &str = "arena";
const BLOCKS: &str = "blocks";
const FIRST_REPEATS: &str = "first_repeats";
const SECOND_REPEATS: &str = "second_repeats";
const SAMPLE: &str = "sample";
const IDENTIFY: &str = "identify";

impl Programs {
    /// Loads those that this kernel takes.
    pub fn load(layout: Layout, sizes: &Sizes) -> Result<Self, LoadError> {
        let forced = std::env::var_os(FORCED);
        if let Some(memory) = forced.as_deref().and_then(TableMemory::from_name) {
            return Self::load_with(memory, layout, sizes);
        }
        Self::load_with(TableMemory::Arena, layout, sizes).or_else(|refused| {
            tracing::debug!(error = %refused, "no arena; its place is taken by blocks");
            Self::load_with(TableMemory::Blocks, layout, sizes)
        })
    }

    pub fn load_with(
        memory: TableMemory,
        layout: Layout,
        sizes: &Sizes,
    ) -> Result<Self, LoadError> {
        let bytes = memory.object();
        let cpus = aya::util::nr_cpus().map_err(|(_, error)| LoadError::Cpus(error))?;
        let remembered = u32::try_from(cpus << REMEMBERED_SHIFT).unwrap_or(u32::MAX);
        let host = Auxiliary::read().map_err(LoadError::Auxiliary)?;
        let pages = u32::try_from(sizes.table_bytes.div_ceil(host.page_size)).unwrap_or(u32::MAX);
        let mut object = EbpfLoader::new()
            // The object has no relocations by type, and reading the kernel's types is not cheap.
            .btf(None)
            .allow_unsupported_maps()
            .map_max_entries(ARENA, pages)
            .map_max_entries(BLOCKS, Memory::blocks(sizes.table_bytes))
            .map_max_entries("files", sizes.files)
            .map_max_entries("free_numbers", sizes.files)
            .map_max_entries("processes", sizes.processes)
            .map_max_entries("remembered", remembered)
            .map_max_entries("records", sizes.ring_bytes)
            .map_max_entries(FIRST_REPEATS, sizes.repeats.max(1))
            .map_max_entries(SECOND_REPEATS, sizes.repeats.max(1))
            .load(bytes)
            .map_err(|error| LoadError::Object(error.into()))?;

        let arena = match memory {
            TableMemory::Arena => {
                let Some(Map::Unsupported(data)) = object.map(ARENA) else {
                    return Err(LoadError::Missing(ARENA));
                };
                Memory::of_arena(data.fd().as_fd(), pages as usize * host.page_size as usize)
            }
            TableMemory::Blocks => Memory::of_blocks(take(&mut object, BLOCKS)?),
        };
        let arena = Arena::new(arena.map_err(LoadError::Memory)?);
        let mut settings: Array<_, Settings> = take(&mut object, "settings")?;
        let told = Settings {
            layout,
            arena: arena.address(),
            rules_at: Arena::RULES_AT,
            max_frames: sizes.max_frames,
            with_arguments: sizes.with_arguments.into(),
            namespace_inode: sizes.namespace.map_or(0, |namespace| namespace.inode),
            namespace_device: sizes.namespace.map_or(0, |namespace| namespace.device),
            address_bits: host.address_bits,
            page_shift: u64::from(host.page_size.trailing_zeros()),
            turn: if sizes.repeats > 0 {
                turn::FIRST
            } else {
                turn::NONE
            },
            unused: 0,
        };
        settings.set(0, told, 0).map_err(|error| LoadError::Map {
            name: "settings",
            error,
        })?;
        let mut numbers: Queue<_, u32> = take(&mut object, "free_numbers")?;
        let last = number::FIRST_FILE
            .saturating_add(sizes.files)
            .min(number::LIMIT);
        for number in number::FIRST_FILE..last {
            numbers.push(number, 0).map_err(|error| LoadError::Map {
                name: "free_numbers",
                error,
            })?;
        }

        let mut programs = Self {
            records: take(&mut object, "records")?,
            counters: take(&mut object, "counters")?,
            files: take(&mut object, "files")?,
            free_numbers: numbers,
            processes: take(&mut object, "processes")?,
            answer: take(&mut object, "answer")?,
            repeats: Repeats::new(
                settings,
                told,
                hash_map(&mut object, FIRST_REPEATS)?,
                hash_map(&mut object, SECOND_REPEATS)?,
            ),
            arena,
            table_memory: memory,
            object,
        };
        let sampler: &mut PerfEvent = program(&mut programs.object, SAMPLE)?;
        sampler.load().map_err(|error| LoadError::Program {
            name: SAMPLE,
            error: error.into(),
        })?;
        identifier(&mut programs.object)?
            .load()
            .map_err(|error| LoadError::Program {
                name: IDENTIFY,
                error: error.into(),
            })?;
        Ok(programs)
    }

    /// The loaded program that runs on each tick.
    pub fn sampler_fd(&mut self) -> Result<OwnedFd, LoadError> {
        let failed = |error: ProgramError| LoadError::Program {
            name: SAMPLE,
            error: error.into(),
        };
        let sampler: &mut PerfEvent = program(&mut self.object, SAMPLE)?;
        let loaded = sampler.fd().map_err(failed)?;
        loaded
            .as_fd()
            .try_clone_to_owned()
            .map_err(|error| failed(error.into()))
    }
}

/// The program that says which file is behind an address of this process.
pub fn identifier(object: &mut Ebpf) -> Result<&mut RawTracePoint, LoadError> {
    program(object, IDENTIFY)
}

fn take<T: TryFrom<Map, Error = aya::maps::MapError>>(
    object: &mut Ebpf,
    name: &'static str,
) -> Result<T, LoadError> {
    let map = object.take_map(name).ok_or(LoadError::Missing(name))?;
    T::try_from(map).map_err(|error| LoadError::Map { name, error })
}

/// One that is read in batches.
fn hash_map(object: &mut Ebpf, name: &'static str) -> Result<MapData, LoadError> {
    match object.take_map(name) {
        Some(Map::HashMap(map)) => Ok(map),
        _ => Err(LoadError::Missing(name)),
    }
}

fn program<'a, T>(object: &'a mut Ebpf, name: &'static str) -> Result<&'a mut T, LoadError>
where
    &'a mut T: TryFrom<&'a mut aya::programs::Program, Error = ProgramError>,
{
    object
        .program_mut(name)
        .ok_or(LoadError::Missing(name))?
        .try_into()
        .map_err(|error: ProgramError| LoadError::Program {
            name,
            error: error.into(),
        })
}
