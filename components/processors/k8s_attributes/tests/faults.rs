use super::recorded::{list, page, text};
use super::*;

fn status(name: &str) -> Answer {
    let body = text(name).unwrap();
    let status: serde_json::Value = serde_json::from_str(body).unwrap();
    let code = status["code"].as_u64().unwrap();
    Answer::Json(u16::try_from(code).unwrap(), body.to_owned())
}

fn watches(server: &Server, kind: &str) -> usize {
    let asked = server.asked().into_iter();
    asked
        .filter(|it| it.is_watch() && it.kind() == kind)
        .count()
}

fn lists(server: &Server, kind: &str) -> usize {
    let asked = server.asked().into_iter();
    asked
        .filter(|it| !it.is_watch() && it.kind() == kind)
        .count()
}

/// A server that is away, and comes.
#[tokio::test]
async fn a_server_that_is_away_costs_only_the_names() {
    let server = Server::start(recorded::answer).await;
    let (port, options) = (server.port, server.options(""));
    let id = container("st-0", "main");
    // The file of credentials has to stay, the server not.
    let folder = server.stop_but_keep().await;
    let running = Running::start(&options).await;
    let found = running.filled(&[("container.id", &id)]).await;
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(running.processor.unknown.get(), 1);
    running.reports("cannot read pods: ").await;
    let server = Server::on(port, recorded::answer).await;
    assert_eq!(
        running.learns(("container.id", &id), "k8s.pod.name").await,
        "st-0"
    );
    running.reports("Ok").await;
    drop((server, folder));
}

#[tokio::test]
async fn a_right_that_is_missing_is_named_and_costs_only_what_it_tells() {
    let server = Server::start(|asked| match asked.kind() {
        "replicasets" => status("forbidden"),
        _ => recorded::answer(asked),
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
async fn what_the_server_has_forgotten_is_listed_anew() {
    let check = async |forgotten: fn() -> Answer| {
        let server = Server::start(move |asked| match (asked.is_watch(), asked.kind()) {
            (true, "pods") => forgotten(),
            _ => recorded::answer(asked),
        })
        .await;
        let running = Running::start(&server.options("")).await;
        let end = Instant::now() + TIMEOUT;
        while lists(&server, "pods") < 3 {
            assert!(Instant::now() < end);
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let id = container("st-0", "main");
        let found = running.filled(&[("container.id", &id)]).await;
        assert_eq!(shown(&found, "k8s.pod.name"), "st-0");
    };
    // In the stream, as a real server does it, or at once.
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
async fn a_busy_server_is_left_alone_for_as_long_as_it_asks() {
    let server = Server::start(|asked| match asked.kind() {
        "pods" => Answer::Json(
            429,
            r#"{"kind": "Status", "status": "Failure", "message": "too many", "reason": "TooManyRequests", "details": {"retryAfterSeconds": 30}, "code": 429}"#.into(),
        ),
        _ => recorded::answer(asked),
    })
    .await;
    let running = Running::start(&server.options("")).await;
    running.reports("too many").await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(lists(&server, "pods"), 1);
}

#[tokio::test]
async fn watches_that_end_are_begun_where_they_ended_and_not_in_a_hurry() {
    let bookmark = r#"{"type":"BOOKMARK","object":{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"4711"}}}"#;
    let server = Server::start(move |asked| match (asked.is_watch(), asked.kind()) {
        (true, "pods") => Answer::Ended(vec![bookmark.to_owned()]),
        _ => recorded::answer(asked),
    })
    .await;
    let running = Running::start(&server.options("")).await;
    let id = container("st-0", "main");
    running.learns(("container.id", &id), "k8s.pod.name").await;
    tokio::time::sleep(Duration::from_millis(3500)).await;
    let count = watches(&server, "pods");
    assert!((2..=5).contains(&count), "{count} watches");
    assert_eq!(lists(&server, "pods"), 1);
    let asked = server.asked();
    let last = asked
        .iter()
        .rfind(|it| it.is_watch() && it.kind() == "pods");
    assert_eq!(last.unwrap().get("resourceVersion"), "4711");
}

#[tokio::test]
async fn credentials_that_expired_are_read_again() {
    let server = Server::start(|asked| {
        let token = asked
            .headers
            .get("authorization")
            .map_or("", String::as_str);
        match token {
            "Bearer second" => recorded::answer(asked),
            _ => status("unauthorized"),
        }
    })
    .await;
    let running = Running::start(&server.options("")).await;
    running.reports("does not take the credentials").await;
    server.write_kubeconfig("second");
    let id = container("st-0", "main");
    assert_eq!(
        running.learns(("container.id", &id), "k8s.pod.name").await,
        "st-0"
    );
}

#[tokio::test]
async fn ten_thousand_pods_come_by_pages_and_no_more_are_kept_than_is_allowed() {
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
    let server = Server::start(move |asked| match (asked.is_watch(), asked.kind()) {
        (false, "pods") => {
            assert_eq!(asked.get("limit"), PAGE.to_string());
            let begin = asked.get("continue").parse().unwrap_or(0);
            let end = begin + PAGE;
            let items: Vec<String> = (begin..end).map(&numbered).collect();
            let next = if end < PODS {
                end.to_string()
            } else {
                String::new()
            };
            Answer::Json(200, page(&items, &next))
        }
        _ => recorded::answer(asked),
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
async fn a_start_that_waits_for_everything_says_why_it_cannot() {
    let check = async |script: fn(&Asked) -> Answer, expected: &str| {
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
        "did not tell everything within wait_for_metadata_timeout (500ms)",
    )
    .await;
    let forbidden = |asked: &Asked| match asked.kind() {
        "pods" => status("forbidden"),
        _ => list(asked),
    };
    check(forbidden, "resources: [pods], verbs: [list, watch]").await;
    let rubbish = |_: &Asked| Answer::Json(200, "{\"items\": 7}".to_owned());
    check(rubbish, "Error deserializing response").await;
}

#[tokio::test]
async fn a_start_says_what_it_lacks() {
    let check = async |options: &str, expected: &str| {
        let error = Running::try_start(options).await.err().unwrap();
        assert!(error.to_string().contains(expected), "{error}");
    };
    check("", "found no service account").await;
    check(
        "{auth_type: kubeConfig, kube_config_path: /nonexistent}",
        "cannot use the kubeconfig file: ",
    )
    .await;
    check(
        "filter: {node_from_env_var: PROFCOL_NO_SUCH_VARIABLE}",
        "envvar \"PROFCOL_NO_SUCH_VARIABLE\" is not set",
    )
    .await;
    check("auth_type: none", "KUBERNETES_SERVICE_HOST").await;
}

/// Whoever changed the API, or stands in for it, does not cost us the objects that are as we know them.
#[tokio::test]
async fn objects_that_cannot_be_read_are_passed_over() {
    let odd = serde_json::json!({"metadata": {"name": 7, "uid": "odd"}});
    let mut young = pod("st-0");
    young["metadata"]["name"] = "young".into();
    let events = vec![
        event("ADDED", &odd),
        event("DELETED", &odd),
        event("MODIFIED", &young),
    ];
    let items = [odd.to_string(), pod("da-0").to_string()];
    let server = Server::start(move |asked| match (asked.is_watch(), asked.kind()) {
        (true, "pods") => Answer::Watch(events.clone()),
        (false, "pods") => Answer::Json(200, page(&items, "")),
        _ => recorded::answer(asked),
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

/// What `profcol doctor` asks.
#[tokio::test]
async fn a_check_names_each_right_that_is_missing_with_its_rule() {
    let server = Server::start(|asked| match asked.kind() {
        "replicasets" => status("forbidden"),
        _ => recorded::answer(asked),
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
    assert!(server.asked().iter().all(|it| !it.is_watch()));
    let folder = server.stop_but_keep().await;
    let checks = processor.check().await;
    assert!(checks.iter().all(|it| it.problem.is_some()), "{checks:?}");
    drop(folder);
}
