//! Profiles written in each format and read back, the cells of a file for the Firefox Profiler, and arbitrary input.

use profcol_flamegraph::{SampleType, folded};
use profcol_profile::testkit::models;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::*;

const STACKS: &str = "main;a 3\nmain;a;b 4\nother 1\n";

fn stacks(content: &[u8]) -> String {
    let model = read(content).unwrap();
    let kind = profcol_flamegraph::sample_types(&model).remove(0);
    folded(&call_tree(&model, kind).0)
}

#[test]
fn written_profiles_can_be_read_back() {
    let model = read(STACKS.as_bytes()).unwrap();
    for name in [
        "a.pb.gz",
        "a.pprof",
        "a.otlp",
        "a.otlp.json",
        "a.folded",
        "A.COLLAPSED",
    ] {
        let format = Format::of_file(name).unwrap();
        let content = write(&model, format, "test").unwrap();
        assert_eq!(stacks(&content), STACKS, "{name}");
    }
}

/// pprof stores the sample count beside the weight: the two must not be added up.
#[test]
fn pprof_sample_counts_are_not_added_to_the_values() {
    let mut model = read(STACKS.as_bytes()).unwrap();
    let dictionary = std::sync::Arc::make_mut(&mut model.dictionary);
    let period_type = profcol_profile::ValueType {
        kind: dictionary.strings.push("cpu"),
        unit: dictionary.strings.push("nanoseconds"),
    };
    let profile = &mut model.resources[0].scopes[0].profiles[0];
    let profile = std::sync::Arc::make_mut(profile);
    profile.period_type = Some(period_type);
    profile.period = 10;
    let expected = "main;a 30\nmain;a;b 40\nother 10\n";
    for name in ["a.otlp", "a.pb.gz"] {
        let content = write(&model, Format::of_file(name).unwrap(), "test").unwrap();
        assert_eq!(stacks(&content), expected, "{name}");
        let again = read(&content).unwrap();
        let kind = profcol_flamegraph::sample_types(&again).remove(0);
        assert_eq!((&*kind.name, &*kind.unit), ("cpu", "nanoseconds"));
        assert_eq!(call_tree(&again, kind).1.samples, 8, "{name}");
    }
}

#[test]
fn svg_and_html_contain_the_functions() {
    let model = read(STACKS.as_bytes()).unwrap();
    for name in ["a.svg", "a.html", "a.speedscope.json"] {
        let content = write(&model, Format::of_file(name).unwrap(), "test").unwrap();
        let text = String::from_utf8(content).unwrap();
        assert!(text.contains("main") && text.contains("other"), "{name}");
    }
}

const THREADS: &[u8] = include_bytes!("../testdata/threads.otlp.json");

#[test]
fn a_firefox_profile_has_threads_lines_and_kinds_of_code() {
    let model = read(THREADS).unwrap();
    let content = write(&model, Format::of_file("a.firefox.json").unwrap(), "test").unwrap();
    let file: Value = serde_json::from_slice(&content).unwrap();
    let meta = &file["meta"];
    assert_eq!(meta["preprocessedProfileVersion"], 60);
    assert_eq!(meta["startTime"], 1_700_000_000_000.0);
    assert_eq!(meta["profilingEndTime"], 1000.0);
    assert_eq!(meta["interval"], 10.0);

    let shared = &file["shared"];
    let cell = |table: &str, column: &str, row: &Value| {
        let row = usize::try_from(row.as_u64().unwrap()).unwrap();
        shared[table][column][row].clone()
    };
    let text = |index: &Value| shared["stringArray"][index.as_u64().unwrap() as usize].clone();
    // Innermost first: function, source file, line, category and depth of inlining.
    let frames = |mut stack: Value| {
        let mut frames = Vec::new();
        while !stack.is_null() {
            let frame = cell("stackTable", "frame", &stack);
            let function = cell("frameTable", "func", &frame);
            let source = match cell("funcTable", "source", &function) {
                Value::Null => Value::Null,
                source => text(&cell_of(shared, &source)),
            };
            let category = cell("frameTable", "category", &frame);
            let category = &meta["categories"][category.as_u64().unwrap() as usize]["name"];
            frames.push(format!(
                "{} {source} {} {category} {}",
                text(&cell("funcTable", "name", &function)),
                cell("frameTable", "line", &frame),
                cell("frameTable", "inlineDepth", &frame),
            ));
            stack = cell("stackTable", "prefix", &stack);
        }
        frames
    };
    let threads = file["threads"].as_array().unwrap();
    let names: Vec<String> = threads
        .iter()
        .map(|it| {
            format!(
                "{}/{} {}/{} {}",
                it["processName"], it["pid"], it["name"], it["tid"], it["isMainThread"]
            )
        })
        .collect();
    assert_eq!(
        names,
        [
            "\"app\"/\"100\" \"app\"/100 true",
            "\"app\"/\"100\" \"reader\"/101 false",
            "\"python3\"/\"200\" \"python3\"/200 true",
        ]
    );
    let column = |thread: usize, column: &str| threads[thread]["samples"][column].clone();
    assert_eq!(column(0, "time"), json!([0.0, 100.0, 900.0]));
    assert_eq!(column(0, "weight"), json!([0.0, 10.0, 10.0]));
    assert_eq!(column(0, "weightType"), "tracing-ms");
    assert_eq!(
        column(0, "threadCPUDelta"),
        json!([0, 10_000_000, 10_000_000])
    );
    // Without timestamps: one after the other.
    assert_eq!(column(2, "time"), json!([0.0, 375.0, 875.0]));
    assert_eq!(
        frames(column(0, "stack")[1].clone()),
        [
            "\"square\" \"math.h\" 4 \"User\" 1",
            "\"sum\" \"app.c\" 22 \"User\" 0",
            "\"main\" \"app.c\" 14 \"User\" 0",
        ]
    );
    let innermost = |thread, row: usize| frames(column(thread, "stack")[row].clone()).remove(0);
    assert_eq!(innermost(1, 1), "\"sys_read\" null null \"Kernel\" 0");
    assert_eq!(innermost(1, 2), "\"[app]\" null null \"User\" 0");
    assert_eq!(innermost(2, 1), "\"handle\" \"server.py\" 7 \"Runtime\" 0");
    assert_eq!(innermost(2, 2), "\"hot\" null null \"JIT\" 0");
}

fn cell_of(shared: &Value, source: &Value) -> Value {
    shared["sources"]["filename"][source.as_u64().unwrap() as usize].clone()
}

/// pprof has no frame types.
#[test]
fn code_with_a_source_file_and_without_an_address_is_run_by_a_runtime() {
    let model = read(THREADS).unwrap();
    let pprof = write(&model, Format::Pprof, "test").unwrap();
    let again = read(&pprof).unwrap();
    let content = write(&again, Format::Firefox, "test").unwrap();
    let of = |content: &[u8]| {
        let file: Value = serde_json::from_slice(content).unwrap();
        let mut categories: Vec<u64> = file["shared"]["frameTable"]["category"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(Value::as_u64)
            .collect();
        categories.sort_unstable();
        categories
    };
    assert_eq!(
        of(&content),
        of(&write(&model, Format::Firefox, "test").unwrap())
    );
}

#[test]
fn formats_that_are_only_written_are_named() {
    let model = read(THREADS).unwrap();
    for format in [
        Format::Firefox,
        Format::Speedscope,
        Format::Html,
        Format::Svg,
    ] {
        let content = write(&model, format, "test").unwrap();
        let error = read(&content).unwrap_err().to_string();
        assert!(error.contains("which profcol only writes"), "{error}");
    }
}

#[test]
fn an_unknown_extension_lists_the_known_ones() {
    let error = Format::of_file("profile.xyz").unwrap_err().to_string();
    assert!(
        error.starts_with("unknown file extension in \"profile.xyz\"; use one of .pb.gz, "),
        "{error}"
    );
}

#[test]
fn invalid_profiles_are_rejected_with_a_reason() {
    let error = |content: &[u8]| read(content).unwrap_err().to_string();
    assert_eq!(error(b""), "the file is empty");
    assert_eq!(
        error(b"main;a 1\nhello"),
        "line 2 is not a folded stack such as `main;run;read 12`"
    );
    assert!(error(b"{\"a\": ").starts_with("invalid OTLP JSON profile: "));
    assert!(error(b"\x1f\x8bxx").starts_with("failed to decompress the profile: "));
    assert!(error(b"\x00\x01\x02").starts_with("unknown profile format: not pprof"));
    let empty = read(b"# nothing\n").unwrap();
    assert_eq!(
        write(&empty, Format::Pprof, "").unwrap_err().to_string(),
        "the profile has no samples"
    );
}

proptest! {
    /// Arbitrary bytes either decode or return an error.
    #[test]
    fn reads_anything(content in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = read(&content);
    }

    /// Arbitrary profiles can be drawn.
    #[test]
    fn draws_anything(model in models()) {
        for kind in profcol_flamegraph::sample_types(&model) {
            let SampleType { name, .. } = &kind;
            let _ = name;
            let (tree, _) = call_tree(&model, kind);
            let _ = folded(&tree);
        }
        for name in ["a.svg", "a.html", "a.speedscope.json", "a.firefox.json", "a.folded"] {
            let _ = write(&model, Format::of_file(name).unwrap(), "<title>");
        }
    }
}
