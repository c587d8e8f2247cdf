//! Prometheus' own code reads the rules and the dashboard's queries, and tells which alerts fire.

#![allow(clippy::unwrap_used, reason = "a panic fails the test")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use profcol_test_harness::peers::promql;
use profcol_test_harness::support::{root, yaml};
use serde::Deserialize;
use serde_json::{Value, json};

/// Labels that Prometheus gives all series of a target.
const TARGET: &str = r#"job="profcol", instance="host-a""#;

/// A value per minute: `0+5x30` begins at 0 and grows by 5, thirty times.
type Series = &'static [(&'static str, &'static str)];

struct Case {
    alert: &'static str,
    /// When to look, in minutes.
    after: u32,
    fires: Series,
    /// The summary then.
    summary: &'static str,
    /// Each alone does not make it fire.
    quiet: &'static [Series],
}

/// Each counter and gauge has the labels that profcol gives it.
const CASES: &[Case] = &[
    Case {
        alert: "ProfcolDown",
        after: 9,
        fires: &[("up", "0x20")],
        summary: "profcol on host-a is down.",
        quiet: &[&[("up", "1x20")], &[("up", "1x5 0x10")]],
    },
    Case {
        alert: "ProfcolNotSampling",
        after: 25,
        fires: &[("profcol_ebpf_cpu_samples{receiver='ebpf_cpu'}", "500x30")],
        summary: "profcol on host-a takes no samples.",
        quiet: &[
            &[("profcol_ebpf_cpu_samples{receiver='ebpf_cpu'}", "0+3x30")],
            &[(
                "profcol_ebpf_cpu_samples{receiver='ebpf_cpu'}",
                "0+3x10 33x20",
            )],
        ],
    },
    Case {
        alert: "ProfcolLosingSamples",
        after: 25,
        fires: &[
            ("profcol_ebpf_cpu_samples{receiver='ebpf_cpu'}", "0+100x30"),
            (
                "profcol_ebpf_cpu_lost_samples{receiver='ebpf_cpu'}",
                "0+1x30",
            ),
            (
                "profcol_ebpf_cpu_dropped_samples{receiver='ebpf_cpu'}",
                "0+1x30",
            ),
        ],
        summary: "profcol on host-a loses more than 1 % of its samples.",
        quiet: &[&[
            ("profcol_ebpf_cpu_samples{receiver='ebpf_cpu'}", "0+1000x30"),
            (
                "profcol_ebpf_cpu_lost_samples{receiver='ebpf_cpu'}",
                "0+1x30",
            ),
            (
                "profcol_ebpf_cpu_dropped_samples{receiver='ebpf_cpu'}",
                "0+1x30",
            ),
        ]],
    },
    Case {
        alert: "ProfcolDroppingSamples",
        after: 20,
        fires: &[(
            "profcol_exporter_dropped_samples{exporter='otlp_grpc/away', reason='queue_full'}",
            "0+5x30",
        )],
        summary: "otlp_grpc/away on host-a drops samples: queue_full.",
        quiet: &[
            &[(
                "profcol_exporter_dropped_samples{exporter='otlp_grpc/away', reason='shutdown'}",
                "0+5x30",
            )],
            &[(
                "profcol_exporter_dropped_samples{exporter='otlp_grpc/away', reason='queue_full'}",
                "70x30",
            )],
        ],
    },
    Case {
        alert: "ProfcolReloadFailed",
        after: 9,
        fires: &[("profcol_config_last_reload_successful", "1 0x20")],
        summary: "profcol on host-a could not load its changed configuration.",
        quiet: &[
            &[("profcol_config_last_reload_successful", "1x20")],
            &[("profcol_config_last_reload_successful", "1 0x3 1x20")],
        ],
    },
    Case {
        alert: "ProfcolQueueFilling",
        after: 20,
        fires: &[
            ("otelcol_exporter_queue_size{exporter='parca'}", "900x30"),
            (
                "otelcol_exporter_queue_capacity{exporter='parca'}",
                "1000x30",
            ),
        ],
        summary: "The queue of parca on host-a is more than 80 % full.",
        quiet: &[&[
            ("otelcol_exporter_queue_size{exporter='parca'}", "700x30"),
            (
                "otelcol_exporter_queue_capacity{exporter='parca'}",
                "1000x30",
            ),
        ]],
    },
    Case {
        alert: "ProfcolNotDelivering",
        after: 40,
        fires: &[
            (
                "otelcol_exporter_sent_profile_samples{exporter='parca'}",
                "70x50",
            ),
            (
                "otelcol_receiver_accepted_profile_samples{receiver='otlp', transport='grpc'}",
                "0+9x50",
            ),
        ],
        summary: "parca on host-a delivers nothing.",
        quiet: &[
            &[
                (
                    "otelcol_exporter_sent_profile_samples{exporter='parca'}",
                    "0+9x50",
                ),
                (
                    "otelcol_receiver_accepted_profile_samples{receiver='otlp', transport='grpc'}",
                    "0+9x50",
                ),
            ],
            &[
                (
                    "otelcol_exporter_sent_profile_samples{exporter='parca'}",
                    "70x50",
                ),
                (
                    "otelcol_receiver_accepted_profile_samples{receiver='otlp', transport='grpc'}",
                    "70x50",
                ),
            ],
        ],
    },
    Case {
        alert: "ProfcolStacksTruncated",
        after: 100,
        fires: &[
            (
                "profcol_ebpf_cpu_stacks{receiver='ebpf_cpu', end_reason='complete'}",
                "0+80x110",
            ),
            (
                "profcol_ebpf_cpu_stacks{receiver='ebpf_cpu', end_reason='no_unwind_info'}",
                "0+20x110",
            ),
        ],
        summary: "More than 10 % of the stacks on host-a are incomplete.",
        quiet: &[
            &[
                (
                    "profcol_ebpf_cpu_stacks{receiver='ebpf_cpu', end_reason='complete'}",
                    "0+80x110",
                ),
                (
                    "profcol_ebpf_cpu_stacks{receiver='ebpf_cpu', end_reason='no_unwind_info'}",
                    "0+5x110",
                ),
            ],
            &[
                (
                    "profcol_ebpf_cpu_stacks{receiver='ebpf_cpu', end_reason='complete'}",
                    "0+80x110",
                ),
                (
                    "profcol_ebpf_cpu_stacks{receiver='ebpf_cpu', end_reason='kernel_thread'}",
                    "0+20x110",
                ),
            ],
        ],
    },
    Case {
        alert: "ProfcolRefusingClients",
        after: 25,
        fires: &[(
            "otelcol_receiver_refused_profile_samples{receiver='otlp', transport='grpc'}",
            "0+5x30",
        )],
        summary: "otlp on host-a refuses clients.",
        quiet: &[&[(
            "otelcol_receiver_refused_profile_samples{receiver='otlp', transport='grpc'}",
            "70x30",
        )]],
    },
    Case {
        alert: "ProfcolStorageFailing",
        after: 5,
        fires: &[(
            "profcol_storage_failed_fsyncs{exporter='parca'}",
            "0x3 1x10",
        )],
        summary: "A stored queue on host-a is failing.",
        quiet: &[
            &[("profcol_storage_failed_fsyncs{exporter='parca'}", "1x10")],
            &[("profcol_storage_corrupt_records{exporter='parca'}", "1x10")],
        ],
    },
    Case {
        alert: "ProfcolStorageFailing",
        after: 50,
        fires: &[(
            "profcol_storage_corrupt_records{exporter='parca'}",
            "0x3 1x60",
        )],
        summary: "A stored queue on host-a is failing.",
        quiet: &[],
    },
    Case {
        alert: "ProfcolKubernetesApiFailing",
        after: 30,
        fires: &[(
            "profcol_k8s_attributes_api_failures{processor='k8s_attributes', resource='pods'}",
            "0+1x40",
        )],
        summary: "profcol on host-a fails to query the Kubernetes API.",
        quiet: &[&[(
            "profcol_k8s_attributes_api_failures{processor='k8s_attributes', resource='pods'}",
            "0x5 1x40",
        )]],
    },
    Case {
        alert: "ProfcolCpuHigh",
        after: 50,
        fires: &[
            ("otelcol_process_cpu_seconds", "0+15x60"),
            ("profcol_ebpf_cpu_samples{receiver='ebpf_cpu'}", "0+100x60"),
        ],
        summary: "The agent on host-a uses more than 20 % of a CPU.",
        quiet: &[
            &[
                ("otelcol_process_cpu_seconds", "0+6x60"),
                ("profcol_ebpf_cpu_samples{receiver='ebpf_cpu'}", "0+100x60"),
            ],
            &[("otelcol_process_cpu_seconds", "0+15x60")],
        ],
    },
];

#[derive(Debug, Deserialize)]
struct Answer {
    /// Of the rules.
    errors: Vec<String>,
    /// Of each expression.
    expressions: Vec<String>,
    /// In each case.
    firing: Vec<Vec<Alert>>,
}

#[derive(Debug, Deserialize)]
struct Alert {
    name: String,
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
}

#[test]
#[ignore = "needs the peers, see cargo xtask test"]
fn alerts_fire_when_they_should() {
    let text = rules();
    let rules = yaml(&text);
    let rules = rules["groups"][0]["rules"].as_array().unwrap();
    let names: BTreeSet<&str> = rules
        .iter()
        .map(|rule| rule["alert"].as_str().unwrap())
        .collect();
    let tested: BTreeSet<&str> = CASES.iter().map(|case| case.alert).collect();
    assert_eq!(names, tested);

    let mut firing = answer(CASES.iter().map(|case| (case.fires, case.after))).into_iter();
    for case in CASES {
        let found = firing.next().unwrap();
        let alert = found.iter().find(|it| it.name == case.alert);
        let alert = alert.unwrap_or_else(|| panic!("{} does not fire: {found:?}", case.alert));
        assert_eq!(alert.annotations["summary"], case.summary);
        assert_eq!(alert.labels["instance"], "host-a", "{}", case.alert);
        let severity = alert.labels["severity"].as_str();
        let severities = ["info", "warning", "critical"];
        assert!(severities.contains(&severity), "{}: {severity}", case.alert);
    }
}

#[test]
#[ignore = "needs the peers, see cargo xtask test"]
fn alerts_stay_quiet_otherwise() {
    let quiet = || {
        let each = |case: &'static Case| case.quiet.iter().map(move |series| (case, *series));
        CASES.iter().flat_map(each)
    };
    let firing = answer(quiet().map(|(case, series)| (series, case.after)));
    assert!(firing.len() >= CASES.len(), "{}", firing.len());
    for ((case, series), found) in quiet().zip(firing) {
        let fires = found.iter().any(|it| it.name == case.alert);
        assert!(!fires, "{} fires with {series:?}", case.alert);
    }
}

/// The queries of the dashboard's panels and variables, and one that is wrong.
#[test]
#[ignore = "needs the peers, see cargo xtask test"]
fn queries_of_the_dashboard_are_promql() {
    let text = fs::read_to_string(root().join("deploy/monitoring/dashboard.json")).unwrap();
    let dashboard: Value = serde_json::from_str(&text).unwrap();
    let mut queries = Vec::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        for target in panel["targets"].as_array().into_iter().flatten() {
            queries.push(target["expr"].as_str().unwrap().to_owned());
        }
    }
    for variable in dashboard["templating"]["list"].as_array().unwrap() {
        let query = variable["query"]["query"].as_str();
        let series = query.and_then(|it| it.strip_prefix("label_values(")?.rsplit_once(", "));
        queries.extend(series.map(|(series, _)| series.to_owned()));
    }
    assert!(queries.len() > 12, "{queries:?}");
    // Grafana fills this in.
    let mut queries: Vec<_> = queries
        .iter()
        .map(|it| it.replace("$__rate_interval", "5m"))
        .collect();
    queries.push("sum by (receiver) (rate(up[5m])".to_owned());
    let answer = query(&json!({"expressions": queries, "rules": rules()}));
    let wrong = answer.expressions.last().unwrap();
    assert!(wrong.contains("unclosed left parenthesis"), "{wrong}");
    assert_eq!(answer.expressions.len(), queries.len());
    for (query, error) in queries.iter().zip(&answer.expressions).rev().skip(1) {
        assert_eq!(error, "", "{query}");
    }
}

fn rules() -> String {
    fs::read_to_string(root().join("deploy/monitoring/rules.yaml")).unwrap()
}

/// The firing alerts of each case.
fn answer(cases: impl Iterator<Item = (Series, u32)>) -> Vec<Vec<Alert>> {
    let of_target = |(name, values): &(&str, &str)| {
        let (name, labels) = name.split_once('{').unwrap_or((name, "}"));
        let labels = labels.trim_end_matches('}').replace('\'', "\"");
        format!("{name}{{{TARGET}, {labels}}} {values}")
    };
    let cases = cases.map(|(series, after)| {
        let series: Vec<_> = series.iter().map(of_target).collect();
        json!({"series": series, "minute": after})
    });
    let cases: Vec<Value> = cases.collect();
    let answer = query(&json!({"rules": rules(), "cases": cases}));
    assert_eq!(answer.firing.len(), cases.len());
    answer.firing
}

fn query(request: &Value) -> Answer {
    let answer: Answer = serde_json::from_str(&promql(&request.to_string())).unwrap();
    assert!(answer.errors.is_empty(), "{:?}", answer.errors);
    answer
}
