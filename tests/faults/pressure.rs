//! A gateway whose cgroup has hardly enough memory or CPU.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use profcol_component::testkit::profiles;
use profcol_net::grpc::Status;
use profcol_test_harness::backend::{Client, Destination, Mode, endpoint_in, wait_until};
use profcol_test_harness::balance::Balance;
use profcol_test_harness::cgroup::Cgroup;
use profcol_test_harness::peers::{Process, profcol};
use profcol_test_harness::support::program;

const CLIENTS: usize = 4;
const BATCHES: usize = 30;
/// The sizes of the batches, which identify them. Each is some hundred KB.
const SAMPLES: usize = 10_000;

/// The processor is `memory_limiter`, if there are `options`.
fn config(directory: &Path, destination: &Destination, options: Option<&str>) -> String {
    let processor = options.map_or(String::new(), |it| format!("memory_limiter: {{{it}}}"));
    let name = options.map_or("", |_| "memory_limiter");
    let directory = directory.display();
    let address = destination.address;
    format!(
        "\
extensions:
  file_storage: {{directory: {directory}}}
receivers:
  otlp: {{protocols: {{grpc: {{endpoint: 127.0.0.1:0}}}}}}
processors: {{{processor}}}
exporters:
  otlp_grpc:
    endpoint: {address}
    tls: {{insecure: true}}
    sending_queue: {{storage: file_storage, num_consumers: 2}}
    retry_on_failure: {{initial_interval: 50ms, max_interval: 100ms, max_elapsed_time: 0s}}
service:
  shutdown_timeout: 60s
  extensions: [file_storage]
  telemetry: {{metrics: {{level: none}}, logs: {{sampling: {{enabled: false}}}}}}
  pipelines:
    profiles: {{receivers: [otlp], processors: [{name}], exporters: [otlp_grpc]}}
"
    )
}

/// A profcol in a cgroup that is started again when the kernel has killed it.
struct Restarted<'a> {
    cgroup: &'a Cgroup,
    config: String,
    process: Process,
    restarts: usize,
}

impl<'a> Restarted<'a> {
    fn start(cgroup: &'a Cgroup, config: String) -> Self {
        Self {
            process: started(cgroup, &config),
            cgroup,
            config,
            restarts: 0,
        }
    }

    /// Returns whether it had ended.
    fn revive(&mut self) -> bool {
        /// Otherwise the limit is too low for any progress.
        const MAX_RESTARTS: usize = 50;
        let has_ended = self.process.has_ended();
        if has_ended {
            self.restarts += 1;
            assert!(self.restarts <= MAX_RESTARTS, "{}", self.process.output());
            self.process = started(self.cgroup, &self.config);
        }
        has_ended
    }
}

fn started(cgroup: &Cgroup, config: &str) -> Process {
    Process::start_as(&mut cgroup.command(&program()), &[], config)
}

fn is_ready(process: &Process) -> bool {
    process.output().contains("Everything is ready")
}

/// A number of bytes in the status of a profcol that is ready.
fn when_ready(config: &str, key: &str) -> u64 {
    let mut process = profcol(config);
    process.wait_for_output("to be ready", |said| said.contains("Everything is ready"));
    let status = fs::read_to_string(format!("/proc/{}/status", process.pid())).unwrap();
    let line = status.lines().find_map(|it| it.strip_prefix(key));
    let kib = line.and_then(|line| line.split_whitespace().nth(1));
    kib.and_then(|kib| kib.parse::<u64>().ok()).unwrap() << 10
}

/// Clients that send each batch until it is accepted, while the gateway refuses them, or is killed and restarted. Returns how
/// often the kernel killed it.
#[expect(clippy::print_stdout, reason = "the figures are of interest")]
fn everything_arrives(cgroup: &Cgroup, options: Option<&str>, limit: impl Fn(&str) -> u64) -> u64 {
    let folder = tempfile::tempdir().unwrap();
    let destination = Destination::new(Mode::Hang);
    let config = config(folder.path(), &destination, options);
    let limit = limit(&config);
    cgroup.limit_memory(limit);
    let mut gateway = Restarted::start(cgroup, config);
    let next = Mutex::new((0..CLIENTS * BATCHES).map(|number| SAMPLES + number));
    let address = Mutex::new(None);
    let unanswered = AtomicUsize::new(0);
    thread::scope(|scope| {
        let mut clients = Vec::new();
        for _ in 0..CLIENTS {
            clients.push(scope.spawn(|| {
                let take = || next.lock().unwrap().next();
                while let Some(samples) = take() {
                    let batch = profiles(samples);
                    wait_until("a batch to be accepted", || {
                        let Some(address) = *address.lock().unwrap() else {
                            return false;
                        };
                        let limit = Duration::from_secs(10);
                        let sent = Client::new(address).send_within(&batch, limit);
                        let is_refused = |it: &Status| it.message.contains("memory_limiter");
                        if sent.as_ref().is_err_and(|status| !is_refused(status)) {
                            unanswered.fetch_add(1, Ordering::Relaxed);
                        }
                        sent.is_ok()
                    });
                }
            }));
        }
        wait_until("all batches to be accepted", || {
            let mut address = address.lock().unwrap();
            if gateway.revive() {
                *address = None;
            }
            if address.is_none() && is_ready(&gateway.process) {
                *address = Some(endpoint_in(&gateway.process.output(), "grpc"));
            }
            clients.iter().all(|client| client.is_finished())
        });
    });
    destination.set(Mode::Take);
    let arrived = || -> BTreeMap<usize, usize> {
        let mut arrived = BTreeMap::new();
        for profiles in destination.taken() {
            *arrived.entry(profiles.sample_count()).or_default() += 1;
        }
        arrived
    };
    let began = Instant::now();
    wait_until("all to arrive", || {
        gateway.revive();
        arrived().len() == CLIENTS * BATCHES
    });
    println!(
        "{} MiB: restarted {} times, drained in {:.1?}",
        limit >> 20,
        gateway.restarts,
        began.elapsed()
    );
    // A client without an answer sends again, and what was in flight at a kill is delivered again.
    let twice: usize = arrived().values().map(|times| times - 1).sum();
    let unanswered = unanswered.into_inner();
    assert!(
        twice <= unanswered + gateway.restarts * BATCHES,
        "{twice} came twice; {unanswered} got no answer, {} restarts",
        gateway.restarts
    );
    cgroup.kills()
}

#[test]
fn a_gateway_with_hardly_enough_memory_refuses_clients_and_lives() {
    let Some(cgroup) = Cgroup::new("refuses") else {
        return;
    };
    let kills = everything_arrives(&cgroup, None, |config| {
        // Of four fifths, it needs this to start.
        when_ready(config, "VmRSS") / 4 * 5 + (16 << 20)
    });
    assert_eq!(kills, 0);
}

/// One whose own limit is too high.
#[test]
fn a_gateway_that_the_kernel_kills_for_its_memory_loses_nothing() {
    let Some(cgroup) = Cgroup::new("kills") else {
        return;
    };
    let options = "check_interval: 1s, limit_mib: 4000";
    let kills = everything_arrives(&cgroup, Some(options), |config| {
        when_ready(config, "RssAnon") + (8 << 20)
    });
    assert!(kills > 0, "it had enough memory");
}

#[test]
fn a_gateway_with_hardly_any_cpu_delivers_everything_once() {
    let Some(cgroup) = Cgroup::new("cpu") else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let destination = Destination::counting(Mode::Take);
    let config = config(folder.path(), &destination, None);
    let mut process = started(&cgroup, &config);
    process.wait_for_output("to be ready", |said| said.contains("Everything is ready"));
    let address = endpoint_in(&process.output(), "grpc");
    cgroup.limit_cpu(10);
    let batch = profiles(1000);
    thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                let client = Client::new(address);
                for _ in 0..BATCHES {
                    client.send(&batch).unwrap();
                }
            });
        }
    });
    let all = CLIENTS * BATCHES * 1000;
    destination.wait_for_samples(all);
    assert!(cgroup.throttled() > 0, "it had enough CPU");
    let (status, said) = process.stop();
    assert!(status.success(), "{said}");
    assert_eq!(destination.samples(), all, "{said}");
    let balance = Balance::read(&said);
    assert_eq!(balance.of("otlp_grpc", "delivered"), all as u64, "{said}");
}
