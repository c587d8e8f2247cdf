//! Messages built without a broker and decoded one by one: resource, key, topic, headers, and the size limit.

use std::collections::{BTreeMap, BTreeSet};

use profcol_component::testkit::{context, load, profiles};
use profcol_component::{Batch, Metadata, Refusal};
use profcol_kafka::Encoding;
use profcol_profile::testkit::observations;
use profcol_profile::{KeyValue, Profiles, Value};

use super::messages::{Messages, Partitions};
use super::*;

/// The profiles of each service, in one batch.
fn batch(services: &[(&str, usize)]) -> Batch {
    let of = |(name, samples): &(&str, usize)| {
        let mut batch = profiles(*samples);
        batch.update_resources(|resource| {
            let attribute = |key: &str, value: &str| KeyValue {
                key: key.into(),
                value: Value::from(value),
            };
            resource.attributes = vec![
                attribute("service.name", name),
                attribute("topic", &format!("of-{name}")),
            ];
            true
        });
        batch
    };
    Batch::new(Profiles::merge(services.iter().map(of)))
}

fn config(text: &str) -> KafkaConfig {
    load(text).unwrap()
}

fn messages(batch: &Batch, options: &str, limit: usize) -> Messages {
    Messages::of(batch, &config(options), &Partitions::new(), limit)
}

/// What consumers get, each message decoded alone.
fn samples(encoding: Encoding, messages: &Messages) -> BTreeMap<String, usize> {
    let mut samples = BTreeMap::new();
    for message in &messages.messages {
        let received = encoding.decode(message.value.clone()).unwrap();
        assert_eq!(received.profiles.resources().len(), 1);
        *samples.entry(message.topic.clone()).or_default() += received.profiles.sample_count();
    }
    samples
}

#[test]
fn a_message_has_one_resource_and_is_complete() {
    let batch = batch(&[("a", 3), ("b", 4)]);
    for (encoding, name) in [
        (Encoding::OtlpProto, "otlp_proto"),
        (Encoding::OtlpJson, "otlp_json"),
    ] {
        let options = format!("profiles: {{encoding: {name}}}\ntopic_from_attribute: topic");
        let made = messages(&batch, &options, usize::MAX);
        let expected = [("of-a".to_owned(), 3), ("of-b".to_owned(), 4)];
        assert_eq!(samples(encoding, &made), expected.into());
        let mut sent = Vec::new();
        for message in &made.messages {
            let received = encoding.decode(message.value.clone()).unwrap();
            sent.extend(observations(received.profiles.model()));
        }
        sent.sort();
        assert_eq!(sent, observations(batch.profiles.model()));
    }
}

#[test]
fn resources_of_a_partition_share_a_message() {
    let services: Vec<(String, usize)> = (0..20).map(|it| (format!("service-{it}"), 2)).collect();
    let services: Vec<(&str, usize)> = services
        .iter()
        .map(|(it, samples)| (&**it, *samples))
        .collect();
    let batch = batch(&services);
    let of = |partitions: usize| {
        let partitions = [("otlp_profiles".to_owned(), partitions)].into();
        Messages::of(&batch, &config("{}"), &partitions, usize::MAX).messages
    };
    let whole = of(1);
    assert_eq!(whole.len(), 1);
    assert_eq!(whole[0].value, batch.profiles.to_wire());
    // Where the partitions of a key are known: as Kafka's own clients place it.
    let alone = messages(&batch, "{}", usize::MAX).messages;
    let partition = |key: &str| (krafka::producer::murmur2(key.as_bytes()) & i32::MAX as u32) % 3;
    let mut expected: BTreeMap<u32, Vec<_>> = BTreeMap::new();
    for message in &alone {
        let observed = observations(message.profiles.model());
        expected
            .entry(partition(message.key.as_ref().unwrap()))
            .or_default()
            .extend(observed);
    }
    let together = of(3);
    assert_eq!(together.len(), expected.len());
    for message in together {
        let mut observed = expected
            .remove(&partition(message.key.as_ref().unwrap()))
            .unwrap();
        observed.sort();
        assert_eq!(observations(message.profiles.model()), observed);
        assert!(alone.iter().any(|it| it.key == message.key));
    }
}

#[test]
fn a_batch_is_one_message_without_a_key_if_order_does_not_matter() {
    let batch = batch(&[("a", 3), ("b", 4)]);
    let options = "partition_profiles_by_resource_attributes: false";
    let made = messages(&batch, options, usize::MAX).messages;
    assert_eq!((made.len(), &made[0].key), (1, &None));
    assert_eq!(made[0].value, batch.profiles.to_wire());
    let made = messages(
        &batch,
        &format!("{options}\ntopic_from_attribute: topic"),
        usize::MAX,
    );
    assert_eq!(made.messages.len(), 2, "each in its topic");
}

#[test]
fn the_key_is_that_of_the_resource() {
    let key = |batch: &Batch| {
        messages(batch, "{}", usize::MAX).messages[0]
            .key
            .clone()
            .unwrap()
    };
    let original = batch(&[("a", 3)]);
    let mut turned = batch(&[("a", 8)]);
    turned.profiles.update_resources(|resource| {
        resource.attributes.reverse();
        true
    });
    assert_eq!(key(&original), key(&turned));
    assert_ne!(key(&original), key(&batch(&[("b", 3)])));
    // Agents of all versions must agree.
    assert_eq!(key(&original), "de0e055ed2cd454620e7623d363f8723");
}

#[test]
fn metadata_names_the_topic_before_attributes_do() {
    let mut metadata = Metadata::default();
    metadata.add("Tenant", "acme");
    let batch = batch(&[("a", 1)]).with_metadata(metadata);
    let options = "profiles: {topic: t, topic_from_metadata_key: tenant}\n\
                   topic_from_attribute: topic";
    assert_eq!(
        messages(&batch, options, usize::MAX).messages[0].topic,
        "acme"
    );
    let options = "profiles: {topic: t}\ntopic_from_attribute: missing";
    assert_eq!(messages(&batch, options, usize::MAX).messages[0].topic, "t");
}

#[test]
fn large_messages_are_split_within_the_limit() {
    let batch = batch(&[("a", 200), ("b", 3)]);
    for (encoding, name) in [
        (Encoding::OtlpProto, "otlp_proto"),
        (Encoding::OtlpJson, "otlp_json"),
    ] {
        let limit = 3000;
        let made = messages(&batch, &format!("profiles: {{encoding: {name}}}"), limit);
        assert!(made.messages.len() > 3, "{}", made.messages.len());
        assert!(made.messages.iter().all(|it| it.value.len() <= limit));
        assert!(made.oversize.is_empty());
        let total: usize = samples(encoding, &made).values().sum();
        assert_eq!(total, 203, "{name}");
    }
}

#[test]
fn samples_that_fit_no_message_are_handed_back() {
    let batch = batch(&[("a", 5)]);
    for name in ["otlp_proto", "otlp_json"] {
        let made = messages(&batch, &format!("profiles: {{encoding: {name}}}"), 10);
        assert!(made.messages.is_empty());
        let left: usize = made
            .oversize
            .iter()
            .map(|it| it.profiles.sample_count())
            .sum();
        assert_eq!(left, 5, "{name}");
        let is_too_large = |refusal: &Refusal| matches!(refusal, Refusal::TooLarge { .. });
        assert!(made.oversize.iter().all(|it| is_too_large(&it.refusal)));
    }
}

#[test]
fn messages_have_ids_which_are_the_same_for_the_same_batch() {
    let whole = batch(&[("a", 200), ("b", 3)]);
    let ids = |options: &str, limit| -> Vec<BatchId> {
        let made = messages(&whole, options, limit).messages;
        made.iter().map(|it| it.id).collect()
    };
    let together = "partition_profiles_by_resource_attributes: false";
    assert_eq!(ids(together, usize::MAX), [whole.id]);
    let by_resource = ids("{}", usize::MAX);
    let split = ids("{}", 3000);
    let split_json = ids("profiles: {encoding: otlp_json}", 3000);
    assert_eq!(by_resource.len(), 2);
    assert!(split.len() > 3 && split_json.len() > 3);
    assert_eq!(split, ids("{}", 3000));
    // The smaller resource is not split.
    assert!(split.contains(&by_resource[0]) || split.contains(&by_resource[1]));
    for ids in [&by_resource, &split, &split_json] {
        let distinct: BTreeSet<_> = ids.iter().map(|id| id.to_bytes()).collect();
        assert_eq!(distinct.len(), ids.len());
        assert!(!ids.contains(&whole.id));
    }
    // A message that is sent again alone, because nobody knows whether it arrived.
    for limit in [usize::MAX, 3000] {
        for message in messages(&whole, "{}", limit).messages {
            let alone = whole.clone().with_profiles(message.profiles);
            let again = messages(&alone.with_id(message.id), "{}", limit).messages;
            assert_eq!(again.len(), 1);
            assert_eq!((again[0].id, &again[0].key), (message.id, &message.key));
        }
    }
    let exporter = Kafka::new(&config("record_headers: {site: berlin}"), &context("kafka"));
    for message in messages(&whole, "{}", 3000).messages {
        let record = exporter.record(&message, &Metadata::default());
        let (name, value) = &record.headers[0];
        assert_eq!(name, "profcol-batch-id");
        assert_eq!(value.as_deref(), Some(message.id.to_string().as_bytes()));
    }
}

#[test]
fn headers_count_against_the_limit() {
    let exporter = |options: &str| {
        let config = config(options);
        Kafka::new(&config, &context("kafka"))
    };
    let plain = exporter("{}").value_limit(&Metadata::default());
    assert!((999_000..1_000_000).contains(&plain), "{plain}");
    let mut metadata = Metadata::default();
    metadata.add("tenant", &"x".repeat(100));
    let options = "record_headers: {site: berlin}\ninclude_metadata_keys: [tenant]";
    let with_headers = exporter(options).value_limit(&metadata);
    assert!(with_headers < plain - 120, "{with_headers} {plain}");
}

#[test]
fn acknowledgements_are_written_as_in_the_collector() {
    for (written, expected) in [
        ("all", RequiredAcks::All),
        ("-1", RequiredAcks::All),
        ("1", RequiredAcks::Leader),
        ("0", RequiredAcks::None),
    ] {
        let config = config(&format!("producer: {{required_acks: {written}}}"));
        assert_eq!(config.producer.required_acks, expected, "{written}");
    }
    for wrong in [
        "producer: {required_acks: 2}",
        "producer: {required_acks: leader}",
        "producer: {compression: gzip, compression_params: {level: 12}}",
        "producer: {delivery_timeout: 1s}",
        "protocol_version: 2.0.0",
        "record_headers: {profcol-batch-id: x}",
        "auth: {kerberos: {}}",
        "tls: {min_version: '1.3'}",
        "brokers: []",
    ] {
        assert!(load::<KafkaConfig>(wrong).is_err(), "{wrong}");
    }
}
