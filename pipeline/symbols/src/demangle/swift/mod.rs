//! Names of Swift, by the grammar of its ABI since Swift 4.
//!
//! A name is a row of operators behind what they apply to, and parts of it may refer to others, so that a short
//! one can stand for one of any length: parts, depth and length are bounded. The text is that of `swift demangle`,
//! full names without `?` and `[]` for optional types and arrays, short ones as by `-simplified`.

mod entities;
mod identifiers;
mod parser;
mod printer;
mod specializations;
mod thunks;
mod tree;
mod types;

use self::parser::{Item, Parser};
use self::printer::Printer;
use self::tree::{Id, Node, Piece};
use super::Style;

/// Parts of a name, and those that are told, again wherever they are referred to.
const STEPS: usize = 1 << 15;
/// Parts in parts.
const DEPTH: u32 = 128;
/// How often one may be put in a row.
const MAX_REPEATED: u32 = 2048;
/// Symbols that are arguments of functions that are arguments.
const SYMBOLS: u32 = 2;

/// `None` where the name is not one of Swift, or has something that is not known here.
pub fn demangle(name: &str, style: Style) -> Option<String> {
    symbol(name, style, SYMBOLS)
}

fn symbol(name: &str, style: Style, symbols: u32) -> Option<String> {
    let is_old = name.starts_with("_T0");
    let starts = [
        "_T0",
        "$s",
        "_$s",
        "$S",
        "_$S",
        "$e",
        "_$e",
        "@__swiftmacro_",
    ];
    let mangled = starts.iter().find_map(|start| name.strip_prefix(start))?;
    let mut parser = Parser::new(mangled, is_old);
    parser.read()?;
    let mut parts = parser.stack;
    let tree = parser.tree;
    let id = |item: &Item| match item {
        Item::Type(id) | Item::Node(id) => *id,
    };
    let is_of = |item: &Item, wanted: fn(&Node) -> bool| match item {
        Item::Type(_) => false,
        Item::Node(id) => wanted(tree.get(*id)),
    };
    let suffix = parts.pop_if(|it| is_of(it, |node| matches!(node, Node::Suffix(_))));
    let mut printer = Printer::new(&tree, style, symbols);
    // What was done to it last is said first.
    while let Some(attribute) = parts.pop_if(|it| is_of(it, Node::is_attribute)) {
        printer.tell(id(&attribute))?;
        let is_applied = matches!(tree.get(id(&attribute)), Node::PartialApply(_));
        if is_applied && !parts.is_empty() {
            printer.pieces(&[Piece::Text(" for ")])?;
        }
    }
    let parts: Vec<Id> = parts.iter().map(id).collect();
    for part in parts {
        printer.tell(part)?;
    }
    if let Some(suffix) = suffix
        && let Node::Suffix(suffix) = tree.get(id(&suffix))
    {
        let suffix = format!(" with unmangled suffix {suffix:?}");
        printer.pieces(&[Piece::FullOwned(suffix)])?;
    }
    let text = printer.text;
    (!text.is_empty()).then_some(text)
}
