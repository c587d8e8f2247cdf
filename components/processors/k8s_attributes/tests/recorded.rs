//! Answers of a real API server (v1.34), recorded by `cargo xtask kubernetes-test`.

use serde_json::{Value, json};

use profcol_kubernetes::testkit::{Answer, Request};

/// Replays the recorded answers; watches stay silent.
pub fn answer(request: &Request) -> Answer {
    match request.is_watch() {
        true => Answer::Watch(Vec::new()),
        false => list(request),
    }
}

pub fn list(request: &Request) -> Answer {
    match text(request.kind()) {
        Some(text) => Answer::Json(200, text.to_owned()),
        None => Answer::Json(404, "{}".to_owned()),
    }
}

pub fn text(name: &str) -> Option<&'static str> {
    Some(match name {
        "pods" => include_str!("../testdata/pods.json"),
        "replicasets" => include_str!("../testdata/replicasets.json"),
        "deployments" => include_str!("../testdata/deployments.json"),
        "statefulsets" => include_str!("../testdata/statefulsets.json"),
        "daemonsets" => include_str!("../testdata/daemonsets.json"),
        "jobs" => include_str!("../testdata/jobs.json"),
        "namespaces" => include_str!("../testdata/namespaces.json"),
        "nodes" => include_str!("../testdata/nodes.json"),
        "forbidden" => include_str!("../testdata/forbidden.json"),
        "unauthorized" => include_str!("../testdata/unauthorized.json"),
        "expired" => include_str!("../testdata/expired.json"),
        _ => return None,
    })
}

/// A recorded pod.
pub fn pod(name: &str) -> Value {
    let list: Value = serde_json::from_str(text("pods").unwrap()).unwrap();
    let items = list["items"].as_array().unwrap();
    let found = items.iter().find(|pod| pod["metadata"]["name"] == name);
    found.unwrap_or_else(|| panic!("no pod {name}")).clone()
}

pub fn uid(name: &str) -> String {
    pod(name)["metadata"]["uid"].as_str().unwrap().to_owned()
}

/// The ID of one of its containers.
pub fn container(pod_name: &str, container: &str) -> String {
    let pod = pod(pod_name);
    let kinds = [
        "containerStatuses",
        "initContainerStatuses",
        "ephemeralContainerStatuses",
    ];
    let statuses = kinds
        .iter()
        .filter_map(|kind| pod["status"][kind].as_array());
    let status = statuses.flatten().find(|it| it["name"] == container);
    let id = status.unwrap()["containerID"].as_str().unwrap();
    id.split_once("://").unwrap().1.to_owned()
}

pub fn event(kind: &str, object: &Value) -> String {
    json!({"type": kind, "object": object}).to_string()
}

/// A list of `items`, continued with `next`.
pub fn page(items: &[String], next: &str) -> String {
    format!(
        r#"{{"metadata": {{"resourceVersion": "10", "continue": "{next}"}}, "items": [{}]}}"#,
        items.join(",")
    )
}
