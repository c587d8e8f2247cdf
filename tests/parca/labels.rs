//! The labels sent to Parca, after the same relabel rules as in its agent.

use std::collections::BTreeMap;

use profcol_labels::Action::{LabelDrop, LabelKeep, LabelMap};
use profcol_labels::{LabelRows, Leftovers, Rule, RuleSpec};
use profcol_parca::{LabelRules, Pattern};
use profcol_profile::{Attributes, KeyValue, Value};

/// Parca Agent's labels of a process, and the corresponding attributes.
const KNOWN: &[(&str, &str, &str)] = &[
    ("host.name", "node", "n1"),
    ("process.comm", "comm", "nginx"),
    ("process.pid", "__meta_process_pid", "7"),
    (
        "process.executable.name",
        "__meta_process_executable_name",
        "nginx",
    ),
    (
        "process.executable.compiler",
        "__meta_process_executable_compiler",
        "GCC 12.2.0",
    ),
    ("k8s.namespace.name", "__meta_kubernetes_namespace", "shop"),
    ("k8s.pod.name", "__meta_kubernetes_pod_name", "web-1"),
    (
        "k8s.pod.label.app.kubernetes.io/name",
        "__meta_kubernetes_pod_label_app_kubernetes_io_name",
        "web",
    ),
    (
        "k8s.pod.label.hash",
        "__meta_kubernetes_pod_label_hash",
        "5c7d",
    ),
];

#[test]
fn parca_gets_the_same_labels_as_from_its_agent() {
    let check = |specs: &[RuleSpec]| {
        let rules: Vec<Rule> = specs
            .iter()
            .map(|rule| Rule::new(rule).expect("a test's rules are right"))
            .collect();

        // Like the agent: labels, rules, and removal of `__` labels.
        let known = LabelRows::of_labels(KNOWN.iter().map(|(_, label, text)| (*label, *text)));
        let mut labels = known.labels();
        assert!(rules.iter().all(|rule| rule.apply(&mut labels)));
        let sent = labels.sorted().into_iter();
        let sent = sent.filter(|(name, _)| !name.starts_with("__meta_"));
        let expected: BTreeMap<String, String> = sent
            .map(|(name, text)| (name.to_owned(), text.to_owned()))
            .collect();

        let mut attributes: Attributes = KNOWN
            .iter()
            .map(|(key, _, text)| KeyValue::new(key, Value::from(*text)))
            .collect();
        let rows = LabelRows::of_resource(&attributes);
        let mut labels = rows.labels();
        assert!(rules.iter().all(|rule| rule.apply(&mut labels)));
        rows.changes(&labels, Leftovers::Parca)
            .apply(&mut attributes);
        let exporter = LabelRules {
            left_out: ["process.*", "k8s.*"].map(Pattern::new).into(),
            ..LabelRules::default()
        };
        let found: BTreeMap<String, String> =
            exporter.resource_labels(&attributes).into_iter().collect();
        assert_eq!(found, expected, "{specs:?}");
    };
    let replace = |source: &str, target: &str, replacement: &str| RuleSpec {
        source_labels: vec![source.to_owned()],
        target_label: target.to_owned(),
        replacement: replacement.to_owned(),
        ..RuleSpec::default()
    };
    let names = |action, regex: &str| RuleSpec {
        regex: regex.to_owned(),
        action,
        ..RuleSpec::default()
    };
    check(&[]);
    check(&[replace("__meta_kubernetes_pod_name", "pod", "$1")]);
    check(&[replace("__meta_process_pid", "node", "$1")]);
    check(&[replace("missing", "comm", "$1")]);
    check(&[names(LabelMap, "__meta_kubernetes_pod_label_(.+)")]);
    check(&[names(LabelDrop, "node|comm")]);
    check(&[names(LabelDrop, "__meta_.*")]);
    check(&[names(LabelKeep, "node")]);
    check(&[
        replace("comm", "__x", "$1"),
        replace("__x", "comm", "is $1"),
    ]);
}
