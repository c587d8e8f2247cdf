//! A recorder and an uploader that are killed at every file change: no acknowledged batch is lost, and few are
//! duplicated.
//!
//! A preloaded library kills the unmodified program at the n-th call, until there are no more calls.

use std::path::Path;

use profcol_component::testkit::profiles;
use profcol_test_harness::backend::{Client, Destination, Mode, endpoint_in, wait_until};
use profcol_test_harness::faults::Faults;
use profcol_test_harness::peers::profcol;

use crate::files::{names, recorder, uploader_config};

/// The sizes of the batches; the distinct sizes identify them.
const BATCHES: [usize; 3] = [1, 2, 3];

fn faults() -> Option<Faults> {
    Faults::of(&[".padata"])
}

/// Uploads a directory and waits until it is empty.
fn deliver(directory: &Path, destination: &Destination) {
    let config = uploader_config(directory, destination, "");
    let _uploader = profcol(&config);
    wait_until("the directory to be empty", || is_empty(directory));
}

/// Whether no recordings and no progress files are left; ignores unfinished files.
fn is_empty(directory: &Path) -> bool {
    let of_recorder = |name: &String| name.ends_with(".unfinished") && !name.starts_with('.');
    names(directory).iter().all(of_recorder)
}

#[test]
fn a_recorder_killed_at_any_step_loses_no_acknowledged_batch() {
    let Some(faults) = faults() else {
        return;
    };
    let steps = faults.kill_at_each(|step| {
        let directory = tempfile::tempdir().unwrap();
        // Each file is completed and compressed after two batches.
        let config = crate::files::recorder_config(directory.path(), "max_file_bytes: 6000");
        let mut killed = faults.profcol(&config);
        killed.wait_for_output("to be ready", |output| {
            output.contains("Everything is ready")
        });
        let client = Client::new(endpoint_in(&killed.output(), "grpc"));
        let answered = |samples: &&usize| client.send(&profiles(**samples)).is_ok();
        let answered: Vec<usize> = BATCHES.iter().take_while(answered).copied().collect();
        if answered.len() == BATCHES.len() {
            // The last file is only compressed once complete.
            if killed.stop().0.success() {
                return false;
            }
        } else {
            wait_until("it to be killed", || killed.has_ended());
        }
        // In half of the cases the next recorder finds the leftovers first, else the uploader.
        if step % 2 == 0 {
            let (next, client) = recorder(directory.path(), "max_file_bytes: 6000");
            client.send(&profiles(50)).unwrap();
            drop(next);
        }
        let destination = Destination::new(Mode::Take);
        deliver(directory.path(), &destination);
        let delivered = destination.deliveries();
        for samples in BATCHES {
            let times = delivered.get(&samples).copied().unwrap_or(0);
            // Batches in flight may or may not be there.
            let expected = usize::from(answered.contains(&samples));
            let on_its_way = BATCHES.get(answered.len()) == Some(&samples);
            assert!(
                times == expected || (on_its_way && times == 1),
                "killed at step {step}: {samples} came {times} times, {answered:?} were answered"
            );
        }
        assert_eq!(
            delivered.get(&50).copied().unwrap_or(0),
            usize::from(step % 2 == 0)
        );
        true
    });
    assert!(steps >= 12, "only {steps} steps");
}

#[test]
fn an_uploader_killed_at_any_step_loses_nothing_and_duplicates_little() {
    let Some(faults) = faults() else {
        return;
    };
    const MAX_IN_FLIGHT: usize = 2;
    let steps = faults.kill_at_each(|step| {
        let directory = tempfile::tempdir().unwrap();
        let (recorded, client) = recorder(directory.path(), "max_file_bytes: 6000");
        for samples in BATCHES {
            client.send(&profiles(samples)).unwrap();
        }
        drop(recorded);
        let destination = Destination::new(Mode::Take);
        let options = format!("max_in_flight: {MAX_IN_FLIGHT}");
        let config = uploader_config(directory.path(), &destination, &options);
        let mut killed = faults.profcol(&config);
        wait_until("it to be killed or to finish", || {
            killed.has_ended() || is_empty(directory.path())
        });
        let is_done = !killed.has_ended();
        drop(killed);
        deliver(directory.path(), &destination);
        let delivered = destination.deliveries();
        assert_eq!(delivered.keys().copied().collect::<Vec<_>>(), BATCHES);
        let times: usize = delivered.values().sum();
        let bound = if is_done { 0 } else { MAX_IN_FLIGHT };
        assert!(
            times <= BATCHES.len() + bound,
            "killed at step {step}: {delivered:?}"
        );
        !is_done
    });
    assert!(steps >= 6, "only {steps} steps");
}
