//! `load_balancing` with the endpoints of a service. There is no controller: the test writes the EndpointSlices.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use profcol_component::testkit::profiles;
use profcol_net::grpc::{Code, Status};
use profcol_profile::Profiles;
use profcol_test_harness::backend::{Client, Destination, Mode, endpoint_in, wait_until};
use profcol_test_harness::hosts::Hosts;
use profcol_test_harness::peers::Process;
use profcol_test_harness::services::{of_services, services, side_by_side};
use profcol_test_harness::support::{root, skip};
use serde_json::{Value, json};

use crate::cluster::{ACCOUNT, Cluster};

const SERVICES: usize = 30;
const SERVICE: &str = "profcol-gateway-headless.profcol";
const SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/profcol/endpointslices";

/// Destinations, as pods of a StatefulSet.
struct Pods {
    running: BTreeMap<u8, Destination>,
    port: u16,
}

impl Pods {
    fn new(count: u8) -> Self {
        let running = (1..).zip(side_by_side(count)).collect::<BTreeMap<_, _>>();
        let port = running[&1].address.port();
        Self { running, port }
    }

    fn start(&mut self, number: u8) {
        let address = SocketAddr::from(([127, 0, 0, number], self.port));
        let pod = Destination::on(address, Mode::Take);
        self.running.insert(number, pod);
    }

    fn samples(&self) -> usize {
        self.running.values().map(Destination::samples).sum()
    }
}

fn batch() -> Profiles {
    of_services(&profiles(1), 0..SERVICES)
}

fn slice_of(name: &str, service: &str, endpoints: &[Value]) -> Value {
    json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {"name": name, "labels": {"kubernetes.io/service-name": service}},
        "endpoints": endpoints,
    })
}

fn slice(name: &str, ready: &[u8], not_ready: &[u8]) -> Value {
    let endpoint = |number: &u8, is_ready: bool| {
        json!({
            // The server refuses addresses of this host: the pods are called by name.
            "addresses": [format!("10.244.0.{number}")],
            "hostname": format!("gateway-{number}"),
            "conditions": {"ready": is_ready},
        })
    };
    let ready = ready.iter().map(|it| endpoint(it, true));
    let endpoints = ready.chain(not_ready.iter().map(|it| endpoint(it, false)));
    let endpoints: Vec<Value> = endpoints.collect();
    slice_of(name, "profcol-gateway-headless", &endpoints)
}

fn start(cluster: &Cluster, hosts: &Hosts, resolver: &str) -> (Process, Client) {
    let config = format!(
        "receivers: {{otlp: {{protocols: {{grpc: {{endpoint: '127.0.0.1:0'}}}}}}}}
exporters:
  load_balancing:
    protocol: {{otlp: {{tls: {{insecure: true}}, timeout: 2s, retry_on_failure: {{initial_interval: 50ms, max_interval: 100ms}}}}}}
    resolver:
      k8s: {{{resolver}, timeout: 10s, auth_type: kubeConfig, kube_config_path: '{}', context: {ACCOUNT}}}
service:
  telemetry: {{metrics: {{level: none}}}}
  pipelines: {{profiles: {{receivers: [otlp], exporters: [load_balancing]}}}}
",
        cluster.kubeconfig().display(),
    );
    let mut process = hosts.profcol(&config);
    process.wait_for_output("to be ready", |output| {
        output.contains("Everything is ready")
    });
    let client = Client::new(endpoint_in(&process.output(), "grpc"));
    (process, client)
}

#[test]
#[ignore = "cargo xtask kubernetes-test runs it"]
fn balances_over_the_endpoints_of_a_service_as_they_come_and_go() {
    let names: Vec<_> = (1..=9)
        .map(|it| format!("gateway-{it}.{SERVICE}"))
        .collect();
    let addresses = (1..).zip(&names);
    let addresses = addresses.map(|(it, name)| (IpAddr::from([127, 0, 0, it]), &**name));
    let Some(hosts) = Hosts::new(&addresses.collect::<Vec<_>>()) else {
        return;
    };
    let cluster = Cluster::start();
    let apply = |file: &str| cluster.apply(&root().join("deploy/kubernetes").join(file));
    apply("rights.yaml");
    apply("gateway.yaml");
    cluster.create(SLICES, &slice("first", &[1], &[9]));
    cluster.create(SLICES, &slice("second", &[2], &[]));
    let mut pods = Pods::new(3);

    // Without the right, profiles wait, and the log names it.
    let (mut process, client) = start(
        &cluster,
        &hosts,
        &format!(
            "service: {SERVICE}, ports: [{}], return_hostnames: true",
            pods.port
        ),
    );
    process.wait_for_output("to name the right", |output| {
        output.contains("add to the service account's Role in namespace profcol")
            && output.contains("resources: [endpointslices], verbs: [list, watch]")
    });
    client.send(&batch()).unwrap();
    apply("endpoints.yaml");
    wait_until("what waited to arrive", || pods.samples() == SERVICES);
    let got: Vec<_> = pods.running.values().map(Destination::samples).collect();
    assert!(got[0] > 0 && got[1] > 0 && got[2] == 0, "{got:?}");

    // The rest happens while batches are sent.
    let (sent, is_over) = (AtomicUsize::new(1), AtomicBool::new(false));
    let (cluster, pods) = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                client.send(&batch()).unwrap();
                sent.fetch_add(1, Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(2));
            }
        });
        // However this ends, the sender ends, too.
        let stop = Stop(&is_over);

        // A pod comes.
        cluster.create(SLICES, &slice("third", &[3], &[]));
        pods.running[&3].wait_for_samples(SERVICES);
        // One goes: it is taken off the list, as the controller does, and then ends.
        let path = |name: &str| format!("{SLICES}/{name}");
        replace(&cluster, &path("second"), &[], &[2]);
        let settled = |pods: &Pods| {
            let before = pods.running[&2].samples();
            std::thread::sleep(Duration::from_millis(200));
            pods.running[&2].samples() == before
        };
        wait_until("it to get nothing more", || settled(&pods));
        let left = pods.running.remove(&2).unwrap().samples();
        // Another one dies first; its profiles wait, and move when it is taken off the list.
        let died = pods.running.remove(&1).unwrap();
        // From now on its count is final.
        died.set(Mode::Refuse(Status::new(Code::Unavailable, "ends")));
        let (died_with, of_it) = (died.samples(), services(&died));
        drop(died);
        let before = sent.load(Ordering::Relaxed);
        wait_until("batches for it", || {
            sent.load(Ordering::Relaxed) > before + 20
        });
        cluster.delete(&path("first"));
        // All services are with the last pod now.
        wait_until("the last one to get all", || {
            services(&pods.running[&3]).len() == SERVICES
        });

        // The server restarts: what is known stays, and changes are seen again.
        let cluster = cluster.restarted(|| {
            let before = pods.samples();
            wait_until("samples without it", || {
                pods.samples() > before + 5 * SERVICES
            });
        });
        pods.start(1);
        cluster.create(SLICES, &slice("fourth", &[1], &[]));
        pods.running[&1].wait_for_samples(SERVICES);
        let back = services(&pods.running[&1]);
        assert!(
            back.keys().all(|it| of_it.contains_key(it)),
            "{back:?} {of_it:?}"
        );
        drop(stop);
        // Nothing was lost, and nothing was sent twice.
        wait_until("all to arrive", || {
            left + died_with + pods.samples() >= sent.load(Ordering::Relaxed) * SERVICES
        });
        (cluster, (pods, left + died_with))
    });
    let (pods, gone) = pods;
    drop(client);
    let (status, output) = process.stop();
    assert!(status.success(), "{status}: {output}");
    let all = sent.load(Ordering::Relaxed) * SERVICES;
    assert_eq!(gone + pods.samples(), all, "{output}");
    assert!(output.contains(&format!("delivered={all}")), "{output}");

    // By address, as far as this host has one that the server accepts.
    let Some(own) = own_address() else {
        skip("this host has only loopback addresses");
        return;
    };
    let pod = Destination::on(SocketAddr::from((own, 0)), Mode::Take);
    let endpoint = json!({"addresses": [own.to_string()], "conditions": {"ready": true}});
    cluster.create(SLICES, &slice_of("other", "other", &[endpoint]));
    let resolver = format!("service: other.profcol, ports: [{}]", pod.address.port());
    let (process, client) = start(&cluster, &hosts, &resolver);
    client.send(&batch()).unwrap();
    pod.wait_for_samples(SERVICES);
    drop(client);
    assert!(process.stop().0.success());
}

/// The address by which others reach this host.
fn own_address() -> Option<Ipv4Addr> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    // Sends nothing.
    socket.connect("198.51.100.1:9").ok()?;
    match socket.local_addr().ok()?.ip() {
        IpAddr::V4(own) if !own.is_loopback() && !own.is_link_local() => Some(own),
        _ => None,
    }
}

struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn replace(cluster: &Cluster, path: &str, ready: &[u8], not_ready: &[u8]) {
    let change = json!({"endpoints": slice("", ready, not_ready)["endpoints"]});
    cluster.patch(path, &change);
}
