//! The scripts of a process, cached.

use std::collections::HashMap;
use std::sync::Arc;

use super::heap::Heap;
use super::script::{Script, ScriptKey};
use crate::FunctionError;
use crate::memory::Memory;

/// Maximum number of cached lines of one process; the cache is cleared when it is full.
const MAX_LINES: usize = 1 << 16;

#[derive(Debug, Default)]
pub struct Scripts {
    known: HashMap<ScriptKey, Arc<Script>>,
    lines: usize,
}

impl Scripts {
    pub fn get<M: Memory>(
        &mut self,
        heap: Heap<'_, M>,
        key: ScriptKey,
    ) -> Result<Arc<Script>, FunctionError> {
        if let Some(known) = self.known.get(&key) {
            return Ok(Arc::clone(known));
        }
        let script = Arc::new(Script::read(heap, key)?);
        self.lines += script.lines() + 1;
        if self.lines > MAX_LINES {
            self.known.clear();
            self.lines = script.lines();
        }
        self.known.insert(key, Arc::clone(&script));
        Ok(script)
    }
}
