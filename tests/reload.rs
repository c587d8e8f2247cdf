//! Reloads of the configuration with the real program, under load.

#![allow(clippy::unwrap_used, reason = "a panic fails the test")]

use std::fs;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use profcol_component::testkit::profiles;
use profcol_test_harness::backend::{
    Client, ClosedPort, Destination, Mode, endpoint_in, wait_until,
};
use profcol_test_harness::peers::{free_address, get};
use profcol_test_harness::rig::{REFUSED, RELOADED, Rig};
use profcol_test_harness::services::{of_services, services};
use profcol_test_harness::support::{is_root, path, skip};
use tempfile::TempDir;

/// Receives on a port of its own and sends to these exporters, given as `id: settings`.
fn config(exporters: &[(&str, String)], service: &str) -> String {
    let declared: Vec<String> = exporters
        .iter()
        .map(|(id, settings)| format!("  {id}: {settings}\n"))
        .collect();
    let ids: Vec<&str> = exporters.iter().map(|(id, _)| *id).collect();
    format!(
        "receivers:
  otlp: {{protocols: {{grpc: {{endpoint: 127.0.0.1:0}}}}}}
exporters:
{}service:
  telemetry: {{metrics: {{level: none}}, logs: {{sampling: {{enabled: false}}}}}}
  {service}
  pipelines:
    profiles: {{receivers: [otlp], exporters: [{}]}}
",
        declared.concat(),
        ids.join(", ")
    )
}

fn to(destination: &Destination, more: &str) -> String {
    let address = destination.address;
    format!("{{endpoint: \"{address}\", tls: {{insecure: true}}{more}}}")
}

#[test]
fn an_added_exporter_gets_the_next_batch() {
    let [first, second] = [(), ()].map(|()| Destination::new(Mode::Take));
    let one = [("otlp_grpc", to(&first, ""))];
    let rig = Rig::start(&config(&one, ""));
    let client = rig.client();
    client.send(&profiles(3)).unwrap();
    let two = [one[0].clone(), ("otlp_grpc/second", to(&second, ""))];
    rig.write("1", &config(&two, ""));
    rig.signal("-HUP");
    rig.wait_for(RELOADED, 1);
    // Over the same connection.
    client.send(&profiles(4)).unwrap();
    let output = rig.stop();
    assert_eq!((first.samples(), second.samples()), (7, 4));
    assert_eq!(output.matches("Starting OTLP server").count(), 1);
}

#[test]
fn a_hundred_reloads_under_load_lose_and_double_nothing() {
    let [kept, changing] = [(), ()].map(|()| Destination::new(Mode::Take));
    let version = |number: usize| {
        let consumers = format!(", sending_queue: {{num_consumers: {}}}", number % 2 + 1);
        let mut exporters = vec![
            ("otlp_grpc", to(&kept, "")),
            ("otlp_grpc/changing", to(&changing, &consumers)),
        ];
        if number.is_multiple_of(3) {
            exporters.push(("nop", String::new()));
        }
        config(&exporters, "")
    };
    let rig = Rig::start(&version(0));
    let sent = 5 * rig.reload_under_load(100, version, |client| {
        client.send(&profiles(5)).unwrap();
        thread::sleep(Duration::from_millis(2));
    });
    let output = rig.stop();
    assert!(sent > 0);
    assert_eq!(
        (kept.samples(), changing.samples()),
        (sent, sent),
        "{output}"
    );
    assert!(
        output.contains(&format!("otlp: passed_on={sent}")),
        "{output}"
    );
    assert_eq!(output.matches("Starting OTLP server").count(), 1);
}

#[test]
fn a_listener_that_changes_refuses_no_connection() {
    let destination = Destination::new(Mode::Take);
    let free = ClosedPort::reserve();
    let version = |number: usize| {
        let limit = 4 + number % 2;
        config(&[("otlp_grpc", to(&destination, ""))], "").replace(
            "endpoint: 127.0.0.1:0",
            &format!(
                "endpoint: \"{}\", max_recv_msg_size_mib: {limit}",
                free.address
            ),
        )
    };
    let rig = Rig::start(&version(0));
    let sent = 5 * rig.reload_under_load(20, version, |_| {
        // A connection of its own each time.
        rig.client().send(&profiles(5)).unwrap();
    });
    let output = rig.stop();
    assert!(sent > 0);
    assert_eq!(destination.samples(), sent, "{output}");
    assert_eq!(output.matches("Starting OTLP server").count(), 21);
}

#[test]
fn a_stored_queue_goes_on_in_the_next_instance() {
    let destination = Destination::new(Mode::Take);
    let closed = ClosedPort::reserve();
    let storage = tempfile::tempdir().unwrap();
    let stored = |address| {
        let exporter = format!(
            "{{endpoint: \"{address}\", tls: {{insecure: true}}, sending_queue: {{storage: file_storage}}}}"
        );
        let directory = path(storage.path());
        let service = "extensions: [file_storage]\n  reload: {drain_timeout: 1s}";
        let config = config(&[("otlp_grpc", exporter)], service);
        format!("extensions: {{file_storage: {{directory: \"{directory}\"}}}}\n{config}")
    };
    let rig = Rig::start(&stored(closed.address));
    let client = rig.client();
    for _ in 0..10 {
        client.send(&profiles(5)).unwrap();
    }
    rig.write("1", &stored(destination.address));
    rig.signal("-HUP");
    rig.wait_for(RELOADED, 1);
    client.send(&profiles(7)).unwrap();
    destination.wait_for_samples(57);
    let output = rig.stop();
    assert_eq!(destination.samples(), 57, "{output}");
}

/// Batches that wait for a removed endpoint go to the others.
#[test]
fn the_stored_queue_of_all_endpoints_goes_on_in_the_next_instance() {
    let [kept, new] = [(); 2].map(|()| Destination::new(Mode::Take));
    let closed = ClosedPort::reserve();
    let storage = tempfile::tempdir().unwrap();
    let balanced = |addresses: [SocketAddr; 2]| {
        let [one, other] = addresses;
        let exporter = format!(
            "{{protocol: {{otlp: {{tls: {{insecure: true}}, sending_queue: {{storage: file_storage}}}}}}, \
             resolver: {{static: {{hostnames: [\"{one}\", \"{other}\"]}}}}}}"
        );
        let directory = path(storage.path());
        let service = "extensions: [file_storage]\n  reload: {drain_timeout: 1s}";
        let config = config(&[("load_balancing", exporter)], service);
        format!("extensions: {{file_storage: {{directory: \"{directory}\"}}}}\n{config}")
    };
    let rig = Rig::start(&balanced([kept.address, closed.address]));
    let client = rig.client();
    let batch = of_services(&profiles(1), 0..20);
    for _ in 0..100 {
        client.send(&batch).unwrap();
    }
    let share = services(&kept).len();
    assert!((1..20).contains(&share), "{share}");
    kept.wait_for_samples(100 * share);
    rig.write("1", &balanced([kept.address, new.address]));
    rig.signal("-HUP");
    rig.wait_for(RELOADED, 1);
    client.send(&batch).unwrap();
    wait_until("all to arrive", || {
        kept.samples() + new.samples() >= 101 * 20
    });
    let output = rig.stop();
    assert_eq!(kept.samples() + new.samples(), 101 * 20, "{output}");
    assert!(new.samples() > 0, "{output}");
}

#[test]
fn a_wrong_configuration_changes_nothing() {
    let destination = Destination::new(Mode::Take);
    let right = [("otlp_grpc", to(&destination, ""))];
    let rig = Rig::start(&config(&right, ""));
    let client = rig.client();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let page = [
        right[0].clone(),
        ("live_view", format!("{{endpoint: \"{address}\"}}")),
    ];
    let cases = [
        ("{receivers: [", "yaml"),
        (
            &config(&[("otlp_grpc", "{endpiont: x}".to_owned())], ""),
            "endpiont",
        ),
        (
            &config(&right, "").replace("exporters: [otlp_grpc]", "exporters: [absent]"),
            "absent",
        ),
        (&config(&page, ""), "address already in use"),
        (
            &config(&right, "").replace("level: none", "level: basic"),
            "service::telemetry",
        ),
    ];
    for (number, (text, expected)) in cases.into_iter().enumerate() {
        rig.write(&(number + 1).to_string(), text);
        rig.signal("-HUP");
        rig.wait_for(REFUSED, number + 1);
        let output = rig.output();
        assert!(output.contains(expected), "{expected}: {output}");
        client.send(&profiles(2)).unwrap();
    }
    rig.stop();
    assert_eq!(destination.samples(), 2 * 5);
}

#[test]
fn metrics_tell_how_reloads_ended() {
    let destination = Destination::new(Mode::Take);
    let metrics = free_address();
    let right = |number: usize| {
        let consumers = format!(", sending_queue: {{num_consumers: {number}}}");
        let served = format!(
            "metrics: {{readers: [{{pull: {{exporter: {{prometheus: {{host: {}, port: {}}}}}}}}}]}}",
            metrics.ip(),
            metrics.port()
        );
        config(&[("otlp_grpc", to(&destination, &consumers))], "")
            .replace("metrics: {level: none}", &served)
    };
    let rig = Rig::start(&right(1));
    let scraped = || {
        let text = get(metrics, "/metrics");
        let value = |name: &str| -> f64 {
            let line = text.lines().find_map(|line| line.strip_prefix(name));
            let value = line.unwrap_or_else(|| panic!("no {name} in {text}"));
            value.trim().parse().unwrap()
        };
        (
            value("profcol_config_reloads{result=\"success\"}"),
            value("profcol_config_reloads{result=\"failure\"}"),
            value("profcol_config_last_reload_successful"),
            value("profcol_config_last_reload_success_timestamp_seconds"),
        )
    };
    let (successes, failures, is_successful, started) = scraped();
    assert_eq!((successes, failures, is_successful), (0.0, 0.0, 1.0));
    assert!(started > 0.0);

    rig.write("1", &right(2));
    rig.signal("-HUP");
    rig.wait_for(RELOADED, 1);
    let (successes, failures, is_successful, reloaded) = scraped();
    assert_eq!((successes, failures, is_successful), (1.0, 0.0, 1.0));
    assert!(reloaded > started);

    rig.write("2", "receivers: {");
    rig.signal("-HUP");
    rig.wait_for(REFUSED, 1);
    let refused = scraped();
    assert_eq!(refused, (1.0, 1.0, 0.0, reloaded));

    rig.write("3", &right(3));
    rig.signal("-HUP");
    rig.wait_for(RELOADED, 2);
    let (successes, failures, is_successful, recovered) = scraped();
    assert_eq!((successes, failures, is_successful), (2.0, 1.0, 1.0));
    assert!(recovered > reloaded);
    rig.stop();
}

#[test]
fn clients_keep_their_connection_over_reloads() {
    let destination = Destination::new(Mode::Take);
    let version = |number: usize| {
        let consumers = format!(", sending_queue: {{num_consumers: {}}}", number % 2 + 1);
        config(&[("otlp_grpc", to(&destination, &consumers))], "")
    };
    let rig = Rig::start(&version(0));
    let relay = Relay::to(endpoint_in(&rig.output(), "grpc"));
    let client = Client::new(relay.address);
    client.send(&profiles(1)).unwrap();
    for number in 1..=20 {
        rig.write(&number.to_string(), &version(number));
        rig.signal("-HUP");
        rig.wait_for(RELOADED, number);
        client.send(&profiles(1)).unwrap();
    }
    assert_eq!(relay.connections.load(Ordering::Relaxed), 1);
    rig.stop();
    assert_eq!(destination.samples(), 21);
}

/// Counts the connections to a server, which pass through it. Ends with the test.
struct Relay {
    address: SocketAddr,
    connections: Arc<AtomicUsize>,
}

impl Relay {
    fn to(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let connections = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&connections);
        thread::spawn(move || {
            for client in listener.incoming() {
                counted.fetch_add(1, Ordering::Relaxed);
                let (client, server) = (client.unwrap(), TcpStream::connect(server).unwrap());
                pass_on(&client, &server);
                pass_on(&server, &client);
            }
        });
        Self {
            address,
            connections,
        }
    }
}

fn pass_on(from: &TcpStream, to: &TcpStream) {
    let (mut from, mut to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
    thread::spawn(move || {
        let _ = std::io::copy(&mut from, &mut to);
        let _ = to.shutdown(Shutdown::Both);
    });
}

#[test]
fn the_sandbox_outlasts_reloads() {
    let destination = Destination::new(Mode::Take);
    let (open, closed) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let sent = ("otlp_grpc", to(&destination, ""));
    let with_file = |id, folder: &TempDir| {
        let file = folder.path().join(id).join("profiles.jsonl");
        let settings = format!("{{path: {}, create_directory: true}}", path(&file));
        (file, settings)
    };
    let (first, first_settings) = with_file("first", &open);
    let (second, second_settings) = with_file("second", &open);
    let (_, foreign_settings) = with_file("foreign", &closed);
    let files = |settings| config(&[sent.clone(), ("file", settings)], "");

    let rig = Rig::start(&files(first_settings.clone()));
    let status = fs::read_to_string(format!("/proc/{}/status", rig.pid())).unwrap();
    assert!(status.contains("Seccomp:\t2"), "{status}");
    let lifted = config(
        &[sent.clone(), ("file", first_settings)],
        "sandbox: {landlock: false}",
    );
    let mut refused = vec![(lifted, "`service::sandbox` has changed")];
    if rig.count("Enabled Landlock") == 1 {
        refused.push((files(foreign_settings), "which Landlock has denied"));
    } else {
        skip("no Landlock in this kernel");
    }
    for (number, (text, expected)) in refused.iter().enumerate() {
        rig.write(&format!("refused-{number}"), text);
        rig.signal("-HUP");
        rig.wait_for(REFUSED, number + 1);
        let output = rig.output();
        assert!(output.contains(expected), "{expected}: {output}");
    }
    // Below the directory that was there at the start.
    rig.client().send(&profiles(2)).unwrap();
    rig.write("moved", &files(second_settings));
    rig.signal("-HUP");
    rig.wait_for(RELOADED, 1);
    rig.client().send(&profiles(3)).unwrap();
    rig.stop();
    assert_eq!(destination.samples(), 5);
    for file in [first, second] {
        assert_ne!(fs::metadata(file).unwrap().len(), 0);
    }
}

#[test]
fn a_process_without_the_sandbox_is_not_restricted() {
    let destination = Destination::new(Mode::Take);
    let (first, second) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let file = |folder: &TempDir| folder.path().join("profiles.jsonl");
    let with = |folder: &TempDir, service: &str| {
        let settings = format!("{{path: {}}}", path(&file(folder)));
        let exporters = [("otlp_grpc", to(&destination, "")), ("file", settings)];
        config(&exporters, service)
    };
    for (service, seccomp) in [
        ("sandbox: {landlock: false}", "Seccomp:\t2"),
        ("sandbox: {landlock: false, seccomp: false}", "Seccomp:\t0"),
    ] {
        let rig = Rig::start(&with(&first, service));
        let status = fs::read_to_string(format!("/proc/{}/status", rig.pid())).unwrap();
        assert!(status.contains(seccomp), "{service}: {status}");
        // Landlock would deny that directory.
        rig.write("moved", &with(&second, service));
        rig.signal("-HUP");
        rig.wait_for(RELOADED, 1);
        rig.client().send(&profiles(2)).unwrap();
        let output = rig.stop();
        assert!(!output.contains("Landlock"), "{output}");
        assert_ne!(fs::metadata(file(&second)).unwrap().len(), 0);
        fs::remove_file(file(&second)).unwrap();
    }
}

#[test]
fn a_listener_that_is_open_to_everyone_is_logged_when_it_starts() {
    const WARNING: &str = "Every host that reaches this one can connect";
    let with = |receivers: &str| {
        format!(
            "receivers:
  otlp: {{protocols: {{grpc: {{endpoint: '0.0.0.0:0'}}, http: {{endpoint: '127.0.0.1:0'}}}}}}
  otlp/protected: {{protocols: {{http: {{endpoint: '0.0.0.0:0', auth: {{authenticator: bearertokenauth}}}}}}}}
  otlp/added: {{protocols: {{http: {{endpoint: '[::]:0'}}}}}}
exporters: {{nop: }}
extensions: {{bearertokenauth: {{token: t}}}}
service:
  extensions: [bearertokenauth]
  telemetry: {{metrics: {{level: none}}, logs: {{sampling: {{enabled: false}}}}}}
  pipelines: {{profiles: {{receivers: [{receivers}], exporters: [nop]}}}}
"
        )
    };
    let rig = Rig::start(&with("otlp, otlp/protected"));
    assert_eq!(rig.count(WARNING), 1, "{}", rig.output());
    rig.write("added", &with("otlp, otlp/protected, otlp/added"));
    rig.signal("-HUP");
    rig.wait_for(RELOADED, 1);
    assert_eq!(rig.count(WARNING), 2, "{}", rig.output());
    rig.stop();
}

#[test]
fn a_crash_leaves_no_memory_behind() {
    let rig = Rig::start(&config(&[("nop", String::new())], ""));
    let limits = fs::read_to_string(format!("/proc/{}/limits", rig.pid())).unwrap();
    let core = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max core file size"));
    let values: Vec<&str> = core.unwrap().split_whitespace().collect();
    assert_eq!(values, ["1", "1", "bytes"]);
    rig.stop();
}

#[test]
fn a_config_map_that_is_swapped_is_noticed() {
    let [first, second] = [(), ()].map(|()| Destination::new(Mode::Take));
    let watched = |destination| {
        config(
            &[("otlp_grpc", to(destination, ""))],
            "reload: {watch: true}",
        )
    };
    let rig = Rig::start(&watched(&first));
    let client = rig.client();
    for (number, destination) in [(1, &second), (2, &first)] {
        rig.write(&number.to_string(), &watched(destination));
        rig.wait_for(RELOADED, number);
        client.send(&profiles(number)).unwrap();
    }
    rig.stop();
    assert_eq!((first.samples(), second.samples()), (2, 1));
}

#[test]
fn a_replaced_exporter_that_hangs_is_counted_and_holds_up_nothing() {
    let [hanging, working] = [Mode::Hang, Mode::Take].map(Destination::new);
    let service = "reload: {drain_timeout: 1s}";
    let no_end = ", timeout: 0s";
    let rig = Rig::start(&config(&[("otlp_grpc", to(&hanging, no_end))], service));
    let client = rig.client();
    client.send(&profiles(7)).unwrap();
    hanging.wait_for_requests(1);
    rig.write("1", &config(&[("otlp_grpc", to(&working, ""))], service));
    // Two at once.
    rig.signal("-HUP");
    rig.signal("-HUP");
    rig.wait_for(RELOADED, 1);
    client.send(&profiles(5)).unwrap();
    rig.wait_for("Exporting failed. Dropping data.", 1);
    let output = rig.stop();
    assert_eq!(working.samples(), 5);
    assert!(
        output.contains("otlp_grpc: delivered=5 reload=7"),
        "{output}"
    );
}

#[test]
fn a_stop_ends_a_reload() {
    let destination = Destination::new(Mode::Take);
    let rig = Rig::start(&config(&[("otlp_grpc", to(&destination, ""))], ""));
    rig.client().send(&profiles(3)).unwrap();
    rig.write(
        "1",
        &config(&[("otlp_grpc", to(&destination, ", timeout: 9s"))], ""),
    );
    rig.signal("-HUP");
    rig.stop();
    assert_eq!(destination.samples(), 3);
}

#[test]
fn the_sampling_receiver_keeps_running() {
    if !is_root() {
        skip("loading BPF programs needs root");
        return;
    }
    const RELOADS: usize = 20;
    let destination = Destination::new(Mode::Take);
    let metrics = free_address();
    let busy = Busy::start();
    let pid = busy.0.id();
    let with = |number: usize| {
        let exporters = ["nop", "nop, nop/2"][number % 2];
        format!(
            "receivers: {{ebpf_cpu: {{interval: 200ms, frequency: 99, include: [{{pid: {pid}}}]}}}}
processors: {{resource: {{attributes: [{{key: reload, value: \"{number}\", action: upsert}}]}}}}
exporters:
  nop:
  nop/2:
  otlp_grpc: {{endpoint: \"{}\", tls: {{insecure: true}}, sending_queue: {{num_consumers: {}}}}}
service:
  telemetry:
    logs: {{sampling: {{enabled: false}}}}
    metrics: {{readers: [{{pull: {{exporter: {{prometheus: {{host: {}, port: {}}}}}}}}}]}}
  pipelines: {{profiles: {{receivers: [ebpf_cpu], processors: [resource], exporters: [otlp_grpc, {exporters}]}}}}
",
            destination.address,
            number % 2 + 1,
            metrics.ip(),
            metrics.port(),
        )
    };
    let rig = Rig::start(&with(0));
    let metric = |name: &str| -> u64 {
        let text = get(metrics, "/metrics");
        let value = text.lines().find_map(|line| line.strip_prefix(name));
        value.map_or(0, |value| value.trim().parse().unwrap())
    };
    let samples = || metric("profcol_ebpf_cpu_samples{receiver=\"ebpf_cpu\"}");
    for number in 1..=RELOADS {
        let before = samples();
        rig.write(&number.to_string(), &with(number));
        rig.signal("-HUP");
        rig.wait_for(RELOADED, number);
        wait_until("further samples", || samples() > before);
    }
    // The tables of the shell and its libraries, once each.
    let built = metric("profcol_ebpf_cpu_executables{outcome=\"built\",receiver=\"ebpf_cpu\"}");
    assert!((1..RELOADS as u64).contains(&built), "{built}");
    drop(busy);
    let output = rig.stop();
    assert_eq!(output.matches("Loaded the BPF programs").count(), 1);
    let number_after = |text: &str| -> u64 {
        let rest = output
            .split(text)
            .nth(1)
            .unwrap_or_else(|| panic!("{output}"));
        let end = rest.find(|next: char| !next.is_ascii_digit());
        rest[..end.unwrap_or(rest.len())].parse().unwrap()
    };
    let passed_on = number_after("passed_on=");
    assert!(passed_on > 0);
    let kept = number_after("ebpf_cpu: taken=") - number_after("excluded=");
    assert_eq!(kept, passed_on, "{output}");
    assert_eq!(number_after("nop: delivered="), passed_on, "{output}");
    assert_eq!(number_after("otlp_grpc: delivered="), passed_on, "{output}");
}

/// A program that uses a CPU.
struct Busy(Child);

impl Busy {
    fn start() -> Self {
        let mut command = Command::new("sh");
        command.args(["-c", "while :; do :; done"]);
        Self(command.spawn().unwrap())
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        // Both fail only if it has already exited.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
