//! Self and total value of each function, regardless of its callers.

use std::cmp::Reverse;
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

/// A function with its self and total values.
type Row = (FrameId, Values, Values);

/// The heaviest functions by self or total value, in equal parts, so that the table begins right in either order.
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
    let mut rows: Vec<Row> = sums
        .into_iter()
        .map(|(frame, (own, total))| (frame, own, total))
        .filter(|(_, _, total)| *total != Values::default())
        .collect();
    rows.sort_unstable_by_key(|&(frame, own, total)| {
        (Reverse((weight(own), weight(total))), frame)
    });
    let function_count = rows.len();
    keep_heaviest(&mut rows, max_functions);
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

fn weight(values: Values) -> u64 {
    values.value.max(values.base)
}

/// `rows` are sorted by self value, and stay so.
fn keep_heaviest(rows: &mut Vec<Row>, max: usize) {
    if rows.len() <= max {
        return;
    }
    let mut by_total: Vec<usize> = (0..rows.len()).collect();
    by_total.sort_by_key(|&row| Reverse(weight(rows[row].2)));
    let mut is_kept = vec![false; rows.len()];
    let ranked = by_total.iter().enumerate();
    let heaviest = ranked.flat_map(|(by_own, &by_total)| [by_own, by_total]);
    let mut left = max;
    for row in heaviest {
        if left == 0 {
            break;
        }
        left -= usize::from(!std::mem::replace(&mut is_kept[row], true));
    }
    let mut is_kept = is_kept.into_iter();
    rows.retain(|_| is_kept.next().unwrap_or(false));
}

enum Step {
    Enter(usize),
    Leave(FrameId),
}
