//! The live page in a real browser: a script uses it like a person, and checks what it shows.
//!
//! Needs Chromium, Node and its package puppeteer-core (`NODE_PATH`); the checks are in `browser.mjs`.

#![allow(clippy::unwrap_used, reason = "a panic fails the test")]

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use profcol_profile::{
    Function, Interner, KeyValue, Line, Location, LocationIdx, LocationRef, Mapping, MappingRef,
    Model, Profile, Profiles, Resource, ResourceProfiles, SampleRef, Samples, ScopeProfiles,
    ValueType,
};
use profcol_test_harness::backend::wait_until;
use profcol_test_harness::peers::free_address;
use profcol_test_harness::support::{File, file, path, profcol, root, skip};

const CHROMIUM: &str = "/usr/bin/chromium";
/// A function name and a label with HTML.
const HOSTILE: &str = "<img src=x onerror=alert(1)>";
const HOUR: u64 = 3600;
/// Functions of the history, with the CPU time of each second in the first and in the second half of the hour: as a share one
/// grows and the others shrink, in absolute terms two grow.
const HISTORY: [(&str, &str, [u64; 2]); 4] = [
    ("webserver", "webserver::compress", [100, 1000]),
    ("webserver", "webserver::parse", [300, 200]),
    ("database", "database::scan", [400, 600]),
    ("database", "database::commit", [200, 200]),
];

struct Running {
    child: Child,
    _config: File,
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn people_can_use_the_page() {
    if !Path::new(CHROMIUM).exists() {
        skip("there is no Chromium in /usr/bin");
        return;
    }
    if !has_puppeteer() {
        skip("there is no puppeteer-core in NODE_PATH for Node");
        return;
    }
    let [page, otlp] = [free_address(), free_address()].map(|it| it.to_string());
    let queues = tempfile::tempdir().unwrap();
    let configuration = configuration(&page, &otlp, queues.path());
    let _profcol = start("page.yaml", configuration, &otlp);
    let with_password = Guarded::start("password.yaml", PASSWORD);
    let with_token = Guarded::start("token.yaml", TOKEN);
    let start = start_of_history();
    assert!(
        send(&otlp, &history(start)),
        "profcol accepts no old profiles"
    );
    // Profiles keep arriving while the page is in use.
    let (sender, sent) = mpsc::channel();
    thread::spawn(move || {
        for second in 0.. {
            if !send(&otlp, &profile(second)) {
                return;
            }
            // The receiver only waits for the first few.
            let _ = sender.send(());
            thread::sleep(Duration::from_secs(1));
        }
    });
    // Some profiles have arrived before it is opened.
    assert_eq!(
        sent.iter().take(3).count(),
        3,
        "profcol accepts no profiles"
    );
    let screenshots = root().join("target/screenshots");
    let browser = Command::new("node")
        .arg(root().join("tests/page/browser.mjs"))
        .arg(format!("http://{page}/"))
        .arg(&screenshots)
        .args(["--hostile", HOSTILE])
        .args(["--history", &(start * 1000).to_string()])
        .args(["--password", &with_password.url, "--token", &with_token.url])
        .output()
        .unwrap();
    let [output, errors] = [&browser.stdout, &browser.stderr].map(|it| String::from_utf8_lossy(it));
    assert!(
        browser.status.success(),
        "{output}{errors}screenshots are in {}",
        screenshots.display()
    );
}

fn start(name: &str, configuration: String, otlp: &str) -> Running {
    let config = file(name, configuration);
    let mut profcol = profcol(&["--config", path(&config.path)]);
    let running = Running {
        child: profcol.stdout(Stdio::null()).spawn().unwrap(),
        _config: config,
    };
    wait_until("profcol to listen", || TcpStream::connect(otlp).is_ok());
    running
}

/// Options of an extension, as `browser.mjs` logs in.
const PASSWORD: &str = "basicauth: {htpasswd: {inline: 'ann:correct horse'}}";
const TOKEN: &str = "bearertokenauth: {token: correct-token}";

/// Another profcol, with a page that requires authentication.
struct Guarded {
    url: String,
    _profcol: Running,
}

impl Guarded {
    fn start(name: &str, extension: &str) -> Self {
        let [page, otlp] = [free_address(), free_address()].map(|it| it.to_string());
        let (id, _) = extension.split_once(':').unwrap();
        let configuration = format!(
            "
receivers: {{otlp: {{protocols: {{http: {{endpoint: '{otlp}'}}}}}}}}
exporters: {{live_view: {{endpoint: '{page}', resolution: 1s, auth: {{authenticator: {id}}}}}}}
extensions: {{{extension}}}
service:
  telemetry: {{metrics: {{level: none}}}}
  extensions: [{id}]
  pipelines: {{profiles: {{receivers: [otlp], exporters: [live_view]}}}}
"
        );
        let profcol = start(name, configuration, &otlp);
        assert!(send(&otlp, &profile(0)), "profcol accepts no profile");
        Self {
            url: format!("http://{page}/"),
            _profcol: profcol,
        }
    }
}

fn has_puppeteer() -> bool {
    let directories = std::env::var("NODE_PATH").unwrap_or_default();
    let mut directories = directories.split(':');
    let is_there = |folder: &str| Path::new(folder).join("puppeteer-core").is_dir();
    let has_node = Command::new("node").arg("--version").output();
    has_node.is_ok_and(|it| it.status.success()) && directories.any(is_there)
}

fn configuration(page: &str, otlp: &str, queues: &Path) -> String {
    let queues = path(queues);
    format!(
        "
receivers: {{otlp: {{protocols: {{http: {{endpoint: '{otlp}'}}}}}}}}
processors:
  relabel:
    configs:
      - {{source_labels: [comm], regex: unwanted, action: drop}}
      - {{source_labels: [comm], target_label: team, replacement: team-$1}}
exporters:
  live_view: {{endpoint: '{page}', resolution: 1s, max_age: 2h}}
  nop:
  # Nothing listens there: the page shows its errors and what its queue drops, and not what is secret.
  otlp_grpc/away:
    endpoint: '127.0.0.1:1'
    tls: {{insecure: true}}
    headers: {{authorization: planted-secret}}
    sending_queue: {{storage: file_storage, queue_size: 5, num_consumers: 1}}
    retry_on_failure: {{max_elapsed_time: 0s}}
extensions: {{file_storage: {{directory: '{queues}', fsync: never, when_full: drop_newest}}}}
connectors: {{forward: }}
service:
  telemetry: {{metrics: {{level: none}}, logs: {{level: info}}}}
  extensions: [file_storage]
  pipelines:
    profiles: {{receivers: [otlp], processors: [relabel], exporters: [forward, live_view, otlp_grpc/away]}}
    profiles/copy: {{receivers: [forward], exporters: [nop]}}
"
    )
}

/// Whether it was accepted.
fn send(address: &str, profiles: &Profiles) -> bool {
    let body = profiles.to_wire();
    let Ok(mut stream) = TcpStream::connect(address) else {
        return false;
    };
    let head = format!(
        "POST /v1development/profiles HTTP/1.1\r\nhost: x\r\ncontent-type: application/x-protobuf\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    let mut answer = String::new();
    stream.write_all(head.as_bytes()).is_ok()
        && stream.write_all(&body).is_ok()
        && stream.read_to_string(&mut answer).is_ok()
        && answer.starts_with("HTTP/1.1 200")
}

/// In seconds of Unix time: the hour is over before the first live profile.
fn start_of_history() -> u64 {
    now().as_secs() - 2 - HOUR
}

fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap()
}

fn history(start: u64) -> Profiles {
    let mut rows = Interner::new();
    let mut model = Model::default();
    for (pid, name) in [(1, "webserver"), (2, "database")] {
        let profiles = (0..HOUR).map(|second| {
            let half = usize::from(second >= HOUR / 2);
            let mut samples = Samples::default();
            for (_, function, values) in HISTORY.iter().filter(|it| it.0 == name) {
                add_sample(
                    &mut rows,
                    &mut samples,
                    name,
                    &["main", function],
                    Duration::from_millis(values[half]),
                );
            }
            let time = Duration::from_secs(start + second);
            of_cpu(&mut rows, samples, time, Duration::from_secs(1))
        });
        let profiles = profiles.collect();
        model.resources.push(process(pid, name, profiles));
    }
    model.dictionary = rows.finish().into();
    Profiles::from_model(model)
}

/// One second of three programs, one of which is dropped, with stacks of many depths; some functions come and go.
fn profile(second: u64) -> Profiles {
    let mut rows = Interner::new();
    let mut model = Model::default();
    let length = Duration::from_secs(1);
    for (pid, name) in [(1, "webserver"), (2, "database"), (3, "unwanted")] {
        let mut samples = Samples::default();
        for branch in 0..40 + second % 5 {
            let depth = 3 + branch % 25;
            let functions = (0..depth).map(|level| match (branch, level) {
                (7, 2) => HOSTILE.to_owned(),
                _ => format!("{name}::module_{}::function_{level}", branch / 4),
            });
            let functions: Vec<String> = functions.collect();
            let stack = ["main"].into_iter().chain(functions.iter().map(|it| &**it));
            let stack: Vec<&str> = stack.collect();
            let value = Duration::from_millis(10 * (1 + branch % 7));
            add_sample(&mut rows, &mut samples, name, &stack, value);
        }
        let profile = of_cpu(&mut rows, samples, now() - length, length);
        model.resources.push(process(pid, name, vec![profile]));
    }
    model.dictionary = rows.finish().into();
    Profiles::from_model(model)
}

/// `functions` are outermost first.
fn add_sample(
    rows: &mut Interner,
    samples: &mut Samples,
    binary: &str,
    functions: &[&str],
    value: Duration,
) {
    let functions = functions.iter().rev();
    let stack: Vec<LocationIdx> = functions.map(|it| location(rows, binary, it)).collect();
    samples.push(SampleRef {
        stack: rows.stack(&stack),
        values: &[i64::try_from(value.as_nanos()).unwrap()],
        ..SampleRef::default()
    });
}

fn of_cpu(rows: &mut Interner, samples: Samples, time: Duration, length: Duration) -> Profile {
    let nanoseconds = |it: Duration| u64::try_from(it.as_nanos()).unwrap();
    Profile {
        sample_type: Some(ValueType {
            kind: rows.string("cpu"),
            unit: rows.string("nanoseconds"),
        }),
        samples,
        time_unix_nano: nanoseconds(time),
        duration_nano: nanoseconds(length),
        ..Profile::default()
    }
}

fn process(pid: i64, name: &str, profiles: Vec<Profile>) -> ResourceProfiles {
    ResourceProfiles {
        resource: Some(
            Resource {
                attributes: vec![
                    KeyValue::new("process.pid", pid),
                    KeyValue::new("process.comm", name),
                    KeyValue::new("process.executable.name", name),
                    KeyValue::new("note", HOSTILE),
                ],
                ..Resource::default()
            }
            .into(),
        ),
        scopes: vec![ScopeProfiles {
            profiles: profiles.into_iter().map(Into::into).collect(),
            ..ScopeProfiles::default()
        }],
        ..ResourceProfiles::default()
    }
}

fn location(rows: &mut Interner, binary: &str, function: &str) -> LocationIdx {
    let filename = rows.string(binary);
    let mapping = rows.mapping(MappingRef {
        mapping: Mapping {
            filename,
            ..Mapping::default()
        },
        attributes: &[],
    });
    let name = rows.string(function);
    let function = rows.function(Function {
        name,
        ..Function::default()
    });
    let line = Line {
        function,
        ..Line::default()
    };
    rows.location(LocationRef {
        location: Location {
            mapping,
            address: 0,
        },
        lines: &[line],
        attributes: &[],
    })
}
