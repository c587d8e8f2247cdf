//! What Parca's server dies of, with all who use it: nothing in it recovers from a record like that.
//!
//! The arrays of Arrow cannot be made with keys outside of their dictionaries, with lists outside
//! of their items or with columns of different lengths. What is left is looked for here, before a
//! record leaves.

use std::collections::HashSet;

use arrow_array::cast::AsArray;
use arrow_array::types::Int32Type;
use arrow_array::{Array, RecordBatch, StructArray};
use arrow_schema::DataType;

use crate::schema::Version;

/// Why a record must not be sent.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("Parca's server would crash on column {column:?}: {reason}")]
pub struct Fatal {
    column: String,
    reason: &'static str,
}

/// Columns of which the older layout's reader takes a value in each row, also where there is none.
const NEVER_NONE: [&str; 3] = ["mapping_file", "function_name", "function_system_name"];

/// Looks for what is known to end the server.
pub fn check_fatal(batch: &RecordBatch) -> Result<(), Fatal> {
    let version = Version::of(batch.schema_ref());
    let schema = batch.schema_ref();
    check_names(schema.fields().iter().map(|field| field.name().as_str()))?;
    for (field, column) in schema.fields().iter().zip(batch.columns()) {
        check(version, field.name(), column)?;
    }
    Ok(())
}

fn check_names<'a>(names: impl Iterator<Item = &'a str>) -> Result<(), Fatal> {
    let mut known = HashSet::new();
    for name in names {
        if !known.insert(name) {
            return Err(fatal(name, "it stands twice"));
        }
    }
    Ok(())
}

fn check(version: Option<Version>, name: &str, array: &dyn Array) -> Result<(), Fatal> {
    match array.data_type() {
        DataType::RunEndEncoded(ends, _) => {
            if ends.data_type() != &DataType::Int32 {
                return Err(fatal(name, "its runs do not end in 32 bits"));
            }
            let runs = array.as_run::<Int32Type>();
            let ends = runs.run_ends().values();
            let last = ends.last().map_or(0, |&end| end as usize);
            if runs.run_ends().offset() != 0 || last != array.len() {
                return Err(fatal(name, "its runs do not end with its last row"));
            }
            check(version, name, runs.values())
        }
        DataType::Dictionary(..) => {
            let dictionary = array.as_any_dictionary();
            let is_bytes = dictionary.values().data_type() == &DataType::Binary;
            let is_read = is_bytes && NEVER_NONE.contains(&name) && !array.is_empty();
            if is_read && dictionary.values().is_empty() {
                return Err(fatal(name, "its dictionary is empty"));
            }
            if is_read && array.null_count() > 0 {
                return Err(fatal(name, "a row has nothing"));
            }
            check(version, name, dictionary.values())
        }
        DataType::List(_) => check(version, name, array.as_list::<i32>().values()),
        DataType::ListView(_) => check(version, name, array.as_list_view::<i32>().values()),
        DataType::Struct(_) => check_struct(version, name, array.as_struct()),
        _ => Ok(()),
    }
}

fn check_struct(version: Option<Version>, name: &str, rows: &StructArray) -> Result<(), Fatal> {
    for needed in needed(version, name) {
        if rows.column_by_name(needed).is_none() {
            return Err(fatal(needed, "it is missing"));
        }
    }
    check_names(rows.fields().iter().map(|field| field.name().as_str()))?;
    for (field, column) in rows.fields().iter().zip(rows.columns()) {
        check(version, field.name(), column)?;
    }
    Ok(())
}

/// The fields that are read without asking whether they are there.
fn needed(version: Option<Version>, name: &str) -> &'static [&'static str] {
    match (version, name) {
        (Some(Version::V1), "locations") => &[
            "address",
            "mapping_start",
            "mapping_limit",
            "mapping_offset",
            "mapping_file",
            "mapping_build_id",
            "lines",
        ],
        (Some(Version::V1), "lines") => &[
            "line",
            "function_name",
            "function_system_name",
            "function_filename",
            "function_start_line",
        ],
        (Some(Version::V2), "stacktrace") => &["address"],
        (Some(Version::V2), "lines") => &["line", "column", "function"],
        (Some(Version::V2), "function") => &["start_line"],
        _ => &[],
    }
}

fn fatal(column: &str, reason: &'static str) -> Fatal {
    Fatal {
        column: column.to_owned(),
        reason,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{ArrayRef, BinaryArray, Int64Array, UInt64Array};
    use arrow_schema::{Field, Schema};

    use super::*;
    use crate::arrays::{list, structs};
    use crate::runs::{Texts, dictionary};
    use crate::schema::{STACK_ID, always, dictionary_of, relaxed, schema};

    const LINE: [&str; 5] = [
        "line",
        "function_name",
        "function_system_name",
        "function_filename",
        "function_start_line",
    ];

    /// A record of one stack with one frame with one line, in which `change` has one of the columns.
    fn stacks(change: (&str, Option<ArrayRef>)) -> RecordBatch {
        let text: ArrayRef = {
            let mut texts = Texts::default();
            texts.push(Some("some"));
            texts.binary()
        };
        let rows = |names: &[&str], others: Vec<(&str, ArrayRef)>| {
            let mut fields = Vec::new();
            let mut columns: Vec<ArrayRef> = Vec::new();
            for &name in names {
                let own = others.iter().find(|(other, _)| *other == name);
                let column = match (own, name) {
                    (Some((_, column)), _) => Arc::clone(column),
                    (None, "line" | "function_start_line") => Arc::new(Int64Array::from(vec![1])),
                    (None, name) if name.starts_with("mapping") || name.starts_with("function") => {
                        Arc::clone(&text)
                    }
                    (None, _) => Arc::new(UInt64Array::from(vec![1])),
                };
                let column = match &change {
                    (changed, Some(other)) if *changed == name => Arc::clone(other),
                    (changed, None) if *changed == name => continue,
                    _ => column,
                };
                fields.push(always(name, column.data_type().clone()));
                columns.push(column);
            }
            structs(&DataType::Struct(fields.into()), columns, 1)
        };
        let lists = |items: ArrayRef| {
            let kind = items.data_type().clone();
            list(&kind, vec![0, 1], items, None)
        };
        let lines = lists(rows(&LINE, Vec::new()));
        let names = needed(Some(Version::V1), "locations");
        let locations = lists(rows(names, vec![("lines", lines)]));
        let fields = vec![
            always(STACK_ID, DataType::Binary),
            always("locations", locations.data_type().clone()),
        ];
        let ids: ArrayRef = Arc::new(BinaryArray::from(vec![&b"id"[..]]));
        let schema = relaxed(&schema(Version::V1, fields));
        RecordBatch::try_new(schema, vec![ids, locations]).expect("it has a row in each column")
    }

    fn bytes(keys: &[Option<u32>], values: Vec<&[u8]>) -> ArrayRef {
        dictionary(keys, Arc::new(BinaryArray::from(values)))
    }

    #[test]
    fn finds_what_the_server_dies_of() {
        let check = |name: &str, column: Option<ArrayRef>, expected: Option<&str>| {
            let outcome = check_fatal(&stacks((name, column))).map_err(|fatal| fatal.to_string());
            match expected {
                None => assert_eq!(outcome, Ok(()), "{name}"),
                Some(reason) => {
                    let said = outcome.expect_err(name);
                    assert!(said.contains(name) && said.contains(reason), "{said}");
                }
            }
        };
        check("nothing", None, None);
        let empty = || Some(bytes(&[Some(0)], vec![b""]));
        let nothing = || Some(bytes(&[None], vec![b"some"]));
        for name in NEVER_NONE {
            check(name, empty(), None);
            check(name, nothing(), Some("a row has nothing"));
            check(
                name,
                Some(bytes(&[None], vec![])),
                Some("its dictionary is empty"),
            );
            check(name, None, Some("it is missing"));
        }
        check("mapping_build_id", nothing(), None);
        check("function_filename", nothing(), None);
        check("address", None, Some("it is missing"));
        check("lines", None, Some("it is missing"));
    }

    #[test]
    fn finds_labels_that_stand_twice() {
        let field = Field::new("labels.a", dictionary_of(DataType::Binary), true);
        let schema = Arc::new(Schema::new(vec![field.clone(), field]));
        let column = bytes(&[Some(0)], vec![b"some"]);
        let columns = vec![Arc::clone(&column), column];
        let batch = RecordBatch::try_new(schema, columns).expect("it has a row in each column");
        let fatal = check_fatal(&batch).expect_err("a name stands twice");
        assert!(fatal.to_string().contains("twice"), "{fatal}");
    }
}
