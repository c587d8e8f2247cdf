//! Each action on handmade attributes, batches that keep their bytes, and the answer of the next consumer.

use std::sync::Arc;

use profcol_component::testkit::{Sink, batch, batch_with_outcomes};
use profcol_component::{Metadata, Outcome, Refusal};
use profcol_profile::{Attributes, KeyValue, Profiles, Validation, Value};

use super::*;
use crate::shared::testkit::Keep;
use profcol_component::testkit::load;

fn processor(actions: &str) -> ResourceProcessor {
    let config = load::<ResourceConfig>(&format!("attributes: [{actions}]")).unwrap();
    ResourceProcessor::new(&config).unwrap()
}

/// A batch as received over the network: bytes, not decoded.
fn received(attributes: &[(&str, Value)]) -> Batch {
    let mut batch = batch(2);
    batch.profiles.update_resources(|resource| {
        resource.attributes = attributes
            .iter()
            .map(|(key, value)| KeyValue::new(key, value.clone()))
            .collect();
        true
    });
    let wire = batch.profiles.to_wire();
    let received = Profiles::from_wire(wire, Validation::Reject).unwrap();
    batch.with_profiles(received.profiles)
}

async fn processed(actions: &str, batch: Batch) -> Profiles {
    let keep = Keep::default();
    processor(actions).process(batch, &keep).await.unwrap();
    keep.into_inner().remove(0)
}

fn attributes(profiles: &Profiles) -> Attributes {
    let resource = profiles.model().resources[0].resource.clone();
    Arc::unwrap_or_clone(resource.unwrap()).attributes
}

fn show(value: &Value) -> String {
    format!("{value:?}")
}

async fn check(actions: &str, before: &[(&str, Value)], after: &[(&str, Value)]) {
    let changed = processed(actions, received(before)).await;
    let found = attributes(&changed);
    let found: Vec<(&str, String)> = found.iter().map(|it| (&*it.key, show(&it.value))).collect();
    let expected: Vec<(&str, String)> = after
        .iter()
        .map(|(key, value)| (*key, show(value)))
        .collect();
    assert_eq!(found, expected, "{actions}");
    assert_eq!(changed.sample_count(), 2);
}

fn text(text: &str) -> Value {
    Value::from(text)
}

#[tokio::test]
async fn insert_update_and_upsert_differ_in_when_they_set() {
    let old = &[("a", text("old"))];
    let new = &[("a", text("new"))];
    let both = &[("a", text("old")), ("b", text("new"))];
    check("{key: a, value: new, action: insert}", old, old).await;
    check("{key: b, value: new, action: insert}", old, both).await;
    check("{key: a, value: new, action: update}", old, new).await;
    check("{key: b, value: new, action: update}", old, old).await;
    check("{key: a, value: new, action: UPSERT}", old, new).await;
    check("{key: b, value: new, action: upsert}", old, both).await;
}

#[tokio::test]
async fn values_keep_their_configured_type() {
    let check_value = async |written: &str, expected: Value| {
        let action = format!("{{key: a, value: {written}, action: upsert}}");
        check(&action, &[], &[("a", expected)]).await;
    };
    check_value("7", Value::Int(7)).await;
    check_value("'7'", text("7")).await;
    check_value("1.5", Value::Double(1.5)).await;
    check_value("true", Value::Bool(true)).await;
    check_value("[1, x]", Value::Array([Value::Int(1), text("x")].into())).await;
    check_value("{x: 1}", Value::Map([KeyValue::new("x", 1)].into())).await;
}

#[tokio::test]
async fn takes_values_from_other_attributes_if_present() {
    let action = "{key: b, from_attribute: a, action: insert}";
    check(
        action,
        &[("a", Value::Int(1))],
        &[("a", Value::Int(1)), ("b", Value::Int(1))],
    )
    .await;
    check(action, &[("c", Value::Int(1))], &[("c", Value::Int(1))]).await;
}

#[tokio::test]
async fn takes_values_from_client_metadata_if_present() {
    let check = async |from: &str, expected: Option<&str>| {
        let mut metadata = Metadata::default();
        metadata.add("X-Tenant", "a");
        metadata.add("X-Tenant", "b");
        let action = format!("{{key: tenant, from_context: {from}, action: upsert}}");
        let changed = processed(&action, received(&[]).with_metadata(metadata)).await;
        let found = attributes(&changed).first().map(|it| show(&it.value));
        assert_eq!(
            found,
            expected.map(|expected| show(&text(expected))),
            "{from}"
        );
    };
    check("metadata.x-tenant", Some("a;b")).await;
    check("X-TENANT", Some("a;b")).await;
    check("metadata.other", None).await;
}

#[tokio::test]
async fn deletes_by_key_and_by_pattern() {
    let before = &[("a.b", text("1")), ("a.c", text("2")), ("d", text("3"))];
    check("{key: d, action: delete}", before, &before[..2]).await;
    check("{pattern: '^a[.]', action: delete}", before, &before[2..]).await;
    check(
        "{key: d, pattern: '[.]b$', action: delete}",
        before,
        &before[1..2],
    )
    .await;
    check("{key: e, action: delete}", before, before).await;
}

#[tokio::test]
async fn hashes_as_the_collector_does() {
    let check_hash = async |value: Value, expected: &str| {
        check(
            "{key: a, action: hash}",
            &[("a", value)],
            &[("a", text(expected))],
        )
        .await;
    };
    check_hash(
        text("abc"),
        "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
    )
    .await;
    check_hash(
        Value::Bool(true),
        "4bf5122f344554c53bde2ebb8cd2b7e3d1600ad631c385a5d7cce23c7785459a",
    )
    .await;
    check_hash(
        Value::Int(0),
        "af5570f5a1810b7af78caf4bc70a660f0df51e42baf91d4de5b2328de0e83dfc",
    )
    .await;
    check_hash(
        Value::Double(0.0),
        "af5570f5a1810b7af78caf4bc70a660f0df51e42baf91d4de5b2328de0e83dfc",
    )
    .await;
    check_hash(text(""), "").await;
    check_hash(Value::Array([].into()), "").await;
}

#[tokio::test]
async fn extracts_named_groups() {
    let action = "{key: url, pattern: '^(?P<scheme>[a-z]+)://(?P<host>[^/]+)', action: extract}";
    let url = &("url", text("http://shop/cart"));
    let (scheme, host) = (("scheme", text("http")), ("host", text("shop")));
    check(
        action,
        std::slice::from_ref(url),
        &[url.clone(), scheme.clone(), host.clone()],
    )
    .await;
    check(
        action,
        &[("scheme", text("x")), url.clone()],
        &[scheme, url.clone(), host],
    )
    .await;
    check(action, &[("url", text("/cart"))], &[("url", text("/cart"))]).await;
    check(action, &[("url", Value::Int(1))], &[("url", Value::Int(1))]).await;
}

#[tokio::test]
async fn converts_values_if_possible() {
    let check_type = async |to: &str, value: Value, expected: Value| {
        let action = format!("{{key: a, action: convert, converted_type: {to}}}");
        check(&action, &[("a", value)], &[("a", expected)]).await;
    };
    check_type("int", text("-7"), Value::Int(-7)).await;
    check_type("int", text("7.5"), text("7.5")).await;
    check_type("int", Value::Double(7.9), Value::Int(7)).await;
    check_type("int", Value::Double(f64::NAN), Value::Int(0)).await;
    check_type("int", Value::Bool(true), Value::Int(1)).await;
    check_type("double", text("7.5"), Value::Double(7.5)).await;
    check_type("double", Value::Int(7), Value::Double(7.0)).await;
    check_type("double", text("x"), text("x")).await;
    check_type("string", Value::Int(7), text("7")).await;
    check_type("string", Value::Bool(false), text("false")).await;
    check_type(
        "string",
        Value::Array([Value::Int(1), text("x")].into()),
        text("[1,\"x\"]"),
    )
    .await;
    check_type(
        "string",
        Value::Map([KeyValue::new("k", true)].into()),
        text("{\"k\":true}"),
    )
    .await;
    check_type("string", Value::Bytes([1, 2].into()), text("AQI=")).await;
}

#[tokio::test]
async fn actions_see_what_earlier_ones_did() {
    let actions = "{key: b, from_attribute: a, action: insert}, {key: a, action: delete}";
    check(actions, &[("a", text("1"))], &[("b", text("1"))]).await;
}

#[tokio::test]
async fn samples_are_not_decoded_and_unchanged_batches_keep_their_bytes() {
    let batch = received(&[("a", text("1"))]);
    let wire = batch.profiles.to_wire();
    let same = processed("{key: a, value: '1', action: upsert}", batch.clone()).await;
    assert_eq!(same.to_wire().as_ptr(), wire.as_ptr());
    let changed = processed("{key: a, value: '2', action: upsert}", batch).await;
    assert!(
        format!("{changed:?}").contains("decoded: false"),
        "{changed:?}"
    );
}

#[tokio::test]
async fn returns_the_answer_of_the_next_consumer() {
    let sink = Sink::refusing([Refusal::retry("full")]);
    let (refused, outcomes) = batch_with_outcomes(1);
    let action = processor("{key: a, value: 1, action: upsert}");
    assert_eq!(
        action.process(refused, &sink).await,
        Err(Refusal::retry("full"))
    );
    assert_eq!(outcomes.seen(), [Outcome::Undelivered]);
}

#[test]
fn validates_the_options() {
    let check = |action: &str, expected: &str| {
        let error = load::<ResourceConfig>(&format!("attributes: [{action}]")).unwrap_err();
        assert_eq!(error, expected, "{action}");
    };
    check("", "missing required field \"attributes\"");
    check(
        "{key: a}",
        "attributes::0::action: unsupported action \"\" at the 0-th actions",
    );
    check(
        "{key: a, action: rename}",
        "attributes::0::action: unsupported action \"rename\"",
    );
    check(
        "{value: 1, action: insert}",
        "attributes::0::key: missing required field \"key\" at the 0-th actions",
    );
    check(
        "{action: delete}",
        "attributes::0::key: missing required field (at least one of \"key\" and \"pattern\" have to be used) at the 0-th actions",
    );
    check(
        "{key: a, action: insert}",
        "attributes::0: either field \"value\", \"from_attribute\" or \"from_context\" setting must be specified at the 0-th actions",
    );
    check(
        "{key: a, value: 1, from_attribute: b, action: insert}",
        "attributes::0: multiple value sources being set at the 0-th actions",
    );
    check(
        "{key: a, value: 1, action: hash}",
        "attributes::0: action \"hash\" does not use a value source field; these must not be specified at the 0-th actions",
    );
    check(
        "{key: a, value: 1, pattern: x, action: insert}",
        "attributes::0::pattern: action \"insert\" does not use the \"pattern\" field; this must not be specified at the 0-th actions",
    );
    check(
        "{key: a, action: delete, converted_type: int}",
        "attributes::0::converted_type: action \"delete\" does not use the \"converted_type\" field; this must not be specified at the 0-th actions",
    );
    check(
        "{key: a, action: convert}",
        "attributes::0::converted_type: missing required field \"converted_type\" for action \"convert\" at the 0-th actions",
    );
    check(
        "{key: a, action: convert, converted_type: bytes}",
        "attributes::0::converted_type: invalid value in field \"converted_type\": \"bytes\"",
    );
    check(
        "{key: a, action: extract}",
        "attributes::0::pattern: missing required field \"pattern\" for action \"extract\" at the 0-th actions",
    );
    check(
        "{key: a, action: extract, pattern: a}",
        "attributes::0::pattern: field \"pattern\" contains no named matcher groups at the 0-th actions",
    );
    check(
        "{key: a, action: extract, pattern: '(?P<b>a)(c)'}",
        "attributes::0::pattern: field \"pattern\" contains at least one unnamed matcher group at the 0-th actions",
    );
    check(
        "{key: a, from_context: auth.subject, action: insert}",
        "attributes::0::from_context: \"auth.subject\" is not available to processors; use \"metadata.<name>\" with a receiver's `include_metadata` at the 0-th actions",
    );
    let error = load::<ResourceConfig>("attributes: [{pattern: '(', action: delete}]").unwrap_err();
    assert!(
        error.starts_with("attributes::0::pattern: field \"pattern\" has invalid pattern: \"(\""),
        "{error}"
    );
}
