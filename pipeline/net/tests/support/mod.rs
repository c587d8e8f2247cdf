//! Test services and certificates.

#![allow(dead_code, reason = "each test file uses a part of this")]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, Response, StatusCode};
use profcol_net::auth::{AuthData, Scheme, ServerAuth};
use profcol_net::compress::{self, Encoding, Level};
use profcol_net::grpc::{Code, Status};
use profcol_net::{
    BoundAddr, Compressed, GrpcCall, GrpcClient, GrpcClientSettings, GrpcRequest, GrpcServer,
    GrpcServerSettings, GrpcService, HttpRequest, HttpServer, HttpServerSettings, HttpService,
    ListeningSockets, Message, ServerStats, unknown_method,
};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// Polls until `condition` holds; `what` describes it.
pub async fn wait_until(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let give_up = Instant::now() + Duration::from_secs(60);
    while !condition().await {
        assert!(Instant::now() < give_up, "waited for {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// A gRPC service with a method per behaviour.
#[derive(Clone, Default)]
pub struct Behaviour {
    pub calls: Arc<AtomicUsize>,
}

impl Behaviour {
    /// Waits for the first call.
    pub async fn is_called(&self) {
        wait_until("a call", async || self.calls.load(Relaxed) > 0).await;
    }
}

impl GrpcService for Behaviour {
    fn admit(&self, path: &str, metadata: &HeaderMap) -> Result<(), Status> {
        if metadata.contains_key("x-refuse") {
            return Err(Status::new(Code::ResourceExhausted, "full")
                .with_retry_delay(Duration::from_secs(2)));
        }
        if path.starts_with("/test.Behaviour/") {
            Ok(())
        } else {
            Err(unknown_method(path))
        }
    }

    async fn call(&self, request: GrpcRequest) -> Result<Bytes, Status> {
        self.calls.fetch_add(1, Relaxed);
        match request.path.as_str() {
            "/test.Behaviour/Echo" => Ok(request.message.plain),
            // Encoding and size as received.
            "/test.Behaviour/Describe" => Ok(Bytes::from(match &request.message.compressed {
                None => format!("plain {}", request.message.plain.len()),
                Some(Compressed { encoding, bytes }) => format!("{encoding} {}", bytes.len()),
            })),
            "/test.Behaviour/Metadata" => {
                let mut names: Vec<_> = request.metadata.keys().map(ToString::to_string).collect();
                names.push(format!("include={}", request.include_metadata));
                Ok(Bytes::from(names.join(" ")))
            }
            "/test.Behaviour/Slow" => {
                tokio::time::sleep(Duration::from_millis(300)).await;
                Ok(Bytes::from_static(b"late"))
            }
            "/test.Behaviour/Never" => std::future::pending().await,
            "/test.Behaviour/Panic" => panic!("as requested"),
            // The message is a status code.
            "/test.Behaviour/Fail" => {
                let number = request.message.plain.first().copied().unwrap_or_default();
                Err(Status::new(
                    Code::from_number(number.into()),
                    "as requested",
                ))
            }
            path => Err(unknown_method(path)),
        }
    }
}

/// Size of the response to `/large`, more than socket buffers hold.
pub const LARGE: usize = 50_000_000;

/// An HTTP service that describes each request.
#[derive(Clone, Default)]
pub struct Describe;

impl HttpService for Describe {
    fn is_public(&self, head: &Parts) -> bool {
        head.uri.path() == "/public"
    }

    fn admit(&self, head: &Parts) -> Result<(), Response<Bytes>> {
        if head.uri.path() == "/missing" {
            let mut response = Response::new(Bytes::from_static(b"nothing here"));
            *response.status_mut() = StatusCode::NOT_FOUND;
            return Err(response);
        }
        Ok(())
    }

    async fn call(&self, request: HttpRequest) -> Response<Bytes> {
        match request.path.as_str() {
            "/panic" => panic!("as requested"),
            "/busy" => Response::builder()
                .status(503)
                .header("retry-after", "7")
                .body(Bytes::new())
                .unwrap(),
            "/large" => Response::new(Bytes::from(vec![0; LARGE])),
            "/never" => std::future::pending().await,
            _ => {
                let encoding = match &request.body.compressed {
                    None => "plain".to_owned(),
                    Some(compressed) => compressed.encoding.to_string(),
                };
                let agent = request
                    .headers
                    .get("user-agent")
                    .map(|value| value.to_str().unwrap_or("?").to_owned());
                let text = format!(
                    "{} {} {encoding} {} {}",
                    request.method,
                    request.path,
                    request.body.plain.len(),
                    agent.unwrap_or_default()
                );
                Response::new(Bytes::from(text))
            }
        }
    }

    fn refusal(&self, _: &HeaderMap, http: StatusCode, status: &Status) -> Response<Bytes> {
        let mut response = Response::new(Bytes::from(status.message.clone()));
        *response.status_mut() = http;
        response
    }
}

/// A running server.
pub struct Running {
    pub addr: BoundAddr,
    pub stats: Arc<ServerStats>,
    stop: oneshot::Sender<Instant>,
    task: JoinHandle<()>,
}

impl Running {
    pub fn endpoint(&self) -> String {
        match &self.addr {
            BoundAddr::Tcp(addr) => addr.to_string(),
            BoundAddr::Unix(path) => format!("unix://{}", path.display()),
        }
    }

    pub fn tcp(&self) -> std::net::SocketAddr {
        match self.addr {
            BoundAddr::Tcp(addr) => addr,
            BoundAddr::Unix(_) => panic!("not a TCP server"),
        }
    }

    /// Stops the server within the given time.
    pub async fn stop(self, within: Duration) {
        self.stop.send(Instant::now() + within).unwrap();
        self.task.await.unwrap();
    }
}

async fn until(stop: oneshot::Receiver<Instant>) -> Instant {
    match stop.await {
        Ok(deadline) => deadline,
        Err(_) => std::future::pending().await,
    }
}

pub fn grpc_server(settings: &GrpcServerSettings) -> Running {
    grpc_server_with(settings, None, Behaviour::default())
}

pub fn grpc_server_with(
    settings: &GrpcServerSettings,
    auth: Option<Arc<dyn ServerAuth>>,
    service: Behaviour,
) -> Running {
    let server = GrpcServer::bind(settings, auth, &ListeningSockets::default()).unwrap();
    let (addr, stats) = (server.local_addr().clone(), server.stats());
    let (stop, stopped) = oneshot::channel();
    let task = tokio::spawn(server.serve(service, until(stopped)));
    Running {
        addr,
        stats,
        stop,
        task,
    }
}

pub fn http_server(settings: &HttpServerSettings) -> Running {
    http_server_with(settings, None)
}

pub fn http_server_with(
    settings: &HttpServerSettings,
    auth: Option<Arc<dyn ServerAuth>>,
) -> Running {
    let server = HttpServer::bind(settings, auth, &ListeningSockets::default()).unwrap();
    let (addr, stats) = (server.local_addr().clone(), server.stats());
    let (stop, stopped) = oneshot::channel();
    let task = tokio::spawn(server.serve(Describe, until(stopped)));
    Running {
        addr,
        stats,
        stop,
        task,
    }
}

pub fn grpc_settings() -> GrpcServerSettings {
    GrpcServerSettings {
        endpoint: "127.0.0.1:0".to_owned(),
        ..GrpcServerSettings::default()
    }
}

pub fn http_settings() -> HttpServerSettings {
    HttpServerSettings {
        endpoint: "127.0.0.1:0".to_owned(),
        ..HttpServerSettings::default()
    }
}

/// A client without TLS and compression.
pub fn plain_client(endpoint: &str) -> GrpcClientSettings {
    let mut settings = GrpcClientSettings {
        endpoint: endpoint.to_owned(),
        ..GrpcClientSettings::default()
    };
    settings.tls.insecure = true;
    settings.compression = profcol_net::Compression::None;
    settings
}

pub fn grpc_client(settings: &GrpcClientSettings) -> GrpcClient {
    GrpcClient::new(settings, None, "test/1").unwrap()
}

pub async fn call(
    client: &GrpcClient,
    path: &'static str,
    message: &Message,
) -> Result<Bytes, Status> {
    let call = GrpcCall {
        path,
        message,
        headers: HeaderMap::new(),
        timeout: Some(Duration::from_secs(20)),
    };
    client.unary(call).await.map(|reply| reply.message)
}

pub fn message(bytes: impl Into<Bytes>) -> Message {
    Message::from(bytes.into())
}

pub fn compressed(encoding: Encoding, plain: &[u8]) -> Message {
    let bytes = compress::compress(encoding, Level::default(), plain);
    Message {
        plain: Bytes::copy_from_slice(plain),
        compressed: Some(Compressed { encoding, bytes }),
    }
}

/// Accepts requests with the header `authorization: open sesame`.
#[derive(Debug)]
pub struct StaticAuth;

#[async_trait::async_trait]
impl ServerAuth for StaticAuth {
    async fn authenticate(&self, headers: &HeaderMap) -> Result<AuthData, Status> {
        match headers.get("authorization") {
            Some(value) if value == "open sesame" => Ok(AuthData::default()),
            _ => Err(Status::new(Code::Unauthenticated, "who are you?")),
        }
    }

    fn scheme(&self) -> Option<Scheme> {
        Some(Scheme::Basic)
    }
}

/// A CA and certificates signed by it, in files.
pub struct Authority {
    pub dir: tempfile::TempDir,
    issuer: rcgen::Issuer<'static, rcgen::KeyPair>,
}

impl Authority {
    pub fn new() -> Authority {
        let dir = tempfile::tempdir().unwrap();
        let mut params = rcgen::CertificateParams::new(vec![]).unwrap();
        // Two CAs need distinct names.
        let name = dir.path().display().to_string();
        params
            .distinguished_name
            .push(rcgen::DnType::CommonName, name);
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        std::fs::write(dir.path().join("ca.pem"), certificate.pem()).unwrap();
        Authority {
            dir,
            issuer: rcgen::Issuer::new(params, key),
        }
    }

    pub fn ca(&self) -> String {
        text(&self.dir.path().join("ca.pem"))
    }

    /// Paths of a new certificate for `host` and its key.
    pub fn issue(&self, name: &str, host: &str) -> (String, String) {
        self.issue_until(name, host, 2090)
    }

    pub fn issue_until(&self, name: &str, host: &str, year: i32) -> (String, String) {
        let mut params = rcgen::CertificateParams::new(vec![host.to_owned()]).unwrap();
        params.not_before = rcgen::date_time_ymd(2019, 1, 1);
        params.not_after = rcgen::date_time_ymd(year, 1, 1);
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        self.written(name, &certificate, &key)
    }

    /// Paths of a self-signed CA certificate for `host` and its key.
    pub fn self_signed(&self, name: &str, host: &str) -> (String, String) {
        let mut params = rcgen::CertificateParams::new(vec![host.to_owned()]).unwrap();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        self.written(name, &certificate, &key)
    }

    fn written(
        &self,
        name: &str,
        certificate: &rcgen::Certificate,
        key: &rcgen::KeyPair,
    ) -> (String, String) {
        let path = |suffix| self.dir.path().join(format!("{name}{suffix}"));
        std::fs::write(path(".pem"), certificate.pem()).unwrap();
        std::fs::write(path(".key"), key.serialize_pem()).unwrap();
        (text(&path(".pem")), text(&path(".key")))
    }
}

fn text(path: &Path) -> String {
    PathBuf::from(path).into_os_string().into_string().unwrap()
}
