//! The sidecar of the Helm chart, added to a Deployment as its page says.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use profcol_test_harness::support::{root, yaml};
use serde_json::{Value, json};

use crate::cluster::Cluster;

/// Applies what `helm install` would create in the namespace.
fn install(cluster: &Cluster, namespace: &str, values: &str) {
    let helm = std::env::var_os("PROFCOL_HELM").map(PathBuf::from);
    let chart = root().join("deploy/helm/profcol");
    let rendered = Command::new(helm.expect("cargo xtask kubernetes-test sets it"))
        .args(["template", "profcol"])
        .arg(&chart)
        .args(["--namespace", namespace, "--kube-version", "1.34"])
        .args(["--set", "podMonitor.enabled=false", "--values"])
        .arg(chart.join("ci").join(values))
        .output()
        .unwrap();
    assert!(rendered.status.success(), "{rendered:?}");
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("objects.yaml");
    fs::write(&file, rendered.stdout).unwrap();
    cluster.apply(&file);
}

/// The patch that the chart's page reads with `kubectl get configmap`.
fn patch(cluster: &Cluster, namespace: &str) -> Value {
    let path = format!("/api/v1/namespaces/{namespace}/configmaps/profcol-patch");
    let answer = cluster.raw("admin", &path, "application/json");
    let object: Value = serde_json::from_str(&answer).unwrap();
    yaml(object["data"]["patch.yaml"].as_str().unwrap())
}

/// A namespace with this Pod Security level, and a Deployment in it that gets the sidecar. Returns the template of its pods.
fn patched(cluster: &Cluster, namespace: &str, level: &str, values: &str) -> Value {
    let labels = json!({"pod-security.kubernetes.io/enforce": level});
    let object = json!({"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": namespace, "labels": labels}});
    cluster.create("/api/v1/namespaces", &object);
    install(cluster, namespace, values);
    let labels = json!({"app.kubernetes.io/name": "shop"});
    let security = json!({"allowPrivilegeEscalation": false, "runAsNonRoot": true, "runAsUser": 1000,
        "capabilities": {"drop": ["ALL"]}, "seccompProfile": {"type": "RuntimeDefault"}});
    let container = json!({"name": "shop", "image": "shop", "securityContext": security,
        "volumeMounts": [{"name": "data", "mountPath": "/data"}]});
    let deployment = json!({"kind": "Deployment", "apiVersion": "apps/v1", "metadata": {"name": "shop"}, "spec": {
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": {"containers": [container],
            "initContainers": [{"name": "prepare", "image": "shop", "securityContext": security}],
            "volumes": [{"name": "data", "emptyDir": {}}]}}}});
    let deployments = format!("/apis/apps/v1/namespaces/{namespace}/deployments");
    cluster.create(&deployments, &deployment);
    let patch = patch(cluster, namespace);
    // Twice, as after a change of values.
    for _ in 0..2 {
        cluster.patch(&format!("{deployments}/shop"), &patch);
    }
    let answer = cluster.raw("admin", &format!("{deployments}/shop"), "application/json");
    let deployment: Value = serde_json::from_str(&answer).unwrap();
    deployment["spec"]["template"].clone()
}

/// What a Deployment's controller would create.
fn pod(template: &Value) -> Value {
    json!({"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "shop-1", "labels": template["metadata"]["labels"]},
        "spec": template["spec"]})
}

fn names(list: &Value) -> Vec<&str> {
    let list = list.as_array().into_iter().flatten();
    list.filter_map(|it| it["name"].as_str()).collect()
}

#[test]
#[ignore = "cargo xtask kubernetes-test runs it"]
fn the_charts_patch_adds_a_sidecar_that_a_restricted_namespace_admits() {
    let cluster = Cluster::start();
    let template = patched(&cluster, "shop", "restricted", "sidecar-values.yaml");
    let spec = &template["spec"];
    assert_eq!(names(&spec["containers"]), ["shop"]);
    assert_eq!(names(&spec["initContainers"]), ["profcol", "prepare"]);
    assert_eq!(names(&spec["volumes"]), ["profcol", "trusted", "data"]);
    assert_eq!(spec["initContainers"][0]["restartPolicy"], "Always");
    assert_eq!(template["metadata"]["labels"]["profcol-sidecar"], "profcol");
    cluster.create("/api/v1/namespaces/shop/pods", &pod(&template));

    // One that profiles needs more.
    let values = "sidecar-profiling-values.yaml";
    let template = patched(&cluster, "profiled", "privileged", values);
    assert_eq!(template["spec"]["shareProcessNamespace"], true);
    cluster.create("/api/v1/namespaces/profiled/pods", &pod(&template));
    let mut refused = pod(&template);
    refused["metadata"]["name"] = "shop-2".into();
    let answer = cluster.refuses("/api/v1/namespaces/shop/pods", &refused);
    assert!(answer.contains("violates PodSecurity"), "{answer}");
}
