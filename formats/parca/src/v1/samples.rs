//! The record of samples.

use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, RecordBatch};
use arrow_schema::{DataType, Field};

use crate::arrays::int64_runs;
use crate::columns::Columns;
use crate::error::RecordError;
use crate::ipc::{self, NotEncoded};
use crate::runs::Texts;
use crate::samples::{Samples, StackRefs, check_version};
use crate::schema::{LABEL_PREFIX, STACK_ID, Version, always, binary_runs, maybe, runs_of, schema};
use crate::stack_id::StackIds;
use crate::table::Table;

/// The samples of a table.
pub fn encode_samples(table: &Table, ids: &mut StackIds<'_>) -> Result<Vec<u8>, NotEncoded> {
    let mut fields: Vec<Field> = Vec::new();
    let mut columns: Vec<ArrayRef> = Vec::new();
    for (name, texts) in &table.labels {
        fields.push(maybe(&format!("{LABEL_PREFIX}{name}"), binary_runs()));
        columns.push(texts.binary_runs());
    }
    let mut add = |name: &str, kind: DataType, column: ArrayRef| {
        fields.push(always(name, kind));
        columns.push(column);
    };
    let mut stacks = Texts::default();
    for &stack in &table.stacks {
        stacks.push_bytes(&ids.id(stack));
    }
    add(STACK_ID, binary_runs(), stacks.binary_runs());
    let values = Int64Array::from(table.values.clone());
    add("value", DataType::Int64, Arc::new(values));
    for (name, texts) in [
        ("producer", &table.producer),
        ("sample_type", &table.sample_type),
        ("sample_unit", &table.sample_unit),
        ("period_type", &table.period_type),
        ("period_unit", &table.period_unit),
        ("temporality", &table.temporality),
    ] {
        add(name, binary_runs(), texts.binary_runs());
    }
    for (name, numbers) in [
        ("period", &table.period),
        ("duration", &table.duration),
        ("timestamp", &table.timestamp),
    ] {
        add(name, runs_of(DataType::Int64), int64_runs(numbers));
    }
    ipc::write(&schema(Version::V1, fields), columns)
}

/// Reads a record of samples, as strictly as Parca's server.
pub fn read_samples(batch: &RecordBatch) -> Result<Samples, RecordError> {
    check_version(batch.schema_ref(), Version::V1)?;
    let columns = Columns::new(batch);
    let mut labels = Vec::new();
    for column in columns.all() {
        if let Some(name) = column.name().strip_prefix(LABEL_PREFIX) {
            labels.push((name.to_owned(), column.runs()?.binary_dictionary()?));
        }
    }
    let ids = columns.column(STACK_ID)?.runs()?.binary_dictionary()?;
    Samples::read(&columns, labels, StackRefs::Ids(ids), Version::V1)
}
