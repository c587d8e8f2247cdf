//! Finds HotSpot in processes.

use std::collections::HashMap;
use std::fs::File;
use std::sync::Arc;

use profcol_ebpf_common::interpreter::hotspot::JavaProcess;
use profcol_ebpf_unwind::ElfCode;

use super::{Code, HotSpot, Layout};
use crate::mapping::{FileKey, Mapping, find_code};
use crate::memory::{Memory, ProcessMemory};
use crate::{FunctionError, InterpretedFunction, SampledFunction, names};

/// The file name of the runtime.
const LIBRARY: &str = "/libjvm.so";

/// Maximum number of tracked files; a host has a few.
const MAX_FILES: usize = 64;

/// The runtime of a process.
#[derive(Clone, Debug)]
pub struct JavaRuntime {
    pub layout: Arc<Layout>,
    pub bias: u64,
    pub process: JavaProcess,
}

/// The result of looking for HotSpot in a process.
#[derive(Clone, Debug)]
pub enum Attached {
    /// No HotSpot, or an unsupported one.
    None,
    /// The runtime is starting.
    NotYet,
    Java(Box<JavaRuntime>),
}

/// The tracked runtime files.
#[derive(Debug, Default)]
pub struct JavaFiles {
    known: HashMap<FileKey, Known>,
}

#[derive(Clone, Debug)]
enum Known {
    NotSupported,
    Detected(HotSpot),
    Read(HotSpot, Arc<Layout>),
}

impl JavaFiles {
    /// Looks for the runtime in a process.
    pub fn attach(&mut self, pid: u32, memory: &ProcessMemory) -> Attached {
        let Some(mapping) = mapping(pid) else {
            return Attached::None;
        };
        match self.attach_mapping(&mapping, memory) {
            Ok(found) => found,
            Err(FunctionError::Memory(error)) => {
                tracing::debug!(pid, %error, "failed to read the state of HotSpot");
                Attached::NotYet
            }
            Err(error) => {
                let path = mapping.paths[1].display();
                tracing::warn!(%path, reason = %error, "Interpreter not supported; showing its native frames.");
                self.keep(&mapping.file, Known::NotSupported);
                Attached::None
            }
        }
    }

    fn attach_mapping(
        &mut self,
        mapping: &Mapping,
        memory: &ProcessMemory,
    ) -> Result<Attached, FunctionError> {
        let known = match self.known.get(&mapping.file) {
            Some(known) => known.clone(),
            None => {
                // The process may have exited.
                let Some(found) = detect(mapping)? else {
                    return Ok(Attached::None);
                };
                self.keep(&mapping.file, found.clone());
                found
            }
        };
        let (hotspot, layout) = match known {
            Known::NotSupported => return Ok(Attached::None),
            Known::Detected(hotspot) => (hotspot, None),
            Known::Read(hotspot, layout) => (hotspot, Some(layout)),
        };
        let bias = hotspot.bias(mapping.start, mapping.offset);
        let layout = match layout {
            Some(layout) => layout,
            None => match Layout::read(&hotspot, memory, bias)? {
                Some(layout) => {
                    let layout = Arc::new(layout);
                    let path = mapping.paths[1].display();
                    tracing::info!(%path, runtime = "java", version = %layout.version, "Found an interpreter.");
                    self.keep(&mapping.file, Known::Read(hotspot, Arc::clone(&layout)));
                    layout
                }
                None => return Ok(Attached::NotYet),
            },
        };
        Ok(match layout.code_cache(memory, bias)? {
            None => Attached::NotYet,
            Some(cache) => Attached::Java(Box::new(JavaRuntime {
                bias,
                process: JavaProcess {
                    layout: layout.common,
                    cache,
                },
                layout,
            })),
        })
    }

    fn keep(&mut self, file: &FileKey, known: Known) {
        if self.known.len() >= MAX_FILES && !self.known.contains_key(file) {
            self.known.clear();
        }
        self.known.insert(file.clone(), known);
    }
}

/// None if the file cannot be opened.
fn detect(mapping: &Mapping) -> Result<Option<Known>, FunctionError> {
    let file = mapping.paths.iter().find_map(|path| File::open(path).ok());
    let Some(file) = file else {
        return Ok(None);
    };
    let found = match ElfCode::read(&file) {
        Ok(code) => HotSpot::detect(&code, &file)?,
        Err(_) => None,
    };
    Ok(Some(found.map_or(Known::NotSupported, Known::Detected)))
}

/// The first mapping of the runtime's code.
fn mapping(pid: u32) -> Option<Mapping> {
    find_code(pid, |name, mapping| {
        name.ends_with(LIBRARY).then_some(mapping)
    })
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
        Ok(InterpretedFunction(names::Function::Java(code)))
    }
}
