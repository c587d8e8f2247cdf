//! Every sample that clients were told is taken arrives once, unchanged, at every exporter.

#![allow(
    clippy::unwrap_used,
    reason = "what is unwrapped wrongly fails the test, as it should"
)]

mod backend;
mod peers;

use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use backend::{Client, Destination, HttpSender, Mode, endpoint_in};
use bytes::Bytes;
use peers::{Process, profcol};
use profcol_net::grpc::{Code, Status};
use profcol_net::{Compression, Message};
use profcol_profile::json::{self, ResourceAttrEncoding};
use profcol_profile::service::PartialSuccess;
use profcol_profile::testkit::{Observation, model_of, observations};
use profcol_profile::{Profiles, Validation};

const CLIENTS: u64 = 6;
const REQUESTS: u64 = 25;

#[test]
fn every_sample_arrives_unchanged_through_batch_and_two_exporters() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("profiles");
    // Some batches are refused and sent in pieces, the others as they are.
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
    process.wait_for_output("to be ready", |said| said.contains("Everything is ready"));
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
    let (status, said) = process.stop();
    assert!(status.success(), "{said}");

    sent.sort_unstable();
    assert!(sent.len() > 1000, "{} samples show nothing", sent.len());
    compare("the destination", &sent, &destination.taken());
    compare("the file", &sent, &records_in(&file));
}

#[test]
fn the_sidecar_of_the_examples_answers_when_its_gateway_did() {
    let gateway = Destination::new(Mode::Hang);
    let mut command = Command::new(env!("CARGO_BIN_EXE_profcol"));
    command
        .env("GATEWAY", gateway.address.to_string())
        .env("POD_NAME", "shop-1")
        .args(["--config", "config-examples/sidecar.yaml"])
        .args([
            "--set",
            "receivers.otlp.protocols.grpc.endpoint=127.0.0.1:0",
        ])
        .args(["--set", "service.telemetry.metrics.level=none"]);
    let mut process = Process::start_as(&mut command, &[], "{}");
    process.wait_for_output("to be ready", |said| said.contains("Everything is ready"));
    let client = Client::new(endpoint_in(&process.output(), "grpc"));
    let model = model_of(&noise(0));
    let sent = observations(&model).len();
    let answer = client.send_within(&Profiles::from_model(model), Duration::from_millis(500));
    assert!(answer.is_err(), "it was answered before the gateway was");
    gateway.set(Mode::Take);
    let model = model_of(&noise(0));
    client.send(&Profiles::from_model(model)).unwrap();
    assert!(gateway.samples() >= sent);
    let is_named = gateway.taken().iter().all(|profiles| {
        profiles.model().resources.iter().all(|resource| {
            let attributes = resource.resource.iter().flat_map(|said| &said.attributes);
            let mut pods = attributes.filter(|attribute| &*attribute.key == "k8s.pod.name");
            pods.any(|pod| pod.value.as_str() == Some("shop-1"))
        })
    });
    assert!(is_named, "{:?}", gateway.taken());
    let (status, said) = process.stop();
    assert!(status.success(), "{said}");
}

#[test]
fn a_replay_ends_when_all_was_delivered_and_fails_where_something_was_not() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("profiles.jsonl");
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
        let (status, said) = profcol(&config).ended();
        (status.code(), said)
    };
    fs::write(&file, [&record[..], b"\n", &record, b"\n"].concat()).unwrap();
    let destination = Destination::new(Mode::Take);
    let (code, said) = replay(&destination);
    assert_eq!(code, Some(0), "{said}");
    let samples = destination.samples();
    assert_eq!(samples, 2 * model.sample_count());
    let totals = format!(
        "files=1 unreadable_files=0 records=2 damaged_records=0 samples={samples} invalid_samples=0 \
         delivered_samples={samples} refused_samples=0 undelivered_samples=0"
    );
    assert_eq!(said.matches(&totals).count(), 1, "{totals} in {said}");

    fs::write(&file, [&record[..], b"\n{no json\n"].concat()).unwrap();
    let (code, said) = replay(&destination);
    assert_eq!(code, Some(1), "{said}");
    assert!(
        said.contains("receiver otlp_file: not everything was delivered (damaged records: 1)"),
        "{said}"
    );
}

#[test]
fn what_a_backend_says_forges_no_line_of_the_log() {
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
        process.wait_for_output("to be ready", |said| said.contains("Everything is ready"));
        let client = Client::new(endpoint_in(&process.output(), "grpc"));
        client
            .send(&Profiles::from_model(model_of(&noise(0))))
            .unwrap();
        process.wait_for_output("to quote the backend", |said| said.contains("forged"));
        let (_, said) = process.stop();
        assert!(said.contains(&expected), "{said}");
        let may_be_there = |c: char| matches!(c, '\n' | '\t') || profcol_printable::is_printable(c);
        assert!(said.chars().all(may_be_there), "{said:?}");
        assert!(!said.contains("\n2026-11-22T00:00:00Z"), "{said}");
    }
}

/// Sends what is different for each client and request; returns it sample by sample.
fn client_work(client: u64, send: impl Fn(&Profiles, u64)) -> Vec<Observation> {
    let mut sent = Vec::new();
    for request in 0..REQUESTS {
        let model = model_of(&noise(client * REQUESTS + request));
        sent.extend(observations(&model));
        send(&Profiles::from_model(model), request);
    }
    sent
}

/// As protobuf and JSON by turns.
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
        records.push(record.expect("records are whole and valid").profiles);
        rest = tail;
    }
    records
}

/// Numbers to make a model of, the same each time.
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
