//! Checks a tree against a schema and reports all problems at once.
//!
//! Returns the canonical tree for plain serde: nulls that mean the default are removed, enum values have canonical
//! case, expanded scalars are text for string fields, and `a,b` is a list for list fields. As unknown keys are reported
//! here, configuration types may use `#[serde(flatten)]` and need no `deny_unknown_fields`.

use serde_json::Value as Json;

use super::types::{Expected, Types, integer_range};
use super::{ALIASES, IGNORE_CASE, REFUSED, UNKNOWN, alternatives, follow};
use crate::node::{Map, MapEntry, Node, Value};
use crate::problem::{Problem, Problems};
use crate::suggest::did_you_mean;
use crate::values::{ComponentId, Duration, IdError, NULL_IS_PRESENT, PipelineId, redact_url};
use crate::yaml::scalar::resolve;

/// Longer lists of valid keys or values are not shown.
const MAX_LISTED: usize = 12;

/// Checks `node` against `schema` and adds problems under the current scope of `problems`. A null node is an empty
/// section.
pub fn check(node: &Node, schema: &Json, problems: &mut Problems) -> Node {
    let empty;
    let node = if node.is_null() {
        empty = Node::new(Value::Map(Map::new()), node.at);
        &empty
    } else {
        node
    };
    let mut checker = Checker {
        root: schema,
        problems,
    };
    checker.value(node, schema)
}

struct Checker<'s, 'p> {
    root: &'s Json,
    problems: &'p mut Problems,
}

impl<'s> Checker<'s, '_> {
    fn value(&mut self, node: &Node, schema: &'s Json) -> Node {
        let schema = follow(self.root, schema);
        if let Some(words) = self.enum_values(schema) {
            return self.enum_value(node, schema, &words);
        }
        if let Some(options) = alternatives(schema) {
            return self.choose(node, options);
        }
        let types = Types::of(self.root, schema);
        if types.any {
            return node.clone();
        }
        let shows_secret = match schema.get("format").and_then(Json::as_str) {
            Some("secret") => true,
            Some("secret-url") => node.as_str().is_none_or(|url| redact_url(url) != url),
            _ => false,
        };
        if shows_secret {
            self.problems.mask_source(node.at);
        }
        match &node.value {
            Value::Null if types.null => node.clone(),
            Value::Bool(_) if types.boolean => node.clone(),
            Value::Int(i) if types.integer => self.integer(node, i128::from(*i), schema),
            Value::UInt(u) if types.integer => self.integer(node, i128::from(*u), schema),
            Value::Int(_) | Value::UInt(_) | Value::Float(_) if types.number => node.clone(),
            Value::Float(f) if types.integer && f.fract() == 0.0 && f.abs() < 9e15 => {
                self.integer(node, *f as i128, schema)
            }
            Value::Map(map) if types.object => self.object(node, map, schema),
            Value::Seq(items) if types.array => self.list(node, items, schema),
            _ if types.string && node.as_str().is_some() => self.text(node, schema),
            Value::Str(text) if types.split => {
                let part = |part: &str| Node::new(Value::Str(part.to_owned()), node.at);
                let items: Vec<Node> = match text.as_str() {
                    "" => Vec::new(),
                    text => text.split(',').map(part).collect(),
                };
                self.list(node, &items, schema)
            }
            _ => self.mismatch(node, &types),
        }
    }

    fn text(&mut self, node: &Node, schema: &Json) -> Node {
        let text = node.as_str().unwrap_or_default();
        let refused = match schema.get("format").and_then(Json::as_str) {
            Some("go-duration") => text.parse::<Duration>().err().map(|error| {
                Problem::new(error.to_string()).help(
                    "write a number with a unit, such as \"300ms\", \"1.5s\", \"2m\" or \"1h30m\"",
                )
            }),
            Some("component-id") => text.parse::<ComponentId>().err().map(id_problem),
            Some("pipeline-id") => text.parse::<PipelineId>().err().map(id_problem),
            _ => None,
        };
        if let Some(problem) = refused {
            self.problems.push(problem.at(node.at));
        }
        Node::new(Value::Str(text.to_owned()), node.at)
    }

    fn integer(&mut self, node: &Node, number: i128, schema: &Json) -> Node {
        let (low, high) = integer_range(schema);
        if number < low || number > high {
            let problem = match high {
                i128::MAX => format!("{number} is out of range, the minimum is {low}"),
                _ => format!("{number} is out of range ({low} to {high})"),
            };
            self.problems.push(Problem::new(problem).at(node.at));
        }
        let value = match (i64::try_from(number), u64::try_from(number)) {
            (Ok(i), _) => Value::Int(i),
            (Err(_), Ok(u)) => Value::UInt(u),
            (Err(_), Err(_)) => node.value.clone(),
        };
        Node::new(value, node.at)
    }

    fn list(&mut self, node: &Node, items: &[Node], schema: &'s Json) -> Node {
        let checked = match schema.get("items") {
            None => items.to_vec(),
            Some(schema) => {
                let check = |(index, item): (usize, &Node)| {
                    self.nested(&index.to_string(), |this| this.value(item, schema))
                };
                items.iter().enumerate().map(check).collect()
            }
        };
        Node::new(Value::Seq(checked), node.at)
    }

    fn object(&mut self, node: &Node, map: &Map, schema: &'s Json) -> Node {
        let properties = schema.get("properties").and_then(Json::as_object);
        let free = schema
            .get("additionalProperties")
            .filter(|free| **free != Json::Bool(false));
        let aliases = schema.get(ALIASES);
        let refused = schema.get(REFUSED);
        let mut checked = Map::with_capacity(map.len());
        for (key, entry) in map {
            let name = aliases.and_then(|a| a.get(key)?.as_str()).unwrap_or(key);
            let MapEntry { key_at, node } = entry;
            if let Some(advice) = refused.and_then(|keys| keys.get(key)?.as_str()) {
                if node.as_str().is_none() {
                    self.problems.mask(node);
                }
                let problem = Problem::new("is not supported").help(advice).at(*key_at);
                self.nested(key, |this| this.problems.push(problem));
                continue;
            }
            let value = match (properties.and_then(|p| p.get(name)), free) {
                (Some(schema), _) => self.nested(name, |this| this.property(node, schema)),
                (None, Some(schema)) => {
                    Some(self.nested(name, |this| this.free_value(node, schema)))
                }
                (None, None) => {
                    // It may be a misspelt secret.
                    self.problems.mask(node);
                    let names = properties
                        .into_iter()
                        .flat_map(|p| p.keys().map(String::as_str));
                    self.problems
                        .push(unknown_key(key, names.collect()).at(*key_at));
                    None
                }
            };
            let Some(value) = value else { continue };
            let entry = MapEntry {
                key_at: *key_at,
                node: value,
            };
            if let Some(first) = checked.insert(name.to_owned(), entry) {
                let problem =
                    Problem::new(format!("{name:?} is set twice, by two spellings")).at(*key_at);
                self.problems
                    .push(problem.related(first.key_at, "set here"));
            }
        }
        let required = schema
            .get("required")
            .and_then(Json::as_array)
            .into_iter()
            .flatten();
        for name in required
            .filter_map(Json::as_str)
            .filter(|name| !checked.contains_key(*name))
        {
            // A present but invalid key has its own problem.
            if map.get(name).is_none_or(|entry| entry.node.is_null()) {
                self.problems
                    .push(Problem::new(format!("missing required key {name:?}")).at(node.at));
            }
        }
        Node::new(Value::Map(checked), node.at)
    }

    /// Checks the value of a known key. `None` keeps the default.
    fn property(&mut self, node: &Node, schema: &'s Json) -> Option<Node> {
        if !node.is_null() {
            return Some(self.value(node, schema));
        }
        let marked = |schema: &Json| {
            schema
                .get(NULL_IS_PRESENT)
                .is_some_and(|mark| *mark == Json::Bool(true))
        };
        if marked(schema) || marked(follow(self.root, schema)) {
            return Some(self.value(&Node::new(Value::Map(Map::new()), node.at), schema));
        }
        // For string fields an unset variable is empty text, as if set and empty.
        let types = Types::of(self.root, follow(self.root, schema));
        (types.string && !types.null && node.raw.is_some()).then(|| self.value(node, schema))
    }

    /// Checks the value of a user-defined key.
    fn free_value(&mut self, node: &Node, schema: &'s Json) -> Node {
        let types = Types::of(self.root, follow(self.root, schema));
        let value = match node.value {
            Value::Null if types.any || types.null => return node.clone(),
            Value::Null if types.object => Value::Map(Map::new()),
            Value::Null if types.string => Value::Str(String::new()),
            _ => return self.value(node, schema),
        };
        self.value(&Node::new(value, node.at), schema)
    }

    /// The values of an enum without data.
    fn enum_values(&self, schema: &'s Json) -> Option<Vec<&'s str>> {
        if let Some(word) = schema.get("const") {
            return word.as_str().map(|word| vec![word]);
        }
        if let Some(words) = schema.get("enum").and_then(Json::as_array) {
            return words.iter().map(Json::as_str).collect();
        }
        let options = alternatives(schema)?;
        let words: Option<Vec<_>> = options
            .iter()
            .map(|option| self.enum_values(follow(self.root, option)))
            .collect();
        Some(words?.concat())
    }

    fn enum_value(&mut self, node: &Node, schema: &Json, words: &[&str]) -> Node {
        let Some(text) = node.as_str() else {
            return self.mismatch(
                node,
                &Types {
                    string: true,
                    ..Types::default()
                },
            );
        };
        let ignore_case = schema
            .get(IGNORE_CASE)
            .is_some_and(|mark| *mark == Json::Bool(true));
        let same = |a: &str, b: &str| a == b || (ignore_case && a.eq_ignore_ascii_case(b));
        let alias = schema
            .get(ALIASES)
            .and_then(Json::as_object)
            .and_then(|aliases| {
                aliases
                    .iter()
                    .find(|(alias, _)| same(alias, text))?
                    .1
                    .as_str()
            });
        let canonical = alias.or_else(|| words.iter().copied().find(|word| same(word, text)));
        if canonical.is_none() {
            let what = schema
                .get(UNKNOWN)
                .and_then(Json::as_str)
                .unwrap_or("unknown value");
            let problem = Problem::new(format!("{what} {text:?}")).at(node.at);
            // The empty value means "not set"; do not list it.
            let words = words.iter().filter(|word| !word.is_empty());
            let words: Vec<String> = words.map(|word| shown(word, ignore_case)).collect();
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            self.problems
                .push(advise(problem, text, &words, "expected one of"));
        }
        Node::new(Value::Str(canonical.unwrap_or(text).to_owned()), node.at)
    }

    /// Picks the best of several alternatives: by kind of value first, then by number of problems.
    fn choose(&mut self, node: &Node, options: &'s [Json]) -> Node {
        let fits =
            |option: &&Json, lenient: bool| Types::of_any(self.root, option).fits(node, lenient);
        let mut candidates: Vec<&Json> = options
            .iter()
            .filter(|option| fits(option, false))
            .collect();
        if candidates.is_empty() {
            candidates = options.iter().filter(|option| fits(option, true)).collect();
        }
        match candidates.as_slice() {
            [] => {
                let types = options
                    .iter()
                    .map(|option| Types::of_any(self.root, option));
                let types = types.fold(Types::default(), Types::or);
                self.mismatch(node, &types)
            }
            [only] => self.value(node, only),
            several => {
                let mut best: Option<(Node, Problems)> = None;
                for option in several {
                    let mut problems = Problems::default();
                    let mut scratch = Checker {
                        root: self.root,
                        problems: &mut problems,
                    };
                    let checked = scratch.value(node, option);
                    if best
                        .as_ref()
                        .is_none_or(|(_, least)| problems.count() < least.count())
                    {
                        best = Some((checked, problems));
                    }
                }
                match best {
                    Some((checked, problems)) => {
                        self.problems.extend(problems);
                        checked
                    }
                    None => node.clone(),
                }
            }
        }
    }

    fn mismatch(&mut self, node: &Node, expected: &Types) -> Node {
        let got = node.value.kind();
        let message = match expected.name() {
            Expected::Scalar(name) if node.is_null() => format!("expected type '{name}', got null"),
            Expected::Scalar(name) => {
                format!("expected type '{name}', got unconvertible type '{got}'")
            }
            Expected::Section(name) => format!("expected a {name}, got '{got}'"),
        };
        let mut problem = Problem::new(message).at(node.at);
        match &node.value {
            Value::Str(text) if expected.takes_number_or_bool(&resolve(text)) => {
                problem = problem.help("remove the quotes");
            }
            Value::Bool(_) | Value::Int(_) | Value::Float(_) if expected.string => {
                problem = problem.help("quote it to make it a string");
            }
            _ => {}
        }
        self.problems.push(problem);
        node.clone()
    }

    fn nested<R>(&mut self, key: &str, check: impl FnOnce(&mut Checker<'s, '_>) -> R) -> R {
        let root = self.root;
        self.problems
            .nested_key(key, |problems| check(&mut Checker { root, problems }))
    }
}

/// An enum value as shown to users: lower case if case is ignored.
pub(super) fn shown(word: &str, ignore_case: bool) -> String {
    match ignore_case {
        true => word.to_ascii_lowercase(),
        false => word.to_owned(),
    }
}

fn unknown_key(key: &str, names: Vec<&str>) -> Problem {
    let problem = Problem::new(format!("has invalid keys: {key}"));
    if names.is_empty() {
        return problem.help("this section has no keys");
    }
    advise(problem, key, &names, "valid keys are")
}

/// Suggests the nearest valid word, or lists all if there are few.
fn advise(problem: Problem, word: &str, valid: &[&str], all: &str) -> Problem {
    let listed = (valid.len() <= MAX_LISTED).then(|| format!("{all} {}", valid.join(", ")));
    match (did_you_mean(word, valid.iter().copied()), listed) {
        (Some(near), _) => problem.help(format!("did you mean \"{near}\"?")),
        (None, Some(listed)) => problem.help(listed),
        (None, None) => problem,
    }
}

fn id_problem(error: IdError) -> Problem {
    let problem = Problem::new(error.to_string());
    match error.help() {
        Some(help) => problem.help(help),
        None => problem,
    }
}
