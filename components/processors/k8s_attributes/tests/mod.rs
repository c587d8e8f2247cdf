//! A scripted API server and kubelet with recorded answers: which pod a resource belongs to, what is requested, and
//! pods that come and go.

mod faults;
mod options;
mod recorded;
mod services;
mod waiting;

use std::time::{Duration, Instant};

use profcol_component::StatusBoard;
use profcol_component::testkit::{context, load, wait_until};
use profcol_kubernetes::Change;
use profcol_kubernetes::testkit::{Answer, Request, Server};
use profcol_profile::{Attributes, KeyValue};
use tokio::task::JoinSet;

use self::recorded::{container, event, pod, uid};

use super::*;
use crate::shared::testkit::{Keep, batch_of, resource_after};
use profcol_metadata::attributes::{CGROUP, find};

/// Far longer than any test takes.
const TIMEOUT: Duration = Duration::from_secs(20);

/// A processor that runs until dropped.
struct Running {
    processor: Arc<K8sAttributes>,
    board: StatusBoard,
    _tasks: JoinSet<Result<(), RunError>>,
}

impl Running {
    async fn start(options: &str) -> Self {
        Self::try_start(options).await.unwrap()
    }

    async fn try_start(options: &str) -> Result<Self, StartError> {
        let context = context("k8s_attributes");
        let processor = K8sAttributes::new(&load(options).unwrap(), &context).unwrap();
        processor.start().await?;
        let processor = Arc::new(processor);
        let keep: Arc<dyn Consumer> = Arc::new(Keep::default());
        let mut tasks = JoinSet::new();
        tasks.spawn(Arc::clone(&processor).run(keep, Stop::new()));
        Ok(Self {
            processor,
            board: context.shared.get(),
            _tasks: tasks,
        })
    }

    /// The resource's attributes after processing.
    async fn filled(&self, attributes: &[(&str, &str)]) -> Attributes {
        self.filled_from(None, attributes).await
    }

    async fn filled_from(&self, peer: Option<&str>, attributes: &[(&str, &str)]) -> Attributes {
        let attributes = attributes.iter();
        let attributes = attributes.map(|(key, value)| KeyValue::new(key, *value));
        let peer = peer.map(|peer| peer.parse().unwrap());
        let batch = batch_of(attributes.collect()).with_peer(peer);
        resource_after(&*self.processor, batch).await
    }

    /// Waits until a resource with this attribute gets `key`, and returns its value.
    async fn learns(&self, attribute: (&str, &str), key: &str) -> String {
        let end = Instant::now() + TIMEOUT;
        loop {
            let found = self.filled(&[attribute]).await;
            if find(&found, key).is_some() {
                return shown(&found, key);
            }
            assert!(
                Instant::now() < end,
                "{attribute:?} gets no {key}: {found:?}"
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Waits until the status contains the text.
    async fn reports(&self, text: &str) {
        let end = Instant::now() + TIMEOUT;
        loop {
            let statuses = format!("{:?}", self.board.snapshot());
            if statuses.contains(text) {
                return;
            }
            assert!(Instant::now() < end, "{statuses} does not say {text:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

fn shown(attributes: &Attributes, key: &str) -> String {
    let found = find(attributes, key).and_then(profcol_labels::text);
    found.unwrap_or_default().into_owned()
}

/// All fields, so that all kinds of objects are read.
const EVERYTHING: &str = "extract: {metadata: [k8s.namespace.name, k8s.pod.name, k8s.pod.uid, \
    k8s.pod.hostname, k8s.pod.ip, k8s.pod.start_time, k8s.pod.phase, k8s.pod.ready, k8s.pod.host_ip, \
    k8s.pod.controller.kind, k8s.pod.controller.name, k8s.replicaset.name, k8s.replicaset.uid, \
    k8s.deployment.name, k8s.deployment.uid, k8s.daemonset.name, k8s.daemonset.uid, \
    k8s.statefulset.name, k8s.statefulset.uid, k8s.job.name, k8s.job.uid, k8s.cronjob.name, \
    k8s.cronjob.uid, k8s.node.name, k8s.node.uid, k8s.cluster.uid, k8s.container.name, \
    k8s.container.restart_count, k8s.container.init, k8s.container.image, container.id, container.image.name, \
    container.image.tag, container.image.repo_digests], \
    labels: [{key: app}, {key_regex: 'team|tier', from: namespace}, {tag_name: zone, \
    key: topology.kubernetes.io/zone, from: node}, {tag_name: 'd_$1', key_regex: 't(.*)', from: deployment}], \
    annotations: [{key: kubernetes.io/config.hash}], otel_annotations: true}";

#[tokio::test]
async fn adds_all_attributes_of_all_kinds_of_pods() {
    let server = Server::start(recorded::answer).await;
    let running = Running::start(&server.options(EVERYTHING)).await;
    let web = container("web-5d4f8c7b9-abcde", "main");
    running.learns(("container.id", &web), "d_ier").await;
    running
        .learns(("container.id", &web), "k8s.cluster.uid")
        .await;
    running
        .learns(("container.id", &web), "k8s.namespace.label.team")
        .await;
    running.learns(("container.id", &web), "zone").await;
    running
        .learns(
            ("container.id", &container("tidy-28391234-x", "main")),
            "k8s.cronjob.uid",
        )
        .await;
    let check = async |pod: &str, container_name: &str, expected: &[(&str, &str)]| {
        let id = container(pod, container_name);
        let found = running.filled(&[("container.id", &id)]).await;
        let common = [
            ("k8s.pod.name", pod),
            ("k8s.namespace.name", "shop"),
            ("k8s.node.name", "n1"),
            ("k8s.pod.start_time", "2026-01-01T00:00:00Z"),
            ("k8s.pod.phase", "Running"),
            ("k8s.pod.ready", "true"),
            ("k8s.pod.host_ip", "10.9.0.1"),
            ("k8s.pod.hostname", pod),
            ("k8s.pod.label.app", "web"),
            ("k8s.namespace.label.team", "checkout"),
            ("zone", "a"),
            ("k8s.container.name", container_name),
            (
                "container.image.repo_digests",
                &format!("docker.io/library/x@sha256:{}", "b".repeat(64)),
            ),
        ];
        for (key, value) in common.iter().chain(expected) {
            assert_eq!(shown(&found, key), *value, "{key} of {pod}: {found:?}");
        }
        assert_eq!(shown(&found, "k8s.pod.uid"), uid(pod));
        found
    };
    let found = check(
        "web-5d4f8c7b9-abcde",
        "main",
        &[
            ("k8s.replicaset.name", "web-5d4f8c7b9"),
            ("k8s.deployment.name", "web"),
            ("d_ier", "front"),
            ("k8s.pod.controller.kind", "ReplicaSet"),
            ("container.image.name", "registry:5000/shop/web"),
            ("container.image.tag", "1.2"),
            ("k8s.container.restart_count", "0"),
            ("k8s.container.init", "false"),
            ("k8s.container.image", "registry:5000/shop/web:1.2"),
            ("service.name", "webshop"),
            ("k8s.daemonset.name", ""),
            ("k8s.pod.ip", "10.244.0.1"),
        ],
    )
    .await;
    assert!(!shown(&found, "k8s.deployment.uid").is_empty(), "{found:?}");
    let proxy = [
        ("container.image.name", "envoy"),
        ("container.image.tag", "latest"),
    ];
    check("web-5d4f8c7b9-abcde", "proxy", &proxy).await;
    check(
        "web-5d4f8c7b9-abcde",
        "setup",
        &[("k8s.container.init", "true")],
    )
    .await;
    check(
        "web-5d4f8c7b9-abcde",
        "debugger",
        &[
            ("k8s.container.init", "false"),
            ("container.image.name", "busybox"),
            ("container.image.tag", "1.36"),
        ],
    )
    .await;
    check(
        "st-0",
        "main",
        &[("k8s.statefulset.name", "st"), ("k8s.deployment.name", "")],
    )
    .await;
    check("da-0", "main", &[("k8s.daemonset.name", "da")]).await;
    check(
        "tidy-28391234-x",
        "main",
        &[
            ("k8s.job.name", "tidy-28391234"),
            ("k8s.cronjob.name", "tidy"),
        ],
    )
    .await;
    let hash = [(
        "k8s.pod.annotation.kubernetes.io/config.hash",
        &*"c".repeat(32),
    )];
    check("static-n1", "main", &hash).await;
}

#[tokio::test]
async fn finds_pods_by_container_pod_and_address() {
    let server = Server::start(recorded::answer).await;
    let running = Running::start(&server.options("")).await;
    let (name, uid) = ("web-5d4f8c7b9-abcde", uid("web-5d4f8c7b9-abcde"));
    let id = container(name, "main");
    running
        .learns(("container.id", &id), "k8s.deployment.name")
        .await;
    let check = async |attributes: &[(&str, &str)], pod: &str, container: &str| {
        let found = running.filled(attributes).await;
        assert_eq!(shown(&found, "k8s.pod.name"), pod, "{attributes:?}");
        assert_eq!(
            shown(&found, "k8s.container.name"),
            container,
            "{attributes:?}"
        );
    };
    check(&[("container.id", &id)], name, "main").await;
    check(
        &[(CGROUP, &format!("/system.slice/docker-{id}.scope"))],
        name,
        "main",
    )
    .await;
    let by_pod = format!("/kubepods/burstable/pod{uid}/{}", "9".repeat(64));
    check(&[(CGROUP, &by_pod)], name, "").await;
    check(&[("k8s.pod.uid", &uid)], name, "").await;
    check(
        &[("k8s.pod.uid", &uid), ("k8s.container.name", "proxy")],
        name,
        "proxy",
    )
    .await;
    check(&[("k8s.pod.ip", "10.244.0.1")], name, "").await;
    check(&[("k8s.pod.ip", "fd00:0::1")], name, "").await;
    check(&[("host.name", "10.244.0.1")], name, "").await;
    check(&[("host.name", "n1")], "", "").await;
    // A pod on the host network has the host's address.
    check(&[("k8s.pod.ip", "10.244.0.5")], "", "").await;
    // On its node, a static pod is identified by the hash of its file.
    let hash = format!("/kubepods.slice/kubepods-pod{}.slice/x", "c".repeat(32));
    check(&[(CGROUP, &hash)], "static-n1", "").await;
    check(&[("k8s.pod.name", name)], name, "").await;
    check(&[("container.id", "unknown")], "", "").await;
    check(&[], "", "").await;
    let options = "pod_association: [{sources: [{from: resource_attribute, name: k8s.namespace.name}, \
        {from: resource_attribute, name: k8s.pod.name}]}, {sources: [{name: pod_app}, {name: k8s.pod.ip}]}], \
        extract: {labels: [{tag_name: pod_app, key: app}], metadata: [k8s.pod.uid]}";
    let running = Running::start(&server.options(options)).await;
    let found = running
        .learns(("k8s.namespace.name", "none"), "k8s.namespace.name")
        .await;
    assert_eq!(found, "none");
    let pair = [("k8s.namespace.name", "shop"), ("k8s.pod.name", "st-0")];
    wait_until("the pod", async || {
        !shown(&running.filled(&pair).await, "k8s.pod.uid").is_empty()
    })
    .await;
    let check = async |attributes: &[(&str, &str)], expected: &str| {
        let found = running.filled(attributes).await;
        assert_eq!(shown(&found, "k8s.pod.uid"), expected, "{attributes:?}");
    };
    check(&[("k8s.namespace.name", "shop")], "").await;
    check(&[("k8s.namespace.name", "x"), ("k8s.pod.name", "st-0")], "").await;
    check(
        &[("pod_app", "web"), ("k8s.pod.ip", "10.244.0.2")],
        &self::uid("st-0"),
    )
    .await;
    check(&[("pod_app", "x"), ("k8s.pod.ip", "10.244.0.2")], "").await;
}

#[tokio::test]
async fn uses_the_sender_without_other_attributes() {
    let server = Server::start(recorded::answer).await;
    let running = Running::start(&server.options("")).await;
    running
        .learns(("k8s.pod.ip", "10.244.0.1"), "k8s.pod.name")
        .await;
    let by = |rule: &str| {
        server.options(&format!(
            "wait_for_metadata: true, pod_association: [{{sources: [{rule}]}}]"
        ))
    };
    let by_connection = Running::start(&by("{from: connection}")).await;
    let passing = Running::start("{passthrough: true}").await;
    let check =
        async |running: &Running, peer: &str, attributes: &[(&str, &str)], expected: &str| {
            let found = running.filled_from(Some(peer), attributes).await;
            let key = match running.processor.config.passthrough {
                true => "k8s.pod.ip",
                false => "k8s.pod.name",
            };
            assert_eq!(shown(&found, key), expected, "{peer} {attributes:?}");
        };
    let host = (CGROUP, "/user.slice");
    check(&running, "::ffff:10.244.0.2", &[], "st-0").await;
    check(
        &running,
        "10.244.0.2",
        &[("k8s.pod.ip", "10.244.0.1")],
        "web-5d4f8c7b9-abcde",
    )
    .await;
    check(&running, "10.244.0.2", &[host], "").await;
    check(&running, "10.244.0.2", &[("container.id", "x")], "").await;
    check(&by_connection, "10.244.0.2", &[host], "st-0").await;
    check(&passing, "10.244.0.2", &[], "10.244.0.2").await;
    check(
        &passing,
        "10.244.0.2",
        &[("ip", "10.244.0.9")],
        "10.244.0.9",
    )
    .await;
    check(&passing, "10.244.0.2", &[host], "").await;
}

#[tokio::test]
async fn queries_the_kubelet_for_unknown_pods() {
    let served = Arc::new(Mutex::new(Vec::new()));
    let shown_pods = Arc::clone(&served);
    let server = Server::start(move |request| match request.path.as_str() {
        "/pods" => Answer::Json(200, recorded::page(&shown_pods.lock(), "")),
        _ => Answer::Json(404, String::new()),
    })
    .await;
    served.lock().push(pod("web-5d4f8c7b9-abcde").to_string());
    let interval = Duration::from_millis(300);
    let options = format!(
        "{{source: kubelet, kubelet: {{endpoint: 'http://127.0.0.1:{}', poll_interval: {interval:?}}}, auth_type: none}}",
        server.port
    );
    let running = Running::start(&options).await;
    let web = container("web-5d4f8c7b9-abcde", "main");
    assert_eq!(
        running
            .learns(("container.id", &web), "k8s.deployment.name")
            .await,
        "web"
    );
    // Known pods cause no further request, also after the interval.
    let before = server.requests().len();
    for _ in 0..2 {
        tokio::time::sleep(2 * interval).await;
        running.filled(&[("container.id", &web)]).await;
    }
    assert!(server.requests().len() <= before + 1);
    served.lock().push(pod("st-0").to_string());
    let id = container("st-0", "main");
    assert_eq!(
        running.learns(("container.id", &id), "k8s.pod.name").await,
        "st-0"
    );
    // A new container of a known pod.
    let mut restarted = pod("st-0");
    let id = "5".repeat(64);
    restarted["status"]["containerStatuses"][0]["containerID"] =
        format!("containerd://{id}").into();
    let name = restarted["status"]["containerStatuses"][0]["name"].clone();
    served.lock()[1] = restarted.to_string();
    let cgroup = format!("/kubepods/pod{}/{id}", uid("st-0"));
    assert_eq!(
        running
            .learns((CGROUP, &cgroup), "k8s.container.name")
            .await,
        name.as_str().unwrap()
    );
}

#[tokio::test]
async fn requests_only_what_is_needed() {
    let check = async |options: &str, expected: &[&str]| {
        let server = Server::start(recorded::answer).await;
        let running = Running::start(&server.options(options)).await;
        let end = Instant::now() + TIMEOUT;
        let mut lists: Vec<String> = Vec::new();
        while lists.len() < expected.len() {
            assert!(Instant::now() < end, "{lists:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
            let requests = server.requests().into_iter().filter(|it| !it.is_watch());
            lists = requests.map(|it| described(&it)).collect();
            lists.sort();
        }
        assert_eq!(lists, expected, "{options}");
        drop(running);
    };
    let meta = "as PartialObjectMetadataList";
    check(
        "filter: {node: n1}",
        &[
            "/api/v1/pods spec.nodeName=n1",
            &format!("/apis/apps/v1/replicasets {meta}"),
        ],
    )
    .await;
    check(
        "extract: {deployment_name_from_replicaset: true}, filter: {namespace: shop, \
         labels: [{key: app, value: web}, {key: a, op: exists}, {key: b, op: does-not-exist}], \
         fields: [{key: status.phase, value: Failed, op: not-equals}]}",
        &["/api/v1/namespaces/shop/pods status.phase!=Failed app=web,a,!b"],
    )
    .await;
    check(
        "filter: {node: n1}, extract: {metadata: [k8s.cluster.uid, k8s.node.uid]}",
        &[
            &format!("/api/v1/namespaces metadata.name=kube-system {meta}"),
            &format!("/api/v1/nodes metadata.name=n1 {meta}"),
            "/api/v1/pods spec.nodeName=n1",
        ],
    )
    .await;
}

fn described(request: &Request) -> String {
    let accept = request.headers.get("accept").map_or("", String::as_str);
    let is_meta = accept.contains("as=PartialObjectMetadataList");
    let meta = if is_meta {
        "as PartialObjectMetadataList"
    } else {
        ""
    };
    let parts = [
        request.path.as_str(),
        request.get("fieldSelector"),
        &request.get("labelSelector").replace("%2C", ","),
        meta,
    ];
    let parts: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    parts.join(" ")
}

#[tokio::test]
async fn the_sandbox_is_not_matched_to_the_only_container() {
    let server = Server::start(recorded::answer).await;
    let options = server.options("wait_for_metadata: true");
    let running = Running::start(&options).await;
    let mut alone = pod("st-0");
    for list in ["containers", "initContainers"] {
        let list = alone["spec"][list].as_array_mut().unwrap();
        list.retain(|it| it["name"] == "main");
    }
    let change = Change::Put(serde_json::from_value(alone).unwrap());
    running.processor.directory.change_pods(change);
    let uid = uid("st-0");
    let by_uid = running.filled(&[("k8s.pod.uid", &uid)]).await;
    assert_eq!(shown(&by_uid, "k8s.container.name"), "main");
    let sandbox = format!("/kubepods/besteffort/pod{uid}/{}", "9".repeat(64));
    let found = running.filled(&[(CGROUP, &sandbox)]).await;
    assert_eq!(shown(&found, "k8s.pod.name"), "st-0");
    assert_eq!(shown(&found, "k8s.container.name"), "");
}

#[tokio::test]
async fn follows_added_changed_and_deleted_pods() {
    let mut young = pod("st-0");
    young["metadata"]["name"] = "young".into();
    young["metadata"]["uid"] = "11111111-2222-3333-4444-555555555555".into();
    young["metadata"]["ownerReferences"] = serde_json::Value::Array(Vec::new());
    young["status"] = serde_json::json!({"phase": "Pending"});
    let added = event("ADDED", &young);
    let id = "7".repeat(64);
    young["status"] = serde_json::json!({"phase": "Running", "podIP": "10.244.0.2", "containerStatuses":
        [{"name": "main", "containerID": format!("containerd://{id}"), "restartCount": 3, "lastState":
            {"terminated": {"containerID": format!("containerd://{}", "6".repeat(64))}}}]});
    let lines = vec![
        added,
        event("MODIFIED", &young),
        event("DELETED", &pod("da-0")),
    ];
    let server = Server::start(move |request| match (request.is_watch(), request.kind()) {
        (true, "pods") => Answer::Watch(lines.clone()),
        _ => recorded::answer(request),
    })
    .await;
    let options = "keep_deleted_for: 1h, extract: {metadata: [k8s.pod.name, k8s.container.name, k8s.container.restart_count]}";
    let running = Running::start(&server.options(options)).await;
    assert_eq!(
        running
            .learns(("container.id", &id), "k8s.container.restart_count")
            .await,
        "3"
    );
    let before = running.filled(&[("container.id", &"6".repeat(64))]).await;
    assert_eq!(shown(&before, "k8s.container.restart_count"), "2");
    // It reuses the address of another pod.
    let found = running.filled(&[("k8s.pod.ip", "10.244.0.2")]).await;
    assert_eq!(shown(&found, "k8s.pod.name"), "young");
    // A deleted pod is kept for its last profiles, then removed.
    let gone = container("da-0", "main");
    let found = running.filled(&[("container.id", &gone)]).await;
    assert_eq!(shown(&found, "k8s.pod.name"), "da-0");
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(3601)).await;
    let change = Change::Put(serde_json::from_value(young).unwrap());
    running.processor.directory.change_pods(change);
    let found = running.filled(&[("container.id", &gone)]).await;
    assert_eq!(shown(&found, "k8s.pod.name"), "");
}

#[tokio::test]
async fn ignores_excluded_and_annotated_pods() {
    let mut shy = pod("st-0");
    shy["metadata"]["annotations"]["opentelemetry.io/k8s-processor/ignore"] = "True".into();
    let line = event("MODIFIED", &shy);
    let server = Server::start(move |request| match (request.is_watch(), request.kind()) {
        (true, "pods") => Answer::Watch(vec![line.clone()]),
        _ => recorded::answer(request),
    })
    .await;
    let running = Running::start(&server.options("exclude: {pods: [{name: '^da'}]}")).await;
    let web = container("web-5d4f8c7b9-abcde", "main");
    running.learns(("container.id", &web), "k8s.pod.name").await;
    let id = container("st-0", "main");
    wait_until("the annotated pod to be removed", async || {
        let found = running.filled(&[("container.id", &id)]).await;
        shown(&found, "k8s.pod.name").is_empty()
    })
    .await;
    let found = running
        .filled(&[("container.id", &container("da-0", "main"))])
        .await;
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(running.processor.unknown.get() > 0);
}
