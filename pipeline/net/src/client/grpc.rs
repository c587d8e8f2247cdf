//! gRPC calls over HTTP/2.
//!
//! Built directly on `h2`: the caller's task sends a call and awaits its response, without a dispatcher task.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use h2::RecvStream;
use http::header::{CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, HOST, TE, USER_AGENT};
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode, Uri, Version};
use profcol_config::Url;
use tokio::time::{sleep, timeout};

use super::answer::{check_answer, outcome, unpack};
use super::channel::{Channel, Connection, FailedAttempt, Http2Options};
use super::endpoint::{GrpcTarget, TlsByScheme};
use super::proxy::Proxies;
use super::settings::GrpcClientSettings;
use super::stream::{GrpcStream, Opened};
use super::{ClientError, MAX_RESPONSE};
use crate::auth::{ClientAuth, ClientAuthError};
use crate::chunks::Chunks;
use crate::compress::{Encoding, Level, compress_async};
use crate::grpc::frame::{Assembler, Framed};
use crate::grpc::{self, Code, Status, timeout as grpc_timeout};
use crate::hint::Hint;
use crate::message::Content;
use crate::server::GRPC_ENCODING;
use crate::settings::header_map;
use crate::socket::Buffers;
use crate::tls::ClientSide;
use crate::{EndpointError, SettingsError};

/// Maximum attempts for a call that reached no server.
const MAX_ATTEMPTS: usize = 3;
/// Delay between connection attempts with `wait_for_ready`.
const RECONNECT_DELAY: Duration = Duration::from_secs(1);

/// The common parts of calls.
#[derive(Clone, Debug)]
pub(super) struct Head {
    pub path: &'static str,
    pub headers: HeaderMap,
    pub timeout: Option<Duration>,
    pub compressed: bool,
}

/// A unary call.
pub struct GrpcCall<'a> {
    /// `/package.Service/Method`
    pub path: &'static str,
    pub message: &'a dyn Content,
    /// Metadata for this call, such as that received with the data. Overrides `headers` of the settings.
    pub headers: HeaderMap,
    /// Timeout of the call, also sent to the server.
    pub timeout: Option<Duration>,
}

/// The response to a unary call.
#[derive(Debug)]
pub struct GrpcReply {
    pub message: Bytes,
    pub headers: HeaderMap,
    pub trailers: HeaderMap,
}

/// Makes unary calls to one endpoint.
#[derive(Debug)]
pub struct GrpcClient {
    channel: Channel,
    scheme: Scheme,
    authority: Authority,
    headers: HeaderMap,
    compression: Option<(Encoding, &'static str)>,
    wait_for_ready: bool,
    auth: Option<Arc<dyn ClientAuth>>,
}

impl GrpcClient {
    /// Reads the certificates; connects on the first call. `auth` is the extension named by `settings.auth`;
    /// `user_agent` is the default user agent.
    pub fn new(
        settings: &GrpcClientSettings,
        auth: Option<Arc<dyn ClientAuth>>,
        user_agent: &str,
    ) -> Result<GrpcClient, ClientError> {
        let target = GrpcTarget::parse(&settings.endpoint)?;
        let tls = match target.tls {
            TlsByScheme::Never => None,
            TlsByScheme::Open => ClientSide::new(&settings.tls, false, &[b"h2"])?,
            TlsByScheme::Always => ClientSide::new(&settings.tls, true, &[b"h2"])?,
        };
        let named = [&settings.authority, &settings.tls.server_name_override];
        let authority = named.into_iter().find(|name| !name.is_empty()).cloned();
        let authority = authority.unwrap_or_else(|| target.authority());
        let authority = Authority::try_from(authority.as_str())
            .map_err(|_| EndpointError::InvalidHost(authority.clone()))?;
        let compression = settings.compression.for_grpc()?;
        let http2 = Http2Options {
            buffers: Buffers::sized(settings.read_buffer_size, settings.write_buffer_size),
            keepalive: settings.keepalive.0.clone(),
        };
        Ok(GrpcClient {
            scheme: if tls.is_some() {
                Scheme::HTTPS
            } else {
                Scheme::HTTP
            },
            authority,
            headers: fixed_headers(settings, user_agent)?,
            compression: compression.and_then(|encoding| Some((encoding, encoding.to_grpc()?))),
            wait_for_ready: settings.wait_for_ready,
            auth,
            channel: Channel::new(
                target,
                settings.endpoint.clone(),
                tls,
                Proxies::new(&Url::default())?,
                settings.balancer_name,
                http2,
            ),
        })
    }

    /// Makes a call. Transport failures are [`Code::Unavailable`].
    pub fn unary<'a>(&'a self, call: GrpcCall<'a>) -> BoxFuture<'a, Result<GrpcReply, Status>> {
        Box::pin(async move {
            let within = call.timeout;
            let work = self.attempts(call);
            match within {
                None => work.await,
                Some(within) => timeout(within, work).await.unwrap_or_else(|_| {
                    Err(Status::new(
                        Code::DeadlineExceeded,
                        "context deadline exceeded",
                    ))
                }),
            }
        })
    }

    async fn attempts(&self, call: GrpcCall<'_>) -> Result<GrpcReply, Status> {
        let (payload, compressed) = self.pack(call.message).await;
        let head = Head {
            path: call.path,
            headers: call.headers,
            timeout: call.timeout,
            compressed,
        };
        let mut attempt = 1;
        loop {
            match self.attempt(&head, &payload).await {
                Err(failure) if failure.unsent && attempt < MAX_ATTEMPTS => attempt += 1,
                outcome => return outcome.map_err(|failure| failure.status),
            }
        }
    }

    /// Starts a bidirectional streaming call. `headers` apply to this call; `timeout` is only sent to the server, so
    /// callers must enforce it too.
    pub fn stream(
        &self,
        path: &'static str,
        headers: HeaderMap,
        timeout: Option<Duration>,
    ) -> BoxFuture<'_, Result<GrpcStream, Status>> {
        let head = Head {
            path,
            headers,
            timeout,
            compressed: self.compression.is_some(),
        };
        Box::pin(async move {
            let mut attempt = 1;
            loop {
                match self.open(&head).await {
                    Err(failure) if failure.unsent && attempt < MAX_ATTEMPTS => attempt += 1,
                    Err(failure) => return Err(failure.status),
                    Ok(opened) => {
                        let encoding = self.compression.map(|(encoding, _)| encoding);
                        return Ok(GrpcStream::new(opened, encoding));
                    }
                }
            }
        })
    }

    /// The bytes to send: unchanged if already compressed in the configured encoding.
    async fn pack(&self, message: &dyn Content) -> (Chunks, bool) {
        let Some((encoding, _)) = self.compression else {
            return (message.plain(), false);
        };
        if let Some(compressed) = message.compressed(encoding) {
            return (compressed.into(), true);
        }
        let plain = message.plain().joined();
        // Like grpc-go, do not compress empty messages.
        if plain.is_empty() {
            return (Chunks::default(), false);
        }
        let compressed = compress_async(encoding, Level::default(), &plain).await;
        (compressed.into(), true)
    }

    async fn attempt(&self, head: &Head, payload: &Chunks) -> Result<GrpcReply, FailedAttempt> {
        let message =
            Framed::new(payload.clone(), head.compressed).map_err(FailedAttempt::non_retryable)?;
        let Opened {
            answer,
            mut sending,
            running,
        } = self.open(head).await?;
        let failed = |error| running.failure(error);
        // `h2` keeps a reference to the message and sends it as flow control allows.
        sending.send_data(message, true).map_err(failed)?;
        let (head, body) = answer.await.map_err(failed)?.into_parts();
        running.answered();
        let reply = read_reply(head.status, head.headers, body).await;
        running.ended();
        reply
    }

    /// Starts a call.
    pub(super) async fn open(&self, head: &Head) -> Result<Opened, FailedAttempt> {
        let request = self
            .request(head)
            .await
            .map_err(FailedAttempt::non_retryable)?;
        let connection = self.connection().await?;
        let running = connection.begin();
        let mut send = connection.send.clone().ready().await.map_err(|error| {
            connection.give_up();
            FailedAttempt {
                unsent: true,
                ..running.failure(error)
            }
        })?;
        let requested = send.send_request(request, false);
        let (answer, sending) = requested.map_err(|error| running.failure(error))?;
        Ok(Opened {
            answer,
            sending,
            running,
        })
    }

    async fn connection(&self) -> Result<Connection, FailedAttempt> {
        loop {
            match self.channel.pick().await {
                Ok(connection) => return Ok(connection),
                Err(_) if self.wait_for_ready => sleep(RECONNECT_DELAY).await,
                Err(error) => {
                    let status = Status::new(Code::Unavailable, error.to_string())
                        .with_hint(error.hint())
                        .with_source(error);
                    return Err(FailedAttempt::non_retryable(status));
                }
            }
        }
    }

    async fn request(&self, call: &Head) -> Result<Request<()>, Status> {
        let mut uri = http::uri::Parts::default();
        uri.scheme = Some(self.scheme.clone());
        uri.authority = Some(self.authority.clone());
        uri.path_and_query = Some(PathAndQuery::from_static(call.path));
        let uri = Uri::from_parts(uri)
            .map_err(|error| Status::new(Code::Internal, error.to_string()).with_source(error))?;
        let mut request = Request::new(());
        *request.method_mut() = Method::POST;
        *request.version_mut() = Version::HTTP_2;
        *request.uri_mut() = uri;
        let headers = request.headers_mut();
        headers.clone_from(&self.headers);
        for name in call.headers.keys().filter(|name| !is_reserved(name)) {
            headers.remove(name);
            for value in call.headers.get_all(name) {
                headers.append(name, value.clone());
            }
        }
        if let Some(auth) = &self.auth {
            // Usually temporary: a token file being replaced, a token server being down.
            let unavailable = |error: ClientAuthError| {
                Status::new(Code::Unavailable, error.to_string())
                    .with_hint(Hint::CheckCredentials)
                    .with_source(error)
            };
            for (name, value) in auth.headers().await.map_err(unavailable)? {
                headers.insert(name, value);
            }
        }
        if let (Some((_, name)), true) = (self.compression, call.compressed) {
            headers.insert(GRPC_ENCODING, HeaderValue::from_static(name));
        }
        if let Some(timeout) = call.timeout {
            headers.insert(grpc_timeout::GRPC_TIMEOUT, grpc_timeout::encode(timeout));
        }
        Ok(request)
    }
}

fn fixed_headers(
    settings: &GrpcClientSettings,
    user_agent: &str,
) -> Result<HeaderMap, ClientError> {
    let mut headers = header_map(&settings.headers)?;
    let user_agent = match settings.user_agent.as_str() {
        "" => user_agent,
        configured => configured,
    };
    let user_agent = HeaderValue::from_str(user_agent)
        .map_err(|_| SettingsError::UserAgent(user_agent.to_owned()))?;
    headers.insert(USER_AGENT, user_agent);
    headers.insert(TE, HeaderValue::from_static("trailers"));
    headers.insert(CONTENT_TYPE, grpc::CONTENT_TYPE);
    Ok(headers)
}

/// Protocol headers that metadata must not override.
fn is_reserved(name: &HeaderName) -> bool {
    [
        TE,
        CONTENT_TYPE,
        CONTENT_LENGTH,
        USER_AGENT,
        HOST,
        CONNECTION,
    ]
    .contains(name)
        || name.as_str().starts_with("grpc-")
}

async fn read_reply(
    http: StatusCode,
    headers: HeaderMap,
    mut body: RecvStream,
) -> Result<GrpcReply, FailedAttempt> {
    check_answer(http, &headers).map_err(FailedAttempt::non_retryable)?;
    let mut assembler = Assembler::new(MAX_RESPONSE);
    while let Some(data) = body.data().await {
        let data = data?;
        // Only fails once the stream has ended.
        let _ = body.flow_control().release_capacity(data.len());
        assembler.push(data).map_err(FailedAttempt::non_retryable)?;
    }
    let trailers = body.trailers().await?.unwrap_or_default();
    outcome(&headers, &trailers).map_err(FailedAttempt::non_retryable)?;
    let message = match assembler.finish().map_err(FailedAttempt::non_retryable)? {
        Some(received) => unpack(received, &headers)
            .await
            .map_err(FailedAttempt::non_retryable)?,
        None => Bytes::new(),
    };
    Ok(GrpcReply {
        message,
        headers,
        trailers,
    })
}
