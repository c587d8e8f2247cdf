//! Configurations from a web server: `--config https://…` and `${https:…}`.
//!
//! Downloads happen while the configuration is loaded, before components start, on a separate runtime and with the
//! exporters' HTTP client (system certificates, `HTTPS_PROXY`).

use std::io;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, LOCATION};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use profcol_net::{
    ClientError, Compression, HttpCall, HttpClient, HttpClientSettings, HttpError, HttpReply,
    Message,
};

/// An unresponsive server must not block startup.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Response size limit, far above any real configuration.
const MAX_RESPONSE_BYTES: usize = 4 << 20;

/// Why there is no configuration at a URL.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    #[error(transparent)]
    Runtime(io::Error),
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error(transparent)]
    Http(#[from] HttpError),
    #[error("the server responded {0}")]
    Refused(StatusCode),
    #[error(
        "the server responded {status} to {target:?}; redirects are not followed, use that URL"
    )]
    Redirected { status: StatusCode, target: String },
    #[error("the response is larger than {} MiB", MAX_RESPONSE_BYTES >> 20)]
    TooLarge,
}

/// Downloads the body at `url`.
pub fn fetch(url: &str) -> Result<Vec<u8>, FetchError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(FetchError::Runtime)?;
    let reply = runtime.block_on(get(url))?;
    if !reply.status.is_success() {
        return Err(refused(&reply));
    }
    if reply.body.len() >= MAX_RESPONSE_BYTES {
        return Err(FetchError::TooLarge);
    }
    Ok(reply.body.into())
}

async fn get(url: &str) -> Result<HttpReply, FetchError> {
    let settings = HttpClientSettings {
        endpoint: url.into(),
        compression: Compression::None,
        ..HttpClientSettings::default()
    };
    let user_agent = concat!("profcol/", env!("CARGO_PKG_VERSION"));
    let client = HttpClient::new(&settings, url, None, user_agent)?;
    let text = HeaderValue::from_static("application/yaml, text/plain, */*");
    let call = HttpCall {
        method: Method::GET,
        content_type: HeaderValue::from_static("text/plain"),
        body: &Message::from(Bytes::new()),
        headers: HeaderMap::from_iter([(ACCEPT, text)]),
        timeout: Some(TIMEOUT),
    };
    Ok(client.send(call).await?)
}

fn refused(reply: &HttpReply) -> FetchError {
    let (status, target) = (reply.status, reply.headers.get(LOCATION));
    match target.map(HeaderValue::to_str) {
        Some(Ok(target)) if status.is_redirection() => FetchError::Redirected {
            status,
            target: target.to_owned(),
        },
        _ => FetchError::Refused(status),
    }
}
