//! What is sent arrives, in each encoding and compression, and whatever its size.

use profcol_component::testkit::profiles;
use profcol_test_harness::backend::{Destination, Mode, wait_until};
use profcol_test_harness::kafka::Broker;

use crate::{Agent, Arrived, TOPIC, gateway};

#[test]
#[ignore = "needs the peers, see cargo xtask test"]
fn profiles_arrive_in_each_encoding_and_compression() {
    let Some(broker) = Broker::start() else {
        return;
    };
    for (encoding, compression) in [
        ("otlp_proto", "none"),
        ("otlp_proto", "gzip"),
        ("otlp_proto", "snappy"),
        ("otlp_json", "lz4"),
        ("otlp_json", "zstd"),
    ] {
        let topic = format!("{encoding}-{compression}");
        let destination = Destination::new(Mode::Take);
        let agent = Agent::start(
            broker.address,
            &format!(
                "profiles: {{topic: {topic}, encoding: {encoding}}}\n    \
                 producer: {{compression: {compression}}}"
            ),
        );
        agent.send(0..10);
        agent.stop();
        let member = gateway(
            broker.address,
            destination.address,
            &format!("profiles: {{topics: [{topic}], encoding: {encoding}}}"),
        );
        let mut arrived = Arrived::default();
        arrived.wait_for(&destination, 10);
        let (status, output) = member.stop();
        assert!(status.success(), "{output}");
        assert_eq!(arrived.repeated(), 0, "{topic}");
    }
}

#[test]
#[ignore = "needs the peers, see cargo xtask test"]
fn large_batches_are_split_and_damaged_messages_skipped() {
    let Some(broker) = Broker::start() else {
        return;
    };
    broker.create_topic(TOPIC, 1);
    let agent = Agent::start(
        broker.address,
        "producer: {max_message_bytes: 2000}\n    sending_queue: {wait_for_result: true}",
    );
    let whole = profiles(300);
    let bytes = whole.encoded_len();
    agent.client.send(&whole).unwrap();
    let messages = broker.messages(TOPIC, 1)[&0];
    assert!(
        messages > i64::try_from(bytes / 2000).unwrap(),
        "{bytes} bytes in {messages} messages"
    );
    broker.send(TOPIC, b"no profiles");
    agent.client.send(&profiles(5)).unwrap();
    agent.stop();
    let destination = Destination::new(Mode::Take);
    let mut member = gateway(broker.address, destination.address, "group_id: first");
    destination.wait_for_samples(305);
    member.wait_for_output("to skip a message", |output| {
        output.contains("cannot be decoded")
    });
    let (status, output) = member.stop();
    assert!(status.success(), "{output}");
    assert_eq!(destination.samples(), 305);
    // All is committed, also what was skipped.
    let nothing = Destination::new(Mode::Take);
    let mut member = gateway(broker.address, nothing.address, "group_id: first");
    member.wait_for_output("to join", |output| output.contains("assigned partitions"));
    let agent = Agent::start(broker.address, "");
    agent.send(0..1);
    agent.stop();
    let mut arrived = Arrived::default();
    arrived.wait_for(&nothing, 1);
    assert_eq!(nothing.samples(), 1);
    let (status, output) = member.stop();
    assert!(status.success(), "{output}");
}

#[test]
#[ignore = "needs the peers, see cargo xtask test"]
fn what_a_dead_destination_does_not_take_is_not_committed() {
    let Some(broker) = Broker::start() else {
        return;
    };
    let agent = Agent::start(broker.address, "");
    agent.send(0..30);
    agent.stop();
    let dead = Destination::new(Mode::Hang);
    let member = gateway(broker.address, dead.address, "max_in_flight: 5");
    wait_until("the destination to be asked", || dead.asked() > 0);
    // With SIGKILL.
    drop(member);
    let destination = Destination::new(Mode::Take);
    let member = gateway(broker.address, destination.address, "max_in_flight: 5");
    let mut arrived = Arrived::default();
    arrived.wait_for(&destination, 30);
    let (status, output) = member.stop();
    assert!(status.success(), "{output}");
    assert_eq!(arrived.repeated(), 0);
}
