//! The sampling event on this machine: most virtual machines do not count cycles.

use std::fs;

use profcol_otlp::json;
use profcol_test_harness::backend::wait_until;
use profcol_test_harness::peers::profcol;

use crate::host::{can_profile, config};

/// Profiles briefly and returns the output, and the type, unit and value of samples.
fn profiled(options: &str) -> (String, Vec<(String, String, i64)>) {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("profiles.jsonl");
    let mut process = profcol(&config(options, &file));
    process.wait_for_output("to be ready or to report an error", |output| {
        output.contains("Everything is ready") || output.contains("does not count cycles,")
    });
    let is_written = || fs::metadata(&file).is_ok_and(|file| file.len() > 0);
    wait_until("it to profile or to exit", || {
        process.has_ended() || is_written()
    });
    let (_, output) = match process.has_ended() {
        true => process.ended(),
        false => process.stop(),
    };
    let written = fs::read(&file).unwrap_or_default();
    let mut periods = Vec::new();
    for line in written
        .split(|&byte| byte == b'\n')
        .filter(|it| !it.is_empty())
    {
        let model = json::decode(line).unwrap();
        let strings = &model.dictionary.strings;
        periods.extend(model.profiles().map(|profile| {
            let kind = profile.period_type.unwrap();
            let text = |index| strings.get(index).to_owned();
            (text(kind.kind), text(kind.unit), profile.period)
        }));
    }
    (output, periods)
}

#[test]
fn cycles_are_sampled_if_the_cpu_counts_them() {
    if !can_profile() {
        return;
    }
    let (output, periods) = profiled("frequency: 100, event: auto");
    assert!(!periods.is_empty(), "{output}");
    let by_time = ("cpu".to_owned(), "nanoseconds".to_owned(), 10_000_000);
    if output.contains("No hardware cycle counter") {
        assert!(periods.iter().all(|found| *found == by_time), "{periods:?}");
        let (output, periods) = profiled("frequency: 100, event: cycles");
        assert!(output.contains("set `event` to `cpu_clock`"), "{output}");
        assert_eq!(periods, []);
    } else {
        for (kind, unit, period) in periods {
            assert_eq!((&*kind, &*unit), ("cycles", "count"));
            // 10 ms at 0.5 to 8 GHz.
            assert!((5_000_000..80_000_000).contains(&period), "{period}");
        }
    }
}
