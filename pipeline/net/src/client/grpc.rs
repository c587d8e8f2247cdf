//! Unary gRPC calls over HTTP/2.
//!
//! This stands on `h2` itself: a call is one stream, sent and awaited by the caller's own task, with
//! no dispatcher in between.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use h2::client::SendRequest;
use h2::{Reason, RecvStream};
use http::header::{CONTENT_TYPE, TE};
use http::{HeaderMap, HeaderValue, Method, Request, Uri, Version};
use tokio::net::TcpStream;
use tokio::sync::Mutex;
use tokio::time::timeout;

use crate::grpc::frame::{Assembler, Framed};
use crate::grpc::{self, Code, Status, timeout as grpc_timeout};
use crate::io::{Socket, Stream};
use crate::message::Message;

/// Answers larger than this are refused, as gRPC clients do by default.
const MAX_ANSWER: usize = 4 << 20;

/// A unary call to be made.
#[derive(Debug)]
pub struct GrpcCall<'a> {
    /// `/package.Service/Method`
    pub path: &'static str,
    pub message: &'a Message,
    /// Metadata for this call alone, such as what came with the data.
    pub headers: HeaderMap,
    pub timeout: Option<Duration>,
}

/// The answer to a unary call.
#[derive(Debug)]
pub struct GrpcReply {
    pub message: Bytes,
    pub headers: HeaderMap,
    pub trailers: HeaderMap,
}

/// Makes unary calls to one endpoint.
#[derive(Debug)]
pub struct GrpcClient {
    addr: SocketAddr,
    connection: Mutex<Option<SendRequest<Framed>>>,
}

impl GrpcClient {
    pub fn new(addr: SocketAddr) -> GrpcClient {
        GrpcClient {
            addr,
            connection: Mutex::new(None),
        }
    }

    pub async fn unary(&self, call: GrpcCall<'_>) -> Result<GrpcReply, Status> {
        let within = call.timeout;
        let work = self.attempt(call);
        match within {
            None => work.await,
            Some(within) => timeout(within, work).await.unwrap_or_else(|_| {
                Err(Status::new(
                    Code::DeadlineExceeded,
                    "context deadline exceeded",
                ))
            }),
        }
    }

    async fn attempt(&self, call: GrpcCall<'_>) -> Result<GrpcReply, Status> {
        let message = Framed::new(call.message.plain.clone(), false)?;
        let mut connection = self.connection().await?.ready().await.map_err(failed)?;
        let uri = Uri::builder()
            .scheme("http")
            .authority(self.addr.to_string())
            .path_and_query(call.path)
            .build()
            .map_err(|error| Status::new(Code::Internal, error.to_string()))?;
        let mut request = Request::new(());
        *request.method_mut() = Method::POST;
        *request.uri_mut() = uri;
        *request.version_mut() = Version::HTTP_2;
        *request.headers_mut() = call.headers;
        let headers = request.headers_mut();
        headers.insert(TE, HeaderValue::from_static("trailers"));
        headers.insert(CONTENT_TYPE, grpc::CONTENT_TYPE);
        if let Some(timeout) = call.timeout {
            headers.insert(grpc_timeout::GRPC_TIMEOUT, grpc_timeout::encode(timeout));
        }
        let (answer, mut sending) = connection.send_request(request, false).map_err(failed)?;
        sending.send_data(message, true).map_err(failed)?;
        let (head, body) = answer.await.map_err(failed)?.into_parts();
        read_reply(head.headers, body).await
    }

    async fn connection(&self) -> Result<SendRequest<Framed>, Status> {
        let mut slot = self.connection.lock().await;
        if let Some(connection) = &*slot {
            return Ok(connection.clone());
        }
        let unavailable = |error: String| Status::new(Code::Unavailable, error);
        let socket = TcpStream::connect(self.addr)
            .await
            .map_err(|error| unavailable(error.to_string()))?;
        let stream = Stream::Plain(Socket::Tcp(socket));
        let (send, connection) = h2::client::Builder::new()
            .initial_window_size(1 << 20)
            .initial_connection_window_size(4 << 20)
            .enable_push(false)
            .handshake(stream)
            .await
            .map_err(|error| unavailable(error.to_string()))?;
        tokio::spawn(connection);
        *slot = Some(send.clone());
        Ok(send)
    }
}

async fn read_reply(headers: HeaderMap, mut body: RecvStream) -> Result<GrpcReply, Status> {
    if let Some(outcome) = Status::read_from(&headers) {
        outcome?;
    }
    let mut assembler = Assembler::new(MAX_ANSWER);
    while let Some(data) = body.data().await {
        let data = data.map_err(failed)?;
        // The stream's window is ours to open again; it only fails once the stream is over.
        let _ = body.flow_control().release_capacity(data.len());
        assembler.push(data)?;
    }
    let trailers = body.trailers().await.map_err(failed)?.unwrap_or_default();
    match Status::read_from(&trailers) {
        Some(outcome) => outcome?,
        None => {
            let message = "server closed the stream without sending trailers";
            return Err(Status::new(Code::Internal, message));
        }
    }
    let message = assembler
        .finish()?
        .map(|received| received.payload)
        .unwrap_or_default();
    Ok(GrpcReply {
        message,
        headers,
        trailers,
    })
}

fn failed(error: h2::Error) -> Status {
    let code = match error.reason() {
        Some(Reason::CANCEL) => Code::Cancelled,
        _ => Code::Unavailable,
    };
    Status::new(code, error.to_string())
}
