//! Programs whose chain of calls is known.

use std::path::Path;
use std::thread;
use std::time::Duration;

use crate::host::{Running, can_profile, compile, profile_while};
use crate::profile::{Sample, Symbols};

const CHAIN: [&str; 5] = ["leaf", "inner", "middle", "outer", "main"];

/// Profiles `program`, which runs until it is ended, and holds its stacks against `chain`.
fn check(program: &Path, chain: &[&str]) {
    let running = Running::start(program, &["60"]);
    let profile = profile_while(499, || thread::sleep(Duration::from_secs(3)));
    let samples = profile.of_process(running.pid());
    let mut symbols = Symbols::read(program);

    let (mut right, mut all) = (0, 0);
    let mut wrong: Vec<(Vec<String>, &Sample)> = Vec::new();
    for sample in samples {
        let user: Vec<_> = sample
            .frames
            .iter()
            .filter(|frame| frame.kind != "kernel")
            .cloned()
            .collect();
        let names = symbols.names(&user);
        if names.first().map(String::as_str) != chain.first().copied() {
            continue;
        }
        all += sample.count;
        let has_chain = names
            .iter()
            .zip(chain)
            .all(|(name, expected)| name == expected);
        if has_chain && names.len() > chain.len() && sample.end_reason.is_none() {
            right += sample.count;
        } else {
            wrong.push((names, sample));
        }
    }
    assert!(
        all >= 100,
        "only {all} samples in `{}` of {}",
        chain[0],
        program.display()
    );
    // Those before the table was built say so.
    let unexplained: Vec<_> = wrong
        .iter()
        .filter(|(_, sample)| sample.end_reason.is_none())
        .collect();
    assert!(
        unexplained.is_empty(),
        "stacks that claim to be whole and are not: {unexplained:#?}"
    );
    let share = right as f64 / all as f64;
    assert!(
        share >= 0.99,
        "{right} of {all} stacks are whole; the others: {wrong:#?}"
    );
}

#[test]
fn shows_the_whole_chain_of_a_program_without_frame_pointers() {
    if !can_profile() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let program = compile(
        folder.path(),
        "chain",
        "c++",
        "chain.cc",
        &["-O2", "-fomit-frame-pointer"],
    );
    check(&program, &CHAIN);
}
