//! What holds at each instruction of a function.

use std::collections::BTreeMap;
use std::ops::Range;

use profcol_ebpf_common::rule::Rule;

use super::code::Code;
use super::effect::{Flow, WORD};
use super::graph::{Graph, TooMany};
use super::levels::Levels;
use super::state::State;

/// Parts of a function that were moved away from it.
const MAX_PARTS: usize = 16;

/// The code at a program's entry is some forty bytes long.
const ENTRY: u64 = 64;

/// Functions by their starts, with their ends where those are known.
pub type Functions = BTreeMap<u64, Option<u64>>;

/// A function as far as it was understood.
#[derive(Default)]
pub struct Function {
    /// Address, length and rule of each instruction.
    pub rows: Vec<(u64, usize, Rule)>,
    /// Functions that it calls or goes over to.
    pub calls: Vec<u64>,
    /// Addresses that it takes.
    pub points_to: Vec<u64>,
    /// It begins where it was said to begin: from there the stack is at its return as it has to be.
    pub is_confirmed: bool,
    pub returns: bool,
    /// What it calls and is sure to go on behind, and what it calls and cannot go on behind.
    pub return_to_it: Vec<u64>,
    pub never_return_to_it: Vec<u64>,
    /// Behind jumps to targets that are not known.
    pub unresolved: Vec<u64>,
}

/// Follows a function from its start. None where it cannot be understood.
pub fn follow(
    code: &mut Code<'_>,
    functions: &Functions,
    start: u64,
    state: State,
) -> Option<Function> {
    let known = functions.get(&start).copied().flatten();
    let end = match known {
        Some(end) => end.min(code.gaps.end(start)),
        None => end_behind(code, functions, start),
    };
    let end = match state.outermost {
        true => end.min(start.saturating_add(ENTRY)),
        false => end,
    };
    let mut parts = Vec::with_capacity(1);
    parts.push(start..end);
    let mut graph = Graph::default();
    let mut from = start;
    loop {
        if let Err(TooMany) = graph.explore(code, &parts, from) {
            return None;
        }
        if known.is_some() {
            explore_cases(code, &mut graph, &parts, end)?;
        }
        let is_elsewhere = |at: u64| functions.contains_key(&at) || !code.gaps.holds(at);
        let walked = Walked::through(&graph, start, state, is_elsewhere)?;
        match walked.moved_part(code, functions, &parts) {
            Some(part) if parts.len() < MAX_PARTS => {
                // All that was read is walked through again.
                code.left = code.left.checked_sub(graph.nodes.len())?;
                from = part;
                parts.push(part..end_behind(code, functions, part));
            }
            _ => return Some(walked.function(functions)),
        }
        graph.reopen();
    }
}

/// Where the next function begins, or the code ends.
fn end_behind(code: &Code<'_>, functions: &Functions, start: u64) -> u64 {
    let next = functions.range(start.saturating_add(1)..).next();
    let end = code.gaps.end(start);
    next.map_or(end, |(&next, _)| next.min(end))
}

/// The cases of a choice stand behind it, and all begin as it ends.
fn explore_cases(
    code: &mut Code<'_>,
    graph: &mut Graph,
    parts: &[Range<u64>],
    end: u64,
) -> Option<()> {
    let mut unresolved = graph.unresolved.iter().filter_map(|&jump| {
        let at = graph.nodes.get(jump as usize)?.at;
        parts.first()?.contains(&at).then_some((jump, at))
    });
    let Some((jump, mut at)) = unresolved.next() else {
        return Some(());
    };
    loop {
        while let Some(node) = graph.find(at) {
            let node = graph.nodes.get(node as usize)?;
            at = at.checked_add(u64::from(node.length.max(1)))?;
        }
        if at >= end {
            return Some(());
        }
        graph.add_cases(jump, at);
        graph.explore(code, parts, at).ok()?;
    }
}

/// A function with what holds where.
struct Walked<'g> {
    graph: &'g Graph,
    /// By instruction, where it is reached.
    states: Vec<Option<State>>,
    /// Edges that all instructions of are executed do not agree about the stack.
    is_contradictory: bool,
    /// Calls that return, and such that do not.
    agreed: Vec<u32>,
    refuted: Vec<u32>,
}

impl<'g> Walked<'g> {
    fn through(
        graph: &'g Graph,
        start: u64,
        state: State,
        is_elsewhere: impl Fn(u64) -> bool,
    ) -> Option<Self> {
        let first = graph.find(start)?;
        let mut levels = Levels::of(graph, first, is_elsewhere);
        if levels.is_impossible(first) {
            return None;
        }
        // The edges on from each instruction, side by side.
        let edges = levels.edges.iter().map(|edge| (edge.from, edge.to));
        let mut edges: Vec<(u32, u32)> = edges.collect();
        edges.sort_unstable();
        let mut walked = Self {
            graph,
            states: vec![None; graph.nodes.len()],
            is_contradictory: false,
            agreed: Vec::new(),
            refuted: Vec::new(),
        };
        walked.states[first as usize] = Some(state);
        let mut changed = vec![first];
        while let Some(at) = changed.pop() {
            let (Some(node), Some(&Some(state))) =
                (graph.nodes.get(at as usize), walked.states.get(at as usize))
            else {
                continue;
            };
            let after = state.after(node.effect);
            let begin = edges.partition_point(|&(from, _)| from < at);
            for &(_, to) in edges[begin..].iter().take_while(|&&(from, _)| from == at) {
                if walked.arrive(to, after, &mut levels) {
                    changed.push(to);
                }
            }
        }
        walked.agreed = levels.agreed;
        walked.refuted = levels.refuted;
        Some(walked)
    }

    /// Whether less is known of the instruction than before.
    fn arrive(&mut self, at: u32, mut state: State, levels: &mut Levels) -> bool {
        if let (Some(sp), Some(level)) = (state.sp, levels.at(at))
            && sp != level
            && !state.outermost
        {
            self.is_contradictory = true;
            state.sp = None;
        }
        let Some(known) = self.states.get_mut(at as usize) else {
            return false;
        };
        let joined = known.map_or(state, |known| known.join(state));
        if joined.sp.is_none() && known.is_some_and(|known| known.sp.is_some()) {
            self.is_contradictory = true;
        }
        let is_new = *known != Some(joined);
        *known = Some(joined);
        is_new
    }

    /// Instructions that are reached, and what holds there.
    fn reached(&self) -> impl Iterator<Item = (u32, &super::graph::Node, State)> {
        let states = self.states.iter().zip(&self.graph.nodes);
        (0..)
            .zip(states)
            .filter_map(|(number, (state, node))| Some((number, node, (*state)?)))
    }

    /// Edges out of the function, and what holds there.
    fn exits(&self) -> impl Iterator<Item = (u64, State)> {
        self.graph.exits.iter().filter_map(|&(from, to)| {
            let node = self.graph.nodes.get(from as usize)?;
            let state = (*self.states.get(from as usize)?)?;
            Some((to, state.after(node.effect)))
        })
    }

    /// Where the function goes on that is none of its own: a part that was moved away.
    fn moved_part(
        &self,
        code: &Code<'_>,
        functions: &Functions,
        parts: &[Range<u64>],
    ) -> Option<u64> {
        let mut exits = self.exits().filter(|&(to, state)| {
            !state.is_callers()
                && code.gaps.holds(to)
                && !functions.contains_key(&to)
                && !parts.iter().any(|part| part.contains(&to))
        });
        exits.next().map(|(to, _)| to)
    }

    fn function(&self, functions: &Functions) -> Function {
        let mut function = Function::default();
        for (number, node, mut state) in self.reached() {
            match node.flow {
                Flow::Return => {
                    function.returns = true;
                    function.is_confirmed |= state.sp == Some(WORD) && !state.outermost;
                }
                Flow::Call(Some(target)) => function.calls.push(target),
                _ => {}
            }
            function.points_to.extend(node.points_to);
            if self.graph.unresolved.contains(&number) {
                function.returns = true;
                if !state.is_callers() {
                    let behind = node.at.saturating_add(u64::from(node.length));
                    function.unresolved.push(behind);
                }
            }
            if self.is_contradictory {
                state.sp = None;
            }
            let length = usize::from(node.length);
            function.rows.push((node.at, length, state.rule()));
        }
        for (to, state) in self.exits() {
            function.returns = true;
            if state.is_callers() {
                function.is_confirmed |= functions.contains_key(&to);
                function.calls.push(to);
            }
        }
        function.is_confirmed &= !self.is_contradictory;
        function.return_to_it = self.called(&self.agreed);
        function.never_return_to_it = self.called(&self.refuted);
        function
    }

    /// What these instructions call.
    fn called(&self, calls: &[u32]) -> Vec<u64> {
        let nodes = calls
            .iter()
            .filter_map(|&call| self.graph.nodes.get(call as usize));
        nodes
            .filter_map(|node| match node.flow {
                Flow::Call(target) => target,
                _ => None,
            })
            .collect()
    }
}
