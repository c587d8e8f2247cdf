//! Stacks merged by function.

use std::collections::HashMap;

use crate::{Frame, FrameId, FrameTable};

/// A node stands for a function as called by its parent's function.
#[derive(Clone, Debug, Default)]
pub struct CallTree {
    pub frames: FrameTable,
    nodes: Vec<Node>,
    children: HashMap<(NodeId, FrameId), NodeId>,
    total: Values,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Node {
    pub parent: NodeId,
    pub frame: FrameId,
    /// The value of stacks that end here.
    pub own: Values,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(u32);

/// The value of a node on either side of a comparison.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Values {
    pub value: u64,
    pub base: u64,
}

/// The profile that a value belongs to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Side {
    /// The current profile.
    #[default]
    Current,
    /// The baseline.
    Base,
}

impl CallTree {
    /// Adds a stack, outermost frame first.
    pub fn add_stack(&mut self, stack: impl IntoIterator<Item = FrameId>, side: Side, value: u64) {
        let mut node = NodeId::ROOT;
        for frame in stack {
            node = self.child(node, frame);
        }
        self.add(node, side, value);
    }

    /// The node of `frame` below `parent`.
    pub fn child(&mut self, parent: NodeId, frame: FrameId) -> NodeId {
        let next = NodeId::at(self.nodes.len());
        let child = *self.children.entry((parent, frame)).or_insert(next);
        if child == next {
            self.nodes.push(Node {
                parent,
                frame,
                own: Values::default(),
            });
        }
        child
    }

    /// Adds to the stacks that end at `node`.
    pub fn add(&mut self, node: NodeId, side: Side, value: u64) {
        self.total.add(side, value);
        if let Some(node) = self.nodes.get_mut(node.row()) {
            node.own.add(side, value);
        }
    }

    pub fn total(&self) -> Values {
        self.total
    }

    pub fn node_count(&self) -> usize {
        self.nodes.len()
    }

    pub(crate) fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// The total of each node, including its callees.
    pub(crate) fn totals(&self) -> Vec<Values> {
        let mut totals: Vec<Values> = self.nodes.iter().map(|node| node.own).collect();
        // A node comes after its parent.
        for row in (0..self.nodes.len()).rev() {
            let (total, parent) = (totals[row], self.nodes[row].parent);
            if parent != NodeId::ROOT {
                totals[parent.row()].add_all(total);
            }
        }
        totals
    }

    /// The frames from `node` to the outermost one.
    pub(crate) fn ancestors(&self, node: NodeId) -> impl Iterator<Item = FrameId> {
        let mut next = node;
        std::iter::from_fn(move || {
            let node = self.nodes.get(next.row())?;
            next = node.parent;
            Some(node.frame)
        })
    }

    /// The callees of `frame` and, inverted, its callers: two trees with `frame` as the outermost node. In recursive
    /// stacks, callees count from the outermost call and callers from the innermost one.
    pub fn sandwich(&self, frame: FrameId) -> (CallTree, CallTree) {
        let (mut callers, mut callees) = (self.empty(), self.empty());
        // The place of each node below the outermost call of the function.
        let mut below: Vec<Option<NodeId>> = Vec::with_capacity(self.nodes.len());
        for node in &self.nodes {
            let place = match below.get(node.parent.row()).copied().flatten() {
                Some(parent) => Some(callees.child(parent, node.frame)),
                None if node.frame == frame => Some(callees.child(NodeId::ROOT, frame)),
                None => None,
            };
            below.push(place);
            if let Some(place) = place {
                callees.add_values(place, node.own);
            }
        }
        for (row, node) in self.nodes.iter().enumerate() {
            if node.own == Values::default() || below[row].is_none() {
                continue;
            }
            let stack = self.ancestors(NodeId::at(row));
            let mut place = NodeId::ROOT;
            for caller in stack.skip_while(|&other| other != frame) {
                place = callers.child(place, caller);
            }
            callers.add_values(place, node.own);
        }
        (callers, callees)
    }

    /// The callees of the outermost functions with self and total values, heaviest first: on either side of a
    /// [`sandwich`](Self::sandwich), the neighbors of the function.
    pub fn second_level(&self) -> Vec<(FrameId, Values, Values)> {
        let totals = self.totals();
        let rows = self.nodes.iter().zip(totals);
        let second = rows.filter(|(node, _)| {
            let parent = self.nodes.get(node.parent.row());
            parent.is_some_and(|parent| parent.parent == NodeId::ROOT)
        });
        let mut second: Vec<_> = second
            .map(|(node, total)| (node.frame, node.own, total))
            .collect();
        second.sort_by_key(|&(frame, _, total)| (std::cmp::Reverse(total.value), frame));
        second
    }

    /// The tree with all functions of a name as one.
    pub fn by_name(&self) -> Self {
        let mut merged = Self::default();
        let mut places: Vec<NodeId> = Vec::with_capacity(self.nodes.len());
        for node in &self.nodes {
            let frame = Frame {
                name: merged.frames.string(&self.frames.label(node.frame)),
                ..Frame::default()
            };
            let frame = merged.frames.add(frame);
            let parent = places.get(node.parent.row()).copied();
            let place = merged.child(parent.unwrap_or(NodeId::ROOT), frame);
            merged.add_values(place, node.own);
            places.push(place);
        }
        // Stacks without frames.
        merged.total = self.total;
        merged
    }

    /// Finds the frame of a function by its name and that of its binary.
    pub fn find(&self, name: &str, binary: &str) -> Option<FrameId> {
        let row = self.frames.iter().position(|frame| {
            self.frames.text(frame.name) == name && self.frames.text(frame.binary) == binary
        });
        row.map(|row| FrameId(row as u32))
    }

    fn add_values(&mut self, node: NodeId, values: Values) {
        self.add(node, Side::Current, values.value);
        self.add(node, Side::Base, values.base);
    }

    fn empty(&self) -> Self {
        Self {
            frames: self.frames.clone(),
            ..Self::default()
        }
    }
}

impl NodeId {
    /// The root: the parent of the outermost frames.
    pub const ROOT: Self = Self(u32::MAX);

    pub(crate) fn at(row: usize) -> Self {
        Self(row as u32)
    }

    pub(crate) fn row(self) -> usize {
        self.0 as usize
    }
}

impl Values {
    pub fn add(&mut self, side: Side, value: u64) {
        let sum = match side {
            Side::Current => &mut self.value,
            Side::Base => &mut self.base,
        };
        *sum = sum.saturating_add(value);
    }

    pub(crate) fn add_all(&mut self, other: Self) {
        self.value = self.value.saturating_add(other.value);
        self.base = self.base.saturating_add(other.base);
    }
}
