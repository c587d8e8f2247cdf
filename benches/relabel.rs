//! The cost of relabel rules, compared with Prometheus' own package: nanoseconds per label set and rule.
//!
//! `cargo run --release -p profcol-benches --bin relabel`; needs Go for the comparison.

use std::collections::BTreeMap;
use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use profcol_labels::{Action, LabelRows, Rule, RuleSpec};
use serde_json::{Value, json};

/// Rounds per measurement; the fastest measurement counts, because the others were disturbed. `oracle/prometheus` does
/// the same.
const ROUNDS: u32 = 500;
const TIMES: u32 = 1000;

struct Case {
    name: &'static str,
    rules: Vec<RuleSpec>,
}

#[expect(clippy::print_stdout, reason = "prints its results")]
fn main() -> Result<()> {
    let labels = labels();
    let cases = cases();
    let theirs = prometheus(&cases, &labels)?;
    println!(
        "{:40} {:>6} {:>12} {:>12} {:>7}",
        "", "rules", "prometheus", "profcol", "times"
    );
    for (case, theirs) in cases.iter().zip(theirs) {
        let rules = case.rules.len() as f64;
        let (ours, theirs) = (measure(case, &labels)? / rules, theirs / rules);
        let times = theirs / ours;
        println!(
            "{:40} {rules:>6} {theirs:>9.0} ns {ours:>9.0} ns {times:>7.1}",
            case.name
        );
    }
    Ok(())
}

/// The labels of a process in Kubernetes.
fn labels() -> BTreeMap<String, String> {
    let pairs = [
        ("node", "worker-17.cluster.example"),
        ("comm", "nginx"),
        ("__meta_process_pid", "4711"),
        (
            "__meta_process_cmdline",
            "nginx: worker process --with a few --arguments=behind it",
        ),
        (
            "__meta_process_cgroup",
            "/kubepods.slice/kubepods-burstable.slice/cri-containerd-1.scope",
        ),
        ("__meta_process_ppid", "4700"),
        ("__meta_process_executable_name", "nginx"),
        (
            "__meta_process_executable_build_id",
            "2fd2a1c4f43a5f0b4cf2c35e39a5f17f6a0a61c2",
        ),
        ("__meta_process_executable_compiler", "GCC 12.2.0"),
        ("__meta_process_executable_static", "false"),
        ("__meta_process_executable_stripped", "true"),
        ("__meta_system_kernel_machine", "x86_64"),
        ("__meta_kubernetes_namespace", "shop"),
        ("__meta_kubernetes_pod_name", "web-5c7d4f9b68-x2x7k"),
        ("__meta_kubernetes_pod_container_name", "nginx"),
        ("__meta_kubernetes_pod_label_app_kubernetes_io_name", "web"),
        (
            "__meta_kubernetes_pod_label_pod_template_hash",
            "5c7d4f9b68",
        ),
        (
            "__meta_kubernetes_pod_labelpresent_app_kubernetes_io_name",
            "true",
        ),
        (
            "__meta_kubernetes_pod_labelpresent_pod_template_hash",
            "true",
        ),
        ("__meta_kubernetes_node_name", "worker-17"),
    ];
    pairs
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into()
}

fn rule(
    action: Action,
    sources: &[&str],
    regex: &str,
    target: &str,
    replacement: &str,
) -> RuleSpec {
    RuleSpec {
        source_labels: sources.iter().map(|&name| name.to_owned()).collect(),
        regex: regex.to_owned(),
        target_label: target.to_owned(),
        replacement: replacement.to_owned(),
        action,
        ..RuleSpec::default()
    }
}

fn cases() -> Vec<Case> {
    let (pod, name) = (
        "__meta_kubernetes_pod_name",
        "__meta_process_executable_name",
    );
    let copy = |source: &str, target| rule(Action::Replace, &[source], "(.*)", target, "$1");
    let names = |action, regex| rule(action, &[], regex, "", "$1");
    let of_pod = r"__meta_kubernetes_pod_label_(.+)";
    let one = |name, rule| Case {
        name,
        rules: vec![rule],
    };
    vec![
        one("copy a label", copy(pod, "pod")),
        one(
            "a group of a label",
            rule(Action::Replace, &[pod], "([^-]+)-.*", "app", "$1"),
        ),
        one(
            "two labels joined",
            rule(
                Action::Replace,
                &["__meta_kubernetes_namespace", pod],
                "(.+);(.+)",
                "pod",
                "$1/$2",
            ),
        ),
        one(
            "no match",
            rule(Action::Replace, &[pod], "db-(.+)", "db", "$1"),
        ),
        one(
            "keep by alternatives",
            rule(Action::Keep, &[name], "nginx|envoy|haproxy", "", "$1"),
        ),
        one(
            "drop by a prefix",
            rule(Action::Drop, &[name], "(apt|dpkg).*", "", "$1"),
        ),
        one(
            "a missing label",
            copy("__meta_docker_container_id", "container"),
        ),
        one(
            "hashmod",
            RuleSpec {
                modulus: 8,
                ..rule(Action::HashMod, &[pod], "(.*)", "shard", "$1")
            },
        ),
        one("labelmap", names(Action::LabelMap, of_pod)),
        one(
            "labeldrop",
            names(
                Action::LabelDrop,
                "pod_template_hash|controller_revision_hash",
            ),
        ),
        one(
            "uppercase",
            rule(Action::Uppercase, &[pod], "(.*)", "pod", "$1"),
        ),
        Case {
            name: "a configuration for Kubernetes",
            rules: vec![
                copy("__meta_process_executable_compiler", "compiler"),
                copy("__meta_system_kernel_machine", "arch"),
                copy("__meta_kubernetes_namespace", "namespace"),
                copy(pod, "pod"),
                copy("__meta_kubernetes_pod_container_name", "container"),
                copy("__meta_kubernetes_pod_container_image", "container_image"),
                rule(Action::Drop, &[name], "(apt|dpkg).*", "", "$1"),
                names(Action::LabelMap, of_pod),
                names(
                    Action::LabelDrop,
                    "pod_template_hash|controller_revision_hash",
                ),
            ],
        },
    ]
}

fn measure(case: &Case, labels: &BTreeMap<String, String>) -> Result<f64> {
    let rules: Result<Vec<Rule>, _> = case.rules.iter().map(Rule::new).collect();
    let rules = rules?;
    let rows = LabelRows::of_labels(labels.iter().map(|(name, value)| (&**name, &**value)));
    let mut fastest = f64::INFINITY;
    for _ in 0..TIMES {
        let start = Instant::now();
        for _ in 0..ROUNDS {
            let mut labels = rows.labels();
            let keep = rules.iter().all(|rule| rule.apply(&mut labels));
            std::hint::black_box((labels, keep));
        }
        fastest = fastest.min(start.elapsed().as_nanos() as f64 / f64::from(ROUNDS));
    }
    Ok(fastest)
}

/// Nanoseconds of Prometheus' package per case.
fn prometheus(cases: &[Case], labels: &BTreeMap<String, String>) -> Result<Vec<f64>> {
    let rule = |rule: &RuleSpec| {
        json!({
            "source_labels": rule.source_labels,
            "separator": rule.separator,
            "regex": rule.regex,
            "modulus": rule.modulus,
            "target_label": rule.target_label,
            "replacement": rule.replacement,
            "action": rule.action.name(),
        })
    };
    let rules = |case: &Case| case.rules.iter().map(rule).collect::<Value>();
    let cases: Value = cases
        .iter()
        .map(|case| json!({"rules": rules(case), "labels": labels}))
        .collect();
    let mut child = Command::new("go")
        .args(["run", ".", &ROUNDS.to_string(), &TIMES.to_string()])
        .current_dir(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../formats/labels/tests/oracle/prometheus"
        ))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context("failed to run Go, which Prometheus' package needs")?;
    let mut input = child.stdin.take().context("stdin is not piped")?;
    input.write_all(cases.to_string().as_bytes())?;
    drop(input);
    let output = child.wait_with_output()?;
    ensure!(output.status.success(), "Prometheus' package failed");
    let text = String::from_utf8(output.stdout)?;
    Ok(text.lines().map(str::parse).collect::<Result<_, _>>()?)
}
