//! What is declared: functions, variables, initializers, closures, and what macros make.

use super::parser::{Item, Parser};
use super::tree::{Convention, Id, Labels, Node};

impl Parser<'_> {
    pub fn plain_function(&mut self) -> Option<Item> {
        let signature = self.pop_signature();
        let mut kind = self.pop_function_type(Convention::Plain)?;
        let labels = self.pop_labels(kind)?;
        if let Some(signature) = signature {
            kind = self.tree.add(Node::Generic {
                signature,
                of: kind,
            })?;
        }
        self.function(kind, labels)
    }

    fn function(&mut self, kind: Id, labels: Labels) -> Option<Item> {
        let name = self.pop_name()?;
        let context = self.pop_context()?;
        self.node(Node::Function {
            context,
            name,
            labels,
            kind,
        })
    }

    /// Of the parameters of a function of that type, which may have no list of labels.
    fn pop_labels(&mut self, kind: Id) -> Option<Labels> {
        if self.is_old {
            return Some(None);
        }
        if self.pop_empty() {
            return Some(Some(Vec::new()));
        }
        let function = match self.tree.get(kind) {
            Node::Generic { of, .. } => self.tree.get(*of),
            other => other,
        };
        let Node::FunctionType(function) = function else {
            return Some(None);
        };
        if !matches!(
            function.convention,
            Convention::Plain | Convention::NoEscape
        ) {
            return Some(None);
        }
        let count = match self.tree.get(function.parameters) {
            Node::Tuple(elements) => elements.len(),
            _ => 1,
        };
        if count == 0 {
            return Some(None);
        }
        let mut labels = Vec::new();
        for _ in 0..count {
            labels.push(match self.pop_first() {
                true => None,
                false => Some(self.pop_identifier()?),
            });
        }
        labels.reverse();
        if labels.iter().all(Option::is_none) {
            labels.clear();
        }
        Some(Some(labels))
    }

    pub fn variable(&mut self) -> Option<Item> {
        let kind = self.pop_type()?;
        let labels = self.pop_labels(kind)?;
        let name = self.pop_name()?;
        let context = self.pop_context()?;
        let storage = self.tree.add(Node::Variable {
            context,
            name,
            labels,
            kind,
        })?;
        self.accessor(storage)
    }

    pub fn subscript(&mut self) -> Option<Item> {
        self.pop_private();
        let kind = self.pop_type()?;
        let labels = self.pop_labels(kind)?;
        let context = self.pop_context()?;
        let storage = self.tree.add(Node::Subscript {
            context,
            labels,
            kind,
        })?;
        self.accessor(storage)
    }

    fn accessor(&mut self, storage: Id) -> Option<Item> {
        let what = match self.next()? {
            b'm' => "materializeForSet",
            b's' => "setter",
            b'g' | b'G' => "getter",
            b'w' => "willset",
            b'W' => "didset",
            b'r' => "read",
            b'y' => "read2",
            b'M' => "modify",
            b'x' => "modify2",
            b'i' => "init",
            b'b' => "borrow",
            b'z' => "mutate",
            b'a' => match self.next()? {
                b'O' => "owningMutableAddressor",
                b'o' => "nativeOwningMutableAddressor",
                b'P' => "nativePinningMutableAddressor",
                b'u' => "unsafeMutableAddressor",
                _ => return None,
            },
            b'l' => match self.next()? {
                b'O' => "owningAddressor",
                b'o' => "nativeOwningAddressor",
                b'p' => "nativePinningAddressor",
                b'u' => "unsafeAddressor",
                _ => return None,
            },
            // What is accessed itself.
            b'p' => return Some(Item::Node(storage)),
            _ => return None,
        };
        self.node(Node::Accessor { storage, what })
    }

    fn pop_private(&mut self) -> Option<Id> {
        self.pop_if(|it| matches!(it, Node::Private { .. }))
    }

    pub fn function_entity(&mut self) -> Option<Item> {
        match self.next()? {
            b'D' => self.class_member("__deallocating_deinit"),
            b'Z' => self.class_member("__isolated_deallocating_deinit"),
            b'd' => self.member("deinit"),
            b'E' => self.member("__ivar_destroyer"),
            b'e' => self.member("__ivar_initializer"),
            b'i' => self.of_variable("variable initialization expression"),
            b'P' => self.of_variable("property wrapper backing initializer"),
            b'F' => self.of_variable("property wrapped field init accessor"),
            b'W' => self.of_variable("property wrapper init from projected value"),
            b'C' => self.initializer(true),
            b'c' => self.initializer(false),
            b'U' => self.closure("closure"),
            b'u' => self.closure("implicit closure"),
            b'A' => {
                let number = self.index()?;
                let context = self.pop_context()?;
                self.aside(context, format!("default argument {number}"), " of ")
            }
            b'm' => self.macro_declaration(),
            b'M' => self.macro_expansion(),
            b'p' => {
                // A generic parameter, of which the type is not told.
                self.pop_type()?;
                let name = self.pop_name()?;
                let context = self.pop_context()?;
                self.phrase([context.into(), ".".into(), name.into()])
            }
            _ => None,
        }
    }

    fn member(&mut self, what: &'static str) -> Option<Item> {
        let context = self.pop_context()?;
        self.node(Node::Member { context, what })
    }

    /// What other types than classes have under a shorter name.
    fn class_member(&mut self, what: &'static str) -> Option<Item> {
        let context = self.pop_context()?;
        let is_class = self.is_class(context);
        let what = if is_class { what } else { "deinit" };
        self.node(Node::Member { context, what })
    }

    fn is_class(&self, id: Id) -> bool {
        let class = super::tree::Nominal::Class;
        matches!(self.tree.get(id), Node::Nominal { kind, .. } if *kind == class)
    }

    fn of_variable(&mut self, what: &'static str) -> Option<Item> {
        let context = self.pop_context()?;
        self.aside(context, what.to_owned(), " of ")
    }

    fn aside(&mut self, context: Id, what: String, joint: &'static str) -> Option<Item> {
        self.node(Node::Aside {
            context,
            what,
            name: None,
            kind: None,
            joint,
        })
    }

    fn closure(&mut self, what: &'static str) -> Option<Item> {
        let number = self.index()?.checked_add(1)?;
        let kind = Some(self.pop_type()?);
        let context = self.pop_context()?;
        self.node(Node::Aside {
            context,
            what: format!("{what} #{number}"),
            name: None,
            kind,
            joint: " in ",
        })
    }

    fn initializer(&mut self, allocates: bool) -> Option<Item> {
        let private = self.pop_private();
        let kind = self.pop_type()?;
        let labels = self.pop_labels(kind)?;
        let context = self.pop_context()?;
        self.node(Node::Initializer {
            context,
            labels,
            kind,
            private,
            allocates: allocates && self.is_class(context),
        })
    }

    fn macro_declaration(&mut self) -> Option<Item> {
        let kind = self.pop_type()?;
        let labels = self.pop_labels(kind)?;
        self.function(kind, labels)
    }

    fn macro_expansion(&mut self) -> Option<Item> {
        let role = match self.next()? {
            b'a' => Some("accessor"),
            b'r' => Some("memberAttribute"),
            b'm' => Some("member"),
            b'p' => Some("peer"),
            b'c' => Some("conformance"),
            b'e' => Some("extension"),
            b'q' => Some("preamble"),
            b'b' => Some("body"),
            b'f' => None,
            b'u' => return self.unique_name(),
            _ => return None,
        };
        let Some(role) = role else {
            let name = Some(self.pop_macro_name()?);
            self.pop_private();
            return self.expansion("freestanding macro expansion".to_owned(), name);
        };
        let expanded = self.pop_identifier()?;
        let name = Some(self.pop_name()?);
        self.expansion(format!("{role} macro @{expanded} expansion"), name)
    }

    fn unique_name(&mut self) -> Option<Item> {
        let name = Some(self.pop_macro_name()?);
        self.expansion("unique name".to_owned(), name)
    }

    fn pop_macro_name(&mut self) -> Option<Id> {
        self.pop_if(|it| matches!(it, Node::Identifier(_)))
    }

    fn expansion(&mut self, what: String, name: Option<Id>) -> Option<Item> {
        let context = self.pop_context()?;
        let number = self.index()?.checked_add(1)?;
        self.node(Node::Aside {
            context,
            what: format!("{what} #{number}"),
            name,
            kind: None,
            joint: " in ",
        })
    }
}
