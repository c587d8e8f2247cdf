//! The gRPC server.

use std::convert::Infallible;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use http::header::{ALLOW, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use profcol_admission::{Admission, Reservation};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};
use tracing::error;

use super::accept::{Acceptor, Connection, Driver, ServerStats, Stopping};
use super::guard::{StallGuard, StallTimeouts};
use super::lifetime::{Activity, Lifetime, PingLimit, Running};
use super::listen::{BoundAddr, Listener};
use super::settings::{GrpcServerKeepalive, GrpcServerSettings, ServerParameters};
use super::sockets::ListeningSockets;
use super::{MAX_HEADERS, ServerError, WINDOW};
use crate::auth::{AuthData, ServerAuth};
use crate::compress::{DecompressError, Encoding, GRPC_ACCEPTED, decompress_request};
use crate::grpc::frame::{AnswerBody, Framed, Messages, Received, read_unary};
use crate::grpc::{self, Code, Status, timeout};
use crate::io::Stream;
use crate::message::{Compressed, Message};
use crate::settings::limit;
use crate::socket::Buffers;
use crate::tls::ServerSide;

pub(crate) const GRPC_ENCODING: HeaderName = HeaderName::from_static("grpc-encoding");
const GRPC_ACCEPT_ENCODING: HeaderName = HeaderName::from_static("grpc-accept-encoding");

/// Timeouts for a client to start, to finish a frame, and to read a response.
const STALL_TIMEOUTS: StallTimeouts = StallTimeouts {
    begin: Some(Duration::from_secs(10)),
    middle: Some(Duration::from_secs(30)),
    write: Some(Duration::from_secs(30)),
};

/// gRPC's default keepalive time.
const TWO_HOURS: Duration = Duration::from_secs(2 * 3600);

/// Maximum accepted frame size. Senders that use it save both sides most system calls. (grpc-go always sends 16 KiB.)
const MAX_FRAME: u32 = 1 << 20;

/// A fully received unary call.
#[derive(Debug)]
pub struct GrpcRequest {
    /// `/package.Service/Method`
    pub path: String,
    pub metadata: HeaderMap,
    /// Whether the metadata may be passed on with the data.
    pub include_metadata: bool,
    pub connection: Connection,
    pub auth: Option<AuthData>,
    pub message: Message,
    /// Memory reserved for decoding the message.
    pub reserved: Reservation,
    /// The caller's deadline.
    pub deadline: Option<Instant>,
}

/// Handles calls.
pub trait GrpcService: Send + Sync + 'static {
    /// Accepts or refuses a call by path and metadata, before the message is read. Unknown paths get
    /// [`unknown_method`].
    fn admit(&self, path: &str, metadata: &HeaderMap) -> Result<(), Status>;

    /// Handles one call. Dropped if the caller disconnects or its deadline passes.
    fn call(&self, request: GrpcRequest) -> impl Future<Output = Result<Bytes, Status>> + Send;

    /// Whether this path is a streaming method, handled by [`stream`](Self::stream).
    fn is_streaming(&self, _path: &str) -> bool {
        false
    }

    /// Handles a bidirectional streaming call. Dropped like [`call`](Self::call).
    fn stream(
        &self,
        conversation: GrpcServerStream,
    ) -> impl Future<Output = Result<(), Status>> + Send {
        std::future::ready(Err(unknown_method(&conversation.path)))
    }
}

/// A type-erased service, so that the connection code is compiled once, here, instead of in each crate with a service.
/// Costs one allocation per call.
trait AnyService: Send + Sync {
    fn admit(&self, path: &str, metadata: &HeaderMap) -> Result<(), Status>;
    fn call(&self, request: GrpcRequest) -> BoxFuture<'_, Result<Bytes, Status>>;
    fn is_streaming(&self, path: &str) -> bool;
    fn stream(&self, conversation: GrpcServerStream) -> BoxFuture<'_, Result<(), Status>>;
}

impl<S: GrpcService> AnyService for S {
    fn admit(&self, path: &str, metadata: &HeaderMap) -> Result<(), Status> {
        GrpcService::admit(self, path, metadata)
    }

    fn call(&self, request: GrpcRequest) -> BoxFuture<'_, Result<Bytes, Status>> {
        Box::pin(GrpcService::call(self, request))
    }

    fn is_streaming(&self, path: &str) -> bool {
        GrpcService::is_streaming(self, path)
    }

    fn stream(&self, conversation: GrpcServerStream) -> BoxFuture<'_, Result<(), Status>> {
        Box::pin(GrpcService::stream(self, conversation))
    }
}

/// The status for an unknown method.
pub fn unknown_method(path: &str) -> Status {
    let message = match path
        .strip_prefix('/')
        .and_then(|path| path.rsplit_once('/'))
    {
        Some((service, method)) => format!("unknown method {method} for service {service}"),
        None => format!("malformed method name: {path:?}"),
    };
    Status::new(Code::Unimplemented, message)
}

/// A bound gRPC server.
#[derive(Debug)]
pub struct GrpcServer {
    acceptor: Acceptor,
    local_addr: BoundAddr,
    settings: GrpcServerSettings,
    auth: Option<Arc<dyn ServerAuth>>,
    admission: Admission,
}

impl GrpcServer {
    /// Reads the certificates and binds the address; connections wait in the backlog until [`GrpcServer::serve`].
    /// `auth` is the extension named by `settings.auth`; `sockets` has the socket of the server that this one replaces.
    pub fn bind(
        settings: &GrpcServerSettings,
        auth: Option<Arc<dyn ServerAuth>>,
        sockets: &ListeningSockets,
    ) -> Result<GrpcServer, ServerError> {
        let tls = settings
            .tls
            .as_ref()
            .map(|tls| ServerSide::new(tls, &[b"h2"]))
            .transpose()?;
        let listener = Listener::bind(settings.transport, &settings.endpoint, sockets)?;
        let local_addr = listener.local_addr()?;
        let acceptor = Acceptor {
            listener,
            tls: tls.map(Arc::new),
            buffers: Buffers::sized(settings.read_buffer_size, settings.write_buffer_size),
            max_connections: settings.max_connections,
            stats: Arc::default(),
        };
        Ok(GrpcServer {
            acceptor,
            local_addr,
            settings: settings.clone(),
            auth,
            admission: Admission::unlimited(),
        })
    }

    /// Accepts only messages admitted by `admission`.
    #[must_use]
    pub fn with_admission(self, admission: Admission) -> GrpcServer {
        GrpcServer { admission, ..self }
    }

    pub fn local_addr(&self) -> &BoundAddr {
        &self.local_addr
    }

    pub fn stats(&self) -> Arc<ServerStats> {
        self.acceptor.stats.clone()
    }

    /// Serves until `stop` resolves to the shutdown deadline for active calls. Dropping it earlier aborts active calls.
    pub async fn serve<S: GrpcService>(
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
        let calls = Calls {
            service,
            auth: self.auth,
            stats: self.acceptor.stats.clone(),
            admission: self.admission,
            max_message: (self.settings.max_recv_msg_size_mib as usize).saturating_mul(1 << 20),
            include_metadata: self.settings.include_metadata,
        };
        let driver = GrpcDriver {
            calls: Arc::new(calls),
            lifetime: lifetime(&self.settings),
            http2: http2_builder(&self.settings),
        };
        Box::pin(self.acceptor.run(driver, stop))
    }
}

fn lifetime(settings: &GrpcServerSettings) -> Lifetime {
    let GrpcServerKeepalive {
        server_parameters,
        enforcement_policy,
    } = &settings.keepalive;
    let probes = limit(enforcement_policy.min_time).map(|min_time| PingLimit {
        busy: min_time,
        idle: if enforcement_policy.permit_without_stream {
            min_time
        } else {
            TWO_HOURS
        },
    });
    Lifetime {
        idle: limit(server_parameters.max_connection_idle),
        age: limit(server_parameters.max_connection_age),
        age_grace: limit(server_parameters.max_connection_age_grace),
        probes,
    }
}

fn http2_builder(settings: &GrpcServerSettings) -> http2::Builder<TokioExecutor> {
    let ServerParameters { time, timeout, .. } = settings.keepalive.server_parameters;
    let streams = if settings.max_concurrent_streams == 0 {
        100
    } else {
        settings.max_concurrent_streams
    };
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .auto_date_header(false)
        .initial_stream_window_size(WINDOW)
        .initial_connection_window_size(4 * WINDOW)
        .max_frame_size(MAX_FRAME)
        .max_header_list_size(MAX_HEADERS)
        .max_concurrent_streams(streams)
        .max_send_buf_size(64 << 10)
        .keep_alive_interval(limit(time).unwrap_or(TWO_HOURS))
        .keep_alive_timeout(limit(timeout).unwrap_or(Duration::from_secs(20)));
    builder
}

struct GrpcDriver {
    calls: Arc<Calls>,
    lifetime: Lifetime,
    http2: http2::Builder<TokioExecutor>,
}

impl Driver for GrpcDriver {
    async fn drive(self: Arc<Self>, stream: Stream, connection: Connection, stopping: Stopping) {
        let activity = Activity::new();
        let peer = connection.peer.clone();
        let stream = StallGuard::new(stream, STALL_TIMEOUTS, activity.clone());
        let service = service_fn(|request: Request<Incoming>| {
            let (calls, connection) = (self.calls.clone(), connection.clone());
            let running = activity.begin();
            async move {
                let answer = if calls.service.is_streaming(request.uri().path()) {
                    calls.begin(request, connection, running)
                } else {
                    let answer = calls.answer(request, connection).await;
                    drop(running);
                    answer
                };
                Ok::<_, Infallible>(answer)
            }
        });
        let serving = self.http2.serve_connection(TokioIo::new(stream), service);
        let serving = std::pin::pin!(serving);
        self.lifetime.run(serving, &activity, &peer, stopping).await;
    }
}

/// Server state shared by calls.
struct Calls {
    service: Box<dyn AnyService>,
    auth: Option<Arc<dyn ServerAuth>>,
    stats: Arc<ServerStats>,
    admission: Admission,
    max_message: usize,
    include_metadata: bool,
}

impl Calls {
    async fn answer(
        &self,
        request: Request<Incoming>,
        connection: Connection,
    ) -> Response<AnswerBody> {
        if let Err(refusal) = check_call(&request) {
            return *refusal;
        }
        let outcome = self.caught(self.call(request, connection)).await;
        let mut response = match outcome.and_then(|message| Framed::new(message, false)) {
            Ok(message) => {
                let mut trailers = HeaderMap::with_capacity(1);
                Status::new(Code::Ok, "").write_to(&mut trailers);
                Response::new(AnswerBody::new(message, trailers))
            }
            Err(status) => {
                let mut response = Response::new(AnswerBody::empty());
                status.write_to(response.headers_mut());
                // Tells the client the supported encodings.
                let accepted = HeaderValue::from_static(GRPC_ACCEPTED);
                response
                    .headers_mut()
                    .insert(GRPC_ACCEPT_ENCODING, accepted);
                response
            }
        };
        response
            .headers_mut()
            .insert(CONTENT_TYPE, grpc::CONTENT_TYPE);
        response
    }

    /// A panicking handler fails only its own call.
    async fn caught<T>(&self, work: impl Future<Output = Result<T, Status>>) -> Result<T, Status> {
        let outcome = AssertUnwindSafe(work).catch_unwind().await;
        outcome.unwrap_or_else(|_| {
            self.stats.panics.fetch_add(1, Relaxed);
            error!("A gRPC handler panicked; returning INTERNAL. Please report this bug.");
            Err(Status::new(Code::Internal, "the handler panicked"))
        })
    }

    /// Authenticates a call and returns its message encoding; an error refuses the call.
    async fn admit(
        &self,
        path: &str,
        headers: &HeaderMap,
    ) -> Result<(Option<AuthData>, Option<Encoding>), Status> {
        let auth = match &self.auth {
            Some(auth) => Some(auth.authenticate(headers).await?),
            None => None,
        };
        self.service.admit(path, headers)?;
        Ok((auth, encoding(headers)?))
    }

    /// Starts a streaming call, which runs while its response is sent.
    fn begin(
        self: Arc<Self>,
        request: Request<Incoming>,
        connection: Connection,
        running: Running,
    ) -> Response<AnswerBody> {
        if let Err(refusal) = check_call(&request) {
            return *refusal;
        }
        // Backpressure: the handler waits until the caller reads.
        let (sender, answers) = mpsc::channel(1);
        let work = async move {
            let _running = running;
            let conversation = self.stream(request, connection, sender);
            self.caught(conversation).await
        };
        let mut response = Response::new(AnswerBody::conversation(answers, Box::pin(work)));
        response
            .headers_mut()
            .insert(CONTENT_TYPE, grpc::CONTENT_TYPE);
        response
    }

    async fn stream(
        &self,
        request: Request<Incoming>,
        connection: Connection,
        answers: mpsc::Sender<Framed>,
    ) -> Result<(), Status> {
        let (head, body) = request.into_parts();
        let deadline = deadline(&head.headers)?;
        let work = async {
            let path = head.uri.path();
            let (auth, encoding) = self.admit(path, &head.headers).await?;
            let conversation = GrpcServerStream {
                path: path.to_owned(),
                connection,
                auth,
                deadline,
                incoming: Messages::new(body, self.max_message, self.admission.clone()),
                admission: self.admission.clone(),
                encoding,
                max_message: self.max_message,
                answers,
            };
            self.service.stream(conversation).await
        };
        within(deadline, work).await
    }

    async fn call(
        &self,
        request: Request<Incoming>,
        connection: Connection,
    ) -> Result<Bytes, Status> {
        let (head, mut body) = request.into_parts();
        let deadline = deadline(&head.headers)?;
        let work = async {
            let path = head.uri.path();
            let (auth, encoding) = self.admit(path, &head.headers).await?;
            let received = read_unary(&mut body, self.max_message, &self.admission).await?;
            let unpacking = unpack(received, encoding, self.max_message, &self.admission);
            let (message, reserved) = unpacking.await?;
            let request = GrpcRequest {
                path: path.to_owned(),
                message,
                reserved,
                metadata: head.headers,
                include_metadata: self.include_metadata,
                connection,
                auth,
                deadline,
            };
            self.service.call(request).await
        };
        within(deadline, work).await
    }
}

/// A bidirectional streaming call.
#[derive(Debug)]
pub struct GrpcServerStream {
    /// `/package.Service/Method`
    pub path: String,
    pub connection: Connection,
    pub auth: Option<AuthData>,
    /// The caller's deadline.
    pub deadline: Option<Instant>,
    incoming: Messages<Incoming>,
    admission: Admission,
    encoding: Option<Encoding>,
    max_message: usize,
    answers: mpsc::Sender<Framed>,
}

impl GrpcServerStream {
    /// The caller's next message; `None` when the caller has finished sending.
    pub async fn receive(&mut self) -> Result<Option<Bytes>, Status> {
        match self.incoming.next().await? {
            Some(received) => {
                let (encoding, max) = (self.encoding, self.max_message);
                let (message, _) = unpack(received, encoding, max, &self.admission).await?;
                Ok(Some(message.plain))
            }
            None => Ok(None),
        }
    }

    /// Sends a message to the caller; waits while the caller does not read.
    pub async fn send(&self, message: Bytes) -> Result<(), Status> {
        let message = Framed::new(message, false)?;
        let sent = self.answers.send(message).await;
        sent.map_err(|_| Status::new(Code::Cancelled, "the caller disconnected"))
    }
}

/// Refuses non-gRPC requests with grpc-go's HTTP statuses. `te: trailers` is not required: some proxies drop it.
fn check_call(request: &Request<Incoming>) -> Result<(), Box<Response<AnswerBody>>> {
    let content_type = request.headers().get(CONTENT_TYPE);
    let (http, status) = if !grpc::is_grpc(content_type) {
        let message = match content_type {
            Some(found) => format!("unexpected content-type {found:?} for a gRPC call"),
            None => "expected content-type application/grpc".to_owned(),
        };
        let status = Status::new(Code::InvalidArgument, message);
        (StatusCode::UNSUPPORTED_MEDIA_TYPE, status)
    } else if request.method() != Method::POST {
        let message = format!(
            "unexpected method {} for a gRPC call, expected POST",
            request.method()
        );
        (
            StatusCode::METHOD_NOT_ALLOWED,
            Status::new(Code::Internal, message),
        )
    } else {
        return Ok(());
    };
    let mut response = Response::new(AnswerBody::empty());
    *response.status_mut() = http;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, grpc::CONTENT_TYPE);
    if http == StatusCode::METHOD_NOT_ALLOWED {
        headers.insert(ALLOW, HeaderValue::from_static("POST"));
    }
    status.write_to(headers);
    Err(Box::new(response))
}

async fn within<T>(
    deadline: Option<Instant>,
    work: impl Future<Output = Result<T, Status>>,
) -> Result<T, Status> {
    match deadline {
        None => work.await,
        Some(deadline) => timeout_at(deadline, work).await.unwrap_or_else(|_| {
            Err(Status::new(
                Code::DeadlineExceeded,
                "context deadline exceeded",
            ))
        }),
    }
}

async fn unpack(
    received: Received,
    encoding: Option<Encoding>,
    max_message: usize,
    admission: &Admission,
) -> Result<(Message, Reservation), Status> {
    if !received.compressed {
        return Ok((Message::from(received.payload), admission.reservation()));
    }
    let Some(encoding) = encoding else {
        let message = "grpc: compressed flag set with identity or empty encoding";
        return Err(Status::new(Code::Internal, message));
    };
    let bytes = received.payload;
    match decompress_request(admission, encoding, &bytes, max_message).await {
        Ok((plain, reserved)) => {
            let compressed = Some(Compressed { encoding, bytes });
            Ok((Message { plain, compressed }, reserved))
        }
        Err(DecompressError::TooLarge { limit }) => {
            let message =
                format!("grpc: received message after decompression larger than max {limit}");
            Err(Status::new(Code::ResourceExhausted, message))
        }
        Err(error @ DecompressError::Invalid { .. }) => {
            let message = format!("grpc: failed to decompress the received message: {error}");
            Err(Status::new(Code::Internal, message))
        }
        Err(DecompressError::Exhausted(exhausted)) => Err(exhausted.into()),
    }
}

fn encoding(headers: &HeaderMap) -> Result<Option<Encoding>, Status> {
    let Some(name) = headers.get(GRPC_ENCODING).map(HeaderValue::as_bytes) else {
        return Ok(None);
    };
    if name == b"identity" || name.is_empty() {
        return Ok(None);
    }
    let name = String::from_utf8_lossy(name);
    let unknown = || {
        let message = format!("grpc: Decompressor is not installed for grpc-encoding {name:?}");
        Status::new(Code::Unimplemented, message)
    };
    Encoding::from_grpc(&name).map(Some).ok_or_else(unknown)
}

fn deadline(headers: &HeaderMap) -> Result<Option<Instant>, Status> {
    let Some(value) = headers.get(timeout::GRPC_TIMEOUT) else {
        return Ok(None);
    };
    let Some(timeout) = timeout::decode(value) else {
        let message = format!("malformed grpc-timeout: {value:?}");
        return Err(Status::new(Code::Internal, message));
    };
    Ok(Instant::now().checked_add(timeout))
}
