//! Types.

use super::parser::{Item, Parser};
use super::tree::{Also, Convention, Effect, Element, FunctionType, Id, Node, Piece, Signature};

/// What a list of arguments may be split into: types in each other.
const MAX_NESTED: usize = 64;
/// Of a type of the compiler, in bits or elements.
const MAX_BUILTIN: u32 = 4096;

impl Parser<'_> {
    /// A type that is told so, and that needs no parentheses in others.
    fn simple<const N: usize>(&mut self, pieces: [Piece; N]) -> Option<Item> {
        self.kind(Node::Phrase {
            pieces: pieces.into(),
            is_simple: true,
        })
    }

    fn compound<const N: usize>(&mut self, pieces: [Piece; N]) -> Option<Item> {
        self.kind(Node::Phrase {
            pieces: pieces.into(),
            is_simple: false,
        })
    }

    pub fn prefixed(&mut self, text: &'static str) -> Option<Item> {
        let of = self.pop_type()?;
        self.compound([text.into(), of.into()])
    }

    pub fn builtin(&mut self) -> Option<Item> {
        let name = match self.next()? {
            b'A' => "ImplicitActor".to_owned(),
            b'b' => "BridgeObject".to_owned(),
            b'B' => "UnsafeValueBuffer".to_owned(),
            b'e' => "Executor".to_owned(),
            b'f' => format!("FPIEEE{}", self.builtin_size()?),
            b'i' => format!("Int{}", self.builtin_size()?),
            b'I' => "IntLiteral".to_owned(),
            b'O' => "UnknownObject".to_owned(),
            b'o' => "NativeObject".to_owned(),
            b'p' => "RawPointer".to_owned(),
            b'j' => "Job".to_owned(),
            b'D' => "DefaultActorStorage".to_owned(),
            b'd' => "NonDefaultDistributedActorStorage".to_owned(),
            b'c' => "RawUnsafeContinuation".to_owned(),
            b't' => "SILToken".to_owned(),
            b'w' => "Word".to_owned(),
            b'P' => "PackIndex".to_owned(),
            b'v' => {
                let count = self.builtin_size()?;
                let of = self.pop_type()?;
                match self.tree.get(of) {
                    Node::Builtin(of) => format!("Vec{count}x{of}"),
                    _ => return None,
                }
            }
            b'V' => {
                let of = self.pop_type()?;
                let count = self.pop_type()?;
                return self.simple([
                    "Builtin.FixedArray<".into(),
                    count.into(),
                    ", ".into(),
                    of.into(),
                    ">".into(),
                ]);
            }
            b'T' => return self.kind(Node::TheTuple),
            _ => return None,
        };
        self.kind(Node::Builtin(name))
    }

    fn builtin_size(&mut self) -> Option<u32> {
        let size = self.index()?.checked_sub(1)?;
        (1..=MAX_BUILTIN).contains(&size).then_some(size)
    }

    pub fn debug_type(&mut self) -> Option<Item> {
        let of = self.pop_type()?;
        // Labels that may be in front of it are of use to debuggers alone.
        self.node(Node::Phrase {
            pieces: vec![of.into()],
            is_simple: true,
        })
    }

    pub fn effect(&mut self, effect: Effect) -> Option<Item> {
        self.node(Node::Effect(effect))
    }

    pub fn annotation(&mut self) -> Option<Item> {
        match self.next()? {
            b'a' => self.effect(Effect::Async),
            b'A' => self.effect(Effect::IsolatedAny),
            b'b' => self.effect(Effect::Sendable),
            b'c' => {
                let actor = self.pop_type()?;
                self.effect(Effect::Actor(actor))
            }
            b'C' => self.effect(Effect::NonIsolated),
            b'i' => self.prefixed("isolated "),
            b'j' => {
                let text = match differentiable(self.next()?)? {
                    "" => "@differentiable ",
                    "(_forward)" => "@differentiable(_forward) ",
                    "(reverse)" => "@differentiable(reverse) ",
                    _ => "@differentiable(_linear) ",
                };
                self.effect(Effect::Differentiable(text))
            }
            b'k' => self.prefixed("@noDerivative "),
            b'K' => {
                let error = Some(self.pop_type()?);
                self.effect(Effect::Throws(error))
            }
            b't' => self.prefixed("_const "),
            b'g' => self.prefixed("@const "),
            b'T' => self.effect(Effect::SendingResult),
            b'u' => self.prefixed("sending "),
            _ => None,
        }
    }

    pub fn plain_function_type(&mut self) -> Option<Item> {
        self.pop_function_type(Convention::Plain).map(Item::Type)
    }

    fn function_type(&mut self, convention: Convention) -> Option<Item> {
        self.pop_function_type(convention).map(Item::Type)
    }

    pub fn pop_function_type(&mut self, convention: Convention) -> Option<Id> {
        let mut effects = Vec::new();
        while let Some(id) = self.pop_if(|it| matches!(it, Node::Effect(_))) {
            if let Node::Effect(effect) = self.tree.get(id) {
                effects.push(*effect);
            }
        }
        let parameters = self.pop_parameters()?;
        let result = self.pop_parameters()?;
        self.tree.add(Node::FunctionType(Box::new(FunctionType {
            convention,
            effects,
            parameters,
            result,
        })))
    }

    fn pop_parameters(&mut self) -> Option<Id> {
        match self.pop_empty() {
            true => self.tree.add(Node::Tuple(Vec::new())),
            false => self.pop_type(),
        }
    }

    pub fn tuple(&mut self) -> Option<Item> {
        let elements = self.pop_list(|it| {
            let is_variadic = it.pop_if(|it| matches!(it, Node::Variadic)).is_some();
            let label = it.pop_identifier();
            let kind = it.pop_type()?;
            Some(Element {
                label,
                kind,
                is_variadic,
            })
        })?;
        self.kind(Node::Tuple(elements))
    }

    /// The arguments of types in each other, those of the innermost first; and whether there is something
    /// behind them of which they are not sure.
    fn pop_arguments(&mut self) -> Option<(Vec<Vec<Id>>, bool)> {
        let mut is_retroactive = false;
        while self.pop_if(|it| matches!(it, Node::Retroactive)).is_some() {
            is_retroactive = true;
        }
        let mut lists = Vec::new();
        while lists.len() < MAX_NESTED {
            let mut list = Vec::new();
            while let Some(kind) = self.pop_type() {
                list.push(kind);
            }
            list.reverse();
            lists.push(list);
            if self.pop_empty() {
                return Some((lists, is_retroactive));
            }
            if !self.pop_first() {
                return None;
            }
        }
        None
    }

    pub fn bound_generic(&mut self) -> Option<Item> {
        let (lists, is_retroactive) = self.pop_arguments()?;
        let nominal = self.pop_type()?;
        if !matches!(self.tree.get(nominal), Node::Nominal { .. }) {
            return None;
        }
        let id = self.bind(nominal, &lists, is_retroactive)?;
        Some(self.substitute(Item::Type(id)))
    }

    /// With its arguments, and those of what it is in.
    fn bind(&mut self, id: Id, lists: &[Vec<Id>], is_retroactive: bool) -> Option<Id> {
        let node = self.tree.get(id).clone();
        let takes_arguments = !matches!(
            node,
            Node::Variable { .. }
                | Node::Subscript { .. }
                | Node::Aside { .. }
                | Node::Static(_)
                | Node::Extension { .. }
        );
        let (own, others) = match takes_arguments {
            true => lists.split_first()?,
            false => (&Vec::new(), lists),
        };
        let base = match others {
            [] => id,
            _ => {
                let mut node = node.clone();
                let context = node.context_mut()?;
                *context = self.bind(*context, others, false)?;
                self.tree.add(node)?
            }
        };
        if own.is_empty() {
            return Some(base);
        }
        let arguments = own.clone();
        self.tree.add(match node {
            Node::Nominal { .. } => Node::Bound {
                base,
                arguments,
                is_retroactive,
            },
            Node::Function { .. } | Node::Initializer { .. } => Node::BoundFunction {
                function: base,
                arguments,
            },
            _ => return None,
        })
    }

    pub fn protocols(&mut self, also: Also) -> Option<Item> {
        let protocols = self.pop_list(Self::pop_protocol)?;
        self.kind(Node::Protocols { protocols, also })
    }

    fn representation(&mut self) -> Option<&'static str> {
        Some(match self.next()? {
            b't' => "@thin ",
            b'T' => "@thick ",
            b'o' => "@objc_metatype ",
            _ => return None,
        })
    }

    pub fn metatype(&mut self, representation: &'static str) -> Option<Item> {
        let of = self.pop_type()?;
        let is_existential = matches!(
            self.tree.get(of),
            Node::Protocols { .. } | Node::ExistentialMetatype { .. }
        );
        let end = match is_existential {
            true => ".Protocol",
            false => ".Type",
        };
        let (open, close) = match self.tree.is_simple(of) {
            true => ("", ""),
            false => ("(", ")"),
        };
        self.simple([
            representation.into(),
            open.into(),
            of.into(),
            close.into(),
            end.into(),
        ])
    }

    pub fn special_type(&mut self) -> Option<Item> {
        match self.next()? {
            b'E' => self.function_type(Convention::NoEscape),
            b'A' | b'K' => self.function_type(Convention::Marked("@autoclosure ")),
            b'f' => self.function_type(Convention::Marked("@convention(thin) ")),
            b'U' => self.function_type(Convention::Uncurried),
            b'L' => self.function_type(Convention::Marked("@escaping @convention(block) ")),
            b'B' => self.function_type(Convention::Foreign("block", None)),
            b'C' => self.function_type(Convention::Foreign("c", None)),
            b'z' => {
                let convention = match self.next()? {
                    b'B' => "block",
                    b'C' => "c",
                    _ => return None,
                };
                let of = Some(self.type_of_c()?);
                self.function_type(Convention::Foreign(convention, of))
            }
            b'o' => self.prefixed("unowned "),
            b'u' => self.prefixed("unowned(unsafe) "),
            b'w' => self.prefixed("weak "),
            b'b' => {
                let of = self.pop_type()?;
                self.simple(["@box ".into(), of.into()])
            }
            b'D' => {
                self.pop_type()?;
                self.simple(["Self".into()])
            }
            b'M' => {
                let representation = self.representation()?;
                self.metatype(representation)
            }
            b'm' => {
                let representation = self.representation()?;
                self.existential_metatype(representation)
            }
            b'p' => self.existential_metatype(""),
            b'P' => self.constrained(),
            b'c' => {
                let class = self.pop_type()?;
                self.protocols(Also::Class(class))
            }
            b'l' => self.protocols(Also::AnyObject),
            b'x' => self.boxed(false),
            b'X' => self.boxed(true),
            b'Y' => self.other_nominal(),
            b'e' => self.simple(["<ERROR TYPE>".into()]),
            b'S' => self.sugared(),
            _ => None,
        }
    }

    fn existential_metatype(&mut self, representation: &'static str) -> Option<Item> {
        let of = self.pop_type()?;
        self.kind(Node::ExistentialMetatype { representation, of })
    }

    fn constrained(&mut self) -> Option<Item> {
        let requirements = self.pop_list(|it| it.pop_if(Node::is_requirement))?;
        let base = self.pop_type()?;
        let mut pieces = vec!["any ".into(), base.into(), "<".into()];
        separated(&mut pieces, &requirements);
        pieces.push(">".into());
        self.kind(Node::Phrase {
            pieces,
            is_simple: false,
        })
    }

    fn sugared(&mut self) -> Option<Item> {
        match self.next()? {
            b'q' => {
                let of = self.pop_type()?;
                let (open, close) = match self.tree.is_simple(of) {
                    true => ("", "?"),
                    false => ("(", ")?"),
                };
                self.simple([open.into(), of.into(), close.into()])
            }
            b'a' => {
                let of = self.pop_type()?;
                self.simple(["[".into(), of.into(), "]".into()])
            }
            b'A' => self.pair(" of "),
            b'D' => self.pair(" : "),
            b'p' => {
                let of = self.pop_type()?;
                self.simple(["(".into(), of.into(), ")".into()])
            }
            _ => None,
        }
    }

    fn pair(&mut self, joint: &'static str) -> Option<Item> {
        let second = self.pop_type()?;
        let first = self.pop_type()?;
        self.simple([
            "[".into(),
            first.into(),
            joint.into(),
            second.into(),
            "]".into(),
        ])
    }

    /// What a closure shares with others.
    fn boxed(&mut self, is_generic: bool) -> Option<Item> {
        let mut bound = None;
        if is_generic {
            let signature = self.pop_signature()?;
            bound = Some((signature, self.pop_types()?));
        }
        let fields = self.pop_types()?;
        let mut pieces = Vec::new();
        if let Some((signature, _)) = &bound {
            pieces.extend([Piece::Part(*signature), " ".into()]);
        }
        pieces.push("{".into());
        for (number, &field) in fields.iter().enumerate() {
            pieces.push(if number > 0 { ", " } else { " " }.into());
            match self.tree.get(field) {
                Node::InOut(of) => pieces.extend(["var ".into(), Piece::Part(*of)]),
                _ => pieces.extend(["let ".into(), Piece::Part(field)]),
            }
        }
        pieces.push(" }".into());
        if let Some((_, arguments)) = &bound {
            pieces.push(" <".into());
            separated(&mut pieces, arguments);
            pieces.push(">".into());
        }
        self.kind(Node::Phrase {
            pieces,
            is_simple: true,
        })
    }

    pub fn archetype(&mut self) -> Option<Item> {
        let item = match self.next()? {
            b'a' => {
                let name = self.pop_if(|it| matches!(it, Node::Identifier(_)))?;
                let of = self.pop_type()?;
                self.simple([of.into(), ".".into(), name.into()])?
            }
            b'O' => {
                let of = self.pop_context()?;
                return self.node(Node::OpaqueResultOf(of));
            }
            b'o' => {
                let number = self.index()?;
                self.pop_arguments()?;
                let of = self.pop_any()?;
                self.compound([of.into(), ".".into(), number.to_string().into()])?
            }
            b'r' => return self.compound(["some".into()]),
            b'R' => {
                self.index()?;
                return self.compound(["some".into()]);
            }
            b'x' => self.member_type(None)?,
            b'X' => self.nested_member_type(None)?,
            b'y' => {
                let base = self.parameter()?;
                self.member_type(Some(base))?
            }
            b'Y' => {
                let base = self.parameter()?;
                self.nested_member_type(Some(base))?
            }
            b'z' => {
                let base = self.first_parameter()?;
                self.member_type(Some(base))?
            }
            b'Z' => {
                let base = self.first_parameter()?;
                self.nested_member_type(Some(base))?
            }
            b'p' => {
                self.pop_type()?;
                return self.prefixed("repeat ");
            }
            b'e' => {
                let of = self.pop_type()?;
                let level = self.index()?.to_string();
                return self.compound([
                    "/* level: ".into(),
                    level.into(),
                    " */ each ".into(),
                    of.into(),
                ]);
            }
            b'P' => return self.pack("Pack{"),
            b'S' => {
                let start = match self.next()? {
                    b'd' => "@direct Pack{",
                    b'i' => "@indirect Pack{",
                    _ => return None,
                };
                return self.pack(start);
            }
            _ => return None,
        };
        Some(self.substitute(item))
    }

    fn pack(&mut self, start: &'static str) -> Option<Item> {
        let kinds = self.pop_types()?;
        let mut pieces = vec![start.into()];
        separated(&mut pieces, &kinds);
        pieces.push("}".into());
        self.kind(Node::Phrase {
            pieces,
            is_simple: true,
        })
    }

    pub fn pop_associated(&mut self) -> Option<Id> {
        let protocol = self.pop_type();
        if protocol.is_some_and(|it| !self.tree.get(it).is_protocol()) {
            return None;
        }
        let name = self.pop_if(|it| matches!(it, Node::Identifier(_)))?;
        self.tree.add(Node::Associated { name, protocol })
    }

    pub fn pop_associated_path(&mut self) -> Option<Vec<Id>> {
        let mut path = Vec::new();
        loop {
            let is_first = self.pop_first();
            path.push(self.pop_associated()?);
            if is_first {
                path.reverse();
                return Some(path);
            }
        }
    }

    fn member_type(&mut self, base: Option<Id>) -> Option<Item> {
        let member = self.pop_associated()?;
        let base = base.or_else(|| self.pop_type())?;
        self.simple([base.into(), ".".into(), member.into()])
    }

    fn nested_member_type(&mut self, base: Option<Id>) -> Option<Item> {
        let path = self.pop_associated_path()?;
        let base = base.or_else(|| self.pop_type())?;
        let mut pieces = vec![Piece::Part(base)];
        for member in path {
            pieces.extend([Piece::Text("."), Piece::Part(member)]);
        }
        self.kind(Node::Phrase {
            pieces,
            is_simple: true,
        })
    }

    fn first_parameter(&mut self) -> Option<Id> {
        self.tree.add(Node::Parameter { depth: 0, index: 0 })
    }

    pub fn parameter(&mut self) -> Option<Id> {
        if self.take(b'd') {
            let depth = self.index()?.checked_add(1)?;
            let index = self.index()?;
            return self.tree.add(Node::Parameter { depth, index });
        }
        if self.take(b'z') {
            return self.first_parameter();
        }
        if self.take(b's') {
            return self.tree.add(Node::Phrase {
                pieces: vec!["Self".into()],
                is_simple: true,
            });
        }
        let index = self.index()?.checked_add(1)?;
        self.tree.add(Node::Parameter { depth: 0, index })
    }

    pub fn generic_type(&mut self) -> Option<Item> {
        let signature = self.pop_signature()?;
        let of = self.pop_type()?;
        self.kind(Node::Generic { signature, of })
    }

    pub fn signature(&mut self, has_counts: bool) -> Option<Item> {
        let mut counts = Vec::new();
        if has_counts {
            while !self.take(b'l') {
                counts.push(match self.take(b'z') {
                    true => 0,
                    false => self.index()?.checked_add(1)?,
                });
            }
        } else {
            counts.push(1);
        }
        let mut requirements = Vec::new();
        while let Some(requirement) = self.pop_if(Node::is_requirement) {
            requirements.push(requirement);
        }
        requirements.reverse();
        self.node(Node::Signature(Signature {
            counts,
            requirements,
        }))
    }

    /// What must hold for a parameter, for a member of one, or for one that came before.
    pub fn requirement(&mut self) -> Option<Item> {
        let kind = match self.peek()? {
            byte @ (b'V' | b'v' | b'c' | b'C' | b'b' | b'B' | b't' | b'T' | b's' | b'S' | b'm'
            | b'M' | b'l' | b'L' | b'p' | b'P' | b'Q' | b'h' | b'i' | b'I') => {
                self.at += 1;
                byte
            }
            _ => 0,
        };
        let inverse = match kind {
            b'i' | b'I' => Some(self.index()?),
            _ => None,
        };
        let of = match kind {
            b'c' | b't' | b'm' | b'p' => {
                let base = self.parameter()?;
                let item = self.member_type(Some(base))?;
                self.substituted(item)
            }
            b'C' | b'T' | b'M' | b'P' => {
                let base = self.parameter()?;
                let item = self.nested_member_type(Some(base))?;
                self.substituted(item)
            }
            b'B' | b'S' | b'L' | b'Q' | b'I' => self.pop_type()?,
            _ => self.parameter()?,
        };
        let pieces = match kind {
            b'V' => {
                let parameter = of;
                let of = self.pop_type()?;
                return self.node(Node::ValueMarker { parameter, of });
            }
            b'v' => return self.node(Node::PackMarker(of)),
            b'i' | b'I' => {
                let name = match inverse? {
                    0 => "Copyable".to_owned(),
                    1 => "Escapable".to_owned(),
                    bit => format!("<bit {bit}>"),
                };
                vec![of.into(), ": ~Swift.".into(), name.into()]
            }
            b'c' | b'C' | b'b' | b'B' => vec![of.into(), ": ".into(), self.pop_type()?.into()],
            b't' | b'T' | b's' | b'S' => vec![of.into(), " == ".into(), self.pop_type()?.into()],
            b'h' => {
                let other = self.pop_type()?;
                vec![
                    of.into(),
                    ".shape == ".into(),
                    other.into(),
                    ".shape".into(),
                ]
            }
            b'm' | b'M' | b'l' | b'L' => {
                let mut pieces = vec![of.into(), ": ".into()];
                pieces.extend(self.layout()?);
                pieces
            }
            _ => vec![of.into(), ": ".into(), self.pop_protocol()?.into()],
        };
        self.node(Node::Requirement(pieces))
    }

    fn substituted(&mut self, item: Item) -> Id {
        match self.substitute(item) {
            Item::Type(id) | Item::Node(id) => id,
        }
    }

    fn layout(&mut self) -> Option<Vec<Piece>> {
        let (name, numbers) = match self.next()? {
            b'U' => ("_UnknownLayout", 0),
            b'R' => ("_RefCountedObject", 0),
            b'N' => ("_NativeRefCountedObject", 0),
            b'C' => ("AnyObject", 0),
            b'D' => ("_NativeClass", 0),
            b'T' => ("_Trivial", 0),
            b'B' => ("", 0),
            b'E' => ("_Trivial", 2),
            b'e' => ("_Trivial", 1),
            b'M' => ("_TrivialAtMost", 2),
            b'm' => ("_TrivialAtMost", 1),
            b'S' => ("", 1),
            _ => return None,
        };
        let mut pieces = vec![name.into()];
        for number in 0..numbers {
            pieces.push(if number == 0 { "(" } else { ", " }.into());
            pieces.push(self.index()?.to_string().into());
        }
        if numbers > 0 {
            pieces.push(")".into());
        }
        Some(pieces)
    }

    pub fn integer(&mut self) -> Option<Item> {
        let sign = if self.take(b'n') { "-" } else { "" };
        let number = self.index()?.to_string();
        self.simple([sign.into(), number.into()])
    }

    /// The type of C behind a convention, as C++ mangles it.
    fn type_of_c(&mut self) -> Option<String> {
        let length = self.natural()? as usize;
        let text = self.name.get(self.at..self.at.checked_add(length)?)?;
        self.at += length;
        Some(text.to_owned())
    }

    /// As a function is called in fact.
    pub fn implementation_function(&mut self) -> Option<Item> {
        let mut attributes: Vec<Piece> = Vec::new();
        let mut pattern = None;
        if self.take(b's') {
            let (mut lists, _) = self.pop_arguments()?;
            pattern = Some((self.pop_signature()?, lists.pop()?));
        }
        let mut invocation = None;
        if self.take(b'I') {
            let (mut lists, _) = self.pop_arguments()?;
            invocation = Some(lists.pop().filter(|_| lists.is_empty())?);
        }
        let signature = self.pop_signature();
        if signature.is_some() {
            self.take(b'P');
        }
        if self.take(b'e') {
            attributes.push("@escaping ".into());
        }
        if self.take(b'A') {
            attributes.push("@isolated(any) ".into());
        }
        if let Some(kind) = self.peek().and_then(differentiable) {
            self.at += 1;
            attributes.extend(["@differentiable".into(), kind.into(), " ".into()]);
        }
        attributes.push(
            match self.next()? {
                b'y' => "@callee_unowned ",
                b'g' => "@callee_guaranteed ",
                b'x' => "@callee_owned ",
                b't' => "@convention(thin) ",
                _ => return None,
            }
            .into(),
        );
        self.implementation_convention(&mut attributes)?;
        let coroutine = match self.peek() {
            Some(b'A') => "@yield_once ",
            Some(b'I') => "@yield_once_2 ",
            Some(b'G') => "@yield_many ",
            _ => "",
        };
        self.at += usize::from(!coroutine.is_empty());
        attributes.push(coroutine.into());
        if self.take(b'h') {
            attributes.push("@Sendable ".into());
        }
        if self.take(b'H') {
            attributes.push("@async ".into());
        }
        let sends = self.take(b'T');
        if let Some(signature) = signature {
            attributes.extend([signature.into(), " ".into()]);
        }
        let mut parts = self.implementation_parts()?;
        for part in parts.iter_mut().rev() {
            part.kind = Some(self.pop_type()?);
        }
        let results = parts.iter().position(|it| !it.is_parameter);
        let (parameters, results) = parts.split_at(results.unwrap_or(parts.len()));
        let mut pieces = attributes;
        if let Some((signature, _)) = &pattern {
            pieces.extend(["@substituted ".into(), Piece::Part(*signature), " ".into()]);
        }
        pieces.push("(".into());
        Part::tell(&mut pieces, parameters);
        pieces.push(if sends { ") -> sending (" } else { ") -> (" }.into());
        Part::tell(&mut pieces, results);
        pieces.push(")".into());
        let substituted = [pattern.map(|(_, list)| list), invocation];
        for list in substituted.into_iter().flatten() {
            pieces.push(" for <".into());
            pieces.extend(list.into_iter().map(Piece::Part));
            pieces.push(">".into());
        }
        self.kind(Node::Phrase {
            pieces,
            is_simple: false,
        })
    }

    fn implementation_convention(&mut self, attributes: &mut Vec<Piece>) -> Option<()> {
        let foreign = |it: &mut Self, name: &'static str| {
            let of = it.type_of_c()?;
            Some(format!("@convention({name}, mangledCType: \"{of}\") "))
        };
        let convention = match self.peek() {
            Some(b'B') => "@convention(block) ",
            Some(b'C') => "@convention(c) ",
            Some(b'M') => "@convention(method) ",
            Some(b'O') => "@convention(objc_method) ",
            Some(b'K') => "@convention(closure) ",
            Some(b'W') => "@convention(witness_method) ",
            _ if self.take_text("zB") => {
                attributes.push(foreign(self, "block")?.into());
                return Some(());
            }
            _ if self.take_text("zC") => {
                attributes.push(foreign(self, "c")?.into());
                return Some(());
            }
            _ => return Some(()),
        };
        self.at += 1;
        attributes.push(convention.into());
        Some(())
    }

    /// How each parameter and result is handed over; their types are on the stack.
    fn implementation_parts(&mut self) -> Option<Vec<Part>> {
        let mut parts = Vec::new();
        while let Some(convention) = self.peek().and_then(parameter_convention) {
            self.at += 1;
            let mut marks = vec![convention];
            for (byte, mark) in [
                (b'w', "@noDerivative "),
                (b'T', "sending "),
                (b'I', "isolated "),
                (b'L', "sil_implicit_leading_param "),
            ] {
                if self.take(byte) {
                    marks.push(mark);
                }
            }
            parts.push(Part::new(marks, true));
        }
        while let Some(convention) = self.peek().and_then(result_convention) {
            self.at += 1;
            let mut marks = vec![convention];
            if self.take(b'w') {
                marks.push("@noDerivative ");
            }
            parts.push(Part::new(marks, false));
        }
        while self.take(b'Y') {
            let convention = parameter_convention(self.next()?)?;
            parts.push(Part::new(vec!["@yields ", convention], false));
        }
        if self.take(b'z') {
            let convention = result_convention(self.next()?)?;
            parts.push(Part::new(vec!["@error ", convention], false));
        }
        self.take(b'_').then_some(parts)
    }
}

/// A parameter or a result of a function as it is called.
struct Part {
    marks: Vec<&'static str>,
    kind: Option<Id>,
    is_parameter: bool,
}

impl Part {
    fn new(marks: Vec<&'static str>, is_parameter: bool) -> Self {
        Self {
            marks,
            kind: None,
            is_parameter,
        }
    }

    fn tell(pieces: &mut Vec<Piece>, parts: &[Self]) {
        for (number, part) in parts.iter().enumerate() {
            if number > 0 {
                pieces.push(", ".into());
            }
            pieces.extend(part.marks.iter().copied().map(Piece::from));
            pieces.extend(part.kind.map(Piece::Part));
        }
    }
}

fn parameter_convention(byte: u8) -> Option<&'static str> {
    Some(match byte {
        b'i' => "@in ",
        b'c' => "@in_constant ",
        b'l' => "@inout ",
        b'b' => "@inout_aliasable ",
        b'n' => "@in_guaranteed ",
        b'X' => "@in_cxx ",
        b'x' => "@owned ",
        b'g' => "@guaranteed ",
        b'e' => "@deallocating ",
        b'y' => "@unowned ",
        b'v' => "@pack_owned ",
        b'p' => "@pack_guaranteed ",
        b'm' => "@pack_inout ",
        _ => return None,
    })
}

fn result_convention(byte: u8) -> Option<&'static str> {
    Some(match byte {
        b'r' => "@out ",
        b'o' => "@owned ",
        b'd' => "@unowned ",
        b'u' => "@unowned_inner_pointer ",
        b'a' => "@autoreleased ",
        b'k' => "@pack_out ",
        b'l' => "@guaranteed_address ",
        b'g' => "@guaranteed ",
        b'm' => "@inout ",
        _ => return None,
    })
}

fn differentiable(byte: u8) -> Option<&'static str> {
    Some(match byte {
        b'd' => "",
        b'f' => "(_forward)",
        b'r' => "(reverse)",
        b'l' => "(_linear)",
        _ => return None,
    })
}

pub fn separated(pieces: &mut Vec<Piece>, parts: &[Id]) {
    for (number, &part) in parts.iter().enumerate() {
        if number > 0 {
            pieces.push(", ".into());
        }
        pieces.push(part.into());
    }
}
