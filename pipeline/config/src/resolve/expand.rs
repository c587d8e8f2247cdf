//! Expands each `${…}` in the values of a tree.
//!
//! The innermost reference is expanded first, results are expanded again, and finally `$$` becomes `$`. A value that is
//! one whole reference takes the YAML type of its expansion and also keeps the text; a reference within other text is
//! replaced by text. Keys are not expanded.

use std::sync::Arc;

use super::retrieve::{Reader, Retrieved};
use crate::node::{MAX_DEPTH, MapEntry, Node, Value};
use crate::problem::{Problem, Problems};
use crate::sources::{Location, MAX_TOTAL_BYTES};
use crate::yaml;

/// Maximum number of replacements per value; self-referencing variables reach it.
const MAX_ROUNDS: usize = 1000;

/// Expands the whole tree. A value that cannot be expanded is reported and becomes null.
pub(super) fn expand(root: Node, reader: &mut Reader<'_>, problems: &mut Problems) -> Node {
    let mut expander = Expander {
        reader,
        spliced: Spliced::default(),
    };
    expander.node(
        root,
        Nesting {
            depth: 0,
            rounds: 0,
        },
        problems,
    )
}

struct Expander<'r, 'w> {
    reader: &'r mut Reader<'w>,
    spliced: Spliced,
}

/// Bytes produced by replacements, which could otherwise double with every round. The text kept next to a value is
/// counted separately, so that it cannot cause a value to be refused.
#[derive(Default)]
struct Spliced {
    values: usize,
    beside: usize,
}

#[derive(Clone, Copy)]
struct Nesting {
    depth: usize,
    /// Replacements made so far.
    rounds: usize,
}

enum Expanded {
    Text(String, Location),
    /// The typed expansion of a value that was one whole reference, and its text.
    Data(Node, Arc<str>, Nesting),
}

impl Expander<'_, '_> {
    fn node(&mut self, node: Node, nesting: Nesting, problems: &mut Problems) -> Node {
        let at = node.at;
        let inner = Nesting {
            depth: nesting.depth + 1,
            ..nesting
        };
        if nesting.depth > MAX_DEPTH {
            problems.push(too_many_rounds().at(at));
            return Node::new(Value::Null, at);
        }
        match node.value {
            Value::Str(text) => match self.text(text, at, nesting) {
                Ok(Expanded::Text(text, at)) => Node::new(Value::Str(unescape(&text)), at),
                Ok(Expanded::Data(data, raw, nesting)) => self.data(data, &raw, nesting, problems),
                Err(problem) => {
                    problems.push(problem);
                    Node::new(Value::Null, at)
                }
            },
            Value::Seq(items) => {
                let items = items.into_iter().enumerate();
                let expand = |(i, item): (usize, Node)| {
                    problems.nested_key(&i.to_string(), |p| self.node(item, inner, p))
                };
                Node::new(Value::Seq(items.map(expand).collect()), at)
            }
            Value::Map(entries) => {
                let expand = |(key, MapEntry { key_at, node }): (String, MapEntry)| {
                    let node = problems.nested_key(&key, |p| self.node(node, inner, p));
                    (key, MapEntry { key_at, node })
                };
                Node::new(Value::Map(entries.into_iter().map(expand).collect()), at)
            }
            _ => node,
        }
    }

    /// Expands a value that came from one whole reference, and keeps its text for string fields.
    fn data(&mut self, data: Node, raw: &str, nesting: Nesting, problems: &mut Problems) -> Node {
        let at = data.at;
        let mut node = self.node(data, nesting, problems);
        // The text may contain something that cannot be expanded, such as a reference in a comment. Then no text is
        // kept, and notes made on the way are discarded.
        let notes = self.reader.notes.len();
        std::mem::swap(&mut self.spliced.values, &mut self.spliced.beside);
        let text = self.text(raw.to_owned(), at, nesting);
        std::mem::swap(&mut self.spliced.values, &mut self.spliced.beside);
        self.reader.notes.truncate(notes);
        node.raw = match text {
            Ok(Expanded::Text(text, _)) => Some(Arc::from(unescape(&text))),
            Ok(Expanded::Data(..)) | Err(_) => None,
        };
        node
    }

    fn text(
        &mut self,
        mut text: String,
        mut at: Location,
        nesting: Nesting,
    ) -> Result<Expanded, Problem> {
        let mut rounds = nesting.rounds;
        while let Some(reference) = find(&text) {
            let (start, end) = reference;
            let written = text.get(start..end).unwrap_or_default().to_owned();
            let here = self.narrow(at, &written);
            rounds += 1;
            if rounds > MAX_ROUNDS {
                return Err(too_many_rounds().at(here));
            }
            let name = written.get(2..written.len() - 1).unwrap_or_default();
            let found = self
                .reader
                .reference(name, here)
                .map_err(|problem| problem.at(here))?;
            if start == 0 && end == text.len() {
                at = Location {
                    line: 1,
                    column: 1,
                    width: 0,
                    source: found.source,
                };
                if let Some(data) = self.typed(&found, nesting)? {
                    return Ok(Expanded::Data(
                        data,
                        found.text,
                        Nesting { rounds, ..nesting },
                    ));
                }
                self.splice(found.text.len(), here)?;
                text = found.text.as_ref().to_owned();
            } else {
                let times = text.matches(&written).count();
                self.splice(text.len() + times * found.text.len(), here)?;
                text = text.replace(&written, &found.text);
            }
        }
        Ok(Expanded::Text(text, at))
    }

    /// Parses text as YAML; `None` if it is a string or not valid YAML.
    fn typed(&mut self, found: &Retrieved, nesting: Nesting) -> Result<Option<Node>, Problem> {
        let budget = &mut self.reader.budget;
        match yaml::parse_within(&found.text, found.source, nesting.depth, budget) {
            Ok(node) if matches!(node.value, Value::Str(_)) => Ok(None),
            Ok(node) => Ok(Some(node)),
            Err(problem) if budget.is_exceeded() => Err(match nesting.rounds {
                0..16 => problem,
                _ => Problem {
                    at: problem.at,
                    ..too_many_rounds()
                },
            }),
            Err(problem) => {
                self.reader.note_broken(problem);
                Ok(None)
            }
        }
    }

    fn splice(&mut self, bytes: usize, at: Location) -> Result<(), Problem> {
        self.spliced.values = self.spliced.values.saturating_add(bytes);
        if self.spliced.values > MAX_TOTAL_BYTES {
            let limit = MAX_TOTAL_BYTES >> 20;
            return Err(Problem::new(format!("expanded configuration exceeds {limit} MiB")).at(at));
        }
        Ok(())
    }

    /// The location of the reference itself, if it is on the first line of the value as written.
    fn narrow(&self, at: Location, written: &str) -> Location {
        let Some(line) = self.reader.sources().line(at) else {
            return at;
        };
        let before = at.column.saturating_sub(1) as usize;
        let start = line
            .char_indices()
            .nth(before)
            .map_or(line.len(), |(i, _)| i);
        let Some(offset) = line.get(start..).and_then(|rest| rest.find(written)) else {
            return at;
        };
        let skipped = line
            .get(start..start + offset)
            .unwrap_or_default()
            .chars()
            .count();
        Location {
            column: at
                .column
                .saturating_add(u32::try_from(skipped).unwrap_or(0)),
            width: u32::try_from(written.chars().count()).unwrap_or(0),
            ..at
        }
    }
}

/// The first reference without a nested one. An escaped one (an odd number of `$` before it) ends the search: what
/// surrounds an escape is literal as well.
fn find(text: &str) -> Option<(usize, usize)> {
    let mut from = 0;
    loop {
        let close = from + text.get(from..)?.find('}')?;
        let Some(open) = text.get(from..close)?.rfind("${") else {
            from = close + 1;
            continue;
        };
        let start = from + open;
        let dollars = text
            .get(from..start)?
            .bytes()
            .rev()
            .take_while(|b| *b == b'$')
            .count();
        return (dollars % 2 == 0).then_some((start, close + 1));
    }
}

fn unescape(text: &str) -> String {
    text.replace("$$", "$")
}

fn too_many_rounds() -> Problem {
    Problem::new("too many recursive expansions").help("does a variable refer to itself?")
}
