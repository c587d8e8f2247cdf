//! Known programs, with mappings from events instead of the kernel's VMA tree.

use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use profcol_test_harness::programs::{Program, programs};
use profcol_test_harness::toolchain::Workshop;

use crate::chains::{Live, check, replace_programs};
use crate::host::{Profiler, can_profile};

/// Programs that map their code in different ways, at a rate that events can follow.
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

/// Both programs that are older than the profiler, and younger ones.
#[test]
fn shows_the_known_chains_by_events() {
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

/// There are more events than the rings can hold.
#[test]
fn recovers_from_lost_events() {
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
fn distinguishes_replaced_programs_by_events() {
    replace_programs(Profiler::start_by_events);
}
