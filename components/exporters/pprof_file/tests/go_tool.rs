//! The recorded requests as files, read by profcol and by `go tool pprof`.

use std::process::Command;

use profcol_profile::Validation;
use profcol_test_skip::skip;

use super::*;

/// The recorded requests; prints what is missing if they cannot be used.
fn recorded() -> Option<Vec<Profiles>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/otlp/profiler");
    let go = Command::new("go").arg("version").output();
    let has_go = go.is_ok_and(|go| go.status.success());
    if !has_go {
        skip("no go");
        return None;
    }
    let paths = fs::read_dir(&path)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let mut paths: Vec<PathBuf> = paths
        .filter(|path| path.extension().is_some_and(|extension| extension == "pb"))
        .collect();
    paths.sort();
    assert!(!paths.is_empty(), "{}", path.display());
    let received = paths.iter().map(|path| {
        let wire = fs::read(path).unwrap();
        let received = Profiles::from_wire(wire.into(), Validation::Reject);
        received.unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    });
    Some(received.map(|received| received.profiles).collect())
}

fn pprof(file: &Path, report: &[&str]) -> String {
    let output = Command::new("go")
        .args(["tool", "pprof", "-symbolize=none"])
        .args(report)
        .arg(file)
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{report:?}: {errors}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[track_caller]
fn check(text: &str, expected: &[&str]) {
    let squeezed: Vec<String> = text
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect();
    for expected in expected {
        let found = squeezed.iter().any(|line| line.contains(expected));
        assert!(found, "{expected} is not in\n{text}");
    }
}

#[tokio::test]
async fn files_hold_every_recorded_sample_and_open_in_go_tool_pprof() {
    let Some(requests) = recorded() else {
        return;
    };
    let mut expected: BTreeMap<String, i64> = BTreeMap::new();
    for request in &requests {
        for (sample_type, sum) in sums(request.model()) {
            *expected.entry(sample_type).or_default() += sum;
        }
    }
    for options in ["", "group_by: [container.id, process.pid]", "interval: 0s"] {
        let directory = directory();
        let exporter = Started::at(directory.path(), options).await.unwrap();
        exporter
            .export_all(requests.iter().cloned().map(Batch::new))
            .await;
        exporter.stop().await.unwrap();
        let mut found: BTreeMap<String, i64> = BTreeMap::new();
        for name in names(directory.path()) {
            for (sample_type, sum) in sums(&read_file(&directory.path().join(name))) {
                *found.entry(sample_type).or_default() += sum;
            }
        }
        let cpu_time = found.remove("cpu/nanoseconds");
        assert_eq!(found, expected, "{options}");
        assert_eq!(cpu_time, Some(expected["samples/count"] * 52_631_578));
    }

    let directory = directory();
    let exporter = Started::at(directory.path(), "").await.unwrap();
    exporter
        .export_all(requests.into_iter().map(Batch::new))
        .await;
    exporter.stop().await.unwrap();
    let [(name, _)] = &files(directory.path())[..] else {
        panic!("{:?}", names(directory.path()));
    };
    assert!(name.starts_with("samples.cpu-all-"), "{name}");
    let file = directory.path().join(name);
    let showing = format!("of {} total", expected["samples/count"]);
    check(
        &pprof(&file, &["-top", "-sample_index=samples"]),
        &["Type: samples", &showing, "main.leaf"],
    );
    check(
        &pprof(&file, &["-top"]),
        &["File: [multiple executables]", "Type: cpu", "main.leaf"],
    );
    check(&pprof(&file, &["-tags"]), &["rustworker", "demo_cpp"]);
    check(
        &pprof(&file, &["-raw"]),
        &[
            "PeriodType: cpu nanoseconds",
            "Period: 52631578",
            "samples/count cpu/nanoseconds[dflt]",
            "python3.11 571d98e01096d5c1c32420d229a6731a0a50d2a0",
        ],
    );
}
