//! Flame graphs as rows of numbers.
//!
//! A bar consists of its distance from the end of the previous bar in its row, its width, its self value, and the index
//! of its name; a comparison has the first three twice, once per side. The first row is the total.
//!
//! Omitted nodes have no bar: they leave a gap below their caller, so that tables do not count them as a function.

use std::collections::HashMap;

use profcol_flamegraph::{CallTree, FrameId, Layout, Side, Values};

use crate::messages::{FlameGraph, FlameGraphDiff, Level};

impl FlameGraph {
    /// `None` if the tree is empty.
    pub fn of(tree: &CallTree, max_nodes: usize) -> Option<Self> {
        let rows = Rows::new(tree, max_nodes, &[Side::Current])?;
        Some(Self {
            total: number(tree.total().value),
            max_self: rows.max_self,
            names: rows.names,
            levels: rows.levels,
        })
    }
}

impl FlameGraphDiff {
    /// The baseline is on the left.
    pub fn of(tree: &CallTree, max_nodes: usize) -> Option<Self> {
        let rows = Rows::new(tree, max_nodes, &[Side::Base, Side::Current])?;
        let total = tree.total();
        Some(Self {
            total: number(total.base.saturating_add(total.value)),
            max_self: rows.max_self,
            left_ticks: number(total.base),
            right_ticks: number(total.value),
            names: rows.names,
            levels: rows.levels,
        })
    }
}

struct Rows {
    names: Vec<String>,
    levels: Vec<Level>,
    max_self: i64,
}

/// The ends of the bars of a row: the next bar starts there at the earliest.
#[derive(Clone, Copy, Default)]
struct RowEnds {
    /// The end of the last bar.
    end: Values,
    /// The start of the next bar: after its sibling, or at the start of its caller.
    next: Values,
}

impl Rows {
    fn new(tree: &CallTree, max_nodes: usize, sides: &[Side]) -> Option<Self> {
        let total = tree.total();
        if total == Values::default() {
            return None;
        }
        let layout = Layout::new(tree, max_nodes);
        let mut names = Names::default();
        let mut rows = Self {
            names: Vec::new(),
            levels: vec![Level::default()],
            max_self: 0,
        };
        let root = names.index("total".to_owned());
        rows.add_bar(
            0,
            &mut RowEnds::default(),
            (total, Values::default()),
            sides,
            root,
        );
        let mut row_ends: Vec<RowEnds> = Vec::new();
        let mut of_frame: HashMap<FrameId, i64> = HashMap::new();
        let bars = layout.depth.iter().zip(&layout.frame);
        let values = layout.total.iter().zip(&layout.own);
        for ((&depth, &frame), (&total, &own)) in bars.zip(values) {
            let name = *of_frame
                .entry(frame)
                .or_insert_with(|| names.index(tree.frames.label(frame)));
            let depth = depth as usize;
            // A node is at most one level deeper than the previous one, so no row is skipped.
            if row_ends.len() <= depth {
                row_ends.resize(depth + 1, RowEnds::default());
            }
            if rows.levels.len() <= depth + 1 {
                rows.levels.resize(depth + 2, Level::default());
            }
            let Some(ends) = row_ends.get_mut(depth) else {
                continue;
            };
            let begin = ends.next;
            rows.add_bar(depth + 1, ends, (total, own), sides, name);
            // Its callees start at the same position.
            match row_ends.get_mut(depth + 1) {
                Some(below) => below.next = begin,
                None => row_ends.push(RowEnds {
                    next: begin,
                    ..RowEnds::default()
                }),
            }
        }
        rows.names = names.texts;
        Some(rows)
    }

    fn add_bar(
        &mut self,
        row: usize,
        ends: &mut RowEnds,
        (total, own): (Values, Values),
        sides: &[Side],
        name: i64,
    ) {
        let Some(level) = self.levels.get_mut(row) else {
            return;
        };
        for &side in sides {
            let of = |values: Values| match side {
                Side::Current => values.value,
                Side::Base => values.base,
            };
            let offset = of(ends.next).saturating_sub(of(ends.end));
            let numbers = [offset, of(total), of(own)].map(number);
            level.values.extend(numbers);
            self.max_self = self.max_self.max(number(of(own)));
        }
        level.values.push(name);
        for (side, width) in [(Side::Current, total.value), (Side::Base, total.base)] {
            ends.next.add(side, width);
        }
        ends.end = ends.next;
    }
}

/// Deduplicated names.
#[derive(Default)]
struct Names {
    texts: Vec<String>,
    indices: HashMap<String, i64>,
}

impl Names {
    fn index(&mut self, text: String) -> i64 {
        if let Some(&index) = self.indices.get(&text) {
            return index;
        }
        let next = i64::try_from(self.texts.len()).unwrap_or(i64::MAX);
        self.texts.push(text.clone());
        self.indices.insert(text, next);
        next
    }
}

fn number(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}
