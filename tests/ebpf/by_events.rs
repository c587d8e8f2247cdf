//! Known programs where the kernel's own mappings are out of reach and its events take their place.

use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use crate::chains::{Live, check, replace_programs};
use crate::host::{Profiler, can_profile};
use crate::programs::{Program, programs};
use crate::toolchain::Workshop;

/// Those with another way of having their code mapped each, and not all of it faster than events are taken in.
const BY_EVENTS: [&str; 12] = [
    "c",
    "static-pie",
    "musl",
    "go",
    "plt-lld",
    "vdso",
    "starts",
    "plugins-slowly",
    "execs",
    "deleted",
    "forks",
    "generated",
];

/// The same where the kernel's own mappings cannot be read: programs that are older than the profiler, and younger ones.
#[test]
fn shows_the_known_chains_by_events_too() {
    if !can_profile() {
        return;
    }
    let workshop = Workshop::open();
    let mut older: Vec<Program> = programs()
        .into_iter()
        .filter(|program| BY_EVENTS.contains(&program.name))
        .collect();
    assert_eq!(older.len(), BY_EVENTS.len());
    let younger = older.split_off(BY_EVENTS.len() / 2);
    let start = |program| Live::start(&workshop, program);
    let mut subjects: Vec<Live> = older.into_iter().filter_map(start).collect();
    let profiler = Profiler::start_by_events(997);
    subjects.extend(younger.into_iter().filter_map(start));
    check(&mut subjects, profiler);
}

/// More happens than there is room to tell of it.
#[test]
fn finds_its_way_after_events_were_lost() {
    if !can_profile() {
        return;
    }
    let workshop = Workshop::open();
    let build = |name, command| workshop.build(name, command).unwrap();
    let before = build("before", "cc -O2 -DLEAF=first plain.c");
    let during = build("during", "cc -O2 -DLEAF=second plain.c");
    let chain = |leaf| match leaf {
        "first" => "first inner middle outer main .. _start",
        _ => "second inner middle outer main .. _start",
    };
    let mut subjects = vec![Live::start_at(&before, "before", chain("first"))];
    let profiler = Profiler::start_by_events(99);
    let is_lost = || profiler.output().contains("Mapping events were lost");
    for _ in 0..5 {
        profiler.signal("STOP");
        let script = "i=0; while [ $i -lt 2000 ]; do /bin/true; i=$((i + 1)); done";
        assert!(
            Command::new("sh")
                .args(["-c", script])
                .status()
                .unwrap()
                .success()
        );
        if subjects.len() == 1 {
            subjects.push(Live::start_at(&during, "during", chain("second")));
        }
        profiler.signal("CONT");
        let give_up = Instant::now() + Duration::from_secs(5);
        while !is_lost() && Instant::now() < give_up {
            thread::sleep(Duration::from_millis(100));
        }
        if is_lost() {
            break;
        }
    }
    assert!(is_lost(), "{}", profiler.output());
    check(&mut subjects, profiler);
}

#[test]
fn programs_that_replace_others_are_not_taken_for_them_by_events() {
    replace_programs(Profiler::start_by_events);
}
