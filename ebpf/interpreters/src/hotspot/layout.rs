//! The memory layout of a version of the runtime, from its own tables.

use std::fmt;

use profcol_ebpf_common::interpreter::hotspot;

use super::HotSpot;
use super::members::{CacheMembers, MethodMembers, NmethodMembers, common, stub_members};
use super::tables::Tables;
use crate::FunctionError;
use crate::Unsupported;
use crate::memory::Memory;

const OLDEST: u32 = 8;
const NEWEST: u32 = 25;

/// The layout of one file, for all processes that run it.
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
    pub security: u32,
}

impl fmt::Display for Version {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}.0.{}", self.major, self.security)
    }
}

impl Version {
    fn read(tables: &Tables, memory: &impl Memory) -> Result<Self, FunctionError> {
        // In JDK 8 the VM has its own version.
        if let Some(current) = tables.address("JDK_Version", "_current") {
            let [major, _, security, _] = (memory.word(current)? as u32).to_le_bytes();
            return Ok(Self {
                major: major.into(),
                security: security.into(),
            });
        }
        let number = |member| match tables.address("Abstract_VM_Version", member) {
            Some(address) => Ok(memory.word(address)? as u32),
            None => Err(FunctionError::Invalid("the version")),
        };
        Ok(Self {
            major: number("_vm_major_version")?,
            security: number("_vm_security_version")?,
        })
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
        Self::from_tables(version, &tables, bias).map(Some)
    }

    fn from_tables(version: Version, tables: &Tables, bias: u64) -> Result<Self, FunctionError> {
        let refuse = |why| {
            let version = version.to_string();
            FunctionError::Unsupported(Unsupported {
                runtime: "HotSpot",
                version,
                why,
            })
        };
        if !(OLDEST..=NEWEST).contains(&version.major) {
            return Err(refuse("only JDK 8 to 25 are supported"));
        }
        let incomplete = || refuse("its tables lack required members");
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
