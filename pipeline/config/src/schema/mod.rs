//! The JSON Schema of a configuration type: the single source for editor completion, option tables and [`check`].

mod check;
mod options;
mod redact;
#[cfg(test)]
mod tests;
mod types;

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use schemars::transform::{Transform, transform_subschemas};
use serde_json::Value as Json;

pub use check::check;
pub use options::{ConfigOption, options};
pub use redact::redact;

/// On an enum: `#[schemars(extend("x-ignore-case" = true))]` ignores the case of its values.
pub const IGNORE_CASE: &str = "x-ignore-case";
/// On a struct or an enum: accepted aliases, `#[schemars(extend("x-aliases" = {"old": "new"}))]`.
pub const ALIASES: &str = "x-aliases";
/// On an enum: the message for an unknown value, `#[schemars(extend("x-unknown" = "unsupported compression type"))]`.
pub const UNKNOWN: &str = "x-unknown";

/// On a section: unsupported keys of the Collector, with what to do instead, `#[schemars(extend("x-refused" = {"views":
/// "remove it"}))]`.
pub const REFUSED: &str = "x-refused";

/// The schema of `T`; no struct allows additional keys.
pub fn schema_of<T: JsonSchema>() -> Json {
    let mut schema = SchemaSettings::draft2020_12()
        .into_generator()
        .into_root_schema_for::<T>();
    Close.transform(&mut schema);
    schema.to_value()
}

struct Close;

impl Transform for Close {
    fn transform(&mut self, schema: &mut schemars::Schema) {
        let is_object = schema.get("type").is_some_and(|t| t == "object");
        if is_object && schema.get("additionalProperties").is_none() {
            schema.insert("additionalProperties".to_owned(), false.into());
        }
        transform_subschemas(self, schema);
    }
}

/// Follows `$ref`s, which always point into the same document.
fn follow<'a>(root: &'a Json, schema: &'a Json) -> &'a Json {
    let mut schema = schema;
    // Bounded against a schema that refers to itself.
    for _ in 0..16 {
        let target = schema
            .get("$ref")
            .and_then(Json::as_str)
            .and_then(|reference| root.pointer(reference.strip_prefix('#')?));
        match target {
            Some(target) => schema = target,
            None => break,
        }
    }
    schema
}

/// The alternatives of an `anyOf`, `oneOf` or `allOf`.
fn alternatives(schema: &Json) -> Option<&Vec<Json>> {
    ["anyOf", "oneOf", "allOf"]
        .iter()
        .find_map(|key| schema.get(key)?.as_array())
}
