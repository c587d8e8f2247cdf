//! Random sequences of faults: kills, stops, reloads, a full disk, frozen processes, destinations that refuse, hang and return.
//! Afterwards each accepted sample has arrived at each destination, or its exporter has counted why not.
//!
//! A sequence prints its seed: `PROFCOL_FAULT_SEED=n` repeats it, `PROFCOL_FAULT_SCHEDULES=n` runs more.

use std::collections::BTreeSet;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use profcol_component::testkit::profiles;
use profcol_net::grpc::{Code, Status};
use profcol_test_harness::TIMEOUT;
use profcol_test_harness::backend::{Client, Destination, Mode, wait_until};
use profcol_test_harness::balance::{Balance, metric, served_at};
use profcol_test_harness::peers::free_address;
use profcol_test_harness::procfs;
use profcol_test_harness::rig::{RELOADED, Rig};
use profcol_test_harness::support::{SmallDisk, path};

const STEPS: usize = 40;
/// Batches in flight at the end of a process may arrive twice: as many as the queues have consumers.
const MAX_TWICE_PER_END: usize = 10;
/// Of `memory_limiter`.
const LIMIT_MIB: u64 = 128;
/// How far the process may exceed the limit: what it takes between two looks of `memory_limiter`.
const TOLERATED_MIB: u64 = 32;
const EXPORTERS: [&str; 2] = ["otlp_grpc/first", "otlp_grpc/second"];

/// How the queues are configured, and what happens to them.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    /// Two exporters, kills, and nothing that drops.
    Durable,
    /// One exporter with a short queue, whose destination also refuses for good: what is dropped depends on `when_full`.
    Lossy { when_full: &'static str },
}

impl Kind {
    /// Each is the kind of some of the first seeds.
    fn of(seed: u64) -> Self {
        let when_full = match seed % 4 {
            1 => return Self::Durable,
            2 => "drop_oldest",
            3 => "block",
            _ => "drop_newest",
        };
        Self::Lossy { when_full }
    }

    fn exporters(self) -> &'static [&'static str] {
        match self {
            Self::Durable => &EXPORTERS,
            Self::Lossy { .. } => &EXPORTERS[..1],
        }
    }
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (bits ^ (bits >> 31)) % limit
    }
}

struct Trial {
    /// First, so that it ends before its disk is unmounted.
    running: Option<(Rig, Client)>,
    /// A disk of its own, if one can be mounted.
    disk: Option<SmallDisk>,
    folder: tempfile::TempDir,
    kind: Kind,
    destinations: Vec<Destination>,
    metrics: SocketAddr,
    random: Random,
    reloads: usize,
    kills: usize,
    /// How often exports in flight may have been aborted.
    ends: usize,
    /// A batch is known by its number of samples.
    sent: usize,
    accepted: BTreeSet<usize>,
    outcomes: Vec<Outcomes>,
    peak: u64,
    /// How long the last start took.
    start: Duration,
    steps: Vec<String>,
}

/// What became of an exporter's samples, in all processes together.
#[derive(Clone, Copy, Debug, Default)]
struct Outcomes {
    delivered: u64,
    dropped: u64,
    /// What the last process left.
    stored: u64,
}

impl Trial {
    fn new(seed: u64) -> Self {
        let kind = Kind::of(seed);
        let exporters = kind.exporters();
        let mut trial = Self {
            random: Random(seed),
            kind,
            destinations: exporters
                .iter()
                .map(|_| Destination::new(Mode::Take))
                .collect(),
            outcomes: vec![Outcomes::default(); exporters.len()],
            disk: SmallDisk::mount("size=4m"),
            folder: tempfile::tempdir().unwrap(),
            metrics: free_address(),
            running: None,
            reloads: 0,
            kills: 0,
            ends: 0,
            sent: 0,
            accepted: BTreeSet::new(),
            peak: 0,
            start: Duration::ZERO,
            steps: Vec::new(),
        };
        trial.start();
        trial
    }

    fn directory(&self) -> &Path {
        let disk = self.disk.as_ref().map(SmallDisk::path);
        disk.unwrap_or(self.folder.path())
    }

    fn filler(&self) -> PathBuf {
        self.directory().join("filler")
    }

    fn config(&self, consumers: usize) -> String {
        let directory = path(self.directory());
        let metrics = served_at(self.metrics);
        let (queue_size, when_full) = match self.kind {
            Kind::Durable => (1000, "block"),
            Kind::Lossy { when_full } => (10, when_full),
        };
        let names = self.kind.exporters();
        let exporters: String = names.iter().zip(&self.destinations).map(|(name, destination)| {
            format!(
                "  {name}: {{endpoint: \"{}\", tls: {{insecure: true}}, timeout: 2s, \
                 sending_queue: {{storage: file_storage, num_consumers: {consumers}, queue_size: {queue_size}}}, \
                 retry_on_failure: {{initial_interval: 50ms, max_interval: 100ms, max_elapsed_time: 0s}}}}\n",
                destination.address
            )
        }).collect();
        let names = names.join(", ");
        format!(
            "receivers:
  otlp: {{protocols: {{grpc: {{endpoint: 127.0.0.1:0}}}}}}
processors:
  memory_limiter: {{check_interval: 100ms, limit_mib: {LIMIT_MIB}}}
exporters:
{exporters}extensions:
  file_storage: {{directory: \"{directory}/queues\", create_directory: true, when_full: {when_full}}}
service:
  extensions: [file_storage]
  shutdown_timeout: 1s
  reload: {{drain_timeout: 1s}}
  telemetry: {{metrics: {metrics}, logs: {{sampling: {{enabled: false}}}}}}
  pipelines:
    profiles: {{receivers: [otlp], processors: [memory_limiter], exporters: [{names}]}}
"
        )
    }

    fn start(&mut self) {
        let began = Instant::now();
        let rig = Rig::start(&self.config(2));
        self.start = began.elapsed();
        let client = rig.client();
        self.reloads = 0;
        self.running = Some((rig, client));
    }

    fn step(&mut self) {
        let name = match self.random.below(10) {
            0 if self.kind == Kind::Durable => self.kill(),
            1 => self.stop(),
            2 => self.reload(),
            3 => self.freeze(),
            4 => self.fill_disk(),
            5 => self.free_disk(),
            6 | 7 => self.change_destination(),
            _ => "send",
        };
        self.steps.push(name.to_owned());
        self.send();
    }

    fn send(&mut self) {
        let Some((_, client)) = &self.running else {
            return;
        };
        for _ in 0..=self.random.below(8) {
            self.sent += 1;
            // Who gives up does not know whether the batch was accepted.
            let limit = match self.kind {
                Kind::Durable => Duration::from_secs(1),
                Kind::Lossy { .. } => TIMEOUT,
            };
            if client.send_within(&profiles(self.sent), limit).is_ok() {
                self.accepted.insert(self.sent);
            }
        }
    }

    fn kill(&mut self) -> &'static str {
        self.look();
        for exporter in self.kind.exporters() {
            let dropped = metric(self.metrics, "profcol_exporter_dropped_samples", exporter);
            assert_eq!(dropped, Some(0), "{exporter} after {:?}", self.steps);
        }
        // With SIGKILL.
        self.running = None;
        self.kills += 1;
        self.ends += 1;
        self.start();
        "kill"
    }

    fn stop(&mut self) -> &'static str {
        self.end();
        self.start();
        "stop"
    }

    /// Ends the process regularly, and checks its balance.
    fn end(&mut self) {
        self.look();
        let Some((rig, client)) = self.running.take() else {
            return;
        };
        drop(client);
        rig.signal("-TERM");
        let output = rig.wait_for_end();
        self.ends += 1;
        let balance = Balance::read(&output);
        let is_exact = matches!(self.kind, Kind::Lossy { .. });
        for (exporter, outcomes) in self.kind.exporters().iter().zip(&mut self.outcomes) {
            let of = |key| balance.of(exporter, key);
            let what = format!("{balance:?} after {:?}: {output}", self.steps);
            if is_exact {
                assert_eq!(of("recovered"), outcomes.stored, "{what}");
            } else {
                assert_eq!(balance.dropped(exporter), 0, "{what}");
            }
            outcomes.delivered += of("delivered");
            outcomes.dropped += balance.dropped(exporter);
            outcomes.stored = of("stored");
        }
    }

    /// Looks at the memory of the process before it ends.
    fn look(&mut self) {
        if let Some((rig, _)) = &self.running {
            let peak = procfs::peak_resident(rig.pid()).unwrap();
            self.peak = self.peak.max(peak);
        }
    }

    fn reload(&mut self) -> &'static str {
        self.reloads += 1;
        self.ends += 1;
        let consumers = 1 + self.reloads % 3;
        let config = self.config(consumers);
        if let Some((rig, _)) = &self.running {
            rig.write(&self.reloads.to_string(), &config);
            rig.signal("-HUP");
            rig.wait_for(RELOADED, self.reloads);
        }
        "reload"
    }

    fn freeze(&mut self) -> &'static str {
        if let Some((rig, _)) = &self.running {
            rig.signal("-STOP");
            thread::sleep(Duration::from_millis(self.random.below(200)));
            rig.signal("-CONT");
        }
        "freeze"
    }

    fn fill_disk(&self) -> &'static str {
        if let Some(disk) = &self.disk {
            disk.fill(&self.filler());
        }
        "fill the disk"
    }

    fn free_disk(&self) -> &'static str {
        // It may not be there.
        let _ = fs::remove_file(self.filler());
        "free the disk"
    }

    fn change_destination(&mut self) -> &'static str {
        let count = self.destinations.len();
        let which = self.random.below(count as u64) as usize;
        let kinds = match self.kind {
            Kind::Durable => 4,
            Kind::Lossy { .. } => 5,
        };
        let (mode, name) = match self.random.below(kinds) {
            0 => (Mode::Take, "a destination accepts"),
            1 => (Mode::Hang, "a destination hangs"),
            2 => (
                Mode::Slow(Duration::from_millis(100)),
                "a destination is slow",
            ),
            3 => {
                let refused = Status::new(Code::Unavailable, "down for maintenance");
                (Mode::Refuse(refused), "a destination refuses")
            }
            _ => {
                let refused = Status::new(Code::InvalidArgument, "never");
                (Mode::Refuse(refused), "a destination refuses for good")
            }
        };
        self.destinations[which].set(mode);
        name
    }

    /// Everything works again, until nothing waits.
    #[expect(clippy::print_stdout, reason = "the figures are of interest")]
    fn finish(mut self) {
        self.free_disk();
        for destination in &self.destinations {
            destination.set(Mode::Take);
        }
        let began = Instant::now();
        match self.kind {
            Kind::Durable => self.kill(),
            Kind::Lossy { .. } => self.stop(),
        };
        let steps = self.steps.join(", ");
        wait_until(&format!("the queues to be empty after {steps}"), || {
            metric(self.metrics, "profcol_storage_batches", "") == Some(0)
        });
        let (ready, drained) = (self.start, began.elapsed());
        self.end();
        let peak = self.peak >> 20;
        println!(
            "{:?}: ready after {ready:.1?}, drained after {drained:.1?}, peak {peak} MiB; {:?}",
            self.kind, self.outcomes
        );
        assert!(
            peak <= LIMIT_MIB + TOLERATED_MIB,
            "{peak} MiB after {steps}"
        );
        assert!(!self.accepted.is_empty());
        for (destination, outcomes) in self.destinations.iter().zip(&self.outcomes) {
            self.check(
                destination,
                outcomes,
                &format!("{outcomes:?} after {steps}"),
            );
        }
    }

    fn check(&self, destination: &Destination, outcomes: &Outcomes, what: &str) {
        let arrived = destination.deliveries();
        let invented: Vec<_> = arrived.keys().filter(|batch| **batch > self.sent).collect();
        assert!(invented.is_empty(), "{invented:?}: {what}");
        let twice: usize = arrived.values().map(|times| times - 1).sum();
        assert!(
            twice <= self.ends * MAX_TWICE_PER_END,
            "{twice} arrived twice: {what}"
        );
        let missing = self.accepted.iter().filter(|it| !arrived.contains_key(it));
        let missing: u64 = missing.map(|samples| *samples as u64).sum();
        if self.kind == Kind::Durable {
            assert_eq!(missing, 0, "{what}");
            return;
        }
        let accepted: u64 = self.accepted.iter().map(|samples| *samples as u64).sum();
        assert_eq!(outcomes.stored, 0, "{what}");
        assert_eq!(accepted, outcomes.delivered + outcomes.dropped, "{what}");
        // Each end may have cut off exports whose answers were on their way: they count as undelivered, and are tried again.
        let taken = destination.samples() as u64;
        assert!(
            missing <= outcomes.dropped && outcomes.delivered <= taken,
            "{what}"
        );
        if twice == 0 && taken == outcomes.delivered {
            assert_eq!(missing, outcomes.dropped, "{what}");
        }
    }
}

#[test]
#[expect(clippy::print_stdout, reason = "the seed repeats a failure")]
fn accepted_samples_are_delivered_or_counted_after_random_faults() {
    let number = |name: &str| {
        std::env::var(name)
            .ok()
            .map(|text| text.parse::<u64>().unwrap())
    };
    let (first, more) = (
        number("PROFCOL_FAULT_SEED"),
        number("PROFCOL_FAULT_SCHEDULES"),
    );
    let count = more.unwrap_or(if first.is_some() { 1 } else { 4 });
    let first = first.unwrap_or(1);
    for seed in first..first.saturating_add(count) {
        println!("PROFCOL_FAULT_SEED={seed}");
        let mut trial = Trial::new(seed);
        for _ in 0..STEPS {
            trial.step();
        }
        trial.finish();
    }
}
