//! Verifies at start that the programs read the kernel's VMA tree correctly.
//!
//! The running kernel does not describe how the tree encodes its nodes. So the test looks up each mapping of
//! this process with the program that reads the tree, and compares the results with /proc.

use std::collections::HashMap;
use std::fs;

use profcol_ebpf_common::file::FileId;

use crate::identify::{Identifier, IdentifyError};

#[derive(Debug, thiserror::Error)]
pub enum SelfTestError {
    #[error("cannot read /proc/self/maps: {0}")]
    Maps(#[from] std::io::Error),
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

struct Line {
    start: u64,
    end: u64,
    offset: u64,
    /// Device and inode as /proc shows them.
    file: Option<String>,
}

/// Returns how many mappings were compared.
pub fn verify_mappings(identifier: &mut Identifier) -> Result<usize, SelfTestError> {
    let maps = fs::read_to_string("/proc/self/maps")?;
    let lines: Vec<Line> = maps.lines().filter_map(parse).collect();
    // The numbers in /proc may differ from the kernel's internal ones, but equal ones mean the same file.
    let mut files: HashMap<String, FileId> = HashMap::new();
    let (mut wrong, mut first, mut checked) = (0, 0, 0);
    for line in lines {
        let middle = line.start + (line.end - line.start) / 2;
        let Some(identified) = identifier.mapping_at(middle)? else {
            // Perhaps unmapped concurrently; the other mappings decide.
            if still_there(&line)? {
                wrong += 1;
                first = line.start;
            }
            checked += 1;
            continue;
        };
        let mut right = (identified.start, identified.end) == (line.start, line.end);
        match line.file {
            Some(file) => {
                right &= identified.offset_delta.wrapping_add(line.start) == line.offset;
                right &= *files.entry(file).or_insert(identified.id) == identified.id;
            }
            None => right &= identified.id == FileId::default(),
        }
        if !right && wrong == 0 {
            first = line.start;
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

fn still_there(line: &Line) -> Result<bool, SelfTestError> {
    let maps = fs::read_to_string("/proc/self/maps")?;
    Ok(maps
        .lines()
        .filter_map(parse)
        .any(|now| (now.start, now.end) == (line.start, line.end)))
}

/// None for lines that are not in the process's VMA tree.
fn parse(line: &str) -> Option<Line> {
    let mut words = line.split_ascii_whitespace();
    let (start, end) = words.next()?.split_once('-')?;
    let _permissions = words.next()?;
    let offset = words.next()?;
    let (device, inode) = (words.next()?, words.next()?);
    if words.next() == Some("[vsyscall]") {
        return None;
    }
    let number = |text| u64::from_str_radix(text, 16).ok();
    Some(Line {
        start: number(start)?,
        end: number(end)?,
        offset: number(offset)?,
        file: (inode != "0").then(|| format!("{device} {inode}")),
    })
}
