//! The exporter and the receiver `kafka` with real brokers. An agent sends to them, and gateways, members of one group, deliver to
//! a destination.

#![allow(clippy::unwrap_used, reason = "a panic fails the test")]
#![expect(
    clippy::print_stderr,
    reason = "reports how often messages were delivered"
)]

mod delivery;
mod faults;
mod security;

use std::collections::BTreeMap;
use std::net::SocketAddr;

use profcol_component::testkit::profiles;
use profcol_profile::{KeyValue, Profiles, Value};
use profcol_test_harness::backend::{Client, Destination, endpoint_in, wait_until};
use profcol_test_harness::peers::{Process, profcol};

const TOPIC: &str = "otlp_profiles";

/// An agent, or rather what does the agent's part here: takes profiles by OTLP and sends them to Kafka.
struct Agent {
    process: Process,
    client: Client,
}

impl Agent {
    /// `exporter` has options of the exporter.
    fn start(broker: SocketAddr, exporter: &str) -> Self {
        Self::with(&agent_config(&broker.to_string(), exporter))
    }

    fn with(config: &str) -> Self {
        let mut process = profcol(config);
        process.wait_for_output("to be ready", |output| {
            output.contains("Everything is ready")
        });
        let client = Client::new(endpoint_in(&process.output(), "grpc"));
        Self { process, client }
    }

    /// Sends a batch from each of these services.
    fn send(&self, services: std::ops::Range<usize>) {
        for number in services {
            self.client.send(&batch(number)).unwrap();
        }
    }

    /// Stops it; it must exit successfully.
    fn stop(self) -> String {
        drop(self.client);
        let (status, output) = self.process.stop();
        assert!(status.success(), "{status}: {output}");
        output
    }
}

fn agent_config(brokers: &str, exporter: &str) -> String {
    format!(
        "\
receivers:
  otlp: {{protocols: {{grpc: {{endpoint: 127.0.0.1:0}}}}}}
exporters:
  kafka:
    brokers: [{brokers}]
    retry_on_failure: {{initial_interval: 100ms, max_interval: 500ms}}
    {exporter}
service:
  shutdown_timeout: 20s
  telemetry: {{metrics: {{level: none}}, logs: {{sampling: {{enabled: false}}}}}}
  pipelines:
    profiles: {{receivers: [otlp], exporters: [kafka]}}
"
    )
}

/// A member of the group that delivers to the destination. `receiver` has options of the receiver.
fn gateway(broker: SocketAddr, destination: SocketAddr, receiver: &str) -> Process {
    profcol(&gateway_config(&broker.to_string(), destination, receiver))
}

fn gateway_config(brokers: &str, destination: SocketAddr, receiver: &str) -> String {
    format!(
        "\
receivers:
  kafka:
    brokers: [{brokers}]
    initial_offset: earliest
    session_timeout: 3s
    heartbeat_interval: 500ms
    {receiver}
exporters:
  otlp_grpc:
    endpoint: {destination}
    tls: {{insecure: true}}
    retry_on_failure: {{initial_interval: 100ms, max_interval: 500ms}}
service:
  shutdown_timeout: 20s
  telemetry: {{metrics: {{level: none}}, logs: {{sampling: {{enabled: false}}}}}}
  pipelines:
    profiles: {{receivers: [kafka], exporters: [otlp_grpc]}}
"
    )
}

/// A batch of one resource, which no other number has.
fn batch(number: usize) -> Profiles {
    let mut batch = profiles(samples_of(number));
    batch.update_resources(|resource| {
        resource.attributes = vec![KeyValue {
            key: "service.name".into(),
            value: Value::from(format!("service-{number}").as_str()),
        }];
        true
    });
    batch
}

fn samples_of(number: usize) -> usize {
    1 + number % 7
}

/// Samples by service.
#[derive(Default)]
struct Arrived(BTreeMap<String, usize>);

impl Arrived {
    fn take(&mut self, destination: &Destination) {
        self.0.clear();
        for profiles in destination.taken() {
            for resource in &profiles.model().resources {
                let attributes = resource.resource.iter().flat_map(|it| &it.attributes);
                let mut names = attributes.filter(|it| &*it.key == "service.name");
                let name = names.next().and_then(|it| it.value.as_str()).unwrap_or("");
                let profiles = resource.scopes.iter().flat_map(|it| &it.profiles);
                let samples: usize = profiles.map(|it| it.samples.len()).sum();
                *self.0.entry(name.to_owned()).or_default() += samples;
            }
        }
    }

    /// Waits until each service has arrived completely.
    fn wait_for(&mut self, destination: &Destination, services: usize) {
        wait_until("all services to arrive", || {
            self.take(destination);
            self.missing(services).is_empty()
        });
    }

    fn missing(&self, services: usize) -> Vec<usize> {
        let arrived = |number: usize| self.0.get(&format!("service-{number}")).copied();
        let lacks = |number: &usize| arrived(*number).unwrap_or(0) < samples_of(*number);
        (0..services).filter(lacks).collect()
    }

    /// How many batches arrived more than once. No batch arrives in part, and nothing else does.
    fn repeated(&self) -> usize {
        let mut repeated = 0;
        for (name, samples) in &self.0 {
            let number = name.strip_prefix("service-").unwrap();
            let whole = samples_of(number.parse().unwrap());
            assert_eq!(samples % whole, 0, "{name}: {samples} samples of {whole}");
            repeated += samples / whole - 1;
        }
        repeated
    }
}
