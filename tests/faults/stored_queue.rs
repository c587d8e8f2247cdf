//! A queue on disk whose process is killed at each change of a file, and whose disk fails or is slow.
//!
//! A preloaded library injects the faults into the unmodified program.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::thread;
use std::time::Duration;

use profcol_component::testkit::profiles;
use profcol_net::grpc::{Code, Status};
use profcol_test_harness::backend::{
    Client, ClosedPort, Destination, Mode, endpoint_in, wait_until,
};
use profcol_test_harness::balance::{Balance, metric, served_at};
use profcol_test_harness::faults::{Calls, Error, Faults};
use profcol_test_harness::peers::{Process, free_address, profcol};
use profcol_test_harness::procfs;
use profcol_test_harness::support::copy_directory;

/// Three of them fill a file.
const SAMPLES: usize = 400;
const BATCHES: usize = 4;

/// The profcol under test, with a queue on disk in `directory`.
struct Setup<'a> {
    directory: &'a Path,
    destination: SocketAddr,
    /// Of another exporter of the same pipeline.
    second: Option<SocketAddr>,
    fsync: &'a str,
    metrics: SocketAddr,
}

impl<'a> Setup<'a> {
    fn new(directory: &'a Path, destination: SocketAddr, fsync: &'a str) -> Self {
        Self {
            directory,
            destination,
            second: None,
            fsync,
            metrics: free_address(),
        }
    }

    /// With an exporter for each of at most two destinations.
    fn of(directory: &'a Path, destinations: &[SocketAddr], fsync: &'a str) -> Self {
        Self {
            second: destinations.get(1).copied(),
            ..Self::new(directory, destinations[0], fsync)
        }
    }

    fn config(&self) -> String {
        let Setup {
            directory,
            destination,
            second,
            fsync,
            metrics,
        } = self;
        let directory = directory.display();
        let metrics = served_at(*metrics);
        // On a busy machine an answer may take seconds: a batch that times out would come twice.
        let exporter = |id: &str, destination: &SocketAddr| {
            format!(
                "  {id}:
    endpoint: {destination}
    tls: {{insecure: true}}
    timeout: 60s
    sending_queue: {{storage: file_storage}}
    retry_on_failure: {{initial_interval: 50ms, max_interval: 100ms, max_elapsed_time: 0s}}
"
            )
        };
        let mut exporters = exporter("otlp_grpc", destination);
        let mut names = "otlp_grpc".to_owned();
        if let Some(second) = second {
            exporters += &exporter("otlp_grpc/second", second);
            names += ", otlp_grpc/second";
        }
        format!(
            "\
extensions:
  file_storage: {{directory: {directory}, fsync: {fsync}, fsync_interval: 20ms, max_bytes: 1048576}}
receivers:
  otlp: {{protocols: {{grpc: {{endpoint: 127.0.0.1:0}}}}}}
exporters:
{exporters}service:
  shutdown_timeout: 60s
  extensions: [file_storage]
  telemetry: {{metrics: {metrics}, logs: {{sampling: {{enabled: false}}}}}}
  pipelines:
    profiles: {{receivers: [otlp], exporters: [{names}]}}
"
        )
    }

    fn metric(&self, name: &str) -> u64 {
        metric(self.metrics, name, "otlp_grpc").unwrap_or(0)
    }
}

/// A client of a profcol that is ready. None if it ends before.
fn client_of(process: &mut Process) -> Option<Client> {
    let is_ready = |process: &Process| process.output().contains("Everything is ready");
    wait_until("it to be ready or killed", || {
        is_ready(process) || process.has_ended()
    });
    is_ready(process).then(|| Client::new(endpoint_in(&process.output(), "grpc")))
}

/// Starts a profcol without faults.
fn start(config: &str) -> (Process, Client) {
    let mut process = profcol(config);
    let client = client_of(&mut process);
    let output = process.output();
    (process, client.unwrap_or_else(|| panic!("{output}")))
}

fn have_all(destinations: &[Destination], accepted: &[usize]) -> bool {
    destinations.iter().all(|destination| {
        let arrived = destination.deliveries();
        accepted.iter().all(|batch| arrived.contains_key(batch))
    })
}

#[test]
fn a_kill_at_any_change_of_a_file_loses_and_tears_no_batch() {
    kill_at_each_change(1, BATCHES);
}

/// What their queues share is in files of its own.
#[test]
fn a_kill_at_any_change_loses_and_tears_no_batch_of_two_exporters() {
    kill_at_each_change(2, 2);
}

/// Also of what it does with an earlier run's batches, and when it stops. At odd calls the next start is killed too.
#[expect(clippy::print_stdout, reason = "the number of points is of interest")]
fn kill_at_each_change(exporters: usize, batches: usize) {
    // Whatever is below this directory.
    let Some(faults) = Faults::of(&["/queues/"]) else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let backlog = folder.path().join("backlog");
    let closed: Vec<_> = (0..exporters).map(|_| ClosedPort::reserve()).collect();
    let addresses: Vec<_> = closed.iter().map(|it| it.address).collect();
    let earlier: Vec<usize> = (SAMPLES..SAMPLES + batches).collect();
    let (process, client) = start(&Setup::of(&backlog, &addresses, "never").config());
    for &batch in &earlier {
        client.send(&profiles(batch)).unwrap();
    }
    drop(process);

    let later = SAMPLES + batches..SAMPLES + 2 * batches;
    let calls = faults.kill_at_each(|call| {
        let queues = tempfile::tempdir_in(folder.path()).unwrap();
        let directory = queues.path().join("queues");
        copy_directory(&backlog, &directory);
        let destinations: Vec<_> = (0..exporters)
            .map(|_| Destination::new(Mode::Take))
            .collect();
        let addresses: Vec<_> = destinations.iter().map(|it| it.address).collect();
        let config = Setup::of(&directory, &addresses, "always").config();
        let mut process = faults.profcol(&config);
        let mut accepted = earlier.clone();
        if let Some(client) = client_of(&mut process) {
            let taken = later
                .clone()
                .take_while(|batch| client.send(&profiles(*batch)).is_ok());
            accepted.extend(taken);
        }
        let is_killed = process.has_ended() || !process.stop().0.success();
        let mut kills = usize::from(is_killed);
        if is_killed && call % 2 == 1 {
            faults.kill_at(call / 2 + 1);
            let mut process = faults.profcol(&config);
            wait_until("it to be killed or to deliver all", || {
                process.has_ended() || have_all(&destinations, &accepted)
            });
            kills += 1;
        }
        let (process, _client) = start(&config);
        wait_until(&format!("all batches, after a kill at {call}"), || {
            have_all(&destinations, &accepted)
        });
        let (status, output) = process.stop();
        assert!(status.success(), "{call}: {output}");
        assert!(!output.contains("Dropping data"), "{call}: {output}");
        assert_eq!(Balance::read(&output).dropped("otlp_grpc"), 0, "{call}");
        assert_eq!(segments(&directory), 0, "{call}: {output}");
        for (batch, times) in destinations.iter().flat_map(Destination::deliveries) {
            assert!(
                accepted.contains(&batch) || later.contains(&batch),
                "{call}: {batch}"
            );
            assert!(times <= 1 + kills, "{call}: {batch} came {times} times");
        }
        is_killed
    });
    println!("killed at {calls} calls");
    // Each new batch is written, synced, and settled.
    assert!(calls >= 3 * batches * exporters, "only {calls} calls");
}

/// Of all queues, and of what they share.
fn segments(directory: &Path) -> usize {
    let directories = fs::read_dir(directory).unwrap();
    let directories = directories.map(|entry| entry.unwrap().path());
    let files = directories.filter_map(|it| fs::read_dir(it).ok()).flatten();
    let names = files.map(|file| file.unwrap().file_name());
    names
        .filter(|name| name.to_string_lossy().ends_with(".segment"))
        .count()
}

/// What a failing disk does.
struct Case {
    fsync: &'static str,
    calls: Calls,
    error: Error,
    /// The client's answer. None if the batch is accepted.
    refusal: Option<&'static str>,
    failed_fsyncs: bool,
}

const CASES: [Case; 5] = [
    Case {
        fsync: "interval",
        calls: Calls::Write,
        error: Error::Io,
        refusal: Some("failed to write to the storage: Input/output error"),
        failed_fsyncs: false,
    },
    Case {
        fsync: "interval",
        calls: Calls::Write,
        error: Error::NoSpace,
        refusal: Some("no space left on the disk"),
        failed_fsyncs: false,
    },
    Case {
        fsync: "always",
        calls: Calls::Sync,
        error: Error::Io,
        refusal: Some("failed to make the batch durable: Input/output error"),
        failed_fsyncs: true,
    },
    Case {
        fsync: "interval",
        calls: Calls::Sync,
        error: Error::Io,
        refusal: None,
        failed_fsyncs: true,
    },
    // There is room in the file that is being written.
    Case {
        fsync: "always",
        calls: Calls::Name,
        error: Error::Io,
        refusal: None,
        failed_fsyncs: false,
    },
];

/// Three phases: batches that wait, the fault, and after it. Whatever was accepted arrives once.
fn fails(faults: &Faults, case: &Case) {
    let Case {
        fsync,
        calls,
        error,
        ..
    } = case;
    let what = format!("{calls:?} fails with {error:?}, fsync: {fsync}");
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path().join("queues");
    let refused = Mode::Refuse(Status::new(Code::Unavailable, "not now"));
    let destination = Destination::new(refused);
    let setup = Setup::new(&directory, destination.address, fsync);
    let mut process = faults.profcol(&setup.config());
    let client = client_of(&mut process).unwrap();
    client.send(&profiles(1)).unwrap();
    let (mut accepted, mut refused) = (1, 0);

    faults.fail(*calls, *error);
    for samples in 10..13 {
        match (client.send(&profiles(samples)), case.refusal) {
            (Ok(()), None) => accepted += samples,
            (Err(status), Some(refusal)) => {
                assert_eq!(status.code, Code::Unavailable, "{what}: {status}");
                assert!(status.message.contains(refusal), "{what}: {status}");
                refused += samples;
            }
            (answer, _) => panic!("{what}: {answer:?}"),
        }
    }
    let failed_fsyncs = || setup.metric("profcol_storage_failed_fsyncs");
    if case.failed_fsyncs {
        wait_until(&what, || failed_fsyncs() > 0);
        process.wait_for_output("to tell", |output| {
            output.contains("Failed to make the stored queue durable")
        });
    } else {
        assert_eq!(failed_fsyncs(), 0, "{what}");
    }
    let not_enqueued = setup.metric("otelcol_exporter_enqueue_failed_profile_samples");
    assert_eq!(not_enqueued, refused as u64, "{what}");
    // What was accepted is delivered although the disk fails.
    destination.set(Mode::Take);
    destination.wait_for_samples(accepted);

    faults.heal();
    for samples in 100..103 {
        client.send(&profiles(samples)).unwrap();
        accepted += samples;
    }
    destination.wait_for_samples(accepted);
    drop(client);
    let (status, output) = process.stop();
    assert!(status.success(), "{what}: {output}");
    let balance = Balance::read(&output);
    assert_eq!(balance.of("otlp_grpc", "delivered"), accepted as u64);
    assert_eq!(balance.dropped("otlp_grpc"), 0, "{what}: {output}");
    // Nor does the next run find anything.
    start(&setup.config()).0.stop();
    assert_eq!(destination.samples(), accepted, "{what}");
}

#[test]
fn a_failing_disk_refuses_the_client_or_delivers_and_recovers() {
    let Some(faults) = Faults::of(&["/queues/"]) else {
        return;
    };
    for case in &CASES {
        fails(&faults, case);
    }
}

/// Senders wait for a slow disk instead of filling the memory.
#[test]
fn a_slow_disk_loses_nothing_and_bounds_memory() {
    const CLIENTS: usize = 8;
    const EACH: usize = 12;
    /// All batches together need more.
    const MAX_GROWTH: u64 = 64 << 20;
    let Some(faults) = Faults::of(&["/queues/"]) else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path().join("queues");
    let destination = Destination::counting(Mode::Take);
    let config = Setup::new(&directory, destination.address, "always").config();
    let config = config.replace("max_bytes: 1048576", "max_bytes: 1073741824");
    let mut process = faults.profcol(&config);
    drop(client_of(&mut process).unwrap());
    let before = procfs::peak_resident(process.pid()).unwrap();
    faults.delay(Duration::from_millis(20));
    let address = endpoint_in(&process.output(), "grpc");
    // About a MiB.
    let batch = profiles(20_000);
    thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                let client = Client::new(address);
                for _ in 0..EACH {
                    client.send(&batch).unwrap();
                }
            });
        }
    });
    let all = CLIENTS * EACH * 20_000;
    destination.wait_for_samples(all);
    let growth = procfs::peak_resident(process.pid()).unwrap() - before;
    assert!(growth < MAX_GROWTH, "{} MiB", growth >> 20);
    let (status, output) = process.stop();
    assert!(status.success(), "{output}");
    assert_eq!(destination.samples(), all, "each once");
}
