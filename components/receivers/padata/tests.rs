//! What is noted of a file that is being delivered.

use std::collections::BTreeSet;

use super::delivery::Ledger;
use super::folder::{Delivered, Progress};

fn batches(settled: u16, refused: &[u16]) -> Delivered {
    Delivered::Batches {
        settled,
        refused: refused.iter().copied().collect(),
    }
}

#[test]
fn what_is_noted_is_read_again() {
    let folder = tempfile::tempdir().unwrap();
    let progress = Progress::of(&folder.path().join("1-2.padata.zst"));
    assert_eq!(progress.read(), batches(0, &[]));
    for delivered in [
        batches(0, &[]),
        batches(7, &[]),
        batches(9, &[3]),
        batches(u16::MAX, &[0, 3, 65_534]),
        Delivered::Everything,
    ] {
        progress.write(&delivered).unwrap();
        assert_eq!(progress.read(), delivered);
    }
}

#[test]
fn a_refused_batch_is_noted_with_those_that_were_delivered() {
    let mut ledger = Ledger::new(1, BTreeSet::from([0]), false);
    ledger.refuse(2);
    assert_eq!(ledger.progress(), batches(1, &[0, 2]));
    ledger.settle(1);
    assert_eq!(ledger.progress(), batches(3, &[0, 2]));
    assert_eq!(ledger.refused(), 2);
    assert!(ledger.is_settled(0) && !ledger.is_settled(3));

    let again = Ledger::new(3, BTreeSet::from([0, 2]), true);
    let offered: Vec<u16> = (0..5).filter(|number| !again.is_settled(*number)).collect();
    assert_eq!(offered, [0, 2, 3, 4]);
}
