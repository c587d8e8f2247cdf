//! How a test reports in one line that it cannot run here. In CI a skip is a failure. Also what tests of several crates need and
//! often cannot have.

mod disk;

use std::collections::BTreeSet;
use std::fs::OpenOptions;
use std::io::{Write, stderr};
use std::sync::{Mutex, PoisonError};

pub use disk::SmallDisk;

/// The file to which skips are appended; `cargo xtask test` lists them at its end.
pub const LIST: &str = "PROFCOL_TEST_SKIPS";

/// Reports that a test, or a part of one, is skipped because of `why`. With `CI=true` that fails it.
pub fn skip(why: &str) {
    static REPORTED: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let is_ci = std::env::var_os("CI").is_some_and(|ci| ci == "true");
    assert!(!is_ci, "{why}, and CI=true allows no skip");
    let mut reported = REPORTED.lock().unwrap_or_else(PoisonError::into_inner);
    if !reported.insert(why.to_owned()) {
        return;
    }
    // Not with the macros: cargo shows their output only for failed tests.
    let _ = writeln!(stderr(), "skipped: {why}");
    if let Some(list) = std::env::var_os(LIST) {
        let list = OpenOptions::new().append(true).create(true).open(list);
        let _ = list.and_then(|mut list| writeln!(list, "{why}"));
    }
}
