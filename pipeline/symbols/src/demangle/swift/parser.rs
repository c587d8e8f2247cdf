//! The operators of a name, from left to right: each takes what it is made of from a stack.

use std::ops::Range;

use super::tree::{Id, Node, Nominal, Piece, Tree};
use super::{MAX_REPEATED, STEPS};

/// What is on the stack. Types are told from what they are the types of.
#[derive(Clone, Copy, Debug)]
pub enum Item {
    Type(Id),
    Node(Id),
}

pub struct Parser<'n> {
    pub name: &'n str,
    pub at: usize,
    pub tree: Tree,
    pub stack: Vec<Item>,
    pub words: Vec<Range<usize>>,
    /// Labels are parts of the types of parameters, as in Swift 4.0.
    pub is_old: bool,
    substitutions: Vec<Item>,
}

impl<'n> Parser<'n> {
    pub fn new(name: &'n str, is_old: bool) -> Self {
        Self {
            name,
            at: 0,
            tree: Tree::default(),
            stack: Vec::new(),
            words: Vec::new(),
            is_old,
            substitutions: Vec::new(),
        }
    }

    /// Reads all of it.
    pub fn read(&mut self) -> Option<()> {
        while self.at < self.name.len() {
            let item = self.operator()?;
            self.push(item)?;
        }
        Some(())
    }

    fn push(&mut self, item: Item) -> Option<()> {
        if self.stack.len() >= STEPS {
            return None;
        }
        self.stack.push(item);
        Some(())
    }

    // What is next in the name.

    pub fn peek(&self) -> Option<u8> {
        self.name.as_bytes().get(self.at).copied()
    }

    pub fn next(&mut self) -> Option<u8> {
        let byte = self.peek()?;
        self.at += 1;
        Some(byte)
    }

    pub fn take(&mut self, byte: u8) -> bool {
        self.take_if(|it| it == byte).is_some()
    }

    pub fn take_if(&mut self, wanted: impl FnOnce(u8) -> bool) -> Option<u8> {
        let byte = self.peek().filter(|&it| wanted(it))?;
        self.at += 1;
        Some(byte)
    }

    pub fn take_text(&mut self, text: &str) -> bool {
        let rest = self.name.get(self.at..).unwrap_or_default();
        let is_there = rest.starts_with(text);
        self.at += if is_there { text.len() } else { 0 };
        is_there
    }

    pub fn natural(&mut self) -> Option<u32> {
        let start = self.at;
        while self.take_if(|it| it.is_ascii_digit()).is_some() {}
        self.name.get(start..self.at)?.parse().ok()
    }

    /// `_` is zero, `0_` is one.
    pub fn index(&mut self) -> Option<u32> {
        if self.take(b'_') {
            return Some(0);
        }
        let number = self.natural()?.checked_add(1)?;
        self.take(b'_').then_some(number)
    }

    // What is on top of the stack.

    pub fn pop_type(&mut self) -> Option<Id> {
        match *self.stack.last()? {
            Item::Type(id) => {
                self.stack.pop();
                Some(id)
            }
            Item::Node(_) => None,
        }
    }

    pub fn pop_if(&mut self, wanted: impl FnOnce(&Node) -> bool) -> Option<Id> {
        match *self.stack.last()? {
            Item::Node(id) if wanted(self.tree.get(id)) => {
                self.stack.pop();
                Some(id)
            }
            _ => None,
        }
    }

    pub fn pop_empty(&mut self) -> bool {
        self.pop_if(|it| matches!(it, Node::Empty)).is_some()
    }

    pub fn pop_first(&mut self) -> bool {
        self.pop_if(|it| matches!(it, Node::First)).is_some()
    }

    pub fn pop_identifier(&mut self) -> Option<String> {
        let id = self.pop_if(|it| matches!(it, Node::Identifier(_)))?;
        match self.tree.get(id) {
            Node::Identifier(text) => Some(text.clone()),
            _ => None,
        }
    }

    pub fn pop_name(&mut self) -> Option<Id> {
        self.pop_if(Node::is_name)
    }

    pub fn pop_signature(&mut self) -> Option<Id> {
        self.pop_if(|it| matches!(it, Node::Signature(_)))
    }

    pub fn pop_module(&mut self) -> Option<Id> {
        if let Some(name) = self.pop_identifier() {
            return self.tree.add(Node::Module(name));
        }
        self.pop_if(|it| matches!(it, Node::Module(_)))
    }

    pub fn pop_context(&mut self) -> Option<Id> {
        if let Some(module) = self.pop_module() {
            return Some(module);
        }
        match self.pop_type() {
            Some(kind) => self.tree.get(kind).is_context().then_some(kind),
            None => self.pop_if(Node::is_context),
        }
    }

    /// What can have thunks: something that is in a context, or a type.
    pub fn pop_entity(&mut self) -> Option<Id> {
        self.pop_type().or_else(|| self.pop_if(Node::is_context))
    }

    pub fn pop_any(&mut self) -> Option<Id> {
        match self.stack.pop()? {
            Item::Type(id) | Item::Node(id) => Some(id),
        }
    }

    pub fn pop_protocol(&mut self) -> Option<Id> {
        if let Some(kind) = self.pop_type() {
            return self.tree.get(kind).is_protocol().then_some(kind);
        }
        let name = self.pop_name()?;
        let context = self.pop_context()?;
        self.tree.add(Node::Nominal {
            kind: Nominal::Protocol,
            context,
            name,
        })
    }

    /// A list, whose first element is marked.
    pub fn pop_list<T>(&mut self, mut one: impl FnMut(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        let mut list = Vec::new();
        if self.pop_empty() {
            return Some(list);
        }
        loop {
            let is_first = self.pop_first();
            list.push(one(self)?);
            if is_first {
                list.reverse();
                return Some(list);
            }
        }
    }

    pub fn pop_types(&mut self) -> Option<Vec<Id>> {
        self.pop_list(Self::pop_type)
    }

    // What is made.

    pub fn node(&mut self, node: Node) -> Option<Item> {
        self.tree.add(node).map(Item::Node)
    }

    pub fn kind(&mut self, node: Node) -> Option<Item> {
        self.tree.add(node).map(Item::Type)
    }

    pub fn phrase<const N: usize>(&mut self, pieces: [Piece; N]) -> Option<Item> {
        self.node(Node::Phrase {
            pieces: pieces.into(),
            is_simple: false,
        })
    }

    pub fn attribute<const N: usize>(&mut self, pieces: [Piece; N]) -> Option<Item> {
        self.node(Node::Attribute(pieces.into()))
    }

    /// What can be referred to later.
    pub fn substitute(&mut self, item: Item) -> Item {
        self.substitutions.push(item);
        item
    }

    pub fn substitute_node(&mut self, id: Id) {
        self.substitutions.push(Item::Node(id));
    }

    fn operator(&mut self) -> Option<Item> {
        match self.next()? {
            b'A' => self.substitution(),
            b'B' => self.builtin(),
            b'C' => self.nominal(Nominal::Class),
            b'D' => self.debug_type(),
            b'E' => self.extension(),
            b'F' => self.plain_function(),
            b'G' => self.bound_generic(),
            b'H' => self.conformance_operator(),
            b'I' => self.implementation_function(),
            b'K' => self.effect(super::tree::Effect::Throws(None)),
            b'L' => self.local_name(),
            b'M' => self.metadata(),
            b'N' => {
                let of = self.pop_type()?;
                self.phrase(["type metadata for ".into(), of.into()])
            }
            b'O' => self.nominal(Nominal::Enumeration),
            b'P' => self.nominal(Nominal::Protocol),
            b'Q' => self.archetype(),
            b'R' => self.requirement(),
            b'S' => self.standard(),
            b'T' => self.thunk(),
            b'V' => self.nominal(Nominal::Structure),
            b'W' => self.witness(),
            b'X' => self.special_type(),
            b'Y' => self.annotation(),
            b'Z' => {
                let of = self.pop_entity()?;
                self.node(Node::Static(of))
            }
            b'a' => self.nominal(Nominal::Alias),
            b'c' => self.plain_function_type(),
            b'd' => self.node(Node::Variadic),
            b'f' => self.function_entity(),
            b'g' => {
                self.index()?;
                self.pop_if(|it| matches!(it, Node::Conformance))?;
                self.node(Node::Retroactive)
            }
            b'h' => self.prefixed("__shared "),
            b'i' => self.subscript(),
            b'l' => self.signature(false),
            b'm' => self.metatype(""),
            b'n' => self.prefixed("__owned "),
            b'o' => self.operator_name().map(Item::Node),
            b'p' => self.protocols(super::tree::Also::Nothing),
            b'q' => self.parameter().map(Item::Type),
            b'r' => self.signature(true),
            b's' => self.node(Node::Module("Swift".to_owned())),
            b't' => self.tuple(),
            b'u' => self.generic_type(),
            b'v' => self.variable(),
            b'w' => self.value_witness(),
            b'x' => self.kind(Node::Parameter { depth: 0, index: 0 }),
            b'y' => self.node(Node::Empty),
            b'z' => {
                let of = self.pop_type()?;
                self.kind(Node::InOut(of))
            }
            b'_' => self.node(Node::First),
            b'.' => {
                let suffix = self.name.get(self.at - 1..)?.to_owned();
                self.at = self.name.len();
                self.node(Node::Suffix(suffix))
            }
            b'$' => self.integer(),
            b'0'..=b'9' => {
                self.at -= 1;
                self.identifier().map(Item::Node)
            }
            _ => None,
        }
    }

    /// What came before, by small letters, and one capital or number at the end.
    fn substitution(&mut self) -> Option<Item> {
        loop {
            let times = self.natural();
            let byte = self.next()?;
            match byte {
                b'_' => {
                    let number = times.map_or(26, |it| it.saturating_add(27));
                    return self.substitutions.get(number as usize).copied();
                }
                b'a'..=b'z' | b'A'..=b'Z' => {
                    let number = byte.to_ascii_lowercase() - b'a';
                    let item = *self.substitutions.get(usize::from(number))?;
                    self.repeat(item, times)?;
                    if byte.is_ascii_uppercase() {
                        return Some(item);
                    }
                    self.push(item)?;
                }
                _ => return None,
            }
        }
    }

    /// But for the last.
    fn repeat(&mut self, item: Item, times: Option<u32>) -> Option<()> {
        let times = times.unwrap_or(1);
        if times > MAX_REPEATED {
            return None;
        }
        (1..times).try_for_each(|_| self.push(item))
    }

    fn standard(&mut self) -> Option<Item> {
        if self.take(b'o') {
            return self.node(Node::Module("__C".to_owned()));
        }
        if self.take(b'C') {
            return self.node(Node::Module("__C_Synthesized".to_owned()));
        }
        if self.take(b'g') {
            let base = self.standard_type(Nominal::Enumeration, "Optional")?;
            let arguments = vec![self.pop_type()?];
            let item = self.kind(Node::Bound {
                base,
                arguments,
                is_retroactive: false,
            })?;
            return Some(self.substitute(item));
        }
        let times = self.natural();
        let is_concurrent = self.take(b'c');
        let byte = self.next()?;
        let (kind, name) = match is_concurrent {
            true => concurrent(byte)?,
            false => known(byte)?,
        };
        let item = Item::Type(self.standard_type(kind, name)?);
        self.repeat(item, times)?;
        Some(item)
    }

    fn standard_type(&mut self, kind: Nominal, name: &str) -> Option<Id> {
        let context = self.tree.add(Node::Module("Swift".to_owned()))?;
        let name = self.tree.add(Node::Identifier(name.to_owned()))?;
        self.tree.add(Node::Nominal {
            kind,
            context,
            name,
        })
    }

    fn nominal(&mut self, kind: Nominal) -> Option<Item> {
        let name = self.pop_name()?;
        let context = self.pop_context()?;
        let item = self.kind(Node::Nominal {
            kind,
            context,
            name,
        })?;
        Some(self.substitute(item))
    }

    pub fn other_nominal(&mut self) -> Option<Item> {
        self.nominal(Nominal::Other)
    }

    fn extension(&mut self) -> Option<Item> {
        let signature = self.pop_signature();
        let module = self.pop_module()?;
        let of = self.pop_type()?;
        if !matches!(self.tree.get(of), Node::Nominal { .. } | Node::TheTuple) {
            return None;
        }
        self.node(Node::Extension {
            module,
            of,
            signature,
        })
    }

    fn local_name(&mut self) -> Option<Item> {
        if self.take(b'L') {
            let file = self.pop_identifier()?;
            let name = Some(self.pop_name()?);
            return self.node(Node::Private { file, name });
        }
        if self.take(b'l') {
            let file = self.pop_identifier()?;
            return self.node(Node::Private { file, name: None });
        }
        if let Some(kind) = self.take_if(|it| matches!(it, b'a'..=b'j' | b'A'..=b'J')) {
            let name = self.pop_any()?;
            let kind = char::from(kind);
            return self.node(Node::Related { name, kind });
        }
        let number = self.index()?.checked_add(1)?;
        let name = self.pop_name()?;
        self.node(Node::Local { name, number })
    }

    /// Conformances are read, since others refer to what is in them, but not told.
    fn conformance_operator(&mut self) -> Option<Item> {
        match self.next()? {
            b'A' => {
                self.index()?;
                self.pop_protocol()?;
                self.pop_type()?;
                self.pop_conformance()?;
            }
            b'C' => {
                self.pop_list(Self::pop_conformance)?;
                if self
                    .pop_if(|it| matches!(it, Node::ConformanceReference))
                    .is_none()
                {
                    self.pop_module()?;
                    self.pop_protocol()?;
                }
                self.pop_type()?;
            }
            b'D' => {
                self.index()?;
                self.pop_protocol()?;
                self.pop_type()?;
            }
            b'I' => {
                self.index()?;
                self.pop_protocol()?;
                self.pop_conformance()?;
            }
            b'O' => {
                self.pop_type()?;
                self.pop_conformance()?;
            }
            b'X' => {
                self.pop_list(Self::pop_conformance)?;
            }
            b'P' | b'p' => {
                self.pop_protocol()?;
                return self.node(Node::ConformanceReference);
            }
            b'c' => {
                let of = self.pop_protocol_conformance()?;
                return self.about("protocol conformance descriptor runtime record for ", of);
            }
            b'n' => {
                let of = self.pop_type()?;
                return self.about("nominal type descriptor runtime record for ", of);
            }
            b'o' => {
                let of = self.pop_any()?;
                return self.about("opaque type descriptor runtime record for ", of);
            }
            b'r' => {
                let of = self.pop_protocol()?;
                return self.about("protocol descriptor runtime record for ", of);
            }
            b'F' => {
                let text = "accessible function runtime record for ";
                return self.attribute([Piece::Full(text)]);
            }
            _ => return None,
        }
        self.node(Node::Conformance)
    }

    fn pop_conformance(&mut self) -> Option<Id> {
        self.pop_if(|it| matches!(it, Node::Conformance))
    }

    pub fn about(&mut self, text: &'static str, of: Id) -> Option<Item> {
        self.phrase([text.into(), of.into()])
    }
}

fn known(byte: u8) -> Option<(Nominal, &'static str)> {
    let structure = match byte {
        b'A' => "AutoreleasingUnsafeMutablePointer",
        b'a' => "Array",
        b'b' => "Bool",
        b'D' => "Dictionary",
        b'd' => "Double",
        b'f' => "Float",
        b'h' => "Set",
        b'I' => "DefaultIndices",
        b'i' => "Int",
        b'J' => "Character",
        b'N' => "ClosedRange",
        b'n' => "Range",
        b'O' => "ObjectIdentifier",
        b'P' => "UnsafePointer",
        b'p' => "UnsafeMutablePointer",
        b'R' => "UnsafeBufferPointer",
        b'r' => "UnsafeMutableBufferPointer",
        b'S' => "String",
        b's' => "Substring",
        b'u' => "UInt",
        b'V' => "UnsafeRawPointer",
        b'v' => "UnsafeMutableRawPointer",
        b'W' => "UnsafeRawBufferPointer",
        b'w' => "UnsafeMutableRawBufferPointer",
        b'q' => return Some((Nominal::Enumeration, "Optional")),
        _ => return known_protocol(byte).map(|name| (Nominal::Protocol, name)),
    };
    Some((Nominal::Structure, structure))
}

fn known_protocol(byte: u8) -> Option<&'static str> {
    Some(match byte {
        b'B' => "BinaryFloatingPoint",
        b'E' => "Encodable",
        b'e' => "Decodable",
        b'F' => "FloatingPoint",
        b'G' => "RandomNumberGenerator",
        b'H' => "Hashable",
        b'j' => "Numeric",
        b'K' => "BidirectionalCollection",
        b'k' => "RandomAccessCollection",
        b'L' => "Comparable",
        b'l' => "Collection",
        b'M' => "MutableCollection",
        b'm' => "RangeReplaceableCollection",
        b'Q' => "Equatable",
        b'T' => "Sequence",
        b't' => "IteratorProtocol",
        b'U' => "UnsignedInteger",
        b'X' => "RangeExpression",
        b'x' => "Strideable",
        b'Y' => "RawRepresentable",
        b'y' => "StringProtocol",
        b'Z' => "SignedInteger",
        b'z' => "BinaryInteger",
        _ => return None,
    })
}

fn concurrent(byte: u8) -> Option<(Nominal, &'static str)> {
    let structure = match byte {
        b'C' => "CheckedContinuation",
        b'c' => "UnsafeContinuation",
        b'E' => "CancellationError",
        b'e' => "UnownedSerialExecutor",
        b'G' => "TaskGroup",
        b'g' => "ThrowingTaskGroup",
        b'J' => "UnownedJob",
        b'P' => "TaskPriority",
        b'S' => "AsyncStream",
        b's' => "AsyncThrowingStream",
        b'T' => "Task",
        b't' => "UnsafeCurrentTask",
        b'M' => return Some((Nominal::Class, "MainActor")),
        _ => {
            let protocol = match byte {
                b'A' => "Actor",
                b'F' => "Executor",
                b'f' => "SerialExecutor",
                b'h' => "TaskExecutor",
                b'I' => "AsyncIteratorProtocol",
                b'i' => "AsyncSequence",
                _ => return None,
            };
            return Some((Nominal::Protocol, protocol));
        }
    };
    Some((Nominal::Structure, structure))
}
