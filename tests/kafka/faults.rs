//! Brokers and members of the group that die under load: everything arrives.

use std::time::Duration;

use profcol_test_harness::backend::{Destination, Mode, wait_until};
use profcol_test_harness::kafka::{Broker, Settings};
use profcol_test_harness::peers::{free_address, get, profcol};
use profcol_test_harness::support::SmallDisk;

use crate::{Agent, Arrived, TOPIC, agent_config, gateway, gateway_config};

#[test]
#[ignore = "needs the peers, see cargo xtask test"]
fn a_killed_broker_loses_nothing() {
    let Some(mut broker) = Broker::start() else {
        return;
    };
    broker.create_topic(TOPIC, 3);
    let destination = Destination::new(Mode::Take);
    let agent = Agent::start(broker.address, "");
    let member = gateway(broker.address, destination.address, "");
    let mut arrived = Arrived::default();
    agent.send(0..100);
    arrived.wait_for(&destination, 50);
    agent.send(100..150);
    broker.kill();
    agent.send(150..300);
    broker.launch();
    broker.wait();
    agent.send(300..400);
    arrived.wait_for(&destination, 400);
    let output = agent.stop();
    assert!(!output.contains("Dropping data"), "{output}");
    let (status, output) = member.stop();
    assert!(status.success(), "{output}");
    arrived.take(&destination);
    let messages: i64 = broker.messages(TOPIC, 3).values().sum();
    eprintln!(
        "400 batches: {messages} messages in Kafka, {} delivered again",
        arrived.repeated()
    );
    assert_eq!(messages, 400, "the broker keeps what is sent twice");
}

#[test]
#[ignore = "needs the peers, see cargo xtask test"]
fn a_dead_broker_is_an_error_of_both_components_until_it_is_back() {
    let Some(mut broker) = Broker::start() else {
        return;
    };
    let destination = Destination::new(Mode::Take);
    let [of_agent, of_gateway] = [free_address(), free_address()];
    let with_page = |config: String, page| {
        format!("{config}  extensions: [zpages]\nextensions: {{zpages: {{endpoint: '{page}'}}}}\n")
    };
    let brokers = broker.address.to_string();
    let member = gateway_config(&brokers, destination.address, "");
    let member = profcol(&with_page(member, of_gateway)).listens_on(of_gateway);
    let error_on = |page| {
        let page = get(page, "/debug/servicez");
        let (_, error) = page.split_once("recoverable error: ")?;
        Some(error.split('<').next()?.to_owned())
    };
    wait_until("the missing topic", || {
        error_on(of_gateway).is_some_and(|error| error.contains("no topic"))
    });
    broker.create_topic(TOPIC, 1);
    wait_until("the topic", || error_on(of_gateway).is_none());
    let agent = Agent::with(&with_page(agent_config(&brokers, ""), of_agent));
    broker.kill();
    agent.send(0..1);
    for page in [of_agent, of_gateway] {
        wait_until("an error", || error_on(page).is_some());
    }
    // It lasts, although the client has nothing to do most of the time.
    for _ in 0..20 {
        std::thread::sleep(Duration::from_millis(100));
        assert_ne!(error_on(of_gateway), None);
    }
    broker.launch();
    broker.wait();
    for page in [of_agent, of_gateway] {
        wait_until("its end", || error_on(page).is_none());
    }
    agent.stop();
    member.stop();
}

#[test]
#[ignore = "needs the peers, see cargo xtask test"]
fn three_gateways_share_a_topic_and_one_dies() {
    let Some(broker) = Broker::start() else {
        return;
    };
    broker.create_topic(TOPIC, 12);
    let destination = Destination::new(Mode::Take);
    let agent = Agent::start(broker.address, "");
    let mut gateways: Vec<_> = (0..3)
        .map(|_| gateway(broker.address, destination.address, "group_id: gateways"))
        .collect();
    for gateway in &mut gateways {
        gateway.wait_for_output("to get partitions", |output| {
            output.contains("Partitions assigned")
        });
    }
    let mut arrived = Arrived::default();
    agent.send(0..300);
    wait_until("some to arrive", || {
        arrived.take(&destination);
        arrived.0.len() > 100
    });
    agent.send(300..600);
    // With SIGKILL.
    drop(gateways.pop());
    agent.send(600..900);
    arrived.wait_for(&destination, 900);
    // A rebalance without a kill.
    let joined = gateway(broker.address, destination.address, "group_id: gateways");
    gateways.push(joined);
    agent.send(900..1200);
    arrived.wait_for(&destination, 1200);
    agent.stop();
    for gateway in gateways {
        let (status, output) = gateway.stop();
        assert!(status.success(), "{output}");
    }
    arrived.take(&destination);
    let messages = broker.messages(TOPIC, 12);
    let used = messages.values().filter(|messages| **messages > 0).count();
    eprintln!(
        "1200 batches in {used} partitions: {} delivered again",
        arrived.repeated()
    );
    assert_eq!(messages.values().sum::<i64>(), 1200);
    assert_eq!(used, 12, "{messages:?}");
}

#[test]
#[ignore = "needs the peers, see cargo xtask test"]
fn leaders_move_to_other_brokers() {
    let Some([first, mut second, mut third]) = Broker::three() else {
        return;
    };
    first.create_topic(TOPIC, 6);
    let destination = Destination::new(Mode::Take);
    let agent = Agent::start(first.address, "");
    let member = gateway(first.address, destination.address, "");
    let mut arrived = Arrived::default();
    agent.send(0..100);
    arrived.wait_for(&destination, 50);
    // Each leads two of the partitions. One of three replicas may be missing.
    second.kill();
    agent.send(100..300);
    arrived.wait_for(&destination, 300);
    second.launch();
    second.wait();
    wait_until("the replicas to be in sync", || first.are_in_sync(TOPIC, 3));
    third.kill();
    agent.send(300..400);
    arrived.wait_for(&destination, 400);
    agent.stop();
    let (status, output) = member.stop();
    assert!(status.success(), "{output}");
    arrived.take(&destination);
    let messages: i64 = first.messages(TOPIC, 6).values().sum();
    eprintln!(
        "400 batches, leaders moved twice: {messages} messages in Kafka, {} delivered again",
        arrived.repeated()
    );
    assert_eq!(messages, 400);
}

#[test]
#[ignore = "needs the peers, see cargo xtask test"]
fn a_full_disk_loses_nothing() {
    let Some(disk) = SmallDisk::mount("size=24m") else {
        return;
    };
    let broker = Broker::with(&Settings {
        // So that the messages fill the disk, not the indices.
        properties: "log.index.size.max.bytes=65536\nnum.partitions=1",
        logs: Some(&disk.path().join("logs")),
        ..Settings::default()
    });
    let Some(mut broker) = broker else {
        return;
    };
    broker.create_topic(TOPIC, 1);
    let agent = Agent::start(broker.address, "producer: {delivery_timeout: 10s}");
    let filler = b"filler".repeat(150_000);
    wait_until("the disk to be full", || {
        broker.has_ended() || broker.try_send("filler", &filler).is_err()
    });
    agent.send(0..100);
    wait_until("the broker to give up", || broker.has_ended());
    disk.grow("size=200m");
    broker.kill();
    broker.launch();
    broker.wait();
    let destination = Destination::new(Mode::Take);
    let member = gateway(broker.address, destination.address, "");
    let mut arrived = Arrived::default();
    arrived.wait_for(&destination, 100);
    let output = agent.stop();
    assert!(!output.contains("Dropping data"), "{output}");
    let (status, output) = member.stop();
    assert!(status.success(), "{output}");
    arrived.take(&destination);
    let messages: i64 = broker.messages(TOPIC, 1).values().sum();
    eprintln!(
        "100 batches: {messages} messages in Kafka, {} delivered again",
        arrived.repeated()
    );
}
