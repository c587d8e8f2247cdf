//! Symbols that are resolved after their profiles were passed on.
//!
//! A symbolizing processor does not hold a batch until all frames are resolved. Such a batch
//! carries [`DeferredSymbols`], from which exporters that buffer profiles get the remaining symbols
//! when they write them.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use profcol_profile::{Dictionary, LocationIdx, NamedLine};

/// Sources of the symbols that were unresolved when the batch was passed on.
#[derive(Clone, Default)]
pub struct DeferredSymbols(Vec<Arc<dyn SymbolSource>>);

/// Resolves symbols after batches were passed on.
pub trait SymbolSource: Send + Sync {
    /// The code at a location; `None` if no symbol is expected for it.
    fn code_location(
        &self,
        dictionary: &Dictionary,
        location: LocationIdx,
    ) -> Option<ExecutableAddress>;

    fn lookup(&self, code: &ExecutableAddress) -> SymbolLookup;
}

/// An address in an executable.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ExecutableAddress {
    pub build_id: Arc<str>,
    pub address: CodeAddress,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CodeAddress {
    /// Virtual address, as linked.
    Virtual(u64),
    /// Offset in the file.
    FileOffset(u64),
}

/// Result of a symbol lookup.
#[derive(Clone, Debug)]
pub enum SymbolLookup {
    /// The frames, the innermost first.
    Resolved(Arc<[SymbolFrame]>),
    Pending,
    /// There is no symbol.
    NotFound,
}

/// A function with its source location.
#[derive(Debug, Default)]
pub struct SymbolFrame {
    pub name: Arc<str>,
    /// The linkage name.
    pub system_name: Arc<str>,
    pub file: Arc<str>,
    pub start_line: u32,
    pub line: u32,
    pub column: u32,
}

/// Code to be resolved later. Compares by code.
#[derive(Clone)]
pub struct DeferredSymbol {
    source: Arc<dyn SymbolSource>,
    code: ExecutableAddress,
}

// === impl DeferredSymbols ===

impl DeferredSymbols {
    pub fn add(&mut self, source: Arc<dyn SymbolSource>) {
        if !self.0.iter().any(|known| Arc::ptr_eq(known, &source)) {
            self.0.push(source);
        }
    }

    /// For merged batches.
    pub fn append(&mut self, other: DeferredSymbols) {
        for source in other.0 {
            self.add(source);
        }
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The deferred symbol of a location without lines.
    pub fn find(&self, dictionary: &Dictionary, location: LocationIdx) -> Option<DeferredSymbol> {
        self.0.iter().find_map(|source| {
            let code = source.code_location(dictionary, location)?;
            let source = Arc::clone(source);
            Some(DeferredSymbol { source, code })
        })
    }
}

impl fmt::Debug for DeferredSymbols {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DeferredSymbols of {}", self.0.len())
    }
}

// === impl DeferredSymbol ===

impl DeferredSymbol {
    pub fn lookup(&self) -> SymbolLookup {
        self.source.lookup(&self.code)
    }
}

impl PartialEq for DeferredSymbol {
    fn eq(&self, other: &Self) -> bool {
        self.code == other.code
    }
}

impl Eq for DeferredSymbol {}

impl Hash for DeferredSymbol {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.code.hash(state);
    }
}

impl fmt::Debug for DeferredSymbol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.code.fmt(f)
    }
}

// === impl SymbolFrame ===

impl SymbolFrame {
    pub fn line(&self) -> NamedLine<'_> {
        NamedLine {
            name: &self.name,
            system_name: &self.system_name,
            filename: &self.file,
            start_line: self.start_line.into(),
            line: self.line.into(),
            column: self.column.into(),
        }
    }
}
