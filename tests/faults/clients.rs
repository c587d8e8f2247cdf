//! Clients that do not take their answers or do not finish what they began, and more of them than there are files.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::time::Duration;

use profcol_component::testkit::profiles;
use profcol_net::{Compression, Message};
use socket2::{Domain, Socket, Type};

use crate::Rig;
use crate::backend::{Client, Destination, HttpSender, Mode, wait_until};

/// A profcol that bears stalls over HTTP for half a second; over gRPC it is half a minute.
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
  otlp_grpc: {{endpoint: {address}, tls: {{insecure: true}}, compression: none}}
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

/// A connection with room for few bytes, so that not reading is soon felt by the other side.
fn narrow(to: SocketAddr) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("there is TCP");
    socket.set_recv_buffer_size(4096).expect("it is a socket");
    socket.connect(&to.into()).expect("it listens");
    let stream = TcpStream::from(socket);
    let limit = Some(Duration::from_millis(50));
    stream.set_write_timeout(limit).expect("it is a limit");
    stream
}

/// Writes `what` again and again until nothing more is taken; whether the other side is still there.
fn fill(stream: &mut TcpStream, what: &[u8]) -> bool {
    loop {
        if let Err(error) = stream.write_all(what) {
            return error.kind() == ErrorKind::WouldBlock;
        }
    }
}

#[test]
fn clients_that_take_no_answers_cost_little_and_are_let_go() {
    let destination = Destination::new(Mode::Take);
    let rig = impatient(&destination);
    let asking = b"GET /nowhere HTTP/1.1\r\nhost: x\r\n\r\n".repeat(100);
    let mut over_http = Vec::new();
    for _ in 0..5 {
        let mut client = narrow(rig.http);
        assert!(fill(&mut client, &asking), "it is still waited for");
        over_http.push(client);
    }
    // HTTP/2's preface, empty settings, and probes, each of which wants an answer.
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    let probes = b"\0\0\x08\x06\0\0\0\0\0abcdefgh".repeat(100);
    let mut over_grpc = Vec::new();
    for _ in 0..2 {
        let mut client = narrow(rig.grpc);
        client.write_all(preface).expect("it reads");
        assert!(fill(&mut client, &probes), "it is still waited for");
        over_grpc.push(client);
    }
    assert_serves(&rig);
    for client in &mut over_http {
        wait_until("the connection to be cut", || !fill(client, &asking));
    }
    assert_serves(&rig);
    let peak = rig.peak_mib();
    assert!(peak < 60, "{peak} MiB for clients that take nothing");
    destination.wait_for_samples(4);
    // Those over gRPC are there still, and are cut off by the stop.
    rig.stop();
    drop(over_grpc);
    assert_eq!(destination.samples(), 4);
}

#[test]
fn requests_that_do_not_go_on_are_answered_and_ended() {
    let destination = Destination::new(Mode::Take);
    let rig = impatient(&destination);
    let head = "POST /v1development/profiles HTTP/1.1\r\nhost: x\r\ncontent-type: application/x-protobuf\r\ncontent-length: 60000000\r\n\r\nbegun";
    let begun: Vec<_> = (0..50)
        .flat_map(|_| [&head[..30], head])
        .map(|part| {
            let mut client = TcpStream::connect(rig.http).expect("it listens");
            client.write_all(part.as_bytes()).expect("it reads");
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
    assert!(peak < 60, "{peak} MiB for bodies that did not come");
    assert_serves(&rig);
    rig.stop();
    assert_eq!(destination.samples(), 4);
}

#[test]
fn running_out_of_files_is_told_and_passes() {
    let destination = Destination::new(Mode::Take);
    let address = destination.address;
    let exporter = format!("  otlp_grpc: {{endpoint: \"{address}\", tls: {{insecure: true}}}}\n");
    let mut rig = Rig::new(&exporter, "otlp_grpc");
    let early = Client::new(rig.grpc);
    early.send(&profiles(1)).unwrap();
    destination.wait_for_samples(1);

    let pid = rig.process.pid();
    let folder = format!("/proc/{pid}/fd");
    let open = std::fs::read_dir(folder).expect("the process runs").count();
    let few = open + 20;
    let limited = Command::new("prlimit")
        .args(["--pid", &pid.to_string(), &format!("--nofile={few}:")])
        .status();
    assert!(limited.is_ok_and(|status| status.success()), "prlimit");
    let crowd: Vec<_> = (0..200)
        .map(|number| {
            let to = if number % 2 == 0 { rig.grpc } else { rig.http };
            TcpStream::connect(to).expect("the kernel takes it")
        })
        .collect();
    let complaint = "failed to accept a connection";
    rig.process
        .wait_for_output("to tell", |said| said.contains(complaint));
    // Who is connected is served.
    early.send(&profiles(10)).unwrap();
    destination.wait_for_samples(11);
    std::thread::sleep(Duration::from_secs(1));
    drop(crowd);
    assert_serves(&rig);
    drop(early);
    let said = rig.stop();
    assert_eq!(destination.samples(), 13);
    let told = said.lines().filter(|line| line.contains(complaint));
    assert!(told.count() <= 8, "{said}");
    assert!(said.contains("LimitNOFILE"), "{said}");
}
