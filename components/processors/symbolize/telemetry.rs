//! The processor's metrics.

use profcol_component::{BuildContext, Gauge, IntCounter};
use profcol_reader::ReaderFailure;

/// Why a location has no symbols.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Reason {
    /// The executable is gone or on another host.
    NoFile,
    /// The profile has no build ID for the executable.
    NoBuildId,
    /// Only the host of the process could resolve it, during the same boot.
    NotLocal,
    /// The executable has no symbols, and no debug file was found.
    NoNames,
    /// The executable is damaged or of an unsupported kind.
    Refused,
    /// The process that reads executables failed at this one.
    ReaderFailed,
    /// The executable has no symbol for this address.
    NotFound,
    /// Resolving it would take too much work.
    TooMuchWork,
    /// The backlog is full.
    Busy,
    /// It was not resolved in time.
    Timeout,
}

const REASONS: [(Reason, &str); 10] = [
    (Reason::NoFile, "no_file"),
    (Reason::NoBuildId, "no_build_id"),
    (Reason::NotLocal, "not_local"),
    (Reason::NoNames, "no_names"),
    (Reason::Refused, "refused"),
    (Reason::ReaderFailed, "reader_failed"),
    (Reason::NotFound, "not_found"),
    (Reason::TooMuchWork, "too_much_work"),
    (Reason::Busy, "busy"),
    (Reason::Timeout, "timeout"),
];

/// The result of a debuginfod request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fetch {
    Found,
    Absent,
    /// The file is too large, or has another build ID.
    Refused,
    /// No answer, or an error.
    Failed,
    /// Not sent, since too many requests are queued.
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
    restarts: Vec<(&'static str, IntCounter)>,
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
        let pipeline = context.pipelines.first().map(ToString::to_string);
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
        let restarted = |reason| {
            let help =
                "Processes that read executables and failed, by reason; another one was started.";
            with("profcol_symbolize_reader_restarts", help, "reason", reason)
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
            restarts: ReaderFailure::REASONS
                .iter()
                .map(|&reason| (reason, restarted(reason)))
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

    pub fn count_restart(&self, failure: &ReaderFailure) {
        let reason = failure.reason();
        let found = self.restarts.iter().find(|(it, _)| *it == reason);
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
