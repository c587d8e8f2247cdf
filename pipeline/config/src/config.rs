//! The configuration type trait, and loading one from a [`Node`].

use std::fmt::Debug;

use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::decode::decode;
use crate::node::Node;
use crate::problem::Problems;
use crate::schema::{check, schema_of};

/// A configuration type: `#[derive(Serialize, Deserialize, JsonSchema)]` with `#[serde(default)]`, and a `Default` that
/// is the only place for defaults. Field doc comments are the user documentation.
pub trait Config:
    Serialize + DeserializeOwned + JsonSchema + Default + Debug + Send + Sync + 'static
{
    /// Reports all invalid values. Pure: opens no files, reads no clock.
    fn validate(&self, _problems: &mut Problems) {}
}

/// Loads a configuration type from its part of the tree: checks it against its schema, decodes it, then validates it.
/// Problems are added to `problems` under its current scope; returns `None` if there are any.
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
