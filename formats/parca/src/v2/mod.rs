//! The newer layout: samples and their stacks in one record.

mod encode;
mod read;

pub use encode::encode;
pub use read::{Interning, read_samples};

use std::collections::HashMap;

use arrow_schema::{DataType, Field, Fields};

use crate::schema::{always, dictionary_of, list_view_of, maybe};

fn location_type() -> DataType {
    DataType::Struct(Fields::from(vec![
        always("address", DataType::UInt64),
        maybe("frame_type", dictionary_of(DataType::Utf8)),
        maybe("mapping_file", dictionary_of(DataType::Utf8)),
        maybe("mapping_build_id", dictionary_of(DataType::Utf8)),
        maybe("lines", list_view_of(line_type())),
    ]))
}

fn line_type() -> DataType {
    DataType::Struct(Fields::from(vec![
        always("line", DataType::UInt64),
        always("column", DataType::UInt64),
        always("function", dictionary_of(function_type())),
    ]))
}

fn function_type() -> DataType {
    DataType::Struct(Fields::from(vec![
        maybe("system_name", DataType::Utf8View),
        maybe("filename", dictionary_of(DataType::Utf8)),
        always("start_line", DataType::UInt64),
    ]))
}

/// Parca's server requires the extension type.
fn id_field(name: &str) -> Field {
    let metadata = HashMap::from([
        ("ARROW:extension:name".to_owned(), "arrow.uuid".to_owned()),
        ("ARROW:extension:metadata".to_owned(), String::new()),
    ]);
    always(name, DataType::FixedSizeBinary(16)).with_metadata(metadata)
}
