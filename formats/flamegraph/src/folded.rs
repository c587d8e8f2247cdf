//! Folded stacks, as `flamegraph.pl` and its kin read them: a line per stack, `outermost;...;innermost value`.

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

/// A semicolon parts frames and a line break stacks, so no name may have them.
fn plain(name: &str) -> String {
    name.chars()
        .map(|it| match it {
            ';' => ':',
            it if it.is_control() => ' ',
            it => it,
        })
        .collect()
}
