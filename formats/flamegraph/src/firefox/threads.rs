//! Samples by thread, in the order of their times.

use std::collections::HashMap;

use indexmap::IndexMap;
use profcol_profile::{AttributeIdx, Dictionary, Model, Resource, SampleRef, Value};

use super::milliseconds;
use super::stacks::StackTable;
use super::tables::{self, Markers};
use crate::sample_type::{Measured, SampleType};

/// Attributes that name a process, the first present one wins.
const PROCESS_NAMES: [&str; 4] = [
    "process.executable.name",
    "process.comm",
    "process.command",
    "service.name",
];

pub(super) struct Threads<'a> {
    dictionary: &'a Dictionary,
    unit: Unit,
    title: &'a str,
    /// Unix time in nanoseconds.
    start: u64,
    end: u64,
    threads: IndexMap<ThreadKey, Thread>,
    /// The names of each process and the value that it has under each: a process changes its name with an exec.
    names: HashMap<i64, IndexMap<String, u64>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Unit {
    Nanoseconds,
    Bytes,
    Other,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct ThreadKey {
    pid: i64,
    tid: i64,
}

#[derive(Default)]
struct Thread {
    /// Empty if unknown.
    name: String,
    samples: Vec<Sample>,
}

struct Sample {
    /// Since the start.
    time: u64,
    stack: Option<usize>,
    value: u64,
}

/// Samples of one thread in one profile without timestamps.
#[derive(Default)]
struct Undated {
    samples: Vec<(Option<usize>, u64)>,
    total: u64,
}

impl<'a> Threads<'a> {
    pub fn new(model: &'a Model, kind: &SampleType, title: &'a str) -> Self {
        let starts = model.profiles().filter(|it| !it.samples.is_empty());
        let starts = starts.map(|it| earliest(it.time_unix_nano, it.samples.iter()));
        let start = starts.min().unwrap_or(0);
        Self {
            dictionary: &model.dictionary,
            unit: match kind.unit.as_str() {
                "nanoseconds" => Unit::Nanoseconds,
                "bytes" => Unit::Bytes,
                _ => Unit::Other,
            },
            title,
            start,
            end: start,
            threads: IndexMap::new(),
            names: HashMap::new(),
        }
    }

    /// First and last time, in nanoseconds of Unix time.
    pub fn range(&self) -> (u64, u64) {
        (self.start, self.end)
    }

    pub fn add(
        &mut self,
        resource: Option<&Resource>,
        measured: &Measured<'_>,
        stacks: &mut StackTable<'_>,
    ) {
        let profile = measured.profile;
        let end = profile.time_unix_nano.saturating_add(profile.duration_nano);
        self.end = self.end.max(end);
        let mut undated: IndexMap<ThreadKey, Undated> = IndexMap::new();
        for sample in profile.samples.iter() {
            let attributes = SampleAttributes {
                dictionary: self.dictionary,
                lists: [sample.attributes, &profile.attributes],
                resource,
            };
            let key = self.thread(&attributes, measured.weigh(&sample).value);
            let stack = stacks.stack(sample.stack);
            if is_dated(&sample) {
                for (row, &time) in sample.timestamps.iter().enumerate() {
                    let observation = SampleRef {
                        values: sample.values.get(row..=row).unwrap_or_default(),
                        timestamps: &[time],
                        ..sample
                    };
                    self.push(key, time, stack, measured.weigh(&observation).value);
                }
            } else {
                let undated = undated.entry(key).or_default();
                let value = measured.weigh(&sample).value;
                undated.samples.push((stack, value));
                undated.total = undated.total.saturating_add(value);
            }
        }
        for (key, Undated { samples, total }) in undated {
            // One after the other, each for its share of the period: a viewer then draws the thread's average.
            let mut passed = 0u64;
            for (stack, value) in samples {
                let middle = passed as f64 + value as f64 / 2.0;
                passed = passed.saturating_add(value);
                let share = middle / total.max(1) as f64;
                let offset = (profile.duration_nano as f64 * share) as u64;
                let time = profile.time_unix_nano.saturating_add(offset);
                self.push(key, time, stack, value);
            }
        }
    }

    pub fn finish(mut self) -> Vec<tables::Thread> {
        let duration = self.end - self.start;
        // Viewers expect the main thread of a process first.
        self.threads
            .sort_by_key(|key, _| (key.pid, key.pid != key.tid, key.tid));
        let unit = self.unit;
        let process_name = |pid: i64| {
            let names = self.names.get(&pid).into_iter().flatten();
            let heaviest = names.max_by_key(|(_, value)| **value);
            heaviest.map_or(self.title, |(name, _)| name)
        };
        let threads = self.threads.into_iter();
        threads
            .map(|(key, thread)| tables::Thread {
                process_type: "default",
                process_startup_time: 0.0,
                process_shutdown_time: Some(milliseconds(duration)),
                register_time: 0.0,
                unregister_time: Some(milliseconds(duration)),
                paused_ranges: [],
                is_main_thread: key.pid == key.tid,
                pid: key.pid.to_string(),
                tid: key.tid,
                samples: table(thread.samples, unit),
                process_name: process_name(key.pid).to_owned(),
                name: match thread.name.is_empty() {
                    true => process_name(key.pid).to_owned(),
                    false => thread.name,
                },
                markers: Markers::default(),
            })
            .collect()
    }

    fn thread(&mut self, attributes: &SampleAttributes<'_>, value: u64) -> ThreadKey {
        let pid = attributes.number("process.pid").unwrap_or(0);
        let tid = attributes.number("thread.id").unwrap_or(pid);
        let process = attributes.first_text(&PROCESS_NAMES).unwrap_or(self.title);
        let names = self.names.entry(pid).or_default();
        match names.get_mut(process) {
            Some(sum) => *sum = sum.saturating_add(value),
            None => _ = names.insert(process.to_owned(), value),
        }
        let key = ThreadKey { pid, tid };
        let thread = self.threads.entry(key).or_default();
        if thread.name.is_empty() {
            let name = attributes.first_text(&["thread.name"]);
            name.unwrap_or_default().clone_into(&mut thread.name);
        }
        key
    }

    fn push(&mut self, key: ThreadKey, time: u64, stack: Option<usize>, value: u64) {
        // The end is exclusive.
        self.end = self.end.max(time.saturating_add(1));
        if let Some(thread) = self.threads.get_mut(&key) {
            thread.samples.push(Sample {
                time: time.saturating_sub(self.start),
                stack,
                value,
            });
        }
    }
}

/// The attributes of a sample, the most specific first.
struct SampleAttributes<'a> {
    dictionary: &'a Dictionary,
    lists: [&'a [AttributeIdx]; 2],
    resource: Option<&'a Resource>,
}

impl<'a> SampleAttributes<'a> {
    fn value(&self, key: &str) -> Option<&'a Value> {
        let indices = self.lists.into_iter().flatten();
        let mut rows = indices.filter_map(|&index| self.dictionary.attributes.get(index));
        let row = rows.find(|it| self.dictionary.strings.get(it.key) == key);
        let of_resource = || {
            let mut attributes = self.resource?.attributes.iter();
            attributes.find(|it| &*it.key == key).map(|it| &it.value)
        };
        row.map(|it| &it.value).or_else(of_resource)
    }

    fn number(&self, key: &str) -> Option<i64> {
        match self.value(key)? {
            Value::Int(number) => Some(*number),
            Value::Str(text) => text.parse().ok(),
            _ => None,
        }
    }

    fn first_text(&self, keys: &[&str]) -> Option<&'a str> {
        let texts = keys.iter().filter_map(|key| self.value(key)?.as_str());
        texts.into_iter().find(|it| !it.is_empty())
    }
}

fn is_dated(sample: &SampleRef<'_>) -> bool {
    let (times, values) = (sample.timestamps.len(), sample.values.len());
    times > 0 && (values == 0 || values == times)
}

fn earliest<'a>(start: u64, samples: impl Iterator<Item = SampleRef<'a>>) -> u64 {
    let times = samples.flat_map(|it| it.timestamps);
    match (start, times.min()) {
        (0, Some(&first)) => first,
        (start, Some(&first)) => start.min(first),
        (start, None) => start,
    }
}

fn table(mut samples: Vec<Sample>, unit: Unit) -> tables::Samples {
    samples.sort_by_key(|it| it.time);
    // Viewers ignore the CPU time of a thread's first sample.
    samples.insert(
        0,
        Sample {
            time: 0,
            stack: None,
            value: 0,
        },
    );
    let weight = |sample: &Sample| match unit {
        Unit::Nanoseconds => milliseconds(sample.value),
        Unit::Bytes | Unit::Other => sample.value as f64,
    };
    tables::Samples {
        length: samples.len(),
        stack: samples.iter().map(|it| it.stack).collect(),
        time: samples.iter().map(|it| milliseconds(it.time)).collect(),
        weight: samples.iter().map(weight).collect(),
        weight_type: match unit {
            Unit::Nanoseconds => "tracing-ms",
            Unit::Bytes => "bytes",
            Unit::Other => "samples",
        },
        cpu_delta: (unit == Unit::Nanoseconds).then(|| samples.iter().map(|it| it.value).collect()),
    }
}
