//! Sends profiles over OTLP gRPC.

mod config;

use async_trait::async_trait;
use profcol_component::{
    Batch, BuildContext, BuildError, Delivered, Delivery, Exporter, Factory, Refusal, Stability,
};
use profcol_net::grpc::Status;
use profcol_net::{GrpcCall, GrpcClient, Message};

pub use self::config::OtlpGrpcConfig;

const EXPORT: &str = "/opentelemetry.proto.collector.profiles.v1development.ProfilesService/Export";

pub struct OtlpGrpc {
    config: OtlpGrpcConfig,
    client: GrpcClient,
}

impl Factory for OtlpGrpc {
    const NAME: &'static str = "otlp_grpc";
    const ALIASES: &'static [&'static str] = &["otlp"];
    const STABILITY: Stability = Stability::Beta;
    type Config = OtlpGrpcConfig;
    type Component = dyn Exporter;

    fn build(config: &OtlpGrpcConfig, _: &BuildContext) -> Result<Box<dyn Exporter>, BuildError> {
        let endpoint = config.endpoint.parse().map_err(|error| {
            BuildError(format!(
                "endpoint {:?} is no address and port: {error}",
                config.endpoint
            ))
        })?;
        Ok(Box::new(OtlpGrpc {
            config: config.clone(),
            client: GrpcClient::new(endpoint),
        }))
    }
}

#[async_trait]
impl Exporter for OtlpGrpc {
    fn delivery(&self) -> Delivery {
        self.config.delivery.delivery()
    }

    async fn export(&self, batch: &Batch) -> Result<Delivered, Refusal> {
        let message = Message::from(batch.profiles.to_wire());
        let call = GrpcCall {
            path: EXPORT,
            message: &message,
            headers: http::HeaderMap::new(),
            timeout: None,
        };
        self.client.unary(call).await.map_err(refusal)?;
        Ok(Delivered::default())
    }
}

fn refusal(status: Status) -> Refusal {
    Refusal::retry(status.to_string())
}
