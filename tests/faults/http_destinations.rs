//! Destinations of `otlp_http` that refuse, hang, disconnect and come back.

use std::time::Duration;

use profcol_component::testkit::profiles;
use profcol_test_harness::backend::http::{HttpDestination, HttpMode};
use profcol_test_harness::backend::{Client, ClosedPort, wait_until};

use crate::Rig;

/// An exporter with short retry delays.
fn exporter(address: impl std::fmt::Display, more: &str) -> String {
    format!(
        "  otlp_http: {{endpoint: \"http://{address}\", compression: none, retry_on_failure: {{initial_interval: 20ms, max_interval: 100ms, max_elapsed_time: 0s}}{more}}}\n"
    )
}

fn rig(address: impl std::fmt::Display, more: &str) -> Rig {
    Rig::new(&exporter(address, more), "otlp_http")
}

/// Ten batches, 55 samples.
fn send_ten(rig: &Rig) {
    let client = Client::new(rig.grpc);
    for samples in 1..=10 {
        client.send(&profiles(samples)).unwrap();
    }
}

/// Checks that a destination gets everything after it stops behaving like `mode`.
fn survives(mode: HttpMode, more: &str) {
    let destination = HttpDestination::new(mode.clone());
    let rig = rig(destination.address, more);
    send_ten(&rig);
    destination.wait_for_requests(20);
    assert_eq!(destination.samples(), 0, "{mode:?}");
    destination.set(HttpMode::Take);
    destination.wait_for_samples(55);
    rig.stop();
    assert_eq!(destination.samples(), 55, "{mode:?}");
}

#[test]
fn retryable_statuses_are_retried() {
    for status in [
        "429 Too Many Requests",
        "502 Bad Gateway",
        "503 Service Unavailable",
        "503 Service Unavailable\r\nretry-after: Sun, 06 Nov 1994 08:49:37 GMT",
        "504 Gateway Timeout",
    ] {
        survives(HttpMode::Refuse(status), "");
    }
}

#[test]
fn hanging_and_disconnecting_only_costs_time() {
    // A request that is answered later than this is repeated, and delivered twice.
    survives(HttpMode::Hang, ", timeout: 5s");
    survives(HttpMode::CutRequest, "");
    survives(HttpMode::CutAnswer, "");
}

#[test]
fn retry_after_is_respected() {
    let later = HttpMode::Refuse("429 Too Many Requests\r\nretry-after: 3600");
    let destination = HttpDestination::new(later);
    let mut rig = rig(destination.address, "");
    Client::new(rig.grpc).send(&profiles(3)).unwrap();
    rig.process
        .wait_for_output("to log the requested delay", |output| {
            output.contains("interval=1h0m0s")
        });
    assert_eq!(destination.requests().len(), 1);
    // Shutdown ends the wait, and the destination accepts again.
    destination.set(HttpMode::Take);
    rig.stop();
    assert_eq!(destination.samples(), 3);
}

#[test]
fn permanent_statuses_are_logged_and_not_retried() {
    for status in [
        "304 Not Modified",
        "400 Bad Request",
        "401 Unauthorized",
        "403 Forbidden",
        "404 Not Found",
        "405 Method Not Allowed",
        "415 Unsupported Media Type",
        "500 Internal Server Error",
        "501 Not Implemented",
        "505 HTTP Version Not Supported",
    ] {
        let destination = HttpDestination::new(HttpMode::Refuse(status));
        let mut rig = rig(destination.address, "");
        Client::new(rig.grpc).send(&profiles(3)).unwrap();
        rig.process.wait_for_output("to log the loss", |output| {
            output.contains("Dropping data") && output.contains("dropped_samples=3")
        });
        destination.set(HttpMode::Take);
        Client::new(rig.grpc).send(&profiles(4)).unwrap();
        destination.wait_for_samples(4);
        let output = rig.stop();
        let code = &status[..3];
        assert!(
            output.contains(&format!("HTTP Status Code {code}")),
            "{status}: {output}"
        );
        assert_eq!(destination.requests().len(), 2, "{status}");
    }
}

#[test]
fn shutdown_delivers_everything_to_a_slow_destination() {
    let destination = HttpDestination::new(HttpMode::Slow(Duration::from_millis(100)));
    let rig = rig(destination.address, ", sending_queue: {num_consumers: 1}");
    send_ten(&rig);
    rig.stop();
    assert_eq!(destination.samples(), 55);
}

#[test]
fn a_destination_that_starts_late_or_restarts_gets_everything() {
    let place = ClosedPort::reserve();
    let mut rig = rig(place.address, "");
    send_ten(&rig);
    rig.process.wait_for_output("to log the fix", |output| {
        output.contains("connection refused; check that the server runs")
    });
    let first = HttpDestination::on(place.address, HttpMode::Take);
    first.wait_for_samples(55);
    drop(first);
    send_ten(&rig);
    let second = HttpDestination::on(place.address, HttpMode::Take);
    second.wait_for_samples(55);
    rig.stop();
    assert_eq!(second.samples(), 55);
}

#[test]
fn a_destination_with_a_limit_gets_pieces() {
    let limit = 100_000;
    let destination = HttpDestination::new(HttpMode::AtMost(limit));
    let rig = rig(destination.address, "");
    let batch = profiles(5000);
    assert!(batch.encoded_len() > 2 * limit);
    Client::new(rig.grpc).send(&batch).unwrap();
    destination.wait_for_samples(5000);
    rig.stop();
    assert_eq!(destination.samples(), 5000);
}

#[test]
fn undelivered_batches_are_counted_and_fail_the_program() {
    let closed = ClosedPort::reserve();
    let hanging = HttpDestination::new(HttpMode::Hang);
    let busy = HttpDestination::new(HttpMode::Refuse("503 Service Unavailable"));
    for (address, more) in [
        (closed.address, ""),
        (busy.address, ""),
        (hanging.address, ", timeout: 200ms"),
    ] {
        let rig = rig(address, more);
        send_ten(&rig);
        let (status, output) = rig.process.stop();
        assert_eq!(status.code(), Some(1), "{output}");
        let last = output.lines().last().unwrap_or_default();
        assert!(
            last.contains("55 samples could not be delivered"),
            "{output}"
        );
    }
    wait_until("a request to the hanging one", || {
        !hanging.requests().is_empty()
    });
}
