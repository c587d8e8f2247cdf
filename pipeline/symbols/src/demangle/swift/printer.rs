//! A name as people read it.

use super::super::{MAX_NAME, Style};
use super::tree::{
    Also, Convention, Effect, FunctionType, Id, Labels, Node, Piece, Signature, Tree,
};
use super::{DEPTH, STEPS, symbol};

/// Of one depth, in one list.
const MAX_PARAMETERS: u32 = 128;

pub struct Printer<'t> {
    tree: &'t Tree,
    pub text: String,
    is_full: bool,
    /// How deep symbols in names of symbols may still be.
    symbols: u32,
    is_specialized: bool,
    /// What may still be told: parts may be in others many times.
    steps: usize,
    depth: u32,
}

/// What is told of a declaration behind its name.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Nothing,
    /// What type it has.
    Type,
    /// What it takes and returns.
    Function,
}

struct Declaration<'t> {
    context: Id,
    name: Name<'t>,
    kind: Kind,
    of: Option<Id>,
    labels: &'t Labels,
    arguments: &'t [Id],
    /// Between it and the context, if that is told behind it.
    joint: &'static str,
}

enum Name<'t> {
    Part(Id),
    Text(&'static str),
    /// Behind the name of a file of which it is private.
    Private(Id, &'static str),
    Accessor(&'t Name<'t>, &'static str),
    /// Of several words, and of what they are told.
    Aside(&'t str, Option<Id>),
}

const NONE: &Labels = &None;

impl<'t> Printer<'t> {
    pub fn new(tree: &'t Tree, style: Style, symbols: u32) -> Self {
        Self {
            tree,
            text: String::new(),
            is_full: style == Style::Full,
            symbols,
            is_specialized: false,
            steps: STEPS,
            depth: DEPTH,
        }
    }

    fn write(&mut self, text: &str) -> Option<()> {
        self.text.push_str(text);
        (self.text.len() <= MAX_NAME).then_some(())
    }

    fn step(&mut self) -> Option<()> {
        self.steps = self.steps.checked_sub(1)?;
        Some(())
    }

    fn nested<T>(&mut self, part: impl FnOnce(&mut Self) -> Option<T>) -> Option<T> {
        self.depth = self.depth.checked_sub(1)?;
        let told = part(self)?;
        self.depth += 1;
        Some(told)
    }

    pub fn tell(&mut self, id: Id) -> Option<()> {
        self.told(id, false).map(drop)
    }

    /// What it is in is given back if that is to be told behind what `is_prefix` of it.
    fn told(&mut self, id: Id, is_prefix: bool) -> Option<Option<Id>> {
        self.step()?;
        self.nested(|it| it.node(id, is_prefix))
    }

    fn list(&mut self, ids: &[Id], joint: &str) -> Option<()> {
        for (number, &id) in ids.iter().enumerate() {
            if number > 0 {
                self.write(joint)?;
            }
            self.tell(id)?;
        }
        Some(())
    }

    pub fn pieces(&mut self, pieces: &[Piece]) -> Option<()> {
        for piece in pieces {
            match piece {
                Piece::Text(text) => self.write(text)?,
                Piece::Owned(text) => self.write(text)?,
                Piece::Part(id) => self.tell(*id)?,
                Piece::Symbol(name) => self.symbol(name)?,
                Piece::Full(text) if self.is_full => self.write(text)?,
                Piece::FullOwned(text) if self.is_full => self.write(text)?,
                Piece::FullPart(id) if self.is_full => self.tell(*id)?,
                Piece::Short(text) if !self.is_full => self.write(text)?,
                Piece::Full(_) | Piece::FullOwned(_) | Piece::FullPart(_) | Piece::Short(_) => {}
            }
        }
        Some(())
    }

    fn symbol(&mut self, name: &str) -> Option<()> {
        let shown = self.symbols.checked_sub(1);
        let shown = shown.and_then(|symbols| symbol(name, Style::Full, symbols));
        self.write(shown.as_deref().unwrap_or(name))
    }

    fn node(&mut self, id: Id, is_prefix: bool) -> Option<Option<Id>> {
        match self.tree.get(id) {
            Node::Identifier(text) | Node::Suffix(text) => self.write(text)?,
            Node::Builtin(name) => {
                self.write("Builtin.")?;
                self.write(name)?;
            }
            Node::TheTuple => self.write("Builtin.TheTupleType")?,
            Node::Operator(text, place) => {
                self.write(text)?;
                self.write(place)?;
            }
            Node::Private { file, name } => self.private(file, *name)?,
            Node::Local { name, number } => {
                self.tell(*name)?;
                self.write(&format!(" #{number}"))?;
            }
            Node::Related { name, kind } => {
                self.write(&format!("related decl '{kind}' for "))?;
                self.tell(*name)?;
            }
            Node::Module(name) if self.is_full => self.write(name)?,
            Node::Module(_) => {}
            Node::Extension {
                module,
                of,
                signature,
            } => {
                if self.is_full {
                    self.write("(extension in ")?;
                    self.tell(*module)?;
                    self.write("):")?;
                }
                self.tell(*of)?;
                if let Some(signature) = signature {
                    self.tell(*signature)?;
                }
            }
            Node::Static(of) => {
                self.write("static ")?;
                self.tell(*of)?;
            }
            Node::OpaqueResultOf(of) => {
                self.write("<<opaque return type of ")?;
                self.tell(*of)?;
                self.write(">>")?;
            }
            Node::Bound { .. } => self.bound(id)?,
            Node::FunctionType(function) => self.function(NONE, function, true)?,
            Node::Tuple(_) => self.parameters(NONE, id, true)?,
            Node::Generic { signature, of } => {
                self.tell(*signature)?;
                if self.wants_space(*of) {
                    self.write(" ")?;
                }
                self.tell(*of)?;
            }
            Node::Parameter { depth, index } => self.write(&parameter(*depth, *index))?,
            Node::Protocols { protocols, also } => self.protocols(protocols, *also)?,
            Node::ExistentialMetatype { representation, of } => {
                self.write(representation)?;
                self.tell(*of)?;
                self.write(".Type")?;
            }
            Node::InOut(of) => {
                self.write("inout ")?;
                self.tell(*of)?;
            }
            Node::Signature(signature) => self.signature(signature)?,
            Node::Associated { name, protocol } => {
                if let Some(protocol) = protocol {
                    self.tell(*protocol)?;
                    self.write(".")?;
                }
                self.tell(*name)?;
            }
            Node::Requirement(pieces) | Node::Phrase { pieces, .. } | Node::Attribute(pieces) => {
                self.pieces(pieces)?
            }
            Node::Specialization(pieces) if self.is_full => self.pieces(pieces)?,
            Node::Specialization(_) if self.is_specialized => {}
            Node::Specialization(_) => {
                self.is_specialized = true;
                self.write("specialized ")?;
            }
            Node::PartialApply(text) if self.is_full => self.write(text)?,
            Node::PartialApply(_) => self.write("partial apply")?,
            Node::PackMarker(_)
            | Node::ValueMarker { .. }
            | Node::Effect(_)
            | Node::ConformanceReference
            | Node::Conformance
            | Node::Retroactive
            | Node::Empty
            | Node::First
            | Node::Variadic => return None,
            _ => return self.declaration(id, is_prefix),
        }
        Some(None)
    }

    fn declaration(&mut self, id: Id, is_prefix: bool) -> Option<Option<Id>> {
        let declaration = self.declared(id)?;
        match self.tree.get(id) {
            Node::Accessor { storage, what } => {
                let of = self.declared(*storage)?;
                let name = Name::Accessor(&of.name, what);
                let (kind, joint) = (Kind::Type, of.joint);
                let of = Declaration {
                    name,
                    kind,
                    joint,
                    ..declaration
                };
                self.declare(id, &of, is_prefix)
            }
            _ => self.declare(id, &declaration, is_prefix),
        }
    }

    /// What is told of it; of an accessor, what it is of.
    fn declared(&self, id: Id) -> Option<Declaration<'t>> {
        let plain = |context: &Id, name| Declaration {
            context: *context,
            name,
            kind: Kind::Nothing,
            of: None,
            labels: NONE,
            arguments: &[],
            joint: " in ",
        };
        let typed = |context: &Id, name, kind, of: &Id, labels: &'t Labels| Declaration {
            kind,
            of: Some(*of),
            labels,
            ..plain(context, name)
        };
        Some(match self.tree.get(id) {
            Node::Nominal { context, name, .. } => plain(context, Name::Part(*name)),
            Node::Function {
                context,
                name,
                labels,
                kind,
            } => typed(context, Name::Part(*name), Kind::Function, kind, labels),
            Node::BoundFunction {
                function,
                arguments,
            } => match self.tree.get(*function) {
                Node::BoundFunction { .. } => return None,
                _ => Declaration {
                    arguments,
                    ..self.declared(*function)?
                },
            },
            Node::Variable {
                context,
                name,
                labels,
                kind,
            } => typed(context, Name::Part(*name), Kind::Type, kind, labels),
            Node::Subscript {
                context,
                labels,
                kind,
            } => typed(
                context,
                Name::Text("subscript"),
                Kind::Function,
                kind,
                labels,
            ),
            Node::Accessor { storage, .. } => match self.tree.get(*storage) {
                Node::Accessor { .. } => return None,
                _ => self.declared(*storage)?,
            },
            Node::Initializer {
                context,
                labels,
                kind,
                private,
                allocates,
            } => {
                let name = match allocates {
                    true => "__allocating_init",
                    false => "init",
                };
                let name = private.map_or(Name::Text(name), |it| Name::Private(it, name));
                typed(context, name, Kind::Function, kind, labels)
            }
            Node::Member { context, what } => plain(context, Name::Text(what)),
            Node::Aside {
                context,
                what,
                name,
                kind,
                joint,
            } => Declaration {
                kind: match kind {
                    Some(_) if self.is_full => Kind::Function,
                    _ => Kind::Nothing,
                },
                of: *kind,
                joint,
                ..plain(context, Name::Aside(what, *name))
            },
            _ => return None,
        })
    }

    fn declare(&mut self, id: Id, what: &Declaration<'_>, is_prefix: bool) -> Option<Option<Id>> {
        let is_of_words = self.is_of_words(&what.name);
        if is_prefix && (what.kind != Kind::Nothing || is_of_words) {
            return Some(Some(id));
        }
        let behind;
        if is_of_words {
            behind = Some(what.context);
        } else {
            let before = self.text.len();
            behind = self.told(what.context, true)?;
            if self.text.len() > before {
                self.write(".")?;
            }
        }
        self.name(&what.name)?;
        if let Some(of) = what.of {
            self.kind(what, of, is_of_words)?;
        }
        if is_prefix {
            return Some(behind);
        }
        if let Some(context) = behind {
            let before = self.text.len();
            self.write(what.joint)?;
            let start = self.text.len();
            self.tell(context)?;
            // The module that it is in has no name in a short one.
            if self.text.len() == start {
                self.text.truncate(before);
            }
        }
        Some(None)
    }

    fn is_of_words(&self, name: &Name<'_>) -> bool {
        match name {
            Name::Part(id) => matches!(self.tree.get(*id), Node::Local { .. }),
            Name::Text(_) | Name::Private(..) => false,
            Name::Accessor(of, _) => self.is_of_words(of),
            Name::Aside(..) => true,
        }
    }

    fn name(&mut self, name: &Name<'_>) -> Option<()> {
        match name {
            Name::Part(id) => self.tell(*id),
            Name::Text(text) => self.write(text),
            Name::Private(file, text) => {
                if self.is_full {
                    self.tell(*file)?;
                    self.write(".")?;
                }
                self.write(text)
            }
            Name::Accessor(of, what) if self.is_of_words(of) => {
                self.write(what)?;
                self.write(" of ")?;
                self.name(of)
            }
            Name::Accessor(of, what) => {
                self.name(of)?;
                self.write(".")?;
                self.write(what)
            }
            Name::Aside(text, of) => {
                self.write(text)?;
                if let Some(of) = of {
                    self.write(" of ")?;
                    self.tell(*of)?;
                }
                Some(())
            }
        }
    }

    fn private(&mut self, file: &str, name: Option<Id>) -> Option<()> {
        match name {
            Some(name) if self.is_full => {
                self.write("(")?;
                self.tell(name)?;
                self.write(" in ")?;
                self.write(file)?;
                self.write(")")
            }
            Some(name) => self.tell(name),
            None if self.is_full => {
                self.write("(in ")?;
                self.write(file)?;
                self.write(")")
            }
            None => Some(()),
        }
    }

    /// What a declaration takes and returns, or which type it has.
    fn kind(&mut self, what: &Declaration<'_>, of: Id, is_of_words: bool) -> Option<()> {
        match what.kind {
            Kind::Nothing => return Some(()),
            Kind::Function if self.is_function(of) => {
                if self.is_full && (is_of_words || self.wants_space(of)) {
                    self.write(" ")?;
                }
            }
            _ if self.is_full => self.write(" : ")?,
            _ => return Some(()),
        }
        if what.labels.is_none() && what.arguments.is_empty() && self.is_full {
            return self.tell(of);
        }
        if !what.arguments.is_empty() {
            self.write("<")?;
            self.list(what.arguments, ", ")?;
            self.write(">")?;
        }
        let mut of = of;
        if let Node::Generic {
            signature,
            of: function,
        } = self.tree.get(of)
        {
            if what.arguments.is_empty() {
                self.tell(*signature)?;
            }
            of = *function;
        }
        match self.tree.get(of) {
            Node::FunctionType(function) => self.function(what.labels, function, self.is_full),
            _ => self.tell(of),
        }
    }

    fn is_function(&self, id: Id) -> bool {
        match self.tree.get(id) {
            Node::Generic { of, .. } => {
                matches!(self.tree.get(*of), Node::FunctionType(_))
            }
            Node::FunctionType(function) => !matches!(
                function.convention,
                Convention::Marked("@autoclosure ") | Convention::Foreign("block", _)
            ),
            _ => false,
        }
    }

    fn wants_space(&self, id: Id) -> bool {
        match self.tree.get(id) {
            Node::Generic { .. } => false,
            Node::FunctionType(function) => matches!(
                function.convention,
                Convention::Marked(_) | Convention::Foreign(..)
            ),
            _ => true,
        }
    }

    fn bound(&mut self, id: Id) -> Option<()> {
        let Node::Bound {
            base,
            arguments,
            is_retroactive,
            ..
        } = self.tree.get(id)
        else {
            return None;
        };
        let sugar = match self.is_full || *is_retroactive {
            true => None,
            false => self.sugared(*base),
        };
        match (sugar, &arguments[..]) {
            (Some("Optional"), [of]) => {
                let (open, close) = match self.tree.is_simple(*of) {
                    true => ("", "?"),
                    false => ("(", ")?"),
                };
                self.write(open)?;
                self.tell(*of)?;
                self.write(close)
            }
            (Some("Array"), [of]) => {
                self.write("[")?;
                self.tell(*of)?;
                self.write("]")
            }
            (Some("Dictionary"), [_, _]) => {
                self.write("[")?;
                self.list(arguments, " : ")?;
                self.write("]")
            }
            _ => {
                self.tell(*base)?;
                self.write("<")?;
                self.list(arguments, ", ")?;
                self.write(">")
            }
        }
    }

    /// The name of a type of the standard library.
    fn sugared(&self, id: Id) -> Option<&'t str> {
        let Node::Nominal { context, name, .. } = self.tree.get(id) else {
            return None;
        };
        match (self.tree.get(*context), self.tree.get(*name)) {
            (Node::Module(module), Node::Identifier(name)) if module == "Swift" => Some(name),
            _ => None,
        }
    }

    fn function(&mut self, labels: &Labels, function: &FunctionType, is_told: bool) -> Option<()> {
        if !is_told {
            return self.parameters(labels, function.parameters, false);
        }
        match &function.convention {
            Convention::Plain | Convention::NoEscape | Convention::Uncurried => {}
            Convention::Marked(mark) => self.write(mark)?,
            Convention::Foreign(name, None) => self.write(&format!("@convention({name}) "))?,
            Convention::Foreign(name, Some(of)) => {
                self.write(&format!("@convention({name}, mangledCType: \"{of}\") "))?;
            }
        }
        // From the first that is told to the last.
        for effect in &function.effects {
            match effect {
                Effect::IsolatedAny => self.write("@isolated(any) ")?,
                Effect::Actor(actor) => {
                    self.write("@")?;
                    self.tell(*actor)?;
                    self.write(" ")?;
                }
                _ => {}
            }
        }
        for effect in &function.effects {
            if let Effect::Differentiable(text) = effect {
                self.write(text)?;
            }
        }
        let has = |wanted| function.effects.contains(&wanted);
        if has(Effect::NonIsolated) {
            self.write("nonisolated(nonsending) ")?;
        }
        if has(Effect::Sendable) {
            self.write("@Sendable ")?;
        }
        self.parameters(labels, function.parameters, true)?;
        if has(Effect::Async) {
            self.write(" async")?;
        }
        for effect in &function.effects {
            match effect {
                Effect::Throws(None) => self.write(" throws")?,
                Effect::Throws(Some(error)) => {
                    self.write(" throws(")?;
                    self.tell(*error)?;
                    self.write(")")?;
                }
                _ => {}
            }
        }
        self.write(" -> ")?;
        if has(Effect::SendingResult) {
            self.write("sending ")?;
        }
        self.tell(function.result)
    }

    /// With types or, in short names, with labels alone.
    fn parameters(&mut self, labels: &Labels, of: Id, has_types: bool) -> Option<()> {
        let Node::Tuple(elements) = self.tree.get(of) else {
            if !has_types {
                return self.write("(_:)");
            }
            self.write("(")?;
            self.tell(of)?;
            return self.write(")");
        };
        let labels = labels.as_deref().filter(|it| !it.is_empty());
        self.write("(")?;
        for (number, element) in elements.iter().enumerate() {
            if number > 0 && has_types {
                self.write(", ")?;
            }
            self.step()?;
            let own = element.label.as_deref();
            let label = match labels {
                Some(labels) => Some(labels.get(number)?.as_deref().unwrap_or("_")),
                None if has_types => None,
                None => Some(own.unwrap_or("_")),
            };
            if let Some(label) = label {
                self.write(label)?;
                self.write(if has_types { ": " } else { ":" })?;
            }
            if !has_types {
                continue;
            }
            if let Some(label) = own {
                self.write(label)?;
                self.write(": ")?;
            }
            self.tell(element.kind)?;
            if element.is_variadic {
                self.write("...")?;
            }
        }
        self.write(")")
    }

    fn protocols(&mut self, protocols: &[Id], also: Also) -> Option<()> {
        if let Also::Class(class) = also {
            self.tell(class)?;
            self.write(" & ")?;
        }
        self.list(protocols, " & ")?;
        match also {
            Also::Nothing if protocols.is_empty() => self.write("Any"),
            Also::AnyObject if protocols.is_empty() => self.write("Swift.AnyObject"),
            Also::AnyObject => self.write(" & Swift.AnyObject"),
            _ => Some(()),
        }
    }

    fn signature(&mut self, signature: &Signature) -> Option<()> {
        let is_pack = |id: &&Id| matches!(self.tree.get(**id), Node::PackMarker(_));
        let packs: Vec<(u32, u32)> = signature
            .requirements
            .iter()
            .filter(is_pack)
            .filter_map(|id| match self.tree.get(*id) {
                Node::PackMarker(parameter) => self.place(*parameter),
                _ => None,
            })
            .collect();
        let values: Vec<((u32, u32), Id)> = signature
            .requirements
            .iter()
            .filter_map(|id| match self.tree.get(*id) {
                Node::ValueMarker { parameter, of } => Some((self.place(*parameter)?, *of)),
                _ => None,
            })
            .collect();
        self.write("<")?;
        for (depth, &count) in signature.counts.iter().enumerate() {
            if depth > 0 {
                self.write("><")?;
            }
            for index in 0..count {
                if index > 0 {
                    self.write(", ")?;
                }
                if index >= MAX_PARAMETERS {
                    self.write("...")?;
                    break;
                }
                let place = (depth as u32, index);
                if packs.contains(&place) {
                    self.write("each ")?;
                }
                let value = values.iter().find(|(it, _)| *it == place);
                if value.is_some() {
                    self.write("let ")?;
                }
                self.write(&parameter(place.0, index))?;
                if let Some((_, of)) = value {
                    self.write(": ")?;
                    self.tell(*of)?;
                }
            }
        }
        if self.is_full {
            let mut joint = " where ";
            for &id in &signature.requirements {
                if let Node::Requirement(_) = self.tree.get(id) {
                    self.write(joint)?;
                    self.tell(id)?;
                    joint = ", ";
                }
            }
        }
        self.write(">")
    }

    fn place(&self, id: Id) -> Option<(u32, u32)> {
        match self.tree.get(id) {
            Node::Parameter { depth, index } => Some((*depth, *index)),
            _ => None,
        }
    }
}

/// `A` to `Z`, then `AB`; with the depth behind it where there are several.
fn parameter(depth: u32, mut index: u32) -> String {
    let mut name = String::new();
    loop {
        name.push(char::from(b'A' + (index % 26) as u8));
        index /= 26;
        if index == 0 {
            break;
        }
    }
    if depth > 0 {
        name += &depth.to_string();
    }
    name
}
