//! HTTP requests to one URL, over hyper-util's connection pool.

use std::borrow::Cow;
use std::error::Error as StdError;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::header::{
    AUTHORIZATION, CONNECTION, CONTENT_ENCODING, CONTENT_TYPE, HOST, PROXY_AUTHORIZATION,
    USER_AGENT,
};
use http::uri::Authority;
use http::{Extensions, HeaderMap, HeaderValue, Method, Request, StatusCode, Uri};
use http_body::Body;
use http_body_util::BodyExt;
use hyper::body::{Frame, Incoming};
use hyper_util::client::legacy::{Client, Error as PoolError};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use percent_encoding::percent_decode_str;
use profcol_config::{Url, redact_url};
use tokio::sync::{Semaphore, mpsc};
use tokio::time::timeout;

use super::dial;
use super::endpoint::host_and_port;
use super::error::{ConnectError, LookupError};
use super::outgoing::Outgoing;
use super::proxy::{Proxies, Proxy};
use super::settings::HttpClientSettings;
use super::{ClientError, MAX_RESPONSE};
use crate::auth::{ClientAuth, ClientAuthError, basic_authorization};
use crate::chunks::Chunks;
use crate::compress::{Encoding, Level, compress_async, decompress_answer};
use crate::hint::{Hint, HintSuffix};
use crate::io::{ReceivedAlert, Stream};
use crate::message::Content;
use crate::settings::{header_map, limit};
use crate::socket::Buffers;
use crate::tls::ClientSide;
use crate::{EndpointError, SettingsError, UrlError};
use std::fmt;

/// A request.
pub struct HttpCall<'a> {
    pub method: Method,
    pub content_type: HeaderValue,
    pub body: &'a dyn Content,
    /// Headers for this request; those of the settings override them.
    pub headers: HeaderMap,
    /// Timeout, if shorter than the settings' `timeout`.
    pub timeout: Option<Duration>,
}

/// A response of any status.
#[derive(Debug)]
pub struct HttpReply {
    pub status: StatusCode,
    pub headers: HeaderMap,
    /// Truncated to 4 MiB.
    pub body: Bytes,
}

/// A response of any status with a streamed body of any length.
#[derive(Debug)]
pub struct HttpDownload {
    pub status: StatusCode,
    pub headers: HeaderMap,
    url: String,
    body: Incoming,
}

impl HttpDownload {
    /// The next piece as sent, not decompressed; `None` at the end.
    pub async fn next(&mut self) -> Option<Result<Bytes, HttpError>> {
        loop {
            match self.body.frame().await?.map(Frame::into_data) {
                Ok(Ok(data)) => return Some(Ok(data)),
                Ok(Err(_trailers)) => {}
                Err(error) => {
                    return Some(Err(HttpError::broken(&self.url, error)));
                }
            }
        }
    }
}

/// No response. All of these are retryable.
#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    #[error("{}{}", self.problem(), HintSuffix(self.hint()))]
    Auth(#[from] ClientAuthError),
    #[error("{}{}", self.problem(), HintSuffix(self.hint()))]
    Connect(#[source] ConnectError),
    #[error("request to {url} took longer than {}", profcol_config::Duration::from(*.limit))]
    Timeout { url: String, limit: Duration },
    #[error("{}{}", self.problem(), HintSuffix(self.hint()))]
    Broken {
        url: String,
        #[source]
        error: BrokenExchange,
        hint: Option<Hint>,
    },
}

/// What ended a request early, with all of its causes in one line.
#[derive(Debug, thiserror::Error)]
pub struct BrokenExchange(#[source] Box<dyn StdError + Send + Sync>);

impl fmt::Display for BrokenExchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)?;
        let mut cause = self.0.source();
        while let Some(inner) = cause {
            write!(f, ": {inner}")?;
            cause = inner.source();
        }
        Ok(())
    }
}

impl HttpError {
    pub(super) fn broken(url: &str, error: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Self::Broken {
            url: url.to_owned(),
            error: BrokenExchange(error.into()),
            hint: None,
        }
    }

    /// What to change, which the text ends with.
    pub fn hint(&self) -> Option<Hint> {
        match self {
            Self::Auth(_) => Some(Hint::CheckCredentials),
            Self::Connect(error) => error.hint(),
            Self::Timeout { .. } => None,
            Self::Broken { hint, .. } => *hint,
        }
    }

    /// The text without the hint.
    pub fn problem(&self) -> String {
        match self {
            Self::Auth(error) => error.to_string(),
            Self::Connect(error) => error.to_string(),
            Self::Timeout { .. } => self.to_string(),
            Self::Broken { url, error, .. } => format!("request to {url} failed: {error}"),
        }
    }
}

/// Sends requests to one URL.
#[derive(Debug)]
pub struct HttpClient {
    url: Uri,
    pool: Client<Connector, Outgoing>,
    user_agent: HeaderValue,
    headers: HeaderMap,
    compression: Option<(Encoding, &'static str)>,
    level: Level,
    timeout: Option<Duration>,
    /// Sent with each request to a forwarding proxy.
    proxy_authorization: Option<HeaderValue>,
    close: bool,
    at_a_time: Option<Semaphore>,
    auth: Option<Arc<dyn ClientAuth>>,
}

impl HttpClient {
    /// Reads the certificates; connects on the first request. `url` is the full URL built from `settings.endpoint`. A user in
    /// it is sent as in browsers and Go, by basic authentication, unless a header of the settings replaces that.
    pub fn new(
        settings: &HttpClientSettings,
        url: &str,
        auth: Option<Arc<dyn ClientAuth>>,
        user_agent: &str,
    ) -> Result<HttpClient, ClientError> {
        let written = Url::new(url);
        let url = written.expose().parse::<Uri>();
        let (url, credentials) =
            without_credentials(url.map_err(|error| UrlError::new(&written, error))?);
        let (https, Some((host, port))) = (url.scheme_str() == Some("https"), host_and_port(&url))
        else {
            return Err(EndpointError::NotHttp(written).into());
        };
        let protocols: &'static [&'static [u8]] = if settings.force_attempt_http2 {
            &[b"h2", b"http/1.1"]
        } else {
            &[b"http/1.1"]
        };
        let tls = if https {
            ClientSide::new(&settings.tls, true, protocols)?
        } else {
            None
        };
        let proxy = Proxies::new(&settings.proxy_url)?
            .for_target(https, host, port)
            .map_err(SettingsError::from)?;
        let authorization = proxy.as_ref().and_then(|proxy| proxy.authorization.clone());
        let connector = Connector(Arc::new(Transport {
            tls,
            proxy,
            buffers: Buffers::sized(settings.read_buffer_size, settings.write_buffer_size),
        }));
        let keepalive = settings.resolved_keepalive()?;
        let mut headers = header_map(&settings.headers)?;
        if let Some(credentials) = credentials {
            headers.entry(AUTHORIZATION).or_insert(credentials);
        }
        Ok(HttpClient {
            pool: pool(settings, &keepalive, connector),
            user_agent: HeaderValue::from_str(user_agent)
                .map_err(|_| SettingsError::UserAgent(user_agent.to_owned()))?,
            headers,
            compression: settings
                .compression
                .for_http()
                .map(|encoding| (encoding, settings.compression.name())),
            level: settings.compression_params.level,
            timeout: limit(settings.timeout),
            proxy_authorization: authorization.filter(|_| !https),
            close: !keepalive.enabled,
            at_a_time: (settings.max_conns_per_host > 0)
                .then(|| Semaphore::new(settings.max_conns_per_host)),
            auth,
            url,
        })
    }

    /// Sends a request and reads its response.
    pub fn send<'a>(&'a self, call: HttpCall<'a>) -> BoxFuture<'a, Result<HttpReply, HttpError>> {
        Box::pin(async move {
            let own_limit = call.timeout;
            let work = async { self.exchange(self.request(call).await?).await };
            self.within(own_limit, work).await
        })
    }

    /// Streams `chunks`, `length` bytes in total, with PUT, uncompressed and without a content type.
    pub fn put(
        &self,
        length: u64,
        chunks: mpsc::Receiver<Bytes>,
    ) -> BoxFuture<'_, Result<HttpReply, HttpError>> {
        let left = length;
        let mut request = Request::new(Outgoing::Streamed { chunks, left });
        *request.method_mut() = Method::PUT;
        Box::pin(async move {
            let work = async {
                self.address(&mut request).await?;
                self.exchange(request).await
            };
            self.within(None, work).await
        })
    }

    /// Sends a GET request. The settings' `timeout` applies to the response head; the caller limits the body.
    pub fn get(&self) -> BoxFuture<'_, Result<HttpDownload, HttpError>> {
        Box::pin(async move {
            let mut request = Request::new(Outgoing::Whole(Chunks::default()));
            let work = async {
                self.address(&mut request).await?;
                let answer = self.pool.request(request).await;
                let (head, body) = answer.map_err(|error| self.failed(error))?.into_parts();
                Ok(HttpDownload {
                    status: head.status,
                    headers: head.headers,
                    url: self.name(),
                    body,
                })
            };
            self.within(None, work).await
        })
    }

    async fn within<T>(
        &self,
        own_limit: Option<Duration>,
        work: impl Future<Output = Result<T, HttpError>>,
    ) -> Result<T, HttpError> {
        let limits = [own_limit, self.timeout];
        match limits.into_iter().flatten().min() {
            None => work.await,
            Some(limit) => timeout(limit, work).await.unwrap_or_else(|_| {
                Err(HttpError::Timeout {
                    url: self.name(),
                    limit,
                })
            }),
        }
    }

    async fn exchange(&self, request: Request<Outgoing>) -> Result<HttpReply, HttpError> {
        let _permit = match &self.at_a_time {
            Some(at_a_time) => at_a_time.acquire().await.ok(),
            None => None,
        };
        let response = self
            .pool
            .request(request)
            .await
            .map_err(|error| self.failed(error))?;
        let (head, body) = response.into_parts();
        let body = read_answer(body)
            .await
            .map_err(|error| self.broken(error))?;
        let encoding = head
            .headers
            .get(CONTENT_ENCODING)
            .and_then(|name| name.to_str().ok());
        let body = match encoding.and_then(|name| Encoding::from_http(name, &body)) {
            None => body,
            Some(encoding) => decompress_answer(encoding, &body, MAX_RESPONSE)
                .await
                .map_err(|error| self.broken(error))?,
        };
        Ok(HttpReply {
            status: head.status,
            headers: head.headers,
            body,
        })
    }

    async fn request(&self, call: HttpCall<'_>) -> Result<Request<Outgoing>, HttpError> {
        let (body, compressed) = self.pack(call.body).await;
        let mut request = Request::new(Outgoing::Whole(body));
        *request.method_mut() = call.method;
        let headers = request.headers_mut();
        *headers = call.headers;
        headers.insert(CONTENT_TYPE, call.content_type);
        self.address(&mut request).await?;
        if let Some(name) = compressed {
            let headers = request.headers_mut();
            headers.insert(CONTENT_ENCODING, HeaderValue::from_static(name));
        }
        Ok(request)
    }

    /// Adds the common headers.
    async fn address(&self, request: &mut Request<Outgoing>) -> Result<(), HttpError> {
        *request.uri_mut() = self.url.clone();
        let headers = request.headers_mut();
        headers.insert(USER_AGENT, self.user_agent.clone());
        if let Some(authorization) = &self.proxy_authorization {
            headers.insert(PROXY_AUTHORIZATION, authorization.clone());
        }
        if self.close {
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        for (name, value) in &self.headers {
            headers.insert(name, value.clone());
        }
        if let Some(auth) = &self.auth {
            for (name, value) in auth.headers().await? {
                headers.insert(name, value);
            }
        }
        // The pool sets the host unless the settings override it.
        if headers.get(HOST).is_some_and(HeaderValue::is_empty) {
            headers.remove(HOST);
        }
        Ok(())
    }

    /// The bytes to send: unchanged if already compressed in the configured encoding.
    async fn pack(&self, message: &dyn Content) -> (Chunks, Option<&'static str>) {
        let Some((encoding, name)) = self.compression else {
            return (message.plain(), None);
        };
        if let Some(compressed) = message.compressed(encoding) {
            return (compressed.into(), Some(name));
        }
        let plain = message.plain().joined();
        if plain.is_empty() {
            return (Chunks::default(), None);
        }
        let compressed = compress_async(encoding, self.level, &plain).await;
        (compressed.into(), Some(name))
    }

    fn failed(&self, error: PoolError) -> HttpError {
        let mut cause: Option<&(dyn StdError + 'static)> = error.source();
        while let Some(inner) = cause {
            if let Some(connect) = inner.downcast_ref::<ConnectError>() {
                return HttpError::Connect(connect.clone());
            }
            cause = inner.source();
        }
        let mut extras = Extensions::new();
        if let Some(connected) = error.connect_info() {
            connected.get_extras(&mut extras);
        }
        let hint = extras.get().and_then(ReceivedAlert::hint);
        HttpError::Broken {
            url: self.name(),
            error: BrokenExchange(error.into()),
            hint,
        }
    }

    fn broken(&self, error: impl Into<Box<dyn StdError + Send + Sync>>) -> HttpError {
        HttpError::broken(&self.name(), error)
    }

    /// The URL without what may be secret, for messages.
    fn name(&self) -> String {
        redact_url(&self.url.to_string()).into_owned()
    }
}

/// The URL without its user, and the header that authenticates that user.
fn without_credentials(url: Uri) -> (Uri, Option<HeaderValue>) {
    let authority = url.authority().map_or("", Authority::as_str);
    let Some((user, host)) = authority.rsplit_once('@') else {
        return (url, None);
    };
    let (name, password) = user.split_once(':').unwrap_or((user, ""));
    let [name, password] = [name, password].map(|text| Cow::from(percent_decode_str(text)));
    let header = basic_authorization(&name, &password);
    let host = host.parse::<Authority>().ok();
    let mut parts = url.clone().into_parts();
    parts.authority = host;
    (Uri::from_parts(parts).unwrap_or(url), Some(header))
}

fn pool(
    settings: &HttpClientSettings,
    keepalive: &super::HttpClientKeepalive,
    connector: Connector,
) -> Client<Connector, Outgoing> {
    let idle = match (
        keepalive.enabled,
        keepalive.max_idle_conns_per_host,
        keepalive.max_idle_conns,
    ) {
        (false, _, _) => 0,
        (true, 0, 0) => usize::MAX,
        (true, 0, total) => total,
        (true, host, 0) => host,
        (true, host, total) => host.min(total),
    };
    let mut builder = Client::builder(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .pool_timer(TokioTimer::new())
        .pool_max_idle_per_host(idle)
        .pool_idle_timeout(limit(keepalive.idle_conn_timeout))
        .http2_initial_stream_window_size(1 << 20)
        .http2_initial_connection_window_size(4 << 20);
    if let Some(interval) = limit(settings.http2_read_idle_timeout) {
        builder
            .http2_keep_alive_interval(interval)
            .http2_keep_alive_while_idle(true)
            .http2_keep_alive_timeout(
                limit(settings.http2_ping_timeout).unwrap_or(Duration::from_secs(15)),
            );
    }
    builder.build(connector)
}

async fn read_answer(mut body: Incoming) -> Result<Bytes, hyper::Error> {
    let mut whole = Vec::with_capacity(body.size_hint().lower().min(64 << 10) as usize);
    while let Some(frame) = body.frame().await {
        if let Ok(data) = frame?.into_data() {
            let room = MAX_RESPONSE - whole.len();
            whole.extend_from_slice(&data[..data.len().min(room)]);
            if data.len() > room {
                break;
            }
        }
    }
    Ok(Bytes::from(whole))
}

/// Opens connections for the pool.
#[derive(Clone, Debug)]
struct Connector(Arc<Transport>);

#[derive(Debug)]
struct Transport {
    tls: Option<ClientSide>,
    proxy: Option<Proxy>,
    buffers: Buffers,
}

impl tower_service::Service<Uri> for Connector {
    type Response = TokioIo<Stream>;
    type Error = ConnectError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, ConnectError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), ConnectError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, url: Uri) -> Self::Future {
        let way = self.0.clone();
        Box::pin(async move {
            let Some((host, port)) = host_and_port(&url) else {
                return Err(ConnectError::Lookup {
                    host: redact_url(&url.to_string()).into_owned(),
                    error: LookupError::MissingHost,
                });
            };
            let tls = way.tls.as_ref().map(|tls| (tls, host));
            let endpoint = match host.contains(':') {
                true => format!("[{host}]:{port}"),
                false => format!("{host}:{port}"),
            };
            let stream = match &way.proxy {
                None => dial::connect_host(host, port, &endpoint, tls, way.buffers).await?,
                Some(proxy) => {
                    dial::connect_through(proxy, &endpoint, tls.is_none(), tls, way.buffers).await?
                }
            };
            Ok(TokioIo::new(stream))
        })
    }
}
