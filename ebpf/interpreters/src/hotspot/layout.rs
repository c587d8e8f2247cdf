//! The memory layout of a version of the runtime, from its own tables.

use std::fmt;

use profcol_ebpf_common::interpreter::hotspot;
use profcol_elf::Source;

use super::HotSpot;
use super::file_image::FileImage;
use super::members::{CacheMembers, MethodMembers, NmethodMembers, common, stub_members};
use super::tables::{Symbols, Tables};
use crate::elf_file::ElfFile;
use crate::memory::Memory;
use crate::{FunctionError, Runtime, Unsupported};

/// The supported versions of the JDK.
pub const OLDEST: u32 = 8;
pub const NEWEST: u32 = 25;

/// The layout of one process. Those that run the same file have the same one, unless they changed the tables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    pub version: Version,
    /// For the BPF programs.
    pub common: hotspot::Layout,
    pub(super) cache: CacheMembers,
    pub(super) method: MethodMembers,
    pub(super) nmethod: NmethodMembers,
    /// Names of stubs, and where the file stores their addresses.
    pub(super) stubs: Vec<(String, u64)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version {
    pub major: u32,
    /// None if it is not known.
    pub security: Option<u32>,
}

impl fmt::Display for Version {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.security {
            Some(security) => write!(formatter, "{}.0.{security}", self.major),
            None => write!(formatter, "{}", self.major),
        }
    }
}

impl Version {
    fn read(tables: &Tables, memory: &impl Memory) -> Result<Self, FunctionError> {
        // In JDK 8 the VM has its own version.
        if let Some(current) = tables.address("JDK_Version", "_current") {
            let [major, _, security, _] = (memory.word(current)? as u32).to_le_bytes();
            return Ok(Self {
                major: major.into(),
                security: Some(security.into()),
            });
        }
        Ok(Self {
            major: vm_number(tables, memory, "_vm_major_version")?,
            security: Some(vm_number(tables, memory, "_vm_security_version")?),
        })
    }

    /// From the tables in a file, unless only a process has it.
    fn of_file(tables: &Tables, image: &impl Memory) -> Option<Self> {
        let number = |member| vm_number(tables, image, member).ok();
        let version = Self {
            major: number("_vm_major_version").filter(|&major| major != 0)?,
            security: number("_vm_security_version"),
        };
        // In JDK 8 this is the VM's own version.
        let is_of_vm = version.security.is_none();
        (!is_of_vm).then_some(version)
    }

    fn check(self) -> Result<(), Unsupported> {
        match (OLDEST..=NEWEST).contains(&self.major) {
            true => Ok(()),
            false => Err(self.refuse("only JDK 8 to 25 are supported")),
        }
    }

    fn refuse(self, why: &'static str) -> Unsupported {
        Unsupported {
            runtime: Runtime::Java.title(),
            version: self.to_string(),
            why,
        }
    }
}

/// A number of the VM's own version.
fn vm_number(tables: &Tables, memory: &impl Memory, member: &str) -> Result<u32, FunctionError> {
    let address = tables.address("Abstract_VM_Version", member);
    let address = address.ok_or(FunctionError::Invalid("the version"))?;
    let mut bytes = [0; 4];
    memory.read(address, &mut bytes)?;
    Ok(u32::from_le_bytes(bytes))
}

/// The version that a file states, if it is supported.
pub(super) fn version_of_file<S: Source + ?Sized>(
    symbols: &Symbols,
    file: &ElfFile<'_, S>,
) -> Result<Option<Version>, Unsupported> {
    let image = FileImage::new(file);
    let tables = Tables::read_file(symbols, &image);
    let version = tables
        .ok()
        .and_then(|tables| Version::of_file(&tables, &image));
    match version {
        Some(version) => version.check().map(|()| Some(version)),
        None => Ok(None),
    }
}

impl Layout {
    /// Reads the layout from a process that runs the file; `bias` is the load bias. None while the library
    /// is still being loaded.
    pub fn read(
        hotspot: &HotSpot,
        memory: &impl Memory,
        bias: u64,
    ) -> Result<Option<Self>, FunctionError> {
        let Some(tables) = Tables::read(&hotspot.symbols, bias, memory)? else {
            return Ok(None);
        };
        let version = Version::read(&tables, memory)?;
        if version.major == 0 {
            return Ok(None);
        }
        // The process may have changed it.
        let is_of_file = hotspot.version.is_none_or(|it| it.major == version.major);
        if !is_of_file {
            return Err(FunctionError::Invalid("the version"));
        }
        Self::from_tables(version, &tables, bias).map(Some)
    }

    fn from_tables(version: Version, tables: &Tables, bias: u64) -> Result<Self, FunctionError> {
        version.check()?;
        let incomplete = || version.refuse("its tables lack required members");
        Ok(Self {
            version,
            common: common(version.major, tables).ok_or_else(incomplete)?,
            cache: CacheMembers::read(tables, bias).ok_or_else(incomplete)?,
            method: MethodMembers::read(tables).ok_or_else(incomplete)?,
            nmethod: NmethodMembers::read(version.major, tables).ok_or_else(incomplete)?,
            stubs: stub_members(tables, bias),
        })
    }
}
