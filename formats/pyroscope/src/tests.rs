//! Call trees as Pyroscope's bars and profiles, names of profile types, and requests in JSON and protobuf.

use profcol_flamegraph::{CallTree, Frame, FrameId, SampleType, Side, Source};
use proptest::prelude::*;
use prost::Message;
use serde_json::json;

use crate::messages::*;
use crate::*;

fn frame(tree: &mut CallTree, name: &str) -> FrameId {
    let name = tree.frames.string(name);
    tree.frames.add(Frame {
        name,
        ..Frame::default()
    })
}

/// Folded stacks with their values on either side.
fn tree(stacks: &[(&str, u64, u64)]) -> CallTree {
    let mut tree = CallTree::default();
    for &(stack, value, base) in stacks {
        let stack: Vec<FrameId> = stack.split(';').map(|it| frame(&mut tree, it)).collect();
        tree.add_stack(stack.iter().copied(), Side::Current, value);
        tree.add_stack(stack, Side::Base, base);
    }
    tree
}

fn levels(levels: &[Level]) -> Vec<Vec<i64>> {
    levels.iter().map(|it| it.values.clone()).collect()
}

#[test]
fn a_flame_graph_is_rows_of_bars() {
    let tree = tree(&[
        ("main;a;b", 3, 0),
        ("main;a", 4, 0),
        ("main;c;b", 5, 0),
        ("other;b", 2, 0),
    ]);
    let graph = FlameGraph::of(&tree, 100).unwrap();
    assert_eq!(graph.names, ["total", "main", "a", "b", "c", "other"]);
    assert_eq!(
        levels(&graph.levels),
        [
            vec![0, 14, 0, 0],
            vec![0, 12, 0, 1, 0, 2, 0, 5],
            vec![0, 7, 4, 2, 0, 5, 0, 4, 0, 2, 2, 3],
            // The self value of `a` is a gap after its callees.
            vec![0, 3, 3, 3, 4, 5, 5, 3],
        ]
    );
    assert_eq!((graph.total, graph.max_self), (14, 5));
    assert_eq!(FlameGraph::of(&CallTree::default(), 100), None);
}

#[test]
fn omitted_nodes_have_no_bar() {
    let tree = tree(&[("main;big", 90, 0), ("main;small", 1, 0), ("main;z", 9, 0)]);
    let graph = FlameGraph::of(&tree, 3).unwrap();
    assert_eq!(graph.names, ["total", "main", "big", "z"]);
    assert_eq!(levels(&graph.levels)[2], [0, 90, 90, 2, 0, 9, 9, 3]);
    assert_eq!(graph.total, 100);
}

#[test]
fn a_comparison_has_both_sides_in_each_bar() {
    let tree = tree(&[("main;gone", 0, 4), ("main;kept", 2, 6), ("main;new", 8, 0)]);
    let graph = FlameGraphDiff::of(&tree, 100).unwrap();
    assert_eq!(graph.names, ["total", "main", "gone", "kept", "new"]);
    assert_eq!(
        levels(&graph.levels),
        [
            vec![0, 10, 0, 0, 10, 0, 0],
            vec![0, 10, 0, 0, 10, 0, 1],
            vec![
                0, 4, 4, 0, 0, 0, 2, 0, 6, 6, 0, 2, 2, 3, 0, 0, 0, 0, 8, 8, 4
            ],
        ]
    );
    assert_eq!((graph.left_ticks, graph.right_ticks), (10, 10));
    assert_eq!((graph.total, graph.max_self), (20, 8));
}

#[test]
fn a_profile_has_the_stacks_as_pprof() {
    let tree = tree(&[("main;a", 3, 0), ("main", 4, 0)]);
    let source = Source {
        sample_type: SampleType {
            name: "cpu".to_owned(),
            unit: "nanoseconds".to_owned(),
        },
        from: 1000,
        until: 3000,
        ..Source::default()
    };
    let profile = Profile::of(&tree, &source).unwrap();
    let text = |index: i64| profile.string_table[usize::try_from(index).unwrap()].as_str();
    let [kind] = profile.sample_type.as_slice() else {
        panic!("{profile:?}")
    };
    assert_eq!((text(kind.kind), text(kind.unit)), ("cpu", "nanoseconds"));
    let name = |location: &u64| {
        let location = profile.location.iter().find(|it| it.id == *location);
        let function = location.unwrap().line[0].function_id;
        let function = profile.function.iter().find(|it| it.id == function);
        text(function.unwrap().name)
    };
    let mut samples: Vec<(Vec<&str>, i64)> = profile
        .sample
        .iter()
        .map(|it| (it.location_id.iter().map(name).collect(), it.value[0]))
        .collect();
    samples.sort();
    assert_eq!(samples, [(vec!["a", "main"], 3), (vec!["main"], 4)]);
    assert_eq!(profile.time_nanos, 1_000_000_000);
    assert_eq!(profile.duration_nanos, 2_000_000_000);
    let empty = Profile::of(&CallTree::default(), &source).unwrap();
    assert_eq!(empty.string_table, [""]);
}

#[test]
fn profile_types_have_pyroscopes_names() {
    for (name, unit, id) in [
        (
            "cpu",
            "nanoseconds",
            "process_cpu:cpu:nanoseconds:cpu:nanoseconds",
        ),
        (
            "samples",
            "count",
            "process_cpu:samples:count:cpu:nanoseconds",
        ),
        (
            "alloc_space",
            "bytes",
            "memory:alloc_space:bytes:space:bytes",
        ),
        (
            "wall",
            "nanoseconds",
            "wall:wall:nanoseconds:wall:nanoseconds",
        ),
        ("a:b", "", "a_b:a_b:unknown:a_b:unknown"),
    ] {
        let kind = SampleType {
            name: name.to_owned(),
            unit: unit.to_owned(),
        };
        let type_id = ProfileTypeId::of(&kind);
        assert_eq!(type_id.id(), id);
        assert_eq!(parse(id), Ok(id));
        assert_eq!(parse(&format!("{id}:delta")), Ok(id));
        assert_eq!(type_id.message().id, id);
    }
    for wrong in ["", "cpu", "a:b:c:d", "a:b:c:d:e:f", ":b:c:d:e", "a:b:c:d:"] {
        assert!(parse(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn json_is_decoded_as_protobuf_requires() {
    let read = |text: &str| Codec::Json.decode::<SelectMergeStacktracesRequest>(text.as_bytes());
    let expected = SelectMergeStacktracesRequest {
        profile_type_id: "a:b:c:d:e".to_owned(),
        label_selector: "{}".to_owned(),
        start: 1_700_000_000_000,
        end: 2,
        max_nodes: Some(-1),
        format: Format::PPROF,
        stack_trace_selector: Some(StackTraceSelector {
            call_site: vec![CallSite {
                name: "main".to_owned(),
            }],
            go_pgo: None,
        }),
        ..SelectMergeStacktracesRequest::default()
    };
    let camel = r#"{"profileTypeID": "a:b:c:d:e", "labelSelector": "{}", "start": "1700000000000", "end": 2.0,
        "maxNodes": "-1", "format": "PROFILE_FORMAT_PPROF", "unknown": [{}],
        "stackTraceSelector": {"callSite": [{"name": "main"}]}}"#;
    let original = r#"{"profile_typeID": "a:b:c:d:e", "label_selector": "{}", "start": 1700000000000, "end": "2",
        "max_nodes": -1, "format": 4, "profile_id_selector": null,
        "stack_trace_selector": {"call_site": [{"name": "main"}], "go_pgo": null}}"#;
    assert_eq!(read(camel), Ok(expected.clone()));
    assert_eq!(read(original), Ok(expected.clone()));
    assert_eq!(Codec::Proto.decode(&expected.encode_to_vec()), Ok(expected));
    assert_eq!(read(""), Ok(SelectMergeStacktracesRequest::default()));
    let series: SelectSeriesRequest = Codec::Json
        .decode(br#"{"step": 15, "aggregation": "TIME_SERIES_AGGREGATION_TYPE_AVERAGE", "limit": "3", "groupBy": ["a"]}"#)
        .unwrap();
    assert_eq!(series.aggregation, Some(Aggregation::AVERAGE));
    assert_eq!((series.limit, series.step), (Some(3), 15.0));
    assert_eq!(series.group_by, ["a"]);
}

#[test]
fn invalid_requests_are_rejected_with_a_reason() {
    let error = |text: &str| {
        let read = Codec::Json.decode::<SelectMergeStacktracesRequest>(text.as_bytes());
        let failure = read.unwrap_err();
        assert_eq!(failure.code, ConnectCode::InvalidArgument);
        failure.message
    };
    for (text, expected) in [
        ("{", "invalid request: EOF while parsing"),
        ("[]", "invalid request: expected a JSON object"),
        (r#"{"start": "x"}"#, "expected a 64-bit integer"),
        (r#"{"start": 1.5}"#, "expected a 64-bit integer"),
        (
            r#"{"start": 18446744073709551615}"#,
            "expected a 64-bit integer",
        ),
        (
            r#"{"format": "PROFILE_FORMAT_X"}"#,
            "expected one of PROFILE_FORMAT_UNSPECIFIED, ",
        ),
        (&"[".repeat(100_000), "recursion limit exceeded"),
    ] {
        let message = error(text);
        assert!(message.contains(expected), "{message}");
    }
    let proto = Codec::Proto.decode::<DiffRequest>(b"\x0a\xff");
    assert_eq!(proto.unwrap_err().code, ConnectCode::InvalidArgument);
}

#[test]
fn json_is_encoded_as_protobuf_requires() {
    let write = |bytes: Result<Vec<u8>, ConnectRpcError>| -> serde_json::Value {
        serde_json::from_slice(&bytes.unwrap()).unwrap()
    };
    let response = SelectMergeStacktracesResponse {
        flamegraph: FlameGraph::of(&tree(&[("main", 7, 0)]), 10),
        pprof: None,
    };
    assert_eq!(
        write(Codec::Json.encode(&response)),
        json!({"flamegraph": {
            "names": ["total", "main"],
            "levels": [{"values": ["0", "7", "0", "0"]}, {"values": ["0", "7", "7", "1"]}],
            "total": "7",
            "maxSelf": "7",
        }})
    );
    let series = SelectSeriesResponse {
        series: vec![Series {
            labels: vec![],
            points: vec![Point {
                value: 1.5,
                timestamp: 1_700_000_000_000,
            }],
        }],
    };
    assert_eq!(
        write(Codec::Json.encode(&series)),
        json!({"series": [{"points": [{"value": 1.5, "timestamp": "1700000000000"}]}]})
    );
    assert_eq!(
        write(Codec::Json.encode(&ProfileTypesResponse::default())),
        json!({})
    );
    assert_eq!(
        Codec::Proto.encode(&response).unwrap(),
        response.encode_to_vec()
    );
}

#[test]
fn methods_are_found_by_their_path() {
    let of = ConnectMethod::of_path;
    assert_eq!(
        of("/querier.v1.QuerierService/Diff"),
        Some(ConnectMethod::Diff)
    );
    assert_eq!(
        of("/settings.v1.SettingsService/Get"),
        Some(ConnectMethod::GetSettings)
    );
    assert_eq!(
        of("/querier.v1.QuerierService/SelectHeatmap"),
        Some(ConnectMethod::Unknown)
    );
    assert_eq!(of("/querier.v1.Querier/Diff"), None);
}

/// Start and end of each bar of a row, as Grafana decodes them.
fn bars(level: &Level, stride: usize) -> Vec<(i64, i64)> {
    let mut at = 0;
    level
        .values
        .chunks(stride)
        .map(|bar| {
            let begin = at + bar[0];
            at = begin + bar[1];
            (begin, at)
        })
        .collect()
}

proptest! {
    /// Each bar lies within one of the row above, whatever was omitted.
    #[test]
    fn bars_lie_within_their_callers(
        stacks in prop::collection::vec((prop::collection::vec(0..4u8, 1..6), 0..9u64, 0..9u64), 0..20),
        max_nodes in 1..30usize,
    ) {
        let stacks: Vec<(String, u64, u64)> = stacks
            .into_iter()
            .map(|(stack, value, base)| {
                let names: Vec<String> = stack.iter().map(|it| format!("f{it}")).collect();
                (names.join(";"), value, base)
            })
            .collect();
        let stacks: Vec<_> = stacks.iter().map(|it| (it.0.as_str(), it.1, it.2)).collect();
        let tree = tree(&stacks);
        let mut graphs: Vec<(Vec<Level>, usize)> = Vec::new();
        graphs.extend(FlameGraph::of(&tree, max_nodes).map(|it| (it.levels, 4)));
        graphs.extend(FlameGraphDiff::of(&tree, max_nodes).map(|it| (it.levels, 7)));
        for (levels, stride) in graphs {
            for pair in levels.windows(2) {
                let above = bars(&pair[0], stride);
                for (begin, end) in bars(&pair[1], stride) {
                    let is_inside = above.iter().any(|caller| caller.0 <= begin && end <= caller.1);
                    prop_assert!(is_inside, "{begin}..{end} in {above:?}");
                }
            }
        }
    }

    /// Arbitrary bytes either decode or return an error.
    #[test]
    fn reads_anything(body in prop::collection::vec(any::<u8>(), 0..200)) {
        for codec in [Codec::Proto, Codec::Json] {
            let _ = codec.decode::<DiffRequest>(&body);
            let _ = codec.decode::<SelectSeriesRequest>(&body);
        }
    }
}
