//! What of a batch has no name yet.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;

use foldhash::fast::RandomState;
use profcol_profile::{
    AttributeIdx, Dictionary, LocationIdx, LocationRef, MappingIdx, MappingRef, Model, StackIdx,
};

use super::config::Targets;
use super::host::HostPlace;
use crate::shared::lookup::{PID, find};

/// Above it is the kernel, on each architecture.
const KERNEL: u64 = 1 << 63;

/// Processes that are tried for a file.
const MAX_PROCESSES: usize = 4;

/// An executable, by what samples say of it.
#[derive(Clone, Debug)]
pub(super) struct Module {
    pub build_id: Arc<str>,
    /// As its processes see it.
    pub path: PathBuf,
    /// Some that have it.
    pub processes: Vec<u32>,
}

/// A place in an executable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Place {
    /// The address for which it was linked.
    Address(u64),
    /// From the start of the file.
    Offset(u64),
}

/// The locations without names, by where they are.
#[derive(Debug, Default)]
pub(super) struct Asked {
    pub modules: Vec<Module>,
    pub locations: HashMap<LocationIdx, (usize, Place), RandomState>,
    /// Those in the kernel or in generated code.
    pub on_host: HashMap<LocationIdx, HostPlace>,
    /// Locations of whose executable no build id is known.
    pub anonymous: usize,
}

impl Asked {
    pub fn of(dictionary: &Dictionary, targets: Targets) -> Self {
        let mut asked = Self::default();
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
                let place = HostPlace::of(dictionary, kind, row.location.address, &mapping);
                if let Some(place) = place
                    && (kind == Kind::Kernel || targets.has_generated())
                {
                    asked.on_host.insert(LocationIdx::new(number as u32), place);
                }
                continue;
            }
            if !targets.has_native() {
                continue;
            }
            let module = *known.entry(index).or_insert_with(|| {
                let build_id = build_id(dictionary, &mapping)?;
                let place = by_id.entry(Arc::clone(&build_id));
                Some(*place.or_insert_with(|| {
                    asked.modules.push(Module {
                        build_id,
                        path: dictionary.strings.get(mapping.mapping.filename).into(),
                        processes: Vec::new(),
                    });
                    asked.modules.len() - 1
                }))
            });
            match module {
                Some(module) => {
                    let place = (module, Place::of(row.location.address, &mapping));
                    asked
                        .locations
                        .insert(LocationIdx::new(number as u32), place);
                }
                None => asked.anonymous += 1,
            }
        }
        asked
    }

    /// Finds out which processes have the modules of these locations.
    pub fn find_processes(&mut self, model: &Model, unknown: &HashSet<LocationIdx, RandomState>) {
        for row in &model.resources {
            let resource = row.resource.as_ref();
            let pid = resource.and_then(|it| find(&it.attributes, PID)?.as_int());
            let Some(pid) = pid.and_then(|pid| u32::try_from(pid).ok()) else {
                continue;
            };
            let profiles = row.scopes.iter().flat_map(|scope| &scope.profiles);
            let samples = profiles.flat_map(|profile| profile.samples.iter());
            let stacks: HashSet<StackIdx> = samples.map(|sample| sample.stack).collect();
            for stack in stacks {
                for location in model.dictionary.stacks.get(stack) {
                    if unknown.contains(location)
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

impl Place {
    /// OpenTelemetry's profilers write the address for which the file was linked, and where the file
    /// was mapped beside it; others the address in the process.
    fn of(address: u64, mapping: &MappingRef<'_>) -> Self {
        let mapping = &mapping.mapping;
        match (mapping.memory_start..mapping.memory_limit).contains(&address) {
            true => {
                Self::Offset((address - mapping.memory_start).saturating_add(mapping.file_offset))
            }
            false => Self::Address(address),
        }
    }
}

/// What kind of code is at a location.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// In an executable.
    Native,
    Kernel,
    Generated,
    /// Code that is interpreted has no address.
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

/// Runtimes also write code to memory that has the name of a file.
fn is_file(name: &str) -> bool {
    let is_memory = name.starts_with("//") || name.starts_with("/memfd:") || name == "/dev/zero";
    name.starts_with('/') && !is_memory
}

impl HostPlace {
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
