//! Labels of handmade attributes, what rules change, which drops are final, and patterns that take linear time.

use profcol_profile::{Attributes, KeyValue, Value};

use super::*;

fn attributes(pairs: &[(&str, Value)]) -> Attributes {
    let pairs = pairs.iter();
    pairs
        .map(|(key, value)| KeyValue::new(key, value.clone()))
        .collect()
}

fn rule(action: Action, source: &str, regex: &str, target: &str, replacement: &str) -> Rule {
    let sources = source.split(',').filter(|name| !name.is_empty());
    Rule::new(&RuleSpec {
        source_labels: sources.map(str::to_owned).collect(),
        regex: regex.into(),
        target_label: target.into(),
        replacement: replacement.into(),
        action,
        ..RuleSpec::default()
    })
    .expect("the test's rules are valid")
}

fn replace(source: &str, target: &str) -> Rule {
    rule(Action::Replace, source, "(.*)", target, "$1")
}

fn process() -> Attributes {
    attributes(&[
        ("host.name", "n1".into()),
        ("process.pid", 7.into()),
        (
            "process.executable.name",
            "a-very-long-name-of-a-file".into(),
        ),
        (
            "process.command_args",
            Value::Array(["a".into(), "-b".into()].into()),
        ),
        ("k8s.pod.label.app.kubernetes.io/name", "shop".into()),
    ])
}

#[test]
fn shows_each_attribute_under_all_of_its_names() {
    let check = |name: &str, expected: Option<&str>| {
        let rows = LabelRows::of_resource(&process());
        assert_eq!(rows.labels().get(name), expected, "{name}");
    };
    for name in ["host.name", "host_name", "node"] {
        check(name, Some("n1"));
    }
    for name in ["process.pid", "process_pid", "__meta_process_pid"] {
        check(name, Some("7"));
    }
    check("__meta_process_cmdline", Some("a -b"));
    check("comm", Some("a-very-long-nam"));
    check(
        "__meta_kubernetes_pod_label_app_kubernetes_io_name",
        Some("shop"),
    );
    check(
        "__meta_kubernetes_pod_labelpresent_app_kubernetes_io_name",
        Some("true"),
    );
    check("__meta_docker_container_id", None);
    check("pid", None);
}

#[test]
fn a_taken_label_name_keeps_its_attribute() {
    let both = attributes(&[("host.name", "a".into()), ("node", "b".into())]);
    let rows = LabelRows::of_resource(&both);
    assert_eq!(rows.labels().get("node"), Some("b"));
    let both = attributes(&[("a.b", "1".into()), ("a-b", "2".into())]);
    let rows = LabelRows::of_resource(&both);
    assert_eq!(rows.labels().get("a_b"), Some("1"));
}

#[test]
fn container_labels_are_those_of_the_runtime() {
    let container = attributes(&[
        ("container.id", "c0".into()),
        ("container.runtime.name", "docker".into()),
    ]);
    let rows = LabelRows::of_resource(&container);
    assert_eq!(rows.labels().get("__meta_docker_container_id"), Some("c0"));
    assert_eq!(rows.labels().get("__meta_containerd_container_id"), None);
}

/// The difference that the rules make to the attributes of [`process`], one line each.
fn changed(rules: &[Rule], leftovers: Leftovers) -> Vec<String> {
    let before = process();
    let rows = LabelRows::of_resource(&before);
    let mut labels = rows.labels();
    assert!(rules.iter().all(|rule| rule.apply(&mut labels)));
    let mut after = before.clone();
    let is_changed = rows.changes(&labels, leftovers).apply(&mut after);
    assert_eq!(is_changed, after != before);
    let removed = before
        .iter()
        .filter(|it| after.iter().all(|left| left.key != it.key));
    let removed = removed.map(|it| format!("-{}", it.key));
    let new = after.iter().filter(|it| !before.contains(it));
    let new = new.map(|it| format!("{}={}", it.key, text(&it.value).unwrap_or_default()));
    removed.chain(new).collect()
}

#[test]
fn changing_any_label_name_changes_the_attribute() {
    let drop = |regex| rule(Action::LabelDrop, "", regex, "", "$1");
    let keep = |regex| rule(Action::LabelKeep, "", regex, "", "$1");
    let check = |rules: &[Rule], expected: &[&str]| {
        assert_eq!(changed(rules, Leftovers::Prometheus), expected, "{rules:?}");
    };
    check(&[replace("__meta_process_pid", "process.pid")], &[]);
    check(&[replace("process.pid", "pid")], &["pid=7"]);
    check(&[replace("process_pid", "node")], &["host.name=7"]);
    check(&[replace("process_pid", "host_name")], &["host.name=7"]);
    check(&[replace("process_pid", "comm")], &["process.comm=7"]);
    check(&[replace("missing", "node")], &["-host.name"]);
    check(&[drop("node")], &["-host.name"]);
    check(&[drop("comm")], &["process.comm="]);
    check(
        &[drop("__meta_process_cmdline")],
        &["-process.command_args"],
    );
    check(
        &[keep("node|comm|__meta_process_pid")],
        &[
            "-process.executable.name",
            "-process.command_args",
            "-k8s.pod.label.app.kubernetes.io/name",
        ],
    );
    let map = rule(
        Action::LabelMap,
        "",
        "__meta_kubernetes_pod_label_(.+)",
        "",
        "$1",
    );
    check(&[map], &["app_kubernetes_io_name=shop"]);
}

#[test]
fn temporary_labels_are_removed_after_the_last_rule() {
    let rules = [
        replace("process.pid", "__tmp"),
        replace("process.pid", "__meta_x"),
        replace("__tmp", "t"),
    ];
    assert_eq!(changed(&rules, Leftovers::Prometheus), ["t=7"]);
    assert_eq!(changed(&rules, Leftovers::Parca), ["__tmp=7", "t=7"]);
}

#[test]
fn a_drop_is_final_if_late_attributes_cannot_change_it() {
    let check = |rules: &[Rule], expected: bool| {
        let rows = LabelRows::of_resource(&process());
        assert_eq!(drop_is_final(rules, &rows), expected, "{rules:?}");
    };
    let drop = |source, regex| rule(Action::Drop, source, regex, "", "$1");
    let keep = |source, regex| rule(Action::Keep, source, regex, "", "$1");
    check(&[drop("node", "n1")], true);
    check(&[keep("node", "n2")], true);
    check(&[keep("missing", "a")], false);
    check(&[keep("node,missing", "a")], false);
    check(&[drop("node", "n2")], false);
    check(&[replace("node", "x"), drop("x", "n1")], true);
    check(&[replace("node,missing", "x"), drop("x", "n1;")], false);
    check(&[replace("missing", "x"), drop("node", "n1")], true);
    let by_value = rule(Action::Replace, "missing", "(.*)", "x$1", "y");
    check(&[by_value, drop("node", "n1")], false);
    let map = rule(Action::LabelMap, "", "a(.*)", "", "$1");
    check(&[map, drop("node", "n1")], false);
    let equal = rule(Action::DropEqual, "host_name", "(.*)", "node", "$1");
    check(&[equal], true);
    let equal = rule(Action::KeepEqual, "node", "(.*)", "missing", "$1");
    check(&[equal], false);
}

/// A backtracking engine would practically never finish.
#[test]
fn pathological_patterns_match_in_linear_time() {
    let text = "a".repeat(20_000);
    for regex in [
        "(a+)+b",
        "(a|aa)*b",
        "(.*)*(.*)*b",
        "(a*)*b|(a|a?)+c",
        "([a-z]+)*[0-9]",
    ] {
        let rows = LabelRows::of_labels([("x", &*text)]);
        let rule = rule(Action::Replace, "x", regex, "y", "$1");
        let mut labels = rows.labels();
        assert!(rule.apply(&mut labels));
        assert_eq!(labels.get("y"), None, "{regex}");
    }
}
