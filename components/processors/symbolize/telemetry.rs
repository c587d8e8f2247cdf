//! What the processor counts.

use profcol_component::{BuildContext, Gauge, IntCounter};

/// Why a location has no name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Reason {
    /// Nobody has the executable any more, or it is another host's.
    NoFile,
    /// The profile does not say which executable it is.
    NoBuildId,
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

const REASONS: [(Reason, &str); 8] = [
    (Reason::NoFile, "no_file"),
    (Reason::NoBuildId, "no_build_id"),
    (Reason::NoNames, "no_names"),
    (Reason::Refused, "refused"),
    (Reason::NotFound, "not_found"),
    (Reason::TooMuchWork, "too_much_work"),
    (Reason::Busy, "busy"),
    (Reason::Timeout, "timeout"),
];

pub(super) struct Telemetry {
    pub resolved: IntCounter,
    unresolved: Vec<(Reason, IntCounter)>,
    pub timeouts: IntCounter,
    pub evicted_names: IntCounter,
    pub evicted_files: IntCounter,
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
            let help = "What was forgotten to stay within max_memory.";
            with("profcol_symbolize_evicted", help, "what", what)
        };
        let unresolved = |name| {
            let help = "Locations that left without a name, by reason.";
            with(
                "profcol_symbolize_unresolved_locations",
                help,
                "reason",
                name,
            )
        };
        Self {
            resolved: counter(
                "profcol_symbolize_resolved_locations",
                "Locations that were given a name.",
            ),
            unresolved: REASONS
                .iter()
                .map(|&(reason, name)| (reason, unresolved(name)))
                .collect(),
            timeouts: counter(
                "profcol_symbolize_timeouts",
                "Batches that left before everything in them was named.",
            ),
            evicted_names: evicted("name"),
            evicted_files: evicted("file"),
            dropped_files: counter(
                "profcol_symbolize_dropped_files",
                "Executables that were not held open since there were too many.",
            ),
            memory: context.meter.gauge(
                "profcol_symbolize_tables_bytes",
                "What the tables of executables take.",
                &own,
            ),
        }
    }

    pub fn count_unresolved(&self, reason: Reason, locations: usize) {
        let found = self.unresolved.iter().find(|(it, _)| *it == reason);
        if let Some((_, counter)) = found {
            counter.inc_by(locations as u64);
        }
    }
}
