//! Cached data of a process, kept while its names are in use.

use std::collections::BTreeMap;
use std::sync::Arc;

use profcol_ebpf_common::interpreter::v8::NO_POSITION;

use super::code::Code;
use super::function::Function;
use super::functions::{FunctionLine, Functions};
use super::heap::Heap;
use super::layout::HeapLayout;
use crate::memory::Memory;
use crate::{Execution, FunctionError, SampledFunction, SourceFrame};

const MAX_CODES: usize = 1024;

#[derive(Debug, Default)]
pub struct ProcessCache {
    functions: Functions,
    codes: BTreeMap<u64, Arc<Code>>,
}

/// The functions of a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FrameFunctions {
    Bytecode(Arc<Function>),
    Generated(Generated),
}

/// The functions of generated code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Generated {
    /// Innermost first, with their lines.
    functions: Vec<FunctionLine>,
    /// Whether it was compiled from these functions; else it may be a copy of a builtin, such as the interpreter.
    is_compiled: bool,
}

impl ProcessCache {
    /// Reads the functions of a frame.
    pub fn frames(
        &mut self,
        layout: &HeapLayout,
        memory: &impl Memory,
        sampled: &SampledFunction,
    ) -> Result<FrameFunctions, FunctionError> {
        let heap = Heap { memory, layout };
        if sampled.address == 0 {
            return self.without_function(heap, sampled);
        }
        let function = match self.functions.current(heap, sampled) {
            Ok(function) => function,
            // The code is gone, but the function has been read before.
            Err(error) => {
                let known = self.functions.known(sampled).ok_or(error)?;
                return Ok(FrameFunctions::Generated(Generated {
                    functions: vec![(known, 0)],
                    is_compiled: false,
                }));
            }
        };
        if sampled.code_address == 0 {
            return Ok(FrameFunctions::Bytecode(function));
        }
        let known = (sampled.address, Arc::clone(&function));
        let code = self.code(heap, sampled.code_address);
        let is_compiled = code.is_ok();
        let frames = match code {
            Ok(code) => code.frames(heap, &mut self.functions, &known, sampled.code_address),
            Err(error) => Err(error),
        };
        let functions = frames.unwrap_or_else(|error| {
            tracing::debug!(%error, function = function.name, "failed to read the lines of code");
            vec![(function, 0)]
        });
        Ok(FrameFunctions::Generated(Generated {
            functions,
            is_compiled,
        }))
    }

    /// Code without a function in its frame.
    fn without_function<M: Memory>(
        &mut self,
        heap: Heap<'_, M>,
        sampled: &SampledFunction,
    ) -> Result<FrameFunctions, FunctionError> {
        let frame_type = Some(sampled.generation);
        let types = &heap.layout.frame_types;
        if frame_type == Some(0) {
            let code = self.code(heap, sampled.code_address)?;
            let shared = code.function()?;
            let known = (shared, self.functions.get(heap, shared)?);
            let functions = code.frames(heap, &mut self.functions, &known, sampled.code_address)?;
            return Ok(FrameFunctions::Generated(Generated {
                functions,
                is_compiled: true,
            }));
        }
        let name = if frame_type == types.regular_expression {
            "[regexp]"
        } else if frame_type == types.web_assembly {
            "[wasm]"
        } else {
            return Err(FunctionError::Invalid("the type of a frame"));
        };
        Ok(FrameFunctions::Generated(Generated {
            functions: vec![(Arc::new(Function::named(name)), 0)],
            is_compiled: true,
        }))
    }

    fn code<M: Memory>(
        &mut self,
        heap: Heap<'_, M>,
        address: u64,
    ) -> Result<Arc<Code>, FunctionError> {
        let before = self.codes.range(..=address).next_back();
        if let Some((_, code)) = before
            && code.holds(address)
            && code.is_valid(heap)
        {
            return Ok(Arc::clone(code));
        }
        let code = Arc::new(Code::find(heap, address)?);
        if self.codes.len() >= MAX_CODES {
            self.codes.clear();
        }
        self.codes.insert(code.start, Arc::clone(&code));
        Ok(code)
    }
}

impl FrameFunctions {
    /// The frames at a bytecode offset; generated code ignores it.
    pub fn at(&self, offset: u32) -> Vec<SourceFrame<'_>> {
        match self {
            Self::Bytecode(function) if function.name.is_empty() => Vec::new(),
            Self::Bytecode(function) => vec![function.frame(function.line(offset))],
            Self::Generated(code) => {
                let functions = code.functions.iter();
                functions
                    .map(|(function, line)| function.frame(*line))
                    .collect()
            }
        }
    }

    pub fn bytes(&self) -> usize {
        match self {
            Self::Bytecode(function) => function.bytes(),
            // Functions are shared.
            Self::Generated(code) => size_of_val(code.functions.as_slice()),
        }
    }

    /// None if that is not known, as of builtins, which have no bytecode.
    pub fn execution(&self, offset: u32) -> Option<Execution> {
        match self {
            Self::Bytecode(function) => {
                (offset != NO_POSITION && function.has_bytecode()).then_some(Execution::Interpreted)
            }
            Self::Generated(code) => code.is_compiled.then_some(Execution::Jit),
        }
    }
}
