//! Which files are read, and the progress stored for each.

use std::collections::BTreeSet;
use std::fs;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use profcol_component::testkit::{context, load, profiles, wait_until};
use profcol_component::{
    Answer, Batch, Consumer, Factory, Meter, Output, Status, StatusBoard, Stop,
};
use profcol_config::{Config, Problems};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::Padata;
use super::config::PadataConfig;
use super::delivery::{Delivery, Ledger};
use crate::shared::WhenUndelivered;
use profcol_padata::{Delivered, Progress, files, remove_orphans};

fn batches(settled: u16, refused: &[u16]) -> Delivered {
    Delivered::Batches {
        settled,
        refused: refused.iter().copied().collect(),
    }
}

#[test]
fn progress_round_trips() {
    let directory = tempfile::tempdir().unwrap();
    let progress = Progress::of(&directory.path().join("1-2.padata.zst"));
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
fn progress_includes_refused_batches() {
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

#[test]
fn leave_requires_follow_false() {
    let check = |follow: bool, when_undelivered: WhenUndelivered, is_right: bool| {
        let config = PadataConfig {
            storage_path: "recordings".to_owned(),
            follow,
            when_undelivered,
            ..PadataConfig::default()
        };
        let mut problems = Problems::default();
        config.validate(&mut problems);
        assert_eq!(problems.is_empty(), is_right, "{problems}");
    };
    check(true, WhenUndelivered::Retry, true);
    check(false, WhenUndelivered::Retry, true);
    check(false, WhenUndelivered::Leave, true);
    check(true, WhenUndelivered::Leave, false);
}

#[test]
fn prefers_the_uncompressed_file() {
    let directory = tempfile::tempdir().unwrap();
    for name in [
        "20-1.padata.zst",
        "3-1.padata",
        "3-1.padata.zst",
        "x.padata",
        "4-1.padata.damaged",
    ] {
        fs::write(directory.path().join(name), "").unwrap();
    }
    let files = files(directory.path()).unwrap();
    let names: Vec<_> = files.iter().filter_map(|file| file.file_name()).collect();
    assert_eq!(names, ["x.padata", "3-1.padata", "20-1.padata.zst"]);
}

#[test]
fn removes_progress_of_deleted_files() {
    let directory = tempfile::tempdir().unwrap();
    for name in [
        "1-1.padata",
        ".1-1.padata.progress",
        "2-1.padata.zst",
        ".2-1.padata.progress",
        ".3-1.padata.progress",
        ".4-1.padata.progress",
        ".4-1.padata.unfinished",
        "5-1.padata.unfinished",
        "4-1.padata.refused",
    ] {
        fs::write(directory.path().join(name), "").unwrap();
    }
    remove_orphans(directory.path()).unwrap();
    let there = |name: &str| directory.path().join(name).exists();
    assert!(there(".1-1.padata.progress") && there(".2-1.padata.progress"));
    assert!(!there(".3-1.padata.progress") && !there(".4-1.padata.progress"));
    assert!(!there(".4-1.padata.unfinished") && there("5-1.padata.unfinished"));
}

/// Accepts batches and never reports an outcome, like a queue whose destination is down.
struct Keeps(Mutex<Vec<Batch>>);

#[async_trait]
impl Consumer for Keeps {
    async fn consume(&self, batch: Batch) -> Answer {
        self.0.lock().push(batch);
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn a_stop_ends_the_wait_for_batches_in_flight() {
    let keeps = Arc::new(Keeps(Mutex::default()));
    let output = Output::new(keeps, Meter::default(), "padata").for_transport("file");
    let stop = Stop::new();
    let delivery = Delivery::new(output, stop.clone(), 4);
    let ledger = Ledger::new(0, BTreeSet::new(), false);
    delivery.deliver(&ledger, 0, profiles(1)).await;
    let began = Instant::now();
    let stopping = async {
        tokio::time::sleep(Duration::from_secs(10)).await;
        stop.cancel();
    };
    tokio::join!(delivery.settle(Duration::from_secs(5)), stopping);
    assert_eq!(began.elapsed(), Duration::from_secs(15));
}

#[tokio::test]
async fn the_status_shows_that_the_directory_is_gone() {
    let parent = tempfile::tempdir().unwrap();
    let directory = parent.path().join("recordings");
    fs::create_dir(&directory).unwrap();
    let options = format!(
        "{{storage_path: '{}', poll_interval: 1ms}}",
        directory.display()
    );
    let context = context("padata");
    let mut receiver = Padata::build(&load(&options).unwrap(), &context).unwrap();
    receiver.start().await.unwrap();
    let stop = Stop::new();
    let output = Output::new(
        Arc::new(Keeps(Mutex::default())),
        Meter::default(),
        "padata",
    );
    let mut running = JoinSet::new();
    running.spawn(receiver.run(output, stop.clone()));
    let board: StatusBoard = context.shared.get();
    let is_shown = |works: bool| {
        let status = board.snapshot().remove("padata");
        match status {
            Some(Status::RecoverableError(error)) => {
                !works && error.to_string().contains("failed to read")
            }
            status => works && status == Some(Status::Ok),
        }
    };
    fs::remove_dir(&directory).unwrap();
    wait_until("an error", async || is_shown(false)).await;
    fs::create_dir(&directory).unwrap();
    wait_until("its end", async || is_shown(true)).await;
    stop.cancel();
    running.join_next().await.unwrap().unwrap().unwrap();
}
