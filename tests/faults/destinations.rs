//! Destinations that refuse, hang, disconnect and come back, and shutdown during all of that.

use std::net::TcpListener;
use std::time::Duration;

use profcol_component::testkit::profiles;
use profcol_net::grpc::{Code, Status};
use profcol_otlp::service::PartialSuccess;
use profcol_test_harness::backend::{Client, ClosedPort, Destination, Mode};

use crate::Rig;

/// An exporter with short retry delays.
fn exporter(name: &str, address: impl std::fmt::Display, more: &str) -> String {
    format!(
        "  {name}: {{endpoint: \"{address}\", tls: {{insecure: true}}, compression: none, retry_on_failure: {{initial_interval: 20ms, max_interval: 100ms, max_elapsed_time: 0s}}{more}}}\n"
    )
}

/// Ten batches, 55 samples.
fn send_ten(rig: &Rig) {
    let client = Client::new(rig.grpc);
    for samples in 1..=10 {
        client.send(&profiles(samples)).unwrap();
    }
}

/// Checks that a destination gets everything after it stops behaving like `mode`.
fn survives(mode: Mode, more: &str) {
    let destination = Destination::new(mode);
    let rig = Rig::new(
        &exporter("otlp_grpc", destination.address, more),
        "otlp_grpc",
    );
    send_ten(&rig);
    destination.wait_for_requests(20);
    assert_eq!(destination.samples(), 0);
    destination.set(Mode::Take);
    destination.wait_for_samples(55);
    rig.stop();
    assert_eq!(destination.samples(), 55);
}

#[test]
fn a_temporarily_refusing_destination_gets_everything_later() {
    survives(Mode::Refuse(Status::new(Code::Unavailable, "not now")), "");
    let throttled = Status::new(Code::ResourceExhausted, "slow down");
    survives(
        Mode::Refuse(throttled.with_retry_delay(Duration::from_millis(50))),
        "",
    );
}

#[test]
fn a_temporarily_hanging_destination_gets_everything_later() {
    // A request that is answered later than this is repeated, and delivered twice.
    survives(Mode::Hang, ", timeout: 5s");
}

#[test]
fn a_destination_that_starts_late_or_restarts_gets_everything() {
    let place = ClosedPort::reserve();
    let address = place.address;
    let rig = Rig::new(&exporter("otlp_grpc", address, ""), "otlp_grpc");
    send_ten(&rig);
    let first = Destination::on(address, Mode::Take);
    first.wait_for_samples(55);
    drop(first);
    send_ten(&rig);
    let second = Destination::on(address, Mode::Take);
    second.wait_for_samples(55);
    rig.stop();
    assert_eq!(second.samples(), 55);
}

#[test]
fn a_destination_that_disconnects_midway_gets_everything_later() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
    let address = listener.local_addr().expect("it is bound");
    let rig = Rig::new(&exporter("otlp_grpc", address, ""), "otlp_grpc");
    send_ten(&rig);
    for _ in 0..5 {
        let (mut connection, _) = listener.accept().expect("profcol comes again");
        let mut begun = [0; 100];
        std::io::Read::read_exact(&mut connection, &mut begun).expect("a request begins");
    }
    drop(listener);
    let destination = Destination::on(address, Mode::Take);
    destination.wait_for_samples(55);
    rig.stop();
    assert_eq!(destination.samples(), 55);
}

#[test]
fn a_destination_with_a_limit_gets_pieces_and_states_it_once() {
    let limit = 10_000;
    let destination = Destination::new(Mode::AtMost(limit));
    let rig = Rig::new(&exporter("otlp_grpc", destination.address, ""), "otlp_grpc");
    let batch = profiles(2000);
    assert!(batch.encoded_len() > 3 * limit);
    let client = Client::new(rig.grpc);
    for sent in 1..=3 {
        client.send(&batch).unwrap();
        destination.wait_for_samples(sent * 2000);
    }
    rig.stop();
    assert_eq!(destination.samples(), 6000);
    let pieces = destination.taken();
    assert!(pieces.iter().all(|piece| piece.encoded_len() <= limit));
    assert_eq!(destination.requests(), pieces.len() + 1);
}

#[test]
fn a_partial_success_is_logged_and_not_retried() {
    let partial = PartialSuccess {
        rejected_profiles: 1,
        error_message: "too old".to_owned(),
    };
    let destination = Destination::new(Mode::Answer(partial.encode()));
    let rig = Rig::new(&exporter("otlp_grpc", destination.address, ""), "otlp_grpc");
    Client::new(rig.grpc).send(&profiles(3)).unwrap();
    destination.wait_for_samples(3);
    let output = rig.stop();
    let line = output
        .lines()
        .find(|line| line.contains("Partial success response"));
    let line = line.unwrap_or_else(|| panic!("nothing was logged: {output}"));
    assert!(line.contains("too old"), "{line}");
    assert_eq!(destination.requests(), 1);
}

#[test]
fn shutdown_delivers_the_queue_of_a_slow_destination() {
    let destination = Destination::new(Mode::Slow(Duration::from_millis(100)));
    let one_by_one = ", sending_queue: {num_consumers: 1}";
    let rig = Rig::new(
        &exporter("otlp_grpc", destination.address, one_by_one),
        "otlp_grpc",
    );
    send_ten(&rig);
    rig.stop();
    assert_eq!(destination.samples(), 55);
}

#[test]
fn undelivered_batches_are_counted_and_fail_the_program() {
    let hanging = Destination::new(Mode::Hang);
    let refusing = Destination::new(Mode::Refuse(Status::new(Code::Unavailable, "no")));
    let closed = ClosedPort::reserve();
    for (address, more) in [
        (closed.address, ""),
        (refusing.address, ""),
        (hanging.address, ", timeout: 200ms"),
    ] {
        let rig = Rig::new(&exporter("otlp_grpc", address, more), "otlp_grpc");
        send_ten(&rig);
        let (status, output) = rig.process.stop();
        assert_eq!(status.code(), Some(1), "{output}");
        let last = output.lines().last().unwrap_or_default();
        assert!(
            last.contains("55 samples could not be delivered"),
            "{output}"
        );
    }
}

#[test]
fn a_dead_exporter_costs_the_others_nothing() {
    let destination = Destination::new(Mode::Take);
    let closed = ClosedPort::reserve();
    let exporters = exporter("otlp_grpc/good", destination.address, "")
        + &exporter("otlp_grpc/dead", closed.address, "");
    let rig = Rig::new(&exporters, "otlp_grpc/dead, otlp_grpc/good");
    for _ in 0..20 {
        send_ten(&rig);
    }
    destination.wait_for_samples(20 * 55);
    let (status, output) = rig.process.stop();
    assert_eq!(status.code(), Some(1), "{output}");
    assert!(
        output.contains("1100 samples could not be delivered"),
        "{output}"
    );
    assert_eq!(destination.samples(), 20 * 55);
}

#[test]
fn a_full_queue_refuses_the_client_and_still_serves_the_other_exporter() {
    let destination = Destination::new(Mode::Take);
    let closed = ClosedPort::reserve();
    let exporters = exporter("otlp_grpc/good", destination.address, "")
        + &exporter(
            "otlp_grpc/dead",
            closed.address,
            ", sending_queue: {queue_size: 2}",
        );
    let rig = Rig::new(&exporters, "otlp_grpc/dead, otlp_grpc/good");
    let client = Client::new(rig.grpc);
    for sent in 1..=5 {
        let answer = client.send(&profiles(sent));
        let expected = (sent > 2).then_some(Code::Unavailable);
        assert_eq!(answer.err().map(|status| status.code), expected);
    }
    destination.wait_for_samples(15);
    let (status, _) = rig.process.stop();
    assert_eq!(status.code(), Some(1));
    assert_eq!(destination.samples(), 15);
}
