//! Source lines of methods, from the portable PDBs of their assemblies.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicUsize;

use profcol_dotnet::{Assembly, DotNetError, PortablePdb, SourceLine};
use profcol_elf::Source;
use profcol_elf::open_regular;

use super::DotNetFunction;
use super::limits::BudgetShare;

/// Maximum number of open PDBs. Methods of other assemblies have no lines.
const MAX_OPEN: usize = 256;
/// Maximum size of all PDBs that are embedded in assemblies, decompressed.
const MAX_EMBEDDED_BYTES: usize = 64 << 20;

static OPEN: AtomicUsize = AtomicUsize::new(0);
static EMBEDDED_BYTES: AtomicUsize = AtomicUsize::new(0);

/// Where a process finds the files of its program.
#[derive(Clone, Debug)]
pub struct ProgramDirectory {
    pid: u32,
    path: PathBuf,
}

/// The PDB of an assembly.
pub struct SourceLines {
    pdb: PortablePdb,
    source: Box<dyn Source + Send + Sync>,
    _reserved: BudgetShare,
}

impl ProgramDirectory {
    /// The directory of a file, by its path in the process's root.
    pub fn of_file(pid: u32, path: &Path) -> Option<Self> {
        let program_directory = path.parent().filter(|_| path.is_absolute())?;
        Some(Self {
            pid,
            path: program_directory.into(),
        })
    }

    fn open(&self, name: &str) -> io::Result<File> {
        let root = format!("/proc/{}/root", self.pid);
        open_regular(Path::new(&root), &self.path.join(name))
    }
}

impl SourceLines {
    /// The PDB in an assembly, or the one next to it. None if there is none.
    pub fn find(
        assembly: &Assembly,
        source: &(impl Source + ?Sized),
        program_directory: Option<&ProgramDirectory>,
    ) -> Option<Self> {
        Self::read(assembly, source, program_directory)
            .inspect_err(
                |error| tracing::debug!(%error, "failed to read the PDB of a .NET assembly"),
            )
            .ok()?
    }

    fn read(
        assembly: &Assembly,
        source: &(impl Source + ?Sized),
        program_directory: Option<&ProgramDirectory>,
    ) -> Result<Option<Self>, DotNetError> {
        let directory = assembly.debug_directory(source)?;
        let Some(id) = directory.pdb_id else {
            return Ok(None);
        };
        let (source, reserved): (Box<dyn Source + Send + Sync>, _) = match directory
            .embedded_pdb(source)?
        {
            Some(pdb) => {
                let reserved = BudgetShare::take(&EMBEDDED_BYTES, pdb.len(), MAX_EMBEDDED_BYTES);
                (Box::new(pdb), reserved)
            }
            None => {
                let path = directory.pdb_path.unwrap_or_default();
                let name = path.rsplit(['/', '\\']).next().unwrap_or_default();
                let file = program_directory
                    .and_then(|program_directory| program_directory.open(name).ok());
                let Some(file) = file else {
                    return Ok(None);
                };
                (Box::new(file), BudgetShare::take(&OPEN, 1, MAX_OPEN))
            }
        };
        let Some(reserved) = reserved else {
            tracing::debug!("too many PDBs of .NET assemblies");
            return Ok(None);
        };
        Ok(Some(Self {
            pdb: PortablePdb::read(&*source, &id)?,
            source,
            _reserved: reserved,
        }))
    }

    /// Adds file and lines of a method at an IL offset.
    pub fn add(&self, function: &mut DotNetFunction, row: u32, il_offset: Option<u32>) {
        let source = &*self.source;
        let known = |line: Result<Option<SourceLine>, DotNetError>| line.ok().flatten();
        let first = known(self.pdb.first_line(source, row));
        if let Some(first) = first {
            function.first_line = first.line;
            function.file = first.document;
        }
        let line = il_offset.and_then(|at| known(self.pdb.line(source, row, at)));
        if let Some(line) = line {
            function.line = line.line;
            function.file = line.document;
        }
    }
}

impl std::fmt::Debug for SourceLines {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.pdb.fmt(to)
    }
}
