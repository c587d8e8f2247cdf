//! Our HTTP client against our HTTP server, over loopback.

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
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use profcol_config::Url;
use profcol_net::compress::Encoding;
use profcol_net::{
    Compression, HttpCall, HttpClient, HttpClientSettings, HttpError, HttpReply, Message,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use support::*;

async fn send(
    settings: &HttpClientSettings,
    url: &str,
    body: &Message,
) -> Result<HttpReply, HttpError> {
    let client = HttpClient::new(settings, url, None, "test/1").unwrap();
    client.send(post(body)).await
}

fn post(body: &Message) -> HttpCall<'_> {
    HttpCall {
        method: Method::POST,
        content_type: HeaderValue::from_static("application/x-protobuf"),
        body,
        headers: HeaderMap::new(),
        timeout: None,
    }
}

#[tokio::test]
async fn bodies_travel_in_every_encoding() {
    let server = http_server(&http_settings());
    let url = format!("http://{}/v1", server.endpoint());
    let text = message(b"abcabcabc".repeat(1000));
    for (compression, expected) in [
        (Compression::None, "plain"),
        (Compression::Gzip, "gzip"),
        (Compression::Zlib, "zlib"),
        (Compression::Deflate, "zlib"),
        (Compression::Zstd, "zstd"),
        (Compression::Snappy, "snappy"),
        (Compression::SnappyFramed, "framed snappy"),
        (Compression::Lz4, "lz4"),
    ] {
        let settings = HttpClientSettings {
            compression,
            ..HttpClientSettings::default()
        };
        let reply = send(&settings, &url, &text).await.unwrap();
        assert_eq!(reply.body, format!("POST /v1 {expected} 9000 test/1"));
    }
    let ready = compressed(Encoding::Gzip, &text.plain);
    let reply = send(&HttpClientSettings::default(), &url, &ready)
        .await
        .unwrap();
    assert_eq!(reply.body, "POST /v1 gzip 9000 test/1");
}

#[tokio::test]
async fn large_bodies_arrive_whole() {
    let server = http_server(&http_settings());
    let url = format!("http://{}/", server.endpoint());
    let settings = HttpClientSettings {
        compression: Compression::None,
        ..HttpClientSettings::default()
    };
    for size in [0, 1, 100_000, 5_000_000] {
        let reply = send(&settings, &url, &message(vec![1; size]))
            .await
            .unwrap();
        assert_eq!(reply.body, format!("POST / plain {size} test/1"));
    }
}

#[tokio::test]
async fn a_streamed_body_has_its_announced_length_or_fails() {
    let check = async |announced: u64, is_sent: bool| {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/file?secret", listener.local_addr().unwrap());
        let heard = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut heard = Vec::new();
            let mut part = [0; 4096];
            while !heard.ends_with(b"bytes") {
                match stream.read(&mut part).await.unwrap() {
                    0 => break,
                    length => heard.extend(&part[..length]),
                }
            }
            if is_sent {
                let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
                stream.write_all(answer).await.unwrap();
            }
            String::from_utf8(heard).unwrap()
        });
        let settings = HttpClientSettings {
            compression: Compression::Gzip,
            ..HttpClientSettings::default()
        };
        let client = HttpClient::new(&settings, &url, None, "test/1").unwrap();
        let (sender, chunks) = tokio::sync::mpsc::channel(1);
        let sending = async {
            for part in ["some ", "plain ", "bytes"] {
                sender.send(Bytes::from(part)).await.unwrap();
            }
            drop(sender);
        };
        let (answer, ()) = tokio::join!(client.put(announced, chunks), sending);
        assert_eq!(answer.is_ok(), is_sent, "{answer:?}");
        let heard = heard.await.unwrap().to_ascii_lowercase();
        assert!(heard.starts_with("put /file?secret http/1.1"), "{heard}");
        assert!(
            heard.contains(&format!("content-length: {announced}")),
            "{heard}"
        );
        assert!(!is_sent || heard.ends_with("some plain bytes"), "{heard}");
        assert!(!heard.contains("content-type"), "{heard}");
    };
    check(16, true).await;
    check(17, false).await;
}

#[tokio::test]
async fn refusals_are_responses() {
    let mut settings = http_settings();
    settings.max_request_body_size = 1000;
    settings.compression_algorithms = vec![String::new(), "gzip".to_owned()];
    let server = http_server(&settings);
    let url = |path: &str| format!("http://{}{path}", server.endpoint());
    let none = HttpClientSettings {
        compression: Compression::None,
        ..HttpClientSettings::default()
    };
    let gzip = HttpClientSettings::default();
    let zstd = HttpClientSettings {
        compression: Compression::Zstd,
        ..HttpClientSettings::default()
    };
    for (settings, path, size, status, body) in [
        (&none, "/missing", 10, 404, "nothing here"),
        (&none, "/busy", 10, 503, ""),
        (&none, "/panic", 10, 500, "the handler panicked"),
        (
            &none,
            "/",
            1001,
            413,
            "body exceeds the limit of 1000 bytes",
        ),
        (
            &gzip,
            "/",
            100_000,
            413,
            "request body: decompressed size exceeds the limit of 1000 bytes",
        ),
        (&zstd, "/", 10, 415, "unsupported Content-Encoding: zstd"),
    ] {
        let reply = send(settings, &url(path), &message(vec![0; size]))
            .await
            .unwrap();
        assert_eq!(
            (reply.status.as_u16(), &reply.body[..]),
            (status, body.as_bytes()),
            "{path}"
        );
    }
    assert_eq!(server.stats.panics.load(Relaxed), 1);
}

/// Sends raw bytes and returns the whole response.
async fn raw(addr: std::net::SocketAddr, request: &[u8]) -> String {
    let mut stream = TcpStream::connect(addr).await.unwrap();
    stream.write_all(request).await.unwrap();
    let mut answer = Vec::new();
    // A server that gives up may reset the connection after its response.
    let _ = stream.read_to_end(&mut answer).await;
    String::from_utf8_lossy(&answer).into_owned()
}

#[tokio::test]
async fn a_refused_client_learns_how_to_authenticate() {
    let server = http_server_with(&http_settings(), Some(Arc::new(StaticAuth)));
    let get = async |path: &str, header: &str| {
        let request =
            format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{header}\r\n");
        raw(server.tcp(), request.as_bytes()).await
    };
    let challenge = "www-authenticate: Basic realm=\"profcol\", charset=\"UTF-8\"\r\n";
    for header in ["", "authorization: Basic eDp5\r\n"] {
        let refused = get("/", header).await;
        assert!(refused.starts_with("HTTP/1.1 401 "), "{refused}");
        assert!(refused.contains(challenge), "{refused}");
    }
    for (path, header) in [("/", "authorization: open sesame\r\n"), ("/public", "")] {
        let answer = get(path, header).await;
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        assert!(!answer.contains("www-authenticate"), "{answer}");
    }
}

#[tokio::test]
async fn a_body_without_length_is_limited() {
    let mut settings = http_settings();
    settings.max_request_body_size = 1000;
    let server = http_server(&settings);
    let mut request =
        b"POST / HTTP/1.1\r\nhost: x\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n"
            .to_vec();
    for _ in 0..20 {
        request.extend_from_slice(b"64\r\n");
        request.extend_from_slice(&[b'x'; 100]);
        request.extend_from_slice(b"\r\n");
    }
    request.extend_from_slice(b"0\r\n\r\n");
    let answer = raw(server.tcp(), &request).await;
    assert!(answer.starts_with("HTTP/1.1 413"), "{answer}");
}

#[tokio::test]
async fn damaged_compressed_bodies_are_bad_requests() {
    let server = http_server(&http_settings());
    for encoding in ["gzip", "zstd", "snappy", "lz4", "zlib"] {
        let request = format!(
            "POST / HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-encoding: {encoding}\r\ncontent-length: 5\r\n\r\nwrong"
        );
        let answer = raw(server.tcp(), request.as_bytes()).await;
        assert!(answer.starts_with("HTTP/1.1 400"), "{encoding}: {answer}");
    }
}

#[tokio::test]
async fn unfinished_headers_time_out() {
    let mut settings = http_settings();
    settings.read_header_timeout = profcol_config::Duration::from_millis(100);
    let server = http_server(&settings);
    for start in [
        &b""[..],
        b"POST / HTTP/1.1\r\nhost: x\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM",
    ] {
        let answer = tokio::time::timeout(Duration::from_secs(10), raw(server.tcp(), start)).await;
        assert!(answer.is_ok(), "still open after {start:?}");
    }
}

#[tokio::test]
async fn an_idle_connection_is_closed_and_a_request_in_time_keeps_it() {
    let mut settings = http_settings();
    settings.keepalive.idle_timeout = profcol_config::Duration::from_millis(200);
    let server = http_server(&settings);
    let mut stream = TcpStream::connect(server.tcp()).await.unwrap();
    let request = b"GET /x HTTP/1.1\r\nhost: x\r\n\r\n";
    let mut answer = [0; 16];
    for _ in 0..4 {
        stream.write_all(request).await.unwrap();
        stream.read_exact(&mut answer).await.unwrap();
        // Half of the timeout.
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let mut rest = Vec::new();
    let closed = tokio::time::timeout(Duration::from_secs(10), stream.read_to_end(&mut rest)).await;
    assert!(closed.is_ok());
}

#[tokio::test]
async fn a_timeout_error_names_the_url() {
    let server = http_server(&http_settings());
    let settings = HttpClientSettings {
        timeout: profcol_config::Duration::from_millis(50),
        ..HttpClientSettings::default()
    };
    let url = format!("http://{}/never", server.endpoint());
    let error = send(&settings, &url, &message("x")).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        format!("request to {url} took longer than 50ms")
    );
}

#[tokio::test]
async fn a_connect_error_names_the_server() {
    let server = http_server(&http_settings());
    let url = format!("http://{}/", server.endpoint());
    let addr = server.endpoint();
    server.stop(Duration::ZERO).await;
    let error = send(&HttpClientSettings::default(), &url, &message("x"))
        .await
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        format!(
            "failed to connect to {addr}: connection refused; check that the server runs and listens on that address"
        )
    );
}

#[tokio::test]
async fn response_headers_and_cors_are_added() {
    let mut settings = http_settings();
    settings
        .response_headers
        .0
        .push(("x-served-by".to_owned(), "profcol".into()));
    settings.cors.0 = Some(profcol_net::Cors {
        allowed_origins: vec!["https://*.example".to_owned()],
        ..profcol_net::Cors::default()
    });
    let server = http_server(&settings);
    let answer = raw(
        server.tcp(),
        b"OPTIONS / HTTP/1.1\r\nhost: x\r\nconnection: close\r\norigin: https://a.example\r\naccess-control-request-method: POST\r\n\r\n",
    )
    .await;
    assert!(answer.starts_with("HTTP/1.1 204"), "{answer}");
    assert!(
        answer.contains("access-control-allow-origin: https://a.example"),
        "{answer}"
    );
    let answer = raw(
        server.tcp(),
        b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\norigin: https://b.test\r\n\r\n",
    )
    .await;
    assert!(
        answer.contains("x-served-by: profcol") && !answer.contains("access-control-allow-origin"),
        "{answer}"
    );
}

/// A proxy that records the request and then acts as the server.
async fn proxy(answer: &'static str) -> (Url, tokio::task::JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = Url::new(format!(
        "http://user:pass@{}",
        listener.local_addr().unwrap()
    ));
    let request = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await.unwrap());
        }
        stream.write_all(answer.as_bytes()).await.unwrap();
        String::from_utf8(head).unwrap()
    });
    (url, request)
}

#[tokio::test]
async fn a_forwarding_proxy_gets_the_absolute_url() {
    let (proxy_url, request) = proxy("HTTP/1.1 202 ok\r\ncontent-length: 0\r\n\r\n").await;
    let settings = HttpClientSettings {
        proxy_url,
        ..HttpClientSettings::default()
    };
    let reply = send(&settings, "http://backend.test/v1", &message(""))
        .await
        .unwrap();
    assert_eq!(reply.status, StatusCode::ACCEPTED);
    let request = request.await.unwrap();
    assert!(
        request.starts_with("POST http://backend.test/v1 HTTP/1.1\r\n"),
        "{request}"
    );
    assert!(
        request.contains("proxy-authorization: Basic dXNlcjpwYXNz"),
        "{request}"
    );
}

#[tokio::test]
async fn a_user_in_the_url_is_sent_but_not_shown() {
    let (url, request) = proxy("HTTP/1.1 202 ok\r\ncontent-length: 0\r\n\r\n").await;
    let url = url.expose().replace("pass", "p%40ss") + "/v1?key=hunter2";
    let settings = HttpClientSettings::default();
    send(&settings, &url, &message("")).await.unwrap();
    let request = request.await.unwrap();
    for expected in [
        "POST /v1?key=hunter2 HTTP/1.1\r\n",
        "authorization: Basic dXNlcjpwQHNz\r\n",
        "host: 127.0.0.1:",
    ] {
        assert!(request.contains(expected), "{request}");
    }
    // Nobody listens there any more.
    let error = send(&settings, &url, &message("")).await.unwrap_err();
    let shown = format!("{error} {error:?}");
    for secret in ["p%40ss", "p@ss", "dXNlcjpwQHNz", "hunter2"] {
        assert!(!shown.contains(secret), "{shown}");
    }
}

#[tokio::test]
async fn an_error_names_a_proxy_that_refuses_a_tunnel() {
    let (proxy_url, request) = proxy("HTTP/1.1 403 no way\r\n\r\n").await;
    let settings = HttpClientSettings {
        proxy_url,
        ..HttpClientSettings::default()
    };
    let error = send(&settings, "https://backend.test/", &message(""))
        .await
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("through the proxy 127.0.0.1:") && error.contains("403 no way"),
        "{error}"
    );
    assert!(
        request
            .await
            .unwrap()
            .starts_with("CONNECT backend.test:443 HTTP/1.1\r\n")
    );
}

#[tokio::test]
async fn connections_are_kept_or_not_as_configured() {
    for (enabled, expected) in [(true, 1), (false, 3)] {
        let server = http_server(&http_settings());
        let mut settings = HttpClientSettings::default();
        settings.keepalive.enabled = enabled;
        let url = format!("http://{}/", server.endpoint());
        let client = HttpClient::new(&settings, &url, None, "test/1").unwrap();
        for _ in 0..3 {
            client
                .send(post(&Message::from(Bytes::from("x"))))
                .await
                .unwrap();
        }
        assert_eq!(server.stats.accepted.load(Relaxed), expected);
    }
}

#[tokio::test]
async fn a_client_that_does_not_read_its_response_is_disconnected() {
    let mut settings = http_settings();
    settings.write_timeout = profcol_config::Duration::from_millis(100);
    let server = http_server(&settings);
    let mut stream = TcpStream::connect(server.tcp()).await.unwrap();
    stream
        .write_all(b"GET /large HTTP/1.1\r\nhost: x\r\n\r\n")
        .await
        .unwrap();
    // Longer than the timeout: reading would restart it.
    tokio::time::sleep(Duration::from_millis(500)).await;
    let mut answer = Vec::new();
    // Closed with or without a reset; either way most of it was never sent.
    let _ = stream.read_to_end(&mut answer).await;
    assert!(answer.len() < LARGE, "{}", answer.len());
}
