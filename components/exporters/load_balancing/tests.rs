//! Local gRPC servers as endpoints: who gets a service, lists that change, refusals, metrics, and the check.

use profcol_component::Severity;
use profcol_component::testkit::{batch, load};
use profcol_profile::KeyValue;

use super::*;
use crate::shared::backend::{self, GrpcBackend, context};

fn config(options: &str) -> LoadBalancingConfig {
    let otlp = "protocol: {otlp: {tls: {insecure: true}}}";
    load(&format!("{otlp}\n{options}")).unwrap()
}

fn exporter(options: &str) -> (Arc<LoadBalancing>, BuildContext) {
    let context = context("load_balancing");
    let exporter = LoadBalancing::new(&config(options), &context).unwrap();
    (Arc::new(exporter), context)
}

fn at(backends: &[&GrpcBackend]) -> String {
    let hostnames: Vec<_> = backends.iter().map(|it| &*it.address).collect();
    format!(
        "resolver: {{static: {{hostnames: [{}]}}}}",
        hostnames.join(", ")
    )
}

fn current(exporter: &LoadBalancing) -> Arc<Destinations> {
    let published = exporter.destinations().unwrap();
    let current = published.borrow();
    Arc::clone(&current)
}

/// The value of the metric, and of all its labels but `exporter`.
fn metric(context: &BuildContext, name: &str) -> Vec<(Vec<String>, f64)> {
    let series = context.meter.series().into_iter();
    let named = series.filter(|it| it.name == name);
    let values = named.map(|mut it| {
        it.labels.remove("exporter");
        (it.labels.into_values().collect(), it.value)
    });
    values.collect()
}

fn of(service: &str) -> Batch {
    let mut batch = batch(1);
    batch.profiles.update_resources(|resource| {
        resource.attributes = vec![KeyValue::new("service.name", service)];
        true
    });
    batch
}

#[tokio::test]
async fn equal_services_reach_the_same_endpoint() {
    let backends = [backend::grpc(), backend::grpc(), backend::grpc()];
    let (exporter, context) = exporter(&at(&backends.each_ref()));
    exporter.start().await.unwrap();
    let destinations = current(&exporter);
    assert_eq!(destinations.exporters().len(), 3);
    for number in 0..60 {
        let batch = of(&format!("service-{number}"));
        let chosen = destinations.choose(&batch.profiles)[0];
        for _ in 0..2 {
            destinations.exporters()[chosen]
                .export(&batch)
                .await
                .unwrap();
        }
        let seen: Vec<usize> = backends.iter().map(|it| it.seen().len()).collect();
        assert_eq!(seen.iter().max(), Some(&2), "{seen:?}");
    }
    let success = |success: &str| vec![success.to_owned()];
    assert_eq!(
        metric(&context, "otelcol_loadbalancer_backend_outcome"),
        [(success("false"), 0.0), (success("true"), 120.0)]
    );
    let by_static = vec!["static".to_owned()];
    assert_eq!(
        metric(&context, "otelcol_loadbalancer_num_backends"),
        [(by_static, 3.0)]
    );
}

#[tokio::test]
async fn a_refusal_names_the_endpoint() {
    let backend = backend::grpc();
    let address = &backend.address;
    let (exporter, _) = exporter(&at(&[&backend]));
    exporter.start().await.unwrap();
    backend.answer(Err(profcol_net::grpc::Status::new(
        profcol_net::grpc::Code::Unavailable,
        "busy",
    )));
    let refusal = current(&exporter).exporters()[0].export(&batch(1)).await;
    let expected = format!("{address}: rpc error: code = Unavailable desc = busy");
    assert_eq!(refusal, Err(Refusal::retry(expected)));
}

#[tokio::test]
async fn without_an_answer_of_dns_batches_wait_for_the_first_endpoint() {
    // The name is too long, so it fails without a DNS query.
    let name = "x".repeat(300);
    let (exporter, context) = exporter(&format!("resolver: {{dns: {{hostname: {name}}}}}"));
    exporter.start().await.unwrap();
    let waiting = current(&exporter);
    let refusal = waiting.exporters()[0].export(&batch(1)).await;
    assert_eq!(refusal, Err(Refusal::retry("no endpoint is known yet")));
    let by = |success: &str| vec!["dns".to_owned(), success.to_owned()];
    assert_eq!(
        metric(&context, "otelcol_loadbalancer_num_resolutions"),
        [(by("false"), 1.0), (by("true"), 0.0)]
    );
    let checks = exporter.check().await;
    assert_eq!(checks.len(), 1);
    assert_eq!(checks[0].severity(), Some(Severity::Failure));
}

#[tokio::test]
async fn an_endpoint_that_stays_keeps_its_connection() {
    let (exporter, context) = exporter("resolver: {dns: {hostname: localhost}}");
    let set = |endpoints: &[&str]| {
        let endpoints = endpoints.iter().map(|&it| it.to_owned()).collect();
        exporter.backends.set(endpoints).unwrap();
        current(&exporter)
    };
    let first = set(&["a:1", "b:1"]);
    let second = set(&["b:1", "c:1"]);
    assert!(Arc::ptr_eq(&first.exporters()[1], &second.exporters()[0]));
    // The same list, and none.
    for unchanged in [set(&["b:1", "c:1"]), set(&[])] {
        assert!(Arc::ptr_eq(&second, &unchanged));
    }
    let by_dns = vec!["dns".to_owned()];
    assert_eq!(
        metric(&context, "otelcol_loadbalancer_num_backend_updates"),
        [(by_dns, 2.0)]
    );
}

#[tokio::test]
async fn the_check_shakes_hands_with_each_endpoint() {
    let [one, other] = [backend::grpc(), backend::grpc()];
    let (exporter, _) = exporter(&at(&[&one, &other]));
    let found: Vec<_> = exporter
        .check()
        .await
        .into_iter()
        .map(|it| it.found)
        .collect();
    let answers = |it: &GrpcBackend| format!("{} answers and accepts profiles", it.address);
    let mut expected = [answers(&one), answers(&other)];
    expected.sort();
    assert_eq!(found, expected);
    assert_eq!((one.seen().len(), other.seen().len()), (1, 1));
}

#[test]
fn the_options_are_validated() {
    let problems = |options: &str| load::<LoadBalancingConfig>(options).unwrap_err();
    for (options, expected) in [
        ("{}", "resolver: no resolvers specified for the exporter"),
        (
            "resolver: {static: {hostnames: [a]}, dns: {hostname: a}}",
            "resolver: only one resolver should be specified",
        ),
        (
            "resolver: {static: }",
            "resolver::static::hostnames: no hostnames specified to resolve the backends",
        ),
        (
            "resolver: {static: {hostnames: [a, 'x://b']}}",
            "resolver::static::hostnames::1: scheme \"x\" is not supported",
        ),
        (
            "resolver: {dns: {interval: 0s}}",
            "resolver::dns::hostname: no hostname specified to resolve the backends\n\
             resolver::dns::interval: must be positive",
        ),
        (
            "{resolver: {dns: {hostname: a}}, routing_key: attributes}",
            "routing_attributes: must not be empty with `routing_key: attributes`",
        ),
        (
            "{resolver: {dns: {hostname: a}}, routing_key: traceID}",
            "routing_key: unsupported routing_key: \"traceID\"",
        ),
        (
            "{resolver: {dns: {hostname: a}}, protocol: {otlp: {endpoint: 'b:1'}}}",
            "protocol::otlp::endpoint: the endpoints come from `resolver`",
        ),
        (
            "{resolver: {dns: {hostname: a}}, sending_queue: {storage: file_storage}}",
            "sending_queue: is not supported",
        ),
        (
            "{resolver: {dns: {hostname: a}}, timeout: 1s}",
            "timeout: is not supported",
        ),
    ] {
        let found = problems(options);
        assert!(found.contains(expected), "{options}\n{found}");
    }
    let config = config("resolver: {dns: {hostname: a, port: 14317}}\nrouting_key: resource");
    assert_eq!(config.resolver.dns.as_ref().map(|it| it.port), Some(14317));
}
