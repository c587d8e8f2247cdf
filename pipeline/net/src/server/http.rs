//! The HTTP server: requests with complete bodies, over HTTP/1 and HTTP/2.

use std::convert::Infallible;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, WWW_AUTHENTICATE};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use profcol_admission::{Admission, Exhausted, Reservation};
use tokio::time::{Instant, timeout};
use tracing::error;

use super::accept::{Acceptor, Connection, Driver, ServerStats, Stopping};
use super::cors::CorsRules;
use super::guard::{StallGuard, StallTimeouts};
use super::lifetime::{Activity, Lifetime};
use super::listen::{BoundAddr, Listener};
use super::settings::HttpServerSettings;
use super::sockets::ListeningSockets;
use super::{MAX_HEADERS, ServerError, WINDOW};
use crate::auth::{AuthData, Scheme, ServerAuth};
use crate::body::{BodyError, read_body};
use crate::compress::{DecompressError, Encoding, decompress_request};
use crate::grpc::{Code, Status};
use crate::io::Stream;
use crate::message::{Compressed, Message};
use crate::settings::{header_map, limit};
use crate::socket::Buffers;
use crate::tls::ServerSide;

/// A fully received request.
#[derive(Debug)]
pub struct HttpRequest {
    pub method: Method,
    pub path: String,
    pub query: Option<String>,
    /// All headers; some, such as `content-type`, are needed to decode the body.
    pub headers: HeaderMap,
    /// Whether the headers may be passed on with the data (`include_metadata`).
    pub include_metadata: bool,
    pub connection: Connection,
    pub auth: Option<AuthData>,
    pub body: Message,
    /// Memory reserved for decoding the body.
    pub reserved: Reservation,
}

/// Handles requests.
pub trait HttpService: Send + Sync + 'static {
    /// Whether a request needs no authentication.
    fn is_public(&self, _head: &Parts) -> bool {
        false
    }

    /// Accepts or refuses a request by method, path and headers, before the body is read.
    #[expect(
        clippy::result_large_err,
        reason = "the refusal is the response; it is moved once per request"
    )]
    fn admit(&self, head: &Parts) -> Result<(), Response<Bytes>>;

    /// Handles one request. Dropped if the client disconnects.
    fn call(&self, request: HttpRequest) -> impl Future<Output = Response<Bytes>> + Send;

    /// Formats a refusal by the server itself in the client's format.
    fn refusal(&self, headers: &HeaderMap, http: StatusCode, status: &Status) -> Response<Bytes>;
}

/// A type-erased service, so that the connection code is compiled once, here, instead of in each crate with a service.
/// Costs one allocation per request.
trait AnyService: Send + Sync {
    fn is_public(&self, head: &Parts) -> bool;
    #[expect(
        clippy::result_large_err,
        reason = "the refusal is the response; it is moved once per request"
    )]
    fn admit(&self, head: &Parts) -> Result<(), Response<Bytes>>;
    fn call(&self, request: HttpRequest) -> BoxFuture<'_, Response<Bytes>>;
    fn refusal(&self, headers: &HeaderMap, http: StatusCode, status: &Status) -> Response<Bytes>;
}

impl<S: HttpService> AnyService for S {
    fn is_public(&self, head: &Parts) -> bool {
        HttpService::is_public(self, head)
    }

    fn admit(&self, head: &Parts) -> Result<(), Response<Bytes>> {
        HttpService::admit(self, head)
    }

    fn call(&self, request: HttpRequest) -> BoxFuture<'_, Response<Bytes>> {
        Box::pin(HttpService::call(self, request))
    }

    fn refusal(&self, headers: &HeaderMap, http: StatusCode, status: &Status) -> Response<Bytes> {
        HttpService::refusal(self, headers, http, status)
    }
}

/// A response with a body of the given content type.
pub fn response(
    status: StatusCode,
    content_type: HeaderValue,
    body: impl Into<Bytes>,
) -> Response<Bytes> {
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, content_type);
    response
}

/// A bound HTTP server.
#[derive(Debug)]
pub struct HttpServer {
    acceptor: Acceptor,
    local_addr: BoundAddr,
    settings: HttpServerSettings,
    response_headers: HeaderMap,
    idle: Option<Duration>,
    keep_alive: bool,
    auth: Option<Arc<dyn ServerAuth>>,
    admission: Admission,
}

impl HttpServer {
    /// Reads the certificates and binds the address; connections wait in the backlog until [`HttpServer::serve`].
    /// `auth` is the extension named by `settings.auth`; `sockets` has the socket of the server that this one replaces.
    pub fn bind(
        settings: &HttpServerSettings,
        auth: Option<Arc<dyn ServerAuth>>,
        sockets: &ListeningSockets,
    ) -> Result<HttpServer, ServerError> {
        let keepalive = settings.resolved_keepalive()?;
        let response_headers =
            header_map(&settings.response_headers).map_err(ServerError::ResponseHeaders)?;
        let protocols: &'static [&'static [u8]] = &[b"h2", b"http/1.1"];
        let tls = settings
            .tls
            .as_ref()
            .map(|tls| ServerSide::new(tls, protocols))
            .transpose()?;
        let listener = Listener::bind(settings.transport, &settings.endpoint, sockets)?;
        let local_addr = listener.local_addr()?;
        let acceptor = Acceptor {
            listener,
            tls: tls.map(Arc::new),
            buffers: Buffers::default(),
            max_connections: settings.max_connections,
            stats: Arc::default(),
        };
        Ok(HttpServer {
            acceptor,
            local_addr,
            settings: settings.clone(),
            response_headers,
            idle: limit(keepalive.idle_timeout).or(limit(settings.read_timeout)),
            keep_alive: keepalive.enabled,
            auth,
            admission: Admission::unlimited(),
        })
    }

    /// Accepts only bodies admitted by `admission`.
    #[must_use]
    pub fn with_admission(self, admission: Admission) -> HttpServer {
        HttpServer { admission, ..self }
    }

    pub fn local_addr(&self) -> &BoundAddr {
        &self.local_addr
    }

    pub fn stats(&self) -> Arc<ServerStats> {
        self.acceptor.stats.clone()
    }

    /// Serves until `stop` resolves to the shutdown deadline for active requests. Dropping it earlier aborts active
    /// requests.
    pub async fn serve<S: HttpService>(
        self,
        service: S,
        stop: impl Future<Output = Instant> + Send,
    ) {
        self.run(Box::new(service), Box::pin(stop)).await;
    }

    fn run<'a>(
        self,
        service: Box<dyn AnyService>,
        stop: BoxFuture<'a, Instant>,
    ) -> BoxFuture<'a, ()> {
        let settings = self.settings;
        let head = limit(settings.read_header_timeout).or(limit(settings.read_timeout));
        let timeouts = StallTimeouts {
            begin: head,
            middle: head,
            write: limit(settings.write_timeout),
        };
        let driver = HttpDriver {
            timeouts,
            lifetime: Lifetime {
                idle: self.idle,
                ..Lifetime::default()
            },
            http: builder(self.keep_alive),
            requests: Arc::new(Requests {
                service,
                auth: self.auth,
                stats: self.acceptor.stats.clone(),
                admission: self.admission,
                max_body: settings.max_body(),
                read_timeout: limit(settings.read_timeout),
                include_metadata: settings.include_metadata,
                accepted: settings.compression_algorithms,
                cors: settings.cors.as_ref().and_then(CorsRules::new),
                response_headers: self.response_headers,
            }),
        };
        Box::pin(self.acceptor.run(driver, stop))
    }
}

fn builder(keep_alive: bool) -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        // Enforced by `StallGuard`, which distinguishes waiting for a request from reading its headers.
        .header_read_timeout(None)
        .max_buf_size(MAX_HEADERS as usize)
        .keep_alive(keep_alive);
    builder
        .http2()
        .timer(TokioTimer::new())
        .initial_stream_window_size(WINDOW)
        .initial_connection_window_size(4 * WINDOW)
        .max_header_list_size(MAX_HEADERS)
        .max_concurrent_streams(100)
        .keep_alive_interval(Duration::from_secs(2 * 3600))
        .keep_alive_timeout(Duration::from_secs(20));
    builder
}

struct HttpDriver {
    requests: Arc<Requests>,
    timeouts: StallTimeouts,
    lifetime: Lifetime,
    http: auto::Builder<TokioExecutor>,
}

impl Driver for HttpDriver {
    async fn drive(self: Arc<Self>, stream: Stream, connection: Connection, stopping: Stopping) {
        let activity = Activity::new();
        let peer = connection.peer.clone();
        let stream = StallGuard::new(stream, self.timeouts, activity.clone());
        let service = service_fn(|request: Request<Incoming>| {
            let (requests, connection) = (self.requests.clone(), connection.clone());
            let running = activity.begin();
            async move {
                let answer = requests.answer(request, connection).await;
                drop(running);
                Ok::<_, Infallible>(answer.map(Full::new))
            }
        });
        let serving = self.http.serve_connection(TokioIo::new(stream), service);
        let serving = std::pin::pin!(serving);
        self.lifetime.run(serving, &activity, &peer, stopping).await;
    }
}

/// Server state shared by requests.
struct Requests {
    service: Box<dyn AnyService>,
    auth: Option<Arc<dyn ServerAuth>>,
    stats: Arc<ServerStats>,
    admission: Admission,
    max_body: usize,
    read_timeout: Option<Duration>,
    include_metadata: bool,
    /// Empty accepts all supported encodings.
    accepted: Vec<String>,
    cors: Option<CorsRules>,
    response_headers: HeaderMap,
}

impl Requests {
    async fn answer(&self, request: Request<Incoming>, connection: Connection) -> Response<Bytes> {
        let (head, body) = request.into_parts();
        let mut response = match self.cors.as_ref().and_then(|cors| cors.preflight(&head)) {
            Some(answer) => answer,
            None => {
                let outcome = AssertUnwindSafe(self.handle(&head, body, connection))
                    .catch_unwind()
                    .await;
                let mut response = outcome.unwrap_or_else(|_| {
                    self.stats.panics.fetch_add(1, Relaxed);
                    error!("An HTTP handler panicked; returning 500. Please report this bug.");
                    let status = Status::new(Code::Internal, "the handler panicked");
                    self.service
                        .refusal(&head.headers, StatusCode::INTERNAL_SERVER_ERROR, &status)
                });
                if let Some(cors) = &self.cors {
                    cors.mark(&head.headers, response.headers_mut());
                }
                response
            }
        };
        for (name, value) in &self.response_headers {
            response.headers_mut().insert(name, value.clone());
        }
        response
    }

    async fn handle(
        &self,
        head: &Parts,
        body: Incoming,
        connection: Connection,
    ) -> Response<Bytes> {
        let auth = match &self.auth {
            Some(auth) if !self.service.is_public(head) => {
                match auth.authenticate(&head.headers).await {
                    Ok(auth) => Some(auth),
                    Err(status) => return self.unauthenticated(head, &status, auth.scheme()),
                }
            }
            _ => None,
        };
        if let Err(refusal) = self.service.admit(head) {
            return refusal;
        }
        let (body, reserved) = match self.receive(&head.headers, body).await {
            Ok(received) => received,
            Err(refused) => {
                return self
                    .service
                    .refusal(&head.headers, refused.http, &refused.status);
            }
        };
        let request = HttpRequest {
            method: head.method.clone(),
            path: head.uri.path().to_owned(),
            query: head.uri.query().map(str::to_owned),
            headers: head.headers.clone(),
            include_metadata: self.include_metadata,
            connection,
            auth,
            body,
            reserved,
        };
        self.service.call(request).await
    }

    fn unauthenticated(
        &self,
        head: &Parts,
        status: &Status,
        scheme: Option<Scheme>,
    ) -> Response<Bytes> {
        let http = status.code.to_http();
        let mut response = self.service.refusal(&head.headers, http, status);
        let challenge = scheme.and_then(|scheme| scheme.challenge());
        if let Some(challenge) = challenge.filter(|_| http == StatusCode::UNAUTHORIZED) {
            let headers = response.headers_mut();
            headers.insert(WWW_AUTHENTICATE, challenge);
        }
        response
    }

    async fn receive(
        &self,
        headers: &HeaderMap,
        mut body: Incoming,
    ) -> Result<(Message, Reservation), Rejection> {
        let name = headers
            .get(CONTENT_ENCODING)
            .map_or("", |value| value.to_str().unwrap_or("?"));
        let allowed =
            self.accepted.is_empty() || self.accepted.iter().any(|accepted| accepted == name);
        let plain = name.is_empty() || name == "identity";
        if !allowed || !plain && Encoding::from_http(name, &[]).is_none() {
            let message = format!("unsupported Content-Encoding: {name}");
            return Err(Rejection::new(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                Code::InvalidArgument,
                message,
            ));
        }
        let announced = headers.get(CONTENT_LENGTH).and_then(content_length);
        let reading = read_body(&mut body, announced, self.max_body, &self.admission);
        let bytes = match self.read_timeout {
            None => reading.await?,
            Some(limit) => timeout(limit, reading)
                .await
                .unwrap_or(Err(BodyError::Slow))?,
        };
        let Some(encoding) = Encoding::from_http(name, &bytes) else {
            return Ok((Message::from(bytes), self.admission.reservation()));
        };
        match decompress_request(&self.admission, encoding, &bytes, self.max_body).await {
            Ok((plain, reserved)) => {
                let compressed = Some(Compressed { encoding, bytes });
                Ok((Message { plain, compressed }, reserved))
            }
            Err(error) => Err(Rejection::from(error)),
        }
    }
}

fn content_length(value: &HeaderValue) -> Option<usize> {
    value.to_str().ok()?.parse().ok()
}

/// Why a body was refused.
struct Rejection {
    http: StatusCode,
    status: Status,
}

impl Rejection {
    fn new(http: StatusCode, code: Code, message: String) -> Rejection {
        Rejection {
            http,
            status: Status::new(code, message),
        }
    }
}

impl From<Exhausted> for Rejection {
    fn from(exhausted: Exhausted) -> Rejection {
        let http = if exhausted.is_final() {
            StatusCode::PAYLOAD_TOO_LARGE
        } else {
            StatusCode::SERVICE_UNAVAILABLE
        };
        Rejection {
            http,
            status: exhausted.into(),
        }
    }
}

impl From<BodyError> for Rejection {
    fn from(error: BodyError) -> Rejection {
        let (http, code) = match error {
            BodyError::TooLarge { .. } => (StatusCode::PAYLOAD_TOO_LARGE, Code::ResourceExhausted),
            BodyError::Slow => (StatusCode::REQUEST_TIMEOUT, Code::DeadlineExceeded),
            BodyError::Broken(_) => (StatusCode::BAD_REQUEST, Code::InvalidArgument),
            BodyError::Exhausted(exhausted) => return exhausted.into(),
        };
        Rejection::new(http, code, error.to_string())
    }
}

impl From<DecompressError> for Rejection {
    fn from(error: DecompressError) -> Rejection {
        let (http, code) = match error {
            DecompressError::TooLarge { .. } => {
                (StatusCode::PAYLOAD_TOO_LARGE, Code::ResourceExhausted)
            }
            DecompressError::Invalid { .. } => (StatusCode::BAD_REQUEST, Code::InvalidArgument),
            DecompressError::Exhausted(exhausted) => return exhausted.into(),
        };
        Rejection::new(http, code, format!("request body: {error}"))
    }
}
