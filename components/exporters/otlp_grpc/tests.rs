//! A local gRPC server with scripted answers, and peers that are absent, silent or speak only HTTP: what each answer
//! means for the batch, and what is sent.

use std::time::Duration;

use bytes::Bytes;
use profcol_component::testkit::{self, batch};
use profcol_net::Encoding;
use profcol_net::grpc::{Code, Status};
use profcol_otlp::service::{GRPC_PATH, PartialSuccess};
use profcol_profile::Profiles;
use tokio::io::AsyncReadExt;
use tokio::net::TcpListener;

use super::*;
use crate::shared::backend::{self, GrpcBackend, context, received, response};
use crate::shared::otlp::USER_AGENT;
use profcol_component::testkit::load;

async fn exporter(address: &str, options: &str) -> Box<dyn Exporter> {
    let options = format!("endpoint: {address}\ntls: {{insecure: true}}\n{options}");
    let config = load::<OtlpGrpcConfig>(&options).unwrap();
    let exporter = OtlpGrpc::build(&config, &context("otlp_grpc")).unwrap();
    exporter.start().await.unwrap();
    exporter
}

/// The refusal for a batch that the destination answers with `status`.
async fn answered(backend: &GrpcBackend, status: Status) -> Refusal {
    let exporter = exporter(&backend.address, "").await;
    backend.answer(Err(status));
    exporter.export(&batch(2)).await.unwrap_err()
}

#[tokio::test]
async fn handles_every_code_as_specified() {
    let backend = backend::grpc();
    for (code, retryable) in [
        (Code::Cancelled, true),
        (Code::Unknown, false),
        (Code::InvalidArgument, false),
        (Code::DeadlineExceeded, true),
        (Code::NotFound, false),
        (Code::AlreadyExists, false),
        (Code::PermissionDenied, false),
        (Code::ResourceExhausted, false),
        (Code::FailedPrecondition, false),
        (Code::Aborted, true),
        (Code::OutOfRange, true),
        (Code::Unimplemented, false),
        (Code::Internal, false),
        (Code::Unavailable, true),
        (Code::DataLoss, true),
        (Code::Unauthenticated, false),
    ] {
        let refusal = answered(&backend, Status::new(code, "as asked")).await;
        let reason = format!("rpc error: code = {code} desc = as asked");
        let expected = if retryable {
            Refusal::retry(reason)
        } else {
            Refusal::permanent(reason)
        };
        assert_eq!(refusal, expected);
        assert_eq!(backend.seen().len(), 1, "{code} was sent again");
    }
}

#[tokio::test]
async fn passes_on_the_retry_delay_of_the_destination() {
    let backend = backend::grpc();
    let wait = Duration::from_millis(1500);
    for (code, expected) in [
        (Code::Unavailable, Some(wait)),
        (Code::ResourceExhausted, Some(wait)),
        (Code::Internal, None),
    ] {
        let status = Status::new(code, "busy").with_retry_delay(wait);
        let delay = match answered(&backend, status).await {
            Refusal::Retry { after, .. } => after,
            _ => None,
        };
        assert_eq!(delay, expected, "{code}");
    }
}

#[tokio::test]
async fn responses_without_grpc_are_handled_by_http_status() {
    let proxy = backend::http();
    for (status, retryable) in [
        (400, false),
        (401, false),
        (404, false),
        (429, true),
        (502, true),
        (503, true),
        (504, true),
        (200, false),
    ] {
        let exporter = exporter(&proxy.address, "").await;
        proxy.answer(response(status, &[("content-type", "text/html")], "<html>"));
        let refusal = exporter.export(&batch(1)).await.unwrap_err();
        assert_eq!(refusal.is_retryable(), retryable, "{status}: {refusal}");
    }
}

#[tokio::test]
async fn a_partial_success_is_a_success_with_a_message() {
    let backend = backend::grpc();
    let partial = PartialSuccess {
        rejected_profiles: 3,
        error_message: "too old".to_owned(),
    };
    backend.answer(Ok(partial.encode().into()));
    let exporter = exporter(&backend.address, "").await;
    let delivered = exporter.export(&batch(2)).await.unwrap();
    assert_eq!(
        (delivered.rejected_profiles, &*delivered.message),
        (3, "too old")
    );
    backend.answer(Ok(Bytes::from_static(b"\xff no protobuf")));
    let garbled = exporter.export(&batch(2)).await;
    assert_eq!(garbled, Ok(Delivered::default()));
}

#[tokio::test]
async fn a_message_that_is_too_large_is_refused_with_the_reported_limit() {
    let backend = backend::grpc();
    let bytes = testkit::profiles(2).encoded_len();
    for (message, expected) in [
        ("grpc: received message larger than max (5000 vs. 100)", 100),
        (
            "grpc: received message after decompression larger than max 90",
            90,
        ),
        (
            "grpc: received message after decompression larger than max (5000 vs. 80)",
            80,
        ),
        ("larger than max", bytes / 2),
        (
            "trying to send message larger than max (1 vs. x)",
            bytes / 2,
        ),
    ] {
        let status = Status::new(Code::ResourceExhausted, message);
        match answered(&backend, status).await {
            Refusal::TooLarge { limit_bytes, .. } => assert_eq!(limit_bytes, expected, "{message}"),
            other => panic!("{message}: {other:?}"),
        }
    }
}

#[tokio::test]
async fn a_limit_is_learned_once() {
    let backend = backend::grpc();
    let exporter = exporter(&backend.address, "").await;
    let message = "grpc: received message larger than max (5000 vs. 100)";
    backend.answer(Err(Status::new(Code::ResourceExhausted, message)));
    assert!(exporter.export(&batch(5)).await.is_err());
    assert_eq!(backend.seen().len(), 1);
    for _ in 0..2 {
        let refusal = exporter.export(&batch(5)).await.unwrap_err();
        assert!(matches!(
            refusal,
            Refusal::TooLarge {
                limit_bytes: 100,
                ..
            }
        ));
    }
    assert!(
        exporter
            .export(&Batch::new(Profiles::default()))
            .await
            .is_ok()
    );
    assert_eq!(backend.seen().len(), 1);
}

#[tokio::test]
async fn unchanged_batches_keep_their_bytes() {
    let backend = backend::grpc();
    for (input, output) in [
        (Encoding::Gzip, "gzip"),
        (Encoding::Zstd, "zstd"),
        (Encoding::Gzip, "zstd"),
        (Encoding::Zstd, "snappy"),
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
            Some(sent) => {
                assert_ne!(sent.encoding, input);
                assert_ne!(sent.bytes, compressed);
            }
        }
    }
}

#[tokio::test]
async fn sends_headers_authentication_and_user_agent() {
    let backend = backend::grpc();
    let options = "headers: {x-tenant: db}\nauth: {authenticator: word}";
    let exporter = exporter(&backend.address, options).await;
    exporter.export(&batch(1)).await.unwrap();
    let sent = backend.seen().pop().unwrap();
    assert_eq!(sent.path, GRPC_PATH);
    for (name, value) in [
        ("x-tenant", "db"),
        ("authorization", "sesame"),
        ("user-agent", USER_AGENT),
        ("grpc-encoding", "gzip"),
    ] {
        assert_eq!(sent.headers.get(name).unwrap(), value);
    }
}

#[test]
fn an_error_names_a_missing_authenticator() {
    let config = load::<OtlpGrpcConfig>("endpoint: x:1\nauth: {authenticator: nobody}").unwrap();
    let error = OtlpGrpc::build(&config, &context("otlp_grpc"))
        .err()
        .unwrap();
    assert!(error.to_string().contains("\"nobody\""), "{error}");
}

#[tokio::test]
async fn missing_and_hanging_destinations_are_retryable() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let silent = exporter(&address, "timeout: 50ms").await;
    let refusal = silent.export(&batch(1)).await.unwrap_err();
    assert!(refusal.is_retryable(), "{refusal}");

    let impatient = exporter(&address, "").await;
    let hang_up = async {
        loop {
            let (mut connection, _) = listener.accept().await.unwrap();
            let mut bytes = [0; 64];
            let _ = connection.read(&mut bytes).await;
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

#[tokio::test]
async fn sends_the_id_of_the_batch_and_allows_no_other() {
    let backend = backend::grpc();
    let exporter = exporter(&backend.address, "").await;
    let batch = batch(1);
    exporter.export(&batch).await.unwrap();
    let seen = backend.seen().pop().unwrap();
    assert_eq!(seen.headers["profcol-batch-id"], batch.id.to_string());
    let error = load::<OtlpGrpcConfig>("endpoint: a:1\nheaders: {Profcol-Batch-Id: a}");
    let error = error.unwrap_err();
    assert!(
        error.contains("which the exporter sets; remove it"),
        "{error}"
    );
}
