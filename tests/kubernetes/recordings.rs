//! Records the server's responses, for tests without a server.

use std::fs;

use profcol_test_harness::support::root;
use serde_json::Value;

use crate::cluster::{ACCOUNT, Cluster};

const META: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";

/// Writes the responses to all queries for a node.
pub fn write(cluster: &Cluster) {
    let json = "application/json";
    let list = |path: &str| cluster.raw("admin", path, META);
    let pods = cluster.raw(
        "admin",
        "/api/v1/pods?fieldSelector=spec.nodeName%3Dn1",
        json,
    );
    save("pods", &pods);
    for (group, plural) in [
        ("api", "namespaces"),
        ("api", "nodes"),
        ("apis/apps", "replicasets"),
        ("apis/apps", "deployments"),
        ("apis/apps", "statefulsets"),
        ("apis/apps", "daemonsets"),
        ("apis/batch", "jobs"),
    ] {
        save(plural, &list(&format!("/{group}/v1/{plural}")));
    }
    let forbidden = cluster.raw(ACCOUNT, "/apis/apps/v1/deployments", json);
    save("forbidden", &forbidden);
    save("unauthorized", &cluster.raw("nobody", "/api/v1/pods", json));
}

fn save(name: &str, text: &str) {
    let value: Value = serde_json::from_str(text).unwrap_or_else(|_| panic!("{name}: {text}"));
    let directory = root().join("components/processors/k8s_attributes/testdata");
    let text = format!("{value:#}\n");
    fs::write(directory.join(format!("{name}.json")), text).unwrap();
}
