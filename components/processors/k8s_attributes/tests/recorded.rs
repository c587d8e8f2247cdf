//! What a real API server answered (v1.34), as `cargo xtask kubernetes-test` wrote it down.

use serde_json::{Value, json};

use super::server::{Answer, Asked};

/// Everything that was asked of it, answered again; watches stay silent.
pub fn answer(asked: &Asked) -> Answer {
    match asked.is_watch() {
        true => Answer::Watch(Vec::new()),
        false => list(asked),
    }
}

pub fn list(asked: &Asked) -> Answer {
    match text(asked.kind()) {
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

/// The id of one of its containers.
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

/// A list of `items` that goes on with `next`.
pub fn page(items: &[String], next: &str) -> String {
    format!(
        r#"{{"metadata": {{"resourceVersion": "10", "continue": "{next}"}}, "items": [{}]}}"#,
        items.join(",")
    )
}
