//! Secrets of the configuration show up nowhere: random ones are planted, and everything that profcol prints, serves and
//! stores is searched for them.

#![allow(clippy::unwrap_used, reason = "a panic fails the test")]

use std::collections::hash_map::RandomState;
use std::fs;
use std::hash::{BuildHasher, Hasher};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command};

use base64::Engine;
use base64::prelude::BASE64_STANDARD_NO_PAD;
use profcol::REGISTRY;
use profcol_component::testkit::profiles;
use profcol_component::{Entry, Kind};
use profcol_net::{Compression, HttpClientSettings, Message};
use profcol_test_harness::backend::{ClosedPort, HttpSender, wait_until};
use profcol_test_harness::peers::{free_address, get};
use profcol_test_harness::support::{Ended, ended, file, path, profcol};
use serde_json::{Value, json};

/// Random text, which nothing contains by chance.
fn secret() -> String {
    let random = || RandomState::new().build_hasher().finish();
    format!("s{:016x}{:016x}", random(), random())
}

/// How text would show if it were part of something encoded as Base64: by its place in that.
fn coded(secret: &str) -> impl Iterator<Item = String> {
    let parts = (0..3).map(move |offset| {
        let text = format!("{}{secret}", "x".repeat(offset));
        let coded = BASE64_STANDARD_NO_PAD.encode(text);
        // Without the characters that depend on what is before and after it.
        coded[4..coded.len() - 4].to_owned()
    });
    parts.collect::<Vec<_>>().into_iter()
}

#[track_caller]
fn assert_hides(what: &str, text: &str, secrets: &[String]) {
    for secret in secrets {
        for form in coded(secret).chain([secret.clone()]) {
            assert!(
                !text.contains(&form),
                "{what} has the secret {form}:\n{text}"
            );
        }
    }
}

// === every option ===

/// An option that holds a secret: the path to it, where `[]` is an item of a list and `{}` a value of a map.
struct SecretOption {
    path: Vec<String>,
    is_url: bool,
}

/// The options of a schema that hold secrets.
fn secret_options(root: &Value, schema: &Value, path: &[String], found: &mut Vec<SecretOption>) {
    const MAX_DEPTH: usize = 12;
    if path.len() > MAX_DEPTH {
        return;
    }
    let reference = schema.get("$ref").and_then(Value::as_str);
    if let Some(target) = reference.and_then(|it| root.pointer(it.strip_prefix('#')?)) {
        secret_options(root, target, path, found);
    }
    let format = schema.get("format").and_then(Value::as_str);
    if let Some("secret" | "secret-url") = format {
        let (path, is_url) = (path.to_vec(), format == Some("secret-url"));
        found.push(SecretOption { path, is_url });
    }
    for alternatives in ["anyOf", "oneOf", "allOf"] {
        let alternatives = schema.get(alternatives).and_then(Value::as_array);
        for alternative in alternatives.into_iter().flatten() {
            secret_options(root, alternative, path, found);
        }
    }
    let mut within = |key: &str, schema| {
        let path = [path, &[key.to_owned()]].concat();
        secret_options(root, schema, &path, found);
    };
    if let Some(items) = schema.get("items") {
        within("[]", items);
    }
    if let Some(values) = schema.get("additionalProperties") {
        within("{}", values);
    }
    let properties = schema.get("properties").and_then(Value::as_object);
    for (key, schema) in properties.into_iter().flatten() {
        within(key, schema);
    }
}

impl SecretOption {
    /// The settings of a component with this option alone.
    fn set_to(&self, value: &str) -> Value {
        self.path
            .iter()
            .rev()
            .fold(json!(value), |inner, key| match &**key {
                "[]" => json!([inner]),
                "{}" => json!({ "authorization": inner }),
                // The other half of a pair in a list.
                "value" => json!({ "name": "authorization", "value": inner }),
                key => json!({ key: inner }),
            })
    }
}

fn names<C: ?Sized>(
    kind: Kind,
    entries: &'static [Entry<C>],
) -> impl Iterator<Item = (Kind, &'static str, Value)> {
    entries
        .iter()
        .map(move |entry| (kind, entry.name, (entry.schema)()))
}

/// Each alone, in configurations that are valid, invalid elsewhere, and not YAML.
#[test]
fn no_report_shows_a_secret_option() {
    let components = names(Kind::Receiver, REGISTRY.receivers)
        .chain(names(Kind::Processor, REGISTRY.processors))
        .chain(names(Kind::Exporter, REGISTRY.exporters))
        .chain(names(Kind::Connector, REGISTRY.connectors))
        .chain(names(Kind::Extension, REGISTRY.extensions));
    let mut checked = Vec::new();
    for (kind, name, schema) in components {
        let mut options = Vec::new();
        secret_options(&schema, &schema, &[], &mut options);
        for option in options {
            let secret = secret();
            let value = match option.is_url {
                true => format!("http://user:{secret}@localhost:1/path?key={secret}"),
                false => secret.clone(),
            };
            let settings = option.set_to(&value);
            let what = format!("{kind}s::{name}::{}", option.path.join("::"));
            let mut config = json!({
                "receivers": { "nop": null },
                "exporters": { "nop": null },
                "service": { "pipelines": { "profiles": { "receivers": ["nop"], "exporters": ["nop"] } } },
            });
            let section = format!("{kind}s");
            config[&section][name] = settings.clone();
            let mut beside = config.clone();
            beside[&section][name]["unheard_of"] = json!(secret);
            let misspelt = config
                .to_string()
                .replace(name, &format!("{name}_misspelt"));
            // All in one line, which reports show.
            let broken = format!("{{{section}: {{{name}: {settings}, }}}}, ] password: {secret}");
            for text in [config.to_string(), beside.to_string(), misspelt, broken] {
                let config = file("config.yaml", text);
                for arguments in [
                    &["validate", "--config", path(&config.path)][..],
                    &[
                        "print-config",
                        "--validate=false",
                        "--config",
                        path(&config.path),
                    ],
                ] {
                    let Ended { stdout, stderr, .. } = ended(&mut profcol(arguments));
                    assert_hides(&what, &stdout, std::slice::from_ref(&secret));
                    assert_hides(&what, &stderr, std::slice::from_ref(&secret));
                }
            }
            checked.push(what);
        }
    }
    for expected in [
        "exporters::otlp_http::proxy_url",
        "exporters::otlp_http::headers::{}",
        "exporters::parca::bearer_token",
        "processors::symbolize::debuginfod::urls::[]",
        "extensions::bearertokenauth::tokens::[]",
        "receivers::otlp::protocols::grpc::tls::key_pem",
    ] {
        assert!(checked.iter().any(|it| it == expected), "{checked:#?}");
    }
}

// === a running service ===

struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // Both fail only if it has already exited.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The content of all files below a directory, except those whose name begins with `config`.
fn files_below(folder: &Path, found: &mut String) {
    for entry in fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let path = entry.path();
        if path.is_dir() {
            files_below(&path, found);
        } else if !entry.file_name().to_string_lossy().starts_with("config") {
            found.push_str(&String::from_utf8_lossy(&fs::read(&path).unwrap()));
        }
    }
}

fn post(to: SocketAddr, token: &str) -> u16 {
    let settings = HttpClientSettings {
        compression: Compression::None,
        headers: profcol_config::Headers(vec![(
            "authorization".to_owned(),
            format!("Bearer {token}").as_str().into(),
        )]),
        ..HttpClientSettings::default()
    };
    let body = Message::from(profiles(2).to_wire());
    let sender = HttpSender::with(&settings, &format!("http://{to}"));
    sender.post("application/x-protobuf", &body).status.as_u16()
}

#[test]
fn a_running_service_shows_no_secret() {
    let folder = tempfile::tempdir().unwrap();
    let in_directory = |name: &str| folder.path().join(name);
    let [otlp, metrics, pages, page, health] = [(); 5].map(|()| free_address());
    let nobody = ClosedPort::reserve();
    let closed = nobody.address;
    let planted: [String; 11] = std::array::from_fn(|_| secret());
    let [
        accepted,
        sent_token,
        password,
        header,
        user,
        query,
        proxy,
        parca,
        sasl,
        debuginfod,
        environment,
    ] = &planted;
    let config = format!(
        "
receivers:
  otlp: {{protocols: {{http: {{endpoint: '{otlp}', auth: {{authenticator: bearertokenauth/server}}}}}}}}
processors:
  symbolize: {{debuginfod: {{urls: ['http://user:{debuginfod}@{closed}/?key={debuginfod}'], cache_directory: {cache}}}}}
exporters:
  otlp_grpc/token: {{endpoint: '{closed}', tls: {{insecure: true}}, headers: {{x-key: {header}}}, auth: {{authenticator: bearertokenauth/client}}, sending_queue: {{storage: file_storage}}}}
  otlp_http/password: {{endpoint: 'http://{closed}', headers: {{x-key: {header}}}, auth: {{authenticator: basicauth}}}}
  otlp_http/url: {{endpoint: 'http://name:{user}@{closed}', profiles_endpoint: 'http://name:{user}@{closed}/v1?key={query}'}}
  otlp_http/proxy: {{endpoint: 'https://backend.test', proxy_url: 'http://name:{proxy}@{closed}'}}
  otlp_http/environment: {{endpoint: 'https://backend.test', headers: {{x-key: '${{env:PLANTED}}'}}}}
  parca: {{endpoint: '{closed}', tls: {{insecure: true}}, bearer_token: {parca}}}
  kafka: {{brokers: ['{closed}'], auth: {{sasl: {{username: name, password: {sasl}, mechanism: PLAIN}}}}}}
  live_view: {{endpoint: '{page}'}}
extensions:
  bearertokenauth/server: {{token: {accepted}}}
  bearertokenauth/client: {{token: {sent_token}}}
  basicauth: {{client_auth: {{username: name, password: {password}}}}}
  file_storage: {{directory: {storage}, create_directory: true}}
  health_check: {{endpoint: '{health}'}}
  zpages: {{endpoint: '{pages}'}}
service:
  extensions: [bearertokenauth/server, bearertokenauth/client, basicauth, file_storage, health_check, zpages]
  shutdown_timeout: 1s
  telemetry:
    logs: {{level: debug, sampling: {{enabled: false}}, output_paths: [stderr, {log}]}}
    metrics: {{readers: [{{pull: {{exporter: {{prometheus: {{host: '{host}', port: {port}}}}}}}}}]}}
  pipelines:
    profiles:
      receivers: [otlp]
      processors: [symbolize]
      exporters: [otlp_grpc/token, otlp_http/password, otlp_http/url, otlp_http/proxy, otlp_http/environment, parca, kafka, live_view]
",
        cache = path(&in_directory("cache")),
        storage = path(&in_directory("storage")),
        log = path(&in_directory("log")),
        host = metrics.ip(),
        port = metrics.port(),
    );
    let config_path = in_directory("config.yaml");
    fs::write(&config_path, &config).unwrap();
    let command = |arguments: &[&str]| {
        let mut command = profcol(&[arguments, &["--config", path(&config_path)]].concat());
        let proxy = format!("http://name:{environment}@{closed}");
        command
            .env("PLANTED", environment)
            .env("HTTPS_PROXY", &proxy)
            .env("HTTP_PROXY", proxy);
        command
    };
    let output = fs::File::create(in_directory("output")).unwrap();
    let started = command(&[])
        .stdout(output.try_clone().unwrap())
        .stderr(output)
        .spawn();
    let mut running = Running(started.unwrap());
    let logged = || fs::read_to_string(in_directory("output")).unwrap();
    wait_until("profcol to be ready", || {
        logged().contains("Everything is ready")
    });
    assert_eq!(post(otlp, accepted), 200, "{}", logged());
    assert_eq!(post(otlp, sent_token), 401);
    let failing = [
        "otlp_grpc/token",
        "otlp_http/password",
        "otlp_http/url",
        "otlp_http/proxy",
        "otlp_http/environment",
        "parca",
        "kafka",
    ];
    wait_until("all destinations to fail", || {
        let log = logged();
        let has_failed = |id: &&str| {
            let mut lines = log.lines();
            lines.any(|line| line.contains("Exporting failed") && line.contains(*id))
        };
        failing.iter().all(has_failed)
    });
    // A reload is refused because of an error next to a secret.
    let refused = config.replace("bearer_token:", "unheard_of: 1, bearer_token:");
    fs::write(&config_path, refused).unwrap();
    let pid = running.0.id().to_string();
    let signal = |name: &str| {
        let sent = Command::new("kill").args([name, pid.as_str()]).status();
        assert!(sent.unwrap().success());
    };
    signal("-HUP");
    wait_until("the reload to be refused", || {
        logged().contains("Failed to reload the configuration")
    });
    fs::write(&config_path, &config).unwrap();

    let mut shown = String::new();
    for (server, paths) in [
        (metrics, &["/metrics"][..]),
        (health, &["/"]),
        (
            pages,
            &["/debug/servicez", "/debug/pipelinez", "/debug/extensionz"],
        ),
        (
            page,
            &[
                "/",
                "/api/v1/status",
                "/api/v1/pipelines",
                "/api/v1/configuration",
                "/api/v1/log",
            ],
        ),
    ] {
        for path in paths {
            let answer = get(server, path);
            assert!(answer.starts_with("HTTP/1.1 200"), "{path}: {answer}");
            assert_hides(path, &answer, &planted);
            shown.push_str(&answer);
        }
    }
    // What was searched is what it is meant to be.
    for expected in ["otlp_http/proxy", "[REDACTED]@", "unheard_of"] {
        assert!(shown.contains(expected), "{expected} in {shown}");
    }
    for arguments in [
        &["doctor", "--json"][..],
        &["doctor"],
        &["print-config"],
        &["print-config", "--format=json"],
        &["validate"],
    ] {
        let Ended { stdout, stderr, .. } = ended(&mut command(arguments));
        let what = arguments.join(" ");
        assert!(!stdout.is_empty() || what == "validate", "{what}: {stderr}");
        assert_hides(&what, &stdout, &planted);
        assert_hides(&what, &stderr, &planted);
    }
    signal("-TERM");
    running.0.wait().unwrap();
    let storage = in_directory("storage");
    let stored = ended(&mut profcol(&["storage", "inspect", path(&storage)]));
    assert!(stored.stdout.contains("otlp_grpc"), "{stored:?}");
    assert_hides("storage inspect", &stored.stdout, &planted);
    let mut files = String::new();
    files_below(folder.path(), &mut files);
    assert!(files.contains("Shutdown complete") || files.contains("Stopping"));
    assert_hides("the files and the log", &files, &planted);
}
