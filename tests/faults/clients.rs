//! Clients that do not read responses or do not finish requests, and more connections than file descriptors.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::time::Duration;

use profcol_component::testkit::profiles;
use profcol_net::{Compression, Message};
use profcol_test_harness::backend::{Client, Destination, HttpSender, Mode, wait_until};
use socket2::{Domain, Socket, Type};

use crate::Rig;

/// A profcol that tolerates stalls of half a second over HTTP, and of half a minute over gRPC. It waits long for its
/// destination, since whatever it sends again arrives twice.
fn impatient(destination: &Destination) -> Rig {
    let address = destination.address;
    Rig::started(crate::profcol(&format!(
        "\
receivers:
  otlp:
    protocols:
      grpc: {{endpoint: 127.0.0.1:0}}
      http: {{endpoint: 127.0.0.1:0, read_timeout: 500ms, read_header_timeout: 500ms, write_timeout: 500ms}}
exporters:
  otlp_grpc: {{endpoint: {address}, tls: {{insecure: true}}, compression: none, timeout: 60s}}
service:
  telemetry: {{metrics: {{level: none}}}}
  pipelines:
    profiles: {{receivers: [otlp], exporters: [otlp_grpc]}}
"
    )))
}

/// Sends one sample over each protocol.
fn assert_serves(rig: &Rig) {
    Client::new(rig.grpc).send(&profiles(1)).unwrap();
    let http = HttpSender::new(rig.http, Compression::None);
    let body = Message::from(profiles(1).to_wire());
    assert_eq!(http.status("application/x-protobuf", &body), 200);
}

/// A connection with small buffers, so that the other side soon blocks if this one does not read.
fn narrow(to: SocketAddr) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("TCP is available");
    socket
        .set_recv_buffer_size(4096)
        .expect("the size is valid");
    socket.connect(&to.into()).expect("it listens");
    let stream = TcpStream::from(socket);
    let limit = Some(Duration::from_millis(50));
    stream
        .set_write_timeout(limit)
        .expect("the timeout is not zero");
    stream
}

/// Writes `what` repeatedly until the other side blocks; returns whether it is still connected.
fn fill(stream: &mut TcpStream, what: &[u8]) -> bool {
    loop {
        if let Err(error) = stream.write_all(what) {
            return error.kind() == ErrorKind::WouldBlock;
        }
    }
}

#[test]
fn clients_that_read_no_responses_cost_little_and_are_disconnected() {
    let destination = Destination::new(Mode::Take);
    let rig = impatient(&destination);
    let requests = b"GET /nowhere HTTP/1.1\r\nhost: x\r\n\r\n".repeat(100);
    let mut over_http = Vec::new();
    for _ in 0..5 {
        let mut client = narrow(rig.http);
        assert!(fill(&mut client, &requests), "it is still waited for");
        over_http.push(client);
    }
    // HTTP/2's preface, empty settings, and pings, each of which needs a response.
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    let probes = b"\0\0\x08\x06\0\0\0\0\0abcdefgh".repeat(100);
    let mut over_grpc = Vec::new();
    for _ in 0..2 {
        let mut client = narrow(rig.grpc);
        client.write_all(preface).expect("it is readable");
        assert!(fill(&mut client, &probes), "it is still waited for");
        over_grpc.push(client);
    }
    assert_serves(&rig);
    for client in &mut over_http {
        wait_until("the connection to be cut", || !fill(client, &requests));
    }
    assert_serves(&rig);
    let peak = rig.peak_mib();
    assert!(peak < 60, "{peak} MiB for clients that read nothing");
    destination.wait_for_samples(4);
    // gRPC connections are still open; shutdown closes them.
    rig.stop();
    drop(over_grpc);
    assert_eq!(destination.samples(), 4);
}

#[test]
fn stalled_requests_are_answered_and_closed() {
    let destination = Destination::new(Mode::Take);
    let rig = impatient(&destination);
    let head = "POST /v1development/profiles HTTP/1.1\r\nhost: x\r\ncontent-type: application/x-protobuf\r\ncontent-length: 60000000\r\n\r\nbegun";
    let begun: Vec<_> = (0..50)
        .flat_map(|_| [&head[..30], head])
        .map(|part| {
            let mut client = TcpStream::connect(rig.http).expect("it listens");
            client.write_all(part.as_bytes()).expect("it is readable");
            (part == head, client)
        })
        .collect();
    assert_serves(&rig);
    for (has_head, mut client) in begun {
        let mut answer = String::new();
        client.read_to_string(&mut answer).expect("it is ended");
        let expected = if has_head { "HTTP/1.1 408 " } else { "" };
        assert!(answer.starts_with(expected), "{answer}");
        assert_eq!(answer.is_empty(), !has_head, "{answer}");
    }
    let peak = rig.peak_mib();
    assert!(peak < 60, "{peak} MiB for bodies that never arrived");
    assert_serves(&rig);
    rig.stop();
    assert_eq!(destination.samples(), 4);
}

#[test]
fn recovers_from_running_out_of_file_descriptors() {
    let destination = Destination::new(Mode::Take);
    let address = destination.address;
    let exporter = format!("  otlp_grpc: {{endpoint: \"{address}\", tls: {{insecure: true}}}}\n");
    let mut rig = Rig::new(&exporter, "otlp_grpc");
    let early = Client::new(rig.grpc);
    early.send(&profiles(1)).unwrap();
    destination.wait_for_samples(1);

    let pid = rig.process.pid();
    let directory = format!("/proc/{pid}/fd");
    let open = std::fs::read_dir(directory)
        .expect("the process runs")
        .count();
    let few = open + 20;
    let limited = Command::new("prlimit")
        .args(["--pid", &pid.to_string(), &format!("--nofile={few}:")])
        .status();
    assert!(limited.is_ok_and(|status| status.success()), "prlimit");
    let connections: Vec<_> = (0..200)
        .map(|number| {
            let to = if number % 2 == 0 { rig.grpc } else { rig.http };
            TcpStream::connect(to).expect("the kernel accepts it")
        })
        .collect();
    let log_line = "Failed to accept a connection";
    rig.process
        .wait_for_output("to log it", |output| output.contains(log_line));
    // Existing connections are served.
    early.send(&profiles(10)).unwrap();
    destination.wait_for_samples(11);
    // Accepting keeps failing, which must not flood the log.
    std::thread::sleep(Duration::from_secs(1));
    drop(connections);
    assert_serves(&rig);
    drop(early);
    let output = rig.stop();
    assert_eq!(destination.samples(), 13);
    // However long it took: each is twice as many failures as the one before.
    let failures = |line: &str| -> Option<u64> { line.rsplit_once("failures=")?.1.parse().ok() };
    let mut logged = output.lines().filter(|line| line.contains(log_line));
    assert!(
        logged.all(|line| failures(line).is_some_and(u64::is_power_of_two)),
        "{output}"
    );
    assert!(output.contains("LimitNOFILE"), "{output}");
}
