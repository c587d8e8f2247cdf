//! Discards everything: for tests, and to measure the cost of a pipeline.

use async_trait::async_trait;
use profcol_component::{
    Batch, BuildContext, BuildError, Delivered, Delivery, Exporter, Factory, Refusal, Stability,
};
use profcol_config::Config;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub struct Nop;

/// Discards everything.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
pub struct NopConfig {}

impl Config for NopConfig {}

impl Factory for Nop {
    const NAME: &'static str = "nop";
    const STABILITY: Stability = Stability::Beta;
    type Config = NopConfig;
    type Component = dyn Exporter;

    fn build(_: &NopConfig, _: &BuildContext) -> Result<Box<dyn Exporter>, BuildError> {
        Ok(Box::new(Nop))
    }
}

#[async_trait]
impl Exporter for Nop {
    fn delivery(&self) -> Delivery {
        Delivery::inline()
    }

    async fn export(&self, _: &Batch) -> Result<Delivered, Refusal> {
        Ok(Delivered::default())
    }
}
