//! Destinations with several or changing addresses, proxies, and Unix sockets.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::thread;

use profcol_component::testkit::profiles;
use profcol_test_harness::backend::http::{HttpDestination, HttpMode};
use profcol_test_harness::backend::{Client, Destination, Mode, wait_until};
use profcol_test_harness::hosts::Hosts;
use profcol_test_harness::peers::Process;
use profcol_test_harness::services::{of_services, services, side_by_side};
use profcol_test_harness::support::program;

use crate::Rig;

const RETRY: &str =
    "retry_on_failure: {initial_interval: 20ms, max_interval: 100ms, max_elapsed_time: 0s}";

fn config(exporter: &str, name: &str) -> String {
    format!(
        "\
receivers:
  otlp: {{protocols: {{grpc: {{endpoint: 127.0.0.1:0}}, http: {{endpoint: 127.0.0.1:0}}}}}}
exporters:
  {exporter}
service:
  telemetry: {{metrics: {{level: none}}, logs: {{sampling: {{enabled: false}}}}}}
  pipelines:
    profiles: {{receivers: [otlp], exporters: [{name}]}}
"
    )
}

fn send(rig: &Rig, batches: usize) {
    let client = Client::new(rig.grpc);
    for _ in 0..batches {
        client.send(&profiles(1)).unwrap();
    }
}

#[test]
fn round_robin_spreads_calls_and_follows_dns() {
    let mut destinations = side_by_side(3);
    let new = destinations.pop().expect("there are three");
    let addresses: Vec<_> = destinations.iter().map(|there| there.address).collect();
    let Some(hosts) = Hosts::new(&named(&addresses)) else {
        return;
    };
    let port = new.address.port();
    let exporter = format!(
        "otlp_grpc: {{endpoint: \"dns:///backend.test:{port}\", tls: {{insecure: true}}, balancer_name: round_robin, {RETRY}}}"
    );
    let rig = Rig::started(hosts.profcol(&config(&exporter, "otlp_grpc")));
    send(&rig, 20);
    for destination in &destinations {
        destination.wait_for_samples(8);
    }
    wait_until("all to arrive", || {
        destinations.iter().map(Destination::samples).sum::<usize>() == 20
    });

    // One disappears and returns at another address, like a replaced container.
    hosts.set(&named(&[addresses[0], new.address]));
    let gone = destinations.pop().expect("there were two");
    let stayed = &destinations[0];
    let sum = || stayed.samples() + new.samples();
    let (before, lost) = (stayed.samples(), gone.samples());
    assert_eq!(before + lost, 20);
    drop(gone);
    let mut sent = 0;
    wait_until("the new address to be found", || {
        send(&rig, 1);
        sent += 1;
        new.samples() > 0
    });
    rig.stop();
    assert_eq!(sum(), before + sent);
}

#[test]
fn pick_first_uses_the_first_reachable_address() {
    let destinations = side_by_side(2);
    let addresses: Vec<_> = destinations.iter().map(|there| there.address).collect();
    let closed = SocketAddr::from(([127, 0, 0, 3], addresses[0].port()));
    let Some(hosts) = Hosts::new(&named(&[closed, addresses[0], addresses[1]])) else {
        return;
    };
    let exporter = format!(
        "otlp_grpc: {{endpoint: \"backend.test:{}\", tls: {{insecure: true}}, balancer_name: pick_first, {RETRY}}}",
        closed.port()
    );
    let rig = Rig::started(hosts.profcol(&config(&exporter, "otlp_grpc")));
    send(&rig, 10);
    rig.stop();
    let mut got: Vec<_> = destinations.iter().map(Destination::samples).collect();
    got.sort_unstable();
    assert_eq!(got, [0, 10]);
}

/// The name of the destinations.
fn named(addresses: &[SocketAddr]) -> Vec<(IpAddr, &str)> {
    let addresses = addresses.iter();
    addresses.map(|it| (it.ip(), "backend.test")).collect()
}

#[test]
fn load_balancing_keeps_services_together_and_follows_dns() {
    const SERVICES: usize = 40;
    let mut destinations = side_by_side(3);
    let addresses: Vec<_> = destinations.iter().map(|there| there.address).collect();
    let Some(hosts) = Hosts::new(&named(&addresses)) else {
        return;
    };
    let port = addresses[0].port();
    let exporter = format!(
        "load_balancing: {{protocol: {{otlp: {{tls: {{insecure: true}}, {RETRY}}}}}, \
         resolver: {{dns: {{hostname: backend.test, port: {port}, interval: 50ms, timeout: 10s}}}}}}"
    );
    let rig = Rig::started(hosts.profcol(&config(&exporter, "load_balancing")));
    let client = Client::new(rig.grpc);
    let send = |times| {
        (0..times).for_each(|_| {
            client
                .send(&of_services(&profiles(1), 0..SERVICES))
                .unwrap()
        })
    };
    let sum = |all: &[Destination]| all.iter().map(Destination::samples).sum::<usize>();

    send(4);
    wait_until("all to arrive", || sum(&destinations) == 4 * SERVICES);
    for destination in &destinations {
        let got = services(destination);
        assert!(
            !got.is_empty() && got.values().all(|&it| it == 4),
            "{got:?}"
        );
    }

    // One is killed: its batches wait, those of the others are delivered.
    let gone = destinations.pop().expect("there are three");
    let moved = services(&gone);
    drop(gone);
    let stayed = SERVICES - moved.len();
    send(2);
    wait_until("the others to get theirs", || {
        sum(&destinations) == 6 * stayed
    });
    hosts.set(&named(&addresses[..2]));
    let all = 6 * stayed + 2 * moved.len();
    wait_until("the rest to arrive", || sum(&destinations) == all);
    let got = destinations.iter().map(services);
    for (service, samples) in got.flatten() {
        let expected = if moved.contains_key(&service) { 2 } else { 6 };
        assert_eq!(samples, expected, "{service}");
    }

    // It returns, and gets its own services again.
    let back = Destination::on(addresses[2], Mode::Take);
    hosts.set(&named(&addresses));
    let mut sent = 0;
    wait_until("it to be found", || {
        send(1);
        sent += 1;
        back.samples() > 0
    });
    let output = rig.stop();
    let all = all + sent * SERVICES;
    assert_eq!(sum(&destinations) + back.samples(), all);
    assert!(services(&back).keys().eq(moved.keys()));
    let delivered = all + 4 * moved.len();
    assert!(
        output.contains(&format!("delivered={delivered}")),
        "{output}"
    );
}

/// A proxy that tunnels all requests to one destination and records them.
struct Proxy {
    address: SocketAddr,
    heads: Arc<Mutex<Vec<String>>>,
}

impl Proxy {
    fn to(destination: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
        let address = listener.local_addr().expect("it is bound");
        let heads = Arc::<Mutex<Vec<String>>>::default();
        let received = heads.clone();
        // Ends with the test's process.
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let head = read_head(&client);
                let refused = !head.starts_with("CONNECT ");
                received.lock().unwrap().push(head);
                let first = received.lock().unwrap().len() == 1;
                let answer = match (refused, first) {
                    (true, _) => "HTTP/1.1 405 Method Not Allowed\r\n\r\n",
                    // Shows that such a failure is transient.
                    (_, true) => "HTTP/1.1 503 Busy\r\n\r\n",
                    _ => "HTTP/1.1 200 OK\r\n\r\n",
                };
                if (&client).write_all(answer.as_bytes()).is_ok() && !refused && !first {
                    join(client, destination);
                }
            }
        });
        Self { address, heads }
    }
}

fn read_head(mut client: &TcpStream) -> String {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") && client.read_exact(&mut byte).is_ok() {
        head.extend(byte);
    }
    String::from_utf8_lossy(&head).into_owned()
}

fn join(client: TcpStream, destination: SocketAddr) {
    let server = TcpStream::connect(destination).expect("it listens");
    for (from, to) in [(&client, &server), (&server, &client)] {
        let (mut from, mut to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
        thread::spawn(move || {
            // Either side may close it.
            let _ = std::io::copy(&mut from, &mut to);
            let _ = to.shutdown(std::net::Shutdown::Both);
        });
    }
}

fn with_proxy(variable: &str, proxy: SocketAddr, config: &str) -> Rig {
    let mut command = Command::new(program());
    command
        .env(variable, format!("http://user:secret@{proxy}"))
        .env_remove("NO_PROXY");
    Rig::started(Process::start_as(&mut command, &[], config))
}

#[test]
fn grpc_uses_the_proxy_from_the_environment() {
    let destination = Destination::new(Mode::Take);
    let proxy = Proxy::to(destination.address);
    let exporter =
        format!("otlp_grpc: {{endpoint: \"backend.test:4317\", tls: {{insecure: true}}, {RETRY}}}");
    let config = config(&exporter, "otlp_grpc");
    let rig = with_proxy("HTTPS_PROXY", proxy.address, &config);
    send(&rig, 3);
    destination.wait_for_samples(3);
    let output = rig.stop();
    assert_eq!(destination.samples(), 3);
    let heads = proxy.heads.lock().unwrap().join("");
    assert!(
        heads.contains("CONNECT backend.test:4317 HTTP/1.1"),
        "{heads}"
    );
    let authorization = "Proxy-Authorization: Basic dXNlcjpzZWNyZXQ=";
    assert!(heads.contains(authorization), "{heads}");
    let why = "unexpected response to CONNECT: \"HTTP/1.1 503 Busy\"";
    assert!(output.contains(why), "{output}");
    assert!(!output.contains("secret"), "{output}");
}

#[test]
fn http_uses_the_proxy_from_the_environment() {
    // Clients send absolute URLs to a proxy, so the destination can act as one.
    let destination = HttpDestination::new(HttpMode::Take);
    let exporter = format!(
        "otlp_http: {{endpoint: \"http://backend.test:4318\", compression: none, {RETRY}}}"
    );
    let config = config(&exporter, "otlp_http");
    let rig = with_proxy("HTTP_PROXY", destination.address, &config);
    send(&rig, 3);
    destination.wait_for_samples(3);
    rig.stop();
    let requests = destination.requests();
    let line = "POST http://backend.test:4318/v1development/profiles HTTP/1.1";
    assert!(
        requests.iter().all(|request| request == line),
        "{requests:?}"
    );
    assert_eq!(destination.samples(), 3);
}

/// The status line of the response.
fn post(socket: &Path, body: &[u8]) -> String {
    let mut stream = UnixStream::connect(socket).expect("it listens");
    let head = format!(
        "POST /v1development/profiles HTTP/1.1\r\nhost: x\r\ncontent-type: application/x-protobuf\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).expect("it is readable");
    stream.write_all(body).expect("it is readable");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it answers");
    answer.lines().next().unwrap_or_default().to_owned()
}

#[test]
fn unix_sockets_serve_both_protocols_and_survive_a_crash() {
    let directory = tempfile::tempdir().expect("can create a temporary directory");
    let (grpc, http) = (directory.path().join("grpc"), directory.path().join("http"));
    let destination = Destination::new(Mode::Take);
    let config_back = format!(
        "\
receivers:
  otlp:
    protocols:
      grpc: {{transport: unix, endpoint: {}}}
      http: {{transport: unix, endpoint: {}}}
exporters:
  otlp_grpc: {{endpoint: \"{}\", tls: {{insecure: true}}}}
service:
  telemetry: {{metrics: {{level: none}}}}
  pipelines:
    profiles: {{receivers: [otlp], exporters: [otlp_grpc]}}
",
        grpc.display(),
        http.display(),
        destination.address
    );
    let start = || {
        let mut process = crate::profcol(&config_back);
        process.wait_for_output("to be ready", |output| {
            output.contains("Everything is ready")
        });
        process
    };
    let exporter = format!(
        "otlp_grpc: {{endpoint: \"unix://{}\", tls: {{insecure: true}}, {RETRY}}}",
        grpc.display()
    );
    let front = Rig::started(crate::profcol(&config(&exporter, "otlp_grpc")));

    let back = start();
    assert_eq!(post(&http, &profiles(4).to_wire()), "HTTP/1.1 200 OK");
    assert_eq!(post(&http, b"nonsense"), "HTTP/1.1 400 Bad Request");
    send(&front, 1);
    destination.wait_for_samples(5);
    // After SIGKILL the socket files remain, and must not prevent the next start.
    drop(back);
    send(&front, 1);
    let back = start();
    assert_eq!(post(&http, &profiles(4).to_wire()), "HTTP/1.1 200 OK");
    destination.wait_for_samples(10);
    front.stop();
    let (status, output) = back.stop();
    assert!(status.success(), "{output}");
    assert!(!grpc.exists() && !http.exists(), "they are cleaned up");
    assert_eq!(destination.samples(), 10);
}
