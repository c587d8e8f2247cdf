//! A call tree as columnar JSON for the viewer.

use serde::Serialize;

use crate::FrameId;
use crate::code::{FrameKind, Language};
use crate::frames::FrameTable;
use crate::layout::{Cut, Layout};
use crate::sample_type::SampleType;
use crate::table::function_table;
use crate::tree::{CallTree, Values};

/// Functions by self or total value: more than any screen can show.
const MAX_FUNCTIONS: usize = 10_000;

/// The profile that a tree was built from.
#[derive(Clone, Debug, Default)]
pub struct Source {
    pub sample_type: SampleType,
    /// Milliseconds of Unix time.
    pub from: u64,
    pub until: u64,
    pub samples: u64,
    /// Whether the tree compares two profiles.
    pub is_comparison: bool,
}

/// How the two profiles of a comparison are related.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relation {
    /// Each value is a share of its own profile.
    Share,
    Value,
}

#[derive(Serialize)]
pub struct Document<'a> {
    #[serde(rename = "type")]
    kind: &'a str,
    unit: &'a str,
    from: u64,
    until: u64,
    total: u64,
    samples: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    base_total: Option<u64>,
    /// How the viewer compares at first; it has a default of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    difference: Option<&'static str>,
    #[serde(flatten)]
    texts: Texts<'a>,
    nodes: Nodes,
    cut: Cut,
    functions: Functions,
    function_count: usize,
}

/// The callers and callees of a function.
#[derive(Serialize)]
pub struct Sandwich<'a> {
    #[serde(rename = "type")]
    kind: &'a str,
    unit: &'a str,
    total: u64,
    function_total: u64,
    #[serde(flatten)]
    texts: Texts<'a>,
    callers: Nodes,
    callees: Nodes,
}

/// A string table, and frames as indices into it.
#[derive(Serialize)]
struct Texts<'a> {
    strings: Vec<&'a str>,
    kinds: [FrameKind; FrameKind::ALL.len()],
    languages: [&'static str; Language::ALL.len()],
    frames: Frames,
}

#[derive(Serialize)]
struct Frames {
    name: Vec<u32>,
    file: Vec<u32>,
    line: Vec<u32>,
    binary: Vec<u32>,
    kind: Vec<u8>,
    language: Vec<u8>,
}

/// In depth-first order.
#[derive(Serialize)]
struct Nodes {
    depth: Vec<u32>,
    frame: Vec<u32>,
    #[serde(flatten)]
    values: Columns,
}

#[derive(Serialize)]
struct Functions {
    frame: Vec<u32>,
    #[serde(flatten)]
    values: Columns,
}

#[derive(Serialize)]
struct Columns {
    #[serde(rename = "self")]
    own: Vec<u64>,
    total: Vec<u64>,
    #[serde(rename = "base_self", skip_serializing_if = "Option::is_none")]
    base_own: Option<Vec<u64>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    base_total: Option<Vec<u64>>,
}

impl<'a> Document<'a> {
    pub fn new(tree: &'a CallTree, source: &'a Source, max_nodes: usize) -> Self {
        let layout = Layout::new(tree, max_nodes);
        let table = function_table(tree, MAX_FUNCTIONS);
        let with_base = source.is_comparison;
        Self {
            kind: &source.sample_type.name,
            unit: &source.sample_type.unit,
            from: source.from,
            until: source.until,
            total: tree.total().value,
            samples: source.samples,
            base_total: with_base.then(|| tree.total().base),
            difference: None,
            texts: Texts::of(&tree.frames),
            cut: layout.cut,
            nodes: Nodes::of(layout, with_base),
            functions: Functions {
                frame: numbers(&table.frame),
                values: Columns::of(&table.own, &table.total, with_base),
            },
            function_count: table.function_count,
        }
    }

    pub fn compared_by(self, relation: Relation) -> Self {
        let difference = match relation {
            Relation::Share => "share",
            Relation::Value => "absolute",
        };
        Self {
            difference: Some(difference),
            ..self
        }
    }
}

impl<'a> Sandwich<'a> {
    /// `callers` and `callees` come from [`CallTree::sandwich`].
    pub fn new(
        tree: &'a CallTree,
        (callers, callees): &(CallTree, CallTree),
        source: &'a Source,
        max_nodes: usize,
    ) -> Self {
        let nodes = |tree| Nodes::of(Layout::new(tree, max_nodes), source.is_comparison);
        Self {
            kind: &source.sample_type.name,
            unit: &source.sample_type.unit,
            total: tree.total().value,
            function_total: callees.total().value,
            texts: Texts::of(&tree.frames),
            callers: nodes(callers),
            callees: nodes(callees),
        }
    }
}

impl<'a> Texts<'a> {
    fn of(table: &'a FrameTable) -> Self {
        let column = |of: fn(&crate::Frame) -> u32| table.iter().map(of).collect();
        Self {
            strings: table.strings().collect(),
            kinds: FrameKind::ALL,
            languages: Language::ALL.map(Language::name),
            frames: Frames {
                name: column(|frame| frame.name),
                file: column(|frame| frame.file),
                line: column(|frame| frame.line),
                binary: column(|frame| frame.binary),
                kind: table.iter().map(|frame| frame.kind as u8).collect(),
                language: table.iter().map(|frame| frame.language as u8).collect(),
            },
        }
    }
}

impl Nodes {
    fn of(layout: Layout, with_base: bool) -> Self {
        Self {
            frame: numbers(&layout.frame),
            values: Columns::of(&layout.own, &layout.total, with_base),
            depth: layout.depth,
        }
    }
}

impl Columns {
    fn of(own: &[Values], total: &[Values], with_base: bool) -> Self {
        let values = |column: &[Values]| column.iter().map(|it| it.value).collect();
        let base = |column: &[Values]| column.iter().map(|it| it.base).collect();
        Self {
            own: values(own),
            total: values(total),
            base_own: with_base.then(|| base(own)),
            base_total: with_base.then(|| base(total)),
        }
    }
}

fn numbers(frames: &[FrameId]) -> Vec<u32> {
    frames.iter().map(|frame| frame.0).collect()
}
