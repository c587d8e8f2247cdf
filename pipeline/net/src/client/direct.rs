//! HTTP/1 requests to services local to this host or its cloud instance: container runtimes on Unix sockets, metadata
//! servers. Requests are rare, each uses its own connection, and none goes through a proxy, as responses are about the
//! requesting host.

use std::pin::Pin;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::header::HOST;
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, Uri};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;

use super::ClientError;
use super::dial::{self, Address};
use super::endpoint::{Endpoint, GrpcTarget, TlsByScheme};
use super::error::ConnectError;
use super::http::{HttpError, HttpReply};
use super::outgoing::Outgoing;
use crate::EndpointError;
use crate::chunks::Chunks;
use crate::io::Stream;
use crate::socket::Buffers;
use std::error::Error as StdError;

/// Maximum response size, except for streamed responses.
const MAX_RESPONSE: usize = 16 << 20;

/// Sends requests to one endpoint, without timeouts of its own.
#[derive(Debug)]
pub struct DirectHttp {
    target: Endpoint,
    endpoint: String,
    host: HeaderValue,
}

/// A streamed response of any status. Dropping it closes the connection.
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
    /// A client for `http://host:port` or `unix:///path`. Does not connect yet.
    pub fn new(endpoint: &str) -> Result<DirectHttp, ClientError> {
        let target = GrpcTarget::parse(endpoint)?;
        if target.tls == TlsByScheme::Always {
            return Err(EndpointError::Tls(endpoint.to_owned()).into());
        }
        let authority = target.authority();
        let host = HeaderValue::from_str(&authority)
            .map_err(|_| EndpointError::InvalidHost(authority.clone()))?;
        Ok(DirectHttp {
            target: target.endpoint,
            endpoint: endpoint.to_owned(),
            host,
        })
    }

    /// Sends a request without a body and reads the whole response.
    pub async fn send(
        &self,
        method: Method,
        path: &str,
        headers: HeaderMap,
    ) -> Result<HttpReply, HttpError> {
        let mut stream = self.open(method, path, headers).await?;
        let mut body = Vec::new();
        while let Some(data) = stream.next().await? {
            if body.len() + data.len() > MAX_RESPONSE {
                return Err(self.broken(format!("the response exceeds {MAX_RESPONSE} bytes")));
            }
            body.extend_from_slice(&data);
        }
        Ok(HttpReply {
            status: stream.status,
            headers: stream.headers,
            body: body.into(),
        })
    }

    /// Sends a request without a body and reads the response head.
    pub fn open<'a>(
        &'a self,
        method: Method,
        path: &'a str,
        headers: HeaderMap,
    ) -> BoxFuture<'a, Result<DirectStream, HttpError>> {
        Box::pin(self.begin(method, path, headers))
    }

    async fn begin(
        &self,
        method: Method,
        path: &str,
        headers: HeaderMap,
    ) -> Result<DirectStream, HttpError> {
        let uri: Uri = path
            .parse()
            .map_err(|error| self.broken(format!("invalid path {path:?}: {error}")))?;
        let mut request = Request::new(Outgoing::Whole(Chunks::default()));
        *request.method_mut() = method;
        *request.uri_mut() = uri;
        *request.headers_mut() = headers;
        request.headers_mut().insert(HOST, self.host.clone());
        let stream = self.connect().await.map_err(HttpError::Connect)?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|error| self.broken(error))?;
        let mut connection: Pin<Box<Connection>> = Box::pin(connection);
        let mut answer = std::pin::pin!(sender.send_request(request));
        let mut is_over = false;
        let response = loop {
            tokio::select! {
                biased;
                response = &mut answer => break response.map_err(|error| self.broken(error))?,
                // The response reports the error, too.
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

    async fn connect(&self) -> Result<Stream, ConnectError> {
        let (endpoint, buffers) = (self.endpoint.as_str(), Buffers::default());
        match &self.target {
            Endpoint::Unix(path) => {
                let address = Address::Unix(path.clone());
                dial::connect(&address, endpoint, None, buffers).await
            }
            Endpoint::Host { host, port } => {
                dial::connect_host(host, *port, endpoint, None, buffers).await
            }
        }
    }

    fn broken(&self, error: impl Into<Box<dyn StdError + Send + Sync>>) -> HttpError {
        HttpError::broken(&self.endpoint, error)
    }
}

impl DirectStream {
    /// The next piece of the response; `None` at its end.
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
                Some(Err(error)) => return Err(HttpError::broken(&self.endpoint, error)),
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        return Ok(Some(data));
                    }
                }
            }
        }
    }
}
