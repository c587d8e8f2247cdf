//! The parameters of a URL.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::StatusCode;
use profcol_component::{Kind, Side, SubscribeError};
use profcol_flamegraph::Relation;
use profcol_history::{Query, Selector};

/// The time range without `from`.
const DEFAULT_SPAN: u64 = 15 * 60 * 1000;
const DEFAULT_NODES: usize = 100_000;
const MAX_NODES: usize = 2_000_000;
const MAX_ROWS: usize = 10_000;

/// The parameters of a URL, decoded.
#[derive(Debug, Default)]
pub(super) struct Parameters(Vec<(String, String)>);

/// Why a request is invalid.
#[derive(Debug, thiserror::Error)]
pub(super) enum BadRequest {
    #[error("the parameter `{0}` is missing")]
    Missing(&'static str),
    #[error("`{name}` is not a number: {text:?}")]
    Number { name: &'static str, text: String },
    #[error("`from` must be before `until`")]
    EmptyRange,
    #[error("`{name}`: {error}")]
    Selector {
        name: &'static str,
        #[source]
        error: profcol_history::SelectorError,
    },
    #[error("failed to encode the profile: {0}")]
    Write(#[from] profcol_files::WriteError),
    #[error("unknown format {0:?}: use pprof, folded, svg, html, speedscope or firefox")]
    Format(String),
    #[error("`difference`: {0:?} is neither share nor absolute")]
    Relation(String),
    #[error("`{name}`: {error}; write it like 5s")]
    Duration {
        name: &'static str,
        #[source]
        error: profcol_config::DurationError,
    },
    #[error(
        "{0:?} is not a component: write receiver/ID, processor/ID, connector/ID or exporter/ID, such as processor/relabel"
    )]
    Component(String),
    #[error("{0:?} is not a side of a component: use input or output")]
    Side(String),
    #[error(transparent)]
    Subscribe(#[from] SubscribeError),
}

impl BadRequest {
    pub fn status(&self) -> StatusCode {
        match self {
            Self::Subscribe(SubscribeError::NoTap) => StatusCode::NOT_FOUND,
            Self::Subscribe(SubscribeError::TooMany) => StatusCode::SERVICE_UNAVAILABLE,
            _ => StatusCode::BAD_REQUEST,
        }
    }
}

impl Parameters {
    pub fn parse(query: Option<&str>) -> Self {
        let pairs = form_urlencoded::parse(query.unwrap_or("").as_bytes());
        Self(pairs.into_owned().collect())
    }

    pub fn text(&self, name: &str) -> Option<&str> {
        let found = self.0.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    }

    pub fn required(&self, name: &'static str) -> Result<&str, BadRequest> {
        self.text(name).ok_or(BadRequest::Missing(name))
    }

    pub fn number(&self, name: &'static str) -> Result<Option<u64>, BadRequest> {
        let parse = |text: &str| {
            text.parse().map_err(|_| BadRequest::Number {
                name,
                text: text.to_owned(),
            })
        };
        self.text(name)
            .filter(|it| !it.is_empty())
            .map(parse)
            .transpose()
    }

    /// A number that is at least 0 and at most `max`.
    pub fn bounded(
        &self,
        name: &'static str,
        default: usize,
        max: usize,
    ) -> Result<usize, BadRequest> {
        let requested = self.number(name)?;
        let requested = requested.map(|it| usize::try_from(it).unwrap_or(max));
        Ok(requested.unwrap_or(default).min(max))
    }

    pub fn duration(
        &self,
        name: &'static str,
        default: Duration,
        max: Duration,
    ) -> Result<Duration, BadRequest> {
        let Some(text) = self.text(name).filter(|it| !it.is_empty()) else {
            return Ok(default);
        };
        let parsed = text.parse::<profcol_config::Duration>();
        let parsed = parsed.map_err(|error| BadRequest::Duration { name, error })?;
        Ok(parsed.to_std().min(max))
    }

    /// The kind and id of a component, as in `processor/relabel`.
    pub fn component(&self) -> Result<(Kind, &str), BadRequest> {
        let text = self.required("component")?;
        let kinds = [
            Kind::Receiver,
            Kind::Processor,
            Kind::Exporter,
            Kind::Connector,
        ];
        let found = kinds.into_iter().find_map(|kind| {
            let id = text.strip_prefix(&kind.to_string())?.strip_prefix('/')?;
            Some((kind, id))
        });
        found.ok_or_else(|| BadRequest::Component(text.to_owned()))
    }

    /// `None` selects both.
    pub fn side(&self) -> Result<Option<Side>, BadRequest> {
        match self.text("side").unwrap_or_default() {
            "" => Ok(None),
            "input" => Ok(Some(Side::Input)),
            "output" => Ok(Some(Side::Output)),
            other => Err(BadRequest::Side(other.to_owned())),
        }
    }

    pub fn max_nodes(&self) -> Result<usize, BadRequest> {
        let requested = self.number("max_nodes")?;
        Ok(requested
            .map_or(DEFAULT_NODES, |it| usize::try_from(it).unwrap_or(MAX_NODES))
            .clamp(1, MAX_NODES))
    }

    pub fn limit(&self, default: usize) -> Result<usize, BadRequest> {
        let requested = self.number("limit")?;
        Ok(requested
            .map_or(default, |it| usize::try_from(it).unwrap_or(MAX_ROWS))
            .min(MAX_ROWS))
    }

    pub fn query(&self) -> Result<Query, BadRequest> {
        let kind = self.text("type").filter(|it| !it.is_empty());
        self.query_named(kind, "from", "until", "query")
    }

    /// The baseline of a comparison, if there is one.
    pub fn base(&self) -> Result<Option<Query>, BadRequest> {
        let names = ["base_from", "base_until", "base_query"];
        if names.iter().all(|name| self.text(name).is_none()) {
            return Ok(None);
        }
        let own = self.query()?;
        let mut base =
            self.query_named(own.kind.as_deref(), "base_from", "base_until", "base_query")?;
        // Another selection of the same time range.
        if self.text("base_from").is_none() {
            (base.from, base.until) = (own.from, own.until);
        }
        Ok(Some(base))
    }

    /// How a drawing compares two profiles.
    pub fn relation(&self) -> Result<Relation, BadRequest> {
        match self.text("difference") {
            None | Some("share") => Ok(Relation::Share),
            Some("absolute") => Ok(Relation::Value),
            Some(other) => Err(BadRequest::Relation(other.to_owned())),
        }
    }

    fn query_named(
        &self,
        kind: Option<&str>,
        from: &'static str,
        until: &'static str,
        query: &'static str,
    ) -> Result<Query, BadRequest> {
        let until = self.number(until)?.unwrap_or_else(now);
        let from = self
            .number(from)?
            .unwrap_or(until.saturating_sub(DEFAULT_SPAN));
        if from >= until {
            return Err(BadRequest::EmptyRange);
        }
        let selector = Selector::parse(self.text(query).unwrap_or(""))
            .map_err(|error| BadRequest::Selector { name: query, error })?;
        Ok(Query {
            kind: kind.map(str::to_owned),
            from,
            until,
            selector,
            call_site: Vec::new(),
        })
    }
}

/// Unix time in milliseconds.
pub(super) fn now() -> u64 {
    let elapsed = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_decoded() {
        let parameters = Parameters::parse(Some("a=%7Bx%3D%22%C3%A4+b%22%7D&b&c=%zz%4%+5&d=%ff"));
        assert_eq!(parameters.text("a"), Some("{x=\"ä b\"}"));
        assert_eq!(parameters.text("b"), Some(""));
        assert_eq!(parameters.text("c"), Some("%zz%4% 5"));
        assert_eq!(parameters.text("d"), Some("\u{fffd}"));
        assert_eq!(parameters.text("e"), None);
    }

    #[test]
    fn a_difference_is_by_share_or_absolute() {
        let relation = |query| Parameters::parse(Some(query)).relation();
        assert_eq!(relation("").unwrap(), Relation::Share);
        assert_eq!(relation("difference=absolute").unwrap(), Relation::Value);
        assert_eq!(
            relation("difference=x").unwrap_err().to_string(),
            "`difference`: \"x\" is neither share nor absolute"
        );
    }

    #[test]
    fn invalid_requests_return_the_reason() {
        let error = |query| {
            let parameters = Parameters::parse(Some(query));
            let parsed = parameters.query().and_then(|_| parameters.base());
            parsed.map_or_else(|error| error.to_string(), |_| String::new())
        };
        assert_eq!(error("from=x"), "`from` is not a number: \"x\"");
        assert_eq!(error("from=5&until=5"), "`from` must be before `until`");
        assert_eq!(
            error("query={a"),
            "`query`: the selector is not closed: add `}` at its end"
        );
        assert!(
            error("base_query=a").starts_with("`base_query`: "),
            "{}",
            error("base_query=a")
        );
        assert_eq!(error("from=1&until=2&base_query=a%3D%221%22"), "");
    }
}
