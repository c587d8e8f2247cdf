//! The options of `otlp_http`, compatible with the Collector.

use profcol_component::{QueueSettings, RetrySettings};
use profcol_config::{Config, Problem, Problems, Url};
use profcol_net::{HttpClientSettings, is_http_url};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::shared::otlp::validate_headers;

/// Sends profiles over OTLP HTTP.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
pub struct OtlpHttpConfig {
    #[serde(flatten)]
    pub client: HttpClientSettings,
    /// Retries after a retryable error.
    pub retry_on_failure: RetrySettings,
    /// The queue in front of the exporter.
    pub sending_queue: QueueSettings,
    /// URL for profiles; by default `endpoint` followed by `/v1development/profiles`.
    pub profiles_endpoint: Url,
    /// Encoding of requests: `proto` or `json`.
    pub encoding: HttpEncoding,
    /// Encoding of resource attributes in JSON: `plain` text, which every reader understands, or
    /// references into the `dictionary`, which are smaller.
    #[serde(skip_serializing_if = "AttributeEncoding::is_plain")]
    pub resource_attr_encoding: AttributeEncoding,
    /// Maximum request size, in MiB; larger batches are split. 0 detects the limit from the server's errors.
    #[serde(skip_serializing_if = "crate::shared::otlp::is_zero")]
    pub max_request_size_mib: u32,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum HttpEncoding {
    #[default]
    Proto,
    Json,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum AttributeEncoding {
    #[default]
    Plain,
    Dictionary,
}

impl AttributeEncoding {
    #[expect(
        clippy::trivially_copy_pass_by_ref,
        reason = "the signature is serde's"
    )]
    fn is_plain(&self) -> bool {
        *self == Self::Plain
    }
}

impl OtlpHttpConfig {
    /// URL that profiles are posted to.
    pub fn url(&self) -> Url {
        if !self.profiles_endpoint.is_empty() {
            return self.profiles_endpoint.clone();
        }
        let base = self.client.endpoint.expose().trim_end_matches('/');
        Url::new(format!("{base}{}", profcol_otlp::service::HTTP_PATH))
    }
}

impl Config for OtlpHttpConfig {
    fn validate(&self, problems: &mut Problems) {
        if self.client.endpoint.is_empty() && self.profiles_endpoint.is_empty() {
            let problem = Problem::new("at least one endpoint must be specified");
            problems.push(problem.key("endpoint"));
        }
        let endpoints = [
            ("endpoint", &self.client.endpoint),
            ("profiles_endpoint", &self.profiles_endpoint),
        ];
        for (key, url) in endpoints {
            if !url.is_empty() && !is_http_url(url.expose()) {
                let message =
                    format!("{url:?} is not a URL such as http://host:port or https://host");
                problems.add(key, message);
            }
        }
        if self.resource_attr_encoding == AttributeEncoding::Dictionary
            && self.encoding == HttpEncoding::Proto
        {
            let message =
                "applies only to `encoding: json`: protobuf bodies are forwarded unchanged";
            problems.add("resource_attr_encoding", message);
        }
        self.client.validate(problems);
        validate_headers("headers", &self.client.headers, problems);
        problems.nested("retry_on_failure", |problems| {
            self.retry_on_failure.validate(problems)
        });
        problems.nested("sending_queue", |problems| {
            self.sending_queue.validate(problems)
        });
    }
}
