//! The endpoints that predate `querier.v1`: a flame graph and values over time in one JSON document.

use std::collections::BTreeMap;

use profcol_pyroscope::messages::{FlameGraph, FlameGraphDiff, LabelValuesRequest, Level};
use profcol_pyroscope::{ConnectRpcError, parse};
use serde_json::{Value, json};

use super::super::parameters::{Parameters, now};
use super::Querier;
use super::request::{Range, SampleQuery, max_nodes, selector};
use profcol_history::{Points, Steps};

pub(in crate::live_view) const PATHS: [&str; 3] = [RENDER, RENDER_DIFF, "/pyroscope/label-values"];
const RENDER: &str = "/pyroscope/render";
const RENDER_DIFF: &str = "/pyroscope/render-diff";

const SECOND: u64 = 1000;
/// Maximum number of points of a timeline, and minimum distance between them.
const MAX_POINTS: u64 = 1500;
const MIN_STEP: u64 = 15 * SECOND;
/// Maximum number of timelines, sorted by value, descending.
const MAX_GROUPS: usize = 200;

impl Querier {
    /// The JSON response for a path of [`PATHS`].
    pub fn render(&self, path: &str, parameters: &Parameters) -> Result<Value, ConnectRpcError> {
        match path {
            RENDER => self.render_one(parameters),
            RENDER_DIFF => self.render_diff(parameters),
            _ => self.values_of_label(parameters),
        }
    }

    fn render_one(&self, parameters: &Parameters) -> Result<Value, ConnectRpcError> {
        match parameters.text("format").unwrap_or("json") {
            "" | "json" => {}
            other => {
                return Err(ConnectRpcError::invalid(format!(
                    "`format` {other:?} is not supported; use json"
                )));
            }
        }
        let is_average = match parameters.text("aggregation").unwrap_or("sum") {
            "" | "sum" => false,
            "avg" => true,
            other => {
                return Err(ConnectRpcError::invalid(format!(
                    "`aggregation` must be sum or avg, not {other:?}"
                )));
            }
        };
        let ask = || query(parameters, ["query", "from", "until"]);
        let query = ask()?;
        let (range, profile_type) = (query.range, query.profile_type.clone());
        let nodes = nodes(parameters)?;
        let answer = self.answer(query);
        let graph = answer.and_then(|it| FlameGraph::of(&it.tree, nodes));
        let line = Line::of(range, is_average);
        let timeline = self.lines(ask()?, &[], &line).into_values().next();
        let groups = match parameters.text("groupBy").unwrap_or("") {
            "" => json!({}),
            label => self
                .lines(ask()?, &[label.to_owned()], &line)
                .into_iter()
                .map(|(value, points)| (value, line.json(&points)))
                .collect::<serde_json::Map<_, _>>()
                .into(),
        };
        let graph = graph.unwrap_or_else(empty_graph);
        Ok(json!({
            "version": 1,
            "flamebearer": {
                "names": graph.names,
                "levels": levels(&graph.levels),
                "numTicks": graph.total,
                "maxSelf": graph.max_self,
            },
            "metadata": metadata("single", &profile_type),
            "timeline": line.json(&timeline.unwrap_or_else(|| line.numbers(&Points::new()))),
            "groups": groups,
            "heatmap": null,
        }))
    }

    fn render_diff(&self, parameters: &Parameters) -> Result<Value, ConnectRpcError> {
        let left = query(parameters, ["leftQuery", "leftFrom", "leftUntil"])?;
        let right = query(parameters, ["rightQuery", "rightFrom", "rightUntil"])?;
        let nodes = nodes(parameters)?;
        let profile_type = left.profile_type.clone();
        let answer = self.compare(left, right)?;
        let graph = answer.and_then(|it| FlameGraphDiff::of(&it.tree, nodes));
        let graph = graph.unwrap_or_default();
        Ok(json!({
            "version": 1,
            "flamebearer": {
                "names": graph.names,
                "levels": levels(&graph.levels),
                "numTicks": graph.total,
                "maxSelf": graph.max_self,
            },
            "metadata": metadata("double", &profile_type),
            "timeline": null,
            "groups": null,
            "heatmap": null,
            "leftTicks": graph.left_ticks,
            "rightTicks": graph.right_ticks,
        }))
    }

    fn values_of_label(&self, parameters: &Parameters) -> Result<Value, ConnectRpcError> {
        let name = parameters.text("label").unwrap_or("").to_owned();
        let request = LabelValuesRequest {
            name,
            ..Default::default()
        };
        Ok(json!(self.label_values(&request)?.names))
    }

    /// A line for each value of the label, or one line without a label.
    fn lines(&self, query: SampleQuery, by: &[String], line: &Line) -> BTreeMap<String, Numbers> {
        let Some((_, query)) = self.query(query) else {
            return BTreeMap::new();
        };
        let groups = self.read(|it| it.points(&query, by, line.steps, MAX_GROUPS));
        let lines = groups.into_iter().map(|(values, points)| {
            (
                values.into_iter().next().unwrap_or_default(),
                line.numbers(&points),
            )
        });
        lines.collect()
    }
}

type Numbers = Vec<u64>;

/// The meaning of a timeline's points.
struct Line {
    steps: Steps,
    count: u64,
    is_average: bool,
}

impl Line {
    fn of(range: Range, is_average: bool) -> Self {
        let span = range.until - range.from;
        let length = span
            .div_ceil(MAX_POINTS)
            .next_multiple_of(SECOND)
            .max(MIN_STEP);
        let start = range.from / SECOND * SECOND;
        Self {
            steps: Steps { start, length },
            count: (range.until - start).div_ceil(length),
            is_average,
        }
    }

    fn numbers(&self, points: &Points) -> Numbers {
        let number = |step| match points.get(&step) {
            Some(sum) if self.is_average => sum.value / sum.slices.max(1),
            Some(sum) => sum.value,
            None => 0,
        };
        (0..self.count).map(number).collect()
    }

    fn json(&self, samples: &Numbers) -> Value {
        json!({
            "startTime": self.steps.start / SECOND,
            "samples": samples,
            "durationDelta": self.steps.length / SECOND,
            "watermarks": null,
        })
    }
}

/// Numbers here; the newer messages have them as text.
fn levels(levels: &[Level]) -> Vec<&[i64]> {
    levels.iter().map(|level| level.values.as_slice()).collect()
}

fn empty_graph() -> FlameGraph {
    FlameGraph {
        names: vec!["total".to_owned()],
        levels: vec![Level { values: vec![0; 4] }],
        ..FlameGraph::default()
    }
}

fn metadata(format: &str, profile_type: &str) -> Value {
    let mut parts = profile_type.split(':').skip(1);
    let (name, unit) = (parts.next().unwrap_or(""), parts.next().unwrap_or(""));
    // Viewers divide ticks by the rate and show the result as seconds.
    let (units, rate) = match unit {
        "nanoseconds" => ("samples", 1_000_000_000),
        "count" => ("objects", 100),
        unit => (unit, 100),
    };
    json!({
        "format": format,
        "spyName": "profcol",
        "sampleRate": rate,
        "units": units,
        "name": name,
    })
}

/// `TYPE{SELECTOR}`, and a time range.
fn query(
    parameters: &Parameters,
    names: [&'static str; 3],
) -> Result<SampleQuery, ConnectRpcError> {
    let [query, from, until] = names;
    let text = parameters.text(query).unwrap_or("");
    let (profile_type, labels) = match text.find('{') {
        Some(brace) => text.split_at(brace),
        None => (text, ""),
    };
    let profile_type = parse(profile_type.trim())
        .map_err(|error| ConnectRpcError::invalid(format!("`{query}`: {error}")))?;
    let now = now();
    let time = |name, default: u64| match parameters.text(name) {
        None | Some("") => Ok(default),
        Some(text) => time(text, now).ok_or_else(|| {
            ConnectRpcError::invalid(format!(
                "`{name}` is not a time such as now-1h or seconds of Unix time: {text:?}"
            ))
        }),
    };
    let until = time(until, now)?;
    let from = time(from, until.saturating_sub(3600 * SECOND))?;
    let signed = |time| i64::try_from(time).unwrap_or(i64::MAX);
    Ok(SampleQuery {
        profile_type: profile_type.to_owned(),
        selector: selector(query, labels)?,
        range: Range::new(signed(from), signed(until))?,
        call_site: Vec::new(),
    })
}

fn nodes(parameters: &Parameters) -> Result<usize, ConnectRpcError> {
    let requested = parameters.text("max-nodes").or(parameters.text("maxNodes"));
    match requested.unwrap_or("") {
        "" => Ok(max_nodes(None)),
        text => text.parse().map(|it| max_nodes(Some(it))).map_err(|_| {
            ConnectRpcError::invalid(format!("`max-nodes` is not a number: {text:?}"))
        }),
    }
}

/// Parses `now`, `now-90m`, or Unix time in seconds or milliseconds, into milliseconds.
fn time(text: &str, now: u64) -> Option<u64> {
    /// The year 5138 in seconds, 1973 in milliseconds.
    const MIN_MILLISECONDS: u64 = 100_000_000_000;
    if text == "now" {
        return Some(now);
    }
    let Some(ago) = text.strip_prefix("now-") else {
        let number: u64 = text.parse().ok()?;
        return Some(match number < MIN_MILLISECONDS {
            true => number * SECOND,
            false => number,
        });
    };
    let digits = ago.find(|it: char| !it.is_ascii_digit())?;
    let (number, unit) = ago.split_at(digits);
    let unit = match unit {
        "ms" => 1,
        "s" => SECOND,
        "m" => 60 * SECOND,
        "h" => 3600 * SECOND,
        "d" => 24 * 3600 * SECOND,
        "w" => 7 * 24 * 3600 * SECOND,
        _ => return None,
    };
    Some(now.saturating_sub(number.parse::<u64>().ok()?.saturating_mul(unit)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_relative_or_unix_time() {
        let now = 1_700_000_000_000;
        for (text, expected) in [
            ("now", Some(now)),
            ("now-1h", Some(now - 3_600_000)),
            ("now-90m", Some(now - 5_400_000)),
            ("now-1500ms", Some(now - 1500)),
            ("1700000000", Some(now)),
            ("1700000000000", Some(now)),
            ("now-99999999999999999w", Some(0)),
            ("now-", None),
            ("now-h", None),
            ("now-1y2", None),
            ("now-99999999999999999999s", None),
            ("yesterday", None),
            ("-1", None),
        ] {
            assert_eq!(time(text, now), expected, "{text}");
        }
    }

    #[test]
    fn a_timeline_has_at_most_1500_points_15_seconds_apart() {
        let line = |span| {
            Line::of(
                Range {
                    from: 1_000_500,
                    until: 1_000_500 + span,
                },
                false,
            )
        };
        let short = line(60_000);
        assert_eq!((short.steps.start, short.steps.length), (1_000_000, 15_000));
        assert_eq!(short.count, 5);
        let long = line(u64::from(u32::MAX) * 1000);
        assert!(long.count <= MAX_POINTS + 1, "{}", long.count);
    }
}
