//! Configurations from a web server: `--config https://…` and `${https:…}`.
//!
//! Downloads happen while the configuration is loaded, before components start, on a separate runtime and with the
//! exporters' HTTP client (system certificates, `HTTPS_PROXY`).

use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, LOCATION};
use http::{HeaderMap, HeaderValue, Method};
use profcol_net::{Compression, HttpCall, HttpClient, HttpClientSettings, HttpReply, Message};

/// An unresponsive server must not block startup.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Response size limit, far above any real configuration.
const MAX_RESPONSE_BYTES: usize = 4 << 20;

/// Downloads the body at `url`.
pub fn fetch(url: &str) -> Result<Vec<u8>, String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| error.to_string())?;
    let reply = runtime.block_on(get(url))?;
    if !reply.status.is_success() {
        return Err(refused(&reply));
    }
    if reply.body.len() >= MAX_RESPONSE_BYTES {
        return Err(format!(
            "the response is larger than {} MiB",
            MAX_RESPONSE_BYTES >> 20
        ));
    }
    Ok(reply.body.into())
}

async fn get(url: &str) -> Result<HttpReply, String> {
    let settings = HttpClientSettings {
        endpoint: url.to_owned(),
        compression: Compression::None,
        ..HttpClientSettings::default()
    };
    let user_agent = concat!("profcol/", env!("CARGO_PKG_VERSION"));
    let client =
        HttpClient::new(&settings, url, None, user_agent).map_err(|error| error.to_string())?;
    let text = HeaderValue::from_static("application/yaml, text/plain, */*");
    let call = HttpCall {
        method: Method::GET,
        content_type: HeaderValue::from_static("text/plain"),
        body: &Message::from(Bytes::new()),
        headers: HeaderMap::from_iter([(ACCEPT, text)]),
        timeout: Some(TIMEOUT),
    };
    client.send(call).await.map_err(|error| error.to_string())
}

fn refused(reply: &HttpReply) -> String {
    let target = reply.headers.get(LOCATION).map(HeaderValue::to_str);
    match target {
        Some(Ok(target)) if reply.status.is_redirection() => format!(
            "the server responded {} to {target:?}; redirects are not followed, use that URL",
            reply.status
        ),
        _ => format!("the server responded {}", reply.status),
    }
}
