//! The command line as users meet it: each command, exit code and message.

mod support;

use std::io::Write;
use std::process::Stdio;

use support::{Ended, ended, file, path, profcol, root, run};

const MINIMAL: &str = "
receivers: {nop: }
exporters: {nop: }
service: {telemetry: {metrics: {level: none}}, pipelines: {profiles: {receivers: [nop], exporters: [nop]}}}
";

#[track_caller]
fn check(arguments: &[&str], code: i32, stdout: &str, stderr: &str) {
    let answer = run(arguments);
    let holds = |text: &str, part: &str| {
        if part.is_empty() {
            text.is_empty()
        } else {
            text.contains(part)
        }
    };
    assert!(
        answer.code == Some(code) && holds(&answer.stdout, stdout) && holds(&answer.stderr, stderr),
        "{arguments:?}: {answer:#?}"
    );
}

#[test]
fn commands_end_with_their_codes() {
    let good = file("good.yaml", MINIMAL);
    let good = path(&good.path);
    let bad = file("bad.yaml", "receivers: {nap: }\nexporters: {nop: }\n");
    let bad = path(&bad.path);
    for command in ["validate", "print-config", "print-initial-config"] {
        check(&[command, "--config", bad], 78, "", "did you mean \"nop\"?");
        check(
            &[command],
            2,
            "",
            "at least one config flag must be provided",
        );
    }
    check(&["validate", "--config", good], 0, "", "");
    check(&["--config", good, "validate"], 0, "", "");
    check(&["validate", &format!("--config=file:{good}")], 0, "", "");
    check(
        &["print-config", "--config", good],
        0,
        "shutdown_timeout: 30s",
        "",
    );
    check(
        &["print-initial-config", "--config", good],
        0,
        "shutdown_timeout: 30s",
        "",
    );
    check(
        &["print-config", "--format", "json", "--config", good],
        0,
        "\"nop\": {",
        "",
    );
    check(&["--config", bad], 78, "", "did you mean \"nop\"?");
    check(&["run", "--config", bad], 78, "", "did you mean \"nop\"?");
    // Without a configuration there is one that is built in.
    let set = "receivers.ebpf_cpu.nonsense=1";
    check(&["--set", set], 78, "", "has invalid keys: nonsense");
    check(
        &["validate", "--config", "/nonexistent.yaml"],
        78,
        "",
        "open /nonexistent.yaml: no such file",
    );
    check(
        &["validate", "--config", "ftp://x/y"],
        78,
        "",
        "unsupported scheme on URI \"ftp://x/y\"",
    );
    check(&["components"], 0, "stability:", "");
    check(&["components"], 0, "scheme: https", "");
    check(&["schema"], 0, "\"$schema\"", "");
    check(
        &["version"],
        0,
        concat!("profcol ", env!("CARGO_PKG_VERSION")),
        "",
    );
    check(
        &["--version"],
        0,
        concat!("profcol ", env!("CARGO_PKG_VERSION")),
        "",
    );
    check(&["help"], 0, "Exit codes:", "");
    check(&["--help"], 0, "Exit codes:", "");
    check(&["man"], 0, ".TH profcol 1", "");
    for shell in ["bash", "zsh", "fish"] {
        check(&["completions", shell], 0, "print-config", "");
    }
    check(&["featuregate"], 0, "ID  Enabled  Stage  Description", "");
    check(&["featuregate", "x"], 2, "", "feature \"x\" not found");
    check(
        &["frobnicate"],
        2,
        "",
        "unrecognized subcommand 'frobnicate'",
    );
    check(&["validate", "--confg", good], 2, "", "--config");
    check(
        &["validate", "--config", good, "--set", "a.b"],
        2,
        "",
        "missing equal sign",
    );
}

#[test]
fn several_sources_are_merged_and_set_wins() {
    let first = file("first.yaml", MINIMAL);
    let second = file(
        "second.yaml",
        "service: {shutdown_timeout: 1m}\nextensions:\n",
    );
    let configs = [
        "print-config",
        "--config",
        path(&first.path),
        "--config",
        path(&second.path),
    ];
    check(&configs, 0, "shutdown_timeout: 1m0s", "");
    let set = |value| [&configs[..], &["--set", value]].concat();
    check(
        &set("service.shutdown_timeout=2s"),
        0,
        "shutdown_timeout: 2s",
        "",
    );
    check(
        &set("service.telemetry.logs.level=DEBUG"),
        0,
        "level: debug",
        "",
    );
    check(
        &set("service.pipelines.profiles.exporters=[nop, nop/2]"),
        78,
        "",
        "references exporter \"nop/2\"",
    );
    check(
        &set("service.shutdown_timeout=soon"),
        78,
        "",
        "--> --set service.shutdown_timeout=soon:1:",
    );
    let yaml = "yaml:service::shutdown_timeout: 3s";
    check(
        &[&configs[..], &["--config", yaml]].concat(),
        0,
        "shutdown_timeout: 3s",
        "",
    );
    let mut command = profcol(&configs);
    command
        .args(["--config", "env:MORE"])
        .env("MORE", "service: {shutdown_timeout: 4s}");
    assert!(ended(&mut command).stdout.contains("shutdown_timeout: 4s"));
}

#[test]
fn command_lines_of_the_collector_work() {
    let good = file("good.yaml", MINIMAL);
    let good = path(&good.path);
    for gates in [
        "--feature-gates=+service.profilesSupport",
        "--feature-gates=service.profilesSupport,-nobody.knows",
        "--feature-gates=-nobody.knows",
    ] {
        check(&["validate", gates, "--config", good], 0, "", "");
    }
    check(
        &[
            "validate",
            "--feature-gates",
            "-nobody.knows",
            "--config",
            good,
        ],
        0,
        "",
        "",
    );
    check(
        &[
            "print-config",
            "--mode=unredacted",
            "--format=yaml",
            "--validate=false",
            "--config",
            good,
        ],
        0,
        "nop: {}",
        "",
    );
}

#[test]
fn secrets_are_printed_only_on_request() {
    let config = "
receivers: {nop: }
exporters: {otlp_grpc: {endpoint: 'h:1', headers: {authorization: hunter2}}}
service: {pipelines: {profiles: {receivers: [nop], exporters: [otlp_grpc]}}}
";
    let config = file("secret.yaml", config);
    let print = |mode| run(&["print-config", mode, "--config", path(&config.path)]).stdout;
    assert!(print("--mode=redacted").contains("value: '[REDACTED]'"));
    assert!(!print("--mode=redacted").contains("hunter2"));
    assert!(print("--mode=unredacted").contains("value: hunter2"));
}

#[test]
fn a_printed_configuration_means_the_same() {
    let first = file("first.yaml", MINIMAL);
    let printed = run(&["print-config", "--config", path(&first.path)]).stdout;
    let second = file("second.yaml", &printed);
    assert_eq!(
        run(&["print-config", "--config", path(&second.path)]).stdout,
        printed
    );
}

#[test]
fn a_configuration_can_come_from_a_web_server() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("bound");
    let server = std::thread::spawn(move || {
        for body in [
            ("200 OK", MINIMAL),
            ("200 OK", "receivers: {nap: }"),
            ("404 Not Found", ""),
        ] {
            let (mut stream, _) = listener.accept().expect("a client");
            let mut request = [0; 4096];
            std::io::Read::read(&mut stream, &mut request).expect("a request");
            let (status, body) = body;
            let length = body.len();
            write!(
                stream,
                "HTTP/1.1 {status}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
            )
            .expect("the client reads");
        }
    });
    let url = format!("http://{address}/c.yaml");
    check(&["validate", "--config", &url], 0, "", "");
    check(
        &["validate", "--config", &url],
        78,
        "",
        &format!("--> {url}:1:13"),
    );
    check(
        &["validate", "--config", &url],
        78,
        "",
        "the server answered 404 Not Found",
    );
    server.join().expect("served");
    check(
        &["validate", "--config", &url],
        78,
        "",
        "connection refused",
    );
}

/// What SREs read when a configuration is wrong. `UPDATE=1` writes the answers anew, to be read.
#[test]
fn generated_answers_to_broken_configurations() {
    let folder = root().join("tests/broken");
    let mut stale = Vec::new();
    let mut names: Vec<_> = std::fs::read_dir(&folder)
        .expect("the folder is there")
        .map(|entry| entry.expect("readable").path())
        .filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == "yaml")
        })
        .collect();
    names.sort();
    assert!(names.len() >= 10, "{names:?}");
    for config in names {
        let name = config
            .file_name()
            .and_then(|name| name.to_str())
            .expect("UTF-8");
        let mut command = profcol(&["validate", "--config", name]);
        command.current_dir(&folder).envs([
            ("EXPORTER", "debgu"),
            ("HOST", "gateway"),
            ("LIMIT", "64MiB"),
            ("NOP_OPTIONS", "{rate: fast}"),
        ]);
        let Ended {
            code,
            stdout,
            stderr,
        } = ended(&mut command);
        assert_eq!((code, stdout.as_str()), (Some(78), ""), "{name}: {stderr}");
        let stderr = without_component_lists(&stderr);
        let expected = config.with_extension("txt");
        if std::env::var_os("UPDATE").is_some_and(|update| update == "1") {
            std::fs::write(&expected, &stderr).expect("written");
        }
        if std::fs::read_to_string(&expected).unwrap_or_default() != stderr {
            stale.push(format!("{name} is answered with\n{stderr}"));
        }
    }
    assert!(
        stale.is_empty(),
        "{}\nUPDATE=1 writes these answers",
        stale.join("\n")
    );
}

/// Which components there are is not what these texts are about.
fn without_component_lists(text: &str) -> String {
    let mut parts = text.split("(valid values: [");
    let mut result = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (_, rest) = part.split_once(']').unwrap_or(("", part));
        result.push_str("(valid values: [...]");
        result.push_str(rest);
    }
    result
}

#[test]
fn hostile_yaml_is_refused_quickly_and_without_a_panic() {
    let deep = "a: {".repeat(2_500_000);
    let deep_lists = "[".repeat(10_000_000);
    let wide = "x, ".repeat(3_000_000);
    let laughs = (1..30).fold("a0: &a0 [lol, lol]\n".to_owned(), |text, n| {
        format!("{text}a{n}: &a{n} [*a{0}, *a{0}]\n", n - 1)
    });
    let rows: [(&str, Vec<u8>); 9] = [
        ("deep maps", deep.into_bytes()),
        ("deep lists", deep_lists.into_bytes()),
        ("a wide list", format!("receivers: [{wide}]").into_bytes()),
        ("a billion laughs", laughs.into_bytes()),
        ("an alias to itself", b"receivers: &a {nop: *a}".to_vec()),
        ("tabs", b"receivers:\n\tnop:\n".to_vec()),
        ("no text", vec![0xff, 0xfe, 0x00, 0x41]),
        ("zeros", vec![0; 1 << 20]),
        (
            "two documents",
            b"receivers: {nop: }\n---\nexporters: {nop: }\n".to_vec(),
        ),
    ];
    for (what, bytes) in rows {
        let config = file("hostile.yaml", bytes);
        let Ended {
            code,
            stdout,
            stderr,
        } = run(&["validate", "--config", path(&config.path)]);
        let short = stderr.len() < 8 * 1024;
        let panicked = stderr.contains("panicked");
        assert!(
            code == Some(78) && stdout.is_empty() && short && !panicked,
            "{what}: {code:?}\n{:.2000}",
            stderr
        );
    }
}

#[test]
fn runs_until_it_is_told_to_stop() {
    let config = "
receivers: {otlp: {protocols: {grpc: {endpoint: '127.0.0.1:0'}}}}
exporters: {otlp: {endpoint: 'localhost:1'}}
service:
  telemetry: {metrics: {level: none}}
  pipelines: {profiles: {receivers: [otlp], exporters: [otlp]}}
";
    let config = file("run.yaml", config);
    let mut child = profcol(&["--config", path(&config.path)])
        .stderr(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the binary was built for this test");
    let stderr = child.stderr.take().expect("piped");
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(stderr)).map_while(Result::ok);
    let mut seen = Vec::new();
    for line in lines.by_ref() {
        seen.push(line);
        if seen
            .last()
            .is_some_and(|line| line.contains("Everything is ready"))
        {
            break;
        }
    }
    let id = child.id().to_string();
    let killed = std::process::Command::new("kill")
        .args(["-TERM", &id])
        .status();
    assert!(killed.is_ok_and(|status| status.success()));
    seen.extend(lines);
    let status = child.wait().expect("it ends");
    let seen = seen.join("\n");
    assert_eq!(status.code(), Some(0), "{seen}");
    for expected in [
        "\"otlp\" alias is deprecated; use \"otlp_grpc\" instead",
        "SIGTERM",
        "Shutdown complete",
    ] {
        assert!(seen.contains(expected), "{expected} is not in\n{seen}");
    }
}

#[test]
fn a_port_in_use_is_named() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("bound").to_string();
    let config = format!(
        "
receivers: {{otlp: {{protocols: {{grpc: {{endpoint: '{address}'}}}}}}}}
exporters: {{nop: }}
service: {{telemetry: {{metrics: {{level: none}}}}, pipelines: {{profiles: {{receivers: [otlp], exporters: [nop]}}}}}}
"
    );
    let config = file("port.yaml", config);
    let Ended { code, stderr, .. } = run(&["--config", path(&config.path)]);
    assert_eq!(code, Some(1), "{stderr}");
    for part in [address.as_str(), "receiver otlp", "protocols::grpc"] {
        assert!(stderr.contains(part), "{part} is not in {stderr}");
    }
}
