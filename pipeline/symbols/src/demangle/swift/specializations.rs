//! How a function was specialised: for which types, and for which arguments. Short names only tell that it was.

use super::parser::{Item, Parser};
use super::tree::{Id, Node, Piece};

/// What became of one parameter.
enum Change {
    Options(String),
    Function(&'static str),
    Number(&'static str, String),
    Text(&'static str),
    KeyPath,
    Structure,
    Closure,
    AsArgument(u32),
}

impl Parser<'_> {
    /// What is common to all: whether others may inline it, and which pass made it.
    fn specialization(&mut self) -> Option<(bool, bool, bool)> {
        self.take(b'm');
        let is_serialized = self.take(b'q');
        let is_synchronous = self.take(b'a');
        let is_represented = self.take(b'r');
        self.take_if(|it| it.is_ascii_digit())?;
        Some((is_serialized, is_synchronous, is_represented))
    }

    pub fn generic_specialization(&mut self, text: &'static str) -> Option<Item> {
        let (is_serialized, _, is_represented) = self.specialization()?;
        let kinds = self.pop_types()?;
        let kinds = kinds.into_iter().map(|it| vec![Piece::Part(it)]);
        self.specialized(text, is_serialized, is_represented, kinds.collect())
    }

    /// Without arguments that were not used.
    pub fn shortened_specialization(&mut self) -> Option<Item> {
        loop {
            self.natural();
            if !self.take(b't') {
                break;
            }
        }
        match self.next()? {
            b'g' | b'B' => self.generic_specialization("generic specialization <"),
            b'G' => self.generic_specialization("generic not re-abstracted specialization <"),
            _ => None,
        }
    }

    pub fn partial_specialization(&mut self, text: &'static str) -> Option<Item> {
        let (is_serialized, _, is_represented) = self.specialization()?;
        let kind = self.pop_type()?;
        let told = vec!["Signature = ".into(), kind.into()];
        self.specialized(text, is_serialized, is_represented, vec![told])
    }

    fn specialized(
        &mut self,
        text: &'static str,
        is_serialized: bool,
        is_represented: bool,
        parts: Vec<Vec<Piece>>,
    ) -> Option<Item> {
        if is_represented && !is_serialized {
            let pieces = vec!["representation changed of ".into()];
            return self.node(Node::Specialization(pieces));
        }
        let mut pieces: Vec<Piece> = vec![text.into()];
        let serialized = is_serialized.then(|| vec!["serialized".into()]);
        for (number, part) in serialized.into_iter().chain(parts).enumerate() {
            if number > 0 {
                pieces.push(", ".into());
            }
            pieces.extend(part);
        }
        pieces.push("> of ".into());
        self.node(Node::Specialization(pieces))
    }

    pub fn function_specialization(&mut self) -> Option<Item> {
        const TEXT: &str = "function signature specialization <";
        let (is_serialized, is_synchronous, is_represented) = self.specialization()?;
        if is_represented {
            return self.specialized(TEXT, is_serialized, true, Vec::new());
        }
        let mut parameters = Vec::new();
        while !self.take(b'_') {
            parameters.push(self.changes()?);
        }
        let result = match self.take(b'n') {
            true => Vec::new(),
            false => self.changes()?,
        };
        // What is told of the last is on top.
        let mut told = Vec::new();
        for changes in parameters.iter().rev() {
            told.push(self.told_changes(changes)?);
        }
        told.reverse();
        let mut parts = Vec::new();
        // It counts as an argument.
        let first = usize::from(is_synchronous);
        for (number, pieces) in told.into_iter().enumerate() {
            if !pieces.is_empty() {
                let mut part = vec![format!("Arg[{}] = ", number + first).into()];
                part.extend(pieces);
                parts.push(part);
            }
        }
        let pieces = self.told_changes(&result)?;
        if !pieces.is_empty() {
            let mut part = vec!["Return = ".into()];
            part.extend(pieces);
            parts.push(part);
        }
        self.specialized(TEXT, is_serialized, false, parts)
    }

    fn changes(&mut self) -> Option<Vec<Change>> {
        let change = match self.next()? {
            b'n' => return Some(Vec::new()),
            b'c' => Change::Closure,
            b'C' => Change::AsArgument(self.natural()?),
            b'p' => return self.constants(),
            b'e' => self.options("Existential To Protocol Constrained Generic", b"DGOX"),
            b'd' => self.options("Dead", b"GOX"),
            b'g' => self.options("Owned To Guaranteed", b"X"),
            b'o' => self.options("Guaranteed To Owned", b"X"),
            b'x' => self.options("Exploded", b""),
            b'i' => Change::Options("Value Promoted from Box".to_owned()),
            b's' => Change::Options("Stack Promoted from Box".to_owned()),
            b'r' => Change::Options("InOut Converted to Out".to_owned()),
            _ => return None,
        };
        Some(vec![change])
    }

    fn options(&mut self, first: &str, more: &[u8]) -> Change {
        let mut text = first.to_owned();
        for &byte in more {
            if self.take(byte) {
                text += match byte {
                    b'D' => " and Dead",
                    b'G' => " and Owned To Guaranteed",
                    b'O' => " and Guaranteed To Owned",
                    _ => " and Exploded",
                };
            }
        }
        Change::Options(text)
    }

    fn constants(&mut self) -> Option<Vec<Change>> {
        let mut changes = Vec::new();
        loop {
            changes.push(match self.peek() {
                Some(b'S') => Change::Structure,
                Some(b'f') => Change::Function("[Constant Propagated Function : "),
                Some(b'g') => Change::Function("[Constant Propagated Global : "),
                Some(b'k') => Change::KeyPath,
                Some(b'i') => self.number("[Constant Propagated Integer : ")?,
                Some(b'd') => self.number("[Constant Propagated Float : ")?,
                Some(b's') => {
                    self.at += 1;
                    Change::Text(match self.peek()? {
                        b'b' => "u8",
                        b'w' => "u16",
                        b'c' => "objc",
                        _ => return None,
                    })
                }
                _ => return Some(changes),
            });
            self.at += 1;
        }
    }

    /// Up to the last digit.
    fn number(&mut self, text: &'static str) -> Option<Change> {
        let start = self.at + 1;
        self.at = start;
        while self.take_if(|it| it.is_ascii_digit()).is_some() {}
        let digits = self.name.get(start..self.at)?.to_owned();
        self.at -= 1;
        (!digits.is_empty()).then_some(Change::Number(text, digits))
    }

    /// Takes what they are about from the stack.
    fn told_changes(&mut self, changes: &[Change]) -> Option<Vec<Piece>> {
        let mut told = Vec::new();
        for change in changes.iter().rev() {
            told.push(self.told_change(change)?);
        }
        Some(told.into_iter().rev().flatten().collect())
    }

    fn told_change(&mut self, change: &Change) -> Option<Vec<Piece>> {
        Some(match change {
            Change::Options(text) => vec![text.clone().into()],
            Change::Function(text) => {
                let symbol = Piece::Symbol(self.pop_identifier()?);
                vec![(*text).into(), symbol, "]".into()]
            }
            Change::Number(text, digits) => {
                vec![(*text).into(), digits.clone().into(), "]".into()]
            }
            Change::Text(encoding) => {
                let text = self.pop_identifier()?;
                // In front of what does not begin like an identifier.
                let text = text.strip_prefix('_').unwrap_or(&text);
                let text = format!("[Constant Propagated String : {encoding}'{text}']");
                vec![text.into()]
            }
            Change::KeyPath => {
                let value: Id = self.pop_type()?;
                let root: Id = self.pop_type()?;
                let name = self.pop_identifier()?;
                vec![
                    format!("[Constant Propagated KeyPath : {name}<").into(),
                    root.into(),
                    ",".into(),
                    value.into(),
                    ">]".into(),
                ]
            }
            Change::Structure => {
                let kind = self.pop_type()?;
                vec![
                    "[Constant Propagated Struct : ".into(),
                    kind.into(),
                    "]".into(),
                ]
            }
            Change::Closure => {
                let mut kinds = Vec::new();
                while let Some(kind) = self.pop_type() {
                    kinds.push(Piece::Part(kind));
                }
                let name = self.pop_identifier()?;
                let text = format!("[Closure Propagated : {name}, Argument Types : [");
                let mut pieces = vec![text.into()];
                pieces.extend(kinds.into_iter().rev());
                pieces.push("]".into());
                pieces
            }
            Change::AsArgument(number) => vec![format!("[Same As Argument {number}]").into()],
        })
    }
}
