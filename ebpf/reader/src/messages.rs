//! Messages between the profiler and the process that builds its tables.
//!
//! A file may have exploited that process, so a table is checked before use.

use profcol_ebpf_common::context::ContextLayout;
use profcol_ebpf_common::interpreter::Interpreter;
use profcol_ebpf_common::rule::EncodedRule;
use profcol_ebpf_common::table::{PAGE_SIZE, Page, Row};
use profcol_ebpf_interpreters::{DetectedInterpreter, FileRuntime, Runtime};
use profcol_ebpf_unwind::Table;
use profcol_reader::{Invalid, bounded};
use prost::{Message, Oneof};

use crate::FileFeatures;

/// Limit of a table: that of a program with a gigabyte of code.
pub const MAX_TABLE_BYTES: usize = 128 << 20;
/// Words of a table in one message.
const CHUNK_WORDS: usize = 128 << 10;

#[derive(Clone, PartialEq, Message)]
pub struct Request {
    #[prost(oneof = "RequestKind", tags = "1, 2, 3")]
    pub kind: Option<RequestKind>,
}

#[derive(Clone, PartialEq, Oneof)]
pub enum RequestKind {
    /// Comes with the descriptor of the file.
    #[prost(message, tag = "1")]
    Build(Build),
    #[prost(message, tag = "2")]
    Pages(Pages),
    /// Drop what is held under this key. There is no response.
    #[prost(uint64, tag = "3")]
    Forget(u64),
}

#[derive(Clone, PartialEq, Message)]
pub struct Build {
    #[prost(uint64, tag = "1")]
    pub key: u64,
    #[prost(bool, tag = "2")]
    pub may_be_lazy: bool,
    /// An earlier process has already sent the file's other features.
    #[prost(bool, tag = "3")]
    pub is_reopened: bool,
}

#[derive(Clone, PartialEq, Message)]
pub struct Pages {
    #[prost(uint64, tag = "1")]
    pub key: u64,
    #[prost(uint64, tag = "2")]
    pub begin: u64,
    #[prost(uint64, tag = "3")]
    pub count: u64,
}

#[derive(Clone, PartialEq, Message)]
pub struct Response {
    #[prost(oneof = "ResponseKind", tags = "1, 2, 3, 4")]
    pub kind: Option<ResponseKind>,
}

#[derive(Clone, PartialEq, Oneof)]
pub enum ResponseKind {
    /// Why there is no table.
    #[prost(string, tag = "1")]
    Refused(String),
    #[prost(message, tag = "2")]
    Lazy(LazyTable),
    /// A table is one or more of these.
    #[prost(message, tag = "3")]
    Chunk(TableChunk),
    /// Precedes the table.
    #[prost(message, tag = "4")]
    Features(WireFileFeatures),
}

/// What a file has besides its unwind information.
#[derive(Clone, PartialEq, Message)]
pub struct WireFileFeatures {
    /// [`ContextLayout`], as the programs read it.
    #[prost(bytes = "vec", optional, tag = "1")]
    pub contexts: Option<Vec<u8>>,
    #[prost(string, optional, tag = "2")]
    pub unsupported_contexts: Option<String>,
    #[prost(message, optional, tag = "3")]
    pub interpreter: Option<WireInterpreter>,
    #[prost(message, optional, tag = "4")]
    pub runtime: Option<WireRuntime>,
}

/// [`FileRuntime`].
#[derive(Clone, PartialEq, Message)]
pub struct WireRuntime {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, optional, tag = "2")]
    pub version: Option<String>,
    #[prost(string, optional, tag = "3")]
    pub unsupported: Option<String>,
}

#[derive(Clone, PartialEq, Message)]
pub struct WireInterpreter {
    #[prost(string, tag = "1")]
    pub text: String,
    /// [`Interpreter`], as the programs read it.
    #[prost(bytes = "vec", tag = "2")]
    pub program_data: Vec<u8>,
}

/// The table is built by pages, on request: the index of its unwind information is open.
#[derive(Clone, PartialEq, Message)]
pub struct LazyTable {}

/// The next words of a table.
#[derive(Clone, PartialEq, Message)]
pub struct TableChunk {
    #[prost(uint64, tag = "1")]
    pub first_page: u64,
    /// Two words for each.
    #[prost(fixed32, repeated, tag = "2")]
    pub pages: Vec<u32>,
    #[prost(fixed32, repeated, tag = "3")]
    pub rows: Vec<u32>,
    #[prost(fixed64, repeated, tag = "4")]
    pub rules: Vec<u64>,
    #[prost(bool, tag = "5")]
    pub is_last: bool,
}

impl From<RequestKind> for Request {
    fn from(kind: RequestKind) -> Self {
        Self { kind: Some(kind) }
    }
}

impl From<ResponseKind> for Response {
    fn from(kind: ResponseKind) -> Self {
        Self { kind: Some(kind) }
    }
}

impl From<&FileFeatures> for WireFileFeatures {
    fn from(features: &FileFeatures) -> Self {
        let layout = features.contexts.as_ref().ok().copied().flatten();
        let interpreter = features.interpreter.as_ref();
        let unsupported = |why: &str| bounded(why.to_owned());
        Self {
            contexts: layout.map(|layout| bytemuck::bytes_of(&layout).to_vec()),
            unsupported_contexts: features.contexts.as_ref().err().map(|it| unsupported(it)),
            interpreter: interpreter.map(|it| WireInterpreter {
                text: it.encode(),
                program_data: bytemuck::bytes_of(&it.interpreter).to_vec(),
            }),
            runtime: features.runtime.as_ref().map(|it| WireRuntime {
                name: it.runtime.name().to_owned(),
                version: it.version.clone().map(bounded),
                unsupported: it.unsupported.clone().map(bounded),
            }),
        }
    }
}

impl WireFileFeatures {
    pub fn checked(self) -> Result<FileFeatures, Invalid> {
        let contexts = match (self.unsupported_contexts, self.contexts) {
            (Some(why), _) => Err(bounded(why)),
            (None, None) => Ok(None),
            (None, Some(bytes)) => Ok(Some(
                plain::<ContextLayout>(&bytes)
                    .ok_or(Invalid("wrong size of thread context data"))?,
            )),
        };
        let interpreter = match self.interpreter {
            None => None,
            Some(found) => {
                let program_data = plain::<Interpreter>(&found.program_data)
                    .ok_or(Invalid("wrong size of interpreter data"))?;
                let decoded = DetectedInterpreter::decode(&found.text, program_data);
                Some(decoded.map_err(|_| Invalid("inconsistent interpreter data"))?)
            }
        };
        let runtime = match self.runtime {
            None => None,
            Some(found) => Some(FileRuntime {
                runtime: Runtime::named(&found.name).ok_or(Invalid("unknown runtime"))?,
                version: found.version.map(bounded),
                unsupported: found.unsupported.map(bounded),
            }),
        };
        Ok(FileFeatures {
            contexts,
            interpreter,
            runtime,
        })
    }
}

fn plain<T: bytemuck::AnyBitPattern>(bytes: &[u8]) -> Option<T> {
    bytemuck::try_pod_read_unaligned(bytes).ok()
}

/// The chunks of a table, in order.
pub fn chunks(table: &Table) -> impl Iterator<Item = TableChunk> {
    let empty = || TableChunk {
        first_page: table.first_page,
        ..TableChunk::default()
    };
    let pages = table
        .pages
        .chunks(CHUNK_WORDS / 2)
        .map(move |pages| TableChunk {
            pages: pages.iter().flat_map(|it| [it.rows, it.count]).collect(),
            ..empty()
        });
    let rows = table.rows.chunks(CHUNK_WORDS).map(move |rows| TableChunk {
        rows: rows.iter().map(|row| row.0).collect(),
        ..empty()
    });
    let rules = table
        .rules
        .chunks(CHUNK_WORDS / 2)
        .map(move |rules| TableChunk {
            rules: rules.iter().map(|rule| rule.0).collect(),
            ..empty()
        });
    let end = std::iter::once_with(move || TableChunk {
        is_last: true,
        ..empty()
    });
    pages.chain(rows).chain(rules).chain(end)
}

/// A table that is still arriving.
pub struct PartialTable(Table);

impl Default for PartialTable {
    fn default() -> Self {
        Self(Table {
            first_page: 0,
            pages: Vec::new(),
            rows: Vec::new(),
            rules: Vec::new(),
        })
    }
}

impl PartialTable {
    pub fn add(&mut self, chunk: &TableChunk) -> Result<(), Invalid> {
        let table = &mut self.0;
        table.first_page = chunk.first_page;
        let pages = chunk.pages.chunks_exact(2).map(|words| match *words {
            [rows, count] => Page { rows, count },
            _ => Page::EMPTY,
        });
        table.pages.extend(pages);
        table.rows.extend(chunk.rows.iter().copied().map(Row));
        let rules = chunk.rules.iter().copied().map(EncodedRule);
        table.rules.extend(rules);
        match table.bytes() > MAX_TABLE_BYTES {
            true => Err(Invalid("table too large")),
            false => Ok(()),
        }
    }

    /// The table, if its parts refer to one another as they should.
    pub fn finish(self) -> Result<Table, Invalid> {
        let table = self.0;
        let is_inside = |page: &Page| {
            let end = page.rows.checked_add(page.count);
            let is_inside = end.is_some_and(|end| end as usize <= table.rows.len());
            is_inside && u64::from(page.count) <= PAGE_SIZE
        };
        let has_rule = |row: &Row| (row.rule() as usize) < table.rules.len();
        if !table.pages.iter().all(is_inside) || !table.rows.iter().all(has_rule) {
            return Err(Invalid(
                "inconsistent table: a page or row refers outside it",
            ));
        }
        let last_page = table.first_page.checked_add(table.pages.len() as u64);
        match last_page.map(u32::try_from) {
            Some(Ok(_)) => Ok(table),
            _ => Err(Invalid("page range exceeds 32 bits")),
        }
    }
}
