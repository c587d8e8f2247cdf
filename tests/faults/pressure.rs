//! A gateway whose cgroup has hardly enough memory or CPU.

use std::fs;
use std::net::SocketAddr;
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
const BATCHES: usize = 15;
/// The sizes of the batches, which identify them. Each is some hundred KB.
const SAMPLES: usize = 10_000;

fn config(directory: &Path, destination: &Destination) -> String {
    let directory = directory.display();
    let address = destination.address;
    format!(
        "\
extensions:
  file_storage: {{directory: {directory}}}
receivers:
  otlp: {{protocols: {{grpc: {{endpoint: 127.0.0.1:0}}}}}}
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
    profiles: {{receivers: [otlp], exporters: [otlp_grpc]}}
"
    )
}

/// When the cgroup gets its limit.
#[derive(Clone, Copy, Debug)]
enum Limit {
    /// Before profcol starts, which makes it its own.
    Known(u64),
    /// Once profcol is ready: it does not look again.
    Unknown(u64),
}

/// A profcol in a cgroup that is started again when the kernel has killed it.
struct Restarted<'a> {
    cgroup: &'a Cgroup,
    config: String,
    limit: Limit,
    is_limited: bool,
    process: Process,
    restarts: usize,
}

impl<'a> Restarted<'a> {
    fn start(cgroup: &'a Cgroup, config: String, limit: Limit) -> Self {
        if let Limit::Known(bytes) = limit {
            cgroup.limit_memory(bytes).unwrap();
        }
        Self {
            process: started(cgroup, &config),
            cgroup,
            config,
            limit,
            is_limited: false,
            restarts: 0,
        }
    }

    /// Starts it again if it has ended. Returns its address once it is ready.
    fn address(&mut self) -> Option<SocketAddr> {
        /// Otherwise the limit is too low for any progress.
        const MAX_RESTARTS: usize = 100;
        if self.process.has_ended() {
            self.restarts += 1;
            assert!(self.restarts <= MAX_RESTARTS, "{}", self.process.output());
            if let Limit::Unknown(_) = self.limit {
                self.cgroup.unlimit_memory();
            }
            self.process = started(self.cgroup, &self.config);
            self.is_limited = false;
        }
        let output = self.process.output();
        let is_ready = output.contains("Everything is ready");
        if let Limit::Unknown(bytes) = self.limit
            && is_ready
            && !self.is_limited
        {
            // If it has more already, the next look may succeed.
            self.is_limited = self.cgroup.limit_memory(bytes).is_ok();
        }
        is_ready.then(|| endpoint_in(&output, "grpc"))
    }
}

fn started(cgroup: &Cgroup, config: &str) -> Process {
    Process::start_as(&mut cgroup.command(&program()), &[], config)
}

/// A number of bytes in the status of a profcol that is ready.
fn when_ready(config: &str, key: &str) -> u64 {
    let mut process = profcol(config);
    process.wait_for_output("to be ready", |output| {
        output.contains("Everything is ready")
    });
    let status = fs::read_to_string(format!("/proc/{}/status", process.pid())).unwrap();
    let line = status.lines().find_map(|it| it.strip_prefix(key));
    let kib = line.and_then(|line| line.split_whitespace().nth(1));
    kib.and_then(|kib| kib.parse::<u64>().ok()).unwrap() << 10
}

/// Clients that send each batch until it is accepted, while the gateway refuses them, or is killed and restarted. Returns how
/// often the kernel killed it.
#[expect(clippy::print_stdout, reason = "the figures are of interest")]
fn everything_arrives(cgroup: &Cgroup, limit: impl Fn(&str) -> Limit) -> u64 {
    let folder = tempfile::tempdir().unwrap();
    let destination = Destination::new(Mode::Hang);
    let config = config(folder.path(), &destination);
    let limit = limit(&config);
    let mut gateway = Restarted::start(cgroup, config, limit);
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
            *address.lock().unwrap() = gateway.address();
            clients.iter().all(|client| client.is_finished())
        });
    });
    destination.set(Mode::Take);
    let began = Instant::now();
    wait_until("all to arrive", || {
        gateway.address();
        destination.deliveries().len() == CLIENTS * BATCHES
    });
    println!(
        "{limit:?} bytes: restarted {} times, drained in {:.1?}",
        gateway.restarts,
        began.elapsed()
    );
    // A client without an answer sends again, and what was in flight at a kill is delivered again.
    let twice: usize = destination
        .deliveries()
        .values()
        .map(|times| times - 1)
        .sum();
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
    let kills = everything_arrives(&cgroup, |config| {
        // Of four fifths it needs this to start, and the rest for what it keeps of a queue in memory. The pages of the
        // program do not count: the kernel reclaims them.
        Limit::Known(when_ready(config, "RssAnon") / 4 * 5 + (64 << 20))
    });
    assert_eq!(kills, 0);
}

#[test]
fn a_gateway_that_the_kernel_kills_for_its_memory_loses_nothing() {
    let Some(cgroup) = Cgroup::new("kills") else {
        return;
    };
    let kills = everything_arrives(&cgroup, |config| {
        Limit::Unknown(when_ready(config, "RssAnon") + (8 << 20))
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
    let config = config(folder.path(), &destination);
    let mut process = started(&cgroup, &config);
    process.wait_for_output("to be ready", |output| {
        output.contains("Everything is ready")
    });
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
    let (status, output) = process.stop();
    assert!(status.success(), "{output}");
    assert_eq!(destination.samples(), all, "{output}");
    let balance = Balance::read(&output);
    assert_eq!(balance.of("otlp_grpc", "delivered"), all as u64, "{output}");
}
