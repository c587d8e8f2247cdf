//! The processed profile format of the Firefox Profiler: threads with samples over time.

mod stacks;
mod tables;
mod threads;

use profcol_profile::Model;

use self::stacks::StackTable;
use self::tables::{CATEGORIES, File, Meta, SampleUnits, VERSION};
use self::threads::Threads;
use crate::sample_type::{SampleType, measured};

/// The samples of one type, with their threads and processes, times, lines and kinds of code.
pub fn firefox(model: &Model, kind: &SampleType, title: &str) -> String {
    let mut stacks = StackTable::new(&model.dictionary);
    let mut threads = Threads::new(model, kind, title);
    let mut period = None;
    for resource in &model.resources {
        for scope in &resource.scopes {
            for measured in measured(scope, &model.dictionary) {
                if kind.is_of(&measured) {
                    period = period.or(Some(measured.profile.period));
                    threads.add(resource.resource.as_deref(), &measured, &mut stacks);
                }
            }
        }
    }
    let is_time = kind.unit == "nanoseconds";
    let period = period.filter(|it| is_time && *it > 0);
    let (start, end) = threads.range();
    let file = File {
        meta: Meta {
            product: title.to_owned(),
            start_time: milliseconds(start),
            profiling_start_time: 0.0,
            profiling_end_time: milliseconds(end - start),
            interval: period.map_or(1.0, |it| milliseconds(it.unsigned_abs())),
            categories: CATEGORIES,
            process_type: 0,
            stackwalk: 1,
            version: 31,
            preprocessed_profile_version: VERSION,
            marker_schema: [],
            imported_from: "profcol",
            symbolicated: true,
            symbolication_not_supported: true,
            uses_only_one_stack_type: true,
            source_code_is_not_on_searchfox: true,
            sample_units: is_time.then_some(SampleUnits {
                time: "ms",
                event_delay: "ms",
                cpu_delta: "ns",
            }),
        },
        libs: [],
        pages: [],
        shared: stacks.finish(),
        threads: threads.finish(),
    };
    serde_json::to_string(&file).unwrap_or_default()
}

fn milliseconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e6
}
