//! The possible instructions of a function, and the edges between them.

use std::ops::Range;

use foldhash::fast::RandomState;
use hashbrown::HashMap;
use iced_x86::{Decoder, DecoderOptions, Instruction, Mnemonic};

use super::code::Code;
use super::effect::{Effect, Flow};
use super::jump_table;

/// Maximum number of instructions of a function. The longest ones, of interpreters and parsers, have half as many.
const MAX_NODES: usize = 1 << 16;

/// Maximum number of edges. Jump tables can lead to several per instruction.
const MAX_EDGES: usize = 4 * MAX_NODES;

/// Instructions to search before a jump for its table.
const RECENT: usize = 16;

/// Some compilers pad functions with zeros, which decode as `add %al,(%rax)`.
const ZEROS: [u8; 2] = [0, 0];

pub struct Node {
    pub at: u64,
    pub length: u8,
    pub effect: Effect,
    pub flow: Flow,
    /// An address that it loads.
    pub points_to: Option<u64>,
    /// Padding before a function, or a marker that one may begin here.
    pub is_padding: bool,
    pub is_mark: bool,
    /// The instruction can never be executed.
    pub is_impossible: bool,
}

/// From an instruction to a possible successor.
#[derive(Clone, Copy, Debug)]
pub struct Edge {
    pub from: u32,
    pub to: u32,
    pub kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Certain,
    /// After a call of a function that is known to return.
    Likely,
    /// After any other call, which may never return.
    Doubtful,
}

#[derive(Default)]
pub struct Graph {
    pub nodes: Vec<Node>,
    pub edges: Vec<Edge>,
    /// Edges out of the function.
    pub exits: Vec<(u32, u64)>,
    /// Jumps with unknown targets.
    pub unresolved: Vec<u32>,
    index: HashMap<u64, u32, RandomState>,
    /// Edges to addresses that may not be decoded yet.
    open: Vec<(u32, u64, Kind)>,
}

/// The function has too many instructions.
pub struct TooMany;

impl Graph {
    pub fn find(&self, at: u64) -> Option<u32> {
        self.index.get(&at).copied()
    }

    /// Decodes all instructions reachable from the address inside the parts of the function.
    pub fn explore(
        &mut self,
        code: &mut Code<'_>,
        parts: &[Range<u64>],
        from: u64,
    ) -> Result<(), TooMany> {
        let is_inside = |at: u64| parts.iter().any(|part| part.contains(&at));
        let mut pending = vec![from];
        let mut recent: Vec<Instruction> = Vec::with_capacity(RECENT);
        while let Some(mut at) = pending.pop() {
            recent.clear();
            while is_inside(at) && !self.index.contains_key(&at) {
                code.left = code.left.checked_sub(1).ok_or(TooMany)?;
                if self.nodes.len() >= MAX_NODES {
                    return Err(TooMany);
                }
                let number = self.nodes.len() as u32;
                let (instruction, flow) = self.read(code, at);
                let next = instruction.next_ip();
                match flow {
                    Flow::Next => self.open.push((number, next, Kind::Certain)),
                    Flow::Branch(target) => {
                        self.open.push((number, next, Kind::Certain));
                        self.open.push((number, target, Kind::Certain));
                        pending.push(target);
                    }
                    Flow::Call(Some(target)) if code.never_returns(target) => break,
                    Flow::Call(target) => {
                        let is_likely = target.is_some_and(|target| code.returns(target));
                        let kind = match is_likely {
                            true => Kind::Likely,
                            false => Kind::Doubtful,
                        };
                        self.open.push((number, next, kind));
                    }
                    Flow::Jump(target) => {
                        self.open.push((number, target, Kind::Certain));
                        pending.push(target);
                        break;
                    }
                    Flow::IndirectJump => {
                        let targets = jump_table::targets(code, &recent, &instruction)
                            .filter(|targets| targets.iter().all(|&target| is_inside(target)));
                        match targets {
                            Some(targets) => {
                                let known = self.edges.len() + self.open.len();
                                if known + targets.len() > MAX_EDGES {
                                    return Err(TooMany);
                                }
                                let edges = targets
                                    .iter()
                                    .map(|&target| (number, target, Kind::Certain));
                                self.open.extend(edges);
                                pending.extend(targets);
                            }
                            None => self.unresolved.push(number),
                        }
                        break;
                    }
                    Flow::Return | Flow::Stop => break,
                }
                if recent.len() == RECENT {
                    recent.remove(0);
                }
                recent.push(instruction);
                at = next;
            }
        }
        self.close();
        Ok(())
    }

    /// Before decoding more: exits may now lead into the function, and dropped edges may be valid.
    pub fn reopen(&mut self) {
        let exits = std::mem::take(&mut self.exits);
        let exits = exits
            .into_iter()
            .map(|(from, to)| (from, to, Kind::Certain));
        self.open.extend(exits);
    }

    /// Adds a case of a switch with unknown targets; cases follow the jump.
    pub fn add_cases(&mut self, jump: u32, case: u64) {
        self.open.push((jump, case, Kind::Doubtful));
    }

    fn read(&mut self, code: &mut Code<'_>, at: u64) -> (Instruction, Flow) {
        let bytes = code.gaps.bytes(at);
        let instruction = Decoder::with_ip(64, bytes, at, DecoderOptions::NONE).decode();
        let takes_address =
            instruction.mnemonic() == Mnemonic::Lea && instruction.is_ip_rel_memory_operand();
        let is_impossible = instruction.is_invalid() || bytes.starts_with(&ZEROS);
        let flow = match is_impossible {
            true => Flow::Stop,
            false => Flow::of(&instruction),
        };
        let node = Node {
            at,
            length: instruction.len() as u8,
            effect: Effect::of(&instruction, &mut code.info),
            flow,
            is_padding: instruction.mnemonic() == Mnemonic::Nop,
            is_mark: instruction.mnemonic() == Mnemonic::Endbr64,
            points_to: takes_address.then(|| instruction.ip_rel_memory_address()),
            is_impossible,
        };
        self.index.insert(at, self.nodes.len() as u32);
        self.nodes.push(node);
        (instruction, flow)
    }

    /// After decoding, separates edges inside the function from exits.
    fn close(&mut self) {
        for (from, to, kind) in std::mem::take(&mut self.open) {
            match self.find(to) {
                Some(to) => self.edges.push(Edge { from, to, kind }),
                None if kind == Kind::Certain => self.exits.push((from, to)),
                // The code after the call belongs to another function.
                None => {}
            }
        }
    }
}
