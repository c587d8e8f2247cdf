//! A profcol with a live view of some seconds of two programs.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{SystemTime, UNIX_EPOCH};

use profcol_profile::{
    Function, Interner, KeyValue, Line, Location, LocationIdx, LocationRef, Model, Profile,
    Profiles, Resource, ResourceProfiles, SampleRef, Samples, ScopeProfiles, ValueType,
};
use profcol_test_harness::peers::{Process, free_address, post_profiles, profcol};

pub const CPU: &str = "process_cpu:cpu:nanoseconds:cpu:nanoseconds";
pub const SECONDS: u64 = 10;

/// Stacks of one second, with CPU nanoseconds.
pub const WEB: [(&str, u64); 3] = [
    ("main;render;template", 300_000_000),
    ("main;accept", 200_000_000),
    ("main", 50_000_000),
];
pub const DATABASE: [(&str, u64); 2] = [
    ("main;query;scan", 250_000_000),
    ("main;vacuum", 90_000_000),
];

/// CPU nanoseconds of the database's deep stack.
const DEEP: u64 = 1_000_000;

/// Deep enough that the response is compressed.
fn deep() -> String {
    let levels: Vec<String> = (0..100).map(|level| format!("level_{level}")).collect();
    levels.join(";")
}

pub struct Host {
    pub page: SocketAddr,
    /// Milliseconds of Unix time.
    pub start: u64,
    pub end: u64,
    _profcol: Process,
}

impl Host {
    /// `more` are further options of the live view.
    pub fn start(more: &str) -> Self {
        let [page, otlp] = [free_address(), free_address()];
        let configuration = format!(
            "
receivers: {{otlp: {{protocols: {{http: {{endpoint: '{otlp}'}}}}}}}}
exporters:
  live_view:
    endpoint: '{page}'
    resolution: 1s
    {more}
extensions: {{basicauth: {{htpasswd: {{inline: 'user:password'}}}}}}
service:
  extensions: [basicauth]
  telemetry: {{metrics: {{level: none}}, logs: {{level: warn}}}}
  pipelines: {{profiles: {{receivers: [otlp], exporters: [live_view]}}}}
"
        );
        let profcol = profcol(&configuration).listens_on(otlp).listens_on(page);
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap()
            .as_secs();
        let first = now - 60;
        for second in first..first + SECONDS {
            let body = profiles(second).to_wire();
            let status = post_profiles(otlp, "application/x-protobuf", &body);
            assert!(status.starts_with("HTTP/1.1 200"), "{status}");
        }
        Self {
            page,
            start: first * 1000,
            // The end of both a 15 s and a 2 s step.
            end: (first + 30) * 1000,
            _profcol: profcol,
        }
    }

    /// The total value of a program.
    pub fn total(&self, program: &str) -> u64 {
        let sum = |stacks: &[(&str, u64)]| stacks.iter().map(|it| it.1).sum::<u64>();
        let second = match program {
            "webserver" => sum(&WEB),
            _ => sum(&DATABASE) + DEEP,
        };
        second * SECONDS
    }
}

/// Status and body of a response. The header `x-host` replaces the host name.
pub fn http(
    to: SocketAddr,
    method: &str,
    path: &str,
    headers: &str,
    body: &[u8],
) -> (u16, Vec<u8>) {
    let host = match headers.contains("x-host: ") {
        true => String::new(),
        false => format!("host: {to}\r\n"),
    };
    let headers = headers.replace("x-host: ", "host: ");
    let head = format!(
        "{method} {path} HTTP/1.1\r\n{host}{headers}content-length: {}\r\nconnection: close\r\n\r\n",
        body.len()
    );
    let mut stream = TcpStream::connect(to).unwrap();
    stream.write_all(head.as_bytes()).unwrap();
    // A server that refuses by the headers need not read the body.
    let _ = stream.write_all(body);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    let end = answer.windows(4).position(|it| it == b"\r\n\r\n");
    let body = answer.split_off(end.expect("an answer has a head") + 4);
    let head = String::from_utf8(answer).unwrap();
    let status = head.split(' ').nth(1).unwrap();
    (status.parse().unwrap(), body)
}

/// Percent-encoded for a URL.
pub fn encoded(text: &str) -> String {
    let bytes = text.bytes().map(|byte| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' => char::from(byte).to_string(),
        other => format!("%{other:02X}"),
    });
    bytes.collect()
}

/// One second of two programs: one of them has a service name and allocations.
fn profiles(second: u64) -> Profiles {
    let mut rows = Interner::new();
    let cpu = value_type(&mut rows, "cpu", "nanoseconds");
    let space = value_type(&mut rows, "alloc_space", "bytes");
    let web = vec![
        profile(&mut rows, second, cpu, &WEB),
        profile(&mut rows, second, space, &[("main;render", 4096)]),
    ];
    let deep = deep();
    let mut stacks = DATABASE.to_vec();
    stacks.push((deep.as_str(), DEEP));
    let database = vec![profile(&mut rows, second, cpu, &stacks)];
    let resources = vec![
        resource(web, 1, "webserver", "shop"),
        resource(database, 2, "database", "unknown_service:database"),
    ];
    Profiles::from_model(Model {
        resources,
        dictionary: rows.finish().into(),
    })
}

fn value_type(rows: &mut Interner, kind: &str, unit: &str) -> ValueType {
    ValueType {
        kind: rows.string(kind),
        unit: rows.string(unit),
    }
}

fn profile(rows: &mut Interner, second: u64, kind: ValueType, stacks: &[(&str, u64)]) -> Profile {
    let mut samples = Samples::default();
    for (stack, value) in stacks {
        let stack: Vec<LocationIdx> = stack.rsplit(';').map(|it| location(rows, it)).collect();
        samples.push(SampleRef {
            stack: rows.stack(&stack),
            values: &[i64::try_from(*value).unwrap()],
            ..SampleRef::default()
        });
    }
    Profile {
        sample_type: Some(kind),
        samples,
        time_unix_nano: second * 1_000_000_000,
        duration_nano: 1_000_000_000,
        ..Profile::default()
    }
}

fn resource(profiles: Vec<Profile>, pid: i64, name: &str, service: &str) -> ResourceProfiles {
    let attributes = vec![
        KeyValue::new("process.pid", pid),
        KeyValue::new("process.executable.name", name),
        KeyValue::new("service.name", service),
    ];
    let resource = Resource {
        attributes,
        ..Resource::default()
    };
    ResourceProfiles {
        resource: Some(resource.into()),
        scopes: vec![ScopeProfiles {
            profiles: profiles.into_iter().map(Into::into).collect(),
            ..ScopeProfiles::default()
        }],
        ..ResourceProfiles::default()
    }
}

fn location(rows: &mut Interner, function: &str) -> LocationIdx {
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
        location: Location::default(),
        lines: &[line],
        attributes: &[],
    })
}
