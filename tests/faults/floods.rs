//! Clients that flood a listener with what costs them little: headers without end, streams that they reset, frames that
//! need an answer or carry nothing. Each costs little memory, and the others are served.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use profcol_component::testkit::profiles;
use profcol_test_harness::backend::{Client, endpoint_in, wait_until};
use profcol_test_harness::http2::frame;
use profcol_test_harness::peers::{free_address, get, profcol};

use crate::Rig;

const MAX_SENT: usize = 64 << 20;
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

/// HEADERS of `POST /`.
fn headers(flags: u8, stream: u32) -> Vec<u8> {
    frame(1, flags, stream, b"\x83\x84\x86\x01\x01x")
}

/// What a client sends first, and what it then repeats, with the number of the repetition.
struct Flood {
    name: &'static str,
    begin: Vec<u8>,
    more: fn(u32) -> Vec<u8>,
    /// Whether it ends the connection, however fast the listener is.
    is_fatal: bool,
}

fn floods_of_http2() -> [Flood; 5] {
    let after = |bytes: Vec<u8>| [PREFACE, &bytes].concat();
    [
        Flood {
            name: "CONTINUATION",
            begin: after(headers(0, 1)),
            more: |_| frame(9, 0, 1, &b"\x00\x01a\x01b".repeat(3000)),
            is_fatal: true,
        },
        Flood {
            name: "rapid reset",
            begin: after(Vec::new()),
            more: |number| {
                let resets = (number * 1000..(number + 1) * 1000).map(|stream| {
                    let stream = 2 * stream + 1;
                    [
                        headers(4, stream),
                        frame(3, 0, stream, &8_u32.to_be_bytes()),
                    ]
                    .concat()
                });
                resets.flatten().collect()
            },
            is_fatal: true,
        },
        Flood {
            name: "SETTINGS",
            begin: after(Vec::new()),
            more: |_| frame(4, 0, 0, &[0, 4, 0, 0, 1, 0]).repeat(1000),
            is_fatal: false,
        },
        Flood {
            name: "PING",
            begin: after(Vec::new()),
            more: |_| frame(6, 0, 0, b"abcdefgh").repeat(1000),
            is_fatal: false,
        },
        Flood {
            name: "empty DATA",
            begin: after(headers(4, 1)),
            more: |_| frame(0, 0, 1, b"").repeat(1000),
            is_fatal: false,
        },
    ]
}

fn floods_of_http1() -> [Flood; 2] {
    [
        Flood {
            name: "a header",
            begin: b"GET / HTTP/1.1\r\nhost: x\r\nlarge: ".to_vec(),
            more: |_| b"x".repeat(10_000),
            is_fatal: true,
        },
        Flood {
            name: "headers",
            begin: b"GET / HTTP/1.1\r\nhost: x\r\n".to_vec(),
            more: |_| b"many: x\r\n".repeat(1000),
            is_fatal: true,
        },
    ]
}

/// Floods a listener, without reading what it answers, until it has had enough, blocks or has read plenty.
fn flood(to: SocketAddr, flood: &Flood) -> TcpStream {
    let mut client = TcpStream::connect(to).expect("it listens");
    let limit = Some(Duration::from_millis(500));
    client.set_write_timeout(limit).expect("it is a limit");
    client.set_read_timeout(limit).expect("it is a limit");
    let mut sent = 0;
    let mut open = client.write_all(&flood.begin).is_ok();
    for number in 0.. {
        let more = (flood.more)(number);
        sent += more.len();
        open = open && client.write_all(&more).is_ok();
        if !open || sent > MAX_SENT {
            break;
        }
    }
    client
}

/// Whether the other side has closed it, after what it has sent.
fn is_closed(client: &mut TcpStream) -> bool {
    use std::io::ErrorKind::{TimedOut, WouldBlock};
    let mut piece = [0; 4096];
    loop {
        match client.read(&mut piece) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) => return !matches!(error.kind(), TimedOut | WouldBlock),
        }
    }
}

/// The CPU time that the process has used, in clock ticks.
fn cpu(rig: &Rig) -> u64 {
    let path = format!("/proc/{}/stat", rig.process.pid());
    let stat = std::fs::read_to_string(path).expect("the process runs");
    let (_, fields) = stat.rsplit_once(") ").expect("a name");
    let times = fields.split(' ').skip(11).take(2);
    times
        .map(|ticks| ticks.parse::<u64>().expect("a number"))
        .sum()
}

#[test]
fn floods_cost_little_and_others_are_served() {
    let [metrics, page, health] = [(); 3].map(|()| free_address());
    let config = format!(
        "\
receivers:
  otlp: {{protocols: {{grpc: {{endpoint: 127.0.0.1:0}}, http: {{endpoint: 127.0.0.1:0}}}}}}
exporters:
  live_view: {{endpoint: '{page}'}}
extensions:
  health_check: {{endpoint: '{health}'}}
service:
  extensions: [health_check]
  telemetry: {{metrics: {{readers: [{{pull: {{exporter: {{prometheus: {{host: {}, port: {}}}}}}}}}]}}}}
  pipelines:
    profiles: {{receivers: [otlp], exporters: [live_view]}}
",
        metrics.ip(),
        metrics.port()
    );
    let rig = Rig::started(profcol(&config));
    let output = rig.process.output();
    let [grpc, http] = ["grpc", "http"].map(|protocol| endpoint_in(&output, protocol));
    let serves = || {
        Client::new(grpc).send(&profiles(1)).unwrap();
        assert!(get(metrics, "/metrics").contains("200 OK"));
        assert!(get(page, "/api/v1/status").contains("200 OK"));
        assert!(get(health, "/").contains("200 OK"));
    };
    serves();
    let mut clients = Vec::new();
    for (listener, address) in [
        ("grpc", grpc),
        ("http", http),
        ("metrics", metrics),
        ("live_view", page),
        ("health_check", health),
    ] {
        let of_http1 = floods_of_http1().into_iter().filter(|_| listener != "grpc");
        for one in floods_of_http2().into_iter().chain(of_http1) {
            let mut client = flood(address, &one);
            if one.is_fatal {
                let end = format!("{listener} to end a flood of {}", one.name);
                wait_until(&end, || is_closed(&mut client));
            }
            serves();
            clients.push(client);
        }
    }
    let peak = rig.peak_mib();
    assert!(peak < 100, "{peak} MiB for floods");
    drop(clients);
    wait_until("the process to be idle", || {
        let before = cpu(&rig);
        std::thread::sleep(Duration::from_millis(500));
        cpu(&rig) - before <= 2
    });
    serves();
    rig.stop();
}
