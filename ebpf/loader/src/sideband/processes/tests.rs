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

/// Publishes what is to be published, and returns under which counts of execs.
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

/// A process that was there at 10 with code, of which a sample at 20 told that it has executed three times.
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
fn keeps_what_was_mapped_last_where_mappings_overlap() {
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
fn the_rest_of_a_mapping_keeps_its_place_in_the_file() {
    let mut processes = known();
    processes.mapped(PID, 40, area(20, 30, 2));
    let process = processes.get(PID).expect("is known");
    for area in process.code.areas() {
        assert_eq!(area.offset, area.start);
    }
}

#[test]
fn what_is_published_is_not_changed() {
    let mut processes = known();
    let before = Arc::clone(&processes.get(PID).expect("is known").code);
    processes.mapped(PID, 40, area(200, 300, 2));
    assert_eq!(before.areas().len(), 1);
    assert_eq!(ranges(&processes, PID).len(), 2);
}

#[test]
fn counts_the_execs_of_a_family_from_the_first_sample_on() {
    let mut processes = Processes::default();
    processes.found(PID, 10, [area(0, 100, 1)]);
    // Its child executes twice, and its grandchild once more, before anybody is sampled.
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
fn learns_nothing_from_a_sample_of_an_image_that_is_gone() {
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
fn a_number_that_is_used_again_is_another_process() {
    let mut processes = known();
    assert_eq!(
        processes.sample_unmapped(&key(PID, 3, 11), 40),
        UnmappedSample::Look
    );
    processes.found(8, 35, []);
    let before = processes.forked(PID, 8, 40);
    assert_eq!(before, Some(ProcessImage { pid: PID, exec: 3 }));
    assert!(ranges(&processes, PID).is_empty());
}

#[test]
fn a_fork_has_what_its_parent_has_until_one_of_them_changes() {
    let mut processes = known();
    processes.forked(8, PID, 40);
    assert_eq!(ranges(&processes, 8), [(0, 100, 1)]);
    processes.mapped(PID, 41, area(200, 300, 2));
    processes.executed(8, 42);
    assert_eq!(ranges(&processes, PID), [(0, 100, 1), (200, 300, 2)]);
    assert!(ranges(&processes, 8).is_empty());
}

#[test]
fn tells_what_is_nowhere_from_what_is_not_known_yet() {
    let mut processes = known();
    let mut check = |exec, time, expected| {
        let said = processes.sample_unmapped(&key(PID, exec, 5), time);
        assert_eq!(said, expected, "exec {exec} at {time}");
    };
    check(3, 29, UnmappedSample::Pending);
    check(3, 30, UnmappedSample::Nowhere { rescan: false });
    let later = 10 + RESCAN_INTERVAL;
    check(3, later, UnmappedSample::Nowhere { rescan: true });
    // An exec that no event told of.
    check(4, 40, UnmappedSample::Look);
    assert_eq!(
        processes.sample_unmapped(&key(99, 1, 1), 40),
        UnmappedSample::Look,
        "nobody told of this process"
    );
}

#[test]
fn doubts_samples_between_a_change_and_its_publication() {
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
fn code_that_takes_nothing_elses_place_is_no_cause_for_doubt() {
    let mut processes = known();
    processes.mapped(PID, 40, area(200, 300, 2));
    // The same again.
    processes.mapped(PID, 41, area(20, 30, 1));
    publish(&mut processes, 50);
    assert!((35..55).all(|time| !processes.is_uncertain(&key(PID, 3, 5), time)));
}

#[test]
fn many_changes_are_doubted_as_one() {
    let mut processes = known();
    let last = 40 + MAX_DOUBTS as u64 * 2;
    for time in 40..=last {
        processes.mapped(PID, time, area(0, 100, time));
        publish(&mut processes, time);
    }
    assert!((40..=last).all(|time| processes.is_uncertain(&key(PID, 3, 5), time)));
    let process = processes.get(PID).expect("is known");
    assert_eq!(process.doubts.len(), MAX_DOUBTS);
}

#[test]
fn forgets_a_process_when_its_last_thread_is_gone() {
    let mut processes = known();
    processes.left(PID, 40);
    let mut hidden = Vec::new();
    processes.forget_gone(41, |_| false, |image| hidden.push(image));
    assert!(hidden.is_empty(), "samples may still come");
    let mut now = 40 + EXIT_GRACE;
    // Other threads go on.
    processes.forget_gone(now, |_| true, |image| hidden.push(image));
    assert!(hidden.is_empty());
    now += EXIT_GRACE * 10;
    processes.forget_gone(now, |_| false, |image| hidden.push(image));
    assert_eq!(hidden, [ProcessImage { pid: PID, exec: 3 }]);
    assert_eq!(processes.len(), 0);
}

#[test]
fn a_process_that_came_after_another_ended_is_not_forgotten_with_it() {
    let mut processes = known();
    processes.found(8, 35, []);
    processes.left(PID, 40);
    processes.forked(PID, 8, 45);
    processes.forget_gone(40 + EXIT_GRACE, |_| false, |_| panic!("is still there"));
    assert!(processes.get(PID).is_some());
}

#[test]
fn has_room_for_so_many_mappings_and_no_more() {
    let mut processes = known();
    processes.executed(PID, 40);
    let most = 1u64 << MAX_AREAS_SHIFT;
    let inserted =
        (0..most * 2).filter(|at| processes.mapped(PID, 41, area(at * 2, at * 2 + 1, 1)));
    assert_eq!(inserted.count() as u64, most - 1);
}
