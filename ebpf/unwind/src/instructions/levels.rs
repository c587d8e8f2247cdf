//! The stack level at each instruction of a function, derived without knowing its start.
//!
//! Code does not mark calls that never return. After such a call comes another part of the function, or another
//! function, with another stack level. But each edge that is not after a call relates the levels at its two
//! ends, and at a return the level is the one at the call of the function. An edge after a call that contradicts
//! these relations does not exist.

use std::cmp::Reverse;

use foldhash::fast::RandomState;
use hashbrown::HashMap;

use super::code::ALIGNMENT;
use super::effect::{Flow, WORD};
use super::graph::{Edge, Graph, Kind};

pub struct Levels {
    /// Possible edges.
    pub edges: Vec<Edge>,
    /// Calls whose edge agrees with known levels, and calls whose edge contradicts them.
    pub agreed: Vec<u32>,
    pub refuted: Vec<u32>,
    /// Union-find: by instruction, its parent and the difference of the level to that of the parent.
    tied: Vec<(u32, i32)>,
    groups: Vec<Group>,
}

/// The data of a root instruction.
#[derive(Clone, Copy, Default)]
struct Group {
    size: u32,
    /// The level at the root, if known.
    level: Option<i32>,
    /// A part can never be executed, so none of it can.
    is_impossible: bool,
}

impl Levels {
    /// Relates the levels along the edges of the graph.
    pub fn of(graph: &Graph, start: u32, is_elsewhere: impl Fn(u64) -> bool) -> Self {
        let count = graph.nodes.len();
        let mut levels = Self {
            edges: Vec::with_capacity(graph.edges.len()),
            agreed: Vec::new(),
            refuted: Vec::new(),
            tied: (0..count as u32).map(|node| (node, 0)).collect(),
            groups: vec![
                Group {
                    size: 1,
                    ..Group::default()
                };
                count
            ],
        };
        levels.fix(start, WORD);
        for (number, node) in (0..).zip(&graph.nodes) {
            if node.flow == Flow::Return {
                levels.fix(number, WORD);
            }
            if node.is_impossible
                && let Some(group) = levels.groups.get_mut(number as usize)
            {
                group.is_impossible = true;
            }
        }
        for &(from, to) in &graph.exits {
            let flow = graph.nodes.get(from as usize).map(|node| node.flow);
            if matches!(flow, Some(Flow::Jump(_) | Flow::Branch(_))) && is_elsewhere(to) {
                levels.fix(from, WORD);
            }
        }
        let growth = |edge: &Edge| {
            let node = graph.nodes.get(edge.from as usize);
            node.and_then(|node| node.effect.growth())
        };
        let (doubtful, certain): (Vec<Edge>, Vec<Edge>) = graph
            .edges
            .iter()
            .partition(|edge| edge.kind != Kind::Certain);
        for edge in &certain {
            if let Some(growth) = growth(edge) {
                levels.tie(edge.from, edge.to, growth);
            }
        }
        levels.edges.extend(certain);
        for (edge, growth) in levels.likeliest_first(graph, doubtful, growth) {
            levels.try_tie(graph, edge, growth);
        }
        levels
    }

    /// The level at an instruction, if it is known.
    pub fn at(&mut self, node: u32) -> Option<i32> {
        let (group, height) = self.find(node);
        let level = self.groups.get(group as usize)?.level?;
        level.checked_add(height)
    }

    pub fn is_impossible(&mut self, node: u32) -> bool {
        let (group, _) = self.find(node);
        let group = self.groups.get(group as usize);
        group.is_none_or(|group| group.is_impossible)
    }

    /// Sorts edges that agree with many others first, since few calls never return. Edges after which another function
    /// may begin come last.
    fn likeliest_first(
        &mut self,
        graph: &Graph,
        edges: Vec<Edge>,
        growth: impl Fn(&Edge) -> Option<i32>,
    ) -> Vec<(Edge, i32)> {
        let mut keyed: Vec<_> = edges
            .into_iter()
            .map(|edge| {
                let growth = growth(&edge).unwrap_or(0);
                let (from, from_height) = self.find(edge.from);
                let (to, to_height) = self.find(edge.to);
                let distance = from_height.wrapping_add(growth).wrapping_sub(to_height);
                let key = if from <= to {
                    (from, to, distance)
                } else {
                    (to, from, distance.wrapping_neg())
                };
                (key, edge, growth)
            })
            .collect();
        let mut votes: HashMap<_, u32, RandomState> = HashMap::default();
        for (key, ..) in &keyed {
            *votes.entry(*key).or_default() += 1;
        }
        keyed.sort_by_cached_key(|(key, edge, _)| {
            let votes = Reverse(votes.get(key).copied());
            (leads_to_function(graph, edge), votes, edge.from)
        });
        keyed
            .into_iter()
            .map(|(_, edge, growth)| (edge, growth))
            .collect()
    }

    /// Accepts the edge unless it contradicts known levels.
    fn try_tie(&mut self, graph: &Graph, edge: Edge, growth: i32) {
        if self.is_impossible(edge.from) || self.is_impossible(edge.to) {
            return;
        }
        let levels = (self.at(edge.from), self.at(edge.to));
        if let (Some(from), Some(to)) = levels {
            let agrees = from.checked_add(growth) == Some(to);
            let evidence = if agrees {
                &mut self.agreed
            } else {
                &mut self.refuted
            };
            evidence.push(edge.from);
        } else if leads_to_function(graph, &edge) {
            return;
        }
        if self.tie(edge.from, edge.to, growth) {
            self.edges.push(edge);
        }
    }

    fn fix(&mut self, node: u32, level: i32) {
        let (group, height) = self.find(node);
        if let Some(group) = self.groups.get_mut(group as usize) {
            group.level = group.level.or(level.checked_sub(height));
        }
    }

    /// The root of this instruction, and the difference of its level to that of the root.
    fn find(&mut self, node: u32) -> (u32, i32) {
        let mut height = 0i32;
        let mut at = node;
        while let Some(&(to, step)) = self.tied.get(at as usize)
            && to != at
        {
            height = height.wrapping_add(step);
            at = to;
        }
        // Path compression.
        let (mut from, mut left) = (node, height);
        while let Some(tied) = self.tied.get_mut(from as usize)
            && tied.0 != from
        {
            let (to, step) = *tied;
            *tied = (at, left);
            left = left.wrapping_sub(step);
            from = to;
        }
        (at, height)
    }

    /// Relates two levels. False if that contradicts known relations.
    fn tie(&mut self, from: u32, to: u32, growth: i32) -> bool {
        let (a, a_height) = self.find(from);
        let (b, b_height) = self.find(to);
        // The level of `b` above that of `a`.
        let distance = a_height.wrapping_add(growth).wrapping_sub(b_height);
        if a == b {
            return distance == 0;
        }
        let group = |number: u32| {
            self.groups
                .get(number as usize)
                .copied()
                .unwrap_or_default()
        };
        let (of_a, of_b) = (group(a), group(b));
        let from_a = of_a.level.map(|level| level.wrapping_add(distance));
        if let (Some(from_a), Some(of_b)) = (from_a, of_b.level)
            && from_a != of_b
        {
            return false;
        }
        let joined = Group {
            size: of_a.size.saturating_add(of_b.size),
            is_impossible: of_a.is_impossible || of_b.is_impossible,
            level: None,
        };
        let level_of_b = of_b.level.or(from_a);
        let (small, large, height, level) = if of_a.size <= of_b.size {
            (a, b, distance.wrapping_neg(), level_of_b)
        } else {
            (
                b,
                a,
                distance,
                level_of_b.map(|level| level.wrapping_sub(distance)),
            )
        };
        if let Some(tied) = self.tied.get_mut(small as usize) {
            *tied = (large, height);
        }
        if let Some(group) = self.groups.get_mut(large as usize) {
            *group = Group { level, ..joined };
        }
        true
    }
}

/// Whether another function may begin there: at an aligned address, after padding, or with a prologue.
fn leads_to_function(graph: &Graph, edge: &Edge) -> bool {
    if edge.kind == Kind::Likely {
        return false;
    }
    let mut at = graph.nodes.get(edge.to as usize);
    let mut is_behind_padding = false;
    while let Some(node) = at
        && node.is_padding
    {
        is_behind_padding = true;
        let next = node.at.saturating_add(u64::from(node.length));
        at = graph
            .find(next)
            .and_then(|next| graph.nodes.get(next as usize));
    }
    at.is_none_or(|node| {
        let grows = node.effect.growth().is_some_and(|bytes| bytes > 0);
        grows || node.is_mark || is_behind_padding && node.at.is_multiple_of(ALIGNMENT)
    })
}
