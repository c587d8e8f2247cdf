//! Finds HotSpot in processes.

use std::convert::Infallible;
use std::sync::Arc;

use profcol_ebpf_common::interpreter::hotspot::JavaProcess;
use profcol_elf::Mapping;

use super::{Code, HotSpot, Layout};
use crate::memory::{Memory, ProcessMemory};
use crate::runtime_files::{Attached, RuntimeFiles, code_of};
use crate::{FunctionError, SampledFunction};

/// The file name of the runtime.
const LIBRARY: &str = "libjvm.so";

/// The runtime of a process.
#[derive(Clone, Debug)]
pub struct JavaRuntime {
    pub layout: Arc<Layout>,
    pub bias: u64,
    pub process: JavaProcess,
}

/// The tracked runtime files.
pub type JavaFiles = RuntimeFiles<JavaFile>;

#[derive(Clone, Debug)]
pub struct JavaFile {
    hotspot: HotSpot,
    /// The layout that was read last, which other processes most likely share.
    layout: Option<Arc<Layout>>,
    /// Whether it was logged that a process cannot be read.
    is_reported: bool,
}

impl JavaFiles {
    /// Looks for the runtime in a process.
    pub fn attach(&mut self, pid: u32, memory: &ProcessMemory) -> Attached<JavaRuntime> {
        let Some(mapping) = code_of(pid).find(|mapping| mapping.path.ends_with(LIBRARY)) else {
            return Attached::None;
        };
        let Some(mut file) = self.file(pid, &mapping) else {
            return Attached::None;
        };
        let found = file.attach(&mapping, memory).unwrap_or_else(|error| {
            // A process can change its copy of the tables, so this says nothing about others of the file.
            let path = mapping.path.display();
            match error {
                FunctionError::Unsupported(_) if !file.is_reported => {
                    tracing::warn!(%path, pid, reason = %error, "Interpreter not supported; showing its native frames.");
                    file.is_reported = true;
                }
                _ => tracing::debug!(%path, pid, %error, "failed to read the state of HotSpot"),
            }
            match error {
                FunctionError::Unsupported(_) => Attached::None,
                _ => Attached::NotYet,
            }
        });
        self.keep(&mapping, Some(file));
        found
    }

    fn file(&mut self, pid: u32, mapping: &Mapping) -> Option<JavaFile> {
        let found = self.get_or_detect(pid, mapping, |code, file| {
            // The loader warned of unsupported ones when it read the file.
            let hotspot = HotSpot::detect(code, file).unwrap_or(None);
            Ok::<_, Infallible>(hotspot.map(|hotspot| JavaFile {
                hotspot,
                layout: None,
                is_reported: false,
            }))
        });
        let Ok(found) = found;
        found
    }
}

impl JavaFile {
    fn attach(
        &mut self,
        mapping: &Mapping,
        memory: &ProcessMemory,
    ) -> Result<Attached<JavaRuntime>, FunctionError> {
        let bias = self.hotspot.bias(mapping.range.start, mapping.offset);
        let Some(layout) = Layout::read(&self.hotspot, memory, bias)? else {
            return Ok(Attached::NotYet);
        };
        let Some(cache) = layout.code_cache(memory, bias)? else {
            return Ok(Attached::NotYet);
        };
        let known = self.layout.take().filter(|known| **known == layout);
        let layout = known.unwrap_or_else(|| Arc::new(layout));
        self.layout = Some(Arc::clone(&layout));
        Ok(Attached::Runtime(Box::new(JavaRuntime {
            bias,
            process: JavaProcess {
                layout: layout.common,
                cache,
            },
            layout,
        })))
    }
}

impl JavaRuntime {
    /// Reads sampled code.
    pub fn function(
        &self,
        memory: &impl Memory,
        sampled: &SampledFunction,
    ) -> Result<Code, FunctionError> {
        let SampledFunction {
            runtime,
            address,
            generation,
            ..
        } = *sampled;
        Code::read(
            &self.layout,
            memory,
            self.bias,
            runtime,
            address,
            generation,
        )
    }
}
