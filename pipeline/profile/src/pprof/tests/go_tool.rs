//! What Go's own tool says of files written here.

#![expect(clippy::print_stderr, reason = "tells that a test was skipped")]

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::pprof::{LabelSelection, gzip, sets, write};
use crate::{Profiles, Validation};

/// A recorded request and its file, or a line that says what is missing.
fn recorded(name: &str) -> Option<Vec<u8>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/golden/otlp/profiler");
    let wire = std::fs::read(path.join(name));
    let go = Command::new("go").arg("version").output();
    let (Ok(wire), true) = (wire, go.is_ok_and(|go| go.status.success())) else {
        let is_ci = std::env::var_os("CI").is_some_and(|ci| ci == "true");
        assert!(
            !is_ci,
            "no go, or no recorded requests at {}",
            path.display()
        );
        eprintln!(
            "skipped: no go, or no recorded requests at {}",
            path.display()
        );
        return None;
    };
    let received = Profiles::from_wire(wire.into(), Validation::Reject);
    let model = received
        .unwrap_or_else(|error| panic!("{name}: {error}"))
        .profiles
        .into_model();
    let file = write(sets(&model), LabelSelection::default());
    Some(gzip(&file.expect("the sample types are the same")))
}

/// A file that goes with the test.
struct Temporary(PathBuf);

impl Drop for Temporary {
    fn drop(&mut self) {
        drop(std::fs::remove_file(&self.0));
    }
}

fn pprof(file: &[u8], report: &str) -> String {
    let name = format!("profcol-{}{report}.pb.gz", std::process::id());
    let path = Temporary(std::env::temp_dir().join(name));
    std::fs::write(&path.0, file).unwrap_or_else(|error| panic!("{}: {error}", path.0.display()));
    let output = Command::new("go")
        .args(["tool", "pprof", "-symbolize=none", report])
        .arg(&path.0)
        .output()
        .unwrap_or_else(|error| panic!("go tool pprof {report}: {error}"));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{report}: {errors}");
    text
}

#[test]
fn go_tool_reads_functions_mappings_labels_and_units() {
    let Some(file) = recorded("export-01.pb") else {
        return;
    };
    #[track_caller]
    fn check(text: &str, expected: &[&str]) {
        for expected in expected {
            let squeezed = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
            let found = text.lines().any(|line| squeezed(line).contains(expected));
            assert!(found, "{expected} is not in\n{text}");
        }
    }
    check(
        &pprof(&file, "-top"),
        &[
            "Type: samples",
            "Showing nodes accounting for 19, 100% of 19 total",
            "2 10.53% 89.47% 5 26.32% leaf",
            "2 10.53% 100% 2 10.53% main.leaf",
        ],
    );
    check(
        &pprof(&file, "-tags"),
        &[
            "15 (78.95%): 0",
            "9 (47.37%): 30670",
            "3 (15.79%): rustworker",
            "9 (47.37%): /opt/demo/demo_cpp",
        ],
    );
    check(
        &pprof(&file, "-raw"),
        &[
            "PeriodType: cpu nanoseconds",
            "Period: 52631578",
            "Duration: 4.70",
            "samples/count",
            "cpu.logical_number:[0 cpu.logical_number] process.pid:[30675] thread.id:[30675]",
            "0x41f000/0x6d2000/0x1f000 python3.11 571d98e01096d5c1c32420d229a6731a0a50d2a0",
        ],
    );
}
