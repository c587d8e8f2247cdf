//! Validated requests.

use profcol_pyroscope::messages::{
    SelectMergeProfileRequest, SelectMergeStacktracesRequest, SelectSeriesRequest,
    StackTraceSelector,
};
use profcol_pyroscope::{ConnectRpcError, parse};

use profcol_history::{Selector, Steps};

/// Pyroscope's default.
const DEFAULT_NODES: usize = 8192;
const MAX_NODES: usize = 100_000;
/// Maximum number of series and label values in a response.
pub(super) const MAX_SERIES: usize = 10_000;
/// Maximum number of grouping labels; each is looked up in all series.
const MAX_LABELS: usize = 64;
/// Maximum number of selectors per request: each may have regular expressions.
const MAX_SELECTORS: usize = 4;
/// Maximum number of functions in a call site; each is compared with those of every stack.
const MAX_CALL_SITE: usize = 512;
/// Prometheus's limit.
const MAX_POINTS: u64 = 11_000;

/// Unix time in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Range {
    pub from: u64,
    pub until: u64,
}

/// Selects samples.
pub(super) struct SampleQuery {
    pub profile_type: String,
    pub selector: Selector,
    pub range: Range,
    pub call_site: Vec<String>,
}

impl Range {
    pub const EVER: Self = Self {
        from: 0,
        until: u64::MAX,
    };

    pub fn new(start: i64, end: i64) -> Result<Self, ConnectRpcError> {
        let (from, until) = (milliseconds(start), milliseconds(end));
        if from >= until {
            return Err(ConnectRpcError::invalid(format!(
                "`start` ({start}) must be before `end` ({end}); both are milliseconds of Unix time"
            )));
        }
        Ok(Self { from, until })
    }

    /// The time range is optional for label queries.
    pub fn of_labels(start: i64, end: i64) -> Result<Self, ConnectRpcError> {
        match (start, end) {
            (0, 0) => Ok(Self::EVER),
            _ => Self::new(start, end),
        }
    }
}

impl SampleQuery {
    pub fn new(
        profile_type: &str,
        label_selector: &str,
        (start, end): (i64, i64),
        stacks: Option<&StackTraceSelector>,
    ) -> Result<Self, ConnectRpcError> {
        let profile_type =
            parse(profile_type).map_err(|error| ConnectRpcError::invalid(error.to_string()))?;
        Ok(Self {
            profile_type: profile_type.to_owned(),
            selector: selector("label_selector", label_selector)?,
            range: Range::new(start, end)?,
            call_site: call_site(stacks)?,
        })
    }

    pub fn of_series(request: &SelectSeriesRequest) -> Result<Self, ConnectRpcError> {
        let range = (request.start, request.end);
        let stacks = request.stack_trace_selector.as_ref();
        Self::new(
            &request.profile_type_id,
            &request.label_selector,
            range,
            stacks,
        )
    }

    pub fn of_stacktraces(
        request: &SelectMergeStacktracesRequest,
    ) -> Result<Self, ConnectRpcError> {
        only_whole(&[
            &request.profile_id_selector,
            &request.trace_id_selector,
            &request.span_selector,
        ])?;
        let range = (request.start, request.end);
        let stacks = request.stack_trace_selector.as_ref();
        Self::new(
            &request.profile_type_id,
            &request.label_selector,
            range,
            stacks,
        )
    }

    pub fn of_profile(request: &SelectMergeProfileRequest) -> Result<Self, ConnectRpcError> {
        only_whole(&[&request.profile_id_selector, &request.trace_id_selector])?;
        let range = (request.start, request.end);
        let stacks = request.stack_trace_selector.as_ref();
        Self::new(
            &request.profile_type_id,
            &request.label_selector,
            range,
            stacks,
        )
    }

    /// Intervals of `step` seconds; the first ends at the start of the range.
    pub fn steps(&self, step: f64) -> Result<Steps, ConnectRpcError> {
        let wrong = |why: &str| ConnectRpcError::invalid(format!("`step` ({step} s) {why}"));
        let milliseconds = (step * 1000.0).round();
        if !(1.0..=1e15).contains(&milliseconds) {
            return Err(wrong("must be a positive number of seconds"));
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "it is in the range that was checked"
        )]
        let length = milliseconds as u64;
        if (self.range.until - self.range.from) / length > MAX_POINTS {
            return Err(wrong(
                "gives more than 11,000 points in this range; use a longer one",
            ));
        }
        Ok(Steps {
            start: self.range.from.saturating_sub(length),
            length,
        })
    }

    /// `None` or zero means no limit.
    pub fn limit(&self, limit: Option<i64>) -> usize {
        let limit = usize::try_from(limit.unwrap_or(0)).unwrap_or(0);
        match limit {
            0 => MAX_SERIES,
            limit => limit.min(MAX_SERIES),
        }
    }
}

/// `None` means Pyroscope's default; a negative number means only our limit.
pub(super) fn max_nodes(requested: Option<i64>) -> usize {
    match requested.unwrap_or(0) {
        0 => DEFAULT_NODES,
        requested => usize::try_from(requested).map_or(MAX_NODES, |it| it.min(MAX_NODES)),
    }
}

/// The label names of a request.
pub(super) fn labels<'a>(
    field: &str,
    names: &'a [String],
) -> Result<&'a [String], ConnectRpcError> {
    match names.len() > MAX_LABELS {
        true => Err(ConnectRpcError::invalid(format!(
            "`{field}` has {} labels, more than {MAX_LABELS}",
            names.len()
        ))),
        false => Ok(names),
    }
}

/// A series must match at least one selector, if there are any.
pub(super) fn selectors(matchers: &[String]) -> Result<Vec<Selector>, ConnectRpcError> {
    if matchers.len() > MAX_SELECTORS {
        return Err(ConnectRpcError::invalid(format!(
            "`matchers` has {} selectors, more than {MAX_SELECTORS}",
            matchers.len()
        )));
    }
    if matchers.is_empty() {
        return Ok(vec![Selector::default()]);
    }
    let parsed = matchers.iter().map(|text| selector("matchers", text));
    parsed.collect()
}

pub(super) fn selector(field: &str, text: &str) -> Result<Selector, ConnectRpcError> {
    Selector::parse(text).map_err(|error| ConnectRpcError::invalid(format!("`{field}`: {error}")))
}

fn call_site(stacks: Option<&StackTraceSelector>) -> Result<Vec<String>, ConnectRpcError> {
    let Some(stacks) = stacks else {
        return Ok(Vec::new());
    };
    if stacks.go_pgo.is_some() {
        return Err(ConnectRpcError::unimplemented(
            "`go_pgo` is not supported: request pprof without it, and pass that to the Go compiler",
        ));
    }
    if stacks.call_site.len() > MAX_CALL_SITE {
        return Err(ConnectRpcError::invalid(format!(
            "`call_site` has more than {MAX_CALL_SITE} functions"
        )));
    }
    Ok(stacks.call_site.iter().map(|it| it.name.clone()).collect())
}

/// Samples are aggregated, so they can only be selected by labels.
fn only_whole(selectors: &[&[String]]) -> Result<(), ConnectRpcError> {
    match selectors.iter().all(|it| it.is_empty()) {
        true => Ok(()),
        false => Err(ConnectRpcError::unimplemented(
            "profcol aggregates samples: they cannot be selected by profile, trace or span; use labels",
        )),
    }
}

fn milliseconds(time: i64) -> u64 {
    u64::try_from(time).unwrap_or(0)
}
