//! Traces, spans and labels that programs keep in thread-local variables.

#![expect(clippy::print_stdout, reason = "the figures are of interest")]

use std::process::Command;
use std::time::Duration;

use profcol_profile::Link;
use profcol_test_harness::profile::{Profile, Sample, Symbols};
use profcol_test_harness::toolchain::Workshop;

use crate::host::{Profiler, Running, can_profile};

const TIMEOUT: Duration = Duration::from_secs(60);
const MIN_SAMPLES: usize = 100;

/// The program's functions, one for each thread.
const THREADS: [&str; 3] = ["traced", "labelled", "hostile"];

/// Samples of a thread.
fn of_thread<'a>(
    profile: &'a Profile,
    pid: u32,
    symbols: &mut Symbols,
    thread: &str,
) -> Vec<&'a Sample> {
    let samples = profile.samples.iter().filter(|sample| sample.pid == pid);
    let samples = samples.filter(|sample| {
        let mut names = sample.frames.iter().filter_map(|frame| symbols.name(frame));
        names.any(|name| name == thread)
    });
    samples.collect()
}

fn has_context(sample: &Sample) -> bool {
    !sample.labels.is_empty() || sample.link != Link::default()
}

#[test]
fn threads_have_their_trace_and_labels() {
    if !can_profile() {
        return;
    }
    let workshop = Workshop::open();
    // Debian's packages of newer versions have no unversioned command.
    let clang = match Command::new("clang").arg("--version").output() {
        Ok(_) => "clang -O1 -pthread -rdynamic contexts.c",
        Err(_) => "clang-22 -O1 -pthread -rdynamic contexts.c",
    };
    for (name, command) in [
        ("contexts", "gcc -O1 -pthread -rdynamic contexts.c"),
        (
            "contexts_fixed",
            "gcc -O1 -pthread -no-pie -rdynamic contexts.c",
        ),
        ("contexts_clang", clang),
        ("contexts_static", "gcc -O1 -pthread -static contexts.c"),
        // Has dynamic symbols, but not those of the program.
        (
            "contexts_static_pie",
            "gcc -O1 -pthread -static-pie contexts.c",
        ),
        (
            "contexts_musl",
            "musl-gcc -O1 -pthread -rdynamic contexts.c",
        ),
        (
            "contexts_musl_static",
            "musl-gcc -O1 -pthread -static contexts.c",
        ),
    ] {
        let Some(program) = workshop.build(name, command) else {
            continue;
        };
        for options in ["frequency: 99", "frequency: 99, aggregation: count"] {
            let running = Running::start(&program, &[] as &[&str]);
            let pid = running.pid();
            let mut symbols = Symbols::read(&program);
            let profile = Profiler::start_with(options).until(TIMEOUT, |profile| {
                THREADS.iter().all(|thread| {
                    let of_thread = of_thread(profile, pid, &mut symbols, thread);
                    of_thread.iter().map(|sample| sample.count).sum::<usize>() > MIN_SAMPLES
                })
            });
            drop(running);
            let link = Link {
                trace_id: std::array::from_fn(|at| 16 + at as u8),
                span_id: std::array::from_fn(|at| 64 + at as u8),
            };
            let traced = of_thread(&profile, pid, &mut symbols, "traced");
            let labelled = of_thread(&profile, pid, &mut symbols, "labelled");
            let hostile = of_thread(&profile, pid, &mut symbols, "hostile");
            let with_context = |samples: &[&Sample]| {
                samples
                    .iter()
                    .filter(|it| has_context(it))
                    .map(|it| it.count)
                    .sum::<usize>()
            };
            println!(
                "{name}, {options}: {} traced, {} labelled, {} hostile",
                with_context(&traced),
                with_context(&labelled),
                with_context(&hostile)
            );
            // The programs learn within a second where the contexts are.
            assert!(with_context(&traced) > MIN_SAMPLES / 4, "{name}");
            assert!(with_context(&labelled) > MIN_SAMPLES / 4, "{name}");
            for sample in traced.iter().filter(|it| has_context(it)) {
                assert_eq!((sample.link, sample.labels.len()), (link, 0), "{name}");
            }
            let expected = [("route", "/cart"), ("tenant", "acme")];
            for sample in labelled.iter().filter(|it| has_context(it)) {
                let labels = sample.labels.iter();
                let labels: Vec<(&str, &str)> =
                    labels.map(|(key, value)| (&**key, &**value)).collect();
                assert_eq!(
                    (&*labels, sample.link),
                    (&expected[..], Link::default()),
                    "{name}"
                );
            }
            for sample in hostile {
                assert!(sample.labels.len() <= 10, "{name}: {:?}", sample.labels);
                assert!(
                    sample.labels.values().all(|value| value.len() <= 3 * 128),
                    "{name}"
                );
            }
        }
    }
}
