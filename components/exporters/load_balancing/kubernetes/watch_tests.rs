//! The resolver `k8s` with a scripted API server.

use std::sync::atomic::{AtomicUsize, Ordering};

use profcol_component::testkit::{batch, load, wait_until};
use profcol_component::{Severity, StatusBoard};
use profcol_kubernetes::testkit::{Answer, Request, Server};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::load_balancing::*;
use crate::shared::backend::{self, GrpcBackend, context};

const PATH: &str = "/apis/discovery.k8s.io/v1/namespaces/shop/endpointslices";

/// An exporter that runs until dropped.
struct Running {
    exporter: Arc<LoadBalancing>,
    context: BuildContext,
    _tasks: JoinSet<Result<(), RunError>>,
}

impl Running {
    async fn start(options: &str) -> Self {
        let (exporter, context) = exporter(options);
        exporter.start().await.unwrap();
        let mut tasks = JoinSet::new();
        tasks.spawn(Arc::clone(&exporter).run(Stop::new()));
        Self {
            exporter,
            context,
            _tasks: tasks,
        }
    }

    fn endpoints(&self) -> f64 {
        metric(&self.context, "otelcol_loadbalancer_num_backends", "")
    }

    async fn has(&self, endpoints: usize) {
        let expected = endpoints as f64;
        wait_until("endpoints", async || self.endpoints() == expected).await;
    }

    async fn reports(&self, text: &str) {
        let board: StatusBoard = self.context.shared.get();
        wait_until(text, async || {
            format!("{:?}", board.snapshot()).contains(text)
        })
        .await;
    }

    fn current(&self) -> Arc<Destinations> {
        let published = self.exporter.destinations().unwrap();
        let current = published.borrow();
        Arc::clone(&current)
    }
}

fn exporter(options: &str) -> (Arc<LoadBalancing>, BuildContext) {
    let options = format!(
        "{{protocol: {{otlp: {{tls: {{insecure: true}}}}}}, resolver: {{k8s: {options}}}}}"
    );
    let context = context("load_balancing");
    let exporter = LoadBalancing::new(&load(&options).unwrap(), &context).unwrap();
    (Arc::new(exporter), context)
}

/// The sum over all series with this value of `success`, or of all.
fn metric(context: &BuildContext, name: &str, success: &str) -> f64 {
    let series = context.meter.series().into_iter();
    let named = series
        .filter(|it| it.name == name && it.labels.get("success").is_none_or(|it| it == success));
    named.map(|it| it.value).sum()
}

fn slice(name: &str, addresses: &[&str]) -> Value {
    let endpoints = addresses.iter();
    let endpoints: Vec<Value> = endpoints
        .map(|it| json!({"addresses": [it], "conditions": {"ready": true}}))
        .collect();
    json!({"metadata": {"name": name, "resourceVersion": "11"}, "addressType": "IPv4", "endpoints": endpoints})
}

fn list(slices: &[Value]) -> Answer {
    let page = json!({"metadata": {"resourceVersion": "10"}, "items": slices});
    Answer::Json(200, page.to_string())
}

fn event(kind: &str, slice: &Value) -> String {
    json!({"type": kind, "object": slice}).to_string()
}

fn forbidden(_: &Request) -> Answer {
    let status = json!({"kind": "Status", "status": "Failure", "message": "endpointslices is forbidden", "code": 403});
    Answer::Json(403, status.to_string())
}

fn port_of(backend: &GrpcBackend) -> &str {
    backend.address.rsplit(':').next().unwrap()
}

#[tokio::test]
async fn follows_the_slices_of_the_service() {
    let server = Server::start(|request| {
        assert_eq!(request.path, PATH);
        assert_eq!(
            request.get("labelSelector"),
            "kubernetes.io/service-name=gateway"
        );
        match request.is_watch() {
            false => list(&[slice("a", &["10.0.0.1", "10.0.0.2"])]),
            true => Answer::Watch(vec![
                event("ADDED", &slice("b", &["10.0.0.3", "10.0.0.4"])),
                event("MODIFIED", &slice("a", &["10.0.0.2"])),
                event("DELETED", &slice("b", &[])),
                event("ADDED", &slice("c", &["10.0.0.5", "10.0.0.6"])),
            ]),
        }
    })
    .await;
    let running = Running::start(&server.options("service: gateway.shop")).await;
    running.has(3).await;
    let (ok, failed) = ("true", "false");
    let resolutions = |success| {
        metric(
            &running.context,
            "otelcol_loadbalancer_num_resolutions",
            success,
        )
    };
    // Of the list, and one for each time that changes were seen.
    assert!(
        (2.0..=5.0).contains(&resolutions(ok)),
        "{}",
        resolutions(ok)
    );
    assert_eq!(resolutions(failed), 0.0);
    assert_eq!(running.exporter.resolver.name(), "k8s");
    // The service has no pods for now: what is known stays.
    assert_eq!(running.current().exporters().len(), 3);
}

#[tokio::test]
async fn profiles_reach_the_pods() {
    let backend = backend::grpc();
    let server = Server::start(|request| match request.is_watch() {
        false => list(&[slice("a", &["127.0.0.1"])]),
        true => Answer::Watch(Vec::new()),
    })
    .await;
    let options = format!("service: gateway.shop, ports: [{}]", port_of(&backend));
    let running = Running::start(&server.options(&options)).await;
    running.current().exporters()[0]
        .export(&batch(1))
        .await
        .unwrap();
    assert_eq!(backend.seen().len(), 1);
}

/// The first list finds none: the slices come later.
#[tokio::test]
async fn a_service_without_pods_gets_some() {
    let watches = AtomicUsize::new(0);
    let server = Server::start(move |request| match request.is_watch() {
        false => list(&[]),
        true => match watches.fetch_add(1, Ordering::Relaxed) {
            0 => Answer::Ended(Vec::new()),
            _ => Answer::Watch(vec![event("ADDED", &slice("a", &["10.0.0.1"]))]),
        },
    })
    .await;
    let running = Running::start(&server.options("service: gateway.shop")).await;
    running
        .reports("the service gateway.shop has no ready endpoint")
        .await;
    assert_eq!(running.endpoints(), 0.0);
    let refusal = running.current().exporters()[0].export(&batch(1)).await;
    assert_eq!(refusal, Err(Refusal::retry("no endpoint is known yet")));
    running.has(1).await;
    running.reports("Ok").await;
}

#[tokio::test]
async fn a_server_that_is_down_is_asked_again() {
    let script = |request: &Request| match request.is_watch() {
        false => list(&[slice("a", &["10.0.0.1"])]),
        true => Answer::Watch(Vec::new()),
    };
    let server = Server::start(script).await;
    let (port, options) = (server.port, server.options("service: gateway.shop"));
    let directory = server.stop_but_keep().await;
    let running = Running::start(&options).await;
    running.reports("failed to read endpointslices: ").await;
    assert!(
        metric(
            &running.context,
            "otelcol_loadbalancer_num_resolutions",
            "false"
        ) >= 1.0
    );
    let server = Server::on(port, script).await;
    running.has(1).await;
    running.reports("Ok").await;
    drop((server, directory));
}

#[tokio::test]
async fn a_missing_right_is_named() {
    const RULE: &str = "add to the service account's Role in namespace shop: {apiGroups: [\"discovery.k8s.io\"], resources: [endpointslices], verbs: [list, watch]}";
    let server = Server::start(forbidden).await;
    let options = server.options("service: gateway.shop");
    let running = Running::start(&options).await;
    running.reports(&RULE.replace('"', "\\\"")).await;
    let (exporter, _) = exporter(&options);
    let checks = exporter.check().await;
    assert_eq!(checks.len(), 1, "{checks:?}");
    assert_eq!(checks[0].name, "api_server_endpointslices");
    assert_eq!(checks[0].problem.as_ref().unwrap().fix, RULE);
}

#[tokio::test]
async fn the_check_lists_the_endpoints() {
    let backend = backend::grpc();
    let server = Server::start(|_| list(&[slice("a", &["127.0.0.1"])])).await;
    let options = format!("service: gateway.shop, ports: [{}]", port_of(&backend));
    let checks = exporter(&server.options(&options)).0.check().await;
    let found: Vec<_> = checks.iter().map(|it| &*it.found).collect();
    let answers = format!("{} answers and accepts profiles", backend.address);
    assert_eq!(found, [answers]);
    let server = Server::start(|_| list(&[])).await;
    let checks = exporter(&server.options("service: gateway.shop"))
        .0
        .check()
        .await;
    assert_eq!(checks.len(), 1);
    assert_eq!(
        checks[0].found,
        "the service gateway.shop has no ready endpoint"
    );
    assert_eq!(checks[0].severity(), Some(Severity::Failure));
}

/// Without a namespace in the option: that of the kubeconfig's context, here `default`.
#[tokio::test]
async fn the_namespace_has_a_default() {
    let server = Server::start(|request| match request.is_watch() {
        false => list(&[json!({"metadata": {"name": "a"}, "addressType": "IPv4",
            "endpoints": [{"addresses": ["10.0.0.1"], "hostname": "gateway-0"}]})]),
        true => Answer::Watch(Vec::new()),
    })
    .await;
    let options = server.options("service: gateway, return_hostnames: true");
    let running = Running::start(&options).await;
    let first = server.requests().remove(0);
    assert_eq!(first.path, PATH.replace("/shop/", "/default/"));
    let found = running.exporter.resolver.resolve().await.unwrap();
    assert_eq!(
        found.into_iter().collect::<Vec<_>>(),
        ["gateway-0.gateway.default:4317"]
    );
}

#[tokio::test]
async fn a_slow_list_times_out_and_is_repeated() {
    let server = Server::start(|_| Answer::Silence).await;
    let running = Running::start(&server.options("service: a.b, timeout: 50ms")).await;
    running.reports("the list timed out").await;
    wait_until("the next list", async || server.requests().len() > 1).await;
}

#[tokio::test]
async fn outside_of_a_pod_it_does_not_start_without_a_kubeconfig() {
    let (exporter, _) = exporter("{service: gateway.shop}");
    let error = exporter.start().await.unwrap_err().to_string();
    assert!(error.contains("found no service account"), "{error}");
    let checks = exporter.check().await;
    assert!(
        checks[0].found.contains("found no service account"),
        "{checks:?}"
    );
}

#[test]
fn the_options_are_validated() {
    for (options, expected) in [
        (
            "{}",
            "resolver::k8s::service: no service specified to resolve the backends",
        ),
        (
            "{service: gateway.shop.svc.cluster.local}",
            "resolver::k8s::service: \"gateway.shop.svc.cluster.local\" is not a service: it must be `name` or `name.namespace`, without a domain",
        ),
        (
            "{service: A.b}",
            "resolver::k8s::service: \"A.b\" is not a service",
        ),
        (
            "{service: a., ports: []}",
            "resolver::k8s::ports: must not be empty",
        ),
        (
            "{service: a, ports: [0]}",
            "resolver::k8s::ports::0: must be positive",
        ),
        (
            "{service: a, ports: [1, 1]}",
            "resolver::k8s::ports::1: is listed twice",
        ),
        (
            "{service: a, timeout: 0s}",
            "resolver::k8s::timeout: must be positive",
        ),
        (
            "{service: a, context: x}",
            "resolver::k8s::context: requires auth_type: kubeConfig",
        ),
        (
            "{service: a, namespace: x}",
            "resolver::k8s: has invalid keys: namespace",
        ),
        (
            "{service: a}, dns: {hostname: b}",
            "resolver: only one resolver should be specified",
        ),
    ] {
        let text = format!("resolver: {{k8s: {options}}}");
        let found = load::<LoadBalancingConfig>(&text).unwrap_err();
        assert!(found.contains(expected), "{options}\n{found}");
    }
}
