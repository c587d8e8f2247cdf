//! Our gRPC client against our gRPC server, over loopback.

#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a panic fails the test and ends its tasks"
)]

mod support;

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use profcol_config::Present;
use profcol_net::auth::{ClientAuth, ClientAuthError};
use profcol_net::compress::{Encoding, Level};
use profcol_net::grpc::{Code, Status};
use profcol_net::{Compression, GrpcCall, GrpcClient, GrpcClientSettings, Hint, Transport};

use support::*;

const ECHO: &str = "/test.Behaviour/Echo";

/// The response of a server with the given settings to a call of the given client.
async fn answer(
    client: &GrpcClientSettings,
    path: &'static str,
    sent: &[u8],
) -> Result<Bytes, Status> {
    call(&grpc_client(client), path, &message(sent.to_vec())).await
}

#[tokio::test]
async fn messages_of_any_size_are_echoed() {
    let server = grpc_server(&grpc_settings());
    let client = grpc_client(&plain_client(&server.endpoint()));
    for size in [0, 1, 16_379, 20_000, 524_288, 3_000_000] {
        let sent = message(vec![7; size]);
        assert_eq!(
            call(&client, ECHO, &sent).await.unwrap(),
            sent.plain,
            "{size}"
        );
    }
}

/// The response to a request without a body: HTTP status and headers.
async fn answer_to(server: &Running, request: http::Request<()>) -> http::response::Parts {
    let socket = tokio::net::TcpStream::connect(server.tcp()).await.unwrap();
    let (client, connection) = h2::client::handshake(socket).await.unwrap();
    let driving = tokio::spawn(connection);
    let (answer, _) = client
        .ready()
        .await
        .unwrap()
        .send_request(request, true)
        .unwrap();
    let head = answer.await.unwrap().into_parts().0;
    driving.abort();
    head
}

#[tokio::test]
async fn non_grpc_requests_get_an_http_status() {
    let service = Behaviour::default();
    let server = grpc_server_with(&grpc_settings(), None, service.clone());
    let grpc = Some("application/grpc");
    for (method, content_type, http, status) in [
        ("GET", grpc, 405, "13"),
        ("PUT", Some("application/grpc+proto"), 405, "13"),
        ("OPTIONS", grpc, 405, "13"),
        ("GET", Some("text/html"), 415, "3"),
        ("POST", None, 415, "3"),
        ("POST", Some("application/grpc-web"), 415, "3"),
        ("POST", Some("application/grpcx"), 415, "3"),
        ("POST", Some("application/json"), 415, "3"),
        // A call without a message.
        ("POST", grpc, 200, "13"),
    ] {
        let url = format!("http://{}{ECHO}", server.endpoint());
        let mut request = http::Request::builder().method(method).uri(url);
        if let Some(content_type) = content_type {
            request = request.header("content-type", content_type);
        }
        let head = answer_to(&server, request.body(()).unwrap()).await;
        let got = (
            head.status.as_u16(),
            head.headers["grpc-status"].to_str().unwrap(),
        );
        assert_eq!(got, (http, status), "{method} {content_type:?}");
        assert_eq!(head.headers["content-type"], "application/grpc");
        let allowed = head.headers.get("allow").map(http::HeaderValue::as_bytes);
        assert_eq!(allowed, (http == 405).then_some(&b"POST"[..]));
    }
    assert_eq!(service.calls.load(Relaxed), 0);
}

#[tokio::test]
async fn many_calls_share_a_connection() {
    let server = grpc_server(&grpc_settings());
    let client = Arc::new(grpc_client(&plain_client(&server.endpoint())));
    let calls: Vec<_> = (0..300u32)
        .map(|i| {
            let client = client.clone();
            tokio::spawn(async move {
                let sent = message(i.to_be_bytes().repeat(10_000));
                assert_eq!(call(&client, ECHO, &sent).await.unwrap(), sent.plain);
            })
        })
        .collect();
    for call in calls {
        call.await.unwrap();
    }
    assert_eq!(server.stats.accepted.load(Relaxed), 1);
}

#[tokio::test]
async fn messages_travel_compressed_and_already_compressed_ones_as_they_are() {
    let server = grpc_server(&grpc_settings());
    let text = b"abcabcabc".repeat(1000);
    for (compression, encoding) in [
        (Compression::Gzip, Encoding::Gzip),
        (Compression::Zstd, Encoding::Zstd),
        (Compression::Snappy, Encoding::SnappyFramed),
    ] {
        let settings = GrpcClientSettings {
            compression,
            ..plain_client(&server.endpoint())
        };
        let client = grpc_client(&settings);
        assert_eq!(
            call(&client, ECHO, &message(text.clone())).await.unwrap(),
            text
        );

        // A compression level not used elsewhere makes the size unique to these bytes.
        let mut packed = compressed(encoding, &text);
        if let Some(inner) = &mut packed.compressed {
            inner.bytes = profcol_net::compress::compress(encoding, Level(1), &text);
        }
        let size = packed.compressed.as_ref().unwrap().bytes.len();
        let described = call(&client, "/test.Behaviour/Describe", &packed)
            .await
            .unwrap();
        assert_eq!(described, format!("{encoding} {size}"));

        // Other encodings are recompressed.
        let other = compressed(Encoding::Lz4, &text);
        let described = call(&client, "/test.Behaviour/Describe", &other)
            .await
            .unwrap();
        assert!(
            described.starts_with(encoding.to_string().as_bytes()),
            "{described:?}"
        );
    }
}

#[tokio::test]
async fn every_status_arrives_as_it_was_sent() {
    let server = grpc_server(&grpc_settings());
    let client = grpc_client(&plain_client(&server.endpoint()));
    for code in Code::ALL.into_iter().skip(1) {
        let status = call(
            &client,
            "/test.Behaviour/Fail",
            &message(vec![code.number()]),
        )
        .await
        .unwrap_err();
        assert_eq!(status, Status::new(code, "as requested"));
    }
}

#[tokio::test]
async fn refusals_by_admit_carry_a_delay_and_read_no_message() {
    let server = grpc_server(&grpc_settings());
    let client = grpc_client(&plain_client(&server.endpoint()));
    let mut headers = HeaderMap::new();
    headers.insert("x-refuse", "1".parse().unwrap());
    let body = message(vec![0; 30 << 20]);
    let refused = GrpcCall {
        path: ECHO,
        message: &body,
        headers,
        timeout: None,
    };
    let status = client.unary(refused).await.unwrap_err();
    assert_eq!(
        (status.code, status.retry_delay),
        (Code::ResourceExhausted, Some(Duration::from_secs(2)))
    );
    let status = call(&client, "/test.Other/Do", &body).await.unwrap_err();
    assert_eq!(
        status,
        Status::new(
            Code::Unimplemented,
            "unknown method Do for service test.Other"
        )
    );
}

#[tokio::test]
async fn messages_over_the_limit_are_refused_before_and_after_decompression() {
    let mut settings = grpc_settings();
    settings.max_recv_msg_size_mib = 1;
    let server = grpc_server(&settings);
    let plain = plain_client(&server.endpoint());
    let gzip = GrpcClientSettings {
        compression: Compression::Gzip,
        ..plain.clone()
    };
    let error = answer(&plain, ECHO, &vec![0; 5_000_000]).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "rpc error: code = ResourceExhausted desc = grpc: received message larger than max (5000000 vs. 1048576)"
    );
    let error = answer(&gzip, ECHO, &vec![0; 50_000_000]).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "rpc error: code = ResourceExhausted desc = grpc: received message after decompression larger than max 1048576"
    );
}

#[tokio::test]
async fn a_panic_is_reported_and_counted_and_the_server_continues() {
    let server = grpc_server(&grpc_settings());
    let client = grpc_client(&plain_client(&server.endpoint()));
    let status = call(&client, "/test.Behaviour/Panic", &message(""))
        .await
        .unwrap_err();
    assert_eq!(status.code, Code::Internal);
    assert_eq!(server.stats.panics.load(Relaxed), 1);
    assert_eq!(
        call(&client, ECHO, &message("still here")).await.unwrap(),
        "still here"
    );
}

#[tokio::test]
async fn a_deadline_ends_a_call_on_both_sides() {
    let server = grpc_server(&grpc_settings());
    let client = grpc_client(&plain_client(&server.endpoint()));
    let body = message("");
    let slow = GrpcCall {
        path: "/test.Behaviour/Never",
        message: &body,
        headers: HeaderMap::new(),
        timeout: Some(Duration::from_millis(50)),
    };
    assert_eq!(
        client.unary(slow).await.unwrap_err().code,
        Code::DeadlineExceeded
    );
}

#[tokio::test]
async fn services_get_the_metadata_and_whether_to_pass_it_on() {
    for include_metadata in [false, true] {
        let mut settings = grpc_settings();
        settings.include_metadata = include_metadata;
        let server = grpc_server(&settings);
        let mut client = plain_client(&server.endpoint());
        client.headers.0.push(("x-tenant".to_owned(), "a".into()));
        let names = answer(&client, "/test.Behaviour/Metadata", b"")
            .await
            .unwrap();
        let names = String::from_utf8_lossy(&names);
        assert!(names.contains("x-tenant"), "{names}");
        let expected = format!("include={include_metadata}");
        assert!(names.ends_with(&expected), "{names}");
    }
}

#[derive(Debug)]
struct Key(&'static str);

#[async_trait::async_trait]
impl ClientAuth for Key {
    async fn headers(&self) -> Result<Vec<(http::HeaderName, http::HeaderValue)>, ClientAuthError> {
        let value = self
            .0
            .parse()
            .map_err(|_| ClientAuthError::new("bad key"))?;
        Ok(vec![(http::header::AUTHORIZATION, value)])
    }
}

#[tokio::test]
async fn an_authenticator_accepts_or_refuses_calls() {
    let server = grpc_server_with(
        &grpc_settings(),
        Some(Arc::new(StaticAuth)),
        Behaviour::default(),
    );
    let settings = plain_client(&server.endpoint());
    for (key, expected) in [
        ("open sesame", Ok(Bytes::from("x"))),
        (
            "hello",
            Err(Status::new(Code::Unauthenticated, "who are you?")),
        ),
        (
            "\n",
            Err(
                Status::new(Code::Unavailable, "failed to get credentials: bad key")
                    .with_hint(Hint::CheckCredentials),
            ),
        ),
    ] {
        let client = GrpcClient::new(&settings, Some(Arc::new(Key(key))), "test/1").unwrap();
        assert_eq!(call(&client, ECHO, &message("x")).await, expected);
    }
}

#[tokio::test]
async fn serves_on_a_unix_socket() {
    let dir = tempfile::tempdir().unwrap();
    let mut settings = grpc_settings();
    settings.transport = Transport::Unix;
    settings.endpoint = dir.path().join("s").to_str().unwrap().to_owned();
    let server = grpc_server(&settings);
    assert_eq!(
        answer(&plain_client(&server.endpoint()), ECHO, b"x")
            .await
            .unwrap(),
        "x"
    );
    server.stop(Duration::ZERO).await;
    assert!(!dir.path().join("s").exists());
}

#[tokio::test]
async fn a_stopping_server_finishes_active_calls_and_accepts_no_more() {
    let service = Behaviour::default();
    let server = grpc_server_with(&grpc_settings(), None, service.clone());
    let settings = plain_client(&server.endpoint());
    let client = Arc::new(grpc_client(&settings));
    let running = tokio::spawn({
        let client = client.clone();
        async move { call(&client, "/test.Behaviour/Slow", &message("")).await }
    });
    service.is_called().await;
    server.stop(Duration::from_secs(10)).await;
    assert_eq!(running.await.unwrap().unwrap(), "late");
    let error = call(&client, ECHO, &message("")).await.unwrap_err();
    assert_eq!(error.code, Code::Unavailable);
    assert!(error.message.ends_with("connection refused"), "{error}");
    assert_eq!(error.hint, Some(Hint::StartServer), "{error}");
}

#[tokio::test]
async fn calls_beyond_the_shutdown_deadline_are_aborted() {
    let service = Behaviour::default();
    let server = grpc_server_with(&grpc_settings(), None, service.clone());
    let client = grpc_client(&plain_client(&server.endpoint()));
    let running =
        tokio::spawn(async move { call(&client, "/test.Behaviour/Never", &message("")).await });
    service.is_called().await;
    server.stop(Duration::from_millis(100)).await;
    assert_eq!(running.await.unwrap().unwrap_err().code, Code::Unavailable);
}

#[tokio::test]
async fn a_restarted_server_is_used_immediately() {
    let server = grpc_server(&grpc_settings());
    let client = grpc_client(&plain_client(&server.endpoint()));
    assert_eq!(call(&client, ECHO, &message("1")).await.unwrap(), "1");
    let mut again = grpc_settings();
    again.endpoint = server.endpoint();
    server.stop(Duration::from_secs(5)).await;
    let _server = grpc_server(&again);
    assert_eq!(call(&client, ECHO, &message("2")).await.unwrap(), "2");
}

#[tokio::test]
async fn a_client_may_wait_for_its_server() {
    let placeholder = grpc_server(&grpc_settings());
    let mut later = grpc_settings();
    later.endpoint = placeholder.endpoint();
    placeholder.stop(Duration::ZERO).await;
    let mut settings = plain_client(&later.endpoint);
    settings.wait_for_ready = true;
    let waiting = tokio::spawn(async move { answer(&settings, ECHO, b"x").await });
    // For so long the server is down.
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(!waiting.is_finished());
    let _server = grpc_server(&later);
    assert_eq!(waiting.await.unwrap().unwrap(), "x");
}

#[tokio::test]
async fn an_old_connection_is_renewed_without_losing_a_call() {
    let mut settings = grpc_settings();
    settings.keepalive.server_parameters.max_connection_age =
        profcol_config::Duration::from_millis(50);
    let server = grpc_server(&settings);
    let client = grpc_client(&plain_client(&server.endpoint()));
    wait_until("five connections", async || {
        assert_eq!(call(&client, ECHO, &message("x")).await.unwrap(), "x");
        server.stats.accepted.load(Relaxed) >= 5
    })
    .await;
}

#[tokio::test]
async fn an_idle_connection_is_closed() {
    let mut settings = grpc_settings();
    settings.keepalive.server_parameters.max_connection_idle =
        profcol_config::Duration::from_millis(50);
    let server = grpc_server(&settings);
    let client = grpc_client(&plain_client(&server.endpoint()));
    needs_a_second_connection(&server, &client).await;
}

#[tokio::test]
async fn a_client_that_pings_too_often_gets_goaway() {
    let mut settings = grpc_settings();
    settings.keepalive.enforcement_policy.min_time = profcol_config::Duration::from_secs(60);
    let server = grpc_server(&settings);
    let mut client = plain_client(&server.endpoint());
    client.keepalive = Present(Some(profcol_net::GrpcClientKeepalive {
        time: profcol_config::Duration::from_millis(20),
        timeout: profcol_config::Duration::from_secs(5),
        permit_without_stream: true,
    }));
    let client = grpc_client(&client);
    needs_a_second_connection(&server, &client).await;
}

/// Makes successful calls until the first connection is gone.
async fn needs_a_second_connection(server: &Running, client: &GrpcClient) {
    wait_until("a second connection", async || {
        call(client, ECHO, &message("")).await.unwrap();
        // It is idle for longer than the limits in these tests.
        tokio::time::sleep(Duration::from_millis(200)).await;
        server.stats.accepted.load(Relaxed) >= 2
    })
    .await;
}
