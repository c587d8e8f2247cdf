//! A recorder and an uploader that are killed at every file change: no acknowledged batch is lost, and few are
//! duplicated.
//!
//! A preloaded library kills the unmodified program at the n-th call, until there are no more calls.

use std::collections::BTreeMap;
use std::path::Path;

use profcol_component::testkit::profiles;
use profcol_test_harness::backend::{Client, Destination, Mode, endpoint_in, wait_until};
use profcol_test_harness::faults::Faults;
use profcol_test_harness::peers::{Process, profcol};

use crate::files::{names, recorder, uploader_config};

/// Far more than there are; reaching it is a bug.
const MAX_STEPS: usize = 200;

/// The sizes of the batches; the distinct sizes identify them.
const BATCHES: [usize; 3] = [1, 2, 3];

/// Starts a profcol that is killed before the `step`-th change of a recording or one of its companion files.
fn killed_at(step: usize, faults: &Faults, config: &str) -> Process {
    faults.kill_at(step);
    faults.profcol(config)
}

fn faults() -> Option<Faults> {
    Faults::of(&[".padata"])
}

/// The number of deliveries of each batch, by its number of samples.
fn delivered(destination: &Destination) -> BTreeMap<usize, usize> {
    let mut delivered = BTreeMap::new();
    for taken in destination.taken() {
        *delivered.entry(taken.sample_count()).or_default() += 1;
    }
    delivered
}

/// Uploads a folder and waits until it is empty.
fn deliver(folder: &Path, destination: &Destination) {
    let config = uploader_config(folder, destination, "");
    let _uploader = profcol(&config);
    wait_until("the folder to be empty", || is_empty(folder));
}

/// Whether no recordings and no progress files are left; ignores unfinished files.
fn is_empty(folder: &Path) -> bool {
    let of_recorder = |name: &String| name.ends_with(".unfinished") && !name.starts_with('.');
    names(folder).iter().all(of_recorder)
}

#[test]
fn a_recorder_killed_at_any_step_loses_no_acknowledged_batch() {
    let Some(faults) = faults() else {
        return;
    };
    for step in 1..MAX_STEPS {
        let folder = tempfile::tempdir().unwrap();
        // Each file is completed and compressed after two batches.
        let config = crate::files::recorder_config(folder.path(), "max_file_bytes: 6000");
        let mut killed = killed_at(step, &faults, &config);
        killed.wait_for_output("to be ready", |output| {
            output.contains("Everything is ready")
        });
        let client = Client::new(endpoint_in(&killed.output(), "grpc"));
        let answered = |samples: &&usize| client.send(&profiles(**samples)).is_ok();
        let answered: Vec<usize> = BATCHES.iter().take_while(answered).copied().collect();
        if answered.len() == BATCHES.len() {
            // The last file is only compressed once complete.
            let (status, output) = killed.stop();
            if status.success() {
                assert!(step > 12, "only {step} steps: {output}");
                return;
            }
        } else {
            wait_until("it to be killed", || killed.has_ended());
        }
        // In half of the cases the next recorder finds the leftovers first, else the uploader.
        if step % 2 == 0 {
            let (next, client) = recorder(folder.path(), "max_file_bytes: 6000");
            client.send(&profiles(50)).unwrap();
            drop(next);
        }
        let destination = Destination::new(Mode::Take);
        deliver(folder.path(), &destination);
        let delivered = delivered(&destination);
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
    }
    panic!("not done after {MAX_STEPS} steps");
}

#[test]
fn an_uploader_killed_at_any_step_loses_nothing_and_duplicates_little() {
    let Some(faults) = faults() else {
        return;
    };
    const MAX_IN_FLIGHT: usize = 2;
    for step in 1..MAX_STEPS {
        let folder = tempfile::tempdir().unwrap();
        let (recorded, client) = recorder(folder.path(), "max_file_bytes: 6000");
        for samples in BATCHES {
            client.send(&profiles(samples)).unwrap();
        }
        drop(recorded);
        let destination = Destination::new(Mode::Take);
        let options = format!("max_in_flight: {MAX_IN_FLIGHT}");
        let config = uploader_config(folder.path(), &destination, &options);
        let mut killed = killed_at(step, &faults, &config);
        wait_until("it to be killed or to finish", || {
            killed.has_ended() || is_empty(folder.path())
        });
        let is_done = !killed.has_ended();
        drop(killed);
        deliver(folder.path(), &destination);
        let delivered = delivered(&destination);
        assert_eq!(delivered.keys().copied().collect::<Vec<_>>(), BATCHES);
        let times: usize = delivered.values().sum();
        let bound = if is_done { 0 } else { MAX_IN_FLIGHT };
        assert!(
            times <= BATCHES.len() + bound,
            "killed at step {step}: {delivered:?}"
        );
        if is_done {
            assert!(step > 6, "only {step} steps");
            return;
        }
    }
    panic!("not done after {MAX_STEPS} steps");
}
