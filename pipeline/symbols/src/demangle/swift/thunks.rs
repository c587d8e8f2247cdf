//! What is made of functions and types: thunks, specializations, witnesses, metadata.

use super::parser::{Item, Parser};
use super::tree::{Id, Node, Piece};
use super::types::separated;

impl Parser<'_> {
    pub fn thunk(&mut self) -> Option<Item> {
        let kind = self.next()?;
        match kind {
            b'T' if self.take(b'I') => self.of_entity("identity thunk of "),
            b'c' => self.of_entity("curry thunk of "),
            b'j' => self.of_entity("dispatch thunk of "),
            b'q' => self.of_entity("method descriptor for "),
            b'S' => self.of_entity("protocol self-conformance witness for "),
            b'o' => self.attribute(["@objc ".into()]),
            b'O' => self.attribute(["@nonobjc ".into()]),
            b'D' => self.attribute(["dynamic ".into()]),
            b'd' => self.attribute(["super ".into()]),
            b'E' => self.attribute([Piece::Full("distributed thunk ")]),
            b'F' => self.attribute([Piece::Full("distributed accessor for ")]),
            b'm' => self.attribute([Piece::Full("merged ")]),
            b'X' => self.attribute([Piece::Full("dynamically replaceable variable for ")]),
            b'x' => self.attribute([Piece::Full("dynamically replaceable key for ")]),
            b'I' => self.attribute([Piece::Full("dynamically replaceable thunk for ")]),
            b'u' => self.attribute(["async function pointer to ".into()]),
            b'A' => self.node(Node::PartialApply("partial apply forwarder")),
            b'a' => self.node(Node::PartialApply("partial apply ObjC forwarder")),
            b'w' => match self.next()? {
                b'b' => self.attribute([Piece::Full("back deployment thunk for ")]),
                b'B' => self.attribute(["back deployment fallback for ".into()]),
                b'c' => self.attribute(["coro function pointer to ".into()]),
                b'd' => self.attribute(["default override of ".into()]),
                b'S' => self.attribute(["#_hasSymbol query for ".into()]),
                _ => None,
            },
            // Parts of one function, behind each of its waits.
            b'Q' => self.resumed(") await resume partial function for "),
            b'Y' => self.resumed(") suspend resume partial function for "),
            b'v' => {
                let number = self.index()?.to_string();
                let what = match self.take(b'r') {
                    true => "outlined read-only object #",
                    false => "outlined variable #",
                };
                self.attribute([what.into(), number.into(), " of ".into()])
            }
            b'e' => {
                let method = self.bridged_method()?;
                self.attribute([
                    "outlined bridged method (".into(),
                    method.into(),
                    ") of ".into(),
                ])
            }
            b'C' => {
                let of = self.pop_type()?;
                self.about("coroutine continuation prototype for ", of)
            }
            b'z' | b'Z' => self.completion_handler(kind == b'Z'),
            b'V' => {
                let base = self.pop_entity()?;
                let derived = self.pop_entity()?;
                self.phrase([
                    "vtable thunk for ".into(),
                    base.into(),
                    " dispatching to ".into(),
                    derived.into(),
                ])
            }
            b'W' => {
                let witnessed = self.pop_entity()?;
                let conformance = self.pop_protocol_conformance()?;
                self.phrase([
                    "protocol witness for ".into(),
                    witnessed.into(),
                    " in conformance ".into(),
                    conformance.into(),
                ])
            }
            b'R' => self.reabstraction("reabstraction thunk helper "),
            b'r' => self.reabstraction("reabstraction thunk "),
            b'y' => self.reabstraction_with_self(),
            b'U' => {
                let actor = self.pop_type()?;
                let thunk = self.pop_any()?;
                self.phrase([
                    thunk.into(),
                    " with global actor constraint ".into(),
                    actor.into(),
                ])
            }
            b'g' | b'B' => self.generic_specialization("generic specialization <"),
            b'G' => self.generic_specialization("generic not re-abstracted specialization <"),
            b's' => self.generic_specialization("generic pre-specialization <"),
            b'i' => self.generic_specialization("inlined generic function <"),
            b't' => self.shortened_specialization(),
            b'p' => self.partial_specialization("generic partial specialization <"),
            b'P' => {
                let what = "generic not-reabstracted partial specialization <";
                self.partial_specialization(what)
            }
            b'f' => self.function_specialization(),
            b'K' | b'k' => self.key_path(kind),
            b'H' => self.key_path_operator("key path index equality operator for "),
            b'h' => self.key_path_operator("key path index hash operator for "),
            b'l' => {
                let of = self.pop_associated()?;
                self.about("associated type descriptor for ", of)
            }
            b'L' => {
                let of = self.pop_protocol()?;
                self.about("protocol requirements base descriptor for ", of)
            }
            b'M' => {
                let of = self.pop_associated()?;
                self.about("default associated type metadata accessor for ", of)
            }
            b'n' => self.associated_conformance("associated conformance descriptor for "),
            b'N' => self.associated_conformance("default associated conformance accessor for "),
            b'b' => {
                let required = self.pop_protocol()?;
                let of = self.pop_type()?;
                self.phrase([
                    "base conformance descriptor for ".into(),
                    of.into(),
                    ": ".into(),
                    required.into(),
                ])
            }
            _ => None,
        }
    }

    fn of_entity(&mut self, text: &'static str) -> Option<Item> {
        let of = self.pop_entity()?;
        self.about(text, of)
    }

    fn resumed(&mut self, text: &'static str) -> Option<Item> {
        let number = self.index()?;
        let number = format!("({number}{text}");
        self.node(Node::Attribute(vec![Piece::FullOwned(number)]))
    }

    fn bridged_method(&mut self) -> Option<String> {
        let start = self.at;
        self.take_if(|it| matches!(it, b'o' | b'p' | b'a' | b'm'))?;
        while self
            .take_if(|it| matches!(it, b'n' | b'b' | b'g'))
            .is_some()
        {}
        let text = self.name.get(start..self.at)?.to_owned();
        self.take(b'_').then_some(text)
    }

    fn completion_handler(&mut self, is_checked: bool) -> Option<Item> {
        let mode = match self.index()? {
            0 => "",
            1 => " nonzero on error",
            2 => " zero on error",
            _ => " <invalid error flag>",
        };
        let signature = self.pop_signature();
        let result = self.pop_type()?;
        let implementation = self.pop_type()?;
        let mut pieces = vec![
            Piece::Text(if is_checked { "checked " } else { "" }),
            "@objc completion handler block implementation for ".into(),
        ];
        pieces.extend(signature.map(Piece::Part));
        pieces.extend([
            implementation.into(),
            " with result type ".into(),
            result.into(),
            mode.into(),
        ]);
        self.told(pieces)
    }

    fn told(&mut self, pieces: Vec<Piece>) -> Option<Item> {
        self.node(Node::Phrase {
            pieces,
            is_simple: false,
        })
    }

    fn reabstraction(&mut self, text: &'static str) -> Option<Item> {
        let signature = self.pop_signature();
        let to = self.pop_type()?;
        let from = self.pop_type()?;
        let mut pieces = vec![Piece::Short("thunk for "), Piece::Full(text)];
        if let Some(signature) = signature {
            pieces.extend([Piece::FullPart(signature), Piece::Full(" ")]);
        }
        pieces.extend([
            Piece::Full("from "),
            from.into(),
            Piece::Full(" to "),
            Piece::FullPart(to),
        ]);
        self.told(pieces)
    }

    fn reabstraction_with_self(&mut self) -> Option<Item> {
        let signature = self.pop_signature();
        let own = self.pop_type()?;
        let to = self.pop_type()?;
        let from = self.pop_type()?;
        let mut pieces: Vec<Piece> = vec!["reabstraction thunk ".into()];
        if let Some(signature) = signature {
            pieces.extend([signature.into(), " ".into()]);
        }
        pieces.extend([
            "from ".into(),
            from.into(),
            " to ".into(),
            to.into(),
            " self ".into(),
            own.into(),
        ]);
        self.told(pieces)
    }

    fn key_path(&mut self, kind: u8) -> Option<Item> {
        let text = match kind {
            _ if self.take_text("mu") => "key path unapplied method ",
            _ if self.take_text("MA") => "key path applied method ",
            b'K' => "key path getter for ",
            _ => "key path setter for ",
        };
        let is_serialized = self.take(b'q');
        let mut kinds = vec![self.pop_type()?];
        while let Some(kind) = self.pop_type() {
            kinds.push(kind);
        }
        let signature = self.pop_signature();
        let of = self.pop_any()?;
        let mut pieces = vec![text.into(), of.into(), " : ".into()];
        pieces.extend(signature.map(Piece::Part));
        pieces.extend(kinds.into_iter().rev().map(Piece::Part));
        if is_serialized {
            pieces.push(", serialized".into());
        }
        self.told(pieces)
    }

    fn key_path_operator(&mut self, text: &'static str) -> Option<Item> {
        self.take(b'q');
        let signature = self.pop_signature();
        let mut kinds = Vec::new();
        while let Some(kind) = self.pop_type() {
            kinds.push(kind);
        }
        kinds.reverse();
        let mut pieces: Vec<Piece> = vec![text.into()];
        pieces.extend(signature.map(Piece::Part));
        pieces.push("(".into());
        separated(&mut pieces, &kinds);
        pieces.push(")".into());
        self.told(pieces)
    }

    fn associated_conformance(&mut self, text: &'static str) -> Option<Item> {
        let required = self.pop_protocol()?;
        let path = self.pop_associated_path()?;
        let of = self.pop_type()?;
        let mut pieces = vec![text.into(), of.into()];
        for member in path {
            pieces.extend([Piece::Text("."), Piece::Part(member)]);
        }
        pieces.extend([": ".into(), required.into()]);
        self.told(pieces)
    }

    /// That a type is what a protocol asks for, and where it is said.
    pub fn pop_protocol_conformance(&mut self) -> Option<Id> {
        let signature = self.pop_signature();
        let module = self.pop_module()?;
        let protocol = self.pop_protocol()?;
        let mut of = self.pop_type()?;
        if let Some(signature) = signature {
            of = self.tree.add(Node::Generic { signature, of })?;
        }
        self.tree.add(Node::Phrase {
            pieces: vec![
                of.into(),
                Piece::Full(" : "),
                Piece::FullPart(protocol),
                Piece::Full(" in "),
                Piece::FullPart(module),
            ],
            is_simple: false,
        })
    }

    pub fn witness(&mut self) -> Option<Item> {
        match self.next()? {
            b'C' => self.of_entity("enum case for "),
            b'V' => self.of_type("value witness table for "),
            b'v' => {
                let text = match self.next()? {
                    b'd' => "direct field offset for ",
                    b'i' => "indirect field offset for ",
                    _ => return None,
                };
                self.of_entity(text)
            }
            b'S' => {
                let of = self.pop_protocol()?;
                self.about("protocol self-conformance witness table for ", of)
            }
            b'P' => self.of_conformance("protocol witness table for "),
            b'p' => self.of_conformance("protocol witness table pattern for "),
            b'G' => self.of_conformance("generic protocol witness table for "),
            b'I' => self
                .of_conformance("instantiation function for generic protocol witness table for "),
            b'r' => self.of_conformance("resilient protocol witness table for "),
            b'a' => self.of_conformance("protocol witness table accessor for "),
            b'l' => self.lazy_table("lazy protocol witness table accessor for type "),
            b'L' => self.lazy_table("lazy protocol witness table cache variable for type "),
            b't' => {
                let name = self.pop_name()?;
                let conformance = self.pop_protocol_conformance()?;
                self.phrase([
                    "associated type metadata accessor for ".into(),
                    name.into(),
                    " in ".into(),
                    conformance.into(),
                ])
            }
            b'T' => {
                let protocol = self.pop_type()?;
                let path = self.pop_associated_path()?;
                let conformance = self.pop_protocol_conformance()?;
                let mut pieces = vec!["associated type witness table accessor for ".into()];
                for (number, member) in path.into_iter().enumerate() {
                    pieces.push(Piece::Text(if number > 0 { "." } else { "" }));
                    pieces.push(member.into());
                }
                pieces.extend([
                    " : ".into(),
                    protocol.into(),
                    " in ".into(),
                    conformance.into(),
                ]);
                self.told(pieces)
            }
            b'b' => {
                let protocol = self.pop_type()?;
                let conformance = self.pop_protocol_conformance()?;
                self.phrase([
                    "base witness table accessor for ".into(),
                    protocol.into(),
                    " in ".into(),
                    conformance.into(),
                ])
            }
            b'O' => self.outlined(),
            b'Z' => self.once("one-time initialization function for "),
            b'z' => self.once("one-time initialization token for "),
            _ => None,
        }
    }

    fn of_type(&mut self, text: &'static str) -> Option<Item> {
        let of = self.pop_type()?;
        self.about(text, of)
    }

    fn of_conformance(&mut self, text: &'static str) -> Option<Item> {
        let of = self.pop_protocol_conformance()?;
        self.about(text, of)
    }

    fn lazy_table(&mut self, text: &'static str) -> Option<Item> {
        let conformance = self.pop_protocol_conformance()?;
        let of = self.pop_type()?;
        self.phrase([
            text.into(),
            of.into(),
            " and conformance ".into(),
            conformance.into(),
        ])
    }

    /// What was moved out of functions, since it is in many.
    fn outlined(&mut self) -> Option<Item> {
        let kind = self.next()?;
        let text = match kind {
            b'y' => "outlined copy of ",
            b'e' => "outlined consume of ",
            b'r' => "outlined retain of ",
            b's' => "outlined release of ",
            b'b' | b'B' => "outlined init with take of ",
            b'c' | b'C' => "outlined init with copy of ",
            b'd' | b'D' => "outlined assign with take of ",
            b'f' | b'F' => "outlined assign with copy of ",
            b'h' | b'H' => "outlined destroy of ",
            b'i' => "outlined enum tag store of ",
            b'j' => "outlined enum project data for load of ",
            b'g' => "outlined enum get tag of ",
            _ => return None,
        };
        if matches!(kind, b'i' | b'j') {
            self.index()?;
        }
        let signature = self.pop_signature();
        let of = self.pop_type()?;
        let mut pieces = vec![text.into(), of.into()];
        if matches!(kind, b'y' | b'e') {
            pieces.extend(signature.map(Piece::Part));
        }
        self.told(pieces)
    }

    fn once(&mut self, text: &'static str) -> Option<Item> {
        let mut names = Vec::new();
        while self.pop_first() {
            names.push(self.pop_name()?);
        }
        names.reverse();
        self.pop_context()?;
        let (open, close) = match names.len() {
            1 => ("", ""),
            _ => ("(", ")"),
        };
        let mut pieces = vec![text.into(), open.into()];
        separated(&mut pieces, &names);
        pieces.push(close.into());
        self.told(pieces)
    }

    pub fn value_witness(&mut self) -> Option<Item> {
        let kind = [self.next()?, self.next()?];
        let name = match &kind {
            b"al" => "allocateBuffer",
            b"ca" => "assignWithCopy",
            b"ta" => "assignWithTake",
            b"de" => "deallocateBuffer",
            b"xx" => "destroy",
            b"XX" => "destroyBuffer",
            b"Xx" => "destroyArray",
            b"CP" => "initializeBufferWithCopyOfBuffer",
            b"Cp" => "initializeBufferWithCopy",
            b"cp" => "initializeWithCopy",
            b"Tk" => "initializeBufferWithTake",
            b"tk" => "initializeWithTake",
            b"pr" => "projectBuffer",
            b"TK" => "initializeBufferWithTakeOfBuffer",
            b"Cc" => "initializeArrayWithCopy",
            b"Tt" => "initializeArrayWithTakeFrontToBack",
            b"tT" => "initializeArrayWithTakeBackToFront",
            b"xs" => "storeExtraInhabitant",
            b"xg" => "getExtraInhabitantIndex",
            b"ug" => "getEnumTag",
            b"up" => "destructiveProjectEnumData",
            b"ui" => "destructiveInjectEnumTag",
            b"et" => "getEnumTagSinglePayload",
            b"st" => "storeEnumTagSinglePayload",
            _ => return None,
        };
        let of = self.pop_type()?;
        self.phrase([
            name.into(),
            Piece::Full(" value witness"),
            " for ".into(),
            of.into(),
        ])
    }

    pub fn metadata(&mut self) -> Option<Item> {
        let kind = self.next()?;
        let of_type = match kind {
            b'a' => "type metadata accessor for ",
            b'b' => "canonical specialized generic type metadata accessor for ",
            b'B' => "reflection metadata builtin descriptor ",
            b'C' => "reflection metadata superclass descriptor ",
            b'D' => "demangling cache variable for type metadata for ",
            b'f' => "full type metadata for ",
            b'F' => "reflection metadata field descriptor ",
            b'i' => "type metadata instantiation function for ",
            b'I' => "type metadata instantiation cache for ",
            b'l' => "type metadata singleton initialization cache for ",
            b'L' => "lazy cache variable for type metadata for ",
            b'm' => "metaclass for ",
            b'M' => "specialized generic metaclass for ",
            b'n' => "nominal type descriptor for ",
            b'N' => "noncanonical specialized generic type metadata for ",
            b'o' => "class metadata base offset for ",
            b'P' => "generic type metadata pattern for ",
            b'r' => "type metadata completion function for ",
            b's' => "ObjC resilient class stub for ",
            b't' => "full ObjC resilient class stub for ",
            b'u' => "method lookup function for ",
            b'U' => "ObjC metadata update function for ",
            b'z' => "flag for loading of canonical specialized generic type metadata for ",
            _ => return self.other_metadata(kind),
        };
        self.of_type(of_type)
    }

    fn other_metadata(&mut self, kind: u8) -> Option<Item> {
        let text = match kind {
            b'A' => return self.of_conformance("reflection metadata associated type descriptor "),
            b'c' => return self.of_conformance("protocol conformance descriptor for "),
            b'V' => return self.of_entity("property descriptor for "),
            b'X' => return self.context_descriptor(),
            b'p' => {
                let of = self.pop_protocol()?;
                return self.about("protocol descriptor for ", of);
            }
            b'S' => {
                let of = self.pop_protocol()?;
                return self.about("protocol self-conformance descriptor for ", of);
            }
            b'g' => "opaque type descriptor accessor for ",
            b'h' => "opaque type descriptor accessor impl for ",
            b'j' => "opaque type descriptor accessor key for ",
            b'J' => "cache variable for noncanonical specialized generic type metadata for ",
            b'k' => "opaque type descriptor accessor var for ",
            b'K' => "metadata instantiation cache for ",
            b'q' => "uniquable ",
            b'Q' => "opaque type descriptor for ",
            _ => return None,
        };
        let of = self.pop_any()?;
        self.about(text, of)
    }

    fn context_descriptor(&mut self) -> Option<Item> {
        let kind = self.next()?;
        let (text, of) = match kind {
            b'E' => ("extension descriptor ", self.pop_context()?),
            b'M' => ("module descriptor ", self.pop_module()?),
            b'X' => ("anonymous descriptor ", self.pop_context()?),
            b'Y' => {
                self.pop_any()?;
                ("anonymous descriptor ", self.pop_context()?)
            }
            _ => return None,
        };
        self.about(text, of)
    }
}
