//! What every configuration type is, and the way from a [`Node`] to one.

use std::fmt::Debug;

use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::decode::decode;
use crate::node::Node;
use crate::problem::Problems;
use crate::schema::{check, schema_of};

/// A configuration type: `#[derive(Serialize, Deserialize, JsonSchema)]` with `#[serde(default)]`, and a `Default` that
/// is the only place for defaults. Doc comments on the fields are the manual.
pub trait Config:
    Serialize + DeserializeOwned + JsonSchema + Default + Debug + Send + Sync + 'static
{
    /// Says everything that is wrong with the values. Pure: opens no file, asks no clock.
    fn validate(&self, _problems: &mut Problems) {}
}

/// Reads one configuration type from its part of the tree: checked against its schema, decoded, then validated. All
/// problems land in `problems`, under its current scope; with any, there is no result.
pub fn load<T: Config>(node: &Node, problems: &mut Problems) -> Option<T> {
    let mut found = Problems::default();
    let node = check(node, &schema_of::<T>(), &mut found);
    let config = if found.is_empty() {
        decode::<T>(&node)
            .map_err(|problem| found.push(problem))
            .ok()
    } else {
        None
    };
    if let Some(config) = &config {
        config.validate(&mut found);
        found.locate(&node);
    }
    let clean = found.is_empty();
    problems.extend(found);
    config.filter(|_| clean)
}
