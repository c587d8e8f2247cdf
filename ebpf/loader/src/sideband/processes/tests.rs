//! Handmade events and samples: the code that each process has mapped after them, and which samples are uncertain.

use std::collections::HashMap;

use super::*;

const PID: u32 = 7;

fn area(start: u64, end: u64, inode: u64) -> Area {
    Area {
        start,
        end,
        offset: start,
        id: FileId {
            inode,
            ..FileId::default()
        },
    }
}

fn key(pid: u32, exec: u32, started: u64) -> ProcessKey {
    ProcessKey { pid, exec, started }
}

fn ranges(processes: &Processes, pid: u32) -> Vec<(u64, u64, u64)> {
    let process = processes.get(pid).expect("is known");
    let areas = process.code.areas();
    areas
        .map(|area| (area.start, area.end, area.id.inode))
        .collect()
}

/// Publishes changed processes, and returns their exec counts by PID.
fn publish(processes: &mut Processes, now: u64) -> HashMap<u32, u32> {
    let mut published = HashMap::new();
    for pid in processes.take_changed() {
        let process = processes.get_mut(pid).expect("is known");
        let image = process.image(pid).expect("its family is known");
        process.published(image, now);
        published.insert(image.pid, image.exec);
    }
    published
}

/// A process scanned at 10 with code; a sample at 20 reported three execs.
fn known() -> Processes {
    let mut processes = Processes::default();
    processes.found(PID, 10, [area(0, 100, 1)]);
    assert!(publish(&mut processes, 15).is_empty());
    assert_eq!(
        processes.sample_unmapped(&key(PID, 3, 5), 20),
        UnmappedSample::Pending
    );
    assert_eq!(publish(&mut processes, 30), [(PID, 3)].into());
    processes
}

#[test]
fn the_last_of_overlapping_mappings_wins() {
    let check = |areas: &[(u64, u64, u64)], expected: &[(u64, u64, u64)]| {
        let mut processes = known();
        processes.executed(PID, 40);
        for &(start, end, inode) in areas {
            assert!(processes.mapped(PID, 41, area(start, end, inode)));
        }
        assert_eq!(ranges(&processes, PID), expected, "{areas:?}");
    };
    check(&[(10, 20, 1), (30, 40, 2)], &[(10, 20, 1), (30, 40, 2)]);
    check(&[(10, 20, 1), (10, 20, 2)], &[(10, 20, 2)]);
    check(
        &[(10, 40, 1), (20, 30, 2)],
        &[(10, 20, 1), (20, 30, 2), (30, 40, 1)],
    );
    check(&[(10, 30, 1), (20, 40, 2)], &[(10, 20, 1), (20, 40, 2)]);
    check(&[(20, 40, 1), (10, 30, 2)], &[(10, 30, 2), (30, 40, 1)]);
    check(
        &[(10, 20, 1), (20, 30, 2), (30, 40, 3), (15, 35, 4)],
        &[(10, 15, 1), (15, 35, 4), (35, 40, 3)],
    );
}

#[test]
fn the_remainder_of_a_split_mapping_keeps_its_file_offset() {
    let mut processes = known();
    processes.mapped(PID, 40, area(20, 30, 2));
    let process = processes.get(PID).expect("is known");
    for area in process.code.areas() {
        assert_eq!(area.offset, area.start);
    }
}

#[test]
fn published_code_is_immutable() {
    let mut processes = known();
    let before = Arc::clone(&processes.get(PID).expect("is known").code);
    processes.mapped(PID, 40, area(200, 300, 2));
    assert_eq!(before.areas().len(), 1);
    assert_eq!(ranges(&processes, PID).len(), 2);
}

#[test]
fn the_first_sample_of_a_family_gives_its_exec_count() {
    let mut processes = Processes::default();
    processes.found(PID, 10, [area(0, 100, 1)]);
    // Its child execs twice, and its grandchild once more, before the first sample.
    processes.forked(8, PID, 11);
    processes.executed(8, 12);
    processes.executed(8, 13);
    processes.forked(9, 8, 14);
    processes.executed(9, 15);
    assert!(publish(&mut processes, 16).is_empty());
    assert_eq!(
        processes.sample_unmapped(&key(8, 5, 11), 17),
        UnmappedSample::Pending
    );
    assert_eq!(
        publish(&mut processes, 18),
        [(PID, 3), (8, 5), (9, 6)].into()
    );
}

#[test]
fn ignores_a_sample_of_a_replaced_image() {
    let mut processes = Processes::default();
    processes.found(PID, 10, []);
    processes.executed(PID, 20);
    assert_eq!(
        processes.sample_unmapped(&key(PID, 3, 5), 19),
        UnmappedSample::Pending
    );
    assert!(publish(&mut processes, 21).is_empty());
    assert_eq!(
        processes.sample_unmapped(&key(PID, 4, 5), 22),
        UnmappedSample::Pending
    );
    assert_eq!(publish(&mut processes, 23), [(PID, 4)].into());
}

#[test]
fn a_reused_pid_is_another_process() {
    let mut processes = known();
    assert_eq!(
        processes.sample_unmapped(&key(PID, 3, 11), 40),
        UnmappedSample::NeedsScan
    );
    processes.found(8, 35, []);
    let before = processes.forked(PID, 8, 40);
    assert_eq!(before, Some(ProcessImage { pid: PID, exec: 3 }));
    assert!(ranges(&processes, PID).is_empty());
}

#[test]
fn a_fork_shares_its_parents_code_until_either_changes() {
    let mut processes = known();
    processes.forked(8, PID, 40);
    assert_eq!(ranges(&processes, 8), [(0, 100, 1)]);
    processes.mapped(PID, 41, area(200, 300, 2));
    processes.executed(8, 42);
    assert_eq!(ranges(&processes, PID), [(0, 100, 1), (200, 300, 2)]);
    assert!(ranges(&processes, 8).is_empty());
}

#[test]
fn distinguishes_missing_mappings_from_pending_ones() {
    let mut processes = known();
    let mut check = |exec, time, expected| {
        let reported = processes.sample_unmapped(&key(PID, exec, 5), time);
        assert_eq!(reported, expected, "exec {exec} at {time}");
    };
    check(3, 29, UnmappedSample::Pending);
    check(3, 30, UnmappedSample::Nowhere { rescan: false });
    let later = 10 + RESCAN_INTERVAL;
    check(3, later, UnmappedSample::Nowhere { rescan: true });
    // An exec without an event.
    check(4, 40, UnmappedSample::NeedsScan);
    assert_eq!(
        processes.sample_unmapped(&key(99, 1, 1), 40),
        UnmappedSample::NeedsScan,
        "this process was not reported"
    );
}

#[test]
fn samples_between_a_change_and_its_publication_are_uncertain() {
    let mut processes = known();
    processes.mapped(PID, 40, area(50, 150, 2));
    publish(&mut processes, 50);
    let check = |time, expected| {
        let doubtful = processes.is_uncertain(&key(PID, 3, 5), time);
        assert_eq!(doubtful, expected, "at {time}");
    };
    check(39, false);
    check(40, true);
    check(50, true);
    check(51, false);
}

#[test]
fn code_in_free_space_does_not_make_samples_uncertain() {
    let mut processes = known();
    processes.mapped(PID, 40, area(200, 300, 2));
    // Mapped again.
    processes.mapped(PID, 41, area(20, 30, 1));
    publish(&mut processes, 50);
    assert!((35..55).all(|time| !processes.is_uncertain(&key(PID, 3, 5), time)));
}

#[test]
fn many_changes_merge_into_one_uncertain_interval() {
    let mut processes = known();
    let last = 40 + MAX_UNCERTAIN as u64 * 2;
    for time in 40..=last {
        processes.mapped(PID, time, area(0, 100, time));
        publish(&mut processes, time);
    }
    assert!((40..=last).all(|time| processes.is_uncertain(&key(PID, 3, 5), time)));
    let process = processes.get(PID).expect("is known");
    assert_eq!(process.uncertain.len(), MAX_UNCERTAIN);
}

#[test]
fn removes_a_process_after_its_last_thread_exits() {
    let mut processes = known();
    processes.left(PID, 40);
    let mut hidden = Vec::new();
    processes.forget_gone(41, |_| false, |image| hidden.push(image));
    assert!(hidden.is_empty(), "samples may still come");
    let mut now = 40 + EXIT_GRACE;
    // Other threads continue.
    processes.forget_gone(now, |_| true, |image| hidden.push(image));
    assert!(hidden.is_empty());
    now += EXIT_GRACE * 10;
    processes.forget_gone(now, |_| false, |image| hidden.push(image));
    assert_eq!(hidden, [ProcessImage { pid: PID, exec: 3 }]);
    assert_eq!(processes.len(), 0);
}

#[test]
fn a_new_process_with_the_same_pid_survives_the_removal_of_the_old_one() {
    let mut processes = known();
    processes.found(8, 35, []);
    processes.left(PID, 40);
    processes.forked(PID, 8, 45);
    processes.forget_gone(40 + EXIT_GRACE, |_| false, |_| panic!("is still there"));
    assert!(processes.get(PID).is_some());
}

#[test]
fn limits_the_number_of_mappings() {
    let mut processes = known();
    processes.executed(PID, 40);
    let most = 1u64 << MAX_AREAS_SHIFT;
    let inserted =
        (0..most * 2).filter(|at| processes.mapped(PID, 41, area(at * 2, at * 2 + 1, 1)));
    assert_eq!(inserted.count() as u64, most - 1);
}
