//! A call tree under construction, from formats that hold functions without addresses.

use std::collections::HashSet;

use profcol_flamegraph::{CallTree, Frame, FrameId, NodeId, SampleType, Side, Source, to_model};
use profcol_profile::{LocationIdx, Model};

use super::ReadError;

pub(super) struct Stacks {
    tree: CallTree,
    /// The nodes with a value, each a stack of the profile.
    valued: HashSet<NodeId>,
    /// For the locations of further stacks: nested calls cost little in a file, and much as one stack per function.
    free_bytes: usize,
}

/// A node and the number of its functions.
#[derive(Clone, Copy)]
pub(super) struct StackNode {
    node: NodeId,
    depth: usize,
}

impl StackNode {
    pub const ROOT: Self = Self {
        node: NodeId::ROOT,
        depth: 0,
    };
}

impl Stacks {
    pub fn new(max_bytes: usize) -> Self {
        Self {
            tree: CallTree::default(),
            valued: HashSet::new(),
            free_bytes: max_bytes,
        }
    }

    /// For [`Self::frame`].
    pub fn string(&mut self, text: &str) -> u32 {
        self.tree.frames.string(text)
    }

    pub fn frame(&mut self, frame: Frame) -> FrameId {
        self.tree.frames.add(frame)
    }

    pub fn child(&mut self, parent: StackNode, frame: FrameId) -> StackNode {
        StackNode {
            node: self.tree.child(parent.node, frame),
            depth: parent.depth + 1,
        }
    }

    pub fn add(&mut self, place: StackNode, value: u64) -> Result<(), ReadError> {
        if value == 0 {
            return Ok(());
        }
        if self.valued.insert(place.node) {
            let bytes = place.depth * size_of::<LocationIdx>();
            let rest = self.free_bytes.checked_sub(bytes);
            self.free_bytes = rest.ok_or(ReadError::TooLarge)?;
        }
        self.tree.add(place.node, Side::Current, value);
        Ok(())
    }

    pub fn finish(self, source: &Source) -> Model {
        to_model(&self.tree, source)
    }
}

/// A source without a time.
pub(super) fn source(name: &str, unit: &str) -> Source {
    Source {
        sample_type: SampleType {
            name: name.to_owned(),
            unit: unit.to_owned(),
        },
        ..Source::default()
    }
}
