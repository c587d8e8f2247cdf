//! The options of `otlp_http`, as the Collector has them.

use profcol_component::{QueueSettings, RetrySettings};
use profcol_config::{Config, Problem, Problems};
use profcol_net::{HttpClientSettings, is_http_url};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Sends profiles over OTLP HTTP.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
pub struct OtlpHttpConfig {
    #[serde(flatten)]
    pub client: HttpClientSettings,
    /// How to go on when the destination does not take a batch for now.
    pub retry_on_failure: RetrySettings,
    /// The queue in front of the exporter.
    pub sending_queue: QueueSettings,
    /// The whole URL for profiles; by default `/v1development/profiles` below `endpoint`.
    pub profiles_endpoint: String,
    /// `proto` or `json`.
    pub encoding: HttpEncoding,
    /// How attributes of resources are written in JSON: with their text, which every reader
    /// understands, or as references into the dictionary, which is smaller.
    #[serde(skip_serializing_if = "AttributeEncoding::is_plain")]
    pub resource_attr_encoding: AttributeEncoding,
    /// The largest message that the destination takes, in MiB; larger batches are sent in pieces. 0
    /// learns it from the destination's refusals.
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
    /// Where profiles are posted.
    pub fn url(&self) -> String {
        if !self.profiles_endpoint.is_empty() {
            return self.profiles_endpoint.clone();
        }
        let base = self.client.endpoint.trim_end_matches('/');
        format!("{base}{}", profcol_profile::service::HTTP_PATH)
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
            if !url.is_empty() && !is_http_url(url) {
                let message = format!("{url:?} is no URL such as http://host:port or https://host");
                problems.add(key, message);
            }
        }
        if self.resource_attr_encoding == AttributeEncoding::Dictionary
            && self.encoding == HttpEncoding::Proto
        {
            let message = "applies to `encoding: json` only: protobuf leaves as it came";
            problems.add("resource_attr_encoding", message);
        }
        self.client.validate(problems);
        problems.nested("retry_on_failure", |problems| {
            self.retry_on_failure.validate(problems)
        });
        problems.nested("sending_queue", |problems| {
            self.sending_queue.validate(problems)
        });
    }
}
