//! Reads sampled functions from processes, each by the layout of its runtime.

use crate::detected_interpreter::{DetectedInterpreter, RuntimeLayout};
use crate::error::FunctionError;
use crate::interpreted_function::{Function, InterpretedFunction};
use crate::memory::Memory;
use crate::python::Code;
use crate::sampled_function::SampledFunction;
use crate::{luajit, perl, php, ruby, v8};

/// Data of a process that is shared by all its names.
#[derive(Debug, Default)]
pub struct ProcessCache {
    v8: v8::ProcessCache,
}

impl DetectedInterpreter {
    /// Reads a sampled function.
    pub fn function(
        &self,
        memory: &impl Memory,
        cache: &mut ProcessCache,
        sampled: &SampledFunction,
    ) -> Result<InterpretedFunction, FunctionError> {
        Ok(InterpretedFunction(match &self.layout {
            RuntimeLayout::Python(layout) => {
                let code = Code::read(layout, memory, sampled.address, sampled.generation)?;
                Function::Python(code)
            }
            RuntimeLayout::V8(layout) => Function::V8(cache.v8.frames(layout, memory, sampled)?),
            RuntimeLayout::Php(layout) => Function::Php(php::PhpFunction::read(
                layout,
                memory,
                sampled.address,
                sampled.generation,
            )?),
            RuntimeLayout::Perl(layout) => Function::Perl(perl::Statement::read(
                layout,
                memory,
                sampled.address,
                sampled.code_address,
                sampled.generation,
            )?),
            RuntimeLayout::LuaJit => Function::LuaJit(luajit::Prototype::read(
                memory,
                sampled.address,
                sampled.generation,
            )?),
            RuntimeLayout::Ruby(layout) => Function::Ruby(ruby::Sequence::read(
                layout,
                memory,
                sampled.address,
                sampled.generation,
                sampled.code_address as u32,
            )?),
        }))
    }

    /// The value that distinguishes the function at an address from earlier ones; see [`SampledFunction`].
    pub fn generation(
        &self,
        memory: &impl Memory,
        address: u64,
        code_address: u64,
    ) -> Result<u32, FunctionError> {
        match &self.layout {
            RuntimeLayout::Python(layout) => Code::generation(layout, memory, address),
            RuntimeLayout::V8(layout) => v8::generation(layout, memory, address),
            RuntimeLayout::Ruby(_) => ruby::generation(memory, address),
            RuntimeLayout::Php(layout) => php::generation(layout, memory, address),
            RuntimeLayout::Perl(layout) => perl::generation(layout, memory, address, code_address),
            RuntimeLayout::LuaJit => luajit::generation(memory, address),
        }
    }
}
