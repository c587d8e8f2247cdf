//! The guarantees of the sending queue's settings.

use std::thread;
use std::time::Duration;

use profcol_component::testkit::profiles;
use profcol_net::grpc::{Code, Status};
use profcol_test_harness::backend::{Client, Destination, Mode, wait_until};

use crate::Rig;

fn rig(destination: &Destination, queue: &str, more: &str) -> Rig {
    let address = destination.address;
    let exporter = format!(
        "  otlp_grpc: {{endpoint: \"{address}\", tls: {{insecure: true}}, compression: none, sending_queue: {{{queue}}}{more}}}\n"
    );
    Rig::new(&exporter, "otlp_grpc")
}

#[test]
fn wait_for_result_returns_the_result() {
    let destination = Destination::new(Mode::Take);
    let once = ", retry_on_failure: {enabled: false}, timeout: 5s";
    let rig = rig(&destination, "wait_for_result: true", once);
    let client = Client::new(rig.grpc);
    let taken = |samples| client.send(&profiles(samples)).map_err(|no| no.code);

    assert_eq!(taken(1), Ok(()));
    assert_eq!(destination.samples(), 1, "taken before the answer");
    for (mode, code) in [
        (
            Mode::Refuse(Status::new(Code::InvalidArgument, "never")),
            Code::Internal,
        ),
        (
            Mode::Refuse(Status::new(Code::Unavailable, "not now")),
            Code::Unavailable,
        ),
        (Mode::Hang, Code::Unavailable),
    ] {
        destination.set(mode.clone());
        assert_eq!(taken(2), Err(code), "{mode:?}");
    }
    destination.set(Mode::Take);
    assert_eq!(taken(4), Ok(()));
    rig.stop();
    assert_eq!(destination.samples(), 5);
}

#[test]
fn clients_wait_for_a_blocking_queue_and_none_is_refused() {
    let destination = Destination::new(Mode::Slow(Duration::from_millis(20)));
    let small = "block_on_overflow: true, queue_size: 1, num_consumers: 1";
    let rig = rig(&destination, small, "");
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let client = Client::new(rig.grpc);
                for samples in 1..=10 {
                    client.send(&profiles(samples)).unwrap();
                }
            });
        }
    });
    rig.stop();
    assert_eq!(destination.samples(), 4 * 55);
}

#[test]
fn a_client_waiting_for_a_dead_destination_is_answered_at_shutdown() {
    let destination = Destination::new(Mode::Hang);
    let small = "block_on_overflow: true, queue_size: 1, num_consumers: 1";
    let rig = rig(&destination, small, ", timeout: 1s");
    Client::new(rig.grpc).send(&profiles(1)).unwrap();
    destination.wait_for_requests(1);
    let grpc = rig.grpc;
    let waiting = thread::spawn(move || Client::new(grpc).send(&profiles(2)));
    // Other clients are served meanwhile: this one is refused for its content.
    let refused = Client::new(grpc).send_message(&bytes::Bytes::from_static(b"bad").into());
    assert_eq!(refused.unwrap_err().code, Code::InvalidArgument);
    // It gets no answer before the stop.
    thread::sleep(Duration::from_millis(100));
    assert!(!waiting.is_finished(), "the queue is full");
    let (status, output) = rig.process.stop();
    assert_eq!(status.code(), Some(1), "{output}");
    assert!(
        output.contains("1 samples could not be delivered"),
        "{output}"
    );
    let refused = waiting.join().expect("it was answered").unwrap_err();
    assert_eq!(refused.code, Code::Unavailable, "{refused}");
}

#[test]
fn a_client_that_stops_waiting_leaves_nothing_behind() {
    let destination = Destination::new(Mode::Hang);
    let small = "block_on_overflow: true, queue_size: 1, num_consumers: 1";
    let again = ", timeout: 2s, retry_on_failure: {initial_interval: 20ms, max_interval: 50ms, max_elapsed_time: 0s}";
    let rig = rig(&destination, small, again);
    Client::new(rig.grpc).send(&profiles(1)).unwrap();
    for _ in 0..20 {
        let hasty = Client::new(rig.grpc);
        let gave_up = hasty.send_within(&profiles(2), Duration::from_millis(20));
        assert_eq!(gave_up.unwrap_err().code, Code::DeadlineExceeded);
    }
    destination.set(Mode::Take);
    wait_until("the queue to have room", || destination.samples() >= 1);
    Client::new(rig.grpc).send(&profiles(4)).unwrap();
    rig.stop();
    // The last one may have been accepted just when it gave up.
    assert!(matches!(destination.samples(), 5 | 7));
}

#[test]
fn shutdown_waits_for_a_briefly_unavailable_destination() {
    let down = Status::new(Code::Unavailable, "down");
    let destination = Destination::new(Mode::Refuse(down));
    let rig = rig(&destination, "", "");
    let client = Client::new(rig.grpc);
    for samples in 1..=10 {
        client.send(&profiles(samples)).unwrap();
    }
    destination.wait_for_requests(1);
    let stopping = thread::spawn(move || rig.stop());
    // It is down for about the time of a reconnect.
    let requests = destination.requests();
    destination.wait_for_requests(requests + 10);
    destination.set(Mode::Take);
    let output = stopping.join().unwrap();
    assert_eq!(destination.samples(), 55, "{output}");
    assert!(output.contains("otlp_grpc: delivered=55"), "{output}");
}

#[test]
fn a_resent_batch_reaches_only_the_exporter_that_refused() {
    let good = Destination::new(Mode::Take);
    let down = Status::new(Code::Unavailable, "down");
    let dead = Destination::new(Mode::Refuse(down));
    let exporters = format!(
        "  otlp_grpc/good: {{endpoint: \"{}\", tls: {{insecure: true}}}}\n  otlp_grpc/dead: {{endpoint: \"{}\", tls: {{insecure: true}}, sending_queue: {{queue_size: 1}}}}\n",
        good.address, dead.address
    );
    let rig = Rig::new(&exporters, "otlp_grpc/good, otlp_grpc/dead");
    let client = Client::new(rig.grpc);
    client.send(&profiles(1)).unwrap();
    for _ in 0..5 {
        let refused = client.send(&profiles(20)).unwrap_err();
        assert_eq!(refused.code, Code::Unavailable);
    }
    dead.set(Mode::Take);
    wait_until("the queue to have room", || {
        client.send(&profiles(20)).is_ok()
    });
    let output = rig.stop();
    assert_eq!((good.samples(), dead.samples()), (21, 21), "{output}");
}
