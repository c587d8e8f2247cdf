//! `cargo xtask test`: the one command that runs every test on a fresh machine.
//!
//! Tests that need a real peer are marked `#[ignore]`, so that a plain `cargo test` stays quick and says that it left
//! them out. Building the peers takes minutes, so it runs at low priority beside the other tests.

use std::thread;

use anyhow::{Result, anyhow};

use crate::report::Report;
use crate::workspace::Workspace;
use crate::{peers, process};

/// Recordings of real programs, handed on beside the repository; the tests that read them skip themselves without.
const RECORDINGS: &str = "../shared/golden";

/// Ignored for another reason than the peers: it takes minutes.
const LONG: &str = "every_row_of_every_file_is_what_readelf_says";

pub fn run(workspace: &Workspace, report: &mut Report) -> Result<()> {
    if !workspace.root.join(RECORDINGS).is_dir() {
        report.skip(
            "the tests on recorded data",
            &format!("the folder {RECORDINGS} is not there"),
        );
    }
    let plan = peers::Plan::new(workspace, report);
    let ready = thread::scope(|scope| -> Result<bool> {
        let peers = scope.spawn(|| plan.build());
        process::run(&mut workspace.cargo(&["test", "--workspace"]))?;
        peers
            .join()
            .map_err(|_| anyhow!("the thread that builds the peers panicked"))?
    })?;
    if ready {
        let ignored = [
            "test",
            "--workspace",
            "--tests",
            "--",
            "--ignored",
            "--skip",
            LONG,
        ];
        process::run(&mut workspace.cargo(&ignored))?;
    }
    Ok(())
}
