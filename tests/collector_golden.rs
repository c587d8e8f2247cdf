//! Compares configuration handling with a real OpenTelemetry Collector: accepted, rejected, and resolved values.

use std::collections::BTreeMap;
use std::path::Path;

use profcol_config::{Sources, yaml};
use profcol_test_harness::support::{Ended, ended, file, golden, path, profcol};
use serde_json::Value;

/// Rejected by the Collector and accepted here, as documented: its `batch` does not support profiles.
const ACCEPTED_HERE: &[&str] = &["bad-batch-profiles"];

/// Required parts of the error for each rejected file: at least the Collector's facts, and all problems where the
/// Collector stops at the first.
const REFUSED: &[(&str, &[&str])] = &[
    (
        "bad-compression",
        &[
            "exporters::otlp_grpc::compression: unsupported compression type \"brotli\"",
            "gzip",
        ],
    ),
    (
        "bad-dangling",
        &[
            "service::extensions: references extension \"health_check\" which is not configured",
            "service::pipelines::profiles: references receiver \"otlp/2\" which is not configured",
            "service::pipelines::profiles: references processor \"batch\" which is not configured",
            "service::pipelines::profiles: references exporter \"nope\" which is not configured",
        ],
    ),
    (
        "bad-duplicate-key",
        &[
            "mapping key \"receivers\" already defined at line 1",
            "yaml:2:1",
        ],
    ),
    (
        "bad-duration",
        &["exporters::otlp_grpc::timeout: time: unknown unit \"parsecs\" in duration \"5parsecs\""],
    ),
    ("bad-empty", &["empty configuration file"]),
    (
        "bad-endpoint",
        &[
            "exporters::otlp_grpc: requires a non-empty \"endpoint\"",
            "exporters::otlp_http::endpoint: \"not a url\"",
        ],
    ),
    (
        "bad-env-name",
        &[
            "exporters::debug::verbosity: environment variable \"hello.world\" has invalid name: must match regex ^[a-zA-Z_][a-zA-Z0-9_]*$",
        ],
    ),
    (
        "bad-id",
        &[
            "receivers: in \"otlp/\" id: the part after / should not be empty",
            "receivers: in \"o tlp\" id: invalid character(s) in type \"o tlp\"",
            "receivers: in \"/x\" id: the part before / should not be empty",
        ],
    ),
    (
        "bad-memory-limiter",
        &[
            "processors::memory_limiter::check_interval: 'check_interval' must be greater than zero",
            "'limit_percentage' must be",
            "'spike_limit_mib' must be smaller than 'limit_mib'",
        ],
    ),
    (
        "bad-no-exporters",
        &["no exporter configuration specified in config"],
    ),
    (
        "bad-no-pipelines",
        &["service::pipelines: service must have at least one pipeline"],
    ),
    (
        "bad-no-protocol",
        &["receivers::otlp: must specify at least one protocol when using the OTLP receiver"],
    ),
    (
        "bad-no-receivers",
        &["no receiver configuration specified in config"],
    ),
    (
        "bad-pipeline-no-receiver",
        &["service::pipelines::profiles: must have at least one receiver"],
    ),
    (
        "bad-processor-twice",
        &["service::pipelines::profiles: references processor \"memory_limiter\" multiple times"],
    ),
    (
        "bad-queue",
        &[
            "exporters::otlp_grpc::sending_queue::num_consumers: `num_consumers` must be positive",
            "exporters::otlp_grpc::sending_queue::queue_size: `queue_size` must be positive",
            "exporters::otlp_grpc::sending_queue::batch::max_size: `max_size` (10) must be greater or equal to `min_size` (100)",
            "initial_interval value must be greater than or equal to 0",
            "multiplier value must be greater than or equal to 0",
        ],
    ),
    (
        "bad-service-key",
        &[
            "service: has invalid keys: telemetri",
            "did you mean \"telemetry\"?",
        ],
    ),
    (
        "bad-signal",
        &[
            "service::pipelines: in \"profilez\" id: unknown pipeline signal: \"profilez\"",
            "did you mean \"profiles\"?",
        ],
    ),
    (
        "bad-tls",
        &[
            "exporters::otlp_grpc::tls::min_version:",
            "unsupported TLS version",
            "\"1.9\"",
        ],
    ),
    (
        "bad-top-key",
        &["has invalid keys: exporter", "did you mean \"exporters\"?"],
    ),
    (
        "bad-type",
        &[
            "receivers::otlp::protocols::grpc::max_recv_msg_size_mib: expected type 'int', got unconvertible type 'string'",
            "exporters::debug::sampling_initial: expected type 'int', got unconvertible type 'string'",
            "exporters::debug::use_internal_logger: expected type 'bool', got unconvertible type 'string'",
        ],
    ),
    (
        "bad-unknown-key",
        &[
            "receivers::otlp::protocols::grpc: has invalid keys: endpiont",
            "did you mean \"endpoint\"?",
            "receivers::otlp::protocols: has invalid keys: htttp",
            "did you mean \"http\"?",
            "exporters::debug: has invalid keys: verbosty",
            "did you mean \"verbosity\"?",
        ],
    ),
    (
        "bad-unknown-type",
        &["receivers: unknown type: \"nosuch\" for id: \"nosuch\" (valid values: ["],
    ),
    (
        "bad-verbosity",
        &[
            "exporters::debug::verbosity: unknown metrics level \"loud\"",
            "detailed",
        ],
    ),
    ("bad-yaml", &["not valid YAML", "yaml:1:12", "still open"]),
];

/// Intentional differences of `print-config`: the end of a path, and the reason.
const DIFFERENT: &[(&str, &str)] = &[
    (
        "_gc_interval_when_hard_limited",
        "refused: there is no garbage collector",
    ),
    (
        "_gc_interval_when_soft_limited",
        "refused: there is no garbage collector",
    ),
    (
        "::partition::cache_size",
        "refused: partitions that hold nothing cost nothing",
    ),
    (
        "::partition::idle_timeout",
        "refused: partitions that hold nothing cost nothing",
    ),
    (
        "::logs_url_path",
        "only profiles are received, on their fixed path",
    ),
    (
        "::metrics_url_path",
        "only profiles are received, on their fixed path",
    ),
    (
        "::traces_url_path",
        "only profiles are received, on their fixed path",
    ),
    ("::logs_endpoint", "only profiles are sent"),
    ("::metrics_endpoint", "only profiles are sent"),
    ("::traces_endpoint", "only profiles are sent"),
    (
        "::read_buffer_size",
        "buffers are smaller by default, and held only while they hold something",
    ),
    (
        "::write_buffer_size",
        "buffers are smaller by default, and held only while they hold something",
    ),
    (
        "::sizer",
        "the Collector prints its own value as {}; ours can be read again",
    ),
    (
        "::read_header_timeout",
        "headers that never end are cut off by default",
    ),
    (
        "::write_timeout",
        "clients that never read are cut off by default",
    ),
    (
        "service::telemetry::logs::error_output_paths",
        "refused: logging's own errors go to stderr",
    ),
    (
        "service::telemetry::resource::schema_url",
        "refused: Prometheus' format has no place for it",
    ),
];

/// A recorded run: its arguments and its result.
struct Recorded {
    arguments: Vec<String>,
    code: i32,
    stdout: String,
}

fn recorded(text: &str) -> Recorded {
    let field = |name: &str| {
        let mut lines = text.lines();
        lines
            .find_map(|line| line.strip_prefix(name))
            .unwrap_or_default()
            .trim()
            .to_owned()
    };
    let (_, stdout) = text.split_once("--- stdout\n").unwrap_or(("", text));
    let (stdout, _) = stdout.split_once("--- stderr").unwrap_or((stdout, ""));
    Recorded {
        arguments: field("arguments:")
            .split_whitespace()
            .map(str::to_owned)
            .collect(),
        code: field("exit:").parse().unwrap_or_default(),
        stdout: stdout.to_owned(),
    }
}

fn files(directory: &Path, suffix: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).expect("the directory exists") {
        let path = entry.expect("readable").path();
        let name = path
            .file_name()
            .and_then(|name| name.to_str())
            .unwrap_or_default();
        if let Some(stem) = name.strip_suffix(suffix) {
            let text = std::fs::read_to_string(&path).expect("readable");
            found.push((stem.to_owned(), text));
        }
    }
    found.sort();
    found
}

fn as_recorded(directory: &Path, name: &str, recorded: &Recorded) -> Ended {
    let arguments: Vec<&str> = recorded.arguments.iter().map(String::as_str).collect();
    let config = directory.join(format!("{name}.yaml"));
    ended(profcol(&arguments).args(["--config", path(&config)]))
}

#[test]
fn accepts_and_rejects_like_the_collector() {
    let directory = golden("collector");
    let expected: BTreeMap<_, _> = REFUSED.iter().copied().collect();
    let mut wrong = Vec::new();
    for (name, text) in files(&directory, ".validate.txt") {
        let recorded = recorded(&text);
        let answer = as_recorded(&directory, &name, &recorded);
        if recorded.code == 0 || ACCEPTED_HERE.contains(&name.as_str()) {
            let silent = answer.stdout.is_empty() && answer.stderr.is_empty();
            if answer.code != Some(0) || !silent {
                wrong.push(format!(
                    "{name} must be accepted without warnings: {answer:#?}"
                ));
            }
            continue;
        }
        let words = expected
            .get(name.as_str())
            .copied()
            .unwrap_or(&["no row in REFUSED"]);
        let missing: Vec<_> = words
            .iter()
            .filter(|words| !answer.stderr.contains(**words))
            .collect();
        if answer.code != Some(78) || !missing.is_empty() || !answer.stdout.is_empty() {
            let Ended { code, stderr, .. } = answer;
            wrong.push(format!(
                "{name} ended with {code:?} and without {missing:#?}:\n{stderr}"
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

#[test]
fn resolves_like_the_collector() {
    let directory = golden("collector");
    let mut wrong = Vec::new();
    let mut used = vec![false; DIFFERENT.len()];
    for suffix in [".print-config.txt", ".print-config-redacted.txt"] {
        for (name, text) in files(&directory, suffix) {
            let mut recorded = recorded(&text);
            if recorded.arguments.is_empty() {
                let mode = if suffix.contains("redacted") {
                    "redacted"
                } else {
                    "unredacted"
                };
                recorded.arguments = vec!["print-config".to_owned(), format!("--mode={mode}")];
            }
            let answer = match name.as_str() {
                "merge" => ended(
                    profcol(&["print-config", "--mode=unredacted"])
                        .args(["--config", path(&directory.join("merge-1.yaml"))])
                        .args(["--config", path(&directory.join("merge-2.yaml"))]),
                ),
                name => as_recorded(&directory, name, &recorded),
            };
            if answer.code != Some(0) {
                wrong.push(format!("{name}: {answer:#?}"));
                continue;
            }
            let (theirs, ours) = (parse(&recorded.stdout), parse(&answer.stdout));
            let mut compare = |path: &str, theirs: &Value, ours: Option<&Value>| {
                if same(theirs, ours) {
                    return;
                }
                match DIFFERENT.iter().position(|(end, _)| path.ends_with(end)) {
                    Some(row) => used[row] = true,
                    None => wrong.push(format!("{name}: {path}: {theirs} there, {ours:?} here")),
                }
            };
            walk("", &theirs, Some(&ours), &mut compare);
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    for ((end, reason), used) in DIFFERENT.iter().zip(used) {
        assert!(
            used,
            "{end} is no different ({reason}): take it out of the table"
        );
    }
}

fn parse(text: &str) -> Value {
    let mut sources = Sources::default();
    let id = sources.add("printed", text, None).expect("small");
    yaml::parse(&sources, id)
        .unwrap_or_else(|problem| panic!("{problem}:\n{text}"))
        .to_json()
}

/// Calls `compare` for each leaf value of `theirs`.
fn walk(
    path: &str,
    theirs: &Value,
    ours: Option<&Value>,
    compare: &mut dyn FnMut(&str, &Value, Option<&Value>),
) {
    let join = |key: &str| {
        if path.is_empty() {
            key.to_owned()
        } else {
            format!("{path}::{key}")
        }
    };
    match theirs {
        Value::Object(map) if !map.is_empty() => {
            for (key, value) in map {
                walk(
                    &join(key),
                    value,
                    ours.and_then(|ours| ours.get(key)),
                    compare,
                );
            }
        }
        Value::Array(items) if !items.is_empty() => {
            let length = ours.and_then(Value::as_array).map_or(0, Vec::len);
            if length != items.len() {
                return compare(path, theirs, ours);
            }
            for (index, value) in items.iter().enumerate() {
                walk(
                    &join(&index.to_string()),
                    value,
                    ours.and_then(|ours| ours.get(index)),
                    compare,
                );
            }
        }
        leaf => compare(path, leaf, ours),
    }
}

/// Compares numbers by value; an empty section of theirs matches any section of ours.
fn same(theirs: &Value, ours: Option<&Value>) -> bool {
    match (theirs, ours) {
        (Value::Number(theirs), Some(Value::Number(ours))) => theirs.as_f64() == ours.as_f64(),
        (Value::Object(_), Some(Value::Object(_))) => true,
        (theirs, ours) => ours == Some(theirs),
    }
}

/// One row of `expansion.md`.
struct Expansion<'a> {
    value: &'a str,
    environment: Vec<(&'a str, &'a str)>,
    resolved: &'a str,
}

fn expansions(text: &str) -> Vec<Expansion<'_>> {
    let rows = text.lines().filter(|line| line.starts_with("| `"));
    let expansion = |row| {
        let cells: Vec<&str> = str::trim_matches(row, '|')
            .split(" | ")
            .map(str::trim)
            .collect();
        let [value, environment, resolved] = cells[..] else {
            panic!("{row:?} has not three cells");
        };
        Expansion {
            value: value.trim_matches('`'),
            environment: variables(environment),
            resolved,
        }
    };
    rows.map(expansion).collect()
}

/// Of `` A=`x` B=`y` ``.
fn variables(mut text: &str) -> Vec<(&str, &str)> {
    let mut found = Vec::new();
    while let Some((name, rest)) = text.split_once("=`") {
        let (value, rest) = rest.split_once('`').expect("values are in backticks");
        found.push((name.trim(), value));
        text = rest;
    }
    found
}

#[test]
fn expands_like_the_collector() {
    let path = golden("expansion.md");
    let text = std::fs::read_to_string(path).expect("readable");
    let config = "
receivers: {nop: }
exporters: {nop: }
service:
  telemetry: {logs: {initial_fields: {value: 'VALUE'}}}
  pipelines: {profiles: {receivers: [nop], exporters: [nop]}}
";
    let mut wrong = Vec::new();
    let rows = expansions(&text);
    assert!(rows.len() > 20, "only {} rows were found", rows.len());
    for Expansion {
        value,
        environment,
        resolved,
    } in rows
    {
        let file = file("c.yaml", config.replace("VALUE", value));
        std::fs::write(file.directory.path().join("f.txt"), "from file\n").expect("written");
        let mut command = profcol(&["print-config", "--mode=unredacted", "--config", "c.yaml"]);
        command
            .current_dir(file.directory.path())
            .env("ENV_VALUE", "some expanded value");
        let answer = ended(command.envs(environment));
        let right = match resolved.strip_prefix("error: ") {
            Some(error) => {
                let (_, reason) = error
                    .rsplit_once("the configuration: ")
                    .unwrap_or(("", error));
                answer.code == Some(78) && answer.stderr.contains(reason)
            }
            None if resolved.starts_with("`from file`") => answer
                .stdout
                .contains("value: |\n                    from file\n"),
            None => answer
                .stdout
                .contains(&format!("value: {}\n", resolved.trim_matches('`'))),
        };
        if !right {
            wrong.push(format!("{value} should give {resolved}: {answer:#?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
