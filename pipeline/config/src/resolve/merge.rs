//! Merges configurations: maps are merged key by key, everything else is replaced. An explicit null replaces too, so
//! that `processors:` in a later file clears the section, and `processors: {}` does not.

use crate::node::{MAX_DEPTH, Map, MapEntry, Node, Value};
use crate::problem::Problem;
use crate::sources::Location;

/// Merges `newer` into `base`.
pub(super) fn merge(base: Node, newer: Node) -> Node {
    match (base.value, newer.value) {
        (Value::Map(mut entries), Value::Map(overrides)) => {
            for (key, entry) in overrides {
                merge_entry(&mut entries, key, entry);
            }
            Node::new(Value::Map(entries), base.at)
        }
        (_, value) => Node { value, ..newer },
    }
}

fn merge_entry(entries: &mut Map, key: String, newer: MapEntry) {
    match entries.get_mut(&key) {
        Some(entry) => {
            let base = std::mem::replace(&mut entry.node, Node::new(Value::Null, newer.key_at));
            *entry = MapEntry {
                key_at: newer.key_at,
                node: merge(base, newer.node),
            };
        }
        None => {
            entries.insert(key, newer);
        }
    }
}

/// Expands `a::b: v` to `a: {b: v}` in any map (not inside lists). Duplicates within a document are merged.
pub(super) fn nest(node: Node) -> Result<Node, Problem> {
    nest_within(node, 0)
}

fn nest_within(node: Node, depth: usize) -> Result<Node, Problem> {
    let Value::Map(entries) = node.value else {
        return Ok(node);
    };
    let mut nested = Map::with_capacity(entries.len());
    for (key, MapEntry { key_at, node }) in entries {
        let parts: Vec<&str> = key.split("::").collect();
        // An IPv6 address is not a path.
        let parts = if parts.iter().any(|part| part.is_empty()) {
            vec![key.as_str()]
        } else {
            parts
        };
        if depth + parts.len() > MAX_DEPTH {
            return Err(Problem::new(format!("nested deeper than {MAX_DEPTH} levels")).at(key_at));
        }
        let mut node = nest_within(node, depth + parts.len())?;
        let (first, inner) = (
            parts.first().copied().unwrap_or_default(),
            parts.get(1..).unwrap_or_default(),
        );
        for part in inner.iter().rev() {
            node = wrap(part, key_at, node);
        }
        merge_entry(&mut nested, first.to_owned(), MapEntry { key_at, node });
    }
    Ok(Node {
        value: Value::Map(nested),
        ..node
    })
}

fn wrap(key: &str, key_at: Location, node: Node) -> Node {
    let entry = MapEntry { key_at, node };
    Node::new(
        Value::Map(Map::from_iter([(key.to_owned(), entry)])),
        key_at,
    )
}
