//! The metrics endpoint for Prometheus: `GET /metrics`.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::header::ALLOW;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode};
use profcol_component::{Check, Listening, Meter, Stop};
use profcol_net::grpc::Status;
use profcol_net::{
    BoundAddr, HttpRequest, HttpServer, HttpServerSettings, HttpService, ListeningSockets,
    ServerError, response,
};
use tokio::task::JoinSet;

use super::process::ProcessMetrics;
use super::settings::{MetricLevel, PrometheusReader, TelemetrySettings};

/// Maximum number of concurrent scraper connections.
const MAX_CONNECTIONS: usize = 16;
/// A scrape has no body.
const MAX_BODY: usize = 4096;
/// Grace period for active scrapes at shutdown.
const GRACE: Duration = Duration::from_secs(1);

const PROMETHEUS_TEXT: HeaderValue =
    HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");

#[derive(Debug, thiserror::Error)]
#[error(
    "failed to listen on {address} for metrics: {source}; change `service::telemetry::metrics::readers` or set `service::telemetry::metrics::level: none`"
)]
pub struct MetricsError {
    address: String,
    source: ServerError,
}

/// Serves scrapes until stopped.
pub struct MetricsServer {
    servers: JoinSet<()>,
    stop: Stop,
    addresses: Vec<SocketAddr>,
}

// === impl MetricsServer ===

impl MetricsServer {
    /// Must be called in a tokio runtime.
    pub fn start(settings: &TelemetrySettings, meter: &Meter) -> Result<Self, MetricsError> {
        let mut started = Self {
            servers: JoinSet::new(),
            stop: Stop::new(),
            addresses: Vec::new(),
        };
        if settings.metrics.level == MetricLevel::None {
            return Ok(started);
        }
        target_info(settings, meter);
        let process = ProcessMetrics::new(meter);
        meter.refresh_by(move || process.refresh());
        for reader in &settings.metrics.readers {
            let server = bind_reader(&reader.pull.exporter.prometheus)?;
            if let BoundAddr::Tcp(address) = server.local_addr() {
                started.addresses.push(*address);
            }
            let (meter, stop) = (meter.clone(), started.stop.clone());
            started.servers.spawn(async move {
                server.serve(Scrapes(meter), stop.deadline(GRACE)).await;
            });
        }
        Ok(started)
    }

    /// The listen addresses.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    pub async fn stop(mut self) {
        self.stop.cancel();
        while self.servers.join_next().await.is_some() {}
    }
}

/// Checks whether the metrics can be served.
pub async fn check(settings: &TelemetrySettings) -> Vec<Check> {
    let mut checks = Vec::new();
    if settings.metrics.level == MetricLevel::None {
        return checks;
    }
    for reader in &settings.metrics.readers {
        let reader = &reader.pull.exporter.prometheus;
        let listening = Listening {
            is_sensitive: false,
            may_move: reader.is_default_port,
            ..Listening::new("listen", &endpoint(&reader.host, reader.port), false, false)
        };
        checks.extend(listening.check().await);
    }
    checks
}

fn target_info(settings: &TelemetrySettings, meter: &Meter) {
    let mut labels = vec![
        ("service_name".to_owned(), "profcol".to_owned()),
        (
            "service_version".to_owned(),
            env!("CARGO_PKG_VERSION").to_owned(),
        ),
    ];
    for (key, value) in &settings.resource {
        let key: String = key
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() { c } else { '_' })
            .collect();
        labels.retain(|(other, _)| *other != key);
        if let Some(value) = value {
            labels.push((key, value.clone()));
        }
    }
    let labels: Vec<(&str, &str)> = labels
        .iter()
        .map(|(k, v)| (k.as_str(), v.as_str()))
        .collect();
    meter
        .gauge(
            "target_info",
            "Resource attributes of this process.",
            &labels,
        )
        .set(1.0);
}

/// Binds the reader's port. If the default port is taken, falls back to any free one; a configured port must bind.
fn bind_reader(reader: &PrometheusReader) -> Result<HttpServer, MetricsError> {
    let preferred = endpoint(&reader.host, reader.port);
    let bound = match bind(&preferred) {
        Err(ServerError::Bind(error)) if reader.is_default_port && error.is_address_in_use() => {
            let server = bind(&endpoint(&reader.host, 0));
            if let Ok(server) = &server {
                tracing::info!(
                    taken = preferred,
                    endpoint = %server.local_addr(),
                    "Default metrics port in use; serving metrics on another port. Set `service::telemetry::metrics::readers` to choose one."
                );
            }
            server
        }
        bound => bound,
    };
    bound.map_err(|source| MetricsError {
        address: preferred,
        source,
    })
}

fn bind(endpoint: &str) -> Result<HttpServer, ServerError> {
    let settings = HttpServerSettings {
        endpoint: endpoint.to_owned(),
        max_request_body_size: MAX_BODY,
        max_connections: MAX_CONNECTIONS,
        ..HttpServerSettings::default()
    };
    HttpServer::bind(&settings, None, &ListeningSockets::default())
}

fn endpoint(host: &str, port: u16) -> String {
    match host.contains(':') && !host.starts_with('[') {
        true => format!("[{host}]:{port}"),
        false => format!("{host}:{port}"),
    }
}

/// Handles scrape requests.
struct Scrapes(Meter);

impl HttpService for Scrapes {
    fn admit(&self, head: &Parts) -> Result<(), Response<Bytes>> {
        if head.uri.path() != "/metrics" {
            return Err(response(
                StatusCode::NOT_FOUND,
                TEXT,
                "metrics are at /metrics\n",
            ));
        }
        if ![Method::GET, Method::HEAD].contains(&head.method) {
            let mut refusal = response(
                StatusCode::METHOD_NOT_ALLOWED,
                TEXT,
                "only GET is supported\n",
            );
            let headers = refusal.headers_mut();
            headers.insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
            return Err(refusal);
        }
        Ok(())
    }

    async fn call(&self, _: HttpRequest) -> Response<Bytes> {
        let Scrapes(meter) = self;
        match meter.render() {
            Ok(text) => response(StatusCode::OK, PROMETHEUS_TEXT, text),
            Err(error) => response(
                StatusCode::INTERNAL_SERVER_ERROR,
                TEXT,
                format!("{error}\n"),
            ),
        }
    }

    fn refusal(&self, _: &HeaderMap, http: StatusCode, status: &Status) -> Response<Bytes> {
        response(http, TEXT, format!("{}\n", status.message))
    }
}

#[cfg(test)]
mod tests {
    use profcol_component::testkit::load;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    #[tokio::test]
    async fn falls_back_to_a_free_port_if_the_default_is_taken() {
        let other = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut settings = TelemetrySettings::default();
        let reader = &mut settings.metrics.readers[0].pull.exporter.prometheus;
        assert!(reader.is_default_port);
        reader.port = other.local_addr().unwrap().port();
        let port = reader.port;
        let meter = Meter::default();
        let first = MetricsServer::start(&settings, &meter).unwrap();
        assert_ne!(first.addresses()[0].port(), port);
        assert!(first.addresses()[0].ip().is_loopback());
        first.stop().await;

        // The same port, set explicitly.
        let written = format!(
            "{{metrics: {{readers: [{{pull: {{exporter: {{prometheus: {{port: {port}}}}}}}}}]}}}}"
        );
        let settings: TelemetrySettings = load(&written).unwrap();
        let Err(error) = MetricsServer::start(&settings, &meter) else {
            panic!("bound a taken port");
        };
        let expected = format!("failed to listen on localhost:{port} for metrics");
        assert!(error.to_string().starts_with(&expected), "{error}");
    }

    #[test]
    fn other_metric_settings_keep_the_port_fallback() {
        let settings: TelemetrySettings = load("{metrics: {level: detailed}}").unwrap();
        let reader = &settings.metrics.readers[0].pull.exporter.prometheus;
        assert!(reader.is_default_port && reader.port == 8888);
    }

    #[tokio::test]
    async fn serves_scrapes_only() {
        let mut settings = TelemetrySettings::default();
        settings.metrics.readers[0].pull.exporter.prometheus = PrometheusReader {
            host: "127.0.0.1".to_owned(),
            port: 0,
            ..PrometheusReader::default()
        };
        let meter = Meter::default();
        meter.counter("seen", "Things seen.", &[]).inc();
        let server = MetricsServer::start(&settings, &meter).unwrap();
        let address = server.addresses()[0];
        let ask = async |request: &str| {
            let mut stream = TcpStream::connect(address).await.unwrap();
            stream.write_all(request.as_bytes()).await.unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await.unwrap();
            answer
        };
        let metrics = ask("GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await;
        assert!(metrics.starts_with("HTTP/1.1 200 OK"), "{metrics}");
        assert!(metrics.contains("\nseen 1\n"), "{metrics}");
        assert!(
            metrics.contains("\notelcol_process_memory_rss "),
            "{metrics}"
        );
        assert!(
            ask("GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
                .await
                .starts_with("HTTP/1.1 404")
        );
        assert!(
            ask("POST /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
                .await
                .starts_with("HTTP/1.1 405")
        );
        server.stop().await;
    }
}
