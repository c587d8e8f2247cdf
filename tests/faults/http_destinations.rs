//! The same over HTTP: destinations of `otlp_http` that refuse, hang, hang up, come back.

use std::time::Duration;

use profcol_component::testkit::profiles;

use crate::Rig;
use crate::backend::http::{HttpDestination, HttpMode};
use crate::backend::{Client, Nobody, wait_until};

/// An exporter that tries again soon.
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

/// What a destination that at first behaves like `mode` gets once it behaves well.
fn survives(mode: HttpMode, more: &str) {
    let destination = HttpDestination::new(mode.clone());
    let rig = rig(destination.address, more);
    send_ten(&rig);
    destination.wait_until_asked(20);
    assert_eq!(destination.samples(), 0, "{mode:?}");
    destination.set(HttpMode::Take);
    destination.wait_for_samples(55);
    rig.stop();
    assert_eq!(destination.samples(), 55, "{mode:?}");
}

#[test]
fn statuses_that_may_pass_are_tried_until_they_do() {
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
fn hanging_and_hanging_up_costs_nothing_but_time() {
    survives(HttpMode::Hang, ", timeout: 100ms");
    survives(HttpMode::CutRequest, "");
    survives(HttpMode::CutAnswer, "");
}

#[test]
fn a_destination_may_name_the_time_of_the_next_try() {
    let later = HttpMode::Refuse("429 Too Many Requests\r\nretry-after: 3600");
    let destination = HttpDestination::new(later);
    let mut rig = rig(destination.address, "");
    Client::new(rig.grpc).send(&profiles(3)).unwrap();
    rig.process.wait_for_output("to be told to wait", |said| {
        said.contains("interval=1h0m0s")
    });
    assert_eq!(destination.asked().len(), 1);
    // A stop ends the wait, and the destination has room again.
    destination.set(HttpMode::Take);
    rig.stop();
    assert_eq!(destination.samples(), 3);
}

#[test]
fn statuses_that_will_not_pass_are_told_and_not_tried_again() {
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
        rig.process.wait_for_output("to tell the loss", |said| {
            said.contains("Dropping data") && said.contains("dropped_samples=3")
        });
        destination.set(HttpMode::Take);
        Client::new(rig.grpc).send(&profiles(4)).unwrap();
        destination.wait_for_samples(4);
        let said = rig.stop();
        let code = &status[..3];
        assert!(
            said.contains(&format!("HTTP Status Code {code}")),
            "{status}: {said}"
        );
        assert_eq!(destination.asked().len(), 2, "{status}");
    }
}

#[test]
fn a_slow_destination_gets_all_before_the_end() {
    let destination = HttpDestination::new(HttpMode::Slow(Duration::from_millis(100)));
    let rig = rig(destination.address, ", sending_queue: {num_consumers: 1}");
    send_ten(&rig);
    rig.stop();
    assert_eq!(destination.samples(), 55);
}

#[test]
fn a_destination_that_comes_late_or_back_gets_everything() {
    let place = Nobody::new();
    let mut rig = rig(place.address, "");
    send_ten(&rig);
    rig.process.wait_for_output("to say what to check", |said| {
        said.contains("connection refused; check that the server runs")
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
fn a_destination_that_takes_less_gets_pieces() {
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
fn what_cannot_be_delivered_before_the_end_is_counted_and_fails_the_program() {
    let nobody = Nobody::new();
    let hanging = HttpDestination::new(HttpMode::Hang);
    let busy = HttpDestination::new(HttpMode::Refuse("503 Service Unavailable"));
    for (address, more) in [
        (nobody.address, ""),
        (busy.address, ""),
        (hanging.address, ", timeout: 200ms"),
    ] {
        let rig = rig(address, more);
        send_ten(&rig);
        let (status, said) = rig.process.stop();
        assert_eq!(status.code(), Some(1), "{said}");
        let last = said.lines().last().unwrap_or_default();
        assert!(last.contains("55 samples could not be delivered"), "{said}");
    }
    wait_until("the hanging one to have been asked", || {
        !hanging.asked().is_empty()
    });
}
