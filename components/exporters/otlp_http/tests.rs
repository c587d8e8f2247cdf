//! A local HTTP server with scripted answers, and peers that are absent, silent or hang up: what each answer means
//! for the batch, and what is sent.

use std::time::Duration;

use profcol_component::testkit::{self, batch};
use profcol_net::Encoding;
use profcol_net::grpc::Code;
use profcol_profile::testkit::observations;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::*;
use crate::shared::backend::{self, HttpBackend, context, received, response};
use crate::shared::otlp::MAX_REASON_LEN;
use profcol_component::testkit::load;

async fn exporter(address: &str, options: &str) -> Box<dyn Exporter> {
    let options = format!("endpoint: http://{address}\n{options}");
    let config = load::<OtlpHttpConfig>(&options).unwrap();
    let exporter = OtlpHttp::build(&config, &context("otlp_http")).unwrap();
    exporter.start().await.unwrap();
    exporter
}

/// The result of exporting a batch to which the destination answers like that.
async fn answered(
    backend: &HttpBackend,
    status: u16,
    headers: &[(&'static str, &'static str)],
    body: impl Into<Bytes>,
) -> Result<Delivered, Refusal> {
    let exporter = exporter(&backend.address, "").await;
    backend.answer(response(status, headers, body));
    exporter.export(&batch(2)).await
}

#[tokio::test]
async fn handles_every_status_as_specified() {
    let backend = backend::http();
    for status in [200, 201, 202] {
        let answer = answered(&backend, status, &[], "").await;
        assert_eq!(answer, Ok(Delivered::default()), "{status}");
    }
    for (status, retryable) in [
        (301, false),
        (304, false),
        (400, false),
        (401, false),
        (403, false),
        (404, false),
        (405, false),
        (408, false),
        (415, false),
        (429, true),
        (431, false),
        (500, false),
        (501, false),
        (502, true),
        (503, true),
        (504, true),
        (505, false),
    ] {
        let refusal = answered(&backend, status, &[], "").await.unwrap_err();
        let url = format!("http://{}/v1development/profiles", backend.address);
        let reason = format!(
            "error exporting items, request to {url} responded with HTTP Status Code {status}"
        );
        let expected = if retryable {
            Refusal::retry(reason)
        } else {
            Refusal::permanent(reason)
        };
        assert_eq!(refusal, expected);
    }
    assert_eq!(backend.seen().len(), 20, "each was sent once");
}

#[tokio::test]
async fn passes_on_the_retry_delay_of_the_destination() {
    let backend = backend::http();
    for (status, value, seconds) in [
        (429, "7", Some(7)),
        (503, "120", Some(120)),
        (503, "soon", None),
        (503, "Sun, 06 Nov 1994 08:49:37 GMT", None),
        (502, "7", None),
        (500, "7", None),
    ] {
        let refusal = answered(&backend, status, &[("retry-after", value)], "").await;
        let delay = match refusal.unwrap_err() {
            Refusal::Retry { after, .. } => after,
            _ => None,
        };
        assert_eq!(delay, seconds.map(Duration::from_secs), "{status} {value}");
    }
}

#[tokio::test]
async fn reports_the_message_of_the_destination() {
    let backend = backend::http();
    let status = Status::new(Code::InvalidArgument, "stack 3 is bad");
    let long = "x".repeat(2000);
    let long_status = Status::new(Code::InvalidArgument, &*long);
    let long_message = format!(", Message={}", "x".repeat(MAX_REASON_LEN));
    let proto = [("content-type", "application/x-protobuf")];
    let json = [("content-type", "application/json")];
    let html = [("content-type", "text/html")];
    let message = ", Message=stack 3 is bad";
    let in_json = "{\"code\":3,\"message\":\"stack 3 is bad\"}".into();
    for (kind, body, expected) in [
        (&proto, status.to_protobuf(), message),
        (&json, in_json, message),
        (&json, b"{]".into(), ", Message={]"),
        (
            &html,
            b" <html>no</html>\n".into(),
            ", Message=<html>no</html>",
        ),
        (&html, long.into_bytes(), &*long_message),
        (&proto, long_status.to_protobuf(), &*long_message),
        (&proto, b"\xff\xfe".into(), ", Message=\u{fffd}\u{fffd}"),
        (&html, Vec::new(), ""),
    ] {
        let refusal = answered(&backend, 400, kind, body).await.unwrap_err();
        let reason = refusal.to_string();
        let words = reason.split_once("Status Code 400").unwrap().1;
        assert_eq!(words, expected);
    }
}

#[tokio::test]
async fn a_partial_success_is_a_success_with_a_message() {
    let backend = backend::http();
    let partial = PartialSuccess {
        rejected_profiles: 3,
        error_message: "too old".to_owned(),
    };
    let expected = Delivered {
        rejected_profiles: 3,
        message: "too old".to_owned(),
        undelivered: Vec::new(),
    };
    let proto = [("content-type", "application/x-protobuf")];
    let json = [("content-type", "application/json; charset=utf-8")];
    for (kind, body) in [
        (&proto, partial.encode()),
        (&json, partial.encode_json().into_bytes()),
    ] {
        let answer = answered(&backend, 200, kind, body).await;
        assert_eq!(answer, Ok(expected.clone()));
    }
    for kind in [&proto, &json] {
        let garbled = answered(&backend, 200, kind, "<html>").await;
        assert_eq!(garbled, Ok(Delivered::default()));
    }
}

#[tokio::test]
async fn payload_too_large_halves_the_batch() {
    let backend = backend::http();
    let bytes = testkit::profiles(2).encoded_len();
    let refusal = answered(&backend, 413, &[], "").await.unwrap_err();
    let Refusal::TooLarge { limit_bytes, .. } = refusal else {
        panic!("{refusal:?}");
    };
    assert_eq!(limit_bytes, bytes / 2);
}

#[tokio::test]
async fn unchanged_batches_keep_their_bytes() {
    let backend = backend::http();
    for (input, output) in [
        (Encoding::Gzip, "gzip"),
        (Encoding::Zstd, "zstd"),
        (Encoding::Gzip, "zstd"),
        (Encoding::Zstd, "lz4"),
        (Encoding::Gzip, "none"),
    ] {
        let exporter = exporter(&backend.address, &format!("compression: {output}")).await;
        let (mut batch, compressed) = received(50, input);
        let whole = batch.profiles.heap_size();
        batch
            .profiles
            .keep_for(exporter.delivery().passthrough_encoding);
        assert!(batch.profiles.heap_size() < whole, "{input} {output}");
        exporter.export(&batch).await.unwrap();
        assert!(batch.profiles.heap_size() < whole, "{input} {output}");
        let sent = backend.seen().pop().unwrap();
        assert_eq!(sent.body.plain, batch.profiles.to_wire());
        match sent.body.compressed {
            None => assert_eq!(output, "none"),
            Some(sent) if input.name() == output => assert_eq!(sent.bytes, compressed),
            Some(sent) => assert_eq!(sent.encoding.name(), output),
        }
    }
}

#[tokio::test]
async fn json_is_equivalent_to_protobuf() {
    let backend = backend::http();
    for options in [
        "encoding: json",
        "encoding: json\nresource_attr_encoding: dictionary",
        "encoding: json\ncompression: none",
    ] {
        let exporter = exporter(&backend.address, options).await;
        let (mut batch, _) = received(5, Encoding::Gzip);
        batch
            .profiles
            .keep_for(exporter.delivery().passthrough_encoding);
        exporter.export(&batch).await.unwrap();
        let sent = backend.seen().pop().unwrap();
        assert_eq!(sent.headers.get(CONTENT_TYPE).unwrap(), "application/json");
        let arrived = json::receive(&sent.body.plain, profcol_profile::Validation::Reject).unwrap();
        assert_eq!(
            observations(arrived.profiles.model()),
            observations(batch.profiles.model())
        );
    }
}

#[tokio::test]
async fn profiles_endpoint_overrides_endpoint() {
    let backend = backend::http();
    let address = &backend.address;
    for (endpoint, options, path) in [
        (
            format!("{address}/"),
            String::new(),
            "/v1development/profiles",
        ),
        (
            format!("{address}/base/"),
            String::new(),
            "/base/v1development/profiles",
        ),
        (
            "127.0.0.1:1".to_owned(),
            format!("profiles_endpoint: http://{address}/elsewhere"),
            "/elsewhere",
        ),
    ] {
        let exporter = exporter(&endpoint, &options).await;
        exporter.export(&batch(1)).await.unwrap();
        assert_eq!(backend.seen().pop().unwrap().path, path);
    }
}

#[tokio::test]
async fn sends_headers_authentication_and_user_agent() {
    let backend = backend::http();
    let options = "headers: {x-tenant: db}\nauth: {authenticator: word}";
    let exporter = exporter(&backend.address, options).await;
    exporter.export(&batch(1)).await.unwrap();
    let sent = backend.seen().pop().unwrap();
    for (name, value) in [
        ("x-tenant", "db"),
        ("authorization", "sesame"),
        ("user-agent", USER_AGENT),
        ("content-encoding", "gzip"),
        ("content-type", "application/x-protobuf"),
    ] {
        assert_eq!(sent.headers.get(name).unwrap(), value);
    }
}

#[tokio::test]
async fn missing_and_hanging_destinations_are_retryable() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let silent = exporter(&address, "timeout: 50ms").await;
    let refusal = silent.export(&batch(1)).await.unwrap_err();
    assert!(refusal.is_retryable(), "{refusal}");

    // A truncated response.
    let impatient = exporter(&address, "").await;
    let hang_up = async {
        loop {
            let (mut connection, _) = listener.accept().await.unwrap();
            let mut bytes = [0; 4096];
            let _ = connection.read(&mut bytes).await;
            let half = b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf";
            let _ = connection.write_all(half).await;
        }
    };
    let one = batch(1);
    let refusal = tokio::select! {
        answer = impatient.export(&one) => answer.unwrap_err(),
        () = hang_up => unreachable!("runs forever"),
    };
    assert!(refusal.is_retryable(), "{refusal}");

    drop(listener);
    let refusal = exporter(&address, "").await.export(&batch(1)).await;
    let refusal = refusal.unwrap_err();
    assert!(refusal.is_retryable(), "{refusal}");
    assert!(refusal.to_string().contains(&address), "{refusal}");
}

#[test]
fn validates_the_endpoints() {
    for (options, expected) in [
        ("{}", "at least one endpoint must be specified"),
        ("endpoint: localhost:4318", "is not a URL"),
        ("profiles_endpoint: ftp://x/y", "is not a URL"),
        (
            "endpoint: http://x\nresource_attr_encoding: dictionary",
            "only to `encoding: json`",
        ),
    ] {
        let error = load::<OtlpHttpConfig>(options).unwrap_err();
        assert!(error.contains(expected), "{options}: {error}");
    }
}

#[tokio::test]
async fn sends_the_id_of_the_batch_and_allows_no_other() {
    let backend = backend::http();
    let exporter = exporter(&backend.address, "").await;
    let batch = batch(1);
    exporter.export(&batch).await.unwrap();
    let seen = backend.seen().pop().unwrap();
    assert_eq!(seen.headers["profcol-batch-id"], batch.id.to_string());
    let error = load::<OtlpHttpConfig>("endpoint: http://a:1\nheaders: {Profcol-Batch-Id: a}");
    let error = error.unwrap_err();
    assert!(
        error.contains("which the exporter sets; remove it"),
        "{error}"
    );
}
