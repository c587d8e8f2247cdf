//! A gateway that also profiles its host, for hours: under load, with destinations that come and go and a configuration that changes
//! every minute. Memory, descriptors and threads must stay flat, and everything accepted must arrive once.
//!
//! `cargo xtask soak --minutes 120` runs it with the release build.

#![allow(clippy::unwrap_used, reason = "a panic fails the test")]
#![expect(clippy::print_stdout, reason = "the figures are of interest")]

use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use profcol_component::testkit::profiles;
use profcol_net::grpc::{Code, Status};
use profcol_test_harness::backend::{Destination, Mode};
use profcol_test_harness::procfs;
use profcol_test_harness::rig::{RELOADED, Rig};
use profcol_test_harness::support::{is_root, path};

const CLIENTS: usize = 3;
const SAMPLES: usize = 20;
/// Between two requests of a client.
const PAUSE: Duration = Duration::from_millis(100);
/// Between two looks at the process.
const INTERVAL: Duration = Duration::from_secs(5);

/// What one look at the process found.
#[derive(Clone, Copy)]
struct Reading {
    resident: u64,
    descriptors: usize,
    threads: u64,
}

impl Reading {
    fn of(pid: u32) -> Self {
        Self {
            resident: procfs::resident(pid).unwrap(),
            descriptors: procfs::descriptors(pid).unwrap(),
            threads: procfs::threads(pid).unwrap(),
        }
    }
}

fn config(version: usize, memory: &Destination, stored: &Destination, storage: &str) -> String {
    let (memory, stored) = (memory.address, stored.address);
    let host = if is_root() {
        "profiles/host: {receivers: [ebpf_cpu], exporters: [live_view]}"
    } else {
        "profiles/host: {receivers: [otlp], exporters: [live_view]}"
    };
    // A host that builds programs always has new ones: the limit of their tables must be reached early.
    let receiver = if is_root() {
        "  ebpf_cpu: {max_table_memory_mib: 16}\n"
    } else {
        ""
    };
    // Each reload replaces the processor, every third also an exporter.
    let timeout = 100 + version % 2 * 100;
    let consumers = 2 + version / 3 % 2;
    format!(
        "receivers:
  otlp: {{protocols: {{grpc: {{endpoint: 127.0.0.1:0}}}}}}
{receiver}processors:
  batch: {{timeout: {timeout}ms}}
exporters:
  otlp_grpc/memory: {{endpoint: \"{memory}\", timeout: 60s, tls: {{insecure: true}}, sending_queue: {{queue_size: 10000}}, retry_on_failure: {{initial_interval: 100ms, max_interval: 1s, max_elapsed_time: 0s}}}}
  otlp_grpc/stored: {{endpoint: \"{stored}\", timeout: 10s, tls: {{insecure: true}}, sending_queue: {{num_consumers: {consumers}, queue_size: 10000, storage: file_storage}}, retry_on_failure: {{initial_interval: 100ms, max_interval: 1s, max_elapsed_time: 0s}}}}
  live_view: {{endpoint: 127.0.0.1:0, max_memory_mib: 8}}
extensions:
  file_storage: {{directory: \"{storage}\"}}
service:
  extensions: [file_storage]
  telemetry: {{metrics: {{level: none}}, logs: {{sampling: {{enabled: false}}}}}}
  pipelines:
    profiles: {{receivers: [otlp], processors: [batch], exporters: [otlp_grpc/memory, otlp_grpc/stored]}}
    {host}
"
    )
}

/// How both destinations behave in this second: one refuses for a quarter of each cycle, the other hangs.
fn misbehave(second: u64, memory: &Destination, stored: &Destination) {
    let refused = Status::new(Code::Unavailable, "down for maintenance");
    memory.set(match second % 120 {
        60..90 => Mode::Refuse(refused),
        _ => Mode::Take,
    });
    stored.set(match second % 120 {
        0..30 => Mode::Hang,
        _ => Mode::Take,
    });
}

#[test]
#[ignore = "cargo xtask soak runs it"]
fn memory_descriptors_and_latency_stay_flat() {
    let minutes = std::env::var("PROFCOL_SOAK_MINUTES").map_or(2, |text| text.parse().unwrap());
    let [memory, stored] = [(), ()].map(|()| Destination::counting(Mode::Take));
    let storage = tempfile::tempdir().unwrap();
    let version = |number| config(number, &memory, &stored, path(storage.path()));
    let rig = Rig::start(&version(0));
    let (has_ended, accepted) = (AtomicBool::new(false), AtomicUsize::new(0));
    let latencies = Mutex::new(Vec::new());
    let mut readings = Vec::new();
    thread::scope(|scope| {
        for _ in 0..CLIENTS {
            let client = rig.client();
            let (has_ended, accepted, latencies) = (&has_ended, &accepted, &latencies);
            scope.spawn(move || {
                let batch = profiles(SAMPLES);
                while !has_ended.load(Ordering::Relaxed) {
                    let begin = Instant::now();
                    client.send(&batch).unwrap();
                    latencies.lock().unwrap().push(begin.elapsed());
                    accepted.fetch_add(SAMPLES, Ordering::Relaxed);
                    thread::sleep(PAUSE);
                }
            });
        }
        let begin = Instant::now();
        println!("minute  resident MiB  descriptors  threads  median and longest response, ms");
        for minute in 1..=minutes {
            while begin.elapsed() < Duration::from_secs(60 * minute) {
                misbehave(begin.elapsed().as_secs(), &memory, &stored);
                readings.push(Reading::of(rig.pid()));
                thread::sleep(INTERVAL);
            }
            let mut latencies = std::mem::take(&mut *latencies.lock().unwrap());
            latencies.sort();
            let reading = readings.last().unwrap();
            println!(
                "{minute:6}  {:12.1}  {:11}  {:7}  {:.1} {:.1}",
                reading.resident as f64 / f64::from(1 << 20),
                reading.descriptors,
                reading.threads,
                latencies[latencies.len() / 2].as_secs_f64() * 1e3,
                latencies.last().unwrap().as_secs_f64() * 1e3,
            );
            let reload = usize::try_from(minute).unwrap();
            rig.write(&reload.to_string(), &version(reload));
            rig.signal("-HUP");
            rig.wait_for(RELOADED, reload);
        }
        has_ended.store(true, Ordering::Relaxed);
    });
    for destination in [&memory, &stored] {
        destination.set(Mode::Take);
        destination.wait_for_samples(accepted.load(Ordering::Relaxed));
    }
    let output = rig.stop();
    let accepted = accepted.into_inner();
    println!("{accepted} samples accepted");
    assert_eq!(
        (memory.samples(), stored.samples()),
        (accepted, accepted),
        "{output}"
    );
    stays_flat(&readings);
}

/// A value that must stay flat, and by how much it varies.
struct Kind {
    name: &'static str,
    value: fn(&Reading) -> u64,
    noise: u64,
}

const KINDS: [Kind; 3] = [
    Kind {
        name: "resident KiB",
        value: |it| it.resident >> 10,
        noise: 8 << 10,
    },
    Kind {
        name: "descriptors",
        value: |it| it.descriptors as u64,
        noise: 8,
    },
    Kind {
        name: "threads",
        value: |it| it.threads,
        noise: 4,
    },
];

/// Compares the last quarter with the second one: the first fills caches.
fn stays_flat(readings: &[Reading]) {
    let quarter = readings.len() / 4;
    let median = |range: Range<usize>, value: fn(&Reading) -> u64| {
        let mut values: Vec<u64> = readings[range].iter().map(value).collect();
        values.sort_unstable();
        values[values.len() / 2]
    };
    for Kind { name, value, noise } in KINDS {
        let early = median(quarter..2 * quarter, value);
        let late = median(3 * quarter..readings.len(), value);
        println!("{name}: {early} in the second quarter, {late} in the last");
        assert!(
            late <= early + early / 10 + noise,
            "{name}: {early} -> {late}"
        );
    }
}
