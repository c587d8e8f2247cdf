//! grpc-go as the server of the `otlp_grpc` exporter.

use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use profcol_component::testkit::profiles;
use profcol_test_harness::backend::{Client, endpoint_in, wait_until};
use profcol_test_harness::peers::{Process, free_address};
use serde_json::{Value, json};

use crate::{Events, GrpcGo, RETRY, forwarder, stop};

/// profcol between a client and a grpc-go server.
struct Rig {
    profcol: Process,
    client: Client,
    server: GrpcGo,
    address: SocketAddr,
}

impl Rig {
    /// `exporter` has further options.
    fn new(server: &Value, exporter: &str) -> Self {
        Self::without_retry(server, &format!("{RETRY}\n    {exporter}"))
    }

    fn without_retry(server: &Value, exporter: &str) -> Self {
        let address = free_address();
        let server = serve(address, server);
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let profcol = forwarder(any, "", address, exporter);
        Self {
            client: Client::new(endpoint_in(&profcol.output(), "grpc")),
            profcol,
            server,
            address,
        }
    }

    fn send(&self, batches: usize, samples: usize) {
        for _ in 0..batches {
            self.client.send(&profiles(samples)).unwrap();
        }
    }

    /// Stops both, and checks that each sample arrived once.
    fn arrives(self, samples: u64) -> Events {
        drop(self.client);
        let output = stop(self.profcol);
        let events = self.server.stop();
        assert_eq!(events.taken(), samples, "{events:?}: {output}");
        events
    }
}

fn serve(address: SocketAddr, config: &Value) -> GrpcGo {
    let mut serving = config.clone();
    serving["address"] = address.to_string().into();
    GrpcGo::serve(&serving)
}

#[test]
#[ignore = "needs the peers, see cargo xtask test"]
fn sends_plain_and_compressed_batches() {
    for compression in ["none", "gzip"] {
        let rig = Rig::new(&json!({}), &format!("compression: {compression}"));
        rig.send(200, 100);
        let events = rig.arrives(200 * 100);
        assert_eq!(events.connections("begins"), 1, "{events:?}");
    }
}

#[test]
#[ignore = "needs the peers, see cargo xtask test"]
fn a_server_with_a_limit_gets_pieces() {
    for compression in ["none", "gzip"] {
        let limit = json!({"maxMessage": 10_000});
        let rig = Rig::new(&limit, &format!("compression: {compression}"));
        rig.send(3, 2000);
        let events = rig.arrives(3 * 2000);
        assert!(events.count("taken") > 9, "{events:?}");
    }
}

/// A RESOURCE_EXHAUSTED server is retried only after the delay that it requests.
#[test]
#[ignore = "needs the peers, see cargo xtask test"]
fn respects_the_retry_delay() {
    // RESOURCE_EXHAUSTED and UNAVAILABLE.
    for code in [8, 14] {
        let refuse = json!({"times": 1, "code": code, "retryAfter": "700ms"});
        let mut rig = Rig::new(&json!({"refuse": refuse}), "");
        rig.send(1, 100);
        // Shutdown does not wait for it.
        rig.server
            .wait_for("to take the batch", |events| events.taken() == 100);
        let events = rig.arrives(100);
        let [refused, taken] = ["refused", "taken"].map(|key| events.time_of(key).unwrap());
        assert!(taken - refused >= 700, "{events:?}");
    }
}

#[test]
#[ignore = "needs the peers, see cargo xtask test"]
fn permanently_refused_batches_are_dropped_and_counted() {
    // RESOURCE_EXHAUSTED without a delay, and UNIMPLEMENTED.
    for code in [8, 12] {
        let refuse = json!({"times": 1, "code": code});
        let Rig {
            profcol,
            client,
            mut server,
            ..
        } = Rig::new(&json!({"refuse": refuse}), "");
        client.send(&profiles(100)).unwrap();
        server.wait_for("to refuse", |events| events.count("refused") == 1);
        client.send(&profiles(10)).unwrap();
        drop(client);
        let output = stop(profcol);
        let events = server.stop();
        assert_eq!(
            (events.taken(), events.count("refused")),
            (10, 1),
            "{events:?}"
        );
        assert!(
            output.contains("otlp_grpc: delivered=10 rejected=100"),
            "{output}"
        );
    }
}

#[test]
#[ignore = "needs the peers, see cargo xtask test"]
fn max_connection_age_loses_no_batch() {
    let rig = Rig::new(&json!({"maxAge": "100ms"}), "");
    let renewed = |rig: &Rig| rig.server.events().connections("begins") > 3;
    let mut batches = 0;
    wait_until("the connection to be renewed", || {
        rig.send(1, 10);
        batches += 1;
        renewed(&rig)
    });
    rig.arrives(batches * 10);
}

/// grpc-go closes the connection with ENHANCE_YOUR_CALM.
#[test]
#[ignore = "needs the peers, see cargo xtask test"]
fn an_exporter_that_pings_too_often_recovers() {
    let pings = "keepalive: {time: 10ms, timeout: 10s, permit_without_stream: true}";
    let mut rig = Rig::new(&json!({"minPing": "1h"}), pings);
    for batch in 1..=3 {
        rig.send(1, 10);
        let sent_away = |events: &Events| {
            let taken = events.taken() == batch * 10;
            taken && events.connections("ends") as u64 >= batch
        };
        rig.server.wait_for("to send profcol away", sent_away);
    }
    rig.arrives(3 * 10);
}

#[test]
#[ignore = "needs the peers, see cargo xtask test"]
fn a_restarted_server_gets_each_batch_once() {
    let rig = Rig::new(&json!({}), "");
    let Rig {
        profcol,
        client,
        mut server,
        address,
    } = rig;
    let sending = thread::spawn(move || {
        for _ in 0..300 {
            client.send(&profiles(10)).unwrap();
            // The server is restarted meanwhile.
            thread::sleep(Duration::from_millis(2));
        }
    });
    let mut before = 0;
    for batches in [50, 100] {
        server.wait_for("to take some", |events| {
            before + events.taken() >= batches * 10
        });
        before += server.stop().taken();
        server = serve(address, &json!({}));
    }
    sending.join().unwrap();
    let output = stop(profcol);
    assert_eq!(before + server.stop().taken(), 300 * 10, "{output}");
}

#[test]
#[ignore = "needs the peers, see cargo xtask test"]
fn calls_to_a_slow_server_time_out_and_are_retried() {
    let Rig {
        profcol,
        client,
        mut server,
        address,
    } = Rig::new(&json!({"delay": "10m"}), "timeout: 200ms");
    client.send(&profiles(100)).unwrap();
    drop(client);
    server.wait_for("to see the cancellation", |events| {
        events.count("cancelled") >= 2
    });
    // It would otherwise wait for its calls.
    drop(server);
    let mut server = serve(address, &json!({}));
    server.wait_for("to take the batch", |events| events.taken() == 100);
    let output = stop(profcol);
    assert_eq!(server.stop().taken(), 100, "{output}");
}

/// The status comes before the message is read, and a RST_STREAM with it.
#[test]
#[ignore = "needs the peers, see cargo xtask test"]
fn reset_streams_are_retried() {
    let rig = Rig::new(&json!({"reset": 10}), "compression: none");
    rig.send(5, 10_000);
    let events = rig.arrives(5 * 10_000);
    assert_eq!(events.count("reset"), 10, "{events:?}");
    assert_eq!(events.connections("begins"), 1, "{events:?}");
}

#[test]
#[ignore = "needs the peers, see cargo xtask test"]
fn a_server_with_few_streams_gets_everything() {
    let few = json!({"maxStreams": 2, "delay": "5ms"});
    let rig = Rig::new(&few, "sending_queue: {num_consumers: 20}");
    rig.send(200, 10);
    rig.arrives(200 * 10);
}

/// It resets the stream instead of sending a status.
#[test]
#[ignore = "needs the peers, see cargo xtask test"]
fn metadata_beyond_the_servers_limit_is_logged() {
    let large = "x".repeat(3000);
    let seldom =
        "retry_on_failure: {initial_interval: 50ms, max_interval: 100ms, max_elapsed_time: 300ms}";
    let exporter = format!("headers: {{one: {large}, other: {large}}}\n    {seldom}");
    let rig = Rig::without_retry(&json!({"maxHeaders": 4096}), &exporter);
    rig.send(1, 10);
    drop(rig.client);
    let output = stop(rig.profcol);
    let events = rig.server.stop();
    assert_eq!(events.taken(), 0, "{events:?}: {output}");
    assert_eq!(events.connections("begins"), 1, "{events:?}");
    for expected in [
        "stream error received: frame with invalid size",
        "otlp_grpc: delivered=0 retries_exhausted=10",
    ] {
        assert!(output.contains(expected), "{expected}: {output}");
    }
}
