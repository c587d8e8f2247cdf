//! Finds records that crash Parca's server for all its users: it does not recover from the panic.
//!
//! Our encoders never write such records; builds with debug assertions check every record. Type errors need no check:
//! Arrow arrays cannot have keys outside of their dictionary, lists outside of their items, or runs that do not end
//! with their column.

use std::collections::HashSet;

use arrow_array::cast::AsArray;
use arrow_array::types::Int32Type;
use arrow_array::{Array, RecordBatch};
use arrow_schema::{DataType, Field};

/// Columns whose values the older layout's reader takes in every row, even if null.
const NEVER_NONE: [&str; 3] = ["mapping_file", "function_name", "function_system_name"];

/// The column that crashes the server, and why.
pub fn find_fatal(batch: &RecordBatch) -> Option<String> {
    let mut names = HashSet::new();
    let fields = batch.schema_ref().fields();
    fields
        .iter()
        .zip(batch.columns())
        .find_map(|(field, column)| {
            if !names.insert(field.name()) {
                return Some(format!("{}: duplicate column", field.name()));
            }
            find_missing(field, column)
        })
}

/// Finds a column, or a nested one, with a null row that needs a value.
fn find_missing(field: &Field, array: &dyn Array) -> Option<String> {
    let within = |values: &dyn Array| find_missing(field, values);
    match array.data_type() {
        DataType::RunEndEncoded(..) => within(array.as_run_opt::<Int32Type>()?.values()),
        DataType::List(_) => within(array.as_list::<i32>().values()),
        DataType::ListView(_) => within(array.as_list_view::<i32>().values()),
        DataType::Struct(fields) => {
            let mut columns = fields.iter().zip(array.as_struct().columns());
            columns.find_map(|(field, column)| find_missing(field, column))
        }
        DataType::Dictionary(..) => {
            let is_binary = array.as_any_dictionary().values().data_type() == &DataType::Binary;
            let is_missing = array.null_count() > 0 && NEVER_NONE.contains(&field.name().as_str());
            (is_binary && is_missing).then(|| format!("{}: null row", field.name()))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{ArrayRef, BinaryArray};
    use arrow_schema::Schema;

    use super::*;
    use crate::arrays::{list, structs};
    use crate::runs::dictionary;
    use crate::schema::always;

    fn record(columns: Vec<(&str, ArrayRef)>) -> RecordBatch {
        let field =
            |(name, column): &(&str, ArrayRef)| Field::new(*name, column.data_type().clone(), true);
        let fields: Vec<Field> = columns.iter().map(field).collect();
        let columns = columns.into_iter().map(|(_, column)| column).collect();
        RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).unwrap()
    }

    fn bytes(key: Option<u32>) -> ArrayRef {
        dictionary(&[key], Arc::new(BinaryArray::from(vec![&b"some"[..]])))
    }

    #[test]
    fn finds_null_rows_of_frames() {
        for (name, key, expected) in [
            ("mapping_file", Some(0), None),
            ("mapping_file", None, Some("mapping_file")),
            ("function_name", None, Some("function_name")),
            ("function_system_name", None, Some("function_system_name")),
            ("mapping_build_id", None, None),
            ("function_filename", None, None),
        ] {
            let column = bytes(key);
            let kind = DataType::Struct(vec![always(name, column.data_type().clone())].into());
            let frames = structs(&kind, vec![column], 1);
            let kind = frames.data_type().clone();
            let stacks = record(vec![("locations", list(&kind, vec![0, 1], frames, None))]);
            let fatal = find_fatal(&stacks);
            let expected = expected.map(|name| format!("{name}: null row"));
            assert_eq!(fatal, expected, "{name}");
        }
    }

    #[test]
    fn finds_duplicate_labels() {
        let twice = record(vec![
            ("labels.a", bytes(Some(0))),
            ("labels.a", bytes(Some(0))),
        ]);
        let expected = "labels.a: duplicate column".to_owned();
        assert_eq!(find_fatal(&twice), Some(expected));
    }
}
