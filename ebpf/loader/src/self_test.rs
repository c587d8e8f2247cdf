//! Verifies at start that the programs read the kernel's VMA tree correctly.
//!
//! The running kernel does not describe how the tree encodes its nodes. So the test looks up each mapping of
//! this process with the program that reads the tree, and compares the results with /proc.

use std::collections::HashMap;
use std::io;
use std::ops::Range;
use std::path::Path;

use profcol_ebpf_common::file::FileId;
use profcol_elf::{FileKey, Mapping, mappings};

use crate::identify::{Identifier, IdentifyError};

#[derive(Debug, thiserror::Error)]
pub enum SelfTestError {
    #[error("failed to read /proc/self/maps: {0}")]
    Maps(#[from] io::Error),
    #[error(transparent)]
    Identify(#[from] IdentifyError),
    #[error(
        "unknown layout of the kernel's VMA tree: {wrong} of {checked} mappings were read incorrectly, the first at {first:#x}"
    )]
    Differs {
        checked: usize,
        wrong: usize,
        first: u64,
    },
}

impl SelfTestError {
    pub(crate) fn fix(&self) -> Option<String> {
        match self {
            Self::Maps(_) => Some("mount /proc".to_owned()),
            Self::Identify(IdentifyError::Load(error)) => error.fix(),
            Self::Identify(_) | Self::Differs { .. } => None,
        }
    }
}

/// Returns how many mappings were compared.
pub fn verify_mappings(identifier: &mut Identifier) -> Result<usize, SelfTestError> {
    // The numbers in /proc may differ from the kernel's internal ones, but equal ones mean the same file.
    let mut files: HashMap<FileKey, FileId> = HashMap::new();
    let (mut wrong, mut first, mut checked) = (0, 0, 0);
    for mapping in mappings_in_tree()? {
        let Range { start, end } = mapping.range;
        let middle = start + (end - start) / 2;
        let Some(identified) = identifier.mapping_at(middle)? else {
            // Perhaps unmapped concurrently; the other mappings decide.
            let mut now = mappings_in_tree()?.into_iter();
            if now.any(|now| now.range == mapping.range) {
                wrong += 1;
                first = start;
            }
            checked += 1;
            continue;
        };
        let mut right = (identified.start, identified.end) == (start, end);
        match mapping.file {
            Some(file) => {
                right &= identified.offset_delta.wrapping_add(start) == mapping.offset;
                right &= *files.entry(file).or_insert(identified.id) == identified.id;
            }
            None => right &= identified.id == FileId::default(),
        }
        if !right && wrong == 0 {
            first = start;
        }
        wrong += usize::from(!right);
        checked += 1;
    }
    // Tolerates a few concurrent changes by other threads.
    if checked == 0 || wrong > 1 + checked / 20 {
        return Err(SelfTestError::Differs {
            checked,
            wrong,
            first,
        });
    }
    Ok(checked)
}

/// The mappings of this process that are in its VMA tree.
fn mappings_in_tree() -> io::Result<Vec<Mapping>> {
    let is_in_tree = |mapping: &Mapping| mapping.path != Path::new("[vsyscall]");
    let all: Vec<Mapping> = mappings(Path::new("/proc/self"))?.collect::<io::Result<_>>()?;
    Ok(all.into_iter().filter(is_in_tree).collect())
}
