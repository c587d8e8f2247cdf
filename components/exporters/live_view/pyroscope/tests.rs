//! Unusual and invalid requests.

use std::sync::Arc;
use std::time::Duration;

use profcol_component::DeferredSymbols;
use profcol_component::testkit::profiles;
use profcol_pyroscope::{Codec, ConnectCode, ConnectMethod};
use proptest::prelude::*;
use prost::Message;

use super::super::parameters::Parameters;
use super::*;
use profcol_history::Limits;

const METHODS: [ConnectMethod; 10] = [
    ConnectMethod::ProfileTypes,
    ConnectMethod::LabelNames,
    ConnectMethod::LabelValues,
    ConnectMethod::Series,
    ConnectMethod::SelectSeries,
    ConnectMethod::SelectMergeStacktraces,
    ConnectMethod::SelectMergeProfile,
    ConnectMethod::Diff,
    ConnectMethod::GetProfileStats,
    ConnectMethod::Unknown,
];

fn querier() -> Querier {
    let history = History::new(Limits {
        max_age: Duration::from_secs(3600),
        max_bytes: 1 << 20,
        resolution: Duration::from_secs(5),
        sample_labels: Vec::new(),
    });
    history.add(&profiles(3).into_model(), &DeferredSymbols::default());
    Querier::new(Arc::new(history))
}

fn profile_type(querier: &Querier) -> String {
    let [(_, id)] = querier.types(Range::EVER).try_into().unwrap();
    id.id()
}

fn whole(querier: &Querier) -> SelectSeriesRequest {
    SelectSeriesRequest {
        profile_type_id: profile_type(querier),
        start: 1,
        end: i64::MAX,
        step: 1e15 / 1000.0,
        ..SelectSeriesRequest::default()
    }
}

#[test]
fn the_longest_time_range_has_all_samples() {
    let querier = querier();
    let request = whole(&querier);
    let answer = querier.select_series(&request).unwrap();
    let [series] = answer.series.as_slice() else {
        panic!("{answer:?}")
    };
    let tree = querier
        .answer(SampleQuery::of_series(&request).unwrap())
        .unwrap()
        .tree;
    #[expect(clippy::cast_precision_loss, reason = "it is small")]
    let total = tree.total().value as f64;
    assert_eq!(series.points.iter().map(|it| it.value).sum::<f64>(), total);
    assert!(total > 0.0);
}

fn times() -> impl Strategy<Value = i64> {
    let extreme = prop::sample::select(vec![i64::MIN, -1, 0, 1, i64::MAX]);
    prop_oneof![
        extreme,
        1_699_999_000_000..1_700_001_000_000i64,
        any::<i64>()
    ]
}

fn selectors() -> impl Strategy<Value = String> {
    let text = "[{}a_=~!\"'`\\\\,.*+(|) ]{0,12}";
    let valid = vec!["", "{}", "{service_name=~\".+\"}", "{__unit__!=\"x\"}"];
    prop_oneof![text, prop::sample::select(valid).prop_map(str::to_owned)]
}

fn labels() -> impl Strategy<Value = Vec<String>> {
    let valid = prop::sample::select(vec!["service_name", "__type__", "pid", ""]);
    prop::collection::vec(valid.prop_map(str::to_owned), 0..4)
}

proptest! {
    /// No request causes an internal error.
    #[test]
    fn arbitrary_requests_are_answered_or_refused(
        body in prop::collection::vec(any::<u8>(), 0..60),
        method in prop::sample::select(METHODS.to_vec()),
        codec in prop::sample::select(vec![Codec::Proto, Codec::Json]),
    ) {
        if let Err(failure) = querier().call(method, codec, &body) {
            prop_assert!(failure.code != ConnectCode::Internal, "{failure:?}");
        }
    }

    #[test]
    fn arbitrary_parameters_are_answered_or_refused(
        (start, end) in (times(), times()),
        selector in selectors(),
        step in prop_oneof![any::<f64>(), 0.001..1e15],
        (limit, nodes) in (any::<Option<i64>>(), any::<Option<i64>>()),
        by in labels(),
        format in 0..6i32,
    ) {
        let querier = querier();
        let series = SelectSeriesRequest {
            label_selector: selector.clone(),
            start,
            end,
            step,
            limit,
            group_by: by,
            ..whole(&querier)
        };
        let stacks = SelectMergeStacktracesRequest {
            profile_type_id: series.profile_type_id.clone(),
            label_selector: selector,
            start,
            end,
            max_nodes: nodes,
            format,
            ..SelectMergeStacktracesRequest::default()
        };
        let diff = DiffRequest {
            left: Some(stacks.clone()),
            right: Some(stacks.clone()),
        };
        for (method, body) in [
            (ConnectMethod::SelectSeries, series.encode_to_vec()),
            (ConnectMethod::SelectMergeStacktraces, stacks.encode_to_vec()),
            (ConnectMethod::Diff, diff.encode_to_vec()),
        ] {
            if let Err(failure) = querier.call(method, Codec::Proto, &body) {
                prop_assert!(failure.code != ConnectCode::Internal, "{failure:?}");
            }
        }
    }

    #[test]
    fn arbitrary_urls_are_answered_or_refused(
        query in selectors(),
        (from, until) in (times(), "(now(-[0-9]{1,20}[smhdwx]?)?|[0-9]{1,20})"),
        nodes in any::<i64>(),
    ) {
        let querier = querier();
        let kind = profile_type(&querier);
        let url = format!("query={kind}{query}&from={from}&until={until}&max-nodes={nodes}&groupBy=a");
        let parameters = Parameters::parse(Some(&url));
        for path in RENDER_PATHS {
            if let Err(failure) = querier.render(path, &parameters) {
                prop_assert!(failure.code != ConnectCode::Internal, "{failure:?}");
            }
        }
    }
}
