//! Unary gRPC calls, from the connection to the service and back.

use std::convert::Infallible;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::time::{Instant, timeout_at};
use tracing::{debug, error};

use super::accept::{Acceptor, Connection, Driver, ServerStats, Stopping};
use super::listen::{BindError, BoundAddr, Listener, Transport};
use crate::auth::AuthData;
use crate::grpc::frame::{AnswerBody, Framed, read_unary};
use crate::grpc::{self, Code, Status, timeout};
use crate::io::Stream;
use crate::message::Message;

/// A unary call, received whole.
#[derive(Debug)]
pub struct GrpcRequest {
    /// `/package.Service/Method`
    pub path: String,
    pub metadata: HeaderMap,
    pub connection: Connection,
    pub auth: Option<AuthData>,
    pub message: Message,
    /// When the caller stops waiting.
    pub deadline: Option<Instant>,
}

/// Answers unary calls.
pub trait GrpcService: Send + Sync + 'static {
    /// Whether there is such a method; if not, the call is refused before its message is read.
    fn knows(&self, path: &str) -> bool;

    /// Handles one call. Dropped halfway if the caller hangs up or its deadline passes.
    fn call(&self, request: GrpcRequest) -> impl Future<Output = Result<Bytes, Status>> + Send;
}

/// A bound gRPC server.
#[derive(Debug)]
pub struct GrpcServer {
    listener: Listener,
    local_addr: BoundAddr,
    stats: Arc<ServerStats>,
}

impl GrpcServer {
    /// Takes the address; connections wait in the backlog until [`GrpcServer::serve`].
    pub fn bind(endpoint: &str) -> Result<GrpcServer, BindError> {
        let listener = Listener::bind(Transport::Tcp, endpoint)?;
        let local_addr = listener.local_addr().map_err(|error| BindError::Address {
            network: "tcp",
            endpoint: endpoint.to_owned(),
            error: error.to_string(),
        })?;
        Ok(GrpcServer {
            listener,
            local_addr,
            stats: Arc::default(),
        })
    }

    pub fn local_addr(&self) -> &BoundAddr {
        &self.local_addr
    }

    pub fn stats(&self) -> Arc<ServerStats> {
        self.stats.clone()
    }

    /// Serves until `stop` resolves to the moment by which running calls must be done.
    pub async fn serve<S: GrpcService>(
        self,
        service: S,
        stop: impl Future<Output = Instant> + Send,
    ) {
        let driver = GrpcDriver {
            calls: Arc::new(Calls {
                service,
                stats: self.stats.clone(),
                max_message: 64 << 20,
            }),
        };
        let acceptor = Acceptor {
            listener: self.listener,
            max_connections: 16_384,
            stats: self.stats,
        };
        acceptor.run(driver, stop).await;
    }
}

struct GrpcDriver<S> {
    calls: Arc<Calls<S>>,
}

impl<S: GrpcService> Driver for GrpcDriver<S> {
    async fn drive(
        self: Arc<Self>,
        stream: Stream,
        connection: Connection,
        mut stopping: Stopping,
    ) {
        let peer = connection.peer.clone();
        let service = service_fn(|request: Request<Incoming>| {
            let (calls, connection) = (self.calls.clone(), connection.clone());
            async move { Ok::<_, Infallible>(calls.answer(request, connection).await) }
        });
        let serving = http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .auto_date_header(false)
            .serve_connection(TokioIo::new(stream), service);
        let mut serving = std::pin::pin!(serving);
        let result = tokio::select! {
            result = &mut serving => result,
            () = stopping.wait() => {
                serving.as_mut().graceful_shutdown();
                serving.await
            }
        };
        if let Err(error) = result {
            debug!(%peer, %error, "gRPC connection ended");
        }
    }
}

struct Calls<S> {
    service: S,
    stats: Arc<ServerStats>,
    max_message: usize,
}

impl<S: GrpcService> Calls<S> {
    async fn answer(
        &self,
        request: Request<Incoming>,
        connection: Connection,
    ) -> Response<AnswerBody> {
        if !grpc::is_grpc(request.headers().get(CONTENT_TYPE)) {
            let mut response = Response::new(AnswerBody::empty());
            *response.status_mut() = StatusCode::UNSUPPORTED_MEDIA_TYPE;
            return response;
        }
        let outcome = AssertUnwindSafe(self.call(request, connection))
            .catch_unwind()
            .await;
        let outcome = outcome.unwrap_or_else(|_| {
            self.stats.panics.fetch_add(1, Relaxed);
            error!("a gRPC handler panicked; the caller is told INTERNAL");
            Err(Status::new(Code::Internal, "the handler panicked"))
        });
        match outcome.and_then(|message| Framed::new(message, false)) {
            Ok(message) => {
                let mut trailers = HeaderMap::with_capacity(1);
                Status::new(Code::Ok, "").write_to(&mut trailers);
                let mut response = Response::new(AnswerBody::new(message, trailers));
                response
                    .headers_mut()
                    .insert(CONTENT_TYPE, grpc::CONTENT_TYPE);
                response
            }
            Err(status) => {
                let mut response = Response::new(AnswerBody::empty());
                response
                    .headers_mut()
                    .insert(CONTENT_TYPE, grpc::CONTENT_TYPE);
                status.write_to(response.headers_mut());
                response
            }
        }
    }

    async fn call(
        &self,
        request: Request<Incoming>,
        connection: Connection,
    ) -> Result<Bytes, Status> {
        let (head, mut body) = request.into_parts();
        let path = head.uri.path().to_owned();
        if !self.service.knows(&path) {
            return Err(unknown_method(&path));
        }
        let deadline = deadline(&head.headers)?;
        let work = async {
            let received = read_unary(&mut body, self.max_message).await?;
            if received.compressed {
                return Err(Status::new(
                    Code::Unimplemented,
                    "grpc: compressed messages are not understood",
                ));
            }
            let request = GrpcRequest {
                path,
                metadata: head.headers,
                connection,
                auth: None,
                message: Message::from(received.payload),
                deadline,
            };
            self.service.call(request).await
        };
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
}

fn deadline(headers: &HeaderMap) -> Result<Option<Instant>, Status> {
    let Some(value) = headers.get(timeout::GRPC_TIMEOUT) else {
        return Ok(None);
    };
    let Some(timeout) = timeout::decode(value) else {
        let message = format!("malformed grpc-timeout: {value:?}");
        return Err(Status::new(Code::Internal, message));
    };
    Ok(Instant::now().checked_add(timeout.min(Duration::from_secs(86_400 * 365))))
}

fn unknown_method(path: &str) -> Status {
    let message = match path
        .strip_prefix('/')
        .and_then(|path| path.rsplit_once('/'))
    {
        Some((service, method)) => format!("unknown method {method} for service {service}"),
        None => format!("malformed method name: {path:?}"),
    };
    Status::new(Code::Unimplemented, message)
}
