//! Sends profiles over OTLP gRPC.

mod config;
#[cfg(test)]
mod tests;

use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use http::HeaderMap;
use profcol_component::{
    Batch, BuildContext, BuildError, Capabilities, Check, Delivered, Delivery, Exporter, Factory,
    Refusal, Stability, StartError,
};
use profcol_config::ComponentId;
use profcol_net::auth::ClientAuth;
use profcol_net::grpc::Status;
use profcol_net::{ClientError, Encoding, ErrorAt, GrpcCall, GrpcClient, retry};
use profcol_otlp::service::{GRPC_PATH, PartialSuccess};

pub use self::config::OtlpGrpcConfig;
use crate::shared::handshake;
use crate::shared::otlp::{
    Protobuf, SizeLimit, USER_AGENT, client_auth, delivered, not_created, refusal,
};

/// The fix if a destination has no profiles service.
const NO_PROFILES: &str = "choose a destination that takes OTLP profiles; a Collector does only with \
    `--feature-gates=service.profilesSupport` and a pipeline `profiles`";

pub struct OtlpGrpc {
    id: ComponentId,
    config: OtlpGrpcConfig,
    auth: Option<Arc<dyn ClientAuth>>,
    client: OnceLock<GrpcClient>,
    limit: SizeLimit,
}

impl Factory for OtlpGrpc {
    const NAME: &'static str = "otlp_grpc";
    const ALIASES: &'static [&'static str] = &["otlp"];
    const STABILITY: Stability = Stability::Beta;
    type Config = OtlpGrpcConfig;
    type Component = dyn Exporter;

    fn capabilities(config: &OtlpGrpcConfig) -> Capabilities {
        Capabilities::to_connect(&config.client.endpoint)
    }

    fn build(
        config: &OtlpGrpcConfig,
        context: &BuildContext,
    ) -> Result<Box<dyn Exporter>, BuildError> {
        Ok(Box::new(OtlpGrpc {
            id: context.id.clone(),
            auth: client_auth(config.client.auth.as_ref(), context)?,
            client: OnceLock::new(),
            limit: SizeLimit::new(config.max_request_size_mib),
            config: config.clone(),
        }))
    }
}

#[async_trait]
impl Exporter for OtlpGrpc {
    fn delivery(&self) -> Delivery {
        let encoding = self.config.client.compression.for_grpc().unwrap_or(None);
        Delivery {
            passthrough_encoding: encoding.map(Encoding::name),
            ..self.config.delivery.delivery()
        }
    }

    async fn start(&self) -> Result<(), StartError> {
        self.create_client().map(drop).map_err(StartError::new)
    }

    async fn check(&self) -> Vec<Check> {
        let client = match self.create_client() {
            Ok(client) => client,
            Err(error) => return vec![handshake::of_settings(&error)],
        };
        let call = GrpcCall {
            path: GRPC_PATH,
            message: &handshake::empty_message(),
            headers: HeaderMap::new(),
            timeout: Some(handshake::TIMEOUT),
        };
        let answer = client.unary(call).await;
        let endpoint = &self.config.client.endpoint;
        vec![handshake::of_grpc(endpoint, answer, NO_PROFILES)]
    }

    async fn export(&self, batch: &Batch) -> Result<Delivered, Refusal> {
        let client = self
            .client
            .get()
            .ok_or_else(|| Refusal::retry("not started yet"))?;
        let bytes = batch.profiles.encoded_len();
        self.limit.check(bytes)?;
        let call = GrpcCall {
            path: GRPC_PATH,
            message: &Protobuf(&batch.profiles),
            headers: HeaderMap::new(),
            timeout: self.config.delivery.limit(),
        };
        match client.unary(call).await {
            Ok(reply) => Ok(delivered(
                PartialSuccess::decode(&reply.message).unwrap_or_default(),
            )),
            Err(status) => Err(self.refused(bytes, status)),
        }
    }
}

impl OtlpGrpc {
    fn create_client(&self) -> Result<&GrpcClient, ErrorAt<ClientError>> {
        let client = GrpcClient::new(&self.config.client, self.auth.clone(), USER_AGENT)
            .map_err(|error| not_created(&self.id, error))?;
        Ok(self.client.get_or_init(|| client))
    }

    fn refused(&self, bytes: usize, status: Status) -> Refusal {
        if let Some(too_large) = status.message_too_large() {
            return self.limit.learn(bytes, too_large.limit, status);
        }
        refusal(retry::of_grpc(&status), status)
    }
}
