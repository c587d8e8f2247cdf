//! The receiver's own metrics.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use profcol_component::{BuildContext, Gauge, IntCounter, Meter, SourceCounts};
use profcol_ebpf_interpreters::names::NameCounts;
use profcol_ebpf_loader::{CountedRuntime, EndReason, Profiler, RuntimeCounts};

#[derive(Clone)]
pub struct Metrics {
    pub dropped: IntCounter,
    /// Samples taken before the process was excluded in the kernel.
    pub excluded: IntCounter,
    /// Processes that all pipelines drop.
    pub excluded_by_pipelines: IntCounter,
    excluded_ticks: Total,
    run_time: Total,
    frequency: Gauge,
    samples: Total,
    lost_samples: Total,
    lost_events: Total,
    unpublished: Total,
    by_reason: Vec<(EndReason, Total)>,
    tables: Vec<(&'static str, Total)>,
    table_bytes: Gauge,
    interpreters: Interpreters,
    unreadable: [Total; 2],
    names: [Total; 4],
    name_bytes: Gauge,
    lost_labels: [Total; 3],
    reader_restarts: Total,
}

/// Counters of executables with a runtime, made as they are found.
#[derive(Clone)]
struct Interpreters {
    meter: Meter,
    receiver: String,
    totals: Arc<Mutex<HashMap<CountedRuntime, Total>>>,
}

/// A counter raised to the totals of this instance; earlier instances of the receiver counted in the same series.
#[derive(Clone)]
struct Total {
    counter: IntCounter,
    counted: Arc<AtomicU64>,
}

/// Outcomes of building unwind tables.
const TABLE_OUTCOMES: [&str; 6] = [
    "built", "refused", "not_elf", "vanished", "no_room", "evicted",
];

const INTERPRETERS: &str = "profcol_ebpf_cpu_interpreters";
const INTERPRETERS_HELP: &str =
    "Executables with a language runtime, by runtime, version and support.";
const UNREADABLE: &str = "profcol_ebpf_cpu_unreadable_interpreted_frames";
const UNREADABLE_HELP: &str = "Interpreted frames without a function, by reason.";
const NAMES: &str = "profcol_ebpf_cpu_interpreted_functions";
const NAMES_HELP: &str = "Reads of interpreted function names, by result.";

const LOST_LABELS: &str = "profcol_ebpf_cpu_incomplete_labels";
const LOST_LABELS_HELP: &str = "Labels of threads that are missing or incomplete, by reason.";

const LOST_MAPPINGS: &str = "profcol_ebpf_cpu_lost_mappings";
const LOST_MAPPINGS_HELP: &str =
    "Mapping events lost, and mappings not published because the area map was full.";

impl Metrics {
    pub fn new(context: &BuildContext) -> Self {
        let id = context.id.to_string();
        let counter =
            |name: &str, help: &str| context.meter.counter(name, help, &[("receiver", &id)]);
        let labelled = |name: &str, help: &str, key: &str, value: &str| {
            context
                .meter
                .counter(name, help, &[("receiver", &id), (key, value)])
        };
        Self {
            dropped: counter(
                "profcol_ebpf_cpu_dropped_samples",
                "Samples dropped because the pipelines did not accept them in time.",
            ),
            excluded: labelled(
                "profcol_ebpf_cpu_excluded_samples",
                "Ticks in excluded processes, by where they were skipped.",
                "at",
                "receiver",
            ),
            excluded_by_pipelines: counter(
                "profcol_ebpf_cpu_unwanted_processes",
                "Processes excluded because all pipelines drop their samples.",
            ),
            excluded_ticks: labelled(
                "profcol_ebpf_cpu_excluded_samples",
                "Ticks in excluded processes, by where they were skipped.",
                "at",
                "kernel",
            )
            .into(),
            run_time: counter(
                "profcol_ebpf_cpu_kernel_nanoseconds",
                "Total run time of the BPF sampling program.",
            )
            .into(),
            frequency: context.meter.gauge(
                "profcol_ebpf_cpu_frequency",
                "Samples per second on each busy CPU.",
                &[("receiver", &id)],
            ),
            samples: counter("profcol_ebpf_cpu_samples", "Samples taken.").into(),
            lost_samples: counter(
                "profcol_ebpf_cpu_lost_samples",
                "Samples lost because the ring buffer was full.",
            )
            .into(),
            lost_events: labelled(LOST_MAPPINGS, LOST_MAPPINGS_HELP, "found_no_room", "event")
                .into(),
            unpublished: labelled(
                LOST_MAPPINGS,
                LOST_MAPPINGS_HELP,
                "found_no_room",
                "mapping",
            )
            .into(),
            by_reason: EndReason::ALL
                .iter()
                .map(|&reason| {
                    let name = "profcol_ebpf_cpu_stacks";
                    let help = "User stacks, by the reason why unwinding stopped.";
                    (
                        reason,
                        labelled(name, help, "end_reason", reason.name()).into(),
                    )
                })
                .collect(),
            tables: TABLE_OUTCOMES
                .iter()
                .map(|&outcome| {
                    let name = "profcol_ebpf_cpu_executables";
                    let help = "Unwind table builds, by result.";
                    (outcome, labelled(name, help, "outcome", outcome).into())
                })
                .collect(),
            table_bytes: context.meter.gauge(
                "profcol_ebpf_cpu_table_bytes",
                "Memory used by unwind tables, in bytes.",
                &[("receiver", &id)],
            ),
            interpreters: Interpreters {
                meter: context.meter.clone(),
                receiver: id.clone(),
                totals: Arc::default(),
            },
            unreadable: ["memory", "no_thread"]
                .map(|reason| labelled(UNREADABLE, UNREADABLE_HELP, "reason", reason).into()),
            names: ["read", "failed", "no_room", "evicted"]
                .map(|outcome| labelled(NAMES, NAMES_HELP, "outcome", outcome).into()),
            lost_labels: ["too_many", "too_long", "unreadable"]
                .map(|reason| labelled(LOST_LABELS, LOST_LABELS_HELP, "reason", reason).into()),
            reader_restarts: counter(
                "profcol_ebpf_cpu_reader_restarts",
                "Processes that read executables for unwind tables and failed.",
            )
            .into(),
            name_bytes: context.meter.gauge(
                "profcol_ebpf_cpu_interpreted_name_bytes",
                "Memory used by names of interpreted functions, in bytes.",
                &[("receiver", &id)],
            ),
        }
    }

    /// Counts of samples by outcome, as of the last [update](Self::update).
    pub fn source_counts(&self) -> SourceCounts {
        let excluded_ticks = self.excluded_ticks.counter.get();
        SourceCounts {
            taken: self.samples.counter.get() + excluded_ticks,
            excluded: self.excluded.get() + excluded_ticks,
            lost: self.lost_samples.counter.get(),
            dropped: self.dropped.get(),
        }
    }

    pub fn update(&self, profiler: &Profiler, names: NameCounts, frequency: u64) {
        self.frequency.set(frequency as f64);
        let counts = profiler.counts();
        self.samples.raise(counts.samples);
        self.excluded_ticks.raise(counts.excluded);
        let run_time = u64::try_from(counts.run_time.as_nanos());
        self.run_time.raise(run_time.unwrap_or(u64::MAX));
        self.lost_samples.raise(counts.lost_samples);
        if let Some(mappings) = profiler.mapping_counts() {
            self.lost_events.raise(mappings.lost_events);
            self.unpublished.raise(mappings.no_room);
        }
        for (reason, counter) in &self.by_reason {
            let found = counts
                .by_reason
                .iter()
                .find(|(counted, _)| counted == reason);
            counter.raise(found.map_or(0, |&(_, count)| count));
        }
        let tables = profiler.table_counts();
        for (outcome, counter) in &self.tables {
            let count = match *outcome {
                "built" => tables.built,
                "refused" => tables.refused,
                "not_elf" => tables.not_elf,
                "vanished" => tables.vanished,
                "evicted" => tables.evicted,
                _ => tables.no_room,
            };
            counter.raise(count);
        }
        self.table_bytes.set(tables.bytes as f64);
        self.reader_restarts.raise(tables.reader_failures);
        self.interpreters.raise(&profiler.runtime_counts());
        let [memory, no_thread] = &self.unreadable;
        memory.raise(counts.interpreter_unreadable);
        no_thread.raise(counts.interpreter_no_thread);
        let [too_many, too_long, unreadable] = &self.lost_labels;
        too_many.raise(counts.too_many_labels);
        too_long.raise(counts.too_long_labels);
        unreadable.raise(counts.unreadable_labels);
        let [read, failed, no_room, evicted] = &self.names;
        read.raise(names.read);
        failed.raise(names.failed);
        no_room.raise(names.not_queued);
        evicted.raise(names.evicted);
        self.name_bytes.set(names.bytes as f64);
    }
}

impl Interpreters {
    fn raise(&self, counts: &RuntimeCounts) {
        let mut totals = self.totals.lock();
        for (counted, count) in counts.iter() {
            let total = totals.entry(counted.clone()).or_insert_with(|| {
                let outcome = match counted.is_supported {
                    true => "supported",
                    false => "unsupported",
                };
                let labels = [
                    ("receiver", &*self.receiver),
                    ("outcome", outcome),
                    ("runtime", counted.runtime),
                    ("version", &counted.version),
                ];
                let counter = self.meter.counter(INTERPRETERS, INTERPRETERS_HELP, &labels);
                counter.into()
            });
            total.raise(count);
        }
    }
}

impl Total {
    fn raise(&self, count: u64) {
        let counted = self.counted.fetch_max(count, Ordering::Relaxed);
        self.counter.inc_by(count.saturating_sub(counted));
    }
}

impl From<IntCounter> for Total {
    fn from(counter: IntCounter) -> Self {
        Self {
            counter,
            counted: Arc::default(),
        }
    }
}
