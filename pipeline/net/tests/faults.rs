//! Misbehaving peers: random bytes, partial messages, stalls, resets, floods.

#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::print_stderr,
    reason = "a panic fails the test and ends its tasks"
)]

mod support;

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use profcol_net::grpc::{Code, Status};
use profcol_net::retry::{RetryDecision, of_grpc};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use support::*;

const ECHO: &str = "/test.Behaviour/Echo";
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

/// Checks that the server still handles a call.
async fn still_serves(server: &Running) {
    let client = grpc_client(&plain_client(&server.endpoint()));
    assert_eq!(call(&client, ECHO, &message("x")).await.unwrap(), "x");
}

fn pseudo_random(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..len)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state as u8
        })
        .collect()
}

#[tokio::test]
async fn random_bytes_do_not_harm_servers() {
    let (grpc, http) = (grpc_server(&grpc_settings()), http_server(&http_settings()));
    for seed in 0..200 {
        for addr in [grpc.tcp(), http.tcp()] {
            let mut stream = TcpStream::connect(addr).await.unwrap();
            let mut bytes = if seed % 2 == 0 {
                PREFACE.to_vec()
            } else {
                Vec::new()
            };
            bytes.extend(pseudo_random(seed, 500));
            // Either end may close before all is sent.
            let _ = stream.write_all(&bytes).await;
            let _ = stream.shutdown().await;
            let mut answer = Vec::new();
            let _ = timeout(Duration::from_secs(5), stream.read_to_end(&mut answer))
                .await
                .unwrap();
        }
    }
    still_serves(&grpc).await;
    assert_eq!(
        grpc.stats.panics.load(Relaxed) + http.stats.panics.load(Relaxed),
        0
    );
}

#[tokio::test]
async fn errors_mention_missing_http2_until_the_server_supports_it() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let serving = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let _ = stream.read(&mut [0; 1024]).await;
        let answer = b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n";
        let _ = stream.write_all(answer).await;
        // A server that closes the connection after a response.
        let (stream, _) = listener.accept().await.unwrap();
        let mut connection = h2::server::handshake(stream).await.unwrap();
        let (_, mut answer) = connection.accept().await.unwrap().unwrap();
        let head = http::Response::builder().header("content-type", "application/grpc");
        let mut body = answer.send_response(head.body(()).unwrap(), false).unwrap();
        let trailers = http::HeaderMap::from_iter([(
            http::HeaderName::from_static("grpc-status"),
            http::HeaderValue::from_static("0"),
        )]);
        body.send_trailers(trailers).unwrap();
        let (_, _unanswered) = connection.accept().await.unwrap().unwrap();
    });
    let client = grpc_client(&plain_client(&address.to_string()));
    let mut outcomes = Vec::new();
    for _ in 0..3 {
        let outcome = call(&client, ECHO, &message("x")).await;
        outcomes.push(outcome.map(|_| ()).map_err(|status| status.to_string()));
    }
    serving.await.unwrap();
    let [Err(mute), Ok(()), Err(ended)] = &outcomes[..] else {
        panic!("{outcomes:?}");
    };
    let hint = "the server did not respond over HTTP/2";
    assert!(mute.contains(hint), "{mute}");
    assert!(
        ended.contains("transport: ") && !ended.contains(hint),
        "{ended}"
    );
}

/// HTTP/2 bytes of a request on stream 1 up to its DATA: literal headers, no Huffman coding, no dynamic table.
fn request_head(path: &str) -> Vec<u8> {
    let mut block = vec![0x83, 0x86];
    for (name, value) in [
        (":path", path),
        (":authority", "x"),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
    ] {
        block.push(0);
        for text in [name, value] {
            block.push(text.len() as u8);
            block.extend_from_slice(text.as_bytes());
        }
    }
    let mut bytes = PREFACE.to_vec();
    bytes.extend_from_slice(&[0, 0, block.len() as u8, 1, 4, 0, 0, 0, 1]);
    bytes.extend_from_slice(&block);
    bytes
}

fn data(end: bool, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0, 0, payload.len() as u8, 0, u8::from(end), 0, 0, 0, 1];
    bytes.extend_from_slice(payload);
    bytes
}

#[tokio::test]
async fn truncated_and_malformed_messages_are_refused() {
    let server = grpc_server(&grpc_settings());
    for (payload, expected) in [
        (
            &[0, 0, 0, 0, 9, b'x'][..],
            "stream ended in the middle of a message",
        ),
        (&[0, 0], "stream ended in the middle of a message"),
        (&[], "the request contains no message"),
        (&[7, 0, 0, 0, 0], "received unexpected payload format 7"),
        (
            &[1, 0, 0, 0, 1, 0],
            "compressed flag set with identity or empty encoding",
        ),
        (
            &[0, 0, 0, 0, 1, 0, 0],
            "more than one message in a unary call",
        ),
    ] {
        let mut stream = TcpStream::connect(server.tcp()).await.unwrap();
        stream.write_all(&request_head(ECHO)).await.unwrap();
        stream.write_all(&data(true, payload)).await.unwrap();
        // The message may be Huffman-coded, so check for the status only: 13.
        let mut answer = vec![0; 4096];
        let mut filled = 0;
        let found = timeout(Duration::from_secs(5), async {
            loop {
                filled += stream.read(&mut answer[filled..]).await.unwrap();
                if answer[..filled]
                    .windows(9)
                    .any(|frame| frame[3] == 1 && frame[8] == 1 && frame[4] & 1 == 1)
                {
                    return;
                }
            }
        });
        found
            .await
            .unwrap_or_else(|_| panic!("not refused: {expected}"));
    }
    still_serves(&server).await;
}

#[tokio::test(start_paused = true)]
async fn a_stalled_client_is_disconnected() {
    let server = grpc_server(&grpc_settings());
    let head = request_head(ECHO);
    let mut begun = head.clone();
    begun.extend(data(false, &[0, 0, 1, 0, 0, b'x']));
    for (what, bytes) in [
        ("nothing sent", &b""[..]),
        ("half a preface", &PREFACE[..10]),
        ("half a header frame", &head[..head.len() - 5]),
        ("half a message", &begun),
    ] {
        let mut stream = TcpStream::connect(server.tcp()).await.unwrap();
        stream.write_all(bytes).await.unwrap();
        let mut answer = Vec::new();
        let closed = async {
            let mut piece = [0; 1024];
            loop {
                match stream.read(&mut piece).await {
                    Ok(0) | Err(_) => return,
                    Ok(read) => answer.extend_from_slice(&piece[..read]),
                }
                // A reset stream (RST_STREAM or a final response) counts as closed.
                if answer
                    .windows(9)
                    .any(|frame| matches!(frame[3], 1 | 3) && frame[5..9] == [0, 0, 0, 1])
                {
                    return;
                }
            }
        };
        timeout(Duration::from_secs(120), closed)
            .await
            .unwrap_or_else(|_| panic!("still open: {what}"));
    }
}

/// With a zero window a client never reads its response, without the socket ever being full.
#[tokio::test(start_paused = true)]
async fn a_client_with_a_closed_window_is_disconnected() {
    let mut settings = grpc_settings();
    let parameters = &mut settings.keepalive.server_parameters;
    parameters.max_connection_idle = profcol_config::Duration::from_secs(60);
    let (grpc, http) = (grpc_server(&settings), http_server(&http_settings()));
    let no_window = b"\0\0\x06\x04\0\0\0\0\0\0\x04\0\0\0\0";
    for (addr, payload) in [(grpc.tcp(), &[0, 0, 0, 0, 1, b'x'][..]), (http.tcp(), b"")] {
        let mut stream = TcpStream::connect(addr).await.unwrap();
        stream.write_all(&request_head(ECHO)).await.unwrap();
        stream.write_all(no_window).await.unwrap();
        stream.write_all(&data(true, payload)).await.unwrap();
        let mut piece = [0; 1024];
        let closed = async { while stream.read(&mut piece).await.is_ok_and(|read| read > 0) {} };
        let closed = timeout(Duration::from_secs(300), closed).await;
        assert!(closed.is_ok(), "still open: {payload:?}");
    }
}

#[tokio::test]
async fn connections_over_the_limit_are_refused_and_counted() {
    let mut settings = grpc_settings();
    settings.max_connections = 5;
    let server = grpc_server(&settings);
    let mut held = Vec::new();
    for _ in 0..5 {
        let mut stream = TcpStream::connect(server.tcp()).await.unwrap();
        stream.write_all(PREFACE).await.unwrap();
        // Receiving SETTINGS means the server has accepted the connection.
        stream.read_u8().await.unwrap();
        held.push(stream);
    }
    let mut sixth = TcpStream::connect(server.tcp()).await.unwrap();
    assert!(sixth.read_u8().await.is_err());
    assert_eq!(server.stats.over_cap.load(Relaxed), 1);
    drop(held);
    let client = grpc_client(&plain_client(&server.endpoint()));
    wait_until("room for a connection", async || {
        call(&client, ECHO, &message("x")).await.is_ok()
    })
    .await;
}

fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmRSS:"))
        .unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Both ends are in this process, so each connection takes two descriptors; opens as many as the limit allows, up to
/// ten thousand.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_connections_stay_small_and_leave_room_for_calls() {
    let limit = std::fs::read_to_string("/proc/self/limits").unwrap();
    let line = limit
        .lines()
        .find(|line| line.starts_with("Max open files"))
        .unwrap();
    let files: usize = line
        .split_whitespace()
        .nth(3)
        .unwrap()
        .parse()
        .unwrap_or(1 << 20);
    let count = (files.saturating_sub(200) / 2).min(10_000);
    let server = Arc::new(grpc_server(&grpc_settings()));
    let before = resident_kib();
    let mut held = Vec::with_capacity(count);
    for _ in 0..count {
        let mut stream = TcpStream::connect(server.tcp()).await.unwrap();
        stream.write_all(PREFACE).await.unwrap();
        stream.read_u8().await.unwrap();
        held.push(stream);
    }
    let each = (resident_kib() - before) / count as u64;
    eprintln!("{count} connections, {each} KiB resident each");
    assert!(each < 64, "{each} KiB each");
    still_serves(&server).await;
    assert_eq!(server.stats.accepted.load(Relaxed), count as u64 + 1);
}

/// A server that reads a little, sends the given response, and closes.
async fn misbehaving_server(answer: &'static [u8], hold: bool) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut some = [0; 64];
                let _ = stream.read(&mut some).await;
                let _ = stream.write_all(answer).await;
                if hold {
                    std::future::pending::<()>().await;
                }
            });
        }
    });
    endpoint
}

async fn against(endpoint: &str, limit: Duration) -> Status {
    let client = grpc_client(&plain_client(endpoint));
    let body = message(vec![1; 100_000]);
    let call = profcol_net::GrpcCall {
        path: ECHO,
        message: &body,
        headers: http::HeaderMap::new(),
        timeout: Some(limit),
    };
    client.unary(call).await.unwrap_err()
}

#[tokio::test]
async fn broken_connections_are_retryable() {
    const SETTINGS: &[u8] = b"\0\0\0\x04\0\0\0\0\0";
    const GO_AWAY: &[u8] = b"\0\0\0\x04\0\0\0\0\0\0\0\x08\x07\0\0\0\0\0\0\0\0\0\0\0\0\0";
    const RESET: &[u8] = b"\0\0\0\x04\0\0\0\0\0\0\0\x04\x03\0\0\0\0\x01\0\0\0\x02";
    let short = Duration::from_millis(300);
    for (answer, hold, code) in [
        (&b""[..], false, Code::Unavailable),
        (b"", true, Code::DeadlineExceeded),
        (
            b"HTTP/1.1 400 Bad Request\r\n\r\n",
            false,
            Code::Unavailable,
        ),
        (SETTINGS, false, Code::Unavailable),
        (SETTINGS, true, Code::DeadlineExceeded),
        (GO_AWAY, false, Code::Unavailable),
        (RESET, true, Code::Unavailable),
    ] {
        let endpoint = misbehaving_server(answer, hold).await;
        let status = against(&endpoint, short).await;
        assert_eq!(status.code, code, "{answer:?} {status}");
        assert_ne!(of_grpc(&status), RetryDecision::Permanent);
    }
}
