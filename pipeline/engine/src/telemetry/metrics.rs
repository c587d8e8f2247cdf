//! The metrics endpoint.
//!
//! A handful of lines over HTTP/1.1: it answers `GET /metrics`, one connection after the other is
//! enough for a scraper, and each has little time.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use profcol_component::{Meter, Stop};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, lookup_host};
use tokio::task::JoinSet;

use super::process::ProcessMetrics;
use super::settings::{MetricLevel, PrometheusReader, TelemetrySettings};

/// Scrapers that may be served at once; more wait in the backlog.
const MAX_CONNECTIONS: usize = 16;
/// What a scraper may take to ask and to read the answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// A request for metrics is a few lines.
const MAX_REQUEST: usize = 8 * 1024;

#[derive(Debug, thiserror::Error)]
#[error(
    "failed to listen on {address} for metrics: {source}; change `service::telemetry::metrics::readers` or set `service::telemetry::metrics::level: none`"
)]
pub struct MetricsError {
    address: String,
    source: io::Error,
}

/// Answers scrapers until it is stopped.
pub struct MetricsServer {
    servers: JoinSet<()>,
    stop: Stop,
    addresses: Vec<SocketAddr>,
}

struct Metrics {
    meter: Meter,
    process: ProcessMetrics,
}

// === impl MetricsServer ===

impl MetricsServer {
    pub async fn start(settings: &TelemetrySettings, meter: &Meter) -> Result<Self, MetricsError> {
        let mut server = Self {
            servers: JoinSet::new(),
            stop: Stop::new(),
            addresses: Vec::new(),
        };
        if settings.metrics.level == MetricLevel::None {
            return Ok(server);
        }
        target_info(settings, meter);
        let process = ProcessMetrics::new(meter);
        let metrics = Arc::new(Metrics {
            meter: meter.clone(),
            process,
        });
        for reader in &settings.metrics.readers {
            let listener = listen(&reader.pull.exporter.prometheus).await?;
            server.addresses.extend(listener.local_addr().ok());
            server
                .servers
                .spawn(serve(listener, Arc::clone(&metrics), server.stop.clone()));
        }
        Ok(server)
    }

    /// Where it listens.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    pub async fn stop(mut self) {
        self.stop.cancel();
        while self.servers.join_next().await.is_some() {}
    }
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
        .gauge("target_info", "Which agent this is.", &labels)
        .set(1.0);
}

async fn listen(reader: &PrometheusReader) -> Result<TcpListener, MetricsError> {
    let wanted = format!("{}:{}", reader.host, reader.port);
    let bound = match bind(&reader.host, reader.port).await {
        Err(error) if reader.may_move && error.kind() == io::ErrorKind::AddrInUse => {
            let listener = bind(&reader.host, 0).await;
            if let Ok(Ok(address)) = listener.as_ref().map(TcpListener::local_addr) {
                tracing::info!(
                    taken = wanted,
                    endpoint = %address,
                    "Another process has the default port for metrics. Serving them on another one; \
                     `service::telemetry::metrics::readers` chooses it."
                );
            }
            listener
        }
        bound => bound,
    };
    bound.map_err(|source| MetricsError {
        address: wanted,
        source,
    })
}

/// On one address, as receivers do: of a name that stands for several, on the first one of IPv4.
async fn bind(host: &str, port: u16) -> io::Result<TcpListener> {
    let all: Vec<SocketAddr> = lookup_host((host, port)).await?.collect();
    let ipv4 = all.iter().find(|address| address.is_ipv4());
    match ipv4.or(all.first()) {
        Some(address) => TcpListener::bind(address).await,
        None => Err(io::Error::new(
            io::ErrorKind::AddrNotAvailable,
            "the name stands for no address",
        )),
    }
}

async fn serve(listener: TcpListener, metrics: Arc<Metrics>, stop: Stop) {
    let mut connections = JoinSet::new();
    loop {
        while connections.len() >= MAX_CONNECTIONS {
            connections.join_next().await;
        }
        tokio::select! {
            () = stop.cancelled() => break,
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    let metrics = Arc::clone(&metrics);
                    connections.spawn(async move {
                        // Whoever is too slow or hangs up gets no answer, and needs none.
                        let _ = tokio::time::timeout(PATIENCE, answer(stream, &metrics)).await;
                    });
                }
                // Out of file descriptors: others are being closed meanwhile.
                Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn answer(mut stream: TcpStream, metrics: &Metrics) -> io::Result<()> {
    let mut request = Vec::new();
    while !request.windows(4).any(|end| end == b"\r\n\r\n") {
        let mut chunk = [0; 1024];
        let read = stream.read(&mut chunk).await?;
        request.extend_from_slice(chunk.get(..read).unwrap_or_default());
        if read == 0 || request.len() > MAX_REQUEST {
            return Ok(());
        }
    }
    let (status, body) = metrics.respond(&request);
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(&body).await?;
    stream.shutdown().await
}

// === impl Metrics ===

impl Metrics {
    fn respond(&self, request: &[u8]) -> (&'static str, Vec<u8>) {
        let line = request
            .split(|byte| *byte == b'\r')
            .next()
            .unwrap_or_default();
        let mut words = line.split(|byte| *byte == b' ');
        let (method, path) = (
            words.next().unwrap_or_default(),
            words.next().unwrap_or_default(),
        );
        let path = path.split(|byte| *byte == b'?').next().unwrap_or_default();
        if method != b"GET" {
            return ("405 Method Not Allowed", b"only GET is answered\n".to_vec());
        }
        if path != b"/metrics" {
            return ("404 Not Found", b"metrics are at /metrics\n".to_vec());
        }
        self.process.refresh();
        match self.meter.render() {
            Ok(text) => ("200 OK", text),
            Err(error) => (
                "500 Internal Server Error",
                format!("{error}\n").into_bytes(),
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use profcol_component::testkit::load;

    use super::*;

    #[tokio::test]
    async fn a_port_that_nobody_chose_gives_way_to_who_has_it() {
        let other = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut settings = TelemetrySettings::default();
        let reader = &mut settings.metrics.readers[0].pull.exporter.prometheus;
        assert!(reader.may_move);
        reader.port = other.local_addr().unwrap().port();
        let port = reader.port;
        let meter = Meter::default();
        let first = MetricsServer::start(&settings, &meter).await.unwrap();
        assert_ne!(first.addresses()[0].port(), port);
        assert!(first.addresses()[0].ip().is_loopback());
        first.stop().await;

        // The same one, as it is where a user wrote it.
        let written = format!(
            "{{metrics: {{readers: [{{pull: {{exporter: {{prometheus: {{port: {port}}}}}}}}}]}}}}"
        );
        let settings: TelemetrySettings = load(&written).unwrap();
        let Err(error) = MetricsServer::start(&settings, &meter).await else {
            panic!("it took a port that is taken");
        };
        let expected = format!("failed to listen on localhost:{port} for metrics");
        assert!(error.to_string().starts_with(&expected), "{error}");
    }

    #[test]
    fn what_a_user_writes_beside_the_readers_leaves_them_free_to_move() {
        let settings: TelemetrySettings = load("{metrics: {level: detailed}}").unwrap();
        let reader = &settings.metrics.readers[0].pull.exporter.prometheus;
        assert!(reader.may_move && reader.port == 8888);
    }

    #[tokio::test]
    async fn answers_scrapers_and_refuses_others() {
        let mut settings = TelemetrySettings::default();
        settings.metrics.readers[0].pull.exporter.prometheus = PrometheusReader {
            host: "127.0.0.1".to_owned(),
            port: 0,
            ..PrometheusReader::default()
        };
        let meter = Meter::default();
        meter.counter("seen", "Things seen.", &[]).inc();
        let server = MetricsServer::start(&settings, &meter).await.unwrap();
        let address = server.addresses()[0];
        let ask = async |request: &str| {
            let mut stream = TcpStream::connect(address).await.unwrap();
            stream.write_all(request.as_bytes()).await.unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await.unwrap();
            answer
        };
        let metrics = ask("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").await;
        assert!(metrics.starts_with("HTTP/1.1 200 OK"), "{metrics}");
        assert!(metrics.contains("\nseen 1\n"), "{metrics}");
        assert!(
            metrics.contains("\notelcol_process_memory_rss "),
            "{metrics}"
        );
        assert!(
            ask("GET / HTTP/1.1\r\n\r\n")
                .await
                .starts_with("HTTP/1.1 404")
        );
        assert!(
            ask("POST /metrics HTTP/1.1\r\n\r\n")
                .await
                .starts_with("HTTP/1.1 405")
        );
        server.stop().await;
    }
}
