//! Limits of the listeners: headers, streams, and the pace of clients that send a byte now and then.

#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a panic fails the test and ends its tasks"
)]

mod support;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use support::*;

const ECHO: &str = "/test.Behaviour/Echo";
const NEVER: &str = "/test.Behaviour/Never";
const MAX_HEADERS: usize = 64 << 10;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;
const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// An HTTP/2 client that sends any frames.
struct Http2 {
    stream: TcpStream,
    unread: Vec<u8>,
}

#[derive(Debug)]
struct Frame {
    kind: u8,
    stream: u32,
    payload: Vec<u8>,
}

impl Http2 {
    async fn connect(to: SocketAddr) -> Self {
        let mut stream = TcpStream::connect(to).await.unwrap();
        stream.write_all(PREFACE).await.unwrap();
        stream.write_all(&frame(SETTINGS, 0, 0, &[])).await.unwrap();
        let unread = Vec::new();
        Self { stream, unread }
    }

    async fn send(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        let bytes = frame(kind, flags, stream, payload);
        self.stream.write_all(&bytes).await.unwrap();
    }

    /// The next frame; `None` when the connection is closed.
    async fn next(&mut self) -> Option<Frame> {
        loop {
            if let Some((head, rest)) = self.unread.split_first_chunk::<9>() {
                let [a, b, c, kind, _flags, stream @ ..] = *head;
                let length = u32::from_be_bytes([0, a, b, c]) as usize;
                if rest.len() >= length {
                    let payload = rest[..length].to_vec();
                    self.unread.drain(..9 + length);
                    return Some(Frame {
                        kind,
                        stream: u32::from_be_bytes(stream),
                        payload,
                    });
                }
            }
            if self.stream.read_buf(&mut self.unread).await.unwrap_or(0) == 0 {
                return None;
            }
        }
    }

    /// The first frame that matches.
    async fn wait_for(&mut self, matches: impl Fn(&Frame) -> bool) -> Frame {
        let waiting = async {
            loop {
                let frame = self.next().await.expect("the connection is open");
                if matches(&frame) {
                    return frame;
                }
            }
        };
        timeout(Duration::from_secs(300), waiting).await.unwrap()
    }

    /// The HEADERS frame with the response, or with the trailers, of a stream.
    async fn answer(&mut self, stream: u32) -> Frame {
        self.wait_for(|frame| frame.kind == HEADERS && frame.stream == stream)
            .await
    }
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut bytes = length[1..].to_vec();
    bytes.extend_from_slice(&[kind, flags]);
    bytes.extend_from_slice(&stream.to_be_bytes());
    bytes.extend_from_slice(payload);
    bytes
}

/// A header without Huffman coding and dynamic table; both texts are shorter than 127 bytes.
fn literal(name: &str, value: &str) -> Vec<u8> {
    let mut bytes = vec![0];
    for text in [name, value] {
        bytes.push(u8::try_from(text.len()).unwrap());
        bytes.extend_from_slice(text.as_bytes());
    }
    bytes
}

/// The header block of a POST.
fn post(path: &str) -> Vec<u8> {
    let mut block = vec![0x83, 0x86];
    for (name, value) in [
        (":path", path),
        (":authority", "x"),
        ("content-type", "application/grpc"),
    ] {
        block.extend(literal(name, value));
    }
    block
}

/// A server of each kind.
fn servers() -> [Running; 2] {
    [grpc_server(&grpc_settings()), http_server(&http_settings())]
}

async fn still_serves(server: &Running) {
    let mut client = Http2::connect(server.tcp()).await;
    client
        .send(HEADERS, END_HEADERS | END_STREAM, 1, &post(ECHO))
        .await;
    client.answer(1).await;
}

/// A status as h2 encodes it.
fn coded(status: &str) -> &'static [u8] {
    match status {
        "200" => &[0x88],
        // By the name in the static table, and in Huffman code.
        "408" => b"\x48\x83\x68\x0f\x7f",
        "431" => b"\x48\x83\x69\x90\xff",
        other => panic!("no code for {other}"),
    }
}

#[tokio::test]
async fn headers_over_http1_are_limited() {
    let server = http_server(&http_settings());
    let begin = "GET /x HTTP/1.1\r\nhost: x\r\n";
    let one_large = {
        // As many bytes as are read, so that closing does not reset the connection.
        let name = format!("{begin}large: ");
        format!("{name}{}", "x".repeat(MAX_HEADERS - name.len()))
    };
    let many = format!("{begin}{}\r\n", "many: x\r\n".repeat(101));
    let few = format!(
        "{begin}large: {}\r\n{}connection: close\r\n\r\n",
        "x".repeat(MAX_HEADERS - 2000),
        "many: x\r\n".repeat(90)
    );
    for (request, expected) in [
        (one_large, "HTTP/1.1 431 "),
        (many, "HTTP/1.1 431 "),
        (few, "HTTP/1.1 200 "),
    ] {
        let mut stream = TcpStream::connect(server.tcp()).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        let reading = stream.read_to_string(&mut answer);
        let read = timeout(Duration::from_secs(60), reading).await.unwrap();
        assert!(read.is_ok() && answer.starts_with(expected), "{answer}");
    }
}

#[tokio::test]
async fn headers_over_http2_are_limited() {
    for server in servers() {
        let mut client = Http2::connect(server.tcp()).await;
        let value = "x".repeat(100);
        let fields = [literal("a", &value), literal("b", &value)].concat();
        let block = [post(ECHO), fields.repeat(MAX_HEADERS / fields.len())].concat();
        for (piece, bytes) in block.chunks(16_000).enumerate() {
            let last = (piece + 1) * 16_000 >= block.len();
            let kind = if piece == 0 { HEADERS } else { CONTINUATION };
            let flags =
                if last { END_HEADERS } else { 0 } | if piece == 0 { END_STREAM } else { 0 };
            client.send(kind, flags, 1, bytes).await;
        }
        let refused = client.answer(1).await;
        assert!(refused.payload.starts_with(coded("431")), "{refused:?}");
        // The connection goes on.
        client
            .send(HEADERS, END_HEADERS | END_STREAM, 3, &post(ECHO))
            .await;
        let answer = client.answer(3).await;
        assert!(answer.payload.starts_with(coded("200")), "{answer:?}");
    }
}

/// A header of 4,000 bytes in the dynamic table; each further byte refers to it once more.
#[tokio::test]
async fn headers_are_limited_after_decompression() {
    for server in servers() {
        let mut client = Http2::connect(server.tcp()).await;
        let mut block = post(ECHO);
        // A literal with incremental indexing: a name of one byte, a value of 3,900.
        block.extend_from_slice(b"\x40\x01x\x7f");
        let length: usize = 3900 - 127;
        block.push(u8::try_from(length & 0x7f).unwrap() | 0x80);
        block.push(u8::try_from(length >> 7).unwrap());
        block.extend(std::iter::repeat_n(b'x', 3900));
        // The first entry of the dynamic table.
        block.extend(std::iter::repeat_n(0x80 | 62, 10_000));
        client
            .send(HEADERS, END_HEADERS | END_STREAM, 1, &block)
            .await;
        let end = client
            .wait_for(|frame| matches!(frame.kind, HEADERS | GOAWAY))
            .await;
        assert_eq!(end.kind, GOAWAY, "{end:?}");
        still_serves(&server).await;
    }
}

#[tokio::test]
async fn streams_over_the_limit_are_refused() {
    let mut settings = grpc_settings();
    settings.max_concurrent_streams = 2;
    let service = Behaviour::default();
    let server = grpc_server_with(&settings, None, service.clone());
    let mut client = Http2::connect(server.tcp()).await;
    let announced = client.wait_for(|frame| frame.kind == SETTINGS).await;
    let is_limit = |setting: &[u8]| setting == [0, 3, 0, 0, 0, 2];
    assert!(announced.payload.chunks(6).any(is_limit), "{announced:?}");
    // The limit applies once the client knows it.
    client.send(SETTINGS, 1, 0, &[]).await;
    for stream in [1, 3, 5] {
        client
            .send(HEADERS, END_HEADERS, stream, &post(NEVER))
            .await;
        let message = &[0, 0, 0, 0, 0];
        client.send(DATA, END_STREAM, stream, message).await;
    }
    let refused = client.wait_for(|frame| frame.kind == RST_STREAM).await;
    let refused_stream = 7_u32.to_be_bytes();
    assert_eq!(
        (refused.stream, &refused.payload[..]),
        (5, &refused_stream[..])
    );
    wait_until("two calls", async || service.calls.load(Relaxed) == 2).await;
    // A call that ends makes room.
    let cancel = 8_u32.to_be_bytes();
    client.send(RST_STREAM, 0, 1, &cancel).await;
    client
        .send(HEADERS, END_HEADERS | END_STREAM, 7, &post(ECHO))
        .await;
    client.answer(7).await;
}

#[tokio::test]
async fn our_client_waits_for_a_stream() {
    let mut settings = grpc_settings();
    settings.max_concurrent_streams = 2;
    let server = grpc_server(&settings);
    let client = Arc::new(grpc_client(&plain_client(&server.endpoint())));
    let calls: Vec<_> = (0..10)
        .map(|_| {
            let client = client.clone();
            tokio::spawn(async move { call(&client, "/test.Behaviour/Slow", &message("")).await })
        })
        .collect();
    for call in calls {
        assert_eq!(call.await.unwrap().unwrap(), "late");
    }
    assert_eq!(server.stats.accepted.load(Relaxed), 1);
}

/// What the server sends to a client that sends a piece every five seconds, until the server closes the connection or
/// ends stream 1 of it.
async fn trickle(to: SocketAddr, begin: &[u8], pieces: &[&[u8]]) -> Vec<u8> {
    let mut stream = TcpStream::connect(to).await.unwrap();
    stream.write_all(begin).await.unwrap();
    let (mut reader, mut writer) = stream.split();
    let sending = async {
        for piece in pieces.iter().cycle() {
            tokio::time::sleep(Duration::from_secs(5)).await;
            if writer.write_all(piece).await.is_err() {
                break;
            }
        }
        std::future::pending::<()>().await;
    };
    // Frames arrive whole.
    let mut answer = Vec::with_capacity(4096);
    let receiving = async {
        let ends_stream = |head: &[u8]| {
            matches!(head[3], HEADERS | RST_STREAM) && head[5..] == 1_u32.to_be_bytes()
        };
        while reader
            .read_buf(&mut answer)
            .await
            .is_ok_and(|read| read > 0)
        {
            if answer.windows(9).any(ends_stream) {
                break;
            }
        }
    };
    let limit = Duration::from_secs(300);
    tokio::select! {
        ended = timeout(limit, receiving) => assert!(ended.is_ok(), "still open: {begin:?}"),
        () = sending => {}
    }
    answer
}

/// An HTTP/2 connection with a stream of this header block.
fn begun(flags: u8, block: &[u8]) -> Vec<u8> {
    [
        PREFACE,
        &frame(SETTINGS, 0, 0, &[]),
        &frame(HEADERS, flags, 1, block),
    ]
    .concat()
}

#[tokio::test(start_paused = true)]
async fn headers_that_never_end_are_not_awaited() {
    let [grpc, http] = servers().map(|server| server.tcp());
    // A continuation of the header block with nothing in it, and a HEADERS frame of 16,000 bytes.
    let continued = frame(CONTINUATION, 0, 1, &[]);
    let mut large = begun(END_HEADERS, &[0; 16_000]);
    large.truncate(large.len() - 16_000);
    for (to, begin, pieces) in [
        (grpc, begun(0, &post(ECHO)), &[&continued[..]][..]),
        (http, begun(0, &post(ECHO)), &[&continued]),
        (grpc, large.clone(), &[b"x"]),
        (http, large, &[b"x"]),
        (http, b"GET / HTTP/1.1\r\n".to_vec(), &[b"a", b":", b"\r\n"]),
        // Empty lines before a request.
        (http, b"\r\n".to_vec(), &[b"\r\n"]),
    ] {
        trickle(to, &begin, pieces).await;
    }
}

#[tokio::test(start_paused = true)]
async fn bodies_that_never_end_are_not_awaited() {
    let [grpc, http] = servers().map(|server| server.tcp());
    let (one, none) = (frame(DATA, 0, 1, b"x"), frame(DATA, 0, 1, b""));
    let message = [
        begun(END_HEADERS, &post(ECHO)),
        frame(DATA, 0, 1, &[0, 0, 9, 0, 0]),
    ]
    .concat();
    let unfinished = [
        begun(END_HEADERS, &post(ECHO)),
        frame(DATA, 0, 1, &[0; 9])[..9].to_vec(),
    ]
    .concat();
    let head = |more| format!("POST /x HTTP/1.1\r\nhost: x\r\n{more}\r\n\r\n").into_bytes();
    let trailer = [head("transfer-encoding: chunked"), b"0\r\n".to_vec()].concat();
    for (to, begin, pieces, expected) in [
        (grpc, &message, &[&one[..]][..], "200"),
        (grpc, &message, &[&none], "200"),
        (http, &message, &[&one], "408"),
        (http, &message, &[&none], "408"),
        (
            http,
            &head("content-length: 1000000"),
            &[b"x"],
            "HTTP/1.1 408",
        ),
        (
            http,
            &head("transfer-encoding: chunked"),
            &[b"1\r\n", b"x", b"\r\n"],
            "HTTP/1.1 408",
        ),
        // A trailer.
        (http, &trailer, &[b"a", b":", b"\r\n"], "HTTP/1.1 408"),
        // A frame that does not end also ends the connection.
        (grpc, &unfinished, &[b"x"], ""),
        (http, &unfinished, &[b"x"], ""),
    ] {
        let answer = trickle(to, begin, pieces).await;
        let answers = match expected.strip_prefix("HTTP/1.1") {
            Some(_) => answer.starts_with(expected.as_bytes()),
            None => {
                expected.is_empty()
                    || answer
                        .windows(coded(expected).len())
                        .any(|it| it == coded(expected))
            }
        };
        assert!(answers, "{expected}: {answer:?}");
    }
}
