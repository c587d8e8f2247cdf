//! What the processor counts.

use profcol_component::{BuildContext, Gauge, IntCounter};

/// Why a location has no name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Reason {
    /// Nobody has the executable any more, or it is another host's.
    NoFile,
    /// The profile does not say which executable it is.
    NoBuildId,
    /// Only the host on which it was could name it, at the same boot.
    NotLocal,
    /// The executable says nothing of its code, and no debug file was found.
    NoNames,
    /// It is damaged, or of a kind that is not known.
    Refused,
    /// It says nothing of this address.
    NotFound,
    /// Too much would have to be read for it.
    TooMuchWork,
    /// The workers have too much to do.
    Busy,
    /// It was not named in time.
    Timeout,
}

const REASONS: [(Reason, &str); 9] = [
    (Reason::NoFile, "no_file"),
    (Reason::NoBuildId, "no_build_id"),
    (Reason::NotLocal, "not_local"),
    (Reason::NoNames, "no_names"),
    (Reason::Refused, "refused"),
    (Reason::NotFound, "not_found"),
    (Reason::TooMuchWork, "too_much_work"),
    (Reason::Busy, "busy"),
    (Reason::Timeout, "timeout"),
];

/// How a debuginfod server answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fetch {
    Found,
    Absent,
    /// It is too large, or not what was asked for.
    Refused,
    /// There was no answer, or none that says whether it has the file.
    Failed,
    /// Nobody was asked, since too many files are waited for.
    Busy,
}

const FETCHES: [(Fetch, &str); 5] = [
    (Fetch::Found, "found"),
    (Fetch::Absent, "absent"),
    (Fetch::Refused, "refused"),
    (Fetch::Failed, "failed"),
    (Fetch::Busy, "busy"),
];

pub(super) struct Telemetry {
    pub resolved: IntCounter,
    unresolved: Vec<(Reason, IntCounter)>,
    fetches: Vec<(Fetch, IntCounter)>,
    pub timeouts: IntCounter,
    pub evicted_names: IntCounter,
    pub evicted_files: IntCounter,
    pub evicted_from_disk: IntCounter,
    pub dropped_files: IntCounter,
    pub memory: Gauge,
}

impl Telemetry {
    pub fn new(context: &BuildContext) -> Self {
        let id = context.id.to_string();
        let pipeline = context.pipeline.as_ref().map(ToString::to_string);
        let pipeline = pipeline.unwrap_or_default();
        let own = [("processor", &*id), ("pipeline", &*pipeline)];
        let counter = |name, help| context.meter.counter(name, help, &own);
        let with = |name, help, key, value| {
            let labels = [own[0], own[1], (key, value)];
            context.meter.counter(name, help, &labels)
        };
        let evicted = |what| {
            let help = "Cache entries evicted to stay within max_memory.";
            with("profcol_symbolize_evicted", help, "what", what)
        };
        let unresolved = |name| {
            let help = "Locations passed on without symbols, by reason.";
            with(
                "profcol_symbolize_unresolved_locations",
                help,
                "reason",
                name,
            )
        };
        let fetched = |name| {
            let help = "Requests to debuginfod servers, by result.";
            with(
                "profcol_symbolize_debuginfod_requests",
                help,
                "result",
                name,
            )
        };
        Self {
            resolved: counter(
                "profcol_symbolize_resolved_locations",
                "Locations symbolized.",
            ),
            unresolved: REASONS
                .iter()
                .map(|&(reason, name)| (reason, unresolved(name)))
                .collect(),
            timeouts: counter(
                "profcol_symbolize_timeouts",
                "Batches passed on before symbolization was complete.",
            ),
            evicted_names: evicted("name"),
            evicted_files: evicted("file"),
            evicted_from_disk: counter(
                "profcol_symbolize_debuginfod_evicted",
                "Cached files evicted to stay within cache_bytes.",
            ),
            fetches: FETCHES
                .iter()
                .map(|&(fetch, name)| (fetch, fetched(name)))
                .collect(),
            dropped_files: counter(
                "profcol_symbolize_dropped_files",
                "Executables not held open: limit reached.",
            ),
            memory: context.meter.gauge(
                "profcol_symbolize_tables_bytes",
                "Memory used by symbol tables, in bytes.",
                &own,
            ),
        }
    }

    pub fn count_fetch(&self, fetch: Fetch) {
        let found = self.fetches.iter().find(|(it, _)| *it == fetch);
        if let Some((_, counter)) = found {
            counter.inc();
        }
    }

    pub fn count_unresolved(&self, reason: Reason, locations: usize) {
        let found = self.unresolved.iter().find(|(it, _)| *it == reason);
        if let Some((_, counter)) = found {
            counter.inc_by(locations as u64);
        }
    }
}
