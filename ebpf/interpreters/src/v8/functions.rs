//! The functions of a process, cached.

use std::collections::HashMap;
use std::sync::Arc;

use super::function::Function;
use super::heap::Heap;
use super::positions::Position;
use super::scripts::Scripts;
use crate::memory::Memory;
use crate::{FunctionError, SampledFunction};

const MAX_FUNCTIONS: usize = 1024;

#[derive(Debug, Default)]
pub struct Functions {
    scripts: Scripts,
    /// Functions by address and generation.
    read: HashMap<(u64, u32), Arc<Function>>,
}

/// A frame of a function, at a line.
pub type FunctionLine = (Arc<Function>, u32);

impl Functions {
    /// The sampled function, if it was read before.
    pub fn known(&self, sampled: &SampledFunction) -> Option<Arc<Function>> {
        let key = (sampled.address, sampled.generation);
        self.read.get(&key).map(Arc::clone)
    }

    /// The sampled function, if it is still there.
    pub fn current<M: Memory>(
        &mut self,
        heap: Heap<'_, M>,
        sampled: &SampledFunction,
    ) -> Result<Arc<Function>, FunctionError> {
        let (function, generation) = self.get_with_generation(heap, sampled.address)?;
        if generation != sampled.generation {
            return Err(FunctionError::Replaced);
        }
        Ok(function)
    }

    pub fn get<M: Memory>(
        &mut self,
        heap: Heap<'_, M>,
        shared: u64,
    ) -> Result<Arc<Function>, FunctionError> {
        Ok(self.get_with_generation(heap, shared)?.0)
    }

    /// The function at an address, and its generation.
    fn get_with_generation<M: Memory>(
        &mut self,
        heap: Heap<'_, M>,
        shared: u64,
    ) -> Result<(Arc<Function>, u32), FunctionError> {
        let generation = Function::generation(heap, shared)?;
        let key = (shared, generation);
        if let Some(known) = self.read.get(&key) {
            return Ok((Arc::clone(known), generation));
        }
        let function = Arc::new(Function::read(heap, &mut self.scripts, shared)?);
        // Checked last, which proves that all earlier reads belong to this function.
        if Function::generation(heap, shared)? != generation {
            return Err(FunctionError::Replaced);
        }
        if self.read.len() >= MAX_FUNCTIONS {
            self.read.clear();
        }
        self.read.insert(key, Arc::clone(&function));
        Ok((function, generation))
    }

    /// A function at a position in its script.
    pub fn at<M: Memory>(
        &mut self,
        heap: Heap<'_, M>,
        shared: u64,
        position: Option<Position>,
    ) -> Result<FunctionLine, FunctionError> {
        let function = self.get(heap, shared)?;
        let offset = position.and_then(Position::offset);
        let script = match offset {
            Some(_) => Function::script(heap, &mut self.scripts, shared)?,
            None => None,
        };
        let line = script
            .zip(offset)
            .map_or(0, |(script, offset)| script.line(offset));
        Ok((function, line))
    }
}
