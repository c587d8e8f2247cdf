//! The process that reads executables for the service: it fails alone, may do nothing else, and ends with the service.

#![allow(clippy::unwrap_used, reason = "a panic fails the test")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

use profcol_profile::{
    AttributeRef, Interner, KeyValue, Location, LocationIdx, LocationRef, Mapping, MappingRef,
    Model, Profile, Profiles, Resource, SampleRef, Samples, StringIdx,
};
use profcol_test_harness::backend::{Client, Destination, Mode, wait_until};
use profcol_test_harness::peers::{free_address, get};
use profcol_test_harness::procfs::{resident, running_time};
use profcol_test_harness::rig::{REFUSED, Rig};
use rustix::process::{Pid, Resource as Limited, Rlimit, Signal, kill_process, prlimit};
use tempfile::TempDir;

const SECOND_TRY: &str = "retrying in another one";

/// A program with functions `first` and `second`.
struct Built {
    _directory: TempDir,
    path: PathBuf,
    build_id: String,
}

impl Built {
    fn new() -> Self {
        Self::with_symbols(0)
    }

    /// With this many other functions.
    fn with_symbols(count: usize) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let (source, path) = (
            directory.path().join("code.c"),
            directory.path().join("code.so"),
        );
        let code =
            "int first(int a) {\n  return a * 7;\n}\nint second(int a) {\n  return a * 9;\n}\n";
        let more = |number| {
            format!(
                "asm(\".type more{number},@function\\nmore{number}: nop\\n.size more{number},1\");\n"
            )
        };
        let more: String = (0..count).map(more).collect();
        fs::write(&source, format!("{code}{more}")).unwrap();
        // A different build ID for each.
        let id: u128 = u128::from(std::process::id()) << 64
            | u128::from(path.to_string_lossy().bytes().fold(7_u64, |sum, byte| {
                sum.wrapping_mul(31).wrapping_add(byte.into())
            }));
        let build_id = format!("{id:032x}");
        let built = Command::new("cc")
            .args(["-g", "-shared", "-fPIC", "-o"])
            .args([&path, &source])
            .arg(format!("-Wl,--build-id=0x{build_id}"))
            .status();
        assert!(built.unwrap().success());
        Self {
            _directory: directory,
            path,
            build_id,
        }
    }

    fn address(&self, function: &str) -> u64 {
        let list = Command::new("nm").arg("-D").arg(&self.path).output();
        let list = String::from_utf8(list.unwrap().stdout).unwrap();
        let ending = format!(" T {function}");
        let address = list.lines().find_map(|it| it.strip_suffix(&*ending));
        u64::from_str_radix(address.unwrap(), 16).unwrap()
    }

    /// A profile with one sample in this function.
    fn profile(&self, function: &str) -> Profiles {
        let mut rows = Interner::new();
        let key = rows.string("process.executable.build_id.gnu");
        let build_id = rows.attribute(AttributeRef {
            key,
            value: &self.build_id.as_str().into(),
            unit: StringIdx::UNSET,
        });
        let filename = rows.string(self.path.to_str().unwrap());
        let mapping = rows.mapping(MappingRef {
            mapping: Mapping {
                filename,
                ..Mapping::default()
            },
            attributes: &[build_id],
        });
        let location = rows.location(LocationRef {
            location: Location {
                mapping,
                address: self.address(function) + 1,
            },
            lines: &[],
            attributes: &[],
        });
        let mut samples = Samples::default();
        samples.push(SampleRef {
            stack: rows.stack(&[location]),
            values: &[1],
            ..SampleRef::default()
        });
        let pid = i64::from(std::process::id());
        let resource = Resource {
            attributes: vec![KeyValue::new("process.pid", pid)],
            ..Resource::default()
        };
        let profile = Profile {
            samples,
            ..Profile::default()
        };
        Profiles::from_model(Model::of_profile(rows.finish(), Some(resource), profile))
    }
}

/// A running profcol that symbolizes what it receives.
struct Symbolizer {
    rig: Rig,
    destination: Destination,
    metrics: std::net::SocketAddr,
    client: Client,
    sent: usize,
}

impl Symbolizer {
    fn start(service: &str) -> Self {
        let destination = Destination::new(Mode::Take);
        let metrics = free_address();
        let rig = Rig::start(&config(&destination, metrics, service));
        let client = rig.client();
        Self {
            rig,
            destination,
            metrics,
            client,
            sent: 0,
        }
    }

    /// The function, its file and its line, by the symbols that profcol added.
    fn symbolize(&mut self, profile: &Profiles) -> Option<(String, u64)> {
        self.client.send(profile).unwrap();
        self.received()
    }

    fn received(&mut self) -> Option<(String, u64)> {
        self.sent += 1;
        self.destination.wait_for_samples(self.sent);
        let taken = self.destination.taken();
        let dictionary = &taken.last().unwrap().model().dictionary;
        let location = dictionary.locations.get(LocationIdx::new(1));
        let line = location.lines.last()?;
        let function = dictionary.functions.get(line.function)?;
        let name = dictionary.strings.get(function.name).to_owned();
        Some((name, line.line as u64))
    }

    fn has_metric(&self, name: &str, reason: &str, value: usize) -> bool {
        let metrics = get(self.metrics, "/metrics");
        metrics.lines().any(|line| {
            let is_it = line.starts_with(name) && line.contains(&format!("reason=\"{reason}\""));
            is_it && line.ends_with(&format!(" {value}"))
        })
    }

    fn supervisor(&self) -> u32 {
        let found = children(self.rig.pid());
        assert_eq!(found.len(), 1, "children of profcol");
        found[0]
    }

    fn reader(&self) -> u32 {
        let mut found = Vec::new();
        wait_until("a reader", || {
            found = children(self.supervisor());
            found.len() == 1
        });
        found[0]
    }
}

fn config(destination: &Destination, metrics: std::net::SocketAddr, service: &str) -> String {
    format!(
        "\
receivers: {{otlp: {{protocols: {{grpc: {{endpoint: 127.0.0.1:0}}}}}}}}
processors: {{symbolize: {{timeout: 60s, max_memory: 2147483648, max_cpu: 1}}}}
exporters: {{otlp_grpc: {{endpoint: \"{}\", tls: {{insecure: true}}}}}}
service:
  telemetry: {{metrics: {{readers: [{{pull: {{exporter: {{prometheus: {{host: 127.0.0.1, port: {}}}}}}}}}]}}}}
  {service}
  pipelines: {{profiles: {{receivers: [otlp], processors: [symbolize], exporters: [otlp_grpc]}}}}
",
        destination.address,
        metrics.port(),
    )
}

fn children(of: u32) -> Vec<u32> {
    let processes = fs::read_dir("/proc").unwrap();
    let pids = processes.filter_map(|it| it.ok()?.file_name().to_str()?.parse().ok());
    pids.filter(|pid| parent(*pid) == Some(of)).collect()
}

fn parent(pid: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    field(&status, "PPid")?.parse().ok()
}

fn field<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    let line = status.lines().find_map(|it| it.strip_prefix(name));
    Some(line?.strip_prefix(':')?.trim())
}

fn is_alive(pid: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status"));
    // A zombie runs no more; profcol leaves it to init.
    status.is_ok_and(|it| field(&it, "State").is_some_and(|state| !state.starts_with('Z')))
}

fn has_open(pid: u32, path: &Path) -> bool {
    let open = fs::read_dir(format!("/proc/{pid}/fd"));
    let mut open = open.into_iter().flatten().flatten();
    open.any(|it| fs::read_link(it.path()).is_ok_and(|it| it == path))
}

fn send(pid: u32, signal: Signal) {
    kill_process(Pid::from_raw(pid as i32).unwrap(), signal).unwrap();
}

fn first() -> Option<(String, u64)> {
    Some(("first".to_owned(), 1))
}

fn second() -> Option<(String, u64)> {
    Some(("second".to_owned(), 4))
}

#[test]
fn a_killed_reader_costs_no_names() {
    let (one, other) = (Built::new(), Built::new());
    let mut symbolizer = Symbolizer::start("");
    assert_eq!(symbolizer.symbolize(&one.profile("first")), first());
    let reader = symbolizer.reader();
    // After its answer it frees memory.
    wait_until("an idle reader", || {
        let before = running_time(reader).unwrap();
        sleep(Duration::from_millis(500));
        running_time(reader).unwrap() == before
    });

    // In the middle of its work.
    send(reader, Signal::STOP);
    std::thread::scope(|scope| {
        let client = symbolizer.rig.client();
        let profile = other.profile("first");
        let waiting = scope.spawn(move || client.send(&profile));
        let agent = symbolizer.rig.pid();
        wait_until("the executable to be opened", || {
            has_open(agent, &other.path)
        });
        // Then it is sent to the reader at once.
        sleep(Duration::from_millis(500));
        send(reader, Signal::KILL);
        waiting.join().unwrap().unwrap();
    });
    assert_eq!(symbolizer.received(), first());
    let restarts = "profcol_symbolize_reader_restarts";
    assert!(symbolizer.has_metric(restarts, "killed", 1));
    symbolizer.rig.wait_for(SECOND_TRY, 1);

    // While it is idle; then nothing is to be tried again.
    send(symbolizer.reader(), Signal::KILL);
    for built in [&one, &other] {
        assert_eq!(symbolizer.symbolize(&built.profile("second")), second());
    }
    assert!(symbolizer.has_metric(restarts, "killed", 2));
    let output = symbolizer.rig.stop();
    assert_eq!(output.matches(SECOND_TRY).count(), 1, "{output}");
}

#[test]
fn a_file_that_takes_too_much_memory_is_refused_and_others_are_not() {
    const RESERVE: u64 = 12 << 20;
    let (good, bomb) = (Built::new(), Built::with_symbols(1_000_000));
    let mut symbolizer = Symbolizer::start("");
    assert_eq!(symbolizer.symbolize(&good.profile("first")), first());
    // As if the configuration allowed much less: readers inherit the limit.
    let reader = symbolizer.reader();
    let status = fs::read_to_string(format!("/proc/{reader}/status")).unwrap();
    let used = field(&status, "VmSize").unwrap().trim_end_matches(" kB");
    let less = Some((used.parse::<u64>().unwrap() << 10) + RESERVE);
    let less = Rlimit {
        current: less,
        maximum: less,
    };
    let supervisor = Pid::from_raw(symbolizer.supervisor() as i32);
    prlimit(supervisor, Limited::As, less).unwrap();
    send(reader, Signal::KILL);

    assert_eq!(symbolizer.symbolize(&bomb.profile("first")), None);
    let restarts = "profcol_symbolize_reader_restarts";
    assert!(symbolizer.has_metric(restarts, "aborted", 2));
    let unresolved = "profcol_symbolize_unresolved_locations";
    assert!(symbolizer.has_metric(unresolved, "reader_failed", 1));
    // It is not tried again.
    assert_eq!(symbolizer.symbolize(&bomb.profile("second")), None);
    assert!(symbolizer.has_metric(restarts, "aborted", 2));
    assert_eq!(symbolizer.symbolize(&good.profile("second")), second());
    let path = bomb.path.to_str().unwrap();
    let output = symbolizer.rig.stop();
    assert!(output.contains("failed twice on an executable"), "{output}");
    assert!(output.contains(path), "{output}");
}

#[test]
fn readers_are_restricted() {
    let built = Built::new();
    let mut symbolizer = Symbolizer::start("");
    assert_eq!(symbolizer.symbolize(&built.profile("first")), first());
    let (supervisor, reader) = (symbolizer.supervisor(), symbolizer.reader());
    for pid in [supervisor, reader] {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        for set in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
            let held = field(&status, set).unwrap();
            assert_eq!(held, "0000000000000000", "{set} of {status}");
        }
        assert_eq!(field(&status, "NoNewPrivs"), Some("1"));
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap();
        assert!(environment.is_empty(), "{environment:?}");
    }
    let status = fs::read_to_string(format!("/proc/{reader}/status")).unwrap();
    assert_eq!(field(&status, "Seccomp"), Some("2"));
    assert_eq!(field(&status, "Threads"), Some("1"));
    let limits = fs::read_to_string(format!("/proc/{reader}/limits")).unwrap();
    for limit in ["Max address space", "Max core file size", "Max open files"] {
        let line = limits.lines().find(|it| it.starts_with(limit)).unwrap();
        assert!(!line.contains("unlimited"), "{line}");
    }
    let used = [supervisor, reader].map(|pid| resident(pid).unwrap());
    assert!(used.iter().sum::<u64>() < 100 << 20, "{used:?}");
    symbolizer.rig.stop();
}

#[test]
fn no_process_is_left() {
    let built = Built::new();
    for end in [Signal::TERM, Signal::KILL] {
        let mut symbolizer = Symbolizer::start("");
        assert_eq!(symbolizer.symbolize(&built.profile("first")), first());
        let left = [symbolizer.supervisor(), symbolizer.reader()];
        // As a service manager and a terminal do.
        for pid in left {
            for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
                send(pid, signal);
            }
        }
        assert_eq!(symbolizer.symbolize(&built.profile("second")), second());
        assert_eq!([symbolizer.supervisor(), symbolizer.reader()], left);
        match end {
            Signal::TERM => {
                symbolizer.rig.stop();
                // It waits for them.
                assert!(!is_alive(left[0]));
            }
            signal => {
                send(symbolizer.rig.pid(), signal);
                symbolizer.rig.wait_for_end();
            }
        }
        wait_until("the end of all processes", || {
            !left.iter().any(|&pid| is_alive(pid))
        });
    }
}

#[test]
fn without_a_supervisor_the_service_reads_by_itself() {
    let built = Built::new();
    let mut symbolizer = Symbolizer::start("");
    assert_eq!(symbolizer.symbolize(&built.profile("first")), first());
    let reader = symbolizer.reader();
    send(symbolizer.supervisor(), Signal::KILL);
    wait_until("the end of the reader", || !is_alive(reader));
    assert_eq!(symbolizer.symbolize(&built.profile("second")), second());
    symbolizer
        .rig
        .wait_for("reading executables in this one", 1);
    symbolizer.rig.stop();

    let mut symbolizer = Symbolizer::start("sandbox: {reader: false}");
    assert_eq!(symbolizer.symbolize(&built.profile("first")), first());
    assert_eq!(children(symbolizer.rig.pid()), [0; 0]);
    let output = symbolizer.rig.stop();
    assert!(!output.contains("WARN"), "{output}");
}

#[test]
fn a_reload_gets_a_reader_only_if_there_is_a_supervisor() {
    let built = Built::new();
    let mut symbolizer = Symbolizer::start("");
    let (metrics, destination) = (symbolizer.metrics, &symbolizer.destination);
    let with = config(destination, metrics, "");
    // The same capabilities, but no executables.
    let without = with.replace("max_cpu: 1", "max_cpu: 1, targets: kernel");
    let more = with.replace("max_cpu: 1", "max_cpu: 0.9");
    symbolizer.rig.write("more", &more);
    symbolizer.rig.signal("-HUP");
    symbolizer.rig.wait_for("Reloaded the configuration.", 1);
    assert_eq!(symbolizer.symbolize(&built.profile("first")), first());
    symbolizer.reader();
    symbolizer.rig.stop();

    let rig = Rig::start(&without);
    assert_eq!(children(rig.pid()), [0; 0]);
    rig.write("with", &with);
    rig.signal("-HUP");
    rig.wait_for(REFUSED, 1);
    assert!(
        rig.output()
            .contains("for which profcol started no process")
    );
    rig.stop();
}
