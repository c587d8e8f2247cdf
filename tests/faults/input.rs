//! Invalid bodies, misbehaving clients, and crowds of clients.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;

use bytes::Bytes;
use profcol_component::testkit::profiles;
use profcol_net::compress::{Encoding, Level, compress};
use profcol_net::grpc::Code;
use profcol_net::{Compressed, Compression, Message};
use profcol_test_harness::backend::{Client, Destination, HttpSender, Mode};
use socket2::{Domain, Socket, Type};

use crate::Rig;

const PROTOBUF: &str = "application/x-protobuf";
const JSON: &str = "application/json";

fn exporting_to(destination: &Destination) -> String {
    let address = destination.address;
    format!("  otlp_grpc: {{endpoint: {address}, tls: {{insecure: true}}, compression: none}}")
}

fn plain(bytes: impl Into<Bytes>) -> Message {
    Message::from(bytes.into())
}

fn pretending(encoding: Encoding, bytes: impl Into<Bytes>) -> Message {
    Message {
        plain: Bytes::from_static(b"not sent"),
        compressed: Some(Compressed {
            encoding,
            bytes: bytes.into(),
        }),
    }
}

/// Deterministic, so that failures are reproducible.
fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    std::iter::repeat_with(next).take(len).collect()
}

#[test]
fn invalid_bodies_are_refused_and_valid_ones_still_accepted() {
    let destination = Destination::new(Mode::Take);
    let rig = Rig::with_limits(&exporting_to(&destination), "otlp_grpc", 4);
    let good = profiles(3);
    let wire = good.to_wire();

    let client = Client::new(rig.grpc);
    let http = HttpSender::new(rig.http, Compression::None);
    for body in [wire.slice(..wire.len() - 7), noise(1, 10_000).into()] {
        let refused = client.send_message(&plain(body.clone())).unwrap_err();
        assert_eq!(refused.code, Code::InvalidArgument, "{refused}");
        assert_eq!(http.status(PROTOBUF, &plain(body.clone())), 400);
        assert_eq!(http.status(JSON, &plain(body)), 400);
    }
    let huge = plain(vec![0; 5 << 20]);
    let refused = client.send_message(&huge).unwrap_err();
    assert_eq!(refused.code, Code::ResourceExhausted, "{refused}");
    for kind in [PROTOBUF, JSON] {
        assert_eq!(http.status(kind, &huge), 413);
    }
    for seed in 0..100 {
        let body = plain(noise(seed, 300));
        assert!(client.send_message(&body).is_err(), "seed {seed}");
        assert_eq!(http.status(PROTOBUF, &body), 400, "seed {seed}");
        assert_eq!(http.status(JSON, &body), 400, "seed {seed}");
    }

    let zeros = vec![0; 256 << 20];
    for (encoding, compression) in [
        (Encoding::Gzip, Compression::Gzip),
        (Encoding::Zstd, Compression::Zstd),
    ] {
        let client = Client::compressing(rig.grpc, compression);
        let http = HttpSender::new(rig.http, compression);
        let bomb = compress(encoding, Level(1), &zeros);
        assert!(bomb.len() < 2 << 20, "passes as it is");
        let packed = compress(encoding, Level(1), &wire);
        let cut = packed.slice(..packed.len() - 5);
        for (body, code, status) in [
            (bomb, Code::ResourceExhausted, 413),
            (cut, Code::Internal, 400),
            (noise(7, 5_000).into(), Code::Internal, 400),
        ] {
            for _ in 0..5 {
                let body = pretending(encoding, body.clone());
                let refused = client.send_message(&body).unwrap_err();
                assert_eq!(refused.code, code, "{encoding}: {refused}");
                assert_eq!(http.status(PROTOBUF, &body), status, "{encoding}");
                assert_eq!(http.status(JSON, &body), status, "{encoding}");
            }
        }
        client.send(&good).unwrap();
        assert_eq!(http.status(PROTOBUF, &plain(wire.clone())), 200);
    }
    destination.wait_for_samples(12);
    let peak = rig.peak_mib();
    assert!(peak < 100, "{peak} MiB for bodies of at most 4 MiB");
    rig.stop();
    assert_eq!(destination.samples(), 12);
}

#[test]
fn clients_that_stall_midway_do_not_block_others() {
    let destination = Destination::new(Mode::Take);
    let rig = Rig::new(&exporting_to(&destination), "otlp_grpc");
    let head = format!(
        "POST /v1development/profiles HTTP/1.1\r\nhost: x\r\ncontent-type: {PROTOBUF}\r\ncontent-length: 1000\r\n\r\nbegun"
    );
    let mut stalled = Vec::new();
    for part in [&head[..20], &head] {
        for _ in 0..50 {
            let mut client = TcpStream::connect(rig.http).expect("it listens");
            client.write_all(part.as_bytes()).expect("it is readable");
            stalled.push(client);
        }
    }
    // HTTP/2's preface, empty settings, and an announced frame that never arrives.
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0\0\x10\0\x01\x04\0\0\0\x01";
    for part in [&preface[..10], preface] {
        for _ in 0..50 {
            let mut client = TcpStream::connect(rig.grpc).expect("it listens");
            client.write_all(part).expect("it is readable");
            stalled.push(client);
        }
    }
    Client::new(rig.grpc).send(&profiles(2)).unwrap();
    let http = HttpSender::new(rig.http, Compression::None);
    assert_eq!(http.status(PROTOBUF, &plain(profiles(3).to_wire())), 200);
    // Some disconnect without sending anything, and some mid-request.
    stalled.truncate(100);
    Client::new(rig.grpc).send(&profiles(4)).unwrap();
    destination.wait_for_samples(9);
    // The others are still connected; shutdown closes them.
    rig.stop();
    drop(stalled);
    assert_eq!(destination.samples(), 9);
}

#[test]
fn ten_thousand_idle_connections_leave_room_for_an_active_one() {
    let wanted = 10_000;
    let count = wanted.min(open_files_allowed(wanted + 1000).saturating_sub(1000));
    let destination = Destination::new(Mode::Take);
    let rig = Rig::new(&exporting_to(&destination), "otlp_grpc");
    let connections: Vec<Socket> = (0..count)
        .map(|number| {
            let to = if number % 2 == 0 { rig.grpc } else { rig.http };
            connected(to)
        })
        .collect();
    Client::new(rig.grpc).send(&profiles(2)).unwrap();
    let http = HttpSender::new(rig.http, Compression::None);
    assert_eq!(http.status(PROTOBUF, &plain(profiles(3).to_wire())), 200);
    destination.wait_for_samples(5);
    let peak = rig.peak_mib();
    assert!(peak < 400, "{peak} MiB for {count} connections");
    drop(connections);
    Client::new(rig.grpc).send(&profiles(4)).unwrap();
    rig.stop();
    assert_eq!(destination.samples(), 9);
}

/// From a separate address, so that the crowd does not use up ports of other tests' listeners.
fn connected(to: SocketAddr) -> Socket {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("TCP is available");
    let from = SocketAddr::from(([127, 0, 0, 100], 0));
    socket.bind(&from.into()).expect("all of 127/8 is loopback");
    socket.connect(&to.into()).expect("it takes connections");
    socket
}

/// Raises the limit of open files of this process, which its children inherit, as far as permitted; returns the new
/// limit.
fn open_files_allowed(wanted: usize) -> usize {
    let me = std::process::id().to_string();
    let limit = format!("--nofile={wanted}:");
    // If that fails, the current limit applies.
    let _ = Command::new("prlimit")
        .args(["--pid", &me, &limit])
        .output();
    let mut limits = String::new();
    std::fs::File::open("/proc/self/limits")
        .and_then(|mut file| file.read_to_string(&mut limits))
        .expect("Linux tells limits");
    let line = limits
        .lines()
        .find(|line| line.starts_with("Max open files"));
    let soft = line.and_then(|line| line.split_whitespace().nth(3));
    soft.and_then(|soft| soft.parse().ok()).unwrap_or(1024)
}
