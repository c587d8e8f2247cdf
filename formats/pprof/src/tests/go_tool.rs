//! Checks written files with Go's own tool.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{LabelSelection, gzip, sets, write};
use profcol_profile::{
    Function, Interner, Line, Location, LocationRef, Mapping, MappingRef, Model, Profile, Profiles,
    SampleRef, Samples, Validation, ValueType,
};
use profcol_test_skip::skip;

/// A recorded request, converted to a file.
fn recorded(name: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/otlp/profiler");
    let wire = std::fs::read(path.join(name)).expect("recording exists");
    let received = Profiles::from_wire(wire.into(), Validation::Reject);
    let model = received
        .unwrap_or_else(|error| panic!("{name}: {error}"))
        .profiles
        .into_model();
    let file = write(sets(&model), LabelSelection::default());
    gzip(&file.expect("the sample types are the same"))
}

/// `pprof` symbolizes a mapping without any names itself: it must not do so if some are present.
#[test]
fn go_tool_keeps_the_names_of_a_partially_symbolized_mapping() {
    let executable = std::env::current_exe().expect("the test's own executable");
    let executable = executable.to_str().expect("valid UTF-8");
    let maps = std::fs::read_to_string("/proc/self/maps").expect("/proc is mounted");
    let mut own = maps.lines().filter(|line| line.ends_with(executable));
    let start = |line: &str| u64::from_str_radix(line.split('-').next().unwrap_or_default(), 16);
    let base = own.next().and_then(|line| start(line).ok());
    let base = base.expect("the executable is mapped");
    let code = own.find(|line| line.contains(" r-xp ")).expect("has code");
    let [from, to, offset] = {
        let (range, rest) = code.split_once(' ').expect("a range");
        let (from, to) = range.split_once('-').expect("two addresses");
        let offset = rest.split(' ').nth(1).expect("an offset");
        [from, to, offset].map(|text| u64::from_str_radix(text, 16).expect("a number"))
    };
    let here = pprof as fn(&[u8], &[&str]) -> Option<String> as usize as u64 - base;

    let mut rows = Interner::new();
    let filename = rows.string(executable);
    let mapping = rows.mapping(MappingRef {
        mapping: Mapping {
            memory_start: from - base,
            memory_limit: to - base,
            file_offset: offset,
            filename,
        },
        attributes: &[],
    });
    let function = Function {
        name: rows.string("<alloc::vec::Vec<u8> as hot::Tr>::go"),
        system_name: rows.string("_RNvXs_Cs1_3hotINtNtCs2_5alloc3vec3VechENtB4_2Tr2go"),
        ..Function::default()
    };
    let line = Line {
        function: rows.function(function),
        ..Line::default()
    };
    let mut samples = Samples::default();
    for (address, lines) in [(here, &[line][..]), (here + 1, &[])] {
        let location = rows.location(LocationRef {
            location: Location { mapping, address },
            lines,
            attributes: &[],
        });
        let stack = rows.stack(&[location]);
        samples.push(SampleRef {
            stack,
            values: &[1],
            ..SampleRef::default()
        });
    }
    let profile = Profile {
        sample_type: Some(ValueType {
            kind: rows.string("samples"),
            unit: rows.string("count"),
        }),
        samples,
        ..Profile::default()
    };
    let model = Model::of_profile(rows.finish(), None, profile);
    let file = write(sets(&model), LabelSelection::default()).expect("a single set");
    if let Some(text) = pprof(&gzip(&file), &["-top"]) {
        assert!(
            text.contains("<alloc::vec::Vec<u8> as hot::Tr>::go"),
            "{text}"
        );
    }
}

/// A temporary file.
struct Temporary(PathBuf);

impl Drop for Temporary {
    fn drop(&mut self) {
        drop(std::fs::remove_file(&self.0));
    }
}

/// A report of Go's own tool; `None` without Go.
fn pprof(file: &[u8], report: &[&str]) -> Option<String> {
    let name = format!("profcol-{}{}.pb.gz", std::process::id(), report.concat());
    let path = Temporary(std::env::temp_dir().join(name));
    std::fs::write(&path.0, file).unwrap_or_else(|error| panic!("{}: {error}", path.0.display()));
    let mut tool = Command::new("go");
    tool.args(["tool", "pprof"]).args(report).arg(&path.0);
    let Ok(output) = tool.output() else {
        skip("Go is not installed");
        return None;
    };
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{report:?}: {errors}");
    Some(text)
}

#[test]
fn go_tool_reads_functions_mappings_labels_and_units() {
    let file = recorded("export-01.pb");
    #[track_caller]
    fn check(text: &str, expected: &[&str]) {
        for expected in expected {
            let squeezed = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
            let is_present = text.lines().any(|line| squeezed(line).contains(expected));
            assert!(is_present, "{expected} is not in\n{text}");
        }
    }
    let check = |report: &str, expected: &[&str]| {
        if let Some(text) = pprof(&file, &["-symbolize=none", report]) {
            check(&text, expected);
        }
    };
    check(
        "-top",
        &[
            "Type: samples",
            "Showing nodes accounting for 19, 100% of 19 total",
            "2 10.53% 89.47% 5 26.32% leaf",
            "2 10.53% 100% 2 10.53% main.leaf",
        ],
    );
    check(
        "-tags",
        &[
            "15 (78.95%): 0",
            "9 (47.37%): 30670",
            "3 (15.79%): rustworker",
            "9 (47.37%): /opt/demo/demo_cpp",
        ],
    );
    check(
        "-raw",
        &[
            "PeriodType: cpu nanoseconds",
            "Period: 52631578",
            "Duration: 4.70",
            "samples/count",
            "cpu.logical_number:[0]",
            "process.pid:[30675] thread.id:[30675]",
            "0x41f000/0x6d2000/0x1f000 python3.11 571d98e01096d5c1c32420d229a6731a0a50d2a0",
        ],
    );
}
