//! Self and total value of each function, regardless of its callers.

use std::collections::HashMap;

use crate::FrameId;
use crate::tree::{CallTree, NodeId, Values};

/// Functions, highest self value first.
#[derive(Clone, Debug, Default)]
pub struct FunctionTable {
    pub frame: Vec<FrameId>,
    pub own: Vec<Values>,
    pub total: Vec<Values>,
    /// Before truncation.
    pub function_count: usize,
}

/// A function that occurs several times in a stack counts once in its total.
pub fn function_table(tree: &CallTree, max_functions: usize) -> FunctionTable {
    let totals = tree.totals();
    let mut sums: HashMap<FrameId, (Values, Values)> = HashMap::new();
    // The depth-first walk tracks which functions are among the callers of the current node.
    let mut children: Vec<Vec<u32>> = vec![Vec::new(); tree.node_count()];
    let mut open: Vec<Step> = Vec::new();
    for (row, node) in tree.nodes().iter().enumerate() {
        match node.parent == NodeId::ROOT {
            true => open.push(Step::Enter(row)),
            false => children[node.parent.row()].push(row as u32),
        }
    }
    let mut on_stack: HashMap<FrameId, u32> = HashMap::new();
    while let Some(step) = open.pop() {
        match step {
            Step::Enter(row) => {
                let node = &tree.nodes()[row];
                let calls = on_stack.entry(node.frame).or_default();
                let (own, total) = sums.entry(node.frame).or_default();
                own.add_all(node.own);
                if *calls == 0 {
                    total.add_all(totals[row]);
                }
                *calls += 1;
                open.push(Step::Leave(node.frame));
                let callees = std::mem::take(&mut children[row]);
                open.extend(callees.into_iter().map(|row| Step::Enter(row as usize)));
            }
            Step::Leave(frame) => {
                if let Some(calls) = on_stack.get_mut(&frame) {
                    *calls -= 1;
                }
            }
        }
    }
    let mut rows: Vec<(FrameId, Values, Values)> = sums
        .into_iter()
        .map(|(frame, (own, total))| (frame, own, total))
        .filter(|(_, _, total)| *total != Values::default())
        .collect();
    let weight = |values: Values| values.value.max(values.base);
    rows.sort_unstable_by_key(|&(frame, own, total)| {
        (std::cmp::Reverse((weight(own), weight(total))), frame)
    });
    let function_count = rows.len();
    rows.truncate(max_functions);
    let mut table = FunctionTable {
        function_count,
        ..FunctionTable::default()
    };
    for (frame, own, total) in rows {
        table.frame.push(frame);
        table.own.push(own);
        table.total.push(total);
    }
    table
}

enum Step {
    Enter(usize),
    Leave(FrameId),
}
