//! A tree in drawing order.

use crate::FrameId;
use crate::tree::{CallTree, NodeId, Values};

/// Nodes depth first, callees sorted by name: the order does not depend on the values, so that successive graphs of a
/// program look alike.
#[derive(Clone, Debug, Default)]
pub struct Layout {
    pub depth: Vec<u32>,
    pub frame: Vec<FrameId>,
    pub own: Vec<Values>,
    pub total: Vec<Values>,
    pub cut: Cut,
}

/// What a layout omits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Cut {
    pub nodes: usize,
    /// The sum over the outermost omitted nodes.
    pub value: u64,
}

impl Layout {
    /// The heaviest `max_nodes`. They form a connected tree, because no node weighs more than its parent.
    pub fn new(tree: &CallTree, max_nodes: usize) -> Self {
        let totals = tree.totals();
        let drawn = heaviest(tree, &totals, max_nodes);
        let mut layout = Self::default();
        let mut left_out = |node: NodeId, parent_is_drawn: bool| {
            layout.cut.nodes += 1;
            if parent_is_drawn {
                layout.cut.value += totals[node.row()].value;
            }
        };
        let is_drawn = |row: usize| drawn[row];
        let mut children: Vec<Vec<NodeId>> = vec![Vec::new(); tree.node_count()];
        let mut outermost: Vec<NodeId> = Vec::new();
        for (row, node) in tree.nodes().iter().enumerate() {
            let id = NodeId::at(row);
            let parent_is_drawn = node.parent == NodeId::ROOT || is_drawn(node.parent.row());
            if !is_drawn(row) {
                left_out(id, parent_is_drawn);
            } else if node.parent == NodeId::ROOT {
                outermost.push(id);
            } else {
                children[node.parent.row()].push(id);
            }
        }
        let ranks = ranks(tree);
        let frame_of = |node: NodeId| tree.nodes()[node.row()].frame;
        let by_name = |node: &NodeId| std::cmp::Reverse(ranks[frame_of(*node).0 as usize]);
        outermost.sort_unstable_by_key(by_name);
        // Popped in reverse order.
        let mut open: Vec<(NodeId, u32)> = outermost.iter().map(|&node| (node, 0)).collect();
        while let Some((node, depth)) = open.pop() {
            layout.depth.push(depth);
            layout.frame.push(frame_of(node));
            layout.own.push(tree.nodes()[node.row()].own);
            layout.total.push(totals[node.row()]);
            let mut callees = std::mem::take(&mut children[node.row()]);
            callees.sort_unstable_by_key(by_name);
            open.extend(callees.into_iter().map(|callee| (callee, depth + 1)));
        }
        layout
    }

    pub fn len(&self) -> usize {
        self.depth.len()
    }

    pub fn is_empty(&self) -> bool {
        self.depth.is_empty()
    }
}

/// Both sides of a comparison count, so that functions that disappeared stay visible.
fn weight(values: Values) -> u64 {
    values.value.max(values.base)
}

/// Selects the nodes to draw: only nodes with a value, at most `max_nodes`.
fn heaviest(tree: &CallTree, totals: &[Values], max_nodes: usize) -> Vec<bool> {
    let mut weights: Vec<u64> = totals.iter().map(|&total| weight(total)).collect();
    let least = match weights.len() <= max_nodes {
        true => 0,
        false => {
            let descending = |left: &u64, right: &u64| right.cmp(left);
            *weights.select_nth_unstable_by(max_nodes, descending).1
        }
    };
    let heavier = totals
        .iter()
        .filter(|&&total| weight(total) > least)
        .count();
    // Ties at the cutoff weight fill the remaining places.
    let mut room = match least {
        0 => 0,
        _ => max_nodes.saturating_sub(heavier),
    };
    let mut drawn: Vec<bool> = Vec::with_capacity(totals.len());
    for (node, &total) in tree.nodes().iter().zip(totals) {
        let has_place = node.parent == NodeId::ROOT || drawn[node.parent.row()];
        let is_last = weight(total) == least && has_place && room > 0;
        room -= usize::from(is_last);
        drawn.push(weight(total) > least || is_last);
    }
    drawn
}

/// The rank of each frame by name.
fn ranks(tree: &CallTree) -> Vec<u32> {
    let text = |index| tree.frames.text(index);
    let mut order: Vec<(usize, &crate::Frame)> = tree.frames.iter().enumerate().collect();
    order.sort_unstable_by_key(|(row, frame)| (text(frame.name), text(frame.binary), *row));
    let mut ranks = vec![0; order.len()];
    for (rank, (row, _)) in order.into_iter().enumerate() {
        ranks[row] = rank as u32;
    }
    ranks
}
