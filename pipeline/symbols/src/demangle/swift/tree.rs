//! What a name is made of.
//!
//! Parts refer to each other by number, so that one of any depth is let go without a call for each.

use super::STEPS;

/// A part of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Id(u32);

#[derive(Clone, Debug)]
pub enum Node {
    // What things are called.
    Identifier(String),
    Operator(String, &'static str),
    Private {
        file: String,
        name: Option<Id>,
    },
    Local {
        name: Id,
        number: u32,
    },
    Related {
        name: Id,
        kind: char,
    },

    // Where things are.
    Module(String),
    Extension {
        module: Id,
        of: Id,
        signature: Option<Id>,
    },
    Nominal {
        kind: Nominal,
        context: Id,
        name: Id,
    },
    Function {
        context: Id,
        name: Id,
        labels: Labels,
        kind: Id,
    },
    BoundFunction {
        function: Id,
        arguments: Vec<Id>,
    },
    Variable {
        context: Id,
        name: Id,
        labels: Labels,
        kind: Id,
    },
    Subscript {
        context: Id,
        labels: Labels,
        kind: Id,
    },
    Accessor {
        storage: Id,
        what: &'static str,
    },
    Initializer {
        context: Id,
        labels: Labels,
        kind: Id,
        private: Option<Id>,
        allocates: bool,
    },
    /// A function without parameters that each type has one of.
    Member {
        context: Id,
        what: &'static str,
    },
    /// What is told with its context behind it.
    Aside {
        context: Id,
        what: String,
        name: Option<Id>,
        kind: Option<Id>,
        joint: &'static str,
    },
    Static(Id),
    OpaqueResultOf(Id),

    // Types of which more is asked than their text.
    Bound {
        base: Id,
        arguments: Vec<Id>,
        is_retroactive: bool,
    },
    FunctionType(Box<FunctionType>),
    Tuple(Vec<Element>),
    Generic {
        signature: Id,
        of: Id,
    },
    Parameter {
        depth: u32,
        index: u32,
    },
    Protocols {
        protocols: Vec<Id>,
        also: Also,
    },
    ExistentialMetatype {
        representation: &'static str,
        of: Id,
    },
    Builtin(String),
    TheTuple,
    InOut(Id),

    Signature(Signature),
    Requirement(Vec<Piece>),
    PackMarker(Id),
    ValueMarker {
        parameter: Id,
        of: Id,
    },
    /// A member of a type that is a parameter, and the protocol that it is of.
    Associated {
        name: Id,
        protocol: Option<Id>,
    },

    /// Anything else: text with parts in it.
    Phrase {
        pieces: Vec<Piece>,
        /// Whether it needs no parentheses as part of a type.
        is_simple: bool,
    },
    /// In front of the name of a function.
    Attribute(Vec<Piece>),
    /// Of which a short name tells once.
    Specialization(Vec<Piece>),
    PartialApply(&'static str),
    Suffix(String),

    // Only of use to what comes behind them.
    Effect(Effect),
    ConformanceReference,
    Conformance,
    Retroactive,
    Empty,
    First,
    Variadic,
}

/// Of the parameters; `None` where there is no list of them, which is not the same as an empty one.
pub type Labels = Option<Vec<Option<String>>>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nominal {
    Class,
    Structure,
    Enumeration,
    Protocol,
    Alias,
    Other,
}

#[derive(Clone, Debug)]
pub struct Element {
    pub label: Option<String>,
    pub kind: Id,
    pub is_variadic: bool,
}

#[derive(Clone, Debug)]
pub struct FunctionType {
    pub convention: Convention,
    pub effects: Vec<Effect>,
    pub parameters: Id,
    pub result: Id,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Convention {
    Plain,
    NoEscape,
    Uncurried,
    /// Like one of the others, with this in front.
    Marked(&'static str),
    /// C's, or a block, by that type of C.
    Foreign(&'static str, Option<String>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    SendingResult,
    Actor(Id),
    IsolatedAny,
    NonIsolated,
    Differentiable(&'static str),
    Throws(Option<Id>),
    Sendable,
    Async,
}

#[derive(Clone, Copy, Debug)]
pub enum Also {
    Nothing,
    AnyObject,
    Class(Id),
}

#[derive(Clone, Debug, Default)]
pub struct Signature {
    /// How many parameters there are at each depth.
    pub counts: Vec<u32>,
    pub requirements: Vec<Id>,
}

#[derive(Clone, Debug)]
pub enum Piece {
    Text(&'static str),
    Owned(String),
    Part(Id),
    /// A symbol's name.
    Symbol(String),
    /// Only in full names.
    Full(&'static str),
    FullOwned(String),
    FullPart(Id),
    /// Only in short ones.
    Short(&'static str),
}

impl From<&'static str> for Piece {
    fn from(text: &'static str) -> Self {
        Self::Text(text)
    }
}

impl From<String> for Piece {
    fn from(text: String) -> Self {
        Self::Owned(text)
    }
}

impl From<Id> for Piece {
    fn from(part: Id) -> Self {
        Self::Part(part)
    }
}

#[derive(Default)]
pub struct Tree(Vec<Node>);

impl Tree {
    /// `None` where there are too many already.
    pub fn add(&mut self, node: Node) -> Option<Id> {
        if self.0.len() >= STEPS {
            return None;
        }
        self.0.push(node);
        u32::try_from(self.0.len() - 1).ok().map(Id)
    }

    pub fn get(&self, Id(number): Id) -> &Node {
        self.0.get(number as usize).unwrap_or(&Node::Empty)
    }

    /// Whether it needs no parentheses as part of another type.
    pub fn is_simple(&self, id: Id) -> bool {
        match self.get(id) {
            Node::Phrase { is_simple, .. } => *is_simple,
            Node::Protocols {
                protocols,
                also: Also::Nothing,
            } => protocols.len() <= 1,
            Node::Protocols {
                protocols,
                also: Also::AnyObject,
            } => protocols.is_empty(),
            Node::Protocols { .. } | Node::FunctionType(_) | Node::InOut(_) => false,
            _ => true,
        }
    }
}

impl Node {
    /// Whether other things can be in it.
    pub fn is_context(&self) -> bool {
        matches!(
            self,
            Node::Module(_)
                | Node::Extension { .. }
                | Node::Nominal { .. }
                | Node::Function { .. }
                | Node::Variable { .. }
                | Node::Subscript { .. }
                | Node::Accessor { .. }
                | Node::Initializer { .. }
                | Node::Member { .. }
                | Node::Aside { .. }
                | Node::Static(_)
                | Node::OpaqueResultOf(_)
                | Node::TheTuple
        )
    }

    pub fn is_name(&self) -> bool {
        matches!(
            self,
            Node::Identifier(_)
                | Node::Operator(..)
                | Node::Private { .. }
                | Node::Local { .. }
                | Node::Related { .. }
        )
    }

    pub fn is_requirement(&self) -> bool {
        matches!(
            self,
            Node::Requirement(_) | Node::PackMarker(_) | Node::ValueMarker { .. }
        )
    }

    pub fn is_attribute(&self) -> bool {
        matches!(
            self,
            Node::Attribute(_) | Node::Specialization(_) | Node::PartialApply(_)
        )
    }

    pub fn is_protocol(&self) -> bool {
        matches!(
            self,
            Node::Nominal {
                kind: Nominal::Protocol,
                ..
            }
        )
    }

    /// Where it is; of an accessor, what it is of.
    pub fn context_mut(&mut self) -> Option<&mut Id> {
        match self {
            Node::Extension { of: context, .. }
            | Node::Nominal { context, .. }
            | Node::Function { context, .. }
            | Node::Variable { context, .. }
            | Node::Subscript { context, .. }
            | Node::Accessor {
                storage: context, ..
            }
            | Node::Initializer { context, .. }
            | Node::Member { context, .. }
            | Node::Aside { context, .. }
            | Node::Static(context)
            | Node::OpaqueResultOf(context) => Some(context),
            _ => None,
        }
    }
}
