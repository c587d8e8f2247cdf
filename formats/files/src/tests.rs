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
        "a.html",
        "a.speedscope.json",
        "a.firefox.json",
        "a.firefox.json.gz",
    ] {
        let format = Format::of_file(name).unwrap();
        let content = write(&model, format, "test").unwrap();
        assert_eq!(stacks(&content), STACKS, "{name}");
        let compressed = zstd::bulk::compress(&content, 0).unwrap();
        assert_eq!(stacks(&compressed), STACKS, "{name}, compressed");
    }
}

/// Binaries, source files, kinds of code, languages and times.
#[test]
fn a_page_keeps_what_it_shows() {
    let model = read(THREADS).unwrap();
    let page = write(&model, Format::Html, "test").unwrap();
    let again = write(&read(&page).unwrap(), Format::Html, "test").unwrap();
    // The functions with their values, whichever row they are in.
    let document = |page: &[u8]| {
        let page = str::from_utf8(page).unwrap();
        let (_, rest) = page.split_once("id=\"profile\">").unwrap();
        let (text, _) = rest.split_once("</script>").unwrap();
        let document: Value = serde_json::from_str(text).unwrap();
        let cell = |table: &str, column: &str, row: usize| document[table][column][row].clone();
        let index = |value: Value| value.as_u64().unwrap() as usize;
        let rows = 0..document["functions"]["frame"].as_array().unwrap().len();
        let functions = rows.map(|row| {
            let frame = index(cell("functions", "frame", row));
            let text = |column| document["strings"][index(cell("frames", column, frame))].clone();
            let kind = &document["kinds"][index(cell("frames", "kind", frame))];
            let language = &document["languages"][index(cell("frames", "language", frame))];
            format!(
                "{} {} {} {} {kind} {language} {} {}",
                text("name"),
                text("file"),
                cell("frames", "line", frame),
                text("binary"),
                cell("functions", "self", row),
                cell("functions", "total", row),
            )
        });
        let mut functions: Vec<String> = functions.collect();
        functions.sort();
        let whole = ["type", "unit", "from", "until", "total"].map(|it| document[it].to_string());
        (whole, functions)
    };
    let (whole, functions) = document(&page);
    // Each function gets a location of its own: the stack shows where it was inlined.
    let functions = functions
        .iter()
        .map(|it| it.replace("\"inlined\"", "\"native\""));
    assert_eq!(document(&again), (whole, functions.collect()));
}

#[test]
fn a_firefox_profile_keeps_threads_binaries_and_lines() {
    let model = read(THREADS).unwrap();
    let firefox = write(&model, Format::Firefox, "test").unwrap();
    let again = read(&firefox).unwrap();
    let names = again.resources.iter().map(|it| {
        let attributes = &it.resource.as_ref().unwrap().attributes;
        let values = attributes.iter().map(|it| format!("{:?}", it.value));
        values.collect::<Vec<_>>().join(" ")
    });
    assert_eq!(
        names.collect::<Vec<_>>(),
        [
            r#"Int(100) Str("app") Str("app")"#,
            r#"Int(100) Str("app") Str("reader")"#,
            r#"Int(200) Str("python3") Str("python3")"#,
        ]
    );
    assert_eq!(stacks(&firefox), stacks(THREADS));
    let page = |model| String::from_utf8(write(model, Format::Html, "").unwrap()).unwrap();
    for kept in ["app.c", "math.h", "vmlinux"] {
        assert!(page(&again).contains(kept), "{kept}");
    }
}

/// Two messages, as the exporter `file` and `storage inspect --export` write them.
fn messages(format: Format) -> [Vec<u8>; 2] {
    ["main;a 3\n", "main;a;b 4\nother 1\n"]
        .map(|text| write(&read(text.as_bytes()).unwrap(), format, "").unwrap())
}

fn records(messages: &[Vec<u8>]) -> Vec<u8> {
    let records = messages.iter().map(|it| {
        let length = u32::try_from(it.len()).unwrap().to_be_bytes();
        [&length[..], it].concat()
    });
    records.collect::<Vec<_>>().concat()
}

#[test]
fn streams_of_otlp_are_read_whole() {
    let lines = messages(Format::OtlpJson).join(&b'\n');
    assert_eq!(stacks(&lines), STACKS);
    assert_eq!(stacks(&[&lines[..], b"\r\n\n"].concat()), STACKS);
    for format in [Format::OtlpJson, Format::OtlpProto] {
        let plain = messages(format);
        assert_eq!(stacks(&records(&plain)), STACKS, "{format}");
        let compressed = plain.map(|it| zstd::bulk::compress(&it, 0).unwrap());
        assert_eq!(stacks(&records(&compressed)), STACKS, "{format}");
    }
    let error = |content: &[u8]| read(content).unwrap_err().to_string();
    let damaged = error(&[&lines[..], b"\n{\"resourceProfiles\": 1}"].concat());
    assert!(
        damaged.starts_with("line 3: invalid OTLP JSON profile: "),
        "{damaged}"
    );
    let [first, second] =
        messages(Format::OtlpProto).map(|it| zstd::bulk::compress(&it, 0).unwrap());
    let place = 4 + first.len();
    let mut torn = records(&[first.clone(), second]);
    torn.pop();
    assert_eq!(
        error(&torn),
        format!("invalid OTLP record at byte {place}: the file ends within it")
    );
    let damaged = error(&records(&[first, vec![0xff; 9]]));
    assert!(
        damaged.starts_with(&format!("invalid OTLP record at byte {place}: ")),
        "{damaged}"
    );
}

/// As in protobuf.
#[test]
fn invalid_samples_in_json_are_refused_with_the_place() {
    let [first, second] = messages(Format::OtlpJson);
    let second = String::from_utf8(second)
        .unwrap()
        .replacen("values", "unknown", 1);
    let error = |content: &[u8]| read(content).unwrap_err().to_string();
    let place = "resource_profiles[0].scope_profiles[0].profiles[0].samples[0]: must have a value or a timestamp";
    let json = format!("invalid OTLP JSON profile: {place}");
    assert_eq!(error(second.as_bytes()), json);
    let messages = [first, second.into_bytes()];
    assert_eq!(error(&messages.join(&b'\n')), format!("line 2: {json}"));
    let at = 4 + messages[0].len();
    assert_eq!(
        error(&records(&messages)),
        format!("invalid OTLP record at byte {at}: {place}")
    );
}

/// A bomb, as a record and as a file.
#[test]
fn decompressed_and_nested_profiles_are_limited() {
    let bomb = zstd::bulk::compress(&vec![b'{'; 1 << 20], 0).unwrap();
    for content in [records(std::slice::from_ref(&bomb)), bomb] {
        let error = read_within(&content, 1 << 19).unwrap_err().to_string();
        assert!(
            error.ends_with("the profile needs more memory than the limit of 2 GiB"),
            "{error}"
        );
    }
    // Each function has a value, so there are as many stacks as functions.
    let opens = (0..2000).map(|at| json!({"type": "O", "frame": 0, "at": at}));
    let closes = (2000..4000).map(|at| json!({"type": "C", "frame": 0, "at": at}));
    let nested = speedscope(json!({
        "type": "evented", "unit": "seconds", "events": opens.chain(closes).collect::<Vec<_>>(),
    }));
    let locations = 2000 * 2001 / 2 * 4;
    read_within(&nested, locations + 1000).unwrap();
    let error = read_within(&nested, locations).unwrap_err();
    assert!(matches!(error, ReadError::TooLarge), "{error}");
}

fn speedscope(profile: Value) -> Vec<u8> {
    let frames = json!([{"name": "main"}, {"name": "a", "file": "a.c", "line": 3}]);
    let file = json!({
        "$schema": "https://www.speedscope.app/file-format-schema.json",
        "shared": {"frames": frames}, "profiles": [profile],
    });
    file.to_string().into_bytes()
}

#[test]
fn speedscope_profiles_of_other_programs() {
    let event = |kind: &str, frame: u32, at: f64| json!({"type": kind, "frame": frame, "at": at});
    let evented = |events: &[Value]| {
        speedscope(
            json!({"type": "evented", "name": "x", "unit": "milliseconds", "startValue": 0, "endValue": 9, "events": events}),
        )
    };
    let [open, inner] = [event("O", 0, 1.0), event("O", 1, 2.5)];
    let content = evented(&[
        open.clone(),
        inner.clone(),
        event("C", 1, 3.0),
        event("C", 0, 5.0),
    ]);
    assert_eq!(stacks(&content), "main 3500000\nmain;a 500000\n");
    let kind = profcol_flamegraph::sample_types(&read(&content).unwrap()).remove(0);
    assert_eq!((&*kind.name, &*kind.unit), ("time", "nanoseconds"));
    let sampled = |samples: Value, weights: Value| {
        speedscope(
            json!({"type": "sampled", "unit": "none", "samples": samples, "weights": weights}),
        )
    };
    assert_eq!(
        stacks(&sampled(json!([[0], [0, 1], [0]]), json!([1, 2, 3]))),
        "main 4\nmain;a 2\n"
    );

    for (content, expected) in [
        (
            sampled(json!([[0, 7]]), json!([1])),
            "profiles[0].samples[0]: there is no frame 7",
        ),
        (
            sampled(json!([[0]]), json!([-1])),
            "profiles[0].weights[0]: -1",
        ),
        (
            sampled(json!([[0]]), json!([])),
            "profiles[0].weights: 0 for 1 samples",
        ),
        (
            evented(std::slice::from_ref(&open)),
            "profiles[0].events: 1 frames stay open",
        ),
        (
            evented(&[inner.clone(), open.clone()]),
            "profiles[0].events[1]: earlier than the event before",
        ),
        (
            evented(&[open, inner, event("C", 0, 3.0)]),
            "profiles[0].events[2]: closes a frame that is not the innermost one",
        ),
        (
            speedscope(json!({"type": "evented", "unit": "parsec", "events": []})),
            "profiles[0].unit: \"parsec\"",
        ),
    ] {
        let error = read(&content).unwrap_err().to_string();
        assert_eq!(error, format!("invalid speedscope file: {expected}"));
    }
}

#[test]
fn damaged_pages_and_firefox_profiles_are_refused_with_the_place() {
    let model = read(STACKS.as_bytes()).unwrap();
    let written = |format| String::from_utf8(write(&model, format, "").unwrap()).unwrap();
    let (page, firefox) = (written(Format::Html), written(Format::Firefox));
    let error = |text: &str, old: &str, new: &str| {
        assert!(text.contains(old), "no {old} in {text}");
        read(text.replacen(old, new, 1).as_bytes())
            .unwrap_err()
            .to_string()
    };
    assert_eq!(
        error(&page, r#""nodes":{"depth":[0,"#, r#""nodes":{"depth":[3,"#),
        "invalid profile in the HTML page: nodes[0]: it has no caller"
    );
    assert_eq!(
        error(&page, r#""frames":{"name":["#, r#""frames":{"name":[99,"#),
        "invalid profile in the HTML page: frames: the columns have different lengths"
    );
    assert_eq!(
        error(&firefox, r#""prefix":[null,"#, r#""prefix":[0,"#),
        "invalid profile of the Firefox Profiler: threads[0].samples.stack[1]: the stack is damaged"
    );
    let old = error(
        &firefox,
        r#""preprocessedProfileVersion":60"#,
        r#""preprocessedProfileVersion":50"#,
    );
    assert!(
        old.starts_with("version 50 of the Firefox Profiler's format is too old: load"),
        "{old}"
    );
}

#[cfg(feature = "parca")]
#[test]
fn recordings_are_read_compressed_or_not() {
    for content in [
        &include_bytes!("../../../fuzz/seeds/padata/v1.padata")[..],
        include_bytes!("../../../fuzz/seeds/padata/v2.padata"),
    ] {
        let model = read(content).unwrap();
        assert!(model.sample_count() > 0);
        let compressed = zstd::bulk::compress(content, 0).unwrap();
        assert_eq!(stacks(&compressed), stacks(content));
        let torn = read(&content[..content.len() - 1]).unwrap_err().to_string();
        assert!(torn.starts_with("the file ends at byte "), "{torn}");
    }
}

#[cfg(not(feature = "parca"))]
#[test]
fn recordings_need_a_feature() {
    let error = read(&[0xa6, 0xe7, 0xcc, 0xca, 0]).unwrap_err().to_string();
    assert!(error.contains("without the feature `parca`"), "{error}");
}

/// pprof stores the sample count next to the weight: the two must not be added up.
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
    let svg = write(&read(THREADS).unwrap(), Format::Svg, "test").unwrap();
    for content in [&svg[..], b"<!DOCTYPE html><p>another page</p>"] {
        let error = read(content).unwrap_err().to_string();
        assert!(error.contains("without a profile to read"), "{error}");
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
    /// A damaged file is read or refused.
    #[test]
    fn reads_damaged_files(
        name in prop::sample::select(&["a.html", "a.speedscope.json", "a.firefox.json", "a.otlp.json"][..]),
        place in any::<prop::sample::Index>(),
        byte in any::<u8>(),
    ) {
        let model = read(STACKS.as_bytes()).unwrap();
        let mut content = write(&model, Format::of_file(name).unwrap(), "").unwrap();
        // Of a page the script is most.
        let start = String::from_utf8_lossy(&content).find("id=\"profile\">").unwrap_or(0);
        let place = start + place.index(content.len() - start);
        content[place] = byte;
        let _ = read_within(&content, 1 << 20);
    }

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
