//! What is sent arrives, in each encoding and compression, and whatever its size.

use std::net::SocketAddr;
use std::path::Path;

use profcol_component::testkit::profiles;
use profcol_net::grpc::{Code, Status};
use profcol_test_harness::backend::{ClosedPort, Destination, Mode, endpoint_in, wait_until};
use profcol_test_harness::kafka::Broker;
use profcol_test_harness::peers::{Process, profcol};
use profcol_test_harness::support::copy_directory;

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
    member.wait_for_output("to join", |output| output.contains("Partitions assigned"));
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
    wait_until("the destination to be called", || dead.requests() > 0);
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

/// An agent whose queue is in a directory.
fn storing_agent(brokers: SocketAddr, folder: &Path) -> Agent {
    let folder = folder.display();
    Agent::with(&format!(
        "\
extensions:
  file_storage: {{directory: {folder}}}
receivers:
  otlp: {{protocols: {{grpc: {{endpoint: 127.0.0.1:0}}}}}}
exporters:
  kafka:
    brokers: [{brokers}]
    sending_queue: {{storage: file_storage}}
service:
  extensions: [file_storage]
  telemetry: {{metrics: {{level: none}}, logs: {{sampling: {{enabled: false}}}}}}
  pipelines:
    profiles: {{receivers: [otlp], exporters: [kafka]}}
"
    ))
}

/// A gateway that takes each batch once, by OTLP.
fn deduplicating(destination: SocketAddr) -> Process {
    let mut process = profcol(&format!(
        "\
receivers:
  otlp: {{protocols: {{grpc: {{endpoint: 127.0.0.1:0}}}}, deduplicate: }}
exporters:
  otlp_grpc: {{endpoint: {destination}, tls: {{insecure: true}}}}
service:
  telemetry: {{metrics: {{level: none}}, logs: {{sampling: {{enabled: false}}}}}}
  pipelines:
    profiles: {{receivers: [otlp], exporters: [otlp_grpc]}}
"
    ));
    process.wait_for_output("to be ready", |output| {
        output.contains("Everything is ready")
    });
    process
}

#[test]
#[ignore = "needs the peers, see cargo xtask test"]
fn what_an_agent_sends_again_after_a_restart_is_recognized() {
    const BATCHES: usize = 20;
    let Some(broker) = Broker::start() else {
        return;
    };
    broker.create_topic(TOPIC, 4);
    let stored = tempfile::tempdir().unwrap();
    let agent = storing_agent(ClosedPort::reserve().address, stored.path());
    agent.send(0..BATCHES);
    // With SIGKILL.
    drop(agent);
    let sent = || broker.messages(TOPIC, 4).values().sum::<i64>();
    // The same, as after a crash before the queue knows of the first delivery.
    for times in 1..=2 {
        let folder = tempfile::tempdir().unwrap();
        let copy = folder.path().join("copy");
        copy_directory(stored.path(), &copy);
        let agent = storing_agent(broker.address, &copy);
        let all = i64::try_from(times * BATCHES).unwrap();
        wait_until("all to be sent", || sent() >= all);
        agent.stop();
        assert_eq!(sent(), all);
    }

    let destination = Destination::new(Mode::Take);
    let last = deduplicating(destination.address);
    let to_last = endpoint_in(&last.output(), "grpc");
    let member = gateway(broker.address, to_last, "group_id: otlp");
    let mut arrived = Arrived::default();
    arrived.wait_for(&destination, BATCHES);
    for process in [member, last] {
        let (status, output) = process.stop();
        assert!(status.success(), "{output}");
    }
    arrived.take(&destination);
    assert_eq!(arrived.repeated(), 0, "by otlp");

    // The receiver itself, and none.
    for (group, deduplicate, repeated) in [("once", "deduplicate: ", 0), ("twice", "", BATCHES)] {
        let destination = Destination::new(Mode::Take);
        let options = format!("group_id: {group}\n    {deduplicate}");
        let mut member = gateway(broker.address, destination.address, &options);
        let mut arrived = Arrived::default();
        arrived.wait_for(&destination, BATCHES);
        member.wait_for_output("to join", |output| output.contains("Partitions assigned"));
        wait_until("the second half", || {
            arrived.take(&destination);
            arrived.repeated() >= repeated
        });
        let (status, output) = member.stop();
        assert!(status.success(), "{output}");
        arrived.take(&destination);
        assert_eq!(arrived.repeated(), repeated, "{group}");
    }
}

#[test]
#[ignore = "needs the peers, see cargo xtask test"]
fn a_destination_that_is_down_costs_the_other_nothing_twice() {
    const BATCHES: usize = 10;
    let Some(broker) = Broker::start() else {
        return;
    };
    let agent = Agent::start(broker.address, "");
    agent.send(0..BATCHES);
    agent.stop();
    let good = Destination::new(Mode::Take);
    let flaky = Destination::new(Mode::Refuse(Status::new(Code::Unavailable, "later")));
    let mut member = profcol(&format!(
        "\
receivers:
  kafka: {{brokers: [{}], initial_offset: earliest}}
exporters:
  otlp_grpc/good: {}
  otlp_grpc/flaky: {}
service:
  shutdown_timeout: 20s
  telemetry: {{metrics: {{level: none}}, logs: {{sampling: {{enabled: false}}}}}}
  pipelines:
    profiles: {{receivers: [kafka], exporters: [otlp_grpc/good, otlp_grpc/flaky]}}
",
        broker.address,
        good.impatient_exporter(),
        flaky.impatient_exporter()
    ));
    // Of those that it has pushed again, too.
    member.wait_for_output("to give up twice", |output| {
        output.matches("The recording keeps the data.").count() > BATCHES
    });
    flaky.set(Mode::Take);
    let mut arrived = Arrived::default();
    arrived.wait_for(&flaky, BATCHES);
    let (status, output) = member.stop();
    assert!(status.success(), "{output}");
    for destination in [good, flaky] {
        arrived.take(&destination);
        assert_eq!(arrived.missing(BATCHES), [0; 0]);
        assert_eq!(arrived.repeated(), 0);
    }
}
