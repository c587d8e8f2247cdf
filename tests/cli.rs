//! The command line as users meet it: each command, exit code and message.

use std::io::Write;
use std::process::Stdio;

use profcol_test_harness::backend::wait_until;
use profcol_test_harness::support::{
    Ended, NOBODY, check_privileges, ended, file, is_root, path, profcol, root, run, skip,
};

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
    // Without a configuration the built-in one applies.
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

/// Terminal escapes, a forged log line, and a text direction override.
const EVIL: &str = "e\x1b[2Jvil\nError: forged\r\u{9b}1m\u{202e}";
const ESCAPED: &str = r"e\x1b[2Jvil\nError: forged\r\u{9b}1m\u{202e}";

#[track_caller]
fn check_escaped(answer: &Ended, expected: &str) {
    let text = format!("{}{}", answer.stdout, answer.stderr);
    let may_be_there = |c: char| matches!(c, '\n' | '\t') || profcol_printable::is_printable(c);
    assert!(text.chars().all(may_be_there), "{text:?}");
    assert!(!text.contains("\nError: forged"), "{text}");
    assert!(text.contains(expected), "{text}");
}

#[test]
fn untrusted_text_is_escaped_everywhere() {
    let folder = tempfile::tempdir().expect("can create a temporary directory");
    std::fs::write(folder.path().join(format!("{EVIL}.padata")), "nothing").expect("written");
    let listed = run(&["upload", path(folder.path()), "--dry-run"]);
    check_escaped(&listed, &format!("{ESCAPED}.padata: 7 bytes"));
    let absent = format!("/nonexistent/{EVIL}");
    check_escaped(
        &run(&["upload", &absent, "--dry-run"]),
        // The first line of an error is followed by indented ones.
        "/nonexistent/e\\x1b[2Jvil\n\tError: forged",
    );

    let config = folder.path().join(format!("{EVIL}.yaml"));
    let evil = format!("{EVIL:?}")
        .replace("\\u{1b}", "\\e")
        .replace("\\u{9b}", "\\u009b");
    let evil = evil.replace("\\u{202e}", "\\u202e");
    std::fs::write(
        &config,
        format!("{MINIMAL}\n{evil}: 1\n\"\u{202e}key\": 1\n"),
    )
    .expect("written");
    let refused = run(&["validate", "--config", &format!("file:{}", path(&config))]);
    check_escaped(
        &refused,
        &format!("--> {}/{ESCAPED}.yaml:", path(folder.path())),
    );
    check_escaped(&refused, "has invalid keys: e\\x1b[2Jvil\n\tError: forged");
    check_escaped(&refused, "7 | \" key\": *");
    check_escaped(
        &run(&["validate", "--config", "/nonexistent\x1b[2J"]),
        r"open /nonexistent\x1b[2J: no such file",
    );
    check_escaped(
        &run(&["fro\x1b[2Jb\u{202e}nicate"]),
        r"'frob\u{202e}nicate'",
    );
    check_escaped(&run(&["featuregate", "\u{202e}"]), r"\u{202e}");

    let relabel = format!(
        "{MINIMAL}
processors: {{relabel: {{configs: [
  {{source_labels: [a], target_label: b, replacement: \"\\u202e$1\"}}]}}}}
"
    );
    let relabel = file("relabel.yaml", relabel);
    let arguments = [
        "relabel",
        "test",
        "--config",
        path(&relabel.path),
        "--labels",
    ];
    let tried = run(&[&arguments[..], &[&format!("a={EVIL},b\x1b={EVIL}")]].concat());
    check_escaped(&tried, r"  b\x1b = ");
    check_escaped(&tried, r"\u{202e}");
}

#[test]
fn the_name_of_a_process_is_escaped() {
    let folder = tempfile::tempdir().expect("can create a temporary directory");
    let program = folder.path().join("e\x1b[2J\n\u{202e}vil");
    std::fs::copy("/bin/sleep", &program).expect("copied");
    let mut child = std::process::Command::new(&program)
        .arg("1000")
        .spawn()
        .expect("it can be executed");
    let pid = child.id().to_string();
    for (format, expected) in [
        ("yaml", r"e\x1B[2J\n\u202Evil"),
        ("json", r"e\u001b[2J\n\u202evil"),
    ] {
        let printed = run(&["processes", "--pid", &pid, "--format", format]);
        check_escaped(&printed, &format!("\"{expected}\""));
    }
    child
        .kill()
        .and_then(|()| child.wait())
        .expect("the test owns the file");
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
        "--> --set service.shutdown_timeout:1:",
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
        "the server responded 404 Not Found",
    );
    server.join().expect("served");
    check(
        &["validate", "--config", &url],
        78,
        "",
        "connection refused",
    );
}

/// The error messages for wrong configurations. `UPDATE=1` rewrites them for review.
#[test]
fn generated_answers_to_broken_configurations() {
    let folder = root().join("tests/broken");
    let mut stale = Vec::new();
    let mut names: Vec<_> = std::fs::read_dir(&folder)
        .expect("the directory exists")
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

/// Removes the lists of components, which are irrelevant here.
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
fn hostile_yaml_is_rejected_quickly_without_a_panic() {
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

/// A running service, killed on drop.
struct Running(std::process::Child);

impl Drop for Running {
    fn drop(&mut self) {
        // Both fail only if it has already exited.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a service, waits until it is ready, and returns its output so far.
fn ready(command: &mut std::process::Command) -> (Running, String) {
    let mut child = command
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary was built for this test");
    let stderr = child.stderr.take().expect("piped");
    let running = Running(child);
    let mut output = String::new();
    for line in std::io::BufRead::lines(std::io::BufReader::new(stderr)).map_while(Result::ok) {
        output.push_str(&line);
        output.push('\n');
        if line.contains("Everything is ready") {
            return (running, output);
        }
    }
    panic!("it ended: {output}");
}

fn kill(signal: &str, pid: u32) {
    let killed = std::process::Command::new("kill")
        .args([signal, &pid.to_string()])
        .status();
    assert!(killed.is_ok_and(|status| status.success()), "{signal}");
}

/// A configuration whose log is a file.
fn logging_to(log: &std::path::Path) -> String {
    format!(
        "
receivers: {{otlp: {{protocols: {{grpc: {{endpoint: '127.0.0.1:0'}}}}}}}}
exporters: {{nop: }}
service:
  telemetry: {{metrics: {{level: none}}, logs: {{level: debug, output_paths: ['{}']}}}}
  pipelines: {{profiles: {{receivers: [otlp], exporters: [nop]}}}}
",
        log.display()
    )
}

#[test]
fn other_signals_do_not_stop_it() {
    let folder = tempfile::tempdir().expect("can create a temporary directory");
    let log = folder.path().join("log");
    let config = file("run.yaml", logging_to(&log));
    let logged = |text: &str| std::fs::read_to_string(&log).is_ok_and(|log| log.contains(text));
    let child = profcol(&["--config", path(&config.path)]).spawn();
    let mut running = Running(child.expect("the binary was built for this test"));
    wait_until("it to be ready", || logged("Everything is ready"));
    for (signal, expected) in [
        ("-USR1", "Ignored signal. signal=\"SIGUSR1\""),
        ("-USR2", "Ignored signal. signal=\"SIGUSR2\""),
        ("-ALRM", "Ignored signal. signal=\"SIGALRM\""),
        ("-HUP", "Reloaded the configuration."),
    ] {
        kill(signal, running.0.id());
        wait_until(expected, || logged(expected));
    }
    kill("-TERM", running.0.id());
    let status = running.0.wait().expect("the test owns the file");
    assert_eq!(status.code(), Some(0));
    assert!(logged("Shutdown complete."));
}

#[test]
fn closing_the_terminal_stops_it_except_under_nohup() {
    let has_script = std::process::Command::new("script").arg("-V").output();
    if !has_script.is_ok_and(|output| output.status.success()) {
        skip("there is no `script`, which makes terminals");
        return;
    }
    for (wrapper, logs) in [
        // Also if the tests themselves run under `nohup`.
        (
            "env --default-signal=HUP ",
            "Received a signal. Stopping. signal=\"SIGHUP\"",
        ),
        ("nohup ", "Reloaded the configuration."),
    ] {
        let folder = tempfile::tempdir().expect("can create a temporary directory");
        let log = folder.path().join("log");
        let config = file("run.yaml", logging_to(&log));
        let logged = |text: &str| std::fs::read_to_string(&log).is_ok_and(|log| log.contains(text));
        let pid = folder.path().join("pid");
        let command = format!(
            "echo $$ > {}; exec {wrapper}{} --config {}",
            pid.display(),
            env!("CARGO_BIN_EXE_profcol"),
            config.path.display()
        );
        let script = std::process::Command::new("script")
            .args(["--quiet", "--command", &command, "/dev/null"])
            .current_dir(folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn();
        let terminal = Running(script.expect("it is installed"));
        wait_until("it to be ready", || logged("Everything is ready"));
        let pid = std::fs::read_to_string(&pid).expect("the shell wrote it");
        let pid: u32 = pid.trim().parse().expect("a number");
        drop(terminal);
        wait_until(logs, || logged(logs));
        if wrapper == "nohup " {
            kill("-TERM", pid);
        }
        wait_until("it to end", || logged("Shutdown complete."));
        wait_until("its end", || {
            !std::path::Path::new(&format!("/proc/{pid}/fd/0")).exists()
        });
    }
}

#[test]
fn validate_prints_valid_on_a_terminal() {
    let has_script = std::process::Command::new("script").arg("-V").output();
    if !has_script.is_ok_and(|output| output.status.success()) {
        skip("there is no `script`, which makes terminals");
        return;
    }
    let good = file("good.yaml", MINIMAL);
    let command = format!(
        "{} validate --config {}",
        env!("CARGO_BIN_EXE_profcol"),
        good.path.display()
    );
    let terminal = ended(
        std::process::Command::new("script")
            .args(["--quiet", "--return", "--command", &command, "/dev/null"])
            .stdin(Stdio::null()),
    );
    assert_eq!(terminal.code, Some(0), "{terminal:?}");
    assert_eq!(terminal.stdout.trim_end(), "The configuration is valid.");
    check(&["validate", "--config", path(&good.path)], 0, "", "");
}

#[test]
fn validate_warns_of_batches_held_before_a_stored_queue() {
    let exporters = [
        (
            "otlp_grpc",
            "{endpoint: a:1, sending_queue: {storage: file_storage}}",
        ),
        (
            "load_balancing",
            "{protocol: {otlp: {sending_queue: {storage: file_storage}}}, resolver: {static: {hostnames: [a:1]}}}",
        ),
    ];
    for (id, settings) in exporters {
        let with = |pipelines: &str| {
            let text = format!(
                "extensions: {{file_storage: }}
receivers: {{nop: }}
processors: {{batch: }}
exporters: {{nop: , {id}: {settings}}}
connectors: {{forward: }}
service: {{extensions: [file_storage], pipelines: {{{pipelines}}}}}
"
            );
            let config = file("stored.yaml", text);
            run(&["validate", "--config", path(&config.path)])
        };
        let direct = with(&format!(
            "profiles: {{receivers: [nop], processors: [batch], exporters: [{id}]}}"
        ));
        let joined = with(&format!(
            "profiles: {{receivers: [nop], processors: [batch], exporters: [forward]}}, \
             profiles/next: {{receivers: [forward], exporters: [{id}]}}"
        ));
        let expected = format!(
            "warning: pipeline \"profiles\": the processor \"batch\" accepts batches before the stored queue of the exporter {id:?}"
        );
        for warned in [direct, joined] {
            assert_eq!(warned.code, Some(0), "{warned:?}");
            assert!(warned.stderr.starts_with(&expected), "{warned:?}");
            assert_eq!(warned.stderr.lines().count(), 1, "{warned:?}");
        }
        let apart = with(&format!(
            "profiles: {{receivers: [nop], processors: [batch], exporters: [nop]}}, \
             profiles/stored: {{receivers: [nop], exporters: [{id}]}}"
        ));
        assert_eq!((apart.code, apart.stderr.as_str()), (Some(0), ""), "{id}");
    }
}

const DAC_OVERRIDE: u64 = 1 << 1;
const DAC_READ_SEARCH: u64 = 1 << 2;
const NET_BIND_SERVICE: u64 = 1 << 10;

#[test]
fn root_keeps_the_capabilities_that_the_configuration_uses() {
    if !is_root() {
        skip("only root has what can be given up");
        return;
    }
    let low_port = (1..1024)
        .rev()
        .find(|port| std::net::TcpListener::bind(("127.0.0.1", *port)).is_ok())
        .expect("one port below 1024 is free");
    let folder = tempfile::tempdir().expect("can create a temporary directory");
    std::os::unix::fs::chown(folder.path(), Some(NOBODY), Some(NOBODY))
        .expect("root has the permission");
    let only_owner = std::os::unix::fs::PermissionsExt::from_mode(0o700);
    std::fs::set_permissions(folder.path(), only_owner).expect("root has the permission");
    let socket = folder.path().join("otlp.sock");
    let check = |endpoint: &str, exporter: &str, expected: u64| {
        let transport = if endpoint.starts_with('/') {
            "unix"
        } else {
            "tcp"
        };
        let config = format!(
            "
receivers: {{otlp: {{protocols: {{grpc: {{endpoint: '{endpoint}', transport: {transport}}}}}}}}}
exporters: {{{exporter}, pprof_file/unused: {{directory: /unused}}}}
service:
  telemetry: {{metrics: {{level: none}}}}
  pipelines: {{profiles: {{receivers: [otlp], exporters: [{}]}}}}
",
            exporter.split(':').next().unwrap_or_default()
        );
        let config = file("run.yaml", config);
        let (running, output) = ready(&mut profcol(&["--config", path(&config.path)]));
        check_privileges(running.0.id(), expected);
        assert!(output.contains("Dropped unused capabilities"), "{output}");
        output
    };
    let any = "127.0.0.1:0";
    let output = check(any, "otlp_grpc: {endpoint: 'localhost:1'}", DAC_READ_SEARCH);
    assert!(output.contains("kept=CAP_DAC_READ_SEARCH "), "{output}");
    let low = format!("127.0.0.1:{low_port}");
    let needed = DAC_READ_SEARCH | NET_BIND_SERVICE;
    check(&low, "nop: ", needed);
    let needed = DAC_READ_SEARCH | DAC_OVERRIDE;
    check(path(&socket), "nop: ", needed);
    let files = folder.path().join("new/profiles.json");
    let options = format!(
        "file: {{path: {}, create_directory: true}}",
        files.display()
    );
    check(any, &options, needed);
    for (made, mode) in [
        (files.parent().expect("it has one"), 0o750),
        (&files, 0o640),
    ] {
        let found = std::fs::metadata(made)
            .expect("it was created")
            .permissions();
        let found = std::os::unix::fs::PermissionsExt::mode(&found) & 0o777;
        assert_eq!(found & !mode, 0, "{}: {found:o}", made.display());
    }
}

#[test]
fn runs_until_it_is_stopped() {
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
    let status = child.wait().expect("it exits");
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
fn names_a_port_in_use() {
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

const BEFORE: &str = "main;a 50\nmain;b 50\n";
const AFTER: &str = "main;a 50\nmain;b 110\nmain;c\x1b[2J 40\n";

#[test]
fn options_without_effect_are_refused_and_not_in_help() {
    let refused = "Error: this command reads no configuration: omit --config and --set";
    check(&["convert", "--config", "x", "a", "b"], 2, "", refused);
    check(&["--set", "a=b", "diff", "a", "b"], 2, "", refused);
    check(&["version", "--feature-gates", "x"], 0, "profcol ", "");
    let help = |command| run(&[command, "--help"]).stdout;
    assert!(!help("convert").contains("--set"), "{}", help("convert"));
    assert!(!help("record").contains("--config"), "{}", help("record"));
    assert!(help("record").contains("--set"), "{}", help("record"));
    assert!(help("doctor").contains("--config"), "{}", help("doctor"));
}

#[test]
fn profiles_are_converted_and_compared() {
    let before = file("before.folded", BEFORE);
    let after = file("after.folded", AFTER);
    let [html, pprof, again] =
        ["a.html", "a.pb.gz", "again.folded"].map(|name| before.directory.path().join(name));
    let (before, after) = (path(&before.path), path(&after.path));
    for target in [&html, &pprof] {
        check(&["convert", before, path(target)], 0, "", "Wrote ");
    }
    check(&["convert", path(&pprof), path(&again)], 0, "", "Wrote ");
    assert_eq!(std::fs::read_to_string(&again).unwrap(), BEFORE);
    let page = std::fs::read_to_string(&html).unwrap();
    assert!(
        page.contains("<script type=\"application/json\" id=\"profile\">{\"type\":\"samples\"")
    );

    let changed_values = "50 count 110 count  +120.0%  b\n";
    let changed = " 50.00%   55.00%   +5.00%  b\n";
    check(&["diff", before, after], 0, changed, "");
    check(
        &["diff", before, after],
        0,
        "  0.00%   20.00%  +20.00%  c\\x1b[2J\n",
        "",
    );
    check(
        &["diff", before, after, "--compare", "value"],
        0,
        "  before     after   change  function (self)\n\
         50 count 110 count  +120.0%  b\n \
         0 count  40 count      new  c\\x1b[2J\n",
        "",
    );
    check(
        &["diff", after, before, "--compare", "value"],
        0,
        "40 count  0 count     gone  c\\x1b[2J\n",
        "",
    );
    check(
        &["diff", before, after, "--compare", "value", "--by", "total"],
        0,
        "   before     after   change  function (total)\n\
         100 count 200 count  +100.0%  main\n \
         50 count 110 count  +120.0%  b\n  \
         0 count  40 count      new  c\\x1b[2J\n",
        "",
    );
    check(
        &["diff", before, after, "--fail-over", "25%"],
        0,
        changed,
        "",
    );
    check(
        &["diff", before, after, "--fail-over", "10"],
        1,
        changed,
        "Error: 1 function grew by more than 10% of the profile\n",
    );
    let by_value = ["--compare", "value", "--fail-over"];
    check(
        &[&["diff", before, after][..], &by_value, &["50%"]].concat(),
        1,
        changed_values,
        "Error: 1 function grew by more than 50% of the profile before, and the whole profile grew by 100.0%\n",
    );
    check(
        &[&["diff", after, before][..], &by_value, &["0%"]].concat(),
        0,
        "gone",
        "",
    );
    // Each share is the same.
    let slower = file("slower.folded", "main;a 100\nmain;b 100\n");
    let slower = path(&slower.path);
    check(
        &["diff", before, slower, "--fail-over", "0%"],
        0,
        "+0.00%  a",
        "",
    );
    check(
        &[&["diff", before, slower][..], &by_value, &["60%"]].concat(),
        1,
        "+100.0%  a",
        "Error: the whole profile grew by 100.0%\n",
    );
    check(
        &["diff", before, after, "-o", path(&html)],
        0,
        changed,
        "Wrote ",
    );
    assert!(
        std::fs::read_to_string(&html)
            .unwrap()
            .contains("\"base_total\":100,\"difference\":\"share\"")
    );
    check(
        &[
            "diff",
            before,
            after,
            "-o",
            path(&html),
            "--compare",
            "value",
        ],
        0,
        changed_values,
        "Wrote ",
    );
    assert!(
        std::fs::read_to_string(&html)
            .unwrap()
            .contains("\"difference\":\"absolute\"")
    );
    let svg = html.with_extension("svg");
    check(
        &["diff", before, after, "-o", path(&svg)],
        0,
        changed,
        "Wrote ",
    );
    assert!(
        std::fs::read_to_string(&svg)
            .unwrap()
            .contains("<title>b\n50 count before (50.00%), 110 count after (55.00%)</title>")
    );

    check(
        &["convert", "nowhere", path(&html)],
        1,
        "",
        "Error: nowhere: No such file or directory",
    );
    check(
        &["convert", before, "a.xyz"],
        2,
        "",
        "unknown file extension in \"a.xyz\"",
    );
    check(
        &["diff", before, after, "-o", "a.folded"],
        2,
        "",
        "its name must end in .html or .svg",
    );
    check(
        &["diff", before, after, "--fail-over", "101%"],
        2,
        "",
        "must be a percentage such as 5%",
    );
}
