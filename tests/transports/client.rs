//! grpc-go as the client of the `otlp` receiver.

use std::net::SocketAddr;
use std::time::Duration;

use profcol_component::testkit::profiles;
use profcol_net::grpc::{Code, Status};
use profcol_test_harness::backend::{Destination, Mode};
use profcol_test_harness::peers::{Process, free_address};
use profcol_test_harness::support::{File, file, path};
use serde_json::{Value, json};

use crate::{Events, GrpcGo, RETRY, forwarder, stop};

/// profcol between a grpc-go client and a destination.
struct Rig {
    profcol: Process,
    address: SocketAddr,
    destination: Destination,
}

impl Rig {
    /// `receiver` and `exporter` are further options.
    fn new(mode: Mode, receiver: &str, exporter: &str) -> Self {
        Self::without_retry(mode, receiver, &format!("{RETRY}\n    {exporter}"))
    }

    fn without_retry(mode: Mode, receiver: &str, exporter: &str) -> Self {
        let (address, destination) = (free_address(), Destination::new(mode));
        Self {
            profcol: forwarder(address, receiver, destination.address, exporter),
            address,
            destination,
        }
    }

    /// The outcomes of all calls.
    fn send(&self, samples: usize, config: &Value) -> Events {
        let message = message(samples);
        GrpcGo::send(self.address, path(&message.path), config).ended()
    }

    /// Accepts one more call; then as many samples have arrived as calls were accepted.
    fn still_serves(self, taken: usize) {
        let events = self.send(1, &json!({"calls": 1}));
        assert_eq!(events.codes(), [("OK", 1)].into(), "{events:?}");
        self.arrives(taken + 1);
    }

    fn arrives(self, samples: usize) {
        let output = stop(self.profcol);
        assert_eq!(self.destination.samples(), samples, "{output}");
    }
}

/// An export request in a file.
fn message(samples: usize) -> File {
    file("request", profiles(samples).to_wire())
}

#[test]
#[ignore = "needs the peers, see cargo xtask test"]
fn accepts_plain_and_compressed_calls() {
    let rig = Rig::new(Mode::Take, "", "");
    for gzip in [false, true] {
        let config = json!({"calls": 200, "atOnce": 8, "gzip": gzip});
        let events = rig.send(100, &config);
        assert_eq!(events.codes(), [("OK", 200)].into(), "{events:?}");
        assert_eq!(events.connections("begins"), 1);
    }
    rig.arrives(2 * 200 * 100);
}

/// It is small enough when compressed, but too large when decompressed.
#[test]
#[ignore = "needs the peers, see cargo xtask test"]
fn an_oversized_message_is_refused_and_the_connection_survives() {
    let rig = Rig::new(Mode::Take, "", "");
    for gzip in [false, true] {
        let events = rig.send(50_000, &json!({"calls": 3, "gzip": gzip}));
        assert_eq!(
            events.codes(),
            [("ResourceExhausted", 3)].into(),
            "{events:?}"
        );
        assert_eq!(events.connections("begins"), 1, "{events:?}");
        let words = events.0.iter().filter_map(|it| it["message"].as_str());
        let is_limit = |words: &str| words.contains("larger than max") && words.contains("1048576");
        assert_eq!(words.filter(|it| is_limit(it)).count(), 3, "{events:?}");
        assert_eq!(
            events.count("retry_after"),
            0,
            "it is so for ever: {events:?}"
        );
    }
    rig.still_serves(0);
}

#[test]
#[ignore = "needs the peers, see cargo xtask test"]
fn a_missed_deadline_is_reported_to_the_client() {
    let queue = "timeout: 2s\n    sending_queue: {wait_for_result: true, num_consumers: 100}";
    let rig = Rig::new(Mode::Hang, "", queue);
    let events = rig.send(1, &json!({"calls": 20, "atOnce": 20, "timeout": "300ms"}));
    assert_eq!(
        events.codes(),
        [("DeadlineExceeded", 20)].into(),
        "{events:?}"
    );
    assert_eq!(events.connections("begins"), 1, "{events:?}");
    // The queue had already accepted them.
    rig.destination.set(Mode::Take);
    rig.still_serves(20);
}

/// Cancelled in the middle of a message and after it, each call arrives completely or not at all.
#[test]
#[ignore = "needs the peers, see cargo xtask test"]
fn cancelled_calls_never_leave_partial_batches() {
    let rig = Rig::new(Mode::Take, "", "");
    let samples = 10_000;
    let mut taken = 0;
    for after in ["200us", "1ms", "5ms", "20ms"] {
        let events = rig.send(
            samples,
            &json!({"calls": 50, "atOnce": 4, "cancelAfter": after}),
        );
        // If a client cancels more unprocessed calls than h2 permits, h2 closes the connection with its calls.
        let mut codes = events.codes();
        let sent_away = codes.remove("Unavailable").unwrap_or_default();
        assert!(sent_away <= 4 * events.connections("ends"), "{events:?}");
        codes.retain(|code, _| !["OK", "Canceled"].contains(code));
        assert!(codes.is_empty(), "{events:?}");
        taken += events.codes().get("OK").copied().unwrap_or_default();
    }
    let events = rig.send(samples, &json!({"calls": 3}));
    assert_eq!(events.codes(), [("OK", 3)].into(), "{events:?}");
    let output = stop(rig.profcol);
    let arrived = rig.destination.samples();
    assert_eq!(arrived % samples, 0, "{output}");
    let batches = arrived / samples;
    assert!((taken + 3..=203).contains(&batches), "{batches}: {output}");
}

#[test]
#[ignore = "needs the peers, see cargo xtask test"]
fn max_connection_age_loses_no_call() {
    let age = "server_parameters: {max_connection_age: 200ms, max_connection_age_grace: 10s}";
    let rig = Rig::new(Mode::Take, &format!(", keepalive: {{{age}}}"), "");
    let events = rig.send(10, &json!({"calls": 800, "atOnce": 4, "pause": "5ms"}));
    assert_eq!(events.codes(), [("OK", 800)].into(), "{events:?}");
    assert!(events.connections("begins") > 2, "{events:?}");
    rig.arrives(800 * 10);
}

#[test]
#[ignore = "needs the peers, see cargo xtask test"]
fn a_client_that_pings_too_often_is_disconnected_and_loses_no_call() {
    let rig = Rig::new(
        Mode::Take,
        ", keepalive: {enforcement_policy: {min_time: 1h, permit_without_stream: true}}",
        "",
    );
    let events = rig.send(10, &json!({"calls": 100, "pause": "30ms", "pings": "5ms"}));
    assert_eq!(events.codes(), [("OK", 100)].into(), "{events:?}");
    assert!(events.connections("begins") > 1, "{events:?}");
    rig.arrives(100 * 10);
}

#[test]
#[ignore = "needs the peers, see cargo xtask test"]
fn a_restarted_receiver_accepts_each_call_once() {
    let Rig {
        profcol,
        address,
        destination,
    } = Rig::new(Mode::Take, "", "");
    let message = message(10);
    let config = json!({"calls": 300, "atOnce": 4, "pause": "5ms", "persist": true});
    let mut sender = GrpcGo::send(address, path(&message.path), &config);
    sender.wait_for("calls to be taken", |events| events.count("code") > 50);
    stop(profcol);
    let profcol = forwarder(address, "", destination.address, RETRY);
    let events = sender.ended();
    assert_eq!(events.codes()["OK"], 300, "{events:?}");
    assert!(events.connections("begins") > 1, "{events:?}");
    let output = stop(profcol);
    assert_eq!(destination.samples(), 300 * 10, "{output}");
}

/// Through the details of the status.
#[test]
#[ignore = "needs the peers, see cargo xtask test"]
fn the_destinations_retry_delay_reaches_the_client() {
    let throttled = Status::new(Code::ResourceExhausted, "slow down");
    let throttled = throttled.with_retry_delay(Duration::from_millis(2500));
    let direct = "retry_on_failure: {enabled: false}\n    sending_queue: {enabled: false}";
    let rig = Rig::without_retry(Mode::Refuse(throttled), "", direct);
    let events = rig.send(10, &json!({"calls": 3}));
    assert_eq!(events.codes(), [("Unavailable", 3)].into(), "{events:?}");
    let delays = events.0.iter().filter_map(|it| it["retry_after"].as_f64());
    assert_eq!(delays.collect::<Vec<_>>(), [2.5; 3], "{events:?}");
    rig.destination.set(Mode::Take);
    rig.still_serves(0);
}

#[test]
#[ignore = "needs the peers, see cargo xtask test"]
fn a_full_queue_refuses_calls_until_it_has_room() {
    let rig = Rig::new(
        Mode::Hang,
        "",
        "timeout: 2s\n    sending_queue: {queue_size: 2}",
    );
    let events = rig.send(10, &json!({"calls": 5}));
    let codes = [("OK", 2), ("Unavailable", 3)];
    assert_eq!(events.codes(), codes.into(), "{events:?}");
    rig.destination.set(Mode::Take);
    let events = rig.send(10, &json!({"calls": 5, "persist": true}));
    assert_eq!(events.codes()["OK"], 5, "{events:?}");
    rig.arrives(7 * 10);
}

#[test]
#[ignore = "needs the peers, see cargo xtask test"]
fn unknown_methods_are_unimplemented() {
    let rig = Rig::new(Mode::Take, "", "");
    for method in [
        "/opentelemetry.proto.collector.profiles.v1development.ProfilesService/Import",
        "/opentelemetry.proto.collector.trace.v1.TraceService/Export",
        "/Export",
    ] {
        let events = rig.send(1000, &json!({"calls": 2, "method": method}));
        assert_eq!(events.codes(), [("Unimplemented", 2)].into(), "{events:?}");
        assert_eq!(events.connections("begins"), 1, "{events:?}");
    }
    rig.still_serves(0);
}

/// grpc-go respects our announced limit.
#[test]
#[ignore = "needs the peers, see cargo xtask test"]
fn metadata_is_accepted_up_to_the_announced_limit() {
    let rig = Rig::new(Mode::Take, "", "");
    let events = rig.send(1, &json!({"calls": 3, "metadata": 60_000}));
    assert_eq!(events.codes(), [("OK", 3)].into(), "{events:?}");
    let events = rig.send(1, &json!({"calls": 3, "metadata": 70_000}));
    assert_eq!(events.codes(), [("Internal", 3)].into(), "{events:?}");
    assert!(events.0.iter().any(|it| it.to_string().contains("65536")));
    assert_eq!(events.connections("begins"), 1, "{events:?}");
    rig.still_serves(3);
}
