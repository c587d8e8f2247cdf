//! An independent pprof reader and writer, and the meaning of a file independent of its ids and order.

use std::collections::{BTreeMap, HashMap};

use prost::Message;

#[derive(Clone, PartialEq, Message)]
pub struct Profile {
    #[prost(message, repeated, tag = "1")]
    pub sample_type: Vec<ValueType>,
    #[prost(message, repeated, tag = "2")]
    pub sample: Vec<Sample>,
    #[prost(message, repeated, tag = "3")]
    pub mapping: Vec<Mapping>,
    #[prost(message, repeated, tag = "4")]
    pub location: Vec<Location>,
    #[prost(message, repeated, tag = "5")]
    pub function: Vec<Function>,
    #[prost(string, repeated, tag = "6")]
    pub string_table: Vec<String>,
    #[prost(int64, tag = "7")]
    pub drop_frames: i64,
    #[prost(int64, tag = "8")]
    pub keep_frames: i64,
    #[prost(int64, tag = "9")]
    pub time_nanos: i64,
    #[prost(int64, tag = "10")]
    pub duration_nanos: i64,
    #[prost(message, optional, tag = "11")]
    pub period_type: Option<ValueType>,
    #[prost(int64, tag = "12")]
    pub period: i64,
    #[prost(int64, repeated, tag = "13")]
    pub comment: Vec<i64>,
    #[prost(int64, tag = "14")]
    pub default_sample_type: i64,
    #[prost(int64, tag = "15")]
    pub doc_url: i64,
}

#[derive(Clone, PartialEq, Message)]
pub struct ValueType {
    #[prost(int64, tag = "1")]
    pub r#type: i64,
    #[prost(int64, tag = "2")]
    pub unit: i64,
}

#[derive(Clone, PartialEq, Message)]
pub struct Sample {
    #[prost(uint64, repeated, tag = "1")]
    pub location_id: Vec<u64>,
    #[prost(int64, repeated, tag = "2")]
    pub value: Vec<i64>,
    #[prost(message, repeated, tag = "3")]
    pub label: Vec<Label>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Label {
    #[prost(int64, tag = "1")]
    pub key: i64,
    #[prost(int64, tag = "2")]
    pub str: i64,
    #[prost(int64, tag = "3")]
    pub num: i64,
    #[prost(int64, tag = "4")]
    pub num_unit: i64,
}

#[derive(Clone, PartialEq, Message)]
pub struct Mapping {
    #[prost(uint64, tag = "1")]
    pub id: u64,
    #[prost(uint64, tag = "2")]
    pub memory_start: u64,
    #[prost(uint64, tag = "3")]
    pub memory_limit: u64,
    #[prost(uint64, tag = "4")]
    pub file_offset: u64,
    #[prost(int64, tag = "5")]
    pub filename: i64,
    #[prost(int64, tag = "6")]
    pub build_id: i64,
    #[prost(bool, tag = "7")]
    pub has_functions: bool,
    #[prost(bool, tag = "8")]
    pub has_filenames: bool,
    #[prost(bool, tag = "9")]
    pub has_line_numbers: bool,
    #[prost(bool, tag = "10")]
    pub has_inline_frames: bool,
}

#[derive(Clone, PartialEq, Message)]
pub struct Location {
    #[prost(uint64, tag = "1")]
    pub id: u64,
    #[prost(uint64, tag = "2")]
    pub mapping_id: u64,
    #[prost(uint64, tag = "3")]
    pub address: u64,
    #[prost(message, repeated, tag = "4")]
    pub line: Vec<Line>,
    #[prost(bool, tag = "5")]
    pub is_folded: bool,
}

#[derive(Clone, PartialEq, Message)]
pub struct Line {
    #[prost(uint64, tag = "1")]
    pub function_id: u64,
    #[prost(int64, tag = "2")]
    pub line: i64,
    #[prost(int64, tag = "3")]
    pub column: i64,
}

#[derive(Clone, PartialEq, Message)]
pub struct Function {
    #[prost(uint64, tag = "1")]
    pub id: u64,
    #[prost(int64, tag = "2")]
    pub name: i64,
    #[prost(int64, tag = "3")]
    pub system_name: i64,
    #[prost(int64, tag = "4")]
    pub filename: i64,
    #[prost(int64, tag = "5")]
    pub start_line: i64,
}

/// The meaning of a file: no ids, order only where it matters, equal samples merged.
#[derive(Debug, Default, PartialEq)]
pub struct Meaning {
    pub sample_types: Vec<(String, String)>,
    pub samples: BTreeMap<(Vec<Frame>, Labels), Vec<i64>>,
    pub time_and_duration: (i64, i64),
    pub period: i64,
    pub period_type: Option<(String, String)>,
    pub comments: Vec<String>,
    pub drop_frames: String,
    pub keep_frames: String,
    pub doc_url: String,
    pub default_sample_type: String,
    /// The program name that tools show.
    pub first_mapping: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Frame {
    pub mapping: Option<Image>,
    pub address: u64,
    pub lines: Vec<Place>,
    pub is_folded: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Image {
    pub range: [u64; 3],
    pub filename: String,
    pub build_id: String,
    pub flags: [bool; 4],
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    pub name: String,
    pub system_name: String,
    pub filename: String,
    pub start_line: i64,
    pub line: i64,
    pub column: i64,
}

/// Key, text, number and unit, sorted.
pub type Labels = Vec<(String, String, i64, String)>;

/// Reads a file as pprof's own tools would, panicking where they return an error.
pub fn meaning(file: &[u8]) -> Meaning {
    let file = Profile::decode(file).expect("is protobuf");
    assert_eq!(file.string_table[0], "");
    let text = |row: i64| file.string_table[usize::try_from(row).expect("a row")].clone();
    let value_type = |row: &ValueType| (text(row.r#type), text(row.unit));

    let mut mappings = HashMap::new();
    for row in &file.mapping {
        assert_ne!(row.id, 0);
        let image = Image {
            range: [row.memory_start, row.memory_limit, row.file_offset],
            filename: text(row.filename),
            build_id: text(row.build_id),
            flags: [
                row.has_functions,
                row.has_filenames,
                row.has_line_numbers,
                row.has_inline_frames,
            ],
        };
        assert!(mappings.insert(row.id, image).is_none(), "{} twice", row.id);
    }
    let mut functions = HashMap::new();
    for row in &file.function {
        assert_ne!(row.id, 0);
        assert!(functions.insert(row.id, row).is_none(), "{} twice", row.id);
    }
    let mut frames = HashMap::new();
    for row in &file.location {
        assert_ne!(row.id, 0);
        let lines = row.line.iter().map(|line| {
            let function = functions[&line.function_id];
            Place {
                name: text(function.name),
                system_name: text(function.system_name),
                filename: text(function.filename),
                start_line: function.start_line,
                line: line.line,
                column: line.column,
            }
        });
        let frame = Frame {
            mapping: mappings.get(&row.mapping_id).cloned(),
            address: row.address,
            lines: lines.collect(),
            is_folded: row.is_folded,
        };
        assert!(frames.insert(row.id, frame).is_none(), "{} twice", row.id);
    }

    let sample_types: Vec<_> = file.sample_type.iter().map(value_type).collect();
    let mut samples = BTreeMap::new();
    for sample in &file.sample {
        assert_eq!(sample.value.len(), sample_types.len());
        let stack = sample.location_id.iter().map(|id| frames[id].clone());
        let mut labels: Labels = sample
            .label
            .iter()
            .map(|label| {
                (
                    text(label.key),
                    text(label.str),
                    label.num,
                    text(label.num_unit),
                )
            })
            .collect();
        labels.sort();
        let sums = samples
            .entry((stack.collect(), labels))
            .or_insert_with(|| vec![0; sample_types.len()]);
        for (sum, value) in sums.iter_mut().zip(&sample.value) {
            *sum += value;
        }
    }
    Meaning {
        sample_types,
        samples,
        time_and_duration: (file.time_nanos, file.duration_nanos),
        period: file.period,
        period_type: file.period_type.as_ref().map(value_type),
        comments: file.comment.iter().map(|row| text(*row)).collect(),
        drop_frames: text(file.drop_frames),
        keep_frames: text(file.keep_frames),
        doc_url: text(file.doc_url),
        default_sample_type: text(file.default_sample_type),
        first_mapping: file.mapping.first().map(|row| text(row.filename)),
    }
}
