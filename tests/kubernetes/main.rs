//! profcol with a real Kubernetes API server: the metadata of created pods, the cost, and whether the rights in
//! `deploy/kubernetes` suffice.
//!
//! `cargo xtask kubernetes-test` builds the server and runs this. There is no kubelet: the test assigns nodes to pods
//! when it creates them, and writes the status that a kubelet would report.

#![allow(clippy::unwrap_used, reason = "a panic fails the test")]

mod cluster;
mod endpoints;
mod recordings;
mod seed;
mod sidecar;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use profcol_test_harness::TIMEOUT;
use profcol_test_harness::peers::{Process, free_address, post_profiles, profcol};
use profcol_test_harness::support::root;
use serde_json::{Value, json};

use crate::cluster::Cluster;

/// A profcol that adds Kubernetes metadata to received profiles.
struct Named {
    process: Process,
    address: SocketAddr,
    output: tempfile::TempDir,
}

type Attributes = BTreeMap<String, String>;

impl Named {
    fn start(cluster: &Cluster, context: &str, options: &str) -> Self {
        let address = free_address();
        let output = tempfile::tempdir().unwrap();
        let config = format!(
            "receivers: {{otlp: {{protocols: {{http: {{endpoint: '{address}'}}}}}}}}
processors: {{k8s_attributes: {{auth_type: kubeConfig, kube_config_path: '{}', context: {context}, {options}}}}}
exporters: {{file: {{path: '{}', flush_interval: 50ms}}}}
service:
  telemetry: {{metrics: {{level: none}}}}
  pipelines: {{profiles: {{receivers: [otlp], processors: [k8s_attributes], exporters: [file]}}}}
",
            cluster.kubeconfig().display(),
            output.path().join("out.jsonl").display(),
        );
        let process = profcol(&config).listens_on(address);
        Self {
            process,
            address,
            output,
        }
    }

    /// Sends a profile of a resource, and returns the resulting attributes.
    fn name(&self, attributes: &[(&str, &str)]) -> Attributes {
        let mark = format!("{:?}", Instant::now());
        let all = attributes.iter().copied().chain([("mark", mark.as_str())]);
        let all: Vec<Value> = all
            .map(|(key, value)| json!({"key": key, "value": {"stringValue": value}}))
            .collect();
        let body = json!({
            "resourceProfiles": [{"resource": {"attributes": all}, "scopeProfiles": [{"profiles": [{
                "sampleType": {"typeStrindex": 1, "unitStrindex": 2},
                "samples": [{"stackIndex": 0, "values": [1]}], "timeUnixNano": "1700000000000000000"}]}]}],
            "dictionary": {"mappingTable": [{}], "locationTable": [{}], "functionTable": [{}], "linkTable": [{}],
                "stringTable": ["", "samples", "count"], "attributeTable": [{}], "stackTable": [{}]}});
        let answer = post_profiles(
            self.address,
            "application/json",
            body.to_string().as_bytes(),
        );
        assert!(answer.contains("200"), "{answer}");
        let end = Instant::now() + TIMEOUT;
        loop {
            let written = std::fs::read_to_string(self.output.path().join("out.jsonl"));
            if let Some(line) = written
                .unwrap_or_default()
                .lines()
                .find(|it| it.contains(&mark))
                && let Ok(line) = serde_json::from_str::<Value>(line)
            {
                return attributes_of(&line);
            }
            assert!(Instant::now() < end, "nothing came out");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Sends repeatedly until the attribute `key` appears.
    fn learns(&self, attribute: (&str, &str), key: &str) -> Attributes {
        let end = Instant::now() + TIMEOUT;
        loop {
            let found = self.name(&[attribute]);
            if found.contains_key(key) {
                return found;
            }
            assert!(
                Instant::now() < end,
                "{attribute:?} gets no {key}: {found:?}\n{}",
                self.process.output()
            );
        }
    }
}

fn attributes_of(line: &Value) -> Attributes {
    let attributes = line["resourceProfiles"][0]["resource"]["attributes"].as_array();
    let pairs = attributes.into_iter().flatten().map(|it| {
        let value = it["value"]
            .as_object()
            .and_then(|value| value.values().next());
        let value = value.cloned().unwrap_or_default();
        let text = value
            .as_str()
            .map_or_else(|| value.to_string(), str::to_owned);
        (it["key"].as_str().unwrap_or_default().to_owned(), text)
    });
    pairs.collect()
}

#[test]
#[ignore = "cargo xtask kubernetes-test runs it"]
fn names_pods_with_the_rights_of_the_manifests_and_follows_them() {
    let cluster = Cluster::start();
    for file in ["rights.yaml", "gateway.yaml", "daemonset.yaml"] {
        cluster.apply(&root().join("deploy/kubernetes").join(file));
    }
    let seeded = seed::seed(&cluster);
    if std::env::var_os("UPDATE").is_some() {
        recordings::write(&cluster);
    }
    let options = "filter: {node: n1}";
    let named = Named::start(&cluster, cluster::ACCOUNT, options);
    let web = &seeded["web-5d4f8c7b9-abcde"];
    let found = named.learns(
        ("container.id", &seed::container(1, 1)),
        "k8s.deployment.name",
    );
    let expect = |found: &Attributes, expected: &[(&str, &str)]| {
        for (key, value) in expected {
            assert_eq!(
                found.get(*key).map(String::as_str),
                Some(*value),
                "{key}: {found:?}"
            );
        }
    };
    expect(
        &found,
        &[
            ("k8s.pod.name", "web-5d4f8c7b9-abcde"),
            ("k8s.namespace.name", "shop"),
            ("k8s.pod.uid", web),
            ("k8s.deployment.name", "web"),
            ("k8s.node.name", "n1"),
            ("k8s.container.name", "main"),
            ("container.image.name", "registry:5000/shop/web"),
            ("container.image.tag", "1.2"),
        ],
    );
    let debugged = named.name(&[("container.id", &seed::container(1, 4))]);
    expect(
        &debugged,
        &[
            ("k8s.container.name", "debugger"),
            ("container.image.tag", "1.36"),
        ],
    );
    let by_uid = named.name(&[("k8s.pod.uid", web)]);
    expect(&by_uid, &[("k8s.pod.name", "web-5d4f8c7b9-abcde")]);
    let by_address = named.name(&[("k8s.pod.ip", "10.244.0.2")]);
    expect(&by_address, &[("k8s.pod.name", "st-0")]);
    // A pod of another node is unknown.
    let elsewhere = named.name(&[("container.id", &seed::container(6, 1))]);
    assert_eq!(elsewhere.get("k8s.pod.name"), None, "{elsewhere:?}");

    // Measures the time from a pod's creation to its first sample with a name.
    let pod = seed::pod(&cluster, &seed::PodSpec::plain("young", 7));
    let made = Instant::now();
    let cgroup = format!("/kubepods/besteffort/pod{pod}/{}", seed::container(7, 1));
    named.learns(("process.linux.cgroup", &cgroup), "k8s.pod.name");
    println_figure(
        "a new pod's first sample has its name after",
        made.elapsed(),
    );
    expect(
        &named.learns(
            ("container.id", &seed::container(7, 2)),
            "k8s.container.name",
        ),
        &[("k8s.container.name", "proxy")],
    );
    cluster.delete("/api/v1/namespaces/shop/pods/young");
    // It stays known for its last profiles.
    expect(
        &named.name(&[("container.id", &seed::container(7, 1))]),
        &[("k8s.pod.name", "young")],
    );

    // The server restarts: known pods stay, and new ones are found.
    let cluster = cluster.restarted(|| {
        let found = named.name(&[("container.id", &seed::container(1, 1))]);
        expect(&found, &[("k8s.deployment.name", "web")]);
    });
    seed::pod(&cluster, &seed::PodSpec::plain("later", 8));
    named.learns(("container.id", &seed::container(8, 1)), "k8s.pod.name");

    // Errors name a missing right.
    let mut named = Named::start(
        &cluster,
        cluster::ACCOUNT,
        "extract: {metadata: [k8s.pod.name, k8s.node.uid]}",
    );
    named
        .process
        .wait_for_output("to name the right", |output| {
            output.contains("resources: [nodes], verbs: [list, watch]")
        });
    named.learns(("container.id", &seed::container(1, 1)), "k8s.pod.name");
}

#[expect(clippy::print_stdout, reason = "figures are printed")]
fn println_figure(what: &str, value: impl std::fmt::Debug) {
    println!("{what} {value:?}");
}
