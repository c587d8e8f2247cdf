//! Every sample arrives.

use std::fs;

use profcol_test_harness::backend::wait_until;
use profcol_test_harness::peers::profcol;
use profcol_test_harness::profile::Profile;

use crate::host::{can_profile, config};

/// Profiles the host, and compares the exported samples with the BPF program's counters.
fn check(options: &str) {
    if !can_profile() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("profiles.jsonl");
    let mut process = profcol(&config(options, &file));
    process.wait_for_output("to be ready", |output| {
        output.contains("Everything is ready")
    });
    // One line per interval.
    let lines = || {
        let written = fs::read(&file).unwrap_or_default();
        written.iter().filter(|&&byte| byte == b'\n').count()
    };
    wait_until("several intervals to be written", || lines() >= 4);
    let (_, output) = process.stop();
    let counted = |key: &str| -> usize {
        let line = output
            .lines()
            .find(|line| line.contains("Profiling ended."));
        let words = line
            .unwrap_or_else(|| panic!("{output}"))
            .split_whitespace();
        let value = words.filter_map(|word| word.strip_prefix(key)).next();
        value.unwrap().parse().unwrap()
    };
    let mut profile = Profile::default();
    profile.read_on(&file);
    let arrived: usize = profile.samples.iter().map(|sample| sample.count).sum();
    assert_eq!(arrived + counted("lost="), counted("taken="), "{options}");
    assert!(arrived > 0);
}

#[test]
fn every_sent_sample_arrives() {
    check("frequency: 997, aggregation: stream");
}

#[test]
fn every_counted_sample_arrives() {
    check("frequency: 997, aggregation: count");
    // Most do not fit and are sent.
    check("frequency: 997, aggregation: count, max_counted: 64");
}
