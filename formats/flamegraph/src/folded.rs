//! Folded stacks as read by `flamegraph.pl` and similar tools: one `outermost;...;innermost value` line per stack.

use crate::tree::{CallTree, NodeId};

pub fn folded(tree: &CallTree) -> String {
    let mut labels: Vec<String> = Vec::with_capacity(tree.frames.iter().len());
    for row in 0..tree.frames.iter().len() {
        labels.push(plain(&tree.frames.label(crate::FrameId(row as u32))));
    }
    let mut lines: Vec<String> = Vec::new();
    for (row, node) in tree.nodes().iter().enumerate() {
        if node.own.value == 0 {
            continue;
        }
        let mut stack: Vec<&str> = tree
            .ancestors(NodeId::at(row))
            .filter_map(|frame| labels.get(frame.0 as usize).map(String::as_str))
            .collect();
        stack.reverse();
        lines.push(format!("{} {}\n", stack.join(";"), node.own.value));
    }
    lines.sort_unstable();
    lines.concat()
}

/// Replaces semicolons, which separate frames, and line breaks, which separate stacks.
fn plain(name: &str) -> String {
    name.chars()
        .map(|it| match it {
            ';' => ':',
            it if it.is_control() => ' ',
            it => it,
        })
        .collect()
}
