//! Destinations of `otlp_grpc` that answer byte by byte, or hardly let a request through, and never close a connection.

use profcol_component::testkit::profiles;
use profcol_test_harness::backend::stuck::{Stuck, StuckServer};
use profcol_test_harness::backend::{Client, Destination, Mode};

use crate::Rig;

/// A destination that gets stuck in each call, and then takes those on new connections.
fn gets_everything_later(how: Stuck) {
    let destination = Destination::new(Mode::Take);
    let server = StuckServer::before(destination.address, how);
    let rig = Rig::new(
        &format!(
            "  otlp_grpc: {{endpoint: \"{}\", tls: {{insecure: true}}, compression: none, timeout: 5s, sending_queue: {{num_consumers: 2}}, retry_on_failure: {{initial_interval: 20ms, max_interval: 100ms, max_elapsed_time: 0s}}}}\n",
            server.address
        ),
        "otlp_grpc",
    );
    // A window is of no concern to small requests.
    let samples = if how == Stuck::Window { 10_000 } else { 10 };
    let sizes = [samples, samples + 1, samples + 2];
    let client = Client::new(rig.grpc);
    for size in sizes {
        client.send(&profiles(size)).unwrap();
    }
    // Calls have ended at their timeout, which is also the time that a behaving destination has.
    server.wait_for_connections(3);
    assert_eq!(destination.samples(), 0, "{how:?}");
    server.behave();
    destination.wait_for_samples(sizes.iter().sum());
    rig.stop();
    let once = sizes.map(|size| (size, 1)).into();
    assert_eq!(destination.deliveries(), once, "{how:?}");
}

#[test]
fn headers_byte_by_byte_only_cost_time() {
    gets_everything_later(Stuck::Headers);
}

#[test]
fn a_body_byte_by_byte_only_costs_time() {
    gets_everything_later(Stuck::Body);
}

#[test]
fn trailers_byte_by_byte_only_cost_time() {
    gets_everything_later(Stuck::Trailers);
}

#[test]
fn windows_that_hardly_open_only_cost_time() {
    gets_everything_later(Stuck::Window);
}

#[test]
fn connections_that_allow_for_no_call_only_cost_time() {
    gets_everything_later(Stuck::Settings);
    gets_everything_later(Stuck::Streams);
}
