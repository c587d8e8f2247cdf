//! Pyroscope's query API over the page's history, for Grafana.

mod call;
mod render;
mod request;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use profcol_flamegraph::SampleType;
use profcol_pyroscope::messages::{
    Aggregation, DiffRequest, DiffResponse, Empty, FlameGraph, FlameGraphDiff, Format,
    LabelNamesRequest, LabelPair, LabelValuesRequest, Labels, NamesResponse, Point, PprofProfile,
    Profile, ProfileStats, ProfileTypesRequest, ProfileTypesResponse, SelectMergeProfileRequest,
    SelectMergeStacktracesRequest, SelectMergeStacktracesResponse, SelectSeriesRequest,
    SelectSeriesResponse, Series, SeriesRequest, SeriesResponse,
};
use profcol_pyroscope::{Codec, ConnectCode, ConnectMethod, ConnectRpcError, ProfileTypeId};

use self::request::{MAX_SERIES, Range, SampleQuery, labels, max_nodes, selectors};
use profcol_history::{History, Query, QueryResult, SERVICE_NAME, Selector};

pub(super) use self::call::{ACCEPT_POST, Call, Unreadable};
pub(super) use self::render::PATHS as RENDER_PATHS;

/// Maximum number of sample types; each is queried separately.
const MAX_TYPES: usize = 256;
/// Maximum number of points in a response, over all series.
const MAX_POINTS: usize = 500_000;

pub(super) struct Querier {
    history: Arc<History>,
}

impl Querier {
    pub fn new(history: Arc<History>) -> Self {
        Self { history }
    }

    /// The encoded response to a call.
    pub fn call(
        &self,
        method: ConnectMethod,
        codec: Codec,
        body: &[u8],
    ) -> Result<Vec<u8>, ConnectRpcError> {
        match method {
            ConnectMethod::ProfileTypes => codec.encode(&self.profile_types(&codec.decode(body)?)?),
            ConnectMethod::LabelNames => codec.encode(&self.label_names(&codec.decode(body)?)?),
            ConnectMethod::LabelValues => codec.encode(&self.label_values(&codec.decode(body)?)?),
            ConnectMethod::Series => codec.encode(&self.series(&codec.decode(body)?)?),
            ConnectMethod::SelectSeries => codec.encode(&self.select_series(&codec.decode(body)?)?),
            ConnectMethod::SelectMergeStacktraces => {
                codec.encode(&self.merge_stacktraces(&codec.decode(body)?)?)
            }
            ConnectMethod::SelectMergeProfile => {
                codec.encode(&self.merge_profile(codec.decode(body)?)?)
            }
            ConnectMethod::Diff => codec.encode(&self.diff(codec.decode(body)?)?),
            ConnectMethod::GetProfileStats => codec.encode(&self.stats()),
            ConnectMethod::GetSettings => codec.encode(&Empty {}),
            ConnectMethod::Unknown => Err(ConnectRpcError::unimplemented(
                "profcol does not implement this method; the README of live_view lists the supported ones",
            )),
        }
    }

    fn profile_types(
        &self,
        request: &ProfileTypesRequest,
    ) -> Result<ProfileTypesResponse, ConnectRpcError> {
        let range = Range::of_labels(request.start, request.end)?;
        let types = self.types(range);
        Ok(ProfileTypesResponse {
            profile_types: types.iter().map(|(_, id)| id.message()).collect(),
        })
    }

    fn label_names(&self, request: &LabelNamesRequest) -> Result<NamesResponse, ConnectRpcError> {
        let range = Range::of_labels(request.start, request.end)?;
        let mut names = BTreeSet::new();
        for (id, query) in self.queries(&request.matchers, range)? {
            let found = self.read(|it| it.label_names(&query));
            if !found.is_empty() {
                names.extend(id.labels().map(|(name, _)| name.to_owned()));
            }
            names.extend(found);
        }
        Ok(NamesResponse {
            names: names.into_iter().collect(),
        })
    }

    fn label_values(&self, request: &LabelValuesRequest) -> Result<NamesResponse, ConnectRpcError> {
        if request.name.is_empty() {
            return Err(ConnectRpcError::invalid(
                "`name` is missing: it must be the name of a label",
            ));
        }
        let range = Range::of_labels(request.start, request.end)?;
        let mut values = BTreeSet::new();
        for (id, query) in self.queries(&request.matchers, range)? {
            match type_label(&id, &request.name) {
                Some(value) => {
                    // Every series has a service.
                    let found = self.read(|it| it.label_values(&query, SERVICE_NAME, 1));
                    values.extend(found.iter().map(|_| value.clone()));
                }
                None => {
                    let found = self.read(|it| it.label_values(&query, &request.name, MAX_SERIES));
                    values.extend(found.into_iter().map(|it| it.value));
                }
            }
        }
        Ok(NamesResponse {
            names: values.into_iter().collect(),
        })
    }

    fn series(&self, request: &SeriesRequest) -> Result<SeriesResponse, ConnectRpcError> {
        let range = Range::of_labels(request.start, request.end)?;
        let names = labels("label_names", &request.label_names)?;
        let is_named = |name: &str| names.iter().any(|it| it == name);
        let mut sets: BTreeSet<Vec<(String, String)>> = BTreeSet::new();
        for (id, query) in self.queries(&request.matchers, range)? {
            let type_labels = id.labels().into_iter();
            let type_labels = type_labels.filter(|(name, _)| names.is_empty() || is_named(name));
            let type_labels: Vec<_> = type_labels
                .map(|(name, value)| (name.to_owned(), value))
                .collect();
            let found = self.read(|it| it.label_sets(&query, names, MAX_SERIES));
            for mut labels in found {
                labels.retain(|(name, _)| type_labels.iter().all(|(known, _)| known != name));
                labels.extend(type_labels.iter().cloned());
                labels.sort_unstable();
                sets.insert(labels);
            }
        }
        let sets = sets.into_iter().take(MAX_SERIES);
        let labels_set = sets.map(|labels| Labels {
            labels: labels.into_iter().map(pair).collect(),
        });
        Ok(SeriesResponse {
            labels_set: labels_set.collect(),
        })
    }

    fn select_series(
        &self,
        request: &SelectSeriesRequest,
    ) -> Result<SelectSeriesResponse, ConnectRpcError> {
        let query = SampleQuery::of_series(request)?;
        let steps = query.steps(request.step)?;
        let limit = query.limit(request.limit);
        let by = labels("group_by", &request.group_by)?;
        let is_average = match request.aggregation.unwrap_or(Aggregation::SUM) {
            Aggregation::SUM => false,
            Aggregation::AVERAGE => true,
            other => {
                return Err(ConnectRpcError::invalid(format!(
                    "unknown `aggregation` {other}"
                )));
            }
        };
        let range = query.range;
        let Some((id, mut query)) = self.query(query) else {
            return Ok(SelectSeriesResponse::default());
        };
        // A point has the time of its step's end.
        query.from = steps.start;
        let groups = self.read(|it| it.points(&query, by, steps, limit));
        let points: usize = groups.iter().map(|(_, points)| points.len()).sum();
        if points > MAX_POINTS {
            return Err(ConnectRpcError {
                code: ConnectCode::ResourceExhausted,
                message: format!(
                    "the answer has {points} points, more than {MAX_POINTS}; group by fewer labels, set a `limit`, or use a longer `step`"
                ),
            });
        }
        let series = groups.into_iter().map(|(values, points)| {
            let labels = by.iter().cloned().zip(values);
            let labels =
                labels.map(|(name, value)| (type_label(&id, &name).unwrap_or(value), name));
            let mut labels: Vec<LabelPair> = labels
                .filter(|(value, _)| !value.is_empty())
                .map(|(value, name)| LabelPair { name, value })
                .collect();
            labels.sort_unstable();
            labels.dedup();
            let points = points.into_iter().filter_map(|(number, sum)| {
                let end = number.saturating_add(1).saturating_mul(steps.length);
                let end = steps.start.saturating_add(end);
                let divisor = if is_average { sum.slices.max(1) } else { 1 };
                #[expect(clippy::cast_precision_loss, reason = "Pyroscope's values are doubles")]
                let value = sum.value as f64 / divisor as f64;
                (end <= range.until).then(|| Point {
                    value,
                    timestamp: i64::try_from(end).unwrap_or(i64::MAX),
                })
            });
            Series {
                labels,
                points: points.collect(),
            }
        });
        Ok(SelectSeriesResponse {
            series: series.filter(|it| !it.points.is_empty()).collect(),
        })
    }

    fn merge_stacktraces(
        &self,
        request: &SelectMergeStacktracesRequest,
    ) -> Result<SelectMergeStacktracesResponse, ConnectRpcError> {
        let query = SampleQuery::of_stacktraces(request)?;
        let nothing = SelectMergeStacktracesResponse::default();
        let answer = self.answer(query);
        match request.format {
            Format::UNSPECIFIED | Format::FLAME_GRAPH => Ok(SelectMergeStacktracesResponse {
                flamegraph: answer
                    .and_then(|it| FlameGraph::of(&it.tree, max_nodes(request.max_nodes))),
                ..nothing
            }),
            Format::PPROF => Ok(SelectMergeStacktracesResponse {
                pprof: Some(PprofProfile {
                    profile: Some(profile(answer)?),
                }),
                ..nothing
            }),
            other => Err(ConnectRpcError::unimplemented(format!(
                "`format` {other} is not supported; use PROFILE_FORMAT_FLAMEGRAPH or PROFILE_FORMAT_PPROF"
            ))),
        }
    }

    fn merge_profile(
        &self,
        request: SelectMergeProfileRequest,
    ) -> Result<Profile, ConnectRpcError> {
        profile(self.answer(SampleQuery::of_profile(&request)?))
    }

    fn diff(&self, request: DiffRequest) -> Result<DiffResponse, ConnectRpcError> {
        let (Some(left), Some(right)) = (request.left, request.right) else {
            return Err(ConnectRpcError::invalid(
                "`left` and `right` are required for a comparison; one is missing",
            ));
        };
        let nodes = max_nodes(left.max_nodes.max(right.max_nodes));
        let (left, right) = (
            SampleQuery::of_stacktraces(&left)?,
            SampleQuery::of_stacktraces(&right)?,
        );
        let answer = self.compare(left, right)?;
        Ok(DiffResponse {
            flamegraph: answer.and_then(|it| FlameGraphDiff::of(&it.tree, nodes)),
        })
    }

    /// `left` is the baseline.
    fn compare(
        &self,
        left: SampleQuery,
        right: SampleQuery,
    ) -> Result<Option<QueryResult>, ConnectRpcError> {
        if left.profile_type != right.profile_type {
            return Err(ConnectRpcError::invalid(format!(
                "only profiles of the same type can be compared, not {} and {}",
                left.profile_type, right.profile_type
            )));
        }
        self.write_names();
        let sides = (self.query(left), self.query(right));
        Ok(match sides {
            (Some((_, left)), Some((_, right))) => {
                Some(self.read(|it| it.call_tree(&right, Some(&left))))
            }
            // A selector for another type matches nothing.
            (Some((_, left)), None) => {
                let nothing = Query {
                    from: 0,
                    until: 0,
                    ..left.clone()
                };
                Some(self.read(|it| it.call_tree(&nothing, Some(&left))))
            }
            (None, Some((_, right))) => {
                let nothing = Query {
                    from: 0,
                    until: 0,
                    ..right.clone()
                };
                Some(self.read(|it| it.call_tree(&right, Some(&nothing))))
            }
            (None, None) => None,
        })
    }

    fn stats(&self) -> ProfileStats {
        let extent = self.read(History::extent);
        let time = |time: Option<u64>| i64::try_from(time.unwrap_or(0)).unwrap_or(i64::MAX);
        ProfileStats {
            data_ingested: extent.samples > 0,
            oldest_profile_time: time(extent.oldest),
            newest_profile_time: time(extent.newest),
        }
    }

    fn answer(&self, query: SampleQuery) -> Option<QueryResult> {
        self.write_names();
        let (_, query) = self.query(query)?;
        Some(self.read(|it| it.call_tree(&query, None)))
    }

    /// `None` if there are no samples of this type.
    fn query(&self, query: SampleQuery) -> Option<(ProfileTypeId, Query)> {
        let types = self.types(Range::EVER).into_iter();
        let (kind, id) = types
            .into_iter()
            .find(|(_, id)| id.id() == query.profile_type)?;
        let selector = given_type(query.selector, &id)?;
        let query = Query {
            kind: Some(kind.name),
            from: query.range.from,
            until: query.range.until,
            selector,
            call_site: query.call_site,
        };
        Some((id, query))
    }

    /// A query for each type and each selector.
    fn queries(
        &self,
        matchers: &[String],
        range: Range,
    ) -> Result<Vec<(ProfileTypeId, Query)>, ConnectRpcError> {
        let selectors = selectors(matchers)?;
        let mut queries = Vec::new();
        for (kind, id) in self.types(range) {
            for selector in &selectors {
                let Some(selector) = given_type(selector.clone(), &id) else {
                    continue;
                };
                let query = Query {
                    kind: Some(kind.name.clone()),
                    from: range.from,
                    until: range.until,
                    selector,
                    call_site: Vec::new(),
                };
                queries.push((id.clone(), query));
            }
        }
        Ok(queries)
    }

    /// The sample types, unique by ID.
    fn types(&self, range: Range) -> Vec<(SampleType, ProfileTypeId)> {
        let types = self.read(|it| it.types(range.from, range.until));
        let mut by_id: BTreeMap<String, (SampleType, ProfileTypeId)> = BTreeMap::new();
        for kind in types {
            let id = ProfileTypeId::of(&kind);
            by_id.entry(id.id()).or_insert((kind, id));
        }
        by_id.into_values().take(MAX_TYPES).collect()
    }

    fn write_names(&self) {
        self.history.resolve_symbols();
    }

    fn read<T>(&self, query: impl FnOnce(&History) -> T) -> T {
        query(&self.history)
    }
}

fn profile(answer: Option<QueryResult>) -> Result<Profile, ConnectRpcError> {
    let QueryResult { tree, source } = answer.unwrap_or_default();
    Profile::of(&tree, &source)
}

/// The value of a label that describes the type.
fn type_label(id: &ProfileTypeId, label: &str) -> Option<String> {
    let mut labels = id.labels().into_iter();
    labels
        .find(|(name, _)| *name == label)
        .map(|(_, value)| value)
}

/// The selector without its matchers of the type; `None` if it selects another type.
fn given_type(selector: Selector, id: &ProfileTypeId) -> Option<Selector> {
    let mut labels = id.labels().into_iter();
    labels.try_fold(selector, |selector, (name, value)| {
        selector.given(name, &value)
    })
}

fn pair((name, value): (String, String)) -> LabelPair {
    LabelPair { name, value }
}
