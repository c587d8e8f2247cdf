//! Arrow columns with several values per row: structs and lists.

use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, ListArray, ListViewArray, StructArray};
use arrow_buffer::{NullBuffer, OffsetBuffer};
use arrow_schema::{DataType, Fields};

use crate::runs::Runs;
use crate::schema::{maybe, relaxed_type};

/// Also supports zero columns.
pub fn structs(kind: &DataType, columns: Vec<ArrayRef>, rows: usize) -> ArrayRef {
    let fields = match relaxed_type(kind) {
        DataType::Struct(fields) => fields,
        _ => Fields::empty(),
    };
    let structs = StructArray::try_new_with_length(fields, columns, None, rows);
    Arc::new(structs.expect("all columns have a value for each row"))
}

/// Contiguous lists.
pub fn list(
    item: &DataType,
    ends: Vec<i32>,
    items: ArrayRef,
    nulls: Option<NullBuffer>,
) -> ArrayRef {
    let item = Arc::new(maybe("item", relaxed_type(item)));
    let ends = OffsetBuffer::new(ends.into());
    let lists = ListArray::try_new(item, ends, items, nulls);
    Arc::new(lists.expect("list ends are ascending"))
}

/// List views, in any order; they may overlap.
pub fn list_view(
    item: &DataType,
    offsets: Vec<i32>,
    sizes: Vec<i32>,
    items: ArrayRef,
    nulls: Option<NullBuffer>,
) -> ArrayRef {
    let item = Arc::new(maybe("item", relaxed_type(item)));
    let lists = ListViewArray::try_new(item, offsets.into(), sizes.into(), items, nulls);
    Arc::new(lists.expect("each list is within the items"))
}

pub fn int64_runs(runs: &Runs<i64>) -> ArrayRef {
    runs.array(|numbers| Arc::new(Int64Array::from(numbers.to_vec())))
}

/// Arrow offsets have 32 bits.
pub fn offset(rows: usize) -> i32 {
    i32::try_from(rows).expect("a record has far below 2 billion frames")
}
