//! `profcol doctor` on this host, for configurations with and without unmet requirements.

#![allow(clippy::unwrap_used, reason = "a panic fails the test")]

use std::net::TcpListener;
use std::time::{Duration, Instant};

use profcol_net::grpc::{Code, Status};
use profcol_test_harness::backend::{ClosedPort, Destination, Mode};
use profcol_test_harness::support::{
    Ended, File, NOBODY, ended, file, is_root, path, profcol, run, skip,
};
use serde_json::Value;

/// A forwarding configuration with these exporters.
fn forwarder(exporters: &[(&str, String)]) -> File {
    let declared = exporters.iter();
    let declared: Vec<_> = declared
        .map(|(id, options)| format!("{id}: {options}"))
        .collect();
    let ids: Vec<_> = exporters.iter().map(|(id, _)| *id).collect();
    let text = format!(
        "receivers: {{nop: }}\nexporters: {{{}}}\nservice: {{telemetry: {{metrics: {{level: none}}}}, \
         pipelines: {{profiles: {{receivers: [nop], exporters: [{}]}}}}}}\n",
        declared.join(", "),
        ids.join(", ")
    );
    file("profcol.yaml", text)
}

fn otlp(address: impl std::fmt::Display) -> String {
    format!("{{endpoint: '{address}', tls: {{insecure: true}}}}")
}

/// The exit code, and the checks as (component, check, status) and in full.
fn run_doctor(file: &File) -> (Option<i32>, Vec<[String; 3]>, Vec<Value>) {
    let answer = run(&["doctor", "--json", "--config", path(&file.path)]);
    let Ended { code, stdout, .. } = &answer;
    let all: Vec<Value> =
        serde_json::from_str(stdout).unwrap_or_else(|error| panic!("{error}: {answer:#?}"));
    let short = |check: &Value| {
        ["component", "check", "status"].map(|key| check[key].as_str().unwrap().to_owned())
    };
    (*code, all.iter().map(short).collect(), all)
}

/// Its checks pass or warn.
const SANDBOX: &str = "service::sandbox";

#[test]
fn all_checks_pass_with_reachable_destinations_and_writable_directories() {
    let there = Destination::new(Mode::Take);
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path().join("new/profiles");
    let files = format!("{{directory: '{}'}}", directory.display());
    let config = forwarder(&[("otlp_grpc", otlp(there.address)), ("pprof_file", files)]);
    let (code, checks, all) = run_doctor(&config);
    assert_eq!(code, Some(0), "{all:#?}");
    let ok = |component: &str, check: &str| [component, check, "ok"].map(str::to_owned);
    assert!(
        checks.contains(&ok("exporter otlp_grpc", "handshake")),
        "{all:#?}"
    );
    assert!(
        checks.contains(&ok("exporter pprof_file", "directory")),
        "{all:#?}"
    );
    assert!(!directory.exists(), "doctor creates nothing");
    // The readable form.
    let output = run(&["doctor", "--config", path(&config.path)]);
    assert_eq!(output.code, Some(0), "{output:#?}");
    assert!(
        output
            .stdout
            .contains("exporter otlp_grpc\n  ok    handshake"),
        "{output:#?}"
    );
    assert!(output.stdout.ends_with(" 0 fail\n"), "{output:#?}");
}

#[test]
fn reports_each_missing_requirement_with_its_fix() {
    let closed = ClosedPort::reserve();
    let strict = Destination::new(Mode::Take);
    strict.set(Mode::Refuse(Status::new(Code::Unauthenticated, "no token")));
    let folder = tempfile::tempdir().unwrap();
    let in_the_way = folder.path().join("file");
    std::fs::write(&in_the_way, "").unwrap();
    let config = forwarder(&[
        ("otlp_grpc/refuses", otlp(closed.address)),
        ("otlp_grpc/strict", otlp(strict.address)),
        (
            "otlp_http",
            format!("{{endpoint: 'http://{}'}}", closed.address),
        ),
        ("otlp_grpc/nameless", otlp("no-such-host.invalid:4317")),
        (
            "pprof_file",
            format!("{{directory: '{}'}}", in_the_way.display()),
        ),
    ]);
    let (code, _, all) = run_doctor(&config);
    assert_eq!(code, Some(1), "{all:#?}");
    let of_exporters = all.iter().filter(|it| it["component"] != SANDBOX);
    assert_eq!(of_exporters.clone().count(), 5, "{all:#?}");
    for check in of_exporters {
        assert_eq!(check["status"], "fail", "{check}");
        assert!(
            !check["consequence"].as_str().unwrap().is_empty(),
            "{check}"
        );
    }
    let fix = |component: &str| {
        let found = all.iter().find(|it| it["component"] == component);
        found.unwrap()["fix"].as_str().unwrap().to_owned()
    };
    let refused = "check that the server runs and listens on that address";
    assert_eq!(fix("exporter otlp_grpc/refuses"), refused);
    assert_eq!(fix("exporter otlp_http"), refused);
    assert!(fix("exporter otlp_grpc/strict").contains("token"));
    assert!(fix("exporter otlp_grpc/nameless").contains("DNS"));
    assert!(fix("exporter pprof_file").contains("another directory"));
}

#[test]
fn checks_ports_directories_and_credentials() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = listener.local_addr().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let storage = folder.path().join("queues");
    let locked = folder.path().join("locked");
    std::fs::create_dir(&locked).unwrap();
    let closed = ClosedPort::reserve();
    let lock = std::fs::File::create(locked.join("lock")).unwrap();
    lock.lock().unwrap();
    let config = file(
        "profcol.yaml",
        format!(
            "
extensions:
  file_storage: {{directory: '{storage}', create_directory: true}}
  file_storage/locked: {{directory: '{locked}'}}
  health_check: {{endpoint: '{taken}'}}
  bearertokenauth: {{filename: '{missing}'}}
receivers:
  otlp: {{protocols: {{grpc: {{endpoint: '0.0.0.0:0'}}, http: {{endpoint: '127.0.0.1:0'}}}}}}
  otlp_file: {{include: ['{missing}*']}}
  padata: {{storage_path: '{missing}'}}
processors: {{symbolize: {{debuginfod: {{urls: ['http://{closed}'], cache_directory: '{storage}'}}}}}}
exporters: {{nop: }}
service:
  extensions: [file_storage, file_storage/locked, health_check, bearertokenauth]
  telemetry: {{metrics: {{level: none}}}}
  pipelines: {{profiles: {{receivers: [otlp, otlp_file, padata], processors: [symbolize], exporters: [nop]}}}}
",
            storage = storage.display(),
            locked = locked.display(),
            missing = folder.path().join("missing").display(),
            closed = closed.address,
        ),
    );
    let (code, checks, all) = run_doctor(&config);
    assert_eq!(code, Some(1), "{all:#?}");
    for expected in [
        ["extension file_storage", "directory", "ok"],
        ["extension file_storage", "lock", "ok"],
        ["extension file_storage/locked", "lock", "warn"],
        ["extension health_check", "listen", "fail"],
        ["extension bearertokenauth", "credentials", "fail"],
        ["receiver otlp", "listen_grpc", "warn"],
        ["receiver otlp", "listen_http", "ok"],
        ["receiver otlp_file", "files", "warn"],
        ["receiver padata", "directory", "fail"],
        ["processor symbolize", "debuginfod", "warn"],
        ["processor symbolize", "directory", "ok"],
        [SANDBOX, "reader", "ok"],
    ] {
        let expected = expected.map(str::to_owned);
        assert!(checks.contains(&expected), "no {expected:?} in {all:#?}");
    }
    let found = |name: &str| {
        let check = all.iter().find(|it| it["check"] == name);
        check.unwrap()["found"].as_str().unwrap().to_owned()
    };
    assert!(found("listen").starts_with(&format!("{taken} is in use by ")));
    assert!(!storage.exists(), "doctor creates nothing");
}

#[test]
fn gives_up_on_silent_destinations_and_checks_all_concurrently() {
    let silent: Vec<Destination> = (0..6).map(|_| Destination::new(Mode::Take)).collect();
    let names: Vec<String> = (0..6).map(|it| format!("otlp_grpc/{it}")).collect();
    let exporters: Vec<(&str, String)> = names
        .iter()
        .zip(&silent)
        .map(|(name, destination)| {
            destination.set(Mode::Hang);
            (name.as_str(), otlp(destination.address))
        })
        .collect();
    let config = forwarder(&exporters);
    let began = Instant::now();
    let (code, _, all) = run_doctor(&config);
    // Sequential checks would take 24 seconds.
    assert!(
        began.elapsed() < Duration::from_secs(15),
        "{:?}",
        began.elapsed()
    );
    assert_eq!(code, Some(1), "{all:#?}");
    let failed = all.iter().filter(|it| it["status"] == "fail");
    assert_eq!(failed.count(), 6, "{all:#?}");
}

#[test]
fn reports_directories_of_other_users_to_an_unprivileged_user() {
    if !is_root() {
        skip("only root can become another user");
        return;
    }
    use std::os::unix::process::CommandExt;
    let folder = tempfile::tempdir().unwrap();
    let private = folder.path().join("private");
    std::fs::create_dir(&private).unwrap();
    let options = format!("{{directory: '{}'}}", private.display());
    // That user may not read the file either, so it comes through the command line.
    let config = std::fs::read_to_string(forwarder(&[("pprof_file", options)]).path).unwrap();
    let uri = format!("yaml:{config}");
    let mut command = profcol(&["doctor", "--config", &uri]);
    let output = ended(command.uid(NOBODY).gid(NOBODY));
    assert_eq!(output.code, Some(1), "{output:#?}");
    assert!(output.stdout.contains("fail  directory"), "{output:#?}");
    assert!(output.stdout.contains("fix: "), "{output:#?}");
}

#[test]
fn reports_a_wrong_configuration_like_validate() {
    let config = file("bad.yaml", "receivers: {nap: }\nexporters: {nop: }\n");
    let output = run(&["doctor", "--config", path(&config.path)]);
    assert_eq!(output.code, Some(78), "{output:#?}");
    assert!(
        output.stderr.contains("did you mean \"nop\"?"),
        "{output:#?}"
    );
}
