//! The column types of Parca's records.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_schema::{DataType, Field, Fields, Schema, SchemaRef, TimeUnit};

/// In the schema metadata.
pub const VERSION_KEY: &str = "parca_write_schema_version";

/// The two layouts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Version {
    /// Samples refer to stacks by id; the stacks are in a separate record.
    V1,
    /// Samples and stacks are in one record.
    V2,
}

impl Version {
    pub fn name(self) -> &'static str {
        match self {
            Self::V1 => "v1",
            Self::V2 => "v2",
        }
    }

    pub fn of(schema: &Schema) -> Option<Self> {
        match schema.metadata().get(VERSION_KEY)?.as_str() {
            "v1" => Some(Self::V1),
            "v2" => Some(Self::V2),
            _ => None,
        }
    }
}

pub const STACK_ID: &str = "stacktrace_id";
pub const LABEL_PREFIX: &str = "labels.";

/// The schema of a record.
pub fn schema(version: Version, fields: Vec<Field>) -> SchemaRef {
    let metadata = HashMap::from([(VERSION_KEY.to_owned(), version.name().to_owned())]);
    Arc::new(Schema::new_with_metadata(fields, metadata))
}

// Columns are declared as in Parca Agent: some contain nulls although they are declared as non-null.

pub fn always(name: &str, kind: DataType) -> Field {
    Field::new(name, kind, false)
}

pub fn maybe(name: &str, kind: DataType) -> Field {
    Field::new(name, kind, true)
}

pub fn runs_of(kind: DataType) -> DataType {
    let ends = Field::new("run_ends", DataType::Int32, false);
    let values = Field::new("values", kind, true);
    DataType::RunEndEncoded(Arc::new(ends), Arc::new(values))
}

pub fn dictionary_of(kind: DataType) -> DataType {
    DataType::Dictionary(Box::new(DataType::UInt32), Box::new(kind))
}

pub fn binary_runs() -> DataType {
    runs_of(dictionary_of(DataType::Binary))
}

pub fn text_runs() -> DataType {
    runs_of(dictionary_of(DataType::Utf8))
}

pub fn list_of(kind: DataType) -> DataType {
    DataType::List(Arc::new(maybe("item", kind)))
}

pub fn list_view_of(kind: DataType) -> DataType {
    DataType::ListView(Arc::new(maybe("item", kind)))
}

pub fn nanoseconds() -> DataType {
    DataType::Timestamp(TimeUnit::Nanosecond, Some("UTC".into()))
}

/// The same columns, all nullable: Arrow rejects arrays that do not match their schema, and Parca Agent's records do
/// not.
pub fn relaxed(schema: &Schema) -> SchemaRef {
    let fields = relaxed_fields(schema.fields());
    Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone()))
}

fn relaxed_fields(fields: &Fields) -> Fields {
    fields.iter().map(|field| relaxed_field(field)).collect()
}

fn relaxed_field(field: &Field) -> Arc<Field> {
    let kind = relaxed_type(field.data_type());
    Arc::new(field.clone().with_data_type(kind).with_nullable(true))
}

pub fn relaxed_type(kind: &DataType) -> DataType {
    match kind {
        DataType::Struct(fields) => DataType::Struct(relaxed_fields(fields)),
        DataType::List(item) => DataType::List(relaxed_field(item)),
        DataType::ListView(item) => DataType::ListView(relaxed_field(item)),
        DataType::Dictionary(key, value) => {
            DataType::Dictionary(key.clone(), Box::new(relaxed_type(value)))
        }
        DataType::RunEndEncoded(ends, values) => {
            DataType::RunEndEncoded(Arc::clone(ends), relaxed_field(values))
        }
        other => other.clone(),
    }
}
