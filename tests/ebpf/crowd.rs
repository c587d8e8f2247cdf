//! Hosts with far more threads and processes than a profiler would like: its memory stays within bounds, and it counts each
//! sample once.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{ChildStdout, Command, Stdio};

use profcol_profile::Profiles;
use profcol_test_harness::backend::{Destination, Mode, wait_until};
use profcol_test_harness::balance::Balance;
use profcol_test_harness::peers::{Process, profcol};
use profcol_test_harness::procfs;
use profcol_test_harness::toolchain::Workshop;

use crate::host::{Running, can_profile};

/// How much the agent may grow.
const MAX_GROWTH_MIB: u64 = 48;

/// A profiler of the whole host that sends to a destination.
struct Agent {
    process: Process,
    destination: Destination,
    /// Its memory when nothing happens.
    before: u64,
}

impl Agent {
    fn start() -> Self {
        let destination = Destination::new(Mode::Take);
        let process = profcol(&format!(
            "\
receivers:
  ebpf_cpu: {{interval: 250ms, frequency: 199}}
exporters:
  otlp_grpc: {{endpoint: \"{}\", tls: {{insecure: true}}}}
service:
  shutdown_timeout: 60s
  telemetry: {{metrics: {{level: none}}, logs: {{sampling: {{enabled: false}}}}}}
  pipelines: {{profiles: {{receivers: [ebpf_cpu], exporters: [otlp_grpc]}}}}
",
            destination.address
        ));
        let mut agent = Self {
            process,
            destination,
            before: 0,
        };
        agent.wait_for_more();
        agent.before = agent.peak();
        agent
    }

    fn wait_for_more(&self) {
        let requests = self.destination.requests();
        self.destination.wait_for_requests(requests + 4);
    }

    fn peak(&self) -> u64 {
        procfs::peak_resident(self.process.pid()).unwrap()
    }

    /// Stops it. Returns by how many MiB it grew.
    fn stop(self) -> u64 {
        self.wait_for_more();
        let growth = self.peak() - self.before;
        let (status, output) = self.process.stop();
        assert!(status.success(), "{output}");
        let balance = Balance::read(&output);
        balance.check(&["otlp_grpc"]);
        let delivered = balance.of("otlp_grpc", "delivered");
        assert_eq!(delivered, arrived(&self.destination), "{output}");
        growth >> 20
    }
}

fn arrived(destination: &Destination) -> u64 {
    let taken = destination.taken();
    taken.iter().map(Profiles::observation_count).sum()
}

fn number_in(path: &str) -> u64 {
    let text = fs::read_to_string(path).unwrap();
    text.trim().parse().unwrap()
}

/// A hundred thousand, if the machine has room for them: half of the PIDs and of the free memory stay for others.
fn threads() -> u64 {
    /// Kernel memory of a thread, and its stack here.
    const EACH: u64 = 40 << 10;
    let pids = number_in("/proc/sys/kernel/pid_max").min(number_in("/proc/sys/kernel/threads-max"));
    let memory = fs::read_to_string("/proc/meminfo").unwrap();
    let available = memory.lines().find_map(|it| {
        let kib = it.strip_prefix("MemAvailable:")?.split_whitespace().next();
        kib?.parse::<u64>().ok()
    });
    (pids / 2)
        .min(available.unwrap() * 1024 / 2 / EACH)
        .min(100_000)
}

fn start(program: &Path, argument: &str) -> (Running, ChildStdout) {
    let mut started = Command::new(program)
        .arg(argument)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let output = started.stdout.take().unwrap();
    (Running::of(started), output)
}

/// Waits for a program's only line of output.
fn line_of(output: ChildStdout) -> String {
    let mut line = String::new();
    BufReader::new(output).read_line(&mut line).unwrap();
    line.trim().to_owned()
}

#[test]
#[expect(clippy::print_stdout, reason = "the figures are of interest")]
fn a_hundred_thousand_threads_cost_little_memory_and_no_count() {
    if !can_profile() {
        return;
    }
    let workshop = Workshop::open();
    let Some(crowd) = workshop.build("crowd", "cc -O1 crowd.c") else {
        return;
    };
    let before = Agent::start();
    let wanted = threads();
    let (running, output) = start(&crowd, &wanted.to_string());
    let line = line_of(output);
    let count = procfs::threads(running.pid()).unwrap();
    assert!(count > wanted / 2, "{line} of {wanted}");
    // One that finds them when it starts.
    let between = Agent::start();
    before.wait_for_more();
    drop(running);
    let growth = [before, between].map(Agent::stop);
    println!("{count} threads: agents grew by {growth:?} MiB");
    assert!(growth.iter().all(|it| *it <= MAX_GROWTH_MIB), "{growth:?}");
}

#[test]
#[expect(clippy::print_stdout, reason = "the figures are of interest")]
fn a_fork_storm_costs_little_memory_and_no_count() {
    if !can_profile() {
        return;
    }
    let workshop = Workshop::open();
    let Some(storm) = workshop.build("fork_storm", "cc -O1 fork_storm.c") else {
        return;
    };
    let agent = Agent::start();
    let before = arrived(&agent.destination);
    // One cannot keep a CPU busy: it waits for its children.
    let storms = [(); 4].map(|()| start(&storm, "3"));
    let lines = storms.map(|(_running, output)| line_of(output));
    wait_until("samples of the storm", || {
        arrived(&agent.destination) > before + 100
    });
    let growth = agent.stop();
    println!("{lines:?}: the agent grew by {growth} MiB");
    assert!(growth <= MAX_GROWTH_MIB, "{growth} MiB");
}
