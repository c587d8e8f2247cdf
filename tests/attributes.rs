//! Process metadata, and the effect of relabel rules on it.

use profcol_test_harness::support::{Ended, file, path, run};

const RULES: &str = "
receivers: {nop: }
processors:
  relabel:
    configs:
      - {source_labels: [__meta_kubernetes_pod_name], target_label: pod}
      - {source_labels: [pod], regex: '([^-]+)-.*', target_label: __tmp, replacement: $$1}
      - {regex: host.*, action: labeldrop}
      - {source_labels: [comm], regex: apt.*, action: drop}
exporters: {nop: }
service: {pipelines: {profiles: {receivers: [nop], processors: [relabel], exporters: [nop]}}}
";

#[test]
fn relabel_test_shows_the_effect_of_each_rule() {
    let config = file("rules.yaml", RULES);
    let check = |labels: &str, expected: &str| {
        let config = path(&config.path);
        let Ended {
            code,
            stdout,
            stderr,
        } = run(&["relabel", "test", "--config", config, "--labels", labels]);
        assert_eq!((code, stderr.as_str()), (Some(0), ""), "{labels}");
        assert_eq!(stdout, expected, "{labels}");
    };
    let rules = [
        "rule 1: replace, source_labels [__meta_kubernetes_pod_name], target_label \"pod\"\n",
        "rule 2: replace, source_labels [pod], regex \"([^-]+)-.*\", target_label \"__tmp\"\n",
        "rule 3: labeldrop, regex \"host.*\"\n",
        "rule 4: drop, source_labels [comm], regex \"apt.*\"\n",
    ];
    let [one, two, three, four] = rules;
    check(
        "k8s.pod.name=web-1,host.name=n1",
        &format!(
            "relabel\n
before:
  host.name = \"n1\"  (also host_name, node)
  k8s.pod.name = \"web-1\"  (also k8s_pod_name, __meta_kubernetes_pod_name)\n
{one}  + pod = \"web-1\"\n
{two}  + __tmp = \"web\"\n
{three}  - host.name = \"n1\"\n
{four}  changes nothing\n
attributes after:
  k8s.pod.name = \"web-1\"
  pod = \"web-1\"\n\n"
        ),
    );
    check(
        "comm=apt-get",
        &format!(
            "relabel\n
before:
  comm = \"apt-get\"\n
{one}  changes nothing\n
{two}  changes nothing\n
{three}  changes nothing\n
{four}  drops it\n"
        ),
    );
}

#[test]
fn relabel_test_reports_missing_input() {
    let config = file("rules.yaml", RULES);
    let other = file(
        "other.yaml",
        RULES
            .replace("relabel]", "]")
            .replace("  relabel:", "  filter:"),
    );
    let check = |arguments: &[&str], code: i32, expected: &str| {
        let ended = run(&[&["relabel", "test"], arguments].concat());
        assert_eq!(ended.code, Some(code), "{arguments:?}: {ended:?}");
        assert!(ended.stderr.contains(expected), "{arguments:?}: {ended:?}");
    };
    let config = path(&config.path);
    check(&["--config", config], 2, "--pid <PID>|--labels <LABELS>");
    check(
        &["--config", config, "--labels", "a"],
        2,
        "must be name=value",
    );
    check(
        &["--config", config, "--pid", "4294967295"],
        1,
        "process 4294967295 not found",
    );
    check(
        &["--labels", "a=b"],
        2,
        "at least one config flag must be provided",
    );
    check(
        &["--config", path(&other.path), "--labels", "a=b"],
        78,
        "has invalid keys: configs",
    );
    let none = "yaml:{receivers: {nop: }, exporters: {nop: }, service: {pipelines: {profiles: {receivers: [nop], exporters: [nop]}}}}";
    check(
        &["--config", none, "--labels", "a=b"],
        78,
        "has no relabel processor",
    );
}

#[test]
fn processes_lists_metadata() {
    let own = std::process::id().to_string();
    for arguments in [&["processes"][..], &["processes", "--pid", &own]] {
        let ended = run(&[arguments, &["--format", "json"]].concat());
        assert_eq!(ended.code, Some(0), "{ended:?}");
        let known: serde_json::Value = serde_json::from_str(&ended.stdout).expect("it is JSON");
        let of_this = known.get(&own).expect("this one runs");
        let path = std::env::current_exe().expect("this one has a file");
        let expected = path.file_name().and_then(|name| name.to_str());
        let found = of_this
            .get("process.executable.name")
            .and_then(|name| name.as_str());
        assert_eq!(found, expected);
    }
}

#[cfg(feature = "ebpf_cpu")]
#[test]
fn processes_names_their_language_runtimes() {
    use profcol_test_harness::support::skip;

    let of = |program: &str, script: &str| {
        let started = std::process::Command::new(program)
            .args(["-e", script])
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn();
        let Ok(mut started) = started else {
            skip(&format!("there is no {program}"));
            return None;
        };
        // It signals when it is running.
        let mut first = [0];
        let output = started.stdout.as_mut().expect("it is piped");
        std::io::Read::read_exact(output, &mut first).expect("it starts");
        let pid = started.id().to_string();
        let ended = run(&["processes", "--pid", &pid, "--format", "json"]);
        let known: serde_json::Value = serde_json::from_str(&ended.stdout).expect("it is JSON");
        let _ = started.kill();
        let _ = started.wait();
        Some(known[&pid].clone())
    };
    if let Some(known) = of("node", "console.log(1); process.stdin.resume()") {
        assert_eq!(known["process.runtime.name"], "Node.js", "{known}");
        if cfg!(target_arch = "x86_64") {
            let version = known["process.runtime.version"].as_str();
            assert!(version.is_some_and(|it| it.contains('.')), "{known}");
        }
    }
    if let Some(known) = of("perl", "$| = 1; print 1; <STDIN>") {
        assert_eq!(known["process.runtime.name"], "Perl", "{known}");
        if cfg!(target_arch = "x86_64") {
            let version = known["process.runtime.version"].as_str();
            assert!(version.is_some_and(|it| it.starts_with("5.")), "{known}");
        }
    }
}

#[test]
fn processes_warns_of_a_container_runtime_that_does_not_answer() {
    let directory = tempfile::tempdir().expect("a directory for the socket");
    let socket = directory.path().join("hangs.sock");
    let _listener = std::os::unix::net::UnixListener::bind(&socket).expect("a short path");
    let socket = path(&socket);
    let config = file(
        "profcol.yaml",
        format!(
            "receivers: {{nop: }}
processors: {{container: {{sockets: {{docker: ['{socket}', '{socket}.missing']}}}}}}
exporters: {{nop: }}
service: {{pipelines: {{profiles: {{receivers: [nop], processors: [container], exporters: [nop]}}}}}}
"
        ),
    );
    let pid = std::process::id().to_string();
    let config = path(&config.path);
    let ended = run(&["processes", "--pid", &pid, "--config", config]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(
        ended.stdout.contains("process.executable.path"),
        "{ended:?}"
    );
    let expected = format!(
        "warning: {socket}: no response within 2s; its containers are shown by what their cgroups say\n"
    );
    assert_eq!(ended.stderr, expected);
}
