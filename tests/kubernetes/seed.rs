//! Nodes, and pods of every kind of workload, with the status that a kubelet would report.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::cluster::Cluster;

pub struct PodSpec<'a> {
    name: &'a str,
    /// Used in its addresses and its container IDs.
    number: u8,
    node: &'a str,
    owner: Option<Value>,
    annotations: Value,
    host_network: bool,
}

impl<'a> PodSpec<'a> {
    pub fn plain(name: &'a str, number: u8) -> Self {
        Self {
            name,
            number,
            node: "n1",
            owner: None,
            annotations: json!({}),
            host_network: false,
        }
    }
}

/// The ID of a container of the pod with this number.
pub fn container(pod: u8, number: u8) -> String {
    format!("{pod:032x}{number:032x}")
}

/// Creates everything, and returns the UIDs of the pods by name.
pub fn seed(cluster: &Cluster) -> BTreeMap<String, String> {
    let create = |path: &str, object: Value| cluster.create(path, &object);
    create(
        "/api/v1/namespaces",
        json!({"metadata": {"name": "shop", "labels": {"team": "checkout"}}}),
    );
    create(
        "/api/v1/nodes",
        json!({"metadata": {"name": "n1", "labels": {"topology.kubernetes.io/zone": "a"}}}),
    );
    create("/api/v1/nodes", json!({"metadata": {"name": "n2"}}));
    let (apps, batch) = (
        "/apis/apps/v1/namespaces/shop",
        "/apis/batch/v1/namespaces/shop",
    );
    let selector = json!({"matchLabels": {"app": "web"}});
    let containers = json!([{"name": "main", "image": "registry:5000/shop/web:1.2"}]);
    let template =
        json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": containers}});
    let spec = json!({"selector": selector, "template": template});
    let deployment = create(
        &format!("{apps}/deployments"),
        json!({"metadata": {"name": "web", "labels": {"tier": "front"}}, "spec": spec}),
    );
    let replica_set = create(
        &format!("{apps}/replicasets"),
        json!({"metadata": {"name": "web-5d4f8c7b9", "ownerReferences": [owner(&deployment, "apps/v1", "Deployment")]},
            "spec": spec}),
    );
    let mut stateful = spec.clone();
    stateful["serviceName"] = "db".into();
    let stateful = create(
        &format!("{apps}/statefulsets"),
        json!({"metadata": {"name": "st"}, "spec": stateful}),
    );
    let daemon = create(
        &format!("{apps}/daemonsets"),
        json!({"metadata": {"name": "da"}, "spec": spec}),
    );
    let job = json!({"template": {"spec": {"restartPolicy": "Never", "containers": containers}}});
    let cron = create(
        &format!("{batch}/cronjobs"),
        json!({"metadata": {"name": "tidy"}, "spec": {"schedule": "* * * * *", "jobTemplate": {"spec": job}}}),
    );
    let job = create(
        &format!("{batch}/jobs"),
        json!({"metadata": {"name": "tidy-28391234", "ownerReferences": [owner(&cron, "batch/v1", "CronJob")]},
            "spec": job}),
    );
    let owned = |name, number, object: &Value, version, kind| PodSpec {
        owner: Some(owner(object, version, kind)),
        ..PodSpec::plain(name, number)
    };
    let hash = "c".repeat(32);
    let pods = [
        PodSpec {
            annotations: json!({"resource.opentelemetry.io/service.name": "webshop"}),
            ..owned(
                "web-5d4f8c7b9-abcde",
                1,
                &replica_set,
                "apps/v1",
                "ReplicaSet",
            )
        },
        owned("st-0", 2, &stateful, "apps/v1", "StatefulSet"),
        owned("da-0", 3, &daemon, "apps/v1", "DaemonSet"),
        owned("tidy-28391234-x", 4, &job, "batch/v1", "Job"),
        PodSpec {
            annotations: json!({"kubernetes.io/config.hash": hash, "kubernetes.io/config.mirror": hash}),
            host_network: true,
            ..PodSpec::plain("static-n1", 5)
        },
        PodSpec {
            node: "n2",
            ..PodSpec::plain("elsewhere", 6)
        },
    ];
    let made = pods.iter().map(|it| (it.name.to_owned(), pod(cluster, it)));
    let made = made.collect();
    debug(cluster, "web-5d4f8c7b9-abcde", 1);
    made
}

/// Adds a container to a running pod, like `kubectl debug`.
fn debug(cluster: &Cluster, name: &str, number: u8) {
    let pod = format!("/api/v1/namespaces/shop/pods/{name}");
    let container =
        json!({"name": "debugger", "image": "busybox:1.36", "targetContainerName": "main"});
    cluster.patch(
        &format!("{pod}/ephemeralcontainers"),
        &json!({"spec": {"ephemeralContainers": [container]}}),
    );
    cluster.patch(
        &format!("{pod}/status"),
        &json!({"status": {"ephemeralContainerStatuses": [status("debugger", number, 4)]}}),
    );
}

/// Creates a running pod; returns its UID.
pub fn pod(cluster: &Cluster, pod: &PodSpec) -> String {
    let PodSpec { name, number, .. } = *pod;
    let pods = "/api/v1/namespaces/shop/pods";
    let made = cluster.create(
        pods,
        &json!({
            "metadata": {"name": name, "labels": {"app": "web"}, "annotations": pod.annotations,
                "ownerReferences": pod.owner.iter().collect::<Vec<_>>()},
            "spec": {"nodeName": pod.node, "hostNetwork": pod.host_network,
                "containers": [{"name": "main", "image": "registry:5000/shop/web:1.2"}, {"name": "proxy", "image": "envoy"}],
                "initContainers": [{"name": "setup", "image": "busybox:1"}]}}),
    );
    let address = format!("10.244.0.{number}");
    cluster.patch(
        &format!("{pods}/{name}/status"),
        &json!({"status": {
            "phase": "Running", "hostIP": "10.9.0.1", "hostIPs": [{"ip": "10.9.0.1"}], "podIP": address,
            "podIPs": [{"ip": address}, {"ip": format!("fd00::{number:x}")}],
            "startTime": "2026-01-01T00:00:00Z", "conditions": [{"type": "Ready", "status": "True"}],
            "containerStatuses": [status("main", number, 1), status("proxy", number, 2)],
            "initContainerStatuses": [status("setup", number, 3)]}}),
    );
    made["metadata"]["uid"].as_str().unwrap().to_owned()
}

/// A kubelet's status of a running container.
fn status(name: &str, pod: u8, number: u8) -> Value {
    json!({"name": name, "image": "x", "imageID": format!("docker.io/library/x@sha256:{}", "b".repeat(64)),
        "containerID": format!("containerd://{}", container(pod, number)), "ready": true, "started": true,
        "restartCount": 0, "state": {"running": {"startedAt": "2026-01-01T00:00:01Z"}}})
}

fn owner(object: &Value, version: &str, kind: &str) -> Value {
    let meta = &object["metadata"];
    json!({"apiVersion": version, "kind": kind, "name": meta["name"], "uid": meta["uid"], "controller": true})
}
