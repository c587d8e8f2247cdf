//! Finds HotSpot in processes.

use std::sync::Arc;

use profcol_ebpf_common::interpreter::hotspot::JavaProcess;
use profcol_elf::Mapping;

use super::{Code, HotSpot, Layout};
use crate::interpreted_function::{Function, InterpretedFunction};
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
    /// Read in the first process.
    layout: Option<Arc<Layout>>,
}

impl JavaFiles {
    /// Looks for the runtime in a process.
    pub fn attach(&mut self, pid: u32, memory: &ProcessMemory) -> Attached<JavaRuntime> {
        let Some(mapping) = code_of(pid).find(|mapping| mapping.path.ends_with(LIBRARY)) else {
            return Attached::None;
        };
        match self.attach_mapping(pid, &mapping, memory) {
            Ok(found) => found,
            Err(FunctionError::Memory(error)) => {
                tracing::debug!(pid, %error, "failed to read the state of HotSpot");
                Attached::NotYet
            }
            Err(error) => {
                let path = mapping.path.display();
                tracing::warn!(%path, reason = %error, "Interpreter not supported; showing its native frames.");
                self.keep(&mapping, None);
                Attached::None
            }
        }
    }

    fn attach_mapping(
        &mut self,
        pid: u32,
        mapping: &Mapping,
        memory: &ProcessMemory,
    ) -> Result<Attached<JavaRuntime>, FunctionError> {
        let known = self.get_or_detect(pid, mapping, |code, file| {
            let found = HotSpot::detect(code, file)?;
            Ok::<_, FunctionError>(found.map(|hotspot| JavaFile {
                hotspot,
                layout: None,
            }))
        })?;
        let Some(JavaFile { hotspot, layout }) = known else {
            return Ok(Attached::None);
        };
        let bias = hotspot.bias(mapping.range.start, mapping.offset);
        let layout = match layout {
            Some(layout) => layout,
            None => match Layout::read(&hotspot, memory, bias)? {
                Some(layout) => {
                    let layout = Arc::new(layout);
                    let path = mapping.path.display();
                    tracing::info!(%path, runtime = "java", version = %layout.version, "Found an interpreter.");
                    let known = JavaFile {
                        hotspot,
                        layout: Some(Arc::clone(&layout)),
                    };
                    self.keep(mapping, Some(known));
                    layout
                }
                None => return Ok(Attached::NotYet),
            },
        };
        Ok(match layout.code_cache(memory, bias)? {
            None => Attached::NotYet,
            Some(cache) => Attached::Runtime(Box::new(JavaRuntime {
                bias,
                process: JavaProcess {
                    layout: layout.common,
                    cache,
                },
                layout,
            })),
        })
    }
}

impl JavaRuntime {
    /// Reads sampled code.
    pub fn function(
        &self,
        memory: &impl Memory,
        sampled: &SampledFunction,
    ) -> Result<InterpretedFunction, FunctionError> {
        let SampledFunction {
            runtime,
            address,
            generation,
            ..
        } = *sampled;
        let code = Code::read(
            &self.layout,
            memory,
            self.bias,
            runtime,
            address,
            generation,
        )?;
        Ok(InterpretedFunction(Function::Java(code)))
    }
}
