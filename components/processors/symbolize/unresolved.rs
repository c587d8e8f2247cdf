//! The locations of a batch without symbols.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use foldhash::fast::RandomState;
use profcol_component::{CodeAddress, ExecutableAddress};
use profcol_profile::{
    AttributeIdx, Dictionary, LocationIdx, LocationRef, MappingIdx, MappingRef, Model, StackIdx,
};

use super::config::Targets;
use super::host::HostAddress;
use profcol_metadata::attributes::{PID, find};

/// Kernel addresses start here on each architecture.
const KERNEL: u64 = 1 << 63;

/// Number of processes in which a file is looked up.
const MAX_PROCESSES: usize = 4;

/// An executable as described by samples.
#[derive(Clone, Debug)]
pub(super) struct Module {
    pub build_id: Arc<str>,
    /// The path as its processes see it.
    pub path: PathBuf,
    /// Some processes that map it.
    pub processes: Vec<u32>,
}

/// How much more a sample weighs in a leaf function than in its callers: users look for the functions in which
/// the time is spent.
const LEAF: u64 = 8;

/// Locations in executables without known symbols, each with its weight: the number of samples that have it.
pub(super) type Unknown = HashMap<LocationIdx, u64, RandomState>;

/// The locations without symbols, by where they are.
#[derive(Debug, Default)]
pub(super) struct UnresolvedLocations {
    pub modules: Vec<Module>,
    pub locations: HashMap<LocationIdx, (usize, CodeAddress), RandomState>,
    /// Locations in the kernel or in generated code.
    pub on_host: HashMap<LocationIdx, HostAddress>,
    /// Number of locations in executables without a build ID.
    pub anonymous: usize,
}

impl UnresolvedLocations {
    pub fn of(dictionary: &Dictionary, targets: Targets) -> Self {
        let mut unresolved = Self::default();
        let mut known: HashMap<MappingIdx, Option<usize>> = HashMap::new();
        let mut by_id: HashMap<Arc<str>, usize> = HashMap::new();
        for (number, row) in dictionary.locations.iter().enumerate().skip(1) {
            let index = row.location.mapping;
            let kind = Kind::of(dictionary, &row);
            if !row.lines.is_empty() || kind == Kind::Other {
                continue;
            }
            let mapping = dictionary.mappings.get(index);
            if kind != Kind::Native {
                let address = HostAddress::of(dictionary, kind, row.location.address, &mapping);
                if let Some(address) = address
                    && (kind == Kind::Kernel || targets.has_generated())
                {
                    unresolved
                        .on_host
                        .insert(LocationIdx::new(number as u32), address);
                }
                continue;
            }
            if !targets.has_native() {
                continue;
            }
            let module = *known.entry(index).or_insert_with(|| {
                let build_id = build_id(dictionary, &mapping)?;
                let index = by_id.entry(Arc::clone(&build_id));
                Some(*index.or_insert_with(|| {
                    unresolved.modules.push(Module {
                        build_id,
                        path: dictionary.strings.get(mapping.mapping.filename).into(),
                        processes: Vec::new(),
                    });
                    unresolved.modules.len() - 1
                }))
            });
            match module {
                Some(module) => {
                    let address = (
                        module,
                        address_in_executable(row.location.address, &mapping),
                    );
                    unresolved
                        .locations
                        .insert(LocationIdx::new(number as u32), address);
                }
                None => unresolved.anonymous += 1,
            }
        }
        unresolved
    }

    pub fn code(&self, location: LocationIdx) -> Option<ExecutableAddress> {
        let &(module, address) = self.locations.get(&location)?;
        let build_id = Arc::clone(&self.modules.get(module)?.build_id);
        Some(ExecutableAddress { build_id, address })
    }

    /// Weighs these locations, and finds the processes of their modules.
    pub fn weigh(&mut self, model: &Model, unknown: &mut Unknown) {
        for row in &model.resources {
            let resource = row.resource.as_ref();
            let pid = resource.and_then(|it| find(&it.attributes, PID)?.as_int());
            let pid = pid.and_then(|pid| u32::try_from(pid).ok());
            let profiles = row.scopes.iter().flat_map(|scope| &scope.profiles);
            let mut stacks: HashMap<StackIdx, u64> = HashMap::new();
            for sample in profiles.flat_map(|profile| profile.samples.iter()) {
                let observed = u64::try_from(sample.observed()).unwrap_or(0).max(1);
                let weight = stacks.entry(sample.stack).or_default();
                *weight = weight.saturating_add(observed);
            }
            for (stack, observed) in stacks {
                for (depth, location) in model.dictionary.stacks.get(stack).iter().enumerate() {
                    let Some(weight) = unknown.get_mut(location) else {
                        continue;
                    };
                    let more = if depth == 0 { LEAF } else { 1 };
                    *weight = weight.saturating_add(observed.saturating_mul(more));
                    if let Some(pid) = pid
                        && let Some((module, _)) = self.locations.get(location)
                        && let Some(module) = self.modules.get_mut(*module)
                        && module.processes.len() < MAX_PROCESSES
                        && !module.processes.contains(&pid)
                    {
                        module.processes.push(pid);
                    }
                }
            }
        }
    }
}

/// The code of a location that has no lines and is in an executable.
pub(super) fn code_location(
    dictionary: &Dictionary,
    location: LocationIdx,
) -> Option<ExecutableAddress> {
    let row = dictionary.locations.get(location);
    if !row.lines.is_empty() || Kind::of(dictionary, &row) != Kind::Native {
        return None;
    }
    let mapping = dictionary.mappings.get(row.location.mapping);
    Some(ExecutableAddress {
        build_id: build_id(dictionary, &mapping)?,
        address: address_in_executable(row.location.address, &mapping),
    })
}

/// OpenTelemetry's profilers write the link-time address, and the mapping of the file;
/// others write the address in the process.
fn address_in_executable(address: u64, mapping: &MappingRef<'_>) -> CodeAddress {
    let mapping = &mapping.mapping;
    match (mapping.memory_start..mapping.memory_limit).contains(&address) {
        true => CodeAddress::FileOffset(
            (address - mapping.memory_start).saturating_add(mapping.file_offset),
        ),
        false => CodeAddress::Virtual(address),
    }
}

/// The kind of code at a location.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Code of an executable.
    Native,
    Kernel,
    Generated,
    /// Interpreted code has no address.
    Other,
}

impl Kind {
    fn of(dictionary: &Dictionary, row: &LocationRef<'_>) -> Self {
        let kind = text_of(dictionary, row.attributes, "profile.frame.type");
        let address = row.location.address;
        match kind.as_deref() {
            Some("kernel") => return Self::Kernel,
            None if address >= KERNEL => return Self::Kernel,
            None | Some("native" | "go") => {}
            Some(_) => return Self::Other,
        }
        let mapping = dictionary.mappings.get(row.location.mapping);
        let name = dictionary.strings.get(mapping.mapping.filename);
        match build_id(dictionary, &mapping) {
            Some(_) => Self::Native,
            None if is_file(name) => Self::Native,
            None if address > 0 => Self::Generated,
            None => Self::Other,
        }
    }
}

/// Runtimes also map memory with the name of a file for generated code.
fn is_file(name: &str) -> bool {
    let is_memory = name.starts_with("//") || name.starts_with("/memfd:") || name == "/dev/zero";
    name.starts_with('/') && !is_memory
}

impl HostAddress {
    fn of(
        dictionary: &Dictionary,
        kind: Kind,
        address: u64,
        mapping: &MappingRef<'_>,
    ) -> Option<Self> {
        if kind == Kind::Generated {
            return Some(Self::Generated(address));
        }
        let build_id = build_id(dictionary, mapping);
        match build_id {
            build_id if address >= KERNEL => Some(Self::Kernel(address, build_id)),
            Some(build_id) => Some(Self::KernelFile(build_id, address)),
            None => None,
        }
    }
}

fn build_id(dictionary: &Dictionary, mapping: &MappingRef<'_>) -> Option<Arc<str>> {
    let id = |key| text_of(dictionary, mapping.attributes, key);
    id("process.executable.build_id.gnu").or_else(|| id("process.executable.build_id.htlhash"))
}

fn text_of(dictionary: &Dictionary, attributes: &[AttributeIdx], key: &str) -> Option<Arc<str>> {
    attributes.iter().find_map(|&index| {
        let attribute = dictionary.attributes.get(index)?;
        match &attribute.value {
            profcol_profile::Value::Str(text)
                if dictionary.strings.get(attribute.key) == key && !text.is_empty() =>
            {
                Some(Arc::clone(text))
            }
            _ => None,
        }
    })
}
