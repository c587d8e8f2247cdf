//! The sampled files, by the file numbers in frames.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::RwLock;
use profcol_ebpf_interpreters::DetectedInterpreter;
use profcol_ebpf_interpreters::dotnet::DotNetFile;
use profcol_elf::Segment;

use crate::functions::Functions;

/// A sampled file, as far as it could be read.
#[derive(Clone, Debug, Default)]
pub struct SampledFile {
    /// As the process sees it; empty if unknown.
    pub path: String,
    pub gnu_build_id: Option<String>,
    pub go_build_id: Option<String>,
    /// A hash over the file's start, end and length, for files without a build id.
    pub file_id: Option<String>,
    pub is_go: bool,
    pub segments: Vec<Segment>,
    /// Only for the vDSO; files contain their own symbols.
    pub functions: Functions,
    /// Set once the file's table is built.
    pub interpreter: Option<Arc<DetectedInterpreter>>,
    /// Set with it.
    pub dotnet: Option<Arc<DotNetFile>>,
}

impl SampledFile {
    /// The code segment that contains this file offset.
    pub fn segment(&self, offset: u64) -> Option<&Segment> {
        self.segments
            .iter()
            .find(|segment| offset.wrapping_sub(segment.file_offset) < segment.file_size)
    }
}

/// All files by number, shared by the opener and the symbolizer.
#[derive(Clone, Default)]
pub struct SampledFiles {
    by_number: Arc<RwLock<HashMap<u32, Arc<SampledFile>>>>,
    /// Whether a runtime of .NET was ever found: most hosts have none.
    has_dotnet: Arc<AtomicBool>,
}

impl SampledFiles {
    pub fn get(&self, number: u32) -> Option<Arc<SampledFile>> {
        let known = self.by_number.read();
        known.get(&number).cloned()
    }

    /// Whether the file is a runtime of .NET.
    pub fn is_dotnet_runtime(&self, number: u32) -> bool {
        if !self.has_dotnet.load(Ordering::Relaxed) {
            return false;
        }
        let known = self.by_number.read();
        let dotnet = known.get(&number).and_then(|file| file.dotnet.as_ref());
        dotnet.is_some_and(|dotnet| dotnet.runtime.is_some())
    }

    pub(crate) fn insert(&self, number: u32, file: SampledFile) {
        let mut known = self.by_number.write();
        known.insert(number, Arc::new(file));
    }

    pub(crate) fn set_interpreter(&self, number: u32, interpreter: Arc<DetectedInterpreter>) {
        let mut known = self.by_number.write();
        if let Some(file) = known.get_mut(&number) {
            Arc::make_mut(file).interpreter = Some(interpreter);
        }
    }

    pub(crate) fn set_dotnet(&self, number: u32, dotnet: DotNetFile) {
        if dotnet.runtime.is_some() {
            self.has_dotnet.store(true, Ordering::Relaxed);
        }
        let mut known = self.by_number.write();
        if let Some(file) = known.get_mut(&number) {
            Arc::make_mut(file).dotnet = Some(Arc::new(dotnet));
        }
    }

    pub(crate) fn remove(&self, number: u32) {
        let mut known = self.by_number.write();
        known.remove(&number);
    }
}
