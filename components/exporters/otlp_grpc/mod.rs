//! Sends profiles over OTLP gRPC.

#[cfg(test)]
mod tests;

use async_trait::async_trait;
use profcol_component::{
    Batch, BuildContext, BuildError, Capabilities, Check, Delivered, Delivery, Exporter, Factory,
    Refusal, Stability, StartError,
};

use crate::shared::otlp_grpc::{OtlpGrpcConfig, OtlpGrpcSender};

pub struct OtlpGrpc {
    delivery: Delivery,
    sender: OtlpGrpcSender,
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
        let path = format!("exporters::{}", context.id);
        Ok(Box::new(OtlpGrpc {
            delivery: config.delivery(),
            sender: OtlpGrpcSender::new(path, config, context)?,
        }))
    }
}

#[async_trait]
impl Exporter for OtlpGrpc {
    fn delivery(&self) -> Delivery {
        self.delivery.clone()
    }

    async fn start(&self) -> Result<(), StartError> {
        self.sender.start().map_err(StartError::new)
    }

    async fn check(&self) -> Vec<Check> {
        vec![self.sender.check().await]
    }

    async fn export(&self, batch: &Batch) -> Result<Delivered, Refusal> {
        self.sender.export(batch).await
    }
}
