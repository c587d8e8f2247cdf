//! Every accepted sample arrives once, unchanged, at every exporter.

#![allow(clippy::unwrap_used, reason = "a panic fails the test")]

use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use profcol_net::grpc::{Code, Status};
use profcol_net::{Compression, Message};
use profcol_otlp::json::{self, ResourceAttrEncoding};
use profcol_otlp::service::PartialSuccess;
use profcol_profile::testkit::{Observation, model_of, observations};
use profcol_profile::{Profiles, Validation};
use profcol_test_harness::backend::{Client, Destination, HttpSender, Mode, endpoint_in};
use profcol_test_harness::peers::{Process, profcol};

const CLIENTS: u64 = 6;
const REQUESTS: u64 = 25;

#[test]
fn every_sample_arrives_unchanged_through_batch_and_two_exporters() {
    let directory = tempfile::tempdir().expect("can create a temporary directory");
    let file = directory.path().join("profiles");
    // Some batches are refused and sent in pieces, the others unchanged.
    let destination = Destination::new(Mode::AtMost(20_000));
    let config = format!(
        "\
receivers:
  otlp: {{protocols: {{grpc: {{endpoint: 127.0.0.1:0}}, http: {{endpoint: 127.0.0.1:0}}}}}}
processors:
  batch: {{send_batch_size: 300, send_batch_max_size: 400, timeout: 50ms}}
exporters:
  otlp_grpc: {{endpoint: {}, tls: {{insecure: true}}, compression: zstd}}
  file: {{path: {}, format: proto}}
service:
  telemetry: {{metrics: {{level: none}}}}
  pipelines:
    profiles: {{receivers: [otlp], processors: [batch], exporters: [otlp_grpc, file]}}
",
        destination.address,
        file.display()
    );
    let mut process = profcol(&config);
    process.wait_for_output("to be ready", |output| {
        output.contains("Everything is ready")
    });
    let (grpc, http) = (
        endpoint_in(&process.output(), "grpc"),
        endpoint_in(&process.output(), "http"),
    );

    let mut sent: Vec<Observation> = thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|number| {
                scope.spawn(move || {
                    let compression = [Compression::None, Compression::Gzip, Compression::Zstd]
                        [number as usize % 3];
                    if number % 2 == 0 {
                        let client = Client::compressing(grpc, compression);
                        client_work(number, |profiles, _| client.send(profiles).unwrap())
                    } else {
                        let client = HttpSender::new(http, compression);
                        client_work(number, |profiles, request| post(&client, profiles, request))
                    }
                })
            })
            .collect();
        let sent = clients.into_iter().map(|client| client.join());
        sent.flat_map(|sent| sent.expect("all was taken")).collect()
    });
    let (status, output) = process.stop();
    assert!(status.success(), "{output}");

    sent.sort_unstable();
    assert!(sent.len() > 1000, "{} samples show nothing", sent.len());
    compare("the destination", &sent, &destination.taken());
    compare("the file", &sent, &records_in(&file));
}

#[test]
fn the_example_sidecar_answers_after_its_gateway() {
    let gateway = Destination::new(Mode::Hang);
    let mut command = Command::new(env!("CARGO_BIN_EXE_profcol"));
    command
        .env("BACKEND", gateway.address.to_string())
        .env("POD_NAME", "shop-1")
        .args(["--config", "config-examples/sidecar.yaml"])
        .args([
            "--set",
            "receivers.otlp.protocols.grpc.endpoint=127.0.0.1:0",
        ])
        .args(["--set", "service.extensions=[]"])
        .args(["--set", "service.telemetry.metrics.level=none"]);
    let mut process = Process::start_as(&mut command, &[], "{}");
    process.wait_for_output("to be ready", |output| {
        output.contains("Everything is ready")
    });
    let client = Client::new(endpoint_in(&process.output(), "grpc"));
    let model = model_of(&noise(0));
    let sent = observations(&model).len();
    let answer = client.send_within(&Profiles::from_model(model), Duration::from_millis(500));
    assert!(answer.is_err(), "it answered before its gateway");
    gateway.set(Mode::Take);
    let model = model_of(&noise(0));
    client.send(&Profiles::from_model(model)).unwrap();
    assert!(gateway.samples() >= sent);
    let is_named = gateway.taken().iter().all(|profiles| {
        profiles.model().resources.iter().all(|resource| {
            let attributes = resource
                .resource
                .iter()
                .flat_map(|output| &output.attributes);
            let mut pods = attributes.filter(|attribute| &*attribute.key == "k8s.pod.name");
            pods.any(|pod| pod.value.as_str() == Some("shop-1"))
        })
    });
    assert!(is_named, "{:?}", gateway.taken());
    let (status, output) = process.stop();
    assert!(status.success(), "{output}");
}

#[test]
fn a_replay_ends_after_delivery_and_fails_on_undelivered_data() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("profiles.jsonl");
    let model = model_of(&noise(0));
    let record = json::encode(&model, ResourceAttrEncoding::Plain);
    let replay = |destination: &Destination| {
        let config = format!(
            "\
receivers:
  otlp_file: {{include: [{}], start_at: beginning, follow: false}}
exporters:
  otlp_grpc: {{endpoint: {}, tls: {{insecure: true}}}}
service:
  telemetry: {{metrics: {{level: none}}}}
  pipelines:
    profiles: {{receivers: [otlp_file], exporters: [otlp_grpc]}}
",
            file.display(),
            destination.address
        );
        let (status, output) = profcol(&config).ended();
        (status.code(), output)
    };
    fs::write(&file, [&record[..], b"\n", &record, b"\n"].concat()).unwrap();
    let destination = Destination::new(Mode::Take);
    let (code, output) = replay(&destination);
    assert_eq!(code, Some(0), "{output}");
    let samples = destination.samples();
    assert_eq!(samples, 2 * model.sample_count());
    let totals = format!(
        "files=1 unreadable_files=0 records=2 damaged_records=0 samples={samples} invalid_samples=0 \
         delivered_samples={samples} refused_samples=0 undelivered_samples=0"
    );
    assert_eq!(output.matches(&totals).count(), 1, "{totals} in {output}");

    fs::write(&file, [&record[..], b"\n{no json\n"].concat()).unwrap();
    let (code, output) = replay(&destination);
    assert_eq!(code, Some(1), "{output}");
    assert!(
        output.contains("receiver otlp_file: not everything was delivered (damaged records: 1)"),
        "{output}"
    );
}

#[test]
fn a_backend_message_cannot_forge_a_log_line() {
    const EVIL: &str = "no\n2026-11-22T00:00:00Z ERROR forged\r\x1b[2J\u{202e}";
    const ESCAPED: &str = r"no\n2026-11-22T00:00:00Z ERROR forged\r\x1b[2J\u{202e}";
    let partial = PartialSuccess {
        rejected_profiles: 1,
        error_message: EVIL.to_owned(),
    };
    for (mode, expected) in [
        (
            Mode::Refuse(Status::new(Code::InvalidArgument, EVIL)),
            ESCAPED.to_owned(),
        ),
        (
            Mode::Answer(partial.encode()),
            format!("message_from_backend={ESCAPED} "),
        ),
    ] {
        let destination = Destination::new(mode);
        let config = format!(
            "\
receivers:
  otlp: {{protocols: {{grpc: {{endpoint: 127.0.0.1:0}}}}}}
exporters:
  otlp_grpc: {{endpoint: {}, tls: {{insecure: true}}}}
service:
  telemetry: {{metrics: {{level: none}}}}
  pipelines:
    profiles: {{receivers: [otlp], exporters: [otlp_grpc]}}
",
            destination.address,
        );
        let mut process = profcol(&config);
        process.wait_for_output("to be ready", |output| {
            output.contains("Everything is ready")
        });
        let client = Client::new(endpoint_in(&process.output(), "grpc"));
        client
            .send(&Profiles::from_model(model_of(&noise(0))))
            .unwrap();
        process.wait_for_output("to quote the backend", |output| output.contains("forged"));
        let (_, output) = process.stop();
        assert!(output.contains(&expected), "{output}");
        let may_be_there = |c: char| matches!(c, '\n' | '\t') || profcol_printable::is_printable(c);
        assert!(output.chars().all(may_be_there), "{output:?}");
        assert!(!output.contains("\n2026-11-22T00:00:00Z"), "{output}");
    }
}

/// Sends distinct samples for each client and request; returns them.
fn client_work(client: u64, send: impl Fn(&Profiles, u64)) -> Vec<Observation> {
    let mut sent = Vec::new();
    for request in 0..REQUESTS {
        let model = model_of(&noise(client * REQUESTS + request));
        sent.extend(observations(&model));
        send(&Profiles::from_model(model), request);
    }
    sent
}

/// Alternates between protobuf and JSON.
fn post(client: &HttpSender, profiles: &Profiles, request: u64) {
    let (kind, body) = if request.is_multiple_of(2) {
        ("application/x-protobuf", profiles.to_wire())
    } else {
        let text = json::encode(profiles.model(), ResourceAttrEncoding::Plain);
        ("application/json", Bytes::from(text))
    };
    let reply = client.post(kind, &Message::from(body));
    assert_eq!(reply.status, 200, "{:?}", reply.body);
}

fn compare(place: &str, sent: &[Observation], batches: &[Profiles]) {
    let models = batches.iter().map(Profiles::model);
    let mut arrived: Vec<Observation> = models.flat_map(observations).collect();
    arrived.sort_unstable();
    assert_eq!(arrived.len(), sent.len(), "samples at {place}");
    for (arrived, sent) in arrived.iter().zip(sent) {
        assert_eq!(arrived, sent, "at {place}");
    }
}

/// The records of a file of length-prefixed protobuf.
fn records_in(path: &Path) -> Vec<Profiles> {
    let bytes = fs::read(path).expect("the file was written");
    let (mut rest, mut records) = (&bytes[..], Vec::new());
    while let Some((length, tail)) = rest.split_first_chunk() {
        let (record, tail) = tail.split_at(u32::from_be_bytes(*length) as usize);
        let record = Profiles::from_wire(record.to_vec().into(), Validation::Reject);
        records.push(record.expect("records are complete and valid").profiles);
        rest = tail;
    }
    records
}

/// Deterministic pseudo-random numbers to generate a model.
fn noise(seed: u64) -> Vec<u32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u32
    };
    std::iter::repeat_with(next).take(1200).collect()
}
