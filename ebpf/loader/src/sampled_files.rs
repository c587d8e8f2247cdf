//! What is known of the files that stand behind the numbers in frames.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use profcol_ebpf_interpreters::DetectedInterpreter;
use profcol_elf::Segment;

use crate::functions::Functions;

/// A file with code that a sample met, as far as it could be read.
#[derive(Clone, Debug, Default)]
pub struct SampledFile {
    /// As the process sees it; empty where it could not be found out.
    pub path: String,
    pub gnu_build_id: Option<String>,
    pub go_build_id: Option<String>,
    /// A hash over the file's beginning, end and length, for files without a build id.
    pub file_id: Option<String>,
    pub is_go: bool,
    pub segments: Vec<Segment>,
    /// Of the vDSO; files have theirs in themselves.
    pub functions: Functions,
    /// Known once the file's table is built.
    pub interpreter: Option<Arc<DetectedInterpreter>>,
}

impl SampledFile {
    /// The part of the file that is mapped as code and holds this offset.
    pub fn segment(&self, offset: u64) -> Option<&Segment> {
        self.segments
            .iter()
            .find(|segment| offset.wrapping_sub(segment.file_offset) < segment.file_size)
    }
}

/// All files by their numbers, shared between the thread that reads them and who names frames.
#[derive(Clone, Default)]
pub struct SampledFiles {
    by_number: Arc<RwLock<HashMap<u32, Arc<SampledFile>>>>,
}

impl SampledFiles {
    pub fn get(&self, number: u32) -> Option<Arc<SampledFile>> {
        let known = self
            .by_number
            .read()
            .unwrap_or_else(PoisonError::into_inner);
        known.get(&number).cloned()
    }

    pub(crate) fn insert(&self, number: u32, file: SampledFile) {
        let mut known = self
            .by_number
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        known.insert(number, Arc::new(file));
    }

    pub(crate) fn set_interpreter(&self, number: u32, interpreter: Arc<DetectedInterpreter>) {
        let mut known = self
            .by_number
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(file) = known.get_mut(&number) {
            Arc::make_mut(file).interpreter = Some(interpreter);
        }
    }

    pub(crate) fn remove(&self, number: u32) {
        let mut known = self
            .by_number
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        known.remove(&number);
    }
}
