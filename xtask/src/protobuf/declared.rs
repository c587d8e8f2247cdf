//! What the sources declare.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, bail};
use syn::punctuated::Punctuated;
use syn::{Attribute, Expr, ExprLit, Fields, ImplItem, Item, Lit, Meta, Token, Type};

/// What one file declares.
#[derive(Default)]
pub struct Declarations {
    pub found: Vec<Declaration>,
}

pub struct Declaration {
    pub module: Vec<String>,
    pub name: String,
    /// The messages or enumerations that its documentation begins with.
    pub stands_for: Vec<String>,
    pub content: Content,
}

pub enum Content {
    Message(Vec<Member>),
    /// The variants belong to each message that has a field of this type.
    Oneof(Vec<Member>),
    Enumeration(Vec<(String, i32)>),
}

/// A field of a message, or a variant of a oneof.
pub struct Member {
    pub name: String,
    pub kind: Kind,
    pub label: Label,
    /// Several for a oneof.
    pub tags: Vec<u32>,
}

pub enum Kind {
    Scalar(String),
    /// The type's name.
    Message(String),
    Enumeration(String),
    Oneof(String),
    Map(String),
}

#[derive(Clone, Copy)]
pub enum Label {
    None,
    Optional,
    Repeated,
}

impl Declarations {
    pub fn parse(text: &str) -> Result<Self> {
        let mut declared = Self::default();
        declared.add(&syn::parse_file(text)?.items, &[])?;
        Ok(declared)
    }

    fn add(&mut self, items: &[Item], module: &[String]) -> Result<()> {
        let named = named_numbers(items)?;
        for item in items {
            let (ident, attributes, content) = match item {
                Item::Mod(inner) => {
                    if let Some((_, items)) = &inner.content {
                        let inner = [module, &[inner.ident.to_string()]].concat();
                        self.add(items, &inner)?;
                    }
                    continue;
                }
                Item::Struct(item) if derives(&item.attrs, "Message")? => {
                    let fields = item.fields.iter().map(|field| {
                        let name = field.ident.as_ref().map(syn::ext::IdentExt::unraw);
                        let name = name.context("a tuple is not a message")?.to_string();
                        Member::parse(name, &field.attrs, &field.ty)
                    });
                    let fields: Result<_> = fields.collect();
                    (&item.ident, &item.attrs, fields.map(Content::Message))
                }
                Item::Struct(item) => match named.get(&item.ident.to_string()) {
                    Some(values) => {
                        let values = Content::Enumeration(values.clone());
                        (&item.ident, &item.attrs, Ok(values))
                    }
                    None => continue,
                },
                Item::Enum(item) if derives(&item.attrs, "Oneof")? => {
                    let variants = item.variants.iter().map(|variant| {
                        let name = variant.ident.to_string();
                        match &variant.fields {
                            Fields::Unnamed(fields) => {
                                let field = fields.unnamed.first();
                                let field = field.context("a variant without a value")?;
                                Member::parse(name, &variant.attrs, &field.ty)
                            }
                            _ => bail!("`{name}` does not hold a value"),
                        }
                    });
                    let variants: Result<_> = variants.collect();
                    (&item.ident, &item.attrs, variants.map(Content::Oneof))
                }
                Item::Enum(item) if derives(&item.attrs, "Enumeration")? => {
                    let values = item.variants.iter().map(|variant| {
                        let number = variant.discriminant.as_ref();
                        let number = number.and_then(|(_, number)| integer(number));
                        let name = variant.ident.to_string();
                        Ok((name, number.context("a variant without a number")?))
                    });
                    let values: Result<_> = values.collect();
                    (&item.ident, &item.attrs, values.map(Content::Enumeration))
                }
                _ => continue,
            };
            self.found.push(Declaration {
                module: module.to_vec(),
                name: ident.to_string(),
                stands_for: stands_for(attributes),
                content: content.with_context(|| format!("`{ident}`"))?,
            });
        }
        Ok(())
    }
}

impl Kind {
    pub fn name(&self) -> &str {
        match self {
            Self::Scalar(name)
            | Self::Message(name)
            | Self::Enumeration(name)
            | Self::Oneof(name)
            | Self::Map(name) => name,
        }
    }
}

impl Member {
    fn parse(name: String, attributes: &[Attribute], of: &Type) -> Result<Self> {
        let parsed = Self::parse_attribute(&name, attributes, of);
        parsed.with_context(|| format!("failed to understand the attribute `prost` of `{name}`"))
    }

    fn parse_attribute(name: &str, attributes: &[Attribute], of: &Type) -> Result<Self> {
        let mut attributes = attributes.iter().filter(|it| it.path().is_ident("prost"));
        let (Some(attribute), None) = (attributes.next(), attributes.next()) else {
            bail!("expected one attribute");
        };
        let (mut kind, mut label, mut tags) = (None, Label::None, Vec::new());
        for meta in attribute.parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated)? {
            let word = meta.path().require_ident()?.to_string();
            let value = match &meta {
                Meta::Path(_) => None,
                Meta::NameValue(pair) => Some(text(&pair.value).context("expected a string")?),
                Meta::List(_) => bail!("unknown list `{word}`"),
            };
            let found = match (word.as_str(), value) {
                ("optional", None) => {
                    label = Label::Optional;
                    continue;
                }
                ("repeated", None) => {
                    label = Label::Repeated;
                    continue;
                }
                ("tag" | "tags", Some(list)) => {
                    for tag in list.split(',') {
                        tags.push(tag.trim().parse().context("a tag is a number")?);
                    }
                    continue;
                }
                ("message", None) => Kind::Message(inner(of).context("expected a type's name")?),
                ("enumeration", Some(name)) => Kind::Enumeration(name),
                ("oneof", Some(name)) => Kind::Oneof(name),
                ("bytes", _) => Kind::Scalar(word),
                ("map" | "btree_map" | "hash_map", Some(types)) => {
                    Kind::Map(format!("map<{}>", types.replace(' ', "")))
                }
                (
                    "bool" | "double" | "float" | "int32" | "int64" | "string" | "uint32"
                    | "uint64",
                    None,
                ) => Kind::Scalar(word),
                _ => bail!("unknown option `{word}`"),
            };
            if kind.replace(found).is_some() {
                bail!("expected one type");
            }
        }
        let name = name.to_owned();
        Ok(Self {
            name,
            kind: kind.context("expected a type")?,
            label,
            tags,
        })
    }
}

/// The integers and the lists of names among the constants of each type that implements `Names`.
fn named_numbers(items: &[Item]) -> Result<BTreeMap<String, Vec<(String, i32)>>> {
    let mut found = BTreeMap::<String, Vec<(String, i32)>>::new();
    let mut enumerations = BTreeSet::new();
    for item in items {
        let Item::Impl(item) = item else { continue };
        let Some(name) = inner(&item.self_ty) else {
            continue;
        };
        let of = item
            .trait_
            .as_ref()
            .and_then(|(path, _)| path.segments.last());
        if of.is_some_and(|of| of.ident == "Names") {
            enumerations.insert(name.clone());
        }
        let values = found.entry(name).or_default();
        for constant in &item.items {
            let ImplItem::Const(constant) = constant else {
                continue;
            };
            if let Some(number) = integer(&constant.expr) {
                values.push((constant.ident.to_string(), number));
            }
            if let Expr::Reference(list) = &constant.expr
                && let Expr::Array(list) = &*list.expr
            {
                for (number, name) in list.elems.iter().enumerate() {
                    let name = text(name).context("expected a name")?;
                    values.push((name, i32::try_from(number)?));
                }
            }
        }
    }
    found.retain(|name, _| enumerations.contains(name));
    Ok(found)
}

fn derives(attributes: &[Attribute], name: &str) -> Result<bool> {
    for attribute in attributes.iter().filter(|it| it.path().is_ident("derive")) {
        let paths = Punctuated::<syn::Path, Token![,]>::parse_terminated;
        let paths = attribute.parse_args_with(paths)?;
        let mut last = paths.iter().filter_map(|path| path.segments.last());
        if last.any(|last| last.ident == name) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The names in backquotes in the first paragraph of a documentation that begins with one.
fn stands_for(attributes: &[Attribute]) -> Vec<String> {
    let lines = attributes
        .iter()
        .filter_map(|attribute| match &attribute.meta {
            Meta::NameValue(pair) if pair.path.is_ident("doc") => text(&pair.value),
            _ => None,
        });
    let lines = lines.map(|line| line.trim().to_owned());
    let lines: Vec<String> = lines.take_while(|line| !line.is_empty()).collect();
    let paragraph = lines.join(" ");
    if !paragraph.starts_with('`') {
        return Vec::new();
    }
    let quoted = paragraph.split('`').skip(1).step_by(2);
    let names = quoted.filter(|name| {
        name.contains('.')
            && name
                .chars()
                .all(|it| it.is_alphanumeric() || "._".contains(it))
    });
    names.map(str::to_owned).collect()
}

/// The type's name, without `Option` or `Vec` around it.
fn inner(of: &Type) -> Option<String> {
    let Type::Path(path) = of else { return None };
    let last = path.path.segments.last()?;
    match &last.arguments {
        syn::PathArguments::AngleBracketed(arguments) => match arguments.args.first()? {
            syn::GenericArgument::Type(of) => inner(of),
            _ => None,
        },
        _ => Some(last.ident.to_string()),
    }
}

fn text(expression: &Expr) -> Option<String> {
    match expression {
        Expr::Lit(ExprLit {
            lit: Lit::Str(text),
            ..
        }) => Some(text.value()),
        _ => None,
    }
}

fn integer(expression: &Expr) -> Option<i32> {
    match expression {
        Expr::Lit(ExprLit {
            lit: Lit::Int(number),
            ..
        }) => number.base10_parse().ok(),
        _ => None,
    }
}
