//! Sends profiles over OTLP gRPC to one destination, with the options of the Collector's exporter.

use std::sync::{Arc, OnceLock};

use http::HeaderMap;
use profcol_component::{
    Batch, BuildContext, BuildError, Check, Delivered, Delivery, DeliverySettings, Refusal,
};
use profcol_config::{Config, Problems};
use profcol_net::auth::ClientAuth;
use profcol_net::grpc::Status;
use profcol_net::{
    ClientError, Encoding, ErrorAt, GrpcCall, GrpcClient, GrpcClientSettings, retry,
};
use profcol_otlp::service::{GRPC_PATH, PartialSuccess};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::handshake;
use super::otlp::{
    Protobuf, SizeLimit, USER_AGENT, client_auth, delivered, headers_of, refusal, validate_headers,
};

/// The fix if a destination has no profiles service.
const NO_PROFILES: &str = "choose a destination that takes OTLP profiles; a Collector does only with \
    `--feature-gates=service.profilesSupport` and a pipeline `profiles`";

/// Sends profiles over OTLP gRPC.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
pub struct OtlpGrpcConfig {
    #[serde(flatten)]
    pub client: GrpcClientSettings,
    #[serde(flatten)]
    pub delivery: DeliverySettings,
    /// Maximum request size, in MiB; larger batches are split. 0 detects the limit from the server's errors.
    #[serde(skip_serializing_if = "super::otlp::is_zero")]
    pub max_request_size_mib: u32,
}

impl Config for OtlpGrpcConfig {
    fn validate(&self, problems: &mut Problems) {
        self.client.validate(problems);
        validate_headers("headers", &self.client.headers, problems);
        self.delivery.validate(problems);
    }
}

/// Sends to one destination.
pub(crate) struct OtlpGrpcSender {
    /// Path in the configuration, for error messages.
    path: String,
    config: OtlpGrpcConfig,
    auth: Option<Arc<dyn ClientAuth>>,
    client: OnceLock<GrpcClient>,
    limit: SizeLimit,
}

impl OtlpGrpcConfig {
    pub(crate) fn delivery(&self) -> Delivery {
        let encoding = self.client.compression.for_grpc().unwrap_or(None);
        Delivery {
            passthrough_encoding: encoding.map(Encoding::name),
            ..self.delivery.delivery()
        }
    }
}

impl OtlpGrpcSender {
    /// `path` is that of the configuration.
    pub(crate) fn new(
        path: String,
        config: &OtlpGrpcConfig,
        context: &BuildContext,
    ) -> Result<Self, BuildError> {
        Ok(Self {
            path,
            auth: client_auth(config.client.auth.as_ref(), context)?,
            client: OnceLock::new(),
            limit: SizeLimit::new(config.max_request_size_mib),
            config: config.clone(),
        })
    }

    /// Reads certificates; connects with the first call.
    pub(crate) fn start(&self) -> Result<(), ErrorAt<ClientError>> {
        self.create_client().map(drop)
    }

    pub(crate) async fn check(&self) -> Check {
        let client = match self.create_client() {
            Ok(client) => client,
            Err(error) => return handshake::settings_check(&error),
        };
        let call = GrpcCall {
            path: GRPC_PATH,
            message: &handshake::empty_message(),
            headers: HeaderMap::new(),
            timeout: Some(handshake::TIMEOUT),
        };
        let answer = client.unary(call).await;
        handshake::grpc_check(&self.config.client.endpoint, answer, NO_PROFILES)
    }

    pub(crate) async fn export(&self, batch: &Batch) -> Result<Delivered, Refusal> {
        let client = self
            .client
            .get()
            .ok_or_else(|| Refusal::retry("not started yet"))?;
        let bytes = batch.profiles.encoded_len();
        self.limit.check(bytes)?;
        let call = GrpcCall {
            path: GRPC_PATH,
            message: &Protobuf(&batch.profiles),
            headers: headers_of(batch),
            timeout: self.config.delivery.limit(),
        };
        match client.unary(call).await {
            Ok(reply) => Ok(delivered(
                PartialSuccess::decode(&reply.message).unwrap_or_default(),
            )),
            Err(status) => Err(self.refused(bytes, status)),
        }
    }

    fn create_client(&self) -> Result<&GrpcClient, ErrorAt<ClientError>> {
        let client = GrpcClient::new(&self.config.client, self.auth.clone(), USER_AGENT)
            .map_err(|error| error.at(&self.path))?;
        Ok(self.client.get_or_init(|| client))
    }

    fn refused(&self, bytes: usize, status: Status) -> Refusal {
        if let Some(too_large) = status.message_too_large() {
            return self.limit.learn(bytes, too_large.limit, status);
        }
        refusal(retry::of_grpc(&status), status)
    }
}
