//! Names of code that come after the profiles that need them.
//!
//! A processor that names code passes a batch on before everything in it has a name, rather than hold it up for
//! long. Such a batch carries [`LateNames`]: an exporter that holds profiles for a while asks there for the rest,
//! when it writes or shows them.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use profcol_profile::{Dictionary, LocationIdx, NamedLine};

/// Where to ask for the names that a batch was passed on without.
#[derive(Clone, Default)]
pub struct LateNames(Vec<Arc<dyn NameSource>>);

/// What goes on naming code after batches were passed on.
pub trait NameSource: Send + Sync {
    /// The code at a location; `None` where no name is expected for it.
    fn code_at(&self, dictionary: &Dictionary, location: LocationIdx) -> Option<Code>;

    fn name(&self, code: &Code) -> Naming;
}

/// A place in an executable.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Code {
    pub build_id: Arc<str>,
    pub place: Place,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Place {
    /// The address for which it was linked.
    Address(u64),
    /// From the start of the file.
    Offset(u64),
}

/// How far naming has come.
#[derive(Clone, Debug)]
pub enum Naming {
    /// The frames, the innermost first.
    Named(Arc<[CodeFrame]>),
    Pending,
    /// There is no name.
    Nameless,
}

/// A function, and where in it.
#[derive(Debug, Default)]
pub struct CodeFrame {
    pub name: Arc<str>,
    /// As the linker sees it.
    pub system_name: Arc<str>,
    pub file: Arc<str>,
    pub start_line: u32,
    pub line: u32,
    pub column: u32,
}

/// Code whose name is asked for later. Two are equal where they are the same code.
#[derive(Clone)]
pub struct LateName {
    source: Arc<dyn NameSource>,
    code: Code,
}

// === impl LateNames ===

impl LateNames {
    pub fn add(&mut self, source: Arc<dyn NameSource>) {
        if !self.0.iter().any(|known| Arc::ptr_eq(known, &source)) {
            self.0.push(source);
        }
    }

    /// For a batch that was merged from several.
    pub fn append(&mut self, other: LateNames) {
        for source in other.0 {
            self.add(source);
        }
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// By what to ask for the name of a location that has no lines.
    pub fn find(&self, dictionary: &Dictionary, location: LocationIdx) -> Option<LateName> {
        self.0.iter().find_map(|source| {
            let code = source.code_at(dictionary, location)?;
            let source = Arc::clone(source);
            Some(LateName { source, code })
        })
    }
}

impl fmt::Debug for LateNames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LateNames of {}", self.0.len())
    }
}

// === impl LateName ===

impl LateName {
    pub fn get(&self) -> Naming {
        self.source.name(&self.code)
    }
}

impl PartialEq for LateName {
    fn eq(&self, other: &Self) -> bool {
        self.code == other.code
    }
}

impl Eq for LateName {}

impl Hash for LateName {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.code.hash(state);
    }
}

impl fmt::Debug for LateName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.code.fmt(f)
    }
}

// === impl CodeFrame ===

impl CodeFrame {
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
