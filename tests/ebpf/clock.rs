//! What ticks, on whatever machine this runs on: most virtual machines do not count cycles.

use std::fs;
use std::time::Duration;

use profcol_profile::json;

use crate::host::{can_profile, config};
use crate::peers::profcol;

/// Profiles for a moment and returns what it said, and the unit and amount that a sample stands for.
fn profiled(options: &str) -> (String, Vec<(String, String, i64)>) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("profiles.jsonl");
    let mut process = profcol(&config(options, &file));
    process.wait_for_output("to be ready or to say why not", |said| {
        said.contains("Everything is ready") || said.contains("does not count cycles,")
    });
    std::thread::sleep(Duration::from_secs(2));
    let (_, said) = process.stop();
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
    (said, periods)
}

#[test]
fn cycles_are_sampled_where_they_are_counted_and_else_refused() {
    if !can_profile() {
        return;
    }
    let (said, periods) = profiled("frequency: 100, event: auto");
    assert!(!periods.is_empty(), "{said}");
    let by_time = ("cpu".to_owned(), "nanoseconds".to_owned(), 10_000_000);
    if said.contains("does not count cycles") {
        assert!(periods.iter().all(|found| *found == by_time), "{periods:?}");
        let (said, periods) = profiled("frequency: 100, event: cycles");
        assert!(said.contains("set `event` to `cpu_clock`"), "{said}");
        assert_eq!(periods, []);
    } else {
        for (kind, unit, period) in periods {
            assert_eq!((&*kind, &*unit), ("cycles", "count"));
            // A hundredth of a second at half a gigahertz to eight.
            assert!((5_000_000..80_000_000).contains(&period), "{period}");
        }
    }
}
