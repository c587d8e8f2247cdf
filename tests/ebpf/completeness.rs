//! Every sample that was taken arrives.

use std::thread;
use std::time::Duration;

use crate::host::{can_profile, config};
use crate::peers::profcol;
use crate::profile::Profile;

/// Profiles the host, and holds what was exported to what the kernel's program counted.
fn check(options: &str) {
    if !can_profile() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("profiles.jsonl");
    let mut process = profcol(&config(options, &file));
    process.wait_for_output("to be ready", |said| said.contains("Everything is ready"));
    thread::sleep(Duration::from_secs(5));
    let (_, said) = process.stop();
    let counted = |key: &str| -> usize {
        let line = said.lines().find(|line| line.contains("Profiling ended."));
        let words = line.unwrap_or_else(|| panic!("{said}")).split_whitespace();
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
fn every_sample_that_is_sent_arrives() {
    check("frequency: 997, aggregation: stream");
}

#[test]
fn every_sample_that_is_counted_arrives() {
    check("frequency: 997, aggregation: count");
    // Most find no room and are sent.
    check("frequency: 997, aggregation: count, max_counted: 64");
}
