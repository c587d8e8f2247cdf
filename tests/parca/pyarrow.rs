//! Recordings are readable by Arrow's own library.

use std::process::Command;

use profcol_test_harness::support::{root, skip};

use crate::files::{names, recorder};
use crate::profiles;

/// A Python with pyarrow; `PYTHON` may name it.
fn python() -> Option<Command> {
    let name = std::env::var_os("PYTHON").unwrap_or_else(|| "python3".into());
    let found = Command::new(&name).args(["-c", "import pyarrow"]).output();
    if !found.is_ok_and(|found| found.status.success()) {
        skip("there is no Python with pyarrow");
        return None;
    }
    Some(Command::new(name))
}

#[test]
fn pyarrow_reads_every_written_record() {
    let profiles = profiles();
    let model = profiles.model();
    let samples = model.profiles().flat_map(|profile| profile.samples.iter());
    let each: i64 = samples
        .map(|sample| match sample.values {
            [] => sample.timestamps.len() as i64,
            values => values.iter().sum(),
        })
        .sum();
    for schema in ["v1", "v2"] {
        // One uncompressed file with several batches, and completed files.
        for (options, batches) in [("max_file_bytes: 67108864", 3), ("max_file_bytes: 1", 1)] {
            let Some(mut python) = python() else {
                return;
            };
            let directory = tempfile::tempdir().unwrap();
            let (recorder, client) =
                recorder(directory.path(), &format!("schema: {schema}, {options}"));
            for _ in 0..3 {
                client.send(&profiles).unwrap();
            }
            let (status, output) = recorder.stop();
            assert!(status.success(), "{output}");
            let names = names(directory.path());
            let output = python
                .arg(root().join("tests/parca/read.py"))
                .args(names.iter().map(|name| directory.path().join(name)))
                .output()
                .unwrap();
            assert!(output.status.success(), "{schema}, {options}: {output:?}");
            let expected = format!("{batches} {}\n", batches * each).repeat(names.len());
            assert_eq!(String::from_utf8(output.stdout).unwrap(), expected);
            assert_eq!(names.len() as i64 * batches, 3);
            let is_compressed = names.iter().any(|name| name.ends_with(".zst"));
            assert_eq!(is_compressed, batches == 1, "{names:?}");
        }
    }
}
