//! HTTP/1 requests to a service of this host or of the machine under it: container runtimes on Unix
//! sockets, the metadata of clouds. They are made seldom, each on a connection of its own, and by no
//! proxy, since what one answers is about the host that asks.

use std::pin::Pin;

use bytes::Bytes;
use http::header::HOST;
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, Uri};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;

use super::ClientError;
use super::dial::{self, Address};
use super::endpoint::{GrpcTarget, Place, TlsByScheme};
use super::http::{HttpError, HttpReply};
use super::outgoing::Outgoing;
use crate::chunks::Chunks;
use crate::io::Stream;
use crate::socket::Buffers;

/// Answers larger than this are refused, but for those that are read as they come.
const MAX_ANSWER: usize = 16 << 20;

/// Makes requests to one place. It has no time limits of its own.
#[derive(Debug)]
pub struct DirectHttp {
    place: Place,
    endpoint: String,
    host: HeaderValue,
}

/// An answer of any status that is read as it comes. Dropped, the connection is closed.
pub struct DirectStream {
    pub status: StatusCode,
    pub headers: HeaderMap,
    endpoint: String,
    body: Incoming,
    connection: Pin<Box<Connection>>,
    is_over: bool,
}

type Connection = http1::Connection<TokioIo<Stream>, Outgoing>;

impl DirectHttp {
    /// To `http://host:port` or `unix:///path`. Opens nothing.
    pub fn new(endpoint: &str) -> Result<DirectHttp, ClientError> {
        let target = GrpcTarget::parse(endpoint).map_err(ClientError::Endpoint)?;
        if target.tls == TlsByScheme::Always {
            let message = format!("{endpoint:?}: TLS is not supported; write http:// or unix://");
            return Err(ClientError::Endpoint(message));
        }
        let authority = target.authority();
        let host = HeaderValue::from_str(&authority)
            .map_err(|_| ClientError::Endpoint(format!("{authority:?} is not a host")))?;
        Ok(DirectHttp {
            place: target.place,
            endpoint: endpoint.to_owned(),
            host,
        })
    }

    /// Makes a request without a body and receives the whole answer.
    pub async fn send(
        &self,
        method: Method,
        path: &str,
        headers: HeaderMap,
    ) -> Result<HttpReply, HttpError> {
        let mut stream = self.open(method, path, headers).await?;
        let mut body = Vec::new();
        while let Some(data) = stream.next().await? {
            if body.len() + data.len() > MAX_ANSWER {
                return Err(self.broken(&format!("the response exceeds {MAX_ANSWER} bytes")));
            }
            body.extend_from_slice(&data);
        }
        Ok(HttpReply {
            status: stream.status,
            headers: stream.headers,
            body: body.into(),
        })
    }

    /// Makes a request without a body and receives the head of the answer.
    pub async fn open(
        &self,
        method: Method,
        path: &str,
        headers: HeaderMap,
    ) -> Result<DirectStream, HttpError> {
        let uri: Uri = path
            .parse()
            .map_err(|error| self.broken(&format!("{path:?} is not a path: {error}")))?;
        let mut request = Request::new(Outgoing::Whole(Chunks::default()));
        *request.method_mut() = method;
        *request.uri_mut() = uri;
        *request.headers_mut() = headers;
        request.headers_mut().insert(HOST, self.host.clone());
        let stream = self.connect().await.map_err(HttpError::Connect)?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|error| self.broken(&error))?;
        let mut connection: Pin<Box<Connection>> = Box::pin(connection);
        let mut answer = std::pin::pin!(sender.send_request(request));
        let mut is_over = false;
        let response = loop {
            tokio::select! {
                biased;
                response = &mut answer => break response.map_err(|error| self.broken(&error))?,
                // What went wrong is told by the answer, too.
                _ = &mut connection, if !is_over => is_over = true,
            }
        };
        let (head, body) = response.into_parts();
        Ok(DirectStream {
            status: head.status,
            headers: head.headers,
            endpoint: self.endpoint.clone(),
            body,
            connection,
            is_over,
        })
    }

    async fn connect(&self) -> Result<Stream, dial::ConnectError> {
        let (endpoint, buffers) = (self.endpoint.as_str(), Buffers::default());
        match &self.place {
            Place::Unix(path) => {
                let address = Address::Unix(path.clone());
                dial::connect(&address, endpoint, None, buffers).await
            }
            Place::Host { host, port } => {
                dial::connect_host(host, *port, endpoint, None, buffers).await
            }
        }
    }

    fn broken(&self, error: &dyn std::fmt::Display) -> HttpError {
        broken(&self.endpoint, error)
    }
}

impl DirectStream {
    /// The next piece of the answer; none at its end.
    pub async fn next(&mut self) -> Result<Option<Bytes>, HttpError> {
        loop {
            let frame = tokio::select! {
                biased;
                frame = self.body.frame() => frame,
                _ = &mut self.connection, if !self.is_over => {
                    self.is_over = true;
                    continue;
                }
            };
            match frame {
                None => return Ok(None),
                Some(Err(error)) => return Err(broken(&self.endpoint, &error)),
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        return Ok(Some(data));
                    }
                }
            }
        }
    }
}

fn broken(endpoint: &str, error: &dyn std::fmt::Display) -> HttpError {
    HttpError::Broken {
        url: endpoint.to_owned(),
        error: error.to_string(),
    }
}
