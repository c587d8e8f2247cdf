//! Raw HTTP requests to the running server, while the test sets the states of components: codes, paths and bodies.

use profcol_component::Status as ComponentState;
use profcol_component::StatusBoard;
use profcol_component::testkit::context;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::*;
use profcol_component::testkit::load;

/// A running health check.
struct Running {
    address: String,
    context: BuildContext,
    _task: JoinSet<Result<(), RunError>>,
}

impl Running {
    async fn start(options: &str) -> Self {
        let options = format!("{{endpoint: '127.0.0.1:0', {options}}}");
        let context = context("health_check");
        let extension = Arc::new(HealthCheck::new(&load(&options).unwrap(), &context));
        extension.start().await.unwrap();
        let address = extension
            .server
            .lock()
            .as_ref()
            .unwrap()
            .local_addr()
            .to_string();
        let mut task = JoinSet::new();
        task.spawn(extension.run(Stop::new()));
        Self {
            address,
            context,
            _task: task,
        }
    }

    fn set(&self, component: &str, state: ComponentState) {
        self.context
            .shared
            .get::<StatusBoard>()
            .component(component.to_owned())
            .set(state);
    }

    /// The status, the content type and the body.
    async fn get(&self, path: &str) -> (u16, String, String) {
        let mut stream = TcpStream::connect(&self.address).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let kind = head
            .lines()
            .find_map(|line| line.strip_prefix("content-type: "));
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        (status, kind.unwrap_or_default().to_owned(), body.to_owned())
    }
}

#[tokio::test]
async fn is_unhealthy_while_a_component_starts_stops_or_failed() {
    let running = Running::start("").await;
    let check = async |state: ComponentState, expected: u16| {
        running.set("exporter otlp", state.clone());
        assert_eq!(running.get("/").await.0, expected, "{state:?}");
    };
    running.set("receiver otlp", ComponentState::Ok);
    check(ComponentState::Starting, 503).await;
    check(ComponentState::Ok, 200).await;
    check(ComponentState::RecoverableError("queue full".into()), 200).await;
    check(ComponentState::PermanentError("disk gone".into()), 503).await;
    check(ComponentState::Stopping, 503).await;
    check(ComponentState::Stopped, 503).await;
}

#[tokio::test]
async fn answers_with_the_collectors_json() {
    let running = Running::start("").await;
    running.set("receiver otlp", ComponentState::Starting);
    let unavailable =
        r#"{"status":"Server not available","upSince":"0001-01-01T00:00:00Z","uptime":""}"#;
    let json = "application/json".to_owned();
    assert_eq!(
        running.get("/").await,
        (503, json.clone(), unavailable.to_owned())
    );
    running.set("receiver otlp", ComponentState::Ok);
    let (status, kind, body) = running.get("/").await;
    assert_eq!((status, kind), (200, json));
    let body: serde_json::Value = serde_json::from_str(&body).unwrap();
    assert_eq!(body["status"], "Server available");
    let since: jiff::Timestamp = body["upSince"].as_str().unwrap().parse().unwrap();
    assert!(since <= jiff::Timestamp::now());
    body["uptime"]
        .as_str()
        .unwrap()
        .parse::<profcol_config::Duration>()
        .unwrap();
    let again: serde_json::Value = serde_json::from_str(&running.get("/").await.2).unwrap();
    assert_eq!(again["upSince"], body["upSince"]);
}

#[tokio::test]
async fn answers_with_configured_bodies() {
    let running = Running::start("response_body: {healthy: fine, unhealthy: broken}").await;
    let text = "text/plain; charset=utf-8".to_owned();
    assert_eq!(
        running.get("/").await,
        (200, text.clone(), "fine".to_owned())
    );
    running.set("receiver otlp", ComponentState::Starting);
    assert_eq!(running.get("/").await, (503, text, "broken".to_owned()));
}

#[tokio::test]
async fn answers_at_its_path_only() {
    let check = async |own: &str, requested: &str, expected: u16| {
        let running = Running::start(&format!("path: {own}")).await;
        assert_eq!(
            running.get(requested).await.0,
            expected,
            "{own} {requested}"
        );
    };
    check("/", "/any/thing", 200).await;
    check("/health", "/health?verbose", 200).await;
    check("/health", "/health/x", 404).await;
    check("/health", "/", 404).await;
    check("/health/", "/health/x", 200).await;
}

#[tokio::test]
async fn startup_fails_if_the_address_is_in_use_and_a_stop_releases_it() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("health.sock").display().to_string();
    let config = load(&format!("{{transport: unix, endpoint: '{path}'}}")).unwrap();
    let context = context("health_check");
    let first = Arc::new(HealthCheck::new(&config, &context));
    let second = HealthCheck::new(&config, &context);
    first.start().await.unwrap();
    let error = second.start().await.unwrap_err().to_string();
    assert!(error.contains(&path), "{error}");
    let stop = Stop::new();
    let mut running = JoinSet::new();
    running.spawn(first.run(stop.clone()));
    stop.cancel();
    running.join_next().await.unwrap().unwrap().unwrap();
    second.start().await.unwrap();
}

#[test]
fn validates_the_options() {
    let check = |options: &str, expected: &str| {
        assert_eq!(load::<HealthCheckConfig>(options).unwrap_err(), expected);
    };
    check(
        "{endpoint: '', path: health}",
        "endpoint: bad config: endpoint must be specified\n\
         path: bad config: path must start with /",
    );
    let error = load::<HealthCheckConfig>("endpoint: nonsense").unwrap_err();
    assert!(error.starts_with("endpoint: "), "{error}");
}
