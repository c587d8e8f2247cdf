//! Parses YAML into [`Node`]s.
//!
//! `saphyr-parser` parses the syntax into events with locations. This module composes them and adds bounded anchors and
//! merge keys, rejection of duplicate keys, and actionable messages. The text may be hostile (a downloaded file, a
//! fuzzer): depth, size and alias expansion are limited, and recursion does not follow the depth of the input.

pub mod scalar;
mod syntax;
#[cfg(test)]
mod tests;

use std::collections::HashMap;

use saphyr_parser::{Event, Parser, ScalarStyle, ScanError, Span, Tag};

use crate::node::{MAX_DEPTH, Map, MapEntry, Node, Value};
use crate::problem::Problem;
use crate::sources::{Location, SourceId, Sources};

use self::syntax::{Mistake, SyntaxContext};

/// Maximum number of values in a configuration; aliases and expansions count per use.
pub const MAX_NODES: usize = 1 << 18;

/// The remaining limits, shared by all texts of a configuration.
#[derive(Debug)]
pub struct Budget {
    nodes: usize,
    exceeded: bool,
}

impl Default for Budget {
    fn default() -> Self {
        Budget {
            nodes: MAX_NODES,
            exceeded: false,
        }
    }
}

impl Budget {
    /// Whether a size or depth limit was exceeded.
    pub fn is_exceeded(&self) -> bool {
        self.exceeded
    }
}

/// Parses a text with one document. Empty text is null.
pub fn parse(sources: &Sources, id: SourceId) -> Result<Node, Problem> {
    parse_within(sources.text(id), id, 0, &mut Budget::default())
}

/// Like [`parse`], for text to be inserted at nesting level `depth`.
pub fn parse_within(
    text: &str,
    id: SourceId,
    depth: usize,
    budget: &mut Budget,
) -> Result<Node, Problem> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut composer = Composer {
        id,
        depth,
        budget,
        open: Vec::new(),
        anchors: HashMap::new(),
        root: None,
    };
    let mut parser = Parser::new_from_str(text);
    while let Some(event) = parser.next_event() {
        let (event, span) = event.map_err(|error| composer.syntax_error(text, &error))?;
        composer.event(event, span)?;
    }
    let start = composer.location(Span::default());
    Ok(composer
        .root
        .unwrap_or_else(|| Node::new(Value::Null, start)))
}

struct Composer<'b> {
    id: SourceId,
    depth: usize,
    budget: &'b mut Budget,
    /// Open collections, outermost first.
    open: Vec<Open>,
    anchors: HashMap<usize, Anchor>,
    root: Option<Node>,
}

struct Open {
    at: Location,
    anchor: usize,
    /// The opening bracket, which a syntax error may be about.
    bracket: Option<char>,
    items: Items,
    /// Nested levels and values, for the limits.
    height: usize,
    size: usize,
}

enum Items {
    Seq(Vec<Node>),
    Map {
        entries: Map,
        key: Option<(Key, Location)>,
        merges: Vec<Node>,
    },
}

enum Key {
    Name(String),
    Merge,
}

struct Anchor {
    node: Node,
    height: usize,
    size: usize,
}

/// A finished value to be added to its parent.
struct Built {
    node: Node,
    height: usize,
    size: usize,
    /// An unquoted `<<`, which is the merge key.
    merge_key: bool,
}

impl Composer<'_> {
    fn event(&mut self, event: Event<'_>, span: Span) -> Result<(), Problem> {
        let at = self.location(span);
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                let plain = style == ScalarStyle::Plain;
                let value =
                    scalar_value(&text, plain, tag.as_deref()).map_err(|problem| problem.at(at))?;
                self.spend(1, at)?;
                let built = Built {
                    node: Node::new(value, at),
                    height: 0,
                    size: 1,
                    merge_key: plain && tag.is_none() && text == "<<",
                };
                self.finish(anchor, built)
            }
            Event::SequenceStart(anchor, tag) => {
                check_collection_tag(tag.as_deref(), "seq").map_err(|problem| problem.at(at))?;
                self.begin(at, span, anchor, Items::Seq(Vec::new()))
            }
            Event::MappingStart(anchor, tag) => {
                check_collection_tag(tag.as_deref(), "map").map_err(|problem| problem.at(at))?;
                let items = Items::Map {
                    entries: Map::new(),
                    key: None,
                    merges: Vec::new(),
                };
                self.begin(at, span, anchor, items)
            }
            Event::SequenceEnd | Event::MappingEnd => self.end(),
            Event::Alias(anchor) => {
                let Some(Anchor { node, height, size }) = self.anchors.get(&anchor) else {
                    return Err(
                        Problem::new("the anchored value contains an alias to itself").at(at),
                    );
                };
                let (height, size) = (*height, *size);
                if self.depth + self.open.len() + height > MAX_DEPTH {
                    return Err(self.exceeded(too_deep(at)));
                }
                // Check the budget before copying.
                if size > self.budget.nodes {
                    return Err(self.exceeded(too_many(at)));
                }
                self.budget.nodes -= size;
                let node = node.clone();
                let built = Built {
                    node,
                    height,
                    size,
                    merge_key: false,
                };
                self.finish(0, built)
            }
            Event::DocumentStart(_) if self.root.is_some() => {
                Err(Problem::new("more than one YAML document")
                    .at(at)
                    .help("use one document per file, and merge several files with `--config`"))
            }
            Event::DocumentStart(_)
            | Event::DocumentEnd
            | Event::StreamStart
            | Event::StreamEnd
            | Event::Nothing => Ok(()),
        }
    }

    fn begin(
        &mut self,
        at: Location,
        span: Span,
        anchor: usize,
        items: Items,
    ) -> Result<(), Problem> {
        if self.depth + self.open.len() >= MAX_DEPTH {
            return Err(self.exceeded(too_deep(at)));
        }
        self.spend(1, at)?;
        let bracket = match (&items, span.is_empty()) {
            (_, true) => None,
            (Items::Seq(_), false) => Some('['),
            (Items::Map { .. }, false) => Some('{'),
        };
        self.open.push(Open {
            at,
            anchor,
            bracket,
            items,
            height: 0,
            size: 1,
        });
        Ok(())
    }

    fn end(&mut self) -> Result<(), Problem> {
        let Some(open) = self.open.pop() else {
            return Ok(());
        };
        let value = match open.items {
            Items::Seq(items) => Value::Seq(items),
            Items::Map {
                entries, merges, ..
            } => Value::Map(merge_into(entries, merges)),
        };
        let built = Built {
            node: Node::new(value, open.at),
            height: open.height + 1,
            size: open.size,
            merge_key: false,
        };
        self.finish(open.anchor, built)
    }

    /// Adds a finished value to its parent collection.
    fn finish(&mut self, anchor: usize, built: Built) -> Result<(), Problem> {
        if anchor > 0 {
            self.spend(built.size, built.node.at)?;
            let anchored = Anchor {
                node: built.node.clone(),
                height: built.height,
                size: built.size,
            };
            self.anchors.insert(anchor, anchored);
        }
        let Some(parent) = self.open.last_mut() else {
            self.root = Some(built.node);
            return Ok(());
        };
        parent.height = parent.height.max(built.height);
        parent.size += built.size;
        match &mut parent.items {
            Items::Seq(items) => items.push(built.node),
            Items::Map {
                entries,
                key,
                merges,
            } => match key.take() {
                None => *key = Some(as_key(entries, built)?),
                Some((Key::Merge, _)) => add_merge(merges, built.node)?,
                Some((Key::Name(name), key_at)) => {
                    let entry = MapEntry {
                        key_at,
                        node: built.node,
                    };
                    entries.insert(name, entry);
                }
            },
        }
        Ok(())
    }

    fn spend(&mut self, nodes: usize, at: Location) -> Result<(), Problem> {
        match self.budget.nodes.checked_sub(nodes) {
            Some(left) => self.budget.nodes = left,
            None => return Err(self.exceeded(too_many(at))),
        }
        Ok(())
    }

    fn exceeded(&mut self, problem: Problem) -> Problem {
        self.budget.exceeded = true;
        problem
    }

    fn location(&self, span: Span) -> Location {
        let same_line = span.start.line() == span.end.line();
        Location {
            source: self.id,
            line: count(span.start.line().max(1)),
            column: count(span.start.col() + 1),
            width: if same_line { count(span.len()) } else { 0 },
        }
    }

    fn syntax_error(&self, text: &str, error: &ScanError) -> Problem {
        let marker = *error.marker();
        let at = self.location(Span::new(marker, marker));
        let context = SyntaxContext::of(text, marker);
        let problem = Problem::new(format!("not valid YAML: {}", error.info())).at(at);
        let mut open = self.open.iter().rev();
        let bracket = open.find_map(|open| Some((open.bracket?, open.at)));
        let problem = match context.mistake(bracket.is_some()) {
            Mistake::TooDeep => return too_deep(at),
            Mistake::Tab => {
                return Problem::new("found a tab where YAML requires spaces")
                    .at(at)
                    .help(
                        "use spaces for indentation and after `:`; a tab is only allowed inside text",
                    );
            }
            Mistake::Colon => {
                problem.help("check the indentation, and put text that holds `: ` in quotes")
            }
            Mistake::Special => {
                problem.help("put text that starts with a special character in quotes")
            }
            Mistake::Bracket => problem.help(
                "close the bracket; inside brackets, text that holds one (`${…}` too) needs quotes",
            ),
            Mistake::Other => problem,
        };
        match bracket {
            Some((bracket, opened)) => problem.related(
                Location { width: 1, ..opened },
                format!("this `{bracket}` is still open"),
            ),
            None => problem,
        }
    }
}

fn count(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

fn too_deep(at: Location) -> Problem {
    Problem::new(format!("nested deeper than {MAX_DEPTH} levels")).at(at)
}

fn too_many(at: Location) -> Problem {
    Problem::new(format!(
        "holds more than {MAX_NODES} values, repeated aliases and expansions counted each time"
    ))
    .at(at)
}

fn as_key(entries: &Map, built: Built) -> Result<(Key, Location), Problem> {
    let at = built.node.at;
    if built.merge_key {
        return Ok((Key::Merge, at));
    }
    let name = match built.node.value {
        Value::Str(text) => text,
        Value::Null => "null".to_owned(),
        Value::Bool(b) => b.to_string(),
        Value::Int(i) => i.to_string(),
        Value::UInt(u) => u.to_string(),
        Value::Float(f) => f.to_string(),
        Value::Seq(_) | Value::Map(_) => {
            return Err(Problem::new(format!(
                "a {} cannot be the key of a map",
                built.node.value.kind()
            ))
            .at(at));
        }
    };
    match entries.get(&name) {
        Some(first) => Err(Problem::new(format!(
            "mapping key \"{name}\" already defined at line {}",
            first.key_at.line
        ))
        .at(at)
        .related(first.key_at, "first defined here")
        .help("YAML would keep only one of the two; join their contents or remove one")),
        None => Ok((Key::Name(name), at)),
    }
}

fn add_merge(merges: &mut Vec<Node>, node: Node) -> Result<(), Problem> {
    let refused =
        |at| Problem::new("`<<` takes a map, or a list of maps, to merge into this one").at(at);
    match node.value {
        Value::Map(_) => merges.push(node),
        Value::Seq(items) => {
            for item in items {
                if item.as_map().is_none() {
                    return Err(refused(item.at));
                }
                merges.push(item);
            }
        }
        _ => return Err(refused(node.at)),
    }
    Ok(())
}

/// The map's own entries take precedence over `<<`, and earlier merges over later ones.
fn merge_into(mut entries: Map, merges: Vec<Node>) -> Map {
    for node in merges {
        if let Value::Map(map) = node.value {
            for (key, entry) in map {
                entries.entry(key).or_insert(entry);
            }
        }
    }
    entries
}

fn scalar_value(text: &str, plain: bool, tag: Option<&Tag>) -> Result<Value, Problem> {
    let Some(tag) = tag else {
        return Ok(if plain {
            scalar::resolve(text)
        } else {
            Value::Str(text.to_owned())
        });
    };
    let resolved = scalar::resolve(text);
    match (core_tag(tag)?, &resolved) {
        ("str", _) => Ok(Value::Str(text.to_owned())),
        ("int", Value::Int(_) | Value::UInt(_))
        | ("float", Value::Float(_))
        | ("bool", Value::Bool(_))
        | ("null", Value::Null) => Ok(resolved),
        ("float", Value::Int(i)) => Ok(Value::Float(*i as f64)),
        (name @ ("int" | "float" | "bool" | "null"), _) => {
            Err(Problem::new(format!("cannot read `{text}` as a !!{name}")))
        }
        (name, _) => Err(Problem::new(format!("unsupported YAML tag `!!{name}`"))),
    }
}

fn check_collection_tag(tag: Option<&Tag>, expected: &str) -> Result<(), Problem> {
    match tag.map(core_tag).transpose()? {
        None => Ok(()),
        Some(name) if name == expected => Ok(()),
        Some(name) => Err(Problem::new(format!(
            "unsupported YAML tag `!!{name}` here"
        ))),
    }
}

const CORE_TAG: &str = "tag:yaml.org,2002:";

fn core_tag(tag: &Tag) -> Result<&str, Problem> {
    match (tag.handle.as_str(), tag.suffix.as_str()) {
        (CORE_TAG, name) => Ok(name),
        ("", name) if name.starts_with(CORE_TAG) => Ok(&name[CORE_TAG.len()..]),
        // A lone `!` means "not resolved": text stays text.
        ("", "!") | ("!", "") => Ok("str"),
        (handle, suffix) => Err(Problem::new(format!(
            "unsupported YAML tag `{handle}{suffix}`"
        ))),
    }
}
