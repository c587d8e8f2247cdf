//! A scripted API server that is down or busy, refuses, ends watches or sends damage: what is missing and reported.

use super::recorded::{list, page, text};
use super::*;

fn status(name: &str) -> Answer {
    let body = text(name).unwrap();
    let status: serde_json::Value = serde_json::from_str(body).unwrap();
    let code = status["code"].as_u64().unwrap();
    Answer::Json(u16::try_from(code).unwrap(), body.to_owned())
}

fn watches(server: &Server, kind: &str) -> usize {
    let requests = server.requests().into_iter();
    requests
        .filter(|it| it.is_watch() && it.kind() == kind)
        .count()
}

fn lists(server: &Server, kind: &str) -> usize {
    let requests = server.requests().into_iter();
    requests
        .filter(|it| !it.is_watch() && it.kind() == kind)
        .count()
}

/// The time between successive requests for pods, lists or watches.
fn pauses(server: &Server, is_watch: bool) -> Vec<Duration> {
    let requests = server.requests().into_iter();
    let requests = requests.filter(|it| it.is_watch() == is_watch && it.kind() == "pods");
    let times: Vec<Instant> = requests.map(|it| it.at).collect();
    times.windows(2).map(|pair| pair[1] - pair[0]).collect()
}

/// The server is down at first and comes up later.
#[tokio::test]
async fn without_a_server_only_names_are_missing() {
    let server = Server::start(recorded::answer).await;
    let (port, options) = (server.port, server.options(""));
    let id = container("st-0", "main");
    // Keeps the credentials file, but not the server.
    let directory = server.stop_but_keep().await;
    let running = Running::start(&options).await;
    let found = running.filled(&[("container.id", &id)]).await;
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(running.processor.unknown.get(), 1);
    running.reports("failed to read pods: ").await;
    let server = Server::on(port, recorded::answer).await;
    assert_eq!(
        running.learns(("container.id", &id), "k8s.pod.name").await,
        "st-0"
    );
    running.reports("Ok").await;
    drop((server, directory));
}

#[tokio::test]
async fn a_missing_permission_is_reported_and_affects_only_its_attributes() {
    let server = Server::start(|request| match request.kind() {
        "replicasets" => status("forbidden"),
        _ => recorded::answer(request),
    })
    .await;
    let running = Running::start(&server.options("")).await;
    let id = container("web-5d4f8c7b9-abcde", "main");
    running.learns(("container.id", &id), "k8s.pod.name").await;
    let found = running.filled(&[("container.id", &id)]).await;
    assert_eq!(shown(&found, "k8s.deployment.name"), "");
    running.reports("is forbidden").await;
    running
        .reports("add to the service account's ClusterRole: {apiGroups: [\\\"apps\\\"], resources: [replicasets], verbs: [list, watch]}")
        .await;
}

#[tokio::test]
async fn an_expired_resource_version_causes_a_new_list() {
    let check = async |forgotten: fn() -> Answer| {
        let server = Server::start(move |request| match (request.is_watch(), request.kind()) {
            (true, "pods") => forgotten(),
            _ => recorded::answer(request),
        })
        .await;
        let running = Running::start(&server.options("")).await;
        wait_until("new lists", async || lists(&server, "pods") >= 3).await;
        let id = container("st-0", "main");
        let found = running.filled(&[("container.id", &id)]).await;
        assert_eq!(shown(&found, "k8s.pod.name"), "st-0");
    };
    // In the stream, like a real server, or in the response.
    let in_stream = || {
        let event: serde_json::Value = serde_json::from_str(text("expired").unwrap()).unwrap();
        Answer::Ended(vec![event.to_string()])
    };
    let at_once = || {
        Answer::Json(
            410,
            r#"{"kind": "Status", "status": "Failure", "message": "too old", "code": 410}"#.into(),
        )
    };
    tokio::join!(check(in_stream), check(at_once));
}

#[tokio::test]
async fn honors_retry_after_of_a_busy_server() {
    let server = Server::start(|request| match request.kind() {
        "pods" => Answer::Json(
            429,
            r#"{"kind": "Status", "status": "Failure", "message": "too many", "reason": "TooManyRequests", "details": {"retryAfterSeconds": 3}, "code": 429}"#.into(),
        ),
        _ => recorded::answer(request),
    })
    .await;
    let running = Running::start(&server.options("")).await;
    running.reports("too many").await;
    wait_until("the next attempt", async || lists(&server, "pods") == 2).await;
    let pauses = pauses(&server, false);
    assert!(pauses[0] >= Duration::from_secs(3), "{pauses:?}");
}

#[tokio::test]
async fn ended_watches_resume_with_a_pause() {
    let bookmark = r#"{"type":"BOOKMARK","object":{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"4711"}}}"#;
    let server = Server::start(move |request| match (request.is_watch(), request.kind()) {
        (true, "pods") => Answer::Ended(vec![bookmark.to_owned()]),
        _ => recorded::answer(request),
    })
    .await;
    let running = Running::start(&server.options("")).await;
    let id = container("st-0", "main");
    running.learns(("container.id", &id), "k8s.pod.name").await;
    wait_until("watches", async || watches(&server, "pods") >= 3).await;
    let pauses = pauses(&server, true);
    // A pause starts with the previous request's call, slightly before the server reads it.
    let is_paced = pauses.iter().all(|it| *it >= Duration::from_millis(800));
    assert!(is_paced, "{pauses:?}");
    assert_eq!(lists(&server, "pods"), 1);
    let requests = server.requests();
    let last = requests
        .iter()
        .rfind(|it| it.is_watch() && it.kind() == "pods");
    assert_eq!(last.unwrap().get("resourceVersion"), "4711");
}

#[tokio::test]
async fn expired_credentials_are_read_again() {
    let server = Server::start(|request| {
        let token = request
            .headers
            .get("authorization")
            .map_or("", String::as_str);
        match token {
            "Bearer second" => recorded::answer(request),
            _ => status("unauthorized"),
        }
    })
    .await;
    let running = Running::start(&server.options("")).await;
    running.reports("rejected the credentials").await;
    server.write_kubeconfig("second");
    let id = container("st-0", "main");
    assert_eq!(
        running.learns(("container.id", &id), "k8s.pod.name").await,
        "st-0"
    );
}

#[tokio::test]
async fn lists_ten_thousand_pods_by_pages_and_honors_max_pods() {
    const PODS: usize = 10_000;
    const PAGE: usize = 500;
    let mut template = pod("st-0");
    let object = template.as_object_mut().unwrap();
    object["metadata"]["name"] = "p0".into();
    object["metadata"]["uid"] = "uid-0".into();
    object["status"] = serde_json::json!({"containerStatuses": [{"name": "main", "containerID": "containerd://c0"}]});
    let template = template.to_string();
    let numbered = move |number: usize| {
        let name = template.replace("\"p0\"", &format!("\"p{number}\""));
        let uid = name.replace("uid-0", &format!("uid-{number}"));
        uid.replace("//c0", &format!("//c{number}"))
    };
    let server = Server::start(move |request| match (request.is_watch(), request.kind()) {
        (false, "pods") => {
            assert_eq!(request.get("limit"), PAGE.to_string());
            let begin = request.get("continue").parse().unwrap_or(0);
            let end = begin + PAGE;
            let items: Vec<String> = (begin..end).map(&numbered).collect();
            let next = if end < PODS {
                end.to_string()
            } else {
                String::new()
            };
            Answer::Json(200, page(&items, &next))
        }
        _ => recorded::answer(request),
    })
    .await;
    let running =
        Running::start(&server.options("wait_for_metadata: true, wait_for_metadata_timeout: 60s"))
            .await;
    for number in [0, PAGE, PODS - 1] {
        let found = running
            .filled(&[("container.id", &format!("c{number}"))])
            .await;
        assert_eq!(shown(&found, "k8s.pod.name"), format!("p{number}"));
    }
    assert_eq!(lists(&server, "pods"), PODS / PAGE);
    let bounded = "wait_for_metadata: true, wait_for_metadata_timeout: 60s, max_pods: 600";
    let running = Running::start(&server.options(bounded)).await;
    let found = running.filled(&[("container.id", "c599")]).await;
    assert_eq!(shown(&found, "k8s.pod.name"), "p599");
    let found = running.filled(&[("container.id", "c600")]).await;
    assert_eq!(shown(&found, "k8s.pod.name"), "");
    let counted = running.processor.context.meter.counter(
        "profcol_k8s_attributes_over_limit",
        "",
        &[("processor", "k8s_attributes")],
    );
    assert_eq!(counted.get(), (PODS - 600) as u64);
}

#[tokio::test]
async fn wait_for_metadata_reports_why_it_failed() {
    let check = async |script: fn(&Request) -> Answer, expected: &str| {
        let server = Server::start(script).await;
        let options = "wait_for_metadata: true, wait_for_metadata_timeout: 500ms";
        let error = Running::try_start(&server.options(options))
            .await
            .err()
            .unwrap();
        assert!(error.to_string().contains(expected), "{error}");
    };
    check(
        |_| Answer::Silence,
        "did not return everything within wait_for_metadata_timeout (500ms)",
    )
    .await;
    let forbidden = |request: &Request| match request.kind() {
        "pods" => status("forbidden"),
        _ => list(request),
    };
    check(forbidden, "resources: [pods], verbs: [list, watch]").await;
    let rubbish = |_: &Request| Answer::Json(200, "{\"items\": 7}".to_owned());
    check(rubbish, "Error deserializing response").await;
}

#[tokio::test]
async fn a_failed_start_reports_the_reason() {
    let check = async |options: &str, expected: &str| {
        let error = Running::try_start(options).await.err().unwrap();
        assert!(error.to_string().contains(expected), "{error}");
    };
    check("", "found no service account").await;
    check(
        "{auth_type: kubeConfig, kube_config_path: /nonexistent}",
        "failed to use the kubeconfig file: ",
    )
    .await;
    check(
        "filter: {node_from_env_var: PROFCOL_NO_SUCH_VARIABLE}",
        "envvar \"PROFCOL_NO_SUCH_VARIABLE\" is not set",
    )
    .await;
    check("auth_type: none", "KUBERNETES_SERVICE_HOST").await;
}

/// An unexpected object must not affect those that decode.
#[tokio::test]
async fn skips_objects_that_fail_to_decode() {
    let odd = serde_json::json!({"metadata": {"name": 7, "uid": "odd"}});
    let mut young = pod("st-0");
    young["metadata"]["name"] = "young".into();
    let events = vec![
        event("ADDED", &odd),
        event("DELETED", &odd),
        event("MODIFIED", &young),
    ];
    let items = [odd.to_string(), pod("da-0").to_string()];
    let server = Server::start(move |request| match (request.is_watch(), request.kind()) {
        (true, "pods") => Answer::Watch(events.clone()),
        (false, "pods") => Answer::Json(200, page(&items, "")),
        _ => recorded::answer(request),
    })
    .await;
    let running = Running::start(&server.options("")).await;
    let name = async |pod: &str| {
        let id = container(pod, "main");
        running.learns(("container.id", &id), "k8s.pod.name").await
    };
    assert_eq!(
        (&*name("da-0").await, &*name("st-0").await),
        ("da-0", "young")
    );
    let counted = running.processor.context.meter.counter(
        "profcol_k8s_attributes_unreadable",
        "",
        &[("processor", "k8s_attributes"), ("resource", "pods")],
    );
    assert_eq!((counted.get(), lists(&server, "pods")), (3, 1));
}

/// The check for `profcol doctor`.
#[tokio::test]
async fn the_check_names_each_missing_permission_with_its_rule() {
    let server = Server::start(|request| match request.kind() {
        "replicasets" => status("forbidden"),
        _ => recorded::answer(request),
    })
    .await;
    let context = context("k8s_attributes");
    let processor = K8sAttributes::new(&load(&server.options("")).unwrap(), &context).unwrap();
    let checks = processor.check().await;
    let failed: Vec<_> = checks.iter().filter(|it| it.problem.is_some()).collect();
    assert_eq!(failed.len(), 1, "{checks:?}");
    assert!(checks.len() > 1, "{checks:?}");
    assert_eq!(failed[0].name, "api_server_replicasets");
    let problem = failed[0].problem.as_ref().unwrap();
    assert!(
        problem
            .fix
            .contains("resources: [replicasets], verbs: [list, watch]"),
        "{problem:?}"
    );
    assert!(server.requests().iter().all(|it| !it.is_watch()));
    let directory = server.stop_but_keep().await;
    let checks = processor.check().await;
    assert!(checks.iter().all(|it| it.problem.is_some()), "{checks:?}");
    drop(directory);
}
