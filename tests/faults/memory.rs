//! Crowds of large requests stay within the limit of `memory_limiter`.

use std::thread;

use bytes::Bytes;
use profcol_component::testkit::profiles;
use profcol_net::compress::{Encoding, Level, compress};
use profcol_net::grpc::Code;
use profcol_net::{Compressed, Compression, Message};
use profcol_profile::{Profiles, Validation};
use profcol_test_harness::backend::{Client, HttpSender};
use profcol_test_harness::peers::profcol;

use crate::Rig;

const LIMIT_MIB: usize = 200;
/// How far the process may exceed the limit.
const TOLERATED_MIB: usize = LIMIT_MIB / 10;
/// Together their decompressed requests take many times the limit.
const CLIENTS: usize = 60;
/// Close to the maximum size.
const BODY: usize = 60 << 20;
const PROTOBUF: &str = "application/x-protobuf";
const JSON: &str = "application/json";

/// A profcol whose destination is down, so that it keeps accepted data.
fn rig() -> Rig {
    let gone = "{endpoint: 127.0.0.1:9, tls: {insecure: true}, compression: none}";
    exporting_to("otlp_grpc", gone)
}

fn exporting_to(exporter: &str, options: &str) -> Rig {
    Rig::started(profcol(&format!(
        "\
receivers:
  otlp:
    protocols:
      grpc: {{endpoint: 127.0.0.1:0}}
      http: {{endpoint: 127.0.0.1:0}}
processors:
  memory_limiter: {{check_interval: 1s, limit_mib: {LIMIT_MIB}}}
exporters:
  {exporter}: {options}
service:
  telemetry: {{metrics: {{level: none}}}}
  pipelines:
    profiles: {{receivers: [otlp], processors: [memory_limiter], exporters: [{exporter}]}}
"
    )))
}

/// A request with one sample and a long string, partly noise, so that it compresses to more than a MiB.
fn large_request() -> Bytes {
    let mut state = 1_u64;
    let mut digit = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        b'0' + (state % 64) as u8
    };
    let mut text: String = (0..2 << 20).map(|_| char::from(digit())).collect();
    text.extend(std::iter::repeat_n(' ', BODY - text.len()));
    let mut model = profiles(1).into_model();
    let dictionary = std::sync::Arc::make_mut(&mut model.dictionary);
    dictionary.strings.push(&text);
    let wire = Profiles::from_model(model).to_wire();
    Profiles::from_wire(wire.clone(), Validation::Reject).expect("it is valid");
    wire
}

fn packed(encoding: Encoding, plain: &Bytes) -> Message {
    Message {
        plain: plain.clone(),
        compressed: Some(Compressed {
            encoding,
            bytes: compress(encoding, Level(1), plain),
        }),
    }
}

/// The results of concurrent clients.
fn send_concurrently<T: Send>(send: impl Fn() -> T + Sync) -> Vec<T> {
    thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(&send)).collect();
        let answers = clients.into_iter().map(|client| client.join());
        answers.map(|answer| answer.expect("it exits")).collect()
    })
}

fn assert_within_limit(rig: &Rig, what: &str) {
    let peak = rig.peak_mib() - rig.file_mib();
    assert!(
        peak <= LIMIT_MIB + TOLERATED_MIB,
        "{what}: {peak} MiB, the limit is {LIMIT_MIB}"
    );
}

#[test]
fn the_limit_holds_for_many_large_messages_over_grpc() {
    let plain = large_request();
    for (compression, encoding) in [
        (Compression::Gzip, Some(Encoding::Gzip)),
        (Compression::Zstd, Some(Encoding::Zstd)),
        (Compression::Snappy, Some(Encoding::SnappyFramed)),
        (Compression::None, None),
    ] {
        let message = match encoding {
            Some(encoding) => packed(encoding, &plain),
            None => Message::from(plain.clone()),
        };
        let rig = rig();
        let answers =
            send_concurrently(|| Client::compressing(rig.grpc, compression).send_message(&message));
        assert_within_limit(&rig, &format!("{compression:?}"));
        let refusals = answers.iter().filter_map(|answer| answer.as_ref().err());
        for refusal in refusals.clone() {
            assert_eq!(refusal.code, Code::Unavailable, "{refusal}");
            assert!(refusal.retry_delay.is_some(), "{refusal}");
        }
        assert!(
            refusals.count() > 0,
            "{compression:?}: there was room for all"
        );
    }
}

#[test]
fn the_limit_holds_for_many_large_bodies_over_http() {
    let plain = large_request();
    for (compression, encoding) in [
        (Compression::Gzip, Some(Encoding::Gzip)),
        (Compression::Deflate, Some(Encoding::Zlib)),
        (Compression::Zstd, Some(Encoding::Zstd)),
        (Compression::Snappy, Some(Encoding::Snappy)),
        (Compression::SnappyFramed, Some(Encoding::SnappyFramed)),
        (Compression::Lz4, Some(Encoding::Lz4)),
        (Compression::None, None),
    ] {
        let message = match encoding {
            Some(encoding) => packed(encoding, &plain),
            None => Message::from(plain.clone()),
        };
        let rig = rig();
        let answers =
            send_concurrently(|| HttpSender::new(rig.http, compression).post(PROTOBUF, &message));
        assert_within_limit(&rig, &format!("{compression:?}"));
        let refusals = answers.iter().filter(|answer| answer.status != 200);
        for refusal in refusals.clone() {
            assert_eq!(refusal.status, 503, "{compression:?}");
            assert!(refusal.headers.contains_key("retry-after"));
        }
        assert!(
            refusals.count() > 0,
            "{compression:?}: there was room for all"
        );
    }
}

/// A body with minimal parts, which need far more memory once decoded.
fn repeated(before: &str, part: &str, after: &str) -> Bytes {
    let times = BODY / part.len();
    let body = [
        before,
        &part.repeat(times - 1),
        part.trim_end_matches(','),
        after,
    ];
    Bytes::from(body.concat())
}

#[test]
fn the_limit_holds_for_requests_that_expand_when_decoded() {
    let rig = exporting_to("nop", "");
    let profile = "[{\"scopeProfiles\":[{\"profiles\":[";
    for (kind, body) in [
        (JSON, repeated("{\"resourceProfiles\":[", "{},", "]}")),
        (
            JSON,
            repeated(
                &format!("{{\"resourceProfiles\":{profile}"),
                "{},",
                "]}]}]}",
            ),
        ),
        (
            JSON,
            repeated("{\"dictionary\":{\"attributeTable\":[", "{},", "]}}"),
        ),
        (
            JSON,
            repeated("{\"dictionary\":{\"stringTable\":[", "\"\",", "]}}"),
        ),
        // Empty resources.
        (PROTOBUF, repeated("", "\x0a\x00", "")),
    ] {
        let http = HttpSender::new(rig.http, Compression::Gzip);
        let status = http.status(kind, &packed(Encoding::Gzip, &body));
        assert_within_limit(&rig, &format!("{kind}: {:?}", &body[..40]));
        assert!([200, 413, 503].contains(&status.as_u16()), "{status}");
    }
    // All memory is free again.
    Client::new(rig.grpc).send(&profiles(1)).unwrap();
    rig.stop();
}
