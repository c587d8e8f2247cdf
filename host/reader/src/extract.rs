//! Plans the debuginfo of an executable and reads it piece by piece, in whichever process.

use std::fs::File;
use std::io::{self, Read};
use std::time::{Duration, Instant};

use profcol_debuginfo::{Dwarf, ExternalDwarf, ExtractError, Extraction, Plan, build_id};
use profcol_elf::hex;

use crate::failure::{Interrupted, ReaderFailure};

/// Servers accept messages of some megabytes; smaller ones need less memory on both sides.
pub const MAX_PIECE: usize = 256 << 10;

/// What to extract.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExtractOptions {
    /// Whether to leave out what is not needed for names; or else the whole file is read.
    pub strip: bool,
    /// Details are left out, or sections compressed, if the result is larger.
    pub max_bytes: u64,
    /// How long compression may take.
    pub max_compression_time: Option<Duration>,
    /// The build ID of the executable, which its file may no longer have.
    pub build_id: Option<String>,
}

/// The planned debuginfo.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Planned {
    pub size: u64,
    /// Where the DWARF is if a reader of this file alone cannot read it.
    pub elsewhere: Option<ExternalDwarf>,
    /// Whether DWARF was omitted because of its size.
    pub is_without_dwarf: bool,
}

/// Why nothing is extracted.
#[derive(Debug, thiserror::Error)]
pub enum ExtractionFailure {
    #[error("{why}")]
    Refused {
        /// A short name for metrics.
        reason: &'static str,
        why: String,
    },
    #[error("the file changed while it was read")]
    Changed,
    #[error("the file was replaced by one with build ID {found:?}")]
    Replaced { found: String },
    #[error("the process that read it failed: {0}")]
    Reader(ReaderFailure),
    #[error("profcol is stopping")]
    Stopped,
}

/// Finds the separate debug file of the executable.
pub type FindDebugFile<'a> = &'a dyn Fn() -> Option<File>;

/// A plan that is being carried out.
pub struct Extracting(Extraction);

impl Extracting {
    /// Plans the debuginfo of the executable, or of its separate debug file.
    pub fn plan(
        file: File,
        options: &ExtractOptions,
        find_debug_file: FindDebugFile<'_>,
        keep_going: &dyn Fn() -> bool,
    ) -> Result<(Self, Planned), ExtractionFailure> {
        check_build_id(options, &file)?;
        let (plan, file) = if options.strip {
            let plan = Plan::strip(&file);
            match plan {
                Ok(plan) if plan.contents().dwarf => (plan, file),
                plan => match separate(&plan, find_debug_file) {
                    Some(better) => better,
                    None => (plan?, file),
                },
            }
        } else {
            (Plan::whole(&file)?, file)
        };
        let has_dwarf = plan.contents().dwarf;
        let plan = match options.strip && plan.size() > options.max_bytes {
            true => smaller(plan, &file, options, keep_going)?,
            false => plan,
        };
        let planned = Planned {
            size: plan.size(),
            elsewhere: plan.elsewhere().filter(|_| options.strip),
            is_without_dwarf: has_dwarf && !plan.contents().dwarf,
        };
        Ok((Self(plan.extract(file)?), planned))
    }

    /// The next piece; an empty one after the last. All pieces are of the same version of the file.
    pub fn next(&mut self) -> Result<Vec<u8>, ExtractionFailure> {
        let mut piece = Vec::with_capacity(MAX_PIECE);
        let read = (&mut self.0).take(MAX_PIECE as u64).read_to_end(&mut piece);
        match read {
            Ok(_) if self.0.is_unchanged() => Ok(piece),
            Ok(_) => Err(ExtractionFailure::Changed),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                Err(ExtractionFailure::Changed)
            }
            Err(error) => Err(error.into()),
        }
    }
}

/// An overwritten file is another version, whose symbols would be wrong.
fn check_build_id(options: &ExtractOptions, file: &File) -> Result<(), ExtractionFailure> {
    let Some(expected) = &options.build_id else {
        return Ok(());
    };
    match build_id(file).map(|found| hex(&found)) {
        Some(found) if found != *expected => Err(ExtractionFailure::Replaced { found }),
        _ => Ok(()),
    }
}

fn separate(
    executable_plan: &Result<Plan, ExtractError>,
    find_debug_file: FindDebugFile<'_>,
) -> Option<(Plan, File)> {
    let file = find_debug_file()?;
    let plan = Plan::strip(&file).ok()?;
    let names = |plan: &Plan| (plan.contents().dwarf, plan.contents().all_symbols);
    let is_better = executable_plan.as_ref().map_or(true, |executable_plan| {
        names(&plan) > names(executable_plan)
    });
    is_better.then_some((plan, file))
}

/// The most detailed plan that fits, or else the smallest: with lines, compressed lines, symbols only,
/// compressed symbols.
fn smaller(
    plan: Plan,
    file: &File,
    options: &ExtractOptions,
    keep_going: &dyn Fn() -> bool,
) -> Result<Plan, ExtractionFailure> {
    /// Upper bound of the compression ratio of DWARF.
    const BEST_RATIO: u64 = 8;
    let max_bytes = options.max_bytes;
    let mut smallest = plan;
    for dwarf in [Dwarf::Lines, Dwarf::None] {
        let plan = match Plan::keeping(file, dwarf) {
            Ok(plan) => plan,
            // Without DWARF nothing may remain.
            Err(ExtractError::NoNames | ExtractError::OnlySplit) => continue,
            Err(refused) => return Err(refused.into()),
        };
        let size = plan.size();
        if size < smallest.size() {
            smallest = plan;
        }
        if size <= max_bytes {
            break;
        }
        if size / BEST_RATIO > max_bytes {
            continue;
        }
        let began = Instant::now();
        let compressed = Plan::compressed(file, dwarf, max_bytes, keep_going)?;
        // Compressed while it is read, too.
        let is_in_time = options
            .max_compression_time
            .is_none_or(|most| began.elapsed() <= most);
        if let Some(compressed) = compressed.filter(|_| is_in_time) {
            return Ok(compressed);
        }
    }
    Ok(smallest)
}

// === impl ExtractionFailure ===

impl ExtractionFailure {
    /// A short name for metrics.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Refused { reason, .. } => reason,
            Self::Changed => "changed",
            Self::Replaced { .. } => "replaced",
            Self::Reader(_) => "reader",
            Self::Stopped => "stopped",
        }
    }
}

impl From<ExtractError> for ExtractionFailure {
    fn from(refused: ExtractError) -> Self {
        Self::Refused {
            reason: refused.reason(),
            why: refused.to_string(),
        }
    }
}

impl From<io::Error> for ExtractionFailure {
    fn from(error: io::Error) -> Self {
        Self::Refused {
            reason: "unreadable",
            why: format!("failed to read the file: {error}"),
        }
    }
}

impl From<Interrupted> for ExtractionFailure {
    fn from(interrupted: Interrupted) -> Self {
        match interrupted {
            Interrupted::Failed(failure) => Self::Reader(failure),
            Interrupted::Stopped => Self::Stopped,
        }
    }
}
