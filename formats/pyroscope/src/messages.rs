//! The messages of `querier.v1`, `types.v1` and `google.v1`, limited to the fields in use.
//!
//! Requests are decoded from and responses encoded to both protobuf and JSON.

use prost::Message;
use serde::{Deserialize, Serialize};

use crate::json::{self, is_default};

/// `types.v1.GoPGO` and `settings.v1.GetSettingsResponse`, whose fields are ignored.
#[derive(Clone, PartialEq, Eq, Message, Deserialize, Serialize)]
pub struct Empty {}

/// `querier.v1.ProfileTypesRequest`
#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default)]
pub struct ProfileTypesRequest {
    #[prost(int64, tag = "1")]
    #[serde(with = "json::int64")]
    pub start: i64,
    #[prost(int64, tag = "2")]
    #[serde(with = "json::int64")]
    pub end: i64,
}

/// `querier.v1.ProfileTypesResponse`
#[derive(Clone, PartialEq, Message, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ProfileTypesResponse {
    #[prost(message, repeated, tag = "1")]
    #[serde(skip_serializing_if = "is_default")]
    pub profile_types: Vec<ProfileType>,
}

/// `types.v1.ProfileType`
#[derive(Clone, PartialEq, Eq, Message, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ProfileType {
    #[prost(string, tag = "1")]
    #[serde(rename = "ID", skip_serializing_if = "is_default")]
    pub id: String,
    #[prost(string, tag = "2")]
    #[serde(skip_serializing_if = "is_default")]
    pub name: String,
    #[prost(string, tag = "4")]
    #[serde(skip_serializing_if = "is_default")]
    pub sample_type: String,
    #[prost(string, tag = "5")]
    #[serde(skip_serializing_if = "is_default")]
    pub sample_unit: String,
    #[prost(string, tag = "6")]
    #[serde(skip_serializing_if = "is_default")]
    pub period_type: String,
    #[prost(string, tag = "7")]
    #[serde(skip_serializing_if = "is_default")]
    pub period_unit: String,
}

/// `types.v1.LabelNamesRequest`
#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default)]
pub struct LabelNamesRequest {
    #[prost(string, repeated, tag = "1")]
    pub matchers: Vec<String>,
    #[prost(int64, tag = "2")]
    #[serde(with = "json::int64")]
    pub start: i64,
    #[prost(int64, tag = "3")]
    #[serde(with = "json::int64")]
    pub end: i64,
}

/// `types.v1.LabelValuesRequest`
#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default)]
pub struct LabelValuesRequest {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, repeated, tag = "2")]
    pub matchers: Vec<String>,
    #[prost(int64, tag = "3")]
    #[serde(with = "json::int64")]
    pub start: i64,
    #[prost(int64, tag = "4")]
    #[serde(with = "json::int64")]
    pub end: i64,
}

/// `types.v1.LabelNamesResponse` and `types.v1.LabelValuesResponse`
#[derive(Clone, PartialEq, Eq, Message, Serialize)]
pub struct NamesResponse {
    #[prost(string, repeated, tag = "1")]
    #[serde(skip_serializing_if = "is_default")]
    pub names: Vec<String>,
}

/// `querier.v1.SeriesRequest`
#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct SeriesRequest {
    #[prost(string, repeated, tag = "1")]
    pub matchers: Vec<String>,
    #[prost(string, repeated, tag = "2")]
    #[serde(alias = "label_names")]
    pub label_names: Vec<String>,
    #[prost(int64, tag = "3")]
    #[serde(with = "json::int64")]
    pub start: i64,
    #[prost(int64, tag = "4")]
    #[serde(with = "json::int64")]
    pub end: i64,
}

/// `querier.v1.SeriesResponse`
#[derive(Clone, PartialEq, Message, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SeriesResponse {
    #[prost(message, repeated, tag = "2")]
    #[serde(skip_serializing_if = "is_default")]
    pub labels_set: Vec<Labels>,
}

/// `types.v1.Labels`
#[derive(Clone, PartialEq, Eq, Message, Serialize)]
pub struct Labels {
    #[prost(message, repeated, tag = "1")]
    #[serde(skip_serializing_if = "is_default")]
    pub labels: Vec<LabelPair>,
}

/// `types.v1.LabelPair`
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Message, Serialize)]
pub struct LabelPair {
    #[prost(string, tag = "1")]
    #[serde(skip_serializing_if = "is_default")]
    pub name: String,
    #[prost(string, tag = "2")]
    #[serde(skip_serializing_if = "is_default")]
    pub value: String,
}

/// `querier.v1.SelectSeriesRequest`
#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct SelectSeriesRequest {
    #[prost(string, tag = "1")]
    #[serde(rename = "profileTypeID", alias = "profile_typeID")]
    pub profile_type_id: String,
    #[prost(string, tag = "2")]
    #[serde(alias = "label_selector")]
    pub label_selector: String,
    #[prost(int64, tag = "3")]
    #[serde(with = "json::int64")]
    pub start: i64,
    #[prost(int64, tag = "4")]
    #[serde(with = "json::int64")]
    pub end: i64,
    #[prost(string, repeated, tag = "5")]
    #[serde(alias = "group_by")]
    pub group_by: Vec<String>,
    /// Seconds.
    #[prost(double, tag = "6")]
    pub step: f64,
    #[prost(int32, optional, tag = "7")]
    #[serde(deserialize_with = "json::optional_enumeration::<Aggregation, _>")]
    pub aggregation: Option<i32>,
    #[prost(message, optional, tag = "8")]
    #[serde(alias = "stack_trace_selector")]
    pub stack_trace_selector: Option<StackTraceSelector>,
    #[prost(int64, optional, tag = "9")]
    #[serde(deserialize_with = "json::optional_int64::deserialize")]
    pub limit: Option<i64>,
}

/// `types.v1.TimeSeriesAggregationType`: its numbers and names.
pub struct Aggregation;

impl Aggregation {
    pub const SUM: i32 = 0;
    pub const AVERAGE: i32 = 1;
}

impl json::Names for Aggregation {
    const NAMES: &'static [&'static str] = &[
        "TIME_SERIES_AGGREGATION_TYPE_SUM",
        "TIME_SERIES_AGGREGATION_TYPE_AVERAGE",
    ];
}

/// `querier.v1.SelectSeriesResponse`
#[derive(Clone, PartialEq, Message, Serialize)]
pub struct SelectSeriesResponse {
    #[prost(message, repeated, tag = "1")]
    #[serde(skip_serializing_if = "is_default")]
    pub series: Vec<Series>,
}

/// `types.v1.Series`
#[derive(Clone, PartialEq, Message, Serialize)]
pub struct Series {
    #[prost(message, repeated, tag = "1")]
    #[serde(skip_serializing_if = "is_default")]
    pub labels: Vec<LabelPair>,
    #[prost(message, repeated, tag = "2")]
    #[serde(skip_serializing_if = "is_default")]
    pub points: Vec<Point>,
}

/// `types.v1.Point`
#[derive(Clone, PartialEq, Message, Serialize)]
pub struct Point {
    #[prost(double, tag = "1")]
    #[serde(skip_serializing_if = "is_default")]
    pub value: f64,
    /// Milliseconds since the Unix epoch.
    #[prost(int64, tag = "2")]
    #[serde(with = "json::int64", skip_serializing_if = "is_default")]
    pub timestamp: i64,
}

/// `types.v1.StackTraceSelector`: selects stacks of a profile.
#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct StackTraceSelector {
    /// The outermost functions of the stacks.
    #[prost(message, repeated, tag = "1")]
    #[serde(alias = "call_site")]
    pub call_site: Vec<CallSite>,
    #[prost(message, optional, tag = "2")]
    #[serde(alias = "go_pgo")]
    pub go_pgo: Option<Empty>,
}

/// `types.v1.Location`
#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default)]
pub struct CallSite {
    #[prost(string, tag = "1")]
    pub name: String,
}

/// `querier.v1.SelectMergeStacktracesRequest`
#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct SelectMergeStacktracesRequest {
    #[prost(string, tag = "1")]
    #[serde(rename = "profileTypeID", alias = "profile_typeID")]
    pub profile_type_id: String,
    #[prost(string, tag = "2")]
    #[serde(alias = "label_selector")]
    pub label_selector: String,
    #[prost(int64, tag = "3")]
    #[serde(with = "json::int64")]
    pub start: i64,
    #[prost(int64, tag = "4")]
    #[serde(with = "json::int64")]
    pub end: i64,
    #[prost(int64, optional, tag = "5")]
    #[serde(
        deserialize_with = "json::optional_int64::deserialize",
        alias = "max_nodes"
    )]
    pub max_nodes: Option<i64>,
    #[prost(int32, tag = "6")]
    #[serde(deserialize_with = "json::enumeration::<Format, _>")]
    pub format: i32,
    #[prost(message, optional, tag = "7")]
    #[serde(alias = "stack_trace_selector")]
    pub stack_trace_selector: Option<StackTraceSelector>,
    #[prost(string, repeated, tag = "8")]
    #[serde(alias = "profile_id_selector")]
    pub profile_id_selector: Vec<String>,
    #[prost(string, repeated, tag = "10")]
    #[serde(alias = "trace_id_selector")]
    pub trace_id_selector: Vec<String>,
    #[prost(string, repeated, tag = "11")]
    #[serde(alias = "span_selector")]
    pub span_selector: Vec<String>,
}

/// `querier.v1.ProfileFormat`: its numbers and names.
pub struct Format;

impl Format {
    pub const UNSPECIFIED: i32 = 0;
    pub const FLAME_GRAPH: i32 = 1;
    pub const PPROF: i32 = 4;
}

impl json::Names for Format {
    const NAMES: &'static [&'static str] = &[
        "PROFILE_FORMAT_UNSPECIFIED",
        "PROFILE_FORMAT_FLAMEGRAPH",
        "PROFILE_FORMAT_TREE",
        "PROFILE_FORMAT_DOT",
        "PROFILE_FORMAT_PPROF",
    ];
}

/// `querier.v1.SelectMergeStacktracesResponse`
#[derive(Clone, PartialEq, Message, Serialize)]
pub struct SelectMergeStacktracesResponse {
    #[prost(message, optional, tag = "1")]
    #[serde(skip_serializing_if = "is_default")]
    pub flamegraph: Option<FlameGraph>,
    #[prost(message, optional, tag = "5")]
    #[serde(skip_serializing_if = "is_default")]
    pub pprof: Option<PprofProfile>,
}

/// `querier.v1.PprofProfile`
#[derive(Clone, PartialEq, Message, Serialize)]
pub struct PprofProfile {
    #[prost(message, optional, tag = "1")]
    #[serde(skip_serializing_if = "is_default")]
    pub profile: Option<Profile>,
}

/// `querier.v1.SelectMergeProfileRequest`
#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct SelectMergeProfileRequest {
    #[prost(string, tag = "1")]
    #[serde(rename = "profileTypeID", alias = "profile_typeID")]
    pub profile_type_id: String,
    #[prost(string, tag = "2")]
    #[serde(alias = "label_selector")]
    pub label_selector: String,
    #[prost(int64, tag = "3")]
    #[serde(with = "json::int64")]
    pub start: i64,
    #[prost(int64, tag = "4")]
    #[serde(with = "json::int64")]
    pub end: i64,
    #[prost(message, optional, tag = "6")]
    #[serde(alias = "stack_trace_selector")]
    pub stack_trace_selector: Option<StackTraceSelector>,
    #[prost(string, repeated, tag = "7")]
    #[serde(alias = "profile_id_selector")]
    pub profile_id_selector: Vec<String>,
    #[prost(string, repeated, tag = "8")]
    #[serde(alias = "trace_id_selector")]
    pub trace_id_selector: Vec<String>,
}

/// `querier.v1.DiffRequest`
#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default)]
pub struct DiffRequest {
    #[prost(message, optional, tag = "1")]
    pub left: Option<SelectMergeStacktracesRequest>,
    #[prost(message, optional, tag = "2")]
    pub right: Option<SelectMergeStacktracesRequest>,
}

/// `querier.v1.DiffResponse`
#[derive(Clone, PartialEq, Message, Serialize)]
pub struct DiffResponse {
    #[prost(message, optional, tag = "1")]
    #[serde(skip_serializing_if = "is_default")]
    pub flamegraph: Option<FlameGraphDiff>,
}

/// `querier.v1.FlameGraph`
#[derive(Clone, PartialEq, Message, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FlameGraph {
    #[prost(string, repeated, tag = "1")]
    #[serde(skip_serializing_if = "is_default")]
    pub names: Vec<String>,
    #[prost(message, repeated, tag = "2")]
    #[serde(skip_serializing_if = "is_default")]
    pub levels: Vec<Level>,
    #[prost(int64, tag = "3")]
    #[serde(with = "json::int64", skip_serializing_if = "is_default")]
    pub total: i64,
    #[prost(int64, tag = "4")]
    #[serde(with = "json::int64", skip_serializing_if = "is_default")]
    pub max_self: i64,
}

/// `querier.v1.FlameGraphDiff`
#[derive(Clone, PartialEq, Message, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FlameGraphDiff {
    #[prost(string, repeated, tag = "1")]
    #[serde(skip_serializing_if = "is_default")]
    pub names: Vec<String>,
    #[prost(message, repeated, tag = "2")]
    #[serde(skip_serializing_if = "is_default")]
    pub levels: Vec<Level>,
    #[prost(int64, tag = "3")]
    #[serde(with = "json::int64", skip_serializing_if = "is_default")]
    pub total: i64,
    #[prost(int64, tag = "4")]
    #[serde(with = "json::int64", skip_serializing_if = "is_default")]
    pub max_self: i64,
    #[prost(int64, tag = "5")]
    #[serde(with = "json::int64", skip_serializing_if = "is_default")]
    pub left_ticks: i64,
    #[prost(int64, tag = "6")]
    #[serde(with = "json::int64", skip_serializing_if = "is_default")]
    pub right_ticks: i64,
}

/// `querier.v1.Level`
#[derive(Clone, PartialEq, Eq, Message, Serialize)]
pub struct Level {
    #[prost(int64, repeated, tag = "1")]
    #[serde(
        serialize_with = "json::int64s::serialize",
        skip_serializing_if = "is_default"
    )]
    pub values: Vec<i64>,
}

/// `types.v1.GetProfileStatsResponse`
#[derive(Clone, PartialEq, Eq, Message, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ProfileStats {
    #[prost(bool, tag = "1")]
    #[serde(skip_serializing_if = "is_default")]
    pub data_ingested: bool,
    /// Milliseconds since the Unix epoch.
    #[prost(int64, tag = "2")]
    #[serde(with = "json::int64", skip_serializing_if = "is_default")]
    pub oldest_profile_time: i64,
    #[prost(int64, tag = "3")]
    #[serde(with = "json::int64", skip_serializing_if = "is_default")]
    pub newest_profile_time: i64,
}

/// `google.v1.Profile`: pprof's.
#[derive(Clone, PartialEq, Message, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Profile {
    #[prost(message, repeated, tag = "1")]
    #[serde(skip_serializing_if = "is_default")]
    pub sample_type: Vec<ValueType>,
    #[prost(message, repeated, tag = "2")]
    #[serde(skip_serializing_if = "is_default")]
    pub sample: Vec<Sample>,
    #[prost(message, repeated, tag = "3")]
    #[serde(skip_serializing_if = "is_default")]
    pub mapping: Vec<Mapping>,
    #[prost(message, repeated, tag = "4")]
    #[serde(skip_serializing_if = "is_default")]
    pub location: Vec<Location>,
    #[prost(message, repeated, tag = "5")]
    #[serde(skip_serializing_if = "is_default")]
    pub function: Vec<Function>,
    #[prost(string, repeated, tag = "6")]
    #[serde(skip_serializing_if = "is_default")]
    pub string_table: Vec<String>,
    #[prost(int64, tag = "9")]
    #[serde(with = "json::int64", skip_serializing_if = "is_default")]
    pub time_nanos: i64,
    #[prost(int64, tag = "10")]
    #[serde(with = "json::int64", skip_serializing_if = "is_default")]
    pub duration_nanos: i64,
    #[prost(int64, tag = "14")]
    #[serde(with = "json::int64", skip_serializing_if = "is_default")]
    pub default_sample_type: i64,
}

/// `google.v1.ValueType`: indices into the string table.
#[derive(Clone, PartialEq, Eq, Message, Serialize)]
pub struct ValueType {
    #[prost(int64, tag = "1")]
    #[serde(
        rename = "type",
        with = "json::int64",
        skip_serializing_if = "is_default"
    )]
    pub kind: i64,
    #[prost(int64, tag = "2")]
    #[serde(with = "json::int64", skip_serializing_if = "is_default")]
    pub unit: i64,
}

/// `google.v1.Sample`
#[derive(Clone, PartialEq, Eq, Message, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Sample {
    #[prost(uint64, repeated, tag = "1")]
    #[serde(
        serialize_with = "json::int64s::serialize",
        skip_serializing_if = "is_default"
    )]
    pub location_id: Vec<u64>,
    #[prost(int64, repeated, tag = "2")]
    #[serde(
        serialize_with = "json::int64s::serialize",
        skip_serializing_if = "is_default"
    )]
    pub value: Vec<i64>,
}

/// `google.v1.Mapping`
#[derive(Clone, PartialEq, Eq, Message, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Mapping {
    #[prost(uint64, tag = "1")]
    #[serde(
        serialize_with = "json::int64::serialize",
        skip_serializing_if = "is_default"
    )]
    pub id: u64,
    #[prost(int64, tag = "5")]
    #[serde(with = "json::int64", skip_serializing_if = "is_default")]
    pub filename: i64,
    #[prost(bool, tag = "7")]
    #[serde(skip_serializing_if = "is_default")]
    pub has_functions: bool,
    #[prost(bool, tag = "8")]
    #[serde(skip_serializing_if = "is_default")]
    pub has_filenames: bool,
    #[prost(bool, tag = "9")]
    #[serde(skip_serializing_if = "is_default")]
    pub has_line_numbers: bool,
    #[prost(bool, tag = "10")]
    #[serde(skip_serializing_if = "is_default")]
    pub has_inline_frames: bool,
}

/// `google.v1.Location`
#[derive(Clone, PartialEq, Message, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Location {
    #[prost(uint64, tag = "1")]
    #[serde(
        serialize_with = "json::int64::serialize",
        skip_serializing_if = "is_default"
    )]
    pub id: u64,
    #[prost(uint64, tag = "2")]
    #[serde(
        serialize_with = "json::int64::serialize",
        skip_serializing_if = "is_default"
    )]
    pub mapping_id: u64,
    #[prost(message, repeated, tag = "4")]
    #[serde(skip_serializing_if = "is_default")]
    pub line: Vec<Line>,
}

/// `google.v1.Line`
#[derive(Clone, PartialEq, Eq, Message, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Line {
    #[prost(uint64, tag = "1")]
    #[serde(
        serialize_with = "json::int64::serialize",
        skip_serializing_if = "is_default"
    )]
    pub function_id: u64,
    #[prost(int64, tag = "2")]
    #[serde(with = "json::int64", skip_serializing_if = "is_default")]
    pub line: i64,
}

/// `google.v1.Function`
#[derive(Clone, PartialEq, Eq, Message, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Function {
    #[prost(uint64, tag = "1")]
    #[serde(
        serialize_with = "json::int64::serialize",
        skip_serializing_if = "is_default"
    )]
    pub id: u64,
    #[prost(int64, tag = "2")]
    #[serde(with = "json::int64", skip_serializing_if = "is_default")]
    pub name: i64,
    #[prost(int64, tag = "3")]
    #[serde(with = "json::int64", skip_serializing_if = "is_default")]
    pub system_name: i64,
    #[prost(int64, tag = "4")]
    #[serde(with = "json::int64", skip_serializing_if = "is_default")]
    pub filename: i64,
    #[prost(int64, tag = "5")]
    #[serde(with = "json::int64", skip_serializing_if = "is_default")]
    pub start_line: i64,
}
