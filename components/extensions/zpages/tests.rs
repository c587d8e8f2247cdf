//! Raw HTTP requests to the running server: pages with hostile text, and refused hosts, paths and methods.

use profcol_component::Status as ComponentState;
use profcol_component::testkit::{context, load};
use profcol_component::{CurrentService, PipelineInfo, ServiceInfo, StatusBoard};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::*;

struct Running {
    address: String,
    context: BuildContext,
    _task: JoinSet<Result<(), RunError>>,
}

impl Running {
    async fn start() -> Self {
        let context = context("zpages");
        let config = load("{endpoint: '127.0.0.1:0', allowed_hosts: [proxy.example]}").unwrap();
        let extension = Arc::new(ZPages::new(&config, &context));
        extension.start().await.unwrap();
        let server = extension.server.lock();
        let address = server.as_ref().unwrap().local_addr().to_string();
        drop(server);
        let mut task = JoinSet::new();
        task.spawn(extension.run(Stop::new()));
        Self {
            address,
            context,
            _task: task,
        }
    }

    /// The response with its head.
    async fn ask(&self, request: &str, host: &str) -> String {
        let mut stream = TcpStream::connect(&self.address).await.unwrap();
        let request = format!("{request} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }
}

#[tokio::test]
async fn pages_show_components_and_their_metrics_as_text() {
    let running = Running::start().await;
    let board = running.context.shared.get::<StatusBoard>();
    let error = ComponentState::RecoverableError("<script>refused".into());
    board.component("exporter otlp".to_owned()).set(error);
    for label in ["processor batch in pipeline profiles", "connector split"] {
        let away = ComponentState::RecoverableError("away".into());
        board.component(label.to_owned()).set(away);
    }
    running
        .context
        .shared
        .get::<CurrentService>()
        .set(ServiceInfo {
            pipelines: vec![PipelineInfo {
                id: "profiles".to_owned(),
                receivers: Vec::new(),
                processors: vec!["batch".to_owned()],
                exporters: vec!["split".to_owned()],
            }],
            ..ServiceInfo::default()
        });
    let labels = [("exporter", "otlp"), ("reason", "<b>")];
    let counter = running.context.meter.counter("sent", "Sent.", &labels);
    counter.inc_by(7);

    let service = running.ask("GET /debug/servicez", "localhost").await;
    for text in [
        "HTTP/1.1 200 OK",
        "content-security-policy: default-src 'none'",
        "profcol ",
        "<td>exporter otlp</td><td><span class=\"error\">recoverable error: &lt;script&gt;refused</span></td>",
    ] {
        assert!(service.contains(text), "no {text:?} in {service}");
    }
    let pipelines = running.ask("GET /debug/pipelinez", "127.0.0.1:1").await;
    let row =
        "<td>exporter otlp</td><td>sent</td><td>reason=&lt;b&gt;</td><td class=\"number\">7</td>";
    assert!(pipelines.contains(row), "{pipelines}");
    for component in ["batch", "split"] {
        let failing = format!("{component} (<span class=\"error\">recoverable error: away</span>)");
        assert!(pipelines.contains(&failing), "no {failing} in {pipelines}");
    }
    let extensions = running.ask("GET /debug/extensionz", "proxy.example").await;
    assert!(extensions.contains("<h1>Extensions</h1>"), "{extensions}");
}

#[tokio::test]
async fn other_hosts_paths_and_methods_are_refused() {
    let running = Running::start().await;
    for (request, host, status) in [
        ("GET /debug/servicez", "evil.example", "421"),
        ("GET /debug/tracez", "localhost", "404"),
        ("POST /debug/servicez", "localhost", "405"),
    ] {
        let answer = running.ask(request, host).await;
        let expected = format!("HTTP/1.1 {status}");
        assert!(answer.starts_with(&expected), "{request}: {answer}");
        assert!(answer.contains("content-security-policy"), "{answer}");
    }
}

#[test]
fn public_addresses_need_client_certificates() {
    let error = load::<ZPagesConfig>("{endpoint: '0.0.0.0:55679'}").unwrap_err();
    assert!(error.to_string().contains("must not be public"), "{error}");
    assert_eq!(
        load::<ZPagesConfig>("{}").unwrap().endpoint,
        "localhost:55679"
    );
}
