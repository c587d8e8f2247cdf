//! Handmade seconds of a few processes: what queries by time, labels and call site find, and what is evicted.

use std::sync::Arc;
use std::time::Duration;

use profcol_component::DeferredSymbols;
use profcol_component::testkit::{FakeSymbolizer, profiles};
use profcol_flamegraph::{Layout, folded};
use profcol_profile::{
    Attribute, Function, KeyValue, Line, Location, LocationRef, Model, Profile, Resource,
    ResourceProfiles, SampleRef, Samples, ScopeProfiles, ValueType,
};

use super::*;

const SECOND: u64 = 1_000_000_000;
/// Start time of the tests, in seconds of Unix time; a multiple of the resolution.
pub(super) const START: u64 = 1_700_000_000;

pub(super) fn limits(max_bytes: usize) -> Limits {
    Limits {
        max_age: Duration::from_secs(600),
        max_bytes,
        resolution: Duration::from_secs(5),
        sample_labels: vec!["thread.name".to_owned()],
    }
}

/// Stacks with their threads and samples.
type Stacks<'a> = &'a [(&'a str, &'a str, i64)];

/// One second of one process: `stacks` are outermost first, with functions separated by semicolons, each with its frame
/// type and execution (`f@jvm@jit`) if they are known, the thread's name and the number of samples of 10 ms.
pub(super) fn second(at: u64, pid: i64, name: &str, stacks: Stacks<'_>) -> Model {
    let mut model = Model::default();
    let dictionary = Arc::make_mut(&mut model.dictionary);
    let mut string = |text: &str| dictionary.strings.push(text);
    let (samples, count) = (string("samples"), string("count"));
    let (cpu, nanoseconds) = (string("cpu"), string("nanoseconds"));
    let thread_name = string("thread.name");
    let (frame_type, frame_code) = (string("profile.frame.type"), string("profcol.frame.code"));
    let mut columns = Samples::default();
    for (stack, thread, count) in stacks {
        let mut locations = Vec::new();
        for frame in stack.split(';').rev() {
            let mut parts = frame.split('@');
            let name = dictionary.strings.push(parts.next().unwrap());
            let mut attributes = Vec::new();
            for (key, value) in [frame_type, frame_code].into_iter().zip(parts) {
                attributes.push(dictionary.attributes.push(Attribute {
                    key,
                    value: value.into(),
                    ..Attribute::default()
                }));
            }
            let function = dictionary.functions.push(Function {
                name,
                ..Function::default()
            });
            let line = Line {
                function,
                ..Line::default()
            };
            locations.push(dictionary.locations.push(LocationRef {
                location: Location::default(),
                lines: &[line],
                attributes: &attributes,
            }));
        }
        let thread = dictionary.attributes.push(Attribute {
            key: thread_name,
            value: (*thread).into(),
            ..Attribute::default()
        });
        columns.push(SampleRef {
            stack: dictionary.stacks.push(&locations),
            attributes: &[thread],
            values: &[*count],
            ..SampleRef::default()
        });
    }
    let profile = Profile {
        sample_type: Some(ValueType {
            kind: samples,
            unit: count,
        }),
        period_type: Some(ValueType {
            kind: cpu,
            unit: nanoseconds,
        }),
        period: 10_000_000,
        samples: columns,
        time_unix_nano: at * SECOND,
        duration_nano: SECOND,
        ..Profile::default()
    };
    model.resources.push(ResourceProfiles {
        resource: Some(Arc::new(Resource {
            attributes: vec![
                KeyValue::new("process.pid", pid),
                KeyValue::new("process.executable.name", name),
            ],
            ..Resource::default()
        })),
        scopes: vec![ScopeProfiles {
            profiles: vec![Arc::new(profile)],
            ..ScopeProfiles::default()
        }],
        ..ResourceProfiles::default()
    });
    model
}

pub(super) fn query(selector: &str, from: u64, until: u64) -> Query {
    Query {
        kind: Some("cpu".to_owned()),
        from: from * 1000,
        until: until * 1000,
        selector: Selector::parse(selector).unwrap(),
        call_site: Vec::new(),
    }
}

fn some_seconds() -> History {
    let history = History::new(limits(64 << 20));
    let symbols = DeferredSymbols::default();
    for second_number in 0..10 {
        let at = START + second_number;
        history.add(
            &second(
                at,
                1,
                "nginx",
                &[("main;run", "worker", 3), ("main", "main", 1)],
            ),
            &symbols,
        );
        history.add(
            &second(at, 2, "postgres", &[("main;query", "backend", 2)]),
            &symbols,
        );
    }
    history
}

#[test]
fn finds_samples_by_time_and_labels() {
    let history = some_seconds();
    let stacks = |selector: &str, from, until| {
        folded(
            &history
                .call_tree(&query(selector, START + from, START + until), None)
                .tree,
        )
    };
    assert_eq!(
        stacks("", 0, 10),
        "main 100000000\nmain;query 200000000\nmain;run 300000000\n"
    );
    // A slice of five seconds is selected completely or not at all.
    assert_eq!(
        stacks("", 0, 5),
        "main 50000000\nmain;query 100000000\nmain;run 150000000\n"
    );
    assert_eq!(
        stacks("{process_executable_name=\"postgres\"}", 0, 10),
        "main;query 200000000\n"
    );
    assert_eq!(
        stacks("thread_name=\"worker\"", 0, 10),
        "main;run 300000000\n"
    );
    assert_eq!(stacks("pid!~\"1|7\"", 0, 10), "main;query 200000000\n");
    assert_eq!(stacks("nothing=\"x\"", 0, 10), "");
    assert_eq!(stacks("", 10, 20), "");
    let answer = history.call_tree(&query("", START, START + 10), None);
    assert_eq!(answer.source.samples, 60);
    assert_eq!(answer.source.sample_type.unit, "nanoseconds");
}

#[test]
fn a_comparison_has_both_selections() {
    let history = some_seconds();
    let (nginx, postgres) = (
        "process_executable_name=\"nginx\"",
        "process_executable_name=\"postgres\"",
    );
    let base = query(postgres, START, START + 10);
    let answer = history.call_tree(&query(nginx, START, START + 10), Some(&base));
    assert_eq!(answer.tree.total().value, 400_000_000);
    assert_eq!(answer.tree.total().base, 200_000_000);
    assert_eq!(Layout::new(&answer.tree, 100).len(), 3);
}

#[test]
fn labels_and_their_values_are_listed() {
    let history = some_seconds();
    let all = query("", START, START + 10);
    let names: Vec<String> = history.label_names(&all).into_iter().collect();
    assert_eq!(
        names,
        [
            "process_executable_name",
            "process_pid",
            "service_name",
            "thread_name"
        ]
    );
    let values = history.label_values(&all, "process_executable_name", 10);
    let values: Vec<_> = values
        .iter()
        .map(|it| (it.value.as_str(), it.total))
        .collect();
    assert_eq!(values, [("nginx", 400_000_000), ("postgres", 200_000_000)]);
    assert_eq!(history.label_values(&all, "thread_name", 1).len(), 1);
    assert_eq!(
        history
            .label_names(&query("pid=\"3\"", START, START + 10))
            .len(),
        0
    );
}

#[test]
fn a_timeline_adds_up_to_the_total() {
    let history = some_seconds();
    let all = query("", START, START + 15);
    let timeline = history.timeline(&all, "process_executable_name", 1);
    assert_eq!((timeline.start, timeline.step), (START * 1000, 5000));
    assert_eq!(timeline.series.len(), 1);
    assert_eq!(timeline.series[0].value, "nginx");
    assert_eq!(timeline.series[0].points, [200_000_000, 200_000_000, 0]);
    assert_eq!(timeline.others, [100_000_000, 100_000_000, 0]);
    let long = history.timeline(&query("", START - 86_400, START + 15), "", 8);
    assert!(long.series[0].points.len() <= 601);
    assert_eq!(long.series[0].points.iter().sum::<u64>(), 600_000_000);
}

#[test]
fn points_are_grouped_by_labels_and_steps() {
    let history = some_seconds();
    let all = query("", START, START + 10);
    let steps = Steps {
        start: (START - 5) * 1000,
        length: 10_000,
    };
    let by = |labels: &[&str], limit| {
        let labels: Vec<String> = labels.iter().map(|&it| it.to_owned()).collect();
        let groups = history.points(&all, &labels, steps, limit).into_iter();
        let sums = groups.map(|(values, points)| {
            let points = points
                .into_iter()
                .map(|(step, sum)| (step, sum.value, sum.slices));
            (values.join(" "), points.collect::<Vec<_>>())
        });
        sums.collect::<Vec<_>>()
    };
    // Two slices of five seconds, in two steps; threads that run in the same slice are not counted twice.
    assert_eq!(
        by(&["service_name"], 10),
        [
            (
                "nginx".to_owned(),
                vec![(0, 200_000_000, 1), (1, 200_000_000, 1)]
            ),
            (
                "postgres".to_owned(),
                vec![(0, 100_000_000, 1), (1, 100_000_000, 1)]
            ),
        ]
    );
    let threads: Vec<String> = by(&["service_name", "thread_name"], 2)
        .into_iter()
        .map(|(values, _)| values)
        .collect();
    assert_eq!(threads, ["nginx worker", "postgres backend"]);
    assert_eq!(by(&[], 10).len(), 1);
    let names = ["service_name".to_owned(), "nothing".to_owned()];
    let sets: Vec<_> = history
        .label_sets(&all, &names, 10)
        .into_iter()
        .flatten()
        .collect();
    let of_service = |value: &str| ("service_name".to_owned(), value.to_owned());
    assert_eq!(sets, [of_service("nginx"), of_service("postgres")]);
    assert_eq!(history.label_sets(&all, &[], 2).len(), 2);
}

#[test]
fn service_name_uses_the_best_fallback() {
    let service = |attributes: &[(&str, &str)]| {
        let mut model = second(START, 1, "nginx", &[("main", "t", 1)]);
        let attributes = attributes
            .iter()
            .map(|&(key, value)| KeyValue::new(key, value));
        model.resources[0].resource = Some(Arc::new(Resource {
            attributes: attributes.collect(),
            ..Resource::default()
        }));
        let history = History::new(limits(64 << 20));
        history.add(&model, &DeferredSymbols::default());
        let all = query("", START, START + 10);
        let values = history.label_values(&all, "service_name", 10).into_iter();
        values.map(|it| it.value).collect::<Vec<_>>().join(" ")
    };
    let mut known = vec![
        ("service.name", "shop"),
        ("k8s.deployment.name", "shop-web"),
        ("k8s.container.name", "web"),
        ("container.name", "shop_web_1"),
        ("systemd.unit", "shop.service"),
        ("process.executable.name", "nginx"),
        ("process.comm", "nginx-worker"),
    ];
    for expected in [
        "shop",
        "shop-web",
        "web",
        "shop_web_1",
        "shop",
        "nginx",
        "nginx-worker",
    ] {
        assert_eq!(service(&known), expected, "{known:?}");
        known.remove(0);
    }
    assert_eq!(service(&[]), "unknown_service");
    assert_eq!(
        service(&[("service.name", "unknown_service:app")]),
        "unknown_service:app"
    );
    let scope = [
        ("systemd.unit", "session-3.scope"),
        ("process.comm", "bash"),
    ];
    assert_eq!(service(&scope), "bash");
}

#[test]
fn a_call_site_selects_stacks_by_their_outermost_functions() {
    let history = some_seconds();
    let below = |names: &[&str]| {
        let query = Query {
            call_site: names.iter().map(|&it| it.to_owned()).collect(),
            ..query("", START, START + 10)
        };
        folded(&history.call_tree(&query, None).tree)
    };
    assert_eq!(below(&[]), below(&["main"]));
    assert_eq!(below(&["main", "run"]), "main;run 300000000\n");
    for nowhere in [&["run"][..], &["main", "main"], &["main", "run", "x"]] {
        assert_eq!(below(nowhere), "", "{nowhere:?}");
    }
}

#[test]
fn processes_have_labels_languages_and_ends() {
    let history = some_seconds();
    let broken = second(
        START,
        2,
        "postgres",
        &[("[stack ends: no_table];query", "backend", 5)],
    );
    history.add(&broken, &DeferredSymbols::default());
    let processes = history.processes(&query("", START, START + 10), 10);
    assert_eq!(processes.len(), 2);
    assert_eq!((processes[0].pid, processes[0].name.as_str()), (1, "nginx"));
    assert_eq!(
        processes[0].labels.get("process_pid").map(String::as_str),
        Some("1")
    );
    assert!(!processes[0].labels.contains_key("thread_name"));
    assert_eq!(processes[0].ends.get("whole"), Some(&40));
    assert_eq!(processes[1].ends.get("no_table"), Some(&5));
    assert_eq!(processes[1].samples, 25);
    // No frame type, no language.
    assert!(processes[0].languages.is_empty());
    let languages = languages();
    let processes = languages.processes(&query("", START, START + 10), 10);
    let of_processes: Vec<(&str, Vec<&str>)> = processes
        .iter()
        .map(|it| (it.name.as_str(), it.languages.iter().copied().collect()))
        .collect();
    assert_eq!(
        of_processes,
        [
            ("python3", vec!["Python", "native"]),
            ("java", vec!["Java", "native"]),
            ("agent", vec!["Go"]),
            ("kworker", vec!["kernel"]),
        ]
    );
}

#[test]
fn processes_of_hosts_with_equal_pids_are_apart() {
    let history = History::new(limits(64 << 20));
    for (host, samples) in [("a", 3), ("b", 5)] {
        let mut model = second(START, 1, "init", &[("main", "t", samples)]);
        let resource = Resource {
            attributes: vec![
                KeyValue::new("host.name", host),
                KeyValue::new("process.pid", 1_i64),
                KeyValue::new("process.executable.name", "init"),
            ],
            ..Resource::default()
        };
        model.resources[0].resource = Some(Arc::new(resource));
        history.add(&model, &DeferredSymbols::default());
    }
    let of_hosts = |selector: &str| {
        let processes = history.processes(&query(selector, START, START + 5), 10);
        let of_hosts = processes
            .iter()
            .map(|it| (it.labels["host_name"].clone(), it.samples));
        of_hosts.collect::<Vec<_>>()
    };
    assert_eq!(of_hosts(""), [("b".to_owned(), 5), ("a".to_owned(), 3)]);
    assert_eq!(
        of_hosts("{pid=\"1\",host_name=\"a\"}"),
        [("a".to_owned(), 3)]
    );
}

/// Processes in several languages.
fn languages() -> History {
    let history = History::new(limits(64 << 20));
    let of_processes: [(&str, Stacks<'_>); 4] = [
        (
            "python3",
            &[
                ("[stack ends: cut];main@native;work@cpython", "a", 20),
                ("main@native;work@cpython;sort@native", "a", 10),
                (
                    "main@native;work@cpython;read@native;sys_read@kernel",
                    "a",
                    4,
                ),
                ("main@native;work@cpython;sys_wait@kernel", "a", 2),
            ],
        ),
        ("java", &[("start@native;run@jvm@jit", "main", 15)]),
        ("agent", &[("main.main@go", "agent", 8)]),
        ("kworker", &[("kthread@kernel;worker@kernel", "kworker", 3)]),
    ];
    for (pid, (name, stacks)) in (1..).zip(of_processes) {
        history.add(
            &second(START, pid, name, stacks),
            &DeferredSymbols::default(),
        );
    }
    history
}

#[test]
fn samples_have_the_language_of_their_innermost_function() {
    let history = languages();
    let all = query("", START, START + 5);
    let expected = [
        ("Python", 220_000_000),
        ("Java", 150_000_000),
        ("native", 140_000_000),
        ("Go", 80_000_000),
        ("kernel", 30_000_000),
    ]
    .map(|(value, total)| (value.to_owned(), total));
    let values = history.label_values(&all, "language", 10).into_iter();
    let values: Vec<(String, u64)> = values.map(|it| (it.value, it.total)).collect();
    assert_eq!(values, expected);
    let timeline = history.timeline(&all, "language", 10).series.into_iter();
    let timeline: Vec<(String, u64)> = timeline.map(|it| (it.value, it.points[0])).collect();
    assert_eq!(timeline, expected);
    let steps = Steps {
        start: START * 1000,
        length: 10_000,
    };
    let by = ["language".to_owned(), "service_name".to_owned()];
    let points = history.points(&all, &by, steps, 10);
    assert_eq!(points.len(), 5, "{points:?}");
    assert_eq!(points[0].0, ["Python", "python3"]);
    let sets = history.label_sets(&all, &by[..1], 10);
    assert_eq!(sets.len(), 5, "{sets:?}");
    assert!(history.label_names(&all).contains("language"));
}

#[test]
fn samples_are_selected_by_language() {
    let history = languages();
    let stacks = |selector: &str| {
        let query = query(selector, START, START + 5);
        folded(&history.call_tree(&query, None).tree)
    };
    assert_eq!(
        stacks("language=\"Python\""),
        "[stack ends: cut];main;work 200000000\nmain;work;sys_wait 20000000\n"
    );
    assert_eq!(stacks("{language=\"Python\",pid!=\"1\"}"), "");
    assert_eq!(
        stacks("{language!~\"Python|native|Java\",thread_name!=\"agent\"}"),
        "kthread;worker 30000000\n"
    );
    // By its thread and its language.
    let java = query("language=~\"J.*\"", START, START + 5);
    assert_eq!(
        history.label_values(&java, "thread_name", 5)[0].value,
        "main"
    );
    assert_eq!(
        history
            .timeline(&java, "process_executable_name", 5)
            .series
            .len(),
        1
    );
    assert_eq!(history.processes(&java, 5).len(), 1);
    assert!(!stacks("language=\"\"").contains("main"));
}

#[test]
fn a_label_of_this_name_comes_first() {
    let history = languages();
    let mut model = second(START, 9, "own", &[("main@native", "t", 1)]);
    model.resources[0].resource = Some(Arc::new(Resource {
        attributes: vec![KeyValue::new("language", "COBOL")],
        ..Resource::default()
    }));
    history.add(&model, &DeferredSymbols::default());
    let totals = |selector: &str| {
        let query = query(selector, START, START + 5);
        history.call_tree(&query, None).tree.total().value
    };
    assert_eq!(totals("language=\"COBOL\""), 10_000_000);
    assert_eq!(totals("language=\"native\""), 140_000_000);
}

#[test]
fn evicts_the_oldest_at_the_memory_limit() {
    let history = History::new(limits(1 << 20));
    for number in 0..3000 {
        // New functions all the time, as with templates or generated code.
        let names: Vec<String> = (0..20).map(|it| format!("main;f{number}_{it}")).collect();
        let stacks: Vec<(&str, &str, i64)> = names.iter().map(|it| (it.as_str(), "t", 1)).collect();
        history.add(
            &second(START + number / 10, 1, "app", &stacks),
            &DeferredSymbols::default(),
        );
        assert!(
            history.extent().bytes < (1 << 20) + (200 << 10),
            "{:?}",
            history.extent()
        );
    }
    let extent = history.extent();
    assert_eq!(extent.samples + extent.evicted_samples, 60_000);
    assert!(
        extent.evicted_samples > 0 && extent.samples > 0,
        "{extent:?}"
    );
    assert!(extent.oldest > Some(START * 1000));
    let newest = query("", START + 290, START + 310);
    assert!(history.call_tree(&newest, None).tree.total().value > 0);
}

#[test]
fn a_profile_from_the_future_evicts_nothing() {
    let history = some_seconds();
    let before = history.extent();
    let ahead = second(10 * START, 3, "ahead", &[("main", "t", 1)]);
    history.add(&ahead, &DeferredSymbols::default());
    let after = history.extent();
    assert_eq!(after.samples, before.samples + 1);
    let now = recent::unix_millis();
    assert!(after.newest <= Some(now), "{after:?}");
}

#[test]
fn resolves_deferred_symbols() {
    let symbolizer = FakeSymbolizer::new(|_| &["late"]);
    let history = History::new(limits(64 << 20));
    let mut model = profiles(1).into_model();
    model.set_lines(|_| Some([]));
    history.add(&model, &symbolizer.names());
    let all = query("", 1_699_999_000, 1_700_000_100);
    let all = Query { kind: None, ..all };
    let stacks = |history: &History| folded(&history.call_tree(&all, None).tree);
    assert!(!stacks(&history).contains("late"), "{}", stacks(&history));
    symbolizer.finish();
    history.resolve_symbols();
    assert_eq!(stacks(&history), "late 1\n");
}

#[test]
fn evicts_by_age() {
    let history = History::new(limits(64 << 20));
    for minute in 0..60 {
        let model = second(START + minute * 60, 1, "app", &[("main", "t", 1)]);
        history.add(&model, &DeferredSymbols::default());
    }
    let extent = history.extent();
    let reach = extent.newest.unwrap() - extent.oldest.unwrap();
    assert!((540_000..=660_000).contains(&reach), "{extent:?}");
    assert_eq!(extent.samples + extent.evicted_samples, 60);
}

#[test]
fn parses_selectors_in_prometheus_syntax() {
    let matches = |selector: &str| {
        let selector = Selector::parse(selector).unwrap();
        selector.matches(|label| match label {
            "a" => "x",
            "b" => "say \"hi\"\\",
            _ => "",
        })
    };
    for selector in [
        "",
        "{}",
        "{a=\"x\"}",
        "a=\"x\",",
        "{ a = \"x\" , b != \"y\" }",
        "b=\"say \\\"hi\\\"\\\\\"",
        "a=~\"x|y\"",
        "a=~\".+\"",
        "c=\"\"",
        "a!~\"\"",
        "a=~\"\\w\"",
        "{a='x', c!='x'}",
        "b='say \"hi\"\\\\'",
        "b=`say \"hi\"\\`",
        "a=~`\\w`",
    ] {
        assert!(matches(selector), "{selector}");
    }
    for selector in [
        "a=\"y\"",
        "a!=\"x\"",
        "a=~\"\"",
        "c=~\".+\"",
        "a=\"x\",b=\"x\"",
        "a!~\"x\"",
    ] {
        assert!(!matches(selector), "{selector}");
    }
    for (selector, error) in [
        ("{a=\"x\"", "the selector is not closed: add `}` at its end"),
        ("a=x", "the value of \"a\" must be in quotes"),
        ("a=\"x", "the value of \"a\" must be in quotes"),
        (
            "=\"x\"",
            "\"=\\\"x\\\"\" is not a matcher such as comm=\"nginx\", pid!=\"1\", comm=~\"ngi.*\" or comm!~\"ngi.*\"",
        ),
    ] {
        assert_eq!(Selector::parse(selector).unwrap_err().to_string(), error);
    }
    for selector in [
        "a=~\"(\"",
        "a=\"x\" b=\"y\"",
        "a",
        "ä=\"x\"",
        "a=~\"(x{1000}){1000}\"",
        "{a=\"x\\",
        "a='x\"",
    ] {
        assert!(Selector::parse(selector).is_err(), "{selector}");
    }
}

/// The query of `profcol top`.
#[test]
fn recent_profiles_cover_the_last_seconds() {
    let history = History::new(limits(64 << 20));
    let symbols = DeferredSymbols::default();
    for at in START..START + 20 {
        history.add(&second(at, 7, "app", &[("main;hot", "a", 30)]), &symbols);
        history.add(&second(at, 8, "other", &[("main;cold", "b", 10)]), &symbols);
    }
    let recent = Recent::new(Arc::new(history));
    let now = (START + 21) * 1000;
    let look = |window, only| {
        let window = Duration::from_secs(window);
        recent.snapshot_at(now, window, only, &["process_executable_name"])
    };
    let all = look(10, None);
    assert_eq!(
        (all.source.from, all.source.until),
        ((START + 10) * 1000, (START + 20) * 1000)
    );
    assert_eq!(all.tree.total().value, 10 * 40 * 10_000_000);
    let processes: Vec<_> = all.processes.iter().map(|it| (it.pid, it.total)).collect();
    assert_eq!(processes, [(7, 3_000_000_000), (8, 1_000_000_000)]);
    let names: Vec<_> = all.groups[0].iter().map(|it| it.value.as_str()).collect();
    assert_eq!(names, ["app", "other"]);
    // The functions of one process, and the groups of all.
    let one = look(10, Some(("process_pid", "8")));
    assert_eq!(one.tree.total().value, 1_000_000_000);
    assert_eq!((one.processes.len(), one.groups[0].len()), (2, 2));
    // Limited to the available samples; empty if they are too old.
    assert_eq!(look(600, None).source.from, START * 1000);
    let later = recent.snapshot_at(now + 60_000, Duration::from_secs(10), None, &[]);
    assert_eq!((later.source.samples, later.processes.len()), (0, 0));
    let empty = Recent::new(Arc::new(History::new(limits(1 << 20))));
    assert_eq!(
        empty
            .snapshot(Duration::from_secs(10), None, &[])
            .source
            .samples,
        0
    );
}
