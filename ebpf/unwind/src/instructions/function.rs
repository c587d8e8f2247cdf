//! Computes the state at each instruction of a function.

use std::collections::BTreeMap;
use std::ops::Range;

use profcol_ebpf_common::rule::Rule;

use super::code::Code;
use super::effect::{Flow, WORD};
use super::graph::{Graph, TooMany};
use super::levels::Levels;
use super::state::State;

/// Maximum number of separate parts of a function.
const MAX_PARTS: usize = 16;

/// The code at a program's entry is about forty bytes long.
const ENTRY: u64 = 64;

/// Functions by start, with their end if known.
pub type Functions = BTreeMap<u64, Option<u64>>;

/// The result of analyzing a function.
#[derive(Default)]
pub struct Function {
    /// The address, length and rule of each instruction.
    pub rows: Vec<(u64, usize, Rule)>,
    /// Functions that it calls or jumps to.
    pub calls: Vec<u64>,
    /// Addresses that it loads.
    pub points_to: Vec<u64>,
    /// Whether the start is confirmed: from there, the stack is balanced at its return.
    pub is_confirmed: bool,
    pub returns: bool,
    /// Callees that certainly return, and callees that cannot return.
    pub returning_calls: Vec<u64>,
    pub nonreturning_calls: Vec<u64>,
    /// Addresses after jumps with unknown targets.
    pub unresolved: Vec<u64>,
}

/// Analyzes a function from its start. None if that fails.
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
                // The walk processes all decoded instructions again.
                code.left = code.left.checked_sub(graph.nodes.len())?;
                from = part;
                parts.push(part..end_behind(code, functions, part));
            }
            _ => return Some(walked.function(functions)),
        }
        graph.reopen();
    }
}

/// The start of the next function, or the end of the code.
fn end_behind(code: &Code<'_>, functions: &Functions, start: u64) -> u64 {
    let next = functions.range(start.saturating_add(1)..).next();
    let end = code.gaps.end(start);
    next.map_or(end, |(&next, _)| next.min(end))
}

/// The cases of a switch follow its jump, and all start with the same state.
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

/// A function with its states.
struct Walked<'g> {
    graph: &'g Graph,
    /// By instruction, if reached.
    states: Vec<Option<State>>,
    /// Edges whose instructions are all executed disagree about the stack.
    is_contradictory: bool,
    /// Calls that return, and calls that do not.
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
        // The outgoing edges of each instruction, contiguous.
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

    /// Joins a state into an instruction's. Returns whether that lost information.
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

    /// The reached instructions and their states.
    fn reached(&self) -> impl Iterator<Item = (u32, &super::graph::Node, State)> {
        let states = self.states.iter().zip(&self.graph.nodes);
        (0..)
            .zip(states)
            .filter_map(|(number, (state, node))| Some((number, node, (*state)?)))
    }

    /// Edges out of the function and their states.
    fn exits(&self) -> impl Iterator<Item = (u64, State)> {
        self.graph.exits.iter().filter_map(|&(from, to)| {
            let node = self.graph.nodes.get(from as usize)?;
            let state = (*self.states.get(from as usize)?)?;
            Some((to, state.after(node.effect)))
        })
    }

    /// A part of the function that the compiler placed elsewhere, reached by a jump.
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
        function.returning_calls = self.called(&self.agreed);
        function.nonreturning_calls = self.called(&self.refuted);
        function
    }

    /// The functions that these instructions call.
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
