//! OTLP and HTTP/2 with third-party implementations: grpc-go as client of the `otlp` receiver and as server of the
//! `otlp_grpc` exporter, with all kinds of gRPC faults, and h2spec on each HTTP/2 listener. Accepted data is delivered
//! once.

#![allow(clippy::unwrap_used, reason = "a panic fails the test")]

mod client;
mod http2;
mod server;

use std::collections::BTreeMap;
use std::net::SocketAddr;

use profcol_test_harness::peers::{Process, grpc_go, profcol};
use serde_json::{Value, json};

/// A grpc-go client or server.
struct GrpcGo(Process);

impl GrpcGo {
    fn serve(config: &Value) -> Self {
        let mut server = Self(grpc_go(&json!({"serve": config}).to_string()));
        server.wait_for("to listen", |server| server.count("listens") == 1);
        server
    }

    /// Sends the file `message` according to `config`.
    fn send(to: SocketAddr, message: &str, config: &Value) -> Self {
        let mut sending = json!({"to": to.to_string(), "message": message});
        let all = sending.as_object_mut().unwrap();
        all.extend(config.as_object().unwrap().clone());
        Self(grpc_go(&json!({"send": sending}).to_string()))
    }

    fn wait_for(&mut self, what: &str, condition: impl Fn(&Events) -> bool) {
        self.0
            .wait_for_output(what, |output| condition(&Events::of(output)));
    }

    fn events(&self) -> Events {
        Events::of(&self.0.output())
    }

    /// All its events until it exited by itself.
    fn ended(self) -> Events {
        let (status, output) = self.0.ended();
        assert!(status.success(), "{output}");
        Events::of(&output)
    }

    /// Stops it, and returns all its events including the calls in flight.
    fn stop(self) -> Events {
        let (status, output) = self.0.stop();
        assert!(status.success(), "{output}");
        Events::of(&output)
    }
}

/// The events of a grpc-go client or server.
#[derive(Debug)]
struct Events(Vec<Value>);

impl Events {
    fn of(output: &str) -> Self {
        // The last line may be incomplete, and messages of the library are not JSON.
        let lines = output
            .lines()
            .filter_map(|it| serde_json::from_str(it).ok());
        Self(lines.collect())
    }

    fn count(&self, key: &str) -> usize {
        self.0.iter().filter(|it| it.get(key).is_some()).count()
    }

    fn connections(&self, what: &str) -> usize {
        self.0.iter().filter(|it| it["connection"] == what).count()
    }

    /// The number of calls per status code.
    fn codes(&self) -> BTreeMap<&str, usize> {
        let mut codes = BTreeMap::new();
        for code in self.0.iter().filter_map(|it| it["code"].as_str()) {
            *codes.entry(code).or_default() += 1;
        }
        codes
    }

    /// The samples accepted by a server.
    fn taken(&self) -> u64 {
        self.0.iter().filter_map(|it| it["taken"].as_u64()).sum()
    }

    /// The time of the first event with `key`, in milliseconds.
    fn time_of(&self, key: &str) -> Option<u64> {
        let event = self.0.iter().find(|it| it.get(key).is_some())?;
        event["at"].as_u64()
    }
}

/// An exporter with short retry delays.
const RETRY: &str =
    "retry_on_failure: {initial_interval: 20ms, max_interval: 100ms, max_elapsed_time: 0s}";

/// A profcol that forwards OTLP, with further options for receiver and exporter.
fn forwarder(
    listen: SocketAddr,
    receiver: &str,
    destination: SocketAddr,
    exporter: &str,
) -> Process {
    let config = format!(
        "\
receivers:
  otlp: {{protocols: {{grpc: {{endpoint: '{listen}', max_recv_msg_size_mib: 1{receiver}}}}}}}
exporters:
  otlp_grpc:
    endpoint: '{destination}'
    tls: {{insecure: true}}
    {exporter}
service:
  shutdown_timeout: 20s
  telemetry: {{metrics: {{level: none}}, logs: {{sampling: {{enabled: false}}}}}}
  pipelines:
    profiles: {{receivers: [otlp], exporters: [otlp_grpc]}}
"
    );
    let mut process = profcol(&config);
    process.wait_for_output("to be ready", |output| {
        output.contains("Everything is ready")
    });
    process
}

/// Stops it; it must exit successfully.
fn stop(process: Process) -> String {
    let (status, output) = process.stop();
    assert!(status.success(), "{status}: {output}");
    output
}
