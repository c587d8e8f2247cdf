//! Sends profiles over OTLP HTTP, as protobuf or JSON.

mod config;
#[cfg(test)]
mod tests;

use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

use async_trait::async_trait;
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use profcol_component::{
    Batch, BuildContext, BuildError, Check, Delivered, Delivery, Exporter, Factory, Refusal,
    Stability, StartError,
};
use profcol_config::ComponentId;
use profcol_net::auth::ClientAuth;
use profcol_net::grpc::Status;
use profcol_net::{
    ClientError, Content, Encoding, ErrorAt, HttpCall, HttpClient, HttpError, HttpReply, Message,
    retry,
};
use profcol_otlp::json::{self, ResourceAttrEncoding};
use profcol_otlp::service::PartialSuccess;

pub use self::config::OtlpHttpConfig;
use self::config::{AttributeEncoding, HttpEncoding};
use crate::shared::handshake;
use crate::shared::otlp::{
    Protobuf, SizeLimit, USER_AGENT, client_auth, delivered, headers_of, not_created, refusal,
    truncated,
};

pub struct OtlpHttp {
    id: ComponentId,
    config: OtlpHttpConfig,
    auth: Option<Arc<dyn ClientAuth>>,
    client: OnceLock<HttpClient>,
    limit: SizeLimit,
}

impl Factory for OtlpHttp {
    const NAME: &'static str = "otlp_http";
    const ALIASES: &'static [&'static str] = &["otlphttp"];
    const STABILITY: Stability = Stability::Beta;
    type Config = OtlpHttpConfig;
    type Component = dyn Exporter;

    fn build(
        config: &OtlpHttpConfig,
        context: &BuildContext,
    ) -> Result<Box<dyn Exporter>, BuildError> {
        Ok(Box::new(OtlpHttp {
            id: context.id.clone(),
            auth: client_auth(config.client.auth.as_ref(), context)?,
            client: OnceLock::new(),
            limit: SizeLimit::new(config.max_request_size_mib),
            config: config.clone(),
        }))
    }
}

#[async_trait]
impl Exporter for OtlpHttp {
    fn delivery(&self) -> Delivery {
        let encoding = match self.config.encoding {
            HttpEncoding::Proto => self.config.client.compression.for_http(),
            HttpEncoding::Json => None,
        };
        Delivery {
            // The HTTP client enforces the timeout, so that its error names the phase.
            timeout: None,
            retry: self.config.retry_on_failure.clone(),
            queue: self
                .config
                .sending_queue
                .enabled
                .then(|| self.config.sending_queue.clone()),
            passthrough_encoding: encoding.map(Encoding::name),
        }
    }

    async fn start(&self) -> Result<(), StartError> {
        self.create_client().map(drop).map_err(StartError::new)
    }

    async fn check(&self) -> Vec<Check> {
        let client = match self.create_client() {
            Ok(client) => client,
            Err(error) => return vec![handshake::settings_check(&error)],
        };
        let empty = match self.config.encoding {
            HttpEncoding::Proto => handshake::empty_message(),
            HttpEncoding::Json => Message::from(Bytes::from_static(b"{}")),
        };
        let call = HttpCall {
            method: Method::POST,
            content_type: self.content_type(),
            body: &empty,
            headers: HeaderMap::new(),
            timeout: Some(handshake::TIMEOUT),
        };
        let answer = client.send(call).await;
        vec![handshake::http_check(
            &self.config.url().to_string(),
            answer,
        )]
    }

    async fn export(&self, batch: &Batch) -> Result<Delivered, Refusal> {
        let client = self
            .client
            .get()
            .ok_or_else(|| Refusal::retry("not started yet"))?;
        let (json, protobuf);
        let (body, bytes): (&dyn Content, usize) = match self.config.encoding {
            HttpEncoding::Proto => {
                protobuf = Protobuf(&batch.profiles);
                (&protobuf, batch.profiles.encoded_len())
            }
            HttpEncoding::Json => {
                json = Message::from(self.json(batch));
                (&json, json.plain.len())
            }
        };
        self.limit.check(bytes)?;
        let call = HttpCall {
            method: Method::POST,
            content_type: self.content_type(),
            body,
            headers: headers_of(batch),
            timeout: None,
        };
        match client.send(call).await {
            Ok(reply) => self.answered(bytes, &reply),
            Err(error) => Err(Refusal::retry(NoReply(error))),
        }
    }
}

/// The Collector's words for a request without a response.
#[derive(Debug, thiserror::Error)]
#[error("failed to make an HTTP request: {0}")]
struct NoReply(#[source] HttpError);

impl OtlpHttp {
    fn create_client(&self) -> Result<&HttpClient, ErrorAt<ClientError>> {
        let config = &self.config;
        let (url, auth) = (config.url(), self.auth.clone());
        let client = HttpClient::new(&config.client, url.expose(), auth, USER_AGENT)
            .map_err(|error| not_created(&self.id, error))?;
        Ok(self.client.get_or_init(|| client))
    }

    fn json(&self, batch: &Batch) -> Bytes {
        let attributes = match self.config.resource_attr_encoding {
            AttributeEncoding::Plain => ResourceAttrEncoding::Plain,
            AttributeEncoding::Dictionary => ResourceAttrEncoding::Dictionary,
        };
        Bytes::from(json::encode(batch.profiles.model(), attributes))
    }

    fn content_type(&self) -> HeaderValue {
        HeaderValue::from_static(match self.config.encoding {
            HttpEncoding::Proto => "application/x-protobuf",
            HttpEncoding::Json => "application/json",
        })
    }

    fn answered(&self, bytes: usize, reply: &HttpReply) -> Result<Delivered, Refusal> {
        let now = SystemTime::now();
        let Some(verdict) = retry::of_http(reply.status, &reply.headers, now) else {
            return Ok(delivered(partial_success(reply)));
        };
        let reason = format!(
            "error exporting items, request to {} responded with HTTP Status Code {}{}",
            self.config.url(),
            reply.status.as_u16(),
            details(reply)
        );
        if reply.status == StatusCode::PAYLOAD_TOO_LARGE {
            return Err(self.limit.learn(bytes, None, reason));
        }
        Err(refusal(verdict, reason))
    }
}

fn partial_success(reply: &HttpReply) -> PartialSuccess {
    if is_json(reply) {
        PartialSuccess::decode_json(&reply.body)
    } else {
        PartialSuccess::decode(&reply.body).unwrap_or_default()
    }
}

/// The destination's error message: from a `google.rpc.Status`, or the start of the text.
fn details(reply: &HttpReply) -> String {
    let message = if is_json(reply) {
        let status: serde_json::Value = serde_json::from_slice(&reply.body).unwrap_or_default();
        status["message"].as_str().map(str::to_owned)
    } else {
        let status = Status::from_protobuf(&reply.body).ok();
        status
            .map(|status| status.message)
            .filter(|message| !message.is_empty())
    };
    let message = message.unwrap_or_else(|| {
        let text = String::from_utf8_lossy(&reply.body);
        text.trim().to_owned()
    });
    match truncated(message) {
        message if message.is_empty() => message,
        message => format!(", Message={message}"),
    }
}

fn is_json(reply: &HttpReply) -> bool {
    let kind = reply
        .headers
        .get(CONTENT_TYPE)
        .and_then(|kind| kind.to_str().ok());
    kind.is_some_and(|kind| kind.trim_start().starts_with("application/json"))
}
