//! The live page in a real browser: a script uses it like a person, and checks what it shows.
//!
//! Needs Chromium, Node and its package puppeteer-core (`NODE_PATH`); the checks are in `browser.mjs`.

#![allow(clippy::unwrap_used, reason = "a panic fails the test")]

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
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
use profcol_test_harness::support::{file, path, profcol, root, skip};

const CHROMIUM: &str = "/usr/bin/chromium";
/// A function name and a label with HTML.
const HOSTILE: &str = "<img src=x onerror=alert(1)>";

struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
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
    let [page, otlp] = [free_address(), free_address()];
    let config = file("page.yaml", configuration(&page, &otlp));
    let mut profcol = profcol(&["--config", path(&config.path)]);
    let _profcol = Running(profcol.stdout(Stdio::null()).spawn().unwrap());
    wait_until("profcol to listen", || TcpStream::connect(&otlp).is_ok());
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
        .output()
        .unwrap();
    let [output, errors] = [&browser.stdout, &browser.stderr].map(|it| String::from_utf8_lossy(it));
    assert!(
        browser.status.success(),
        "{output}{errors}screenshots are in {}",
        screenshots.display()
    );
}

fn has_puppeteer() -> bool {
    let folders = std::env::var("NODE_PATH").unwrap_or_default();
    let mut folders = folders.split(':');
    let is_there = |folder: &str| Path::new(folder).join("puppeteer-core").is_dir();
    let has_node = Command::new("node").arg("--version").output();
    has_node.is_ok_and(|it| it.status.success()) && folders.any(is_there)
}

fn free_address() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().to_string()
}

fn configuration(page: &str, otlp: &str) -> String {
    format!(
        "
receivers: {{otlp: {{protocols: {{http: {{endpoint: '{otlp}'}}}}}}}}
processors:
  relabel:
    configs:
      - {{source_labels: [comm], regex: unwanted, action: drop}}
      - {{source_labels: [comm], target_label: team, replacement: team-$1}}
exporters:
  live_view: {{endpoint: '{page}', resolution: 1s}}
  nop:
  # Nothing listens there: the page shows its errors, and not what is secret.
  otlp_grpc/away: {{endpoint: '127.0.0.1:1', tls: {{insecure: true}}, headers: {{authorization: planted-secret}}}}
connectors: {{forward: }}
service:
  telemetry: {{metrics: {{level: none}}, logs: {{level: info}}}}
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

/// One second of three programs, one of which is dropped, with stacks of many depths; some functions come and go.
fn profile(second: u64) -> Profiles {
    let mut rows = Interner::new();
    let (cpu, nanoseconds) = (rows.string("cpu"), rows.string("nanoseconds"));
    let mut model = Model::default();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    for (pid, name) in [(1, "webserver"), (2, "database"), (3, "unwanted")] {
        let mut samples = Samples::default();
        for branch in 0..40 + second % 5 {
            let depth = 3 + branch % 25;
            let mut stack: Vec<LocationIdx> = vec![location(&mut rows, name, "main")];
            for level in 0..depth {
                let function = match (branch, level) {
                    (7, 2) => HOSTILE.to_owned(),
                    _ => format!("{name}::module_{}::function_{level}", branch / 4),
                };
                stack.push(location(&mut rows, name, &function));
            }
            stack.reverse();
            samples.push(SampleRef {
                stack: rows.stack(&stack),
                values: &[10_000_000 * (1 + i64::try_from(branch % 7).unwrap())],
                ..SampleRef::default()
            });
        }
        let profile = Profile {
            sample_type: Some(ValueType {
                kind: cpu,
                unit: nanoseconds,
            }),
            samples,
            time_unix_nano: u64::try_from(now.as_nanos()).unwrap() - 1_000_000_000,
            duration_nano: 1_000_000_000,
            ..Profile::default()
        };
        model.resources.push(ResourceProfiles {
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
                profiles: vec![profile.into()],
                ..ScopeProfiles::default()
            }],
            ..ResourceProfiles::default()
        });
    }
    model.dictionary = rows.finish().into();
    Profiles::from_model(model)
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
