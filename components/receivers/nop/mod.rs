//! Receives nothing: for tests and for pipelines without another receiver.

use async_trait::async_trait;
use profcol_component::{
    BuildContext, BuildError, Factory, Output, Receiver, RunError, Stability, Stop,
};
use profcol_config::Config;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub struct Nop;

/// Receives nothing.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
pub struct NopConfig {}

impl Config for NopConfig {}

impl Factory for Nop {
    const NAME: &'static str = "nop";
    const STABILITY: Stability = Stability::Beta;
    type Config = NopConfig;
    type Component = dyn Receiver;

    fn build(_: &NopConfig, _: &BuildContext) -> Result<Box<dyn Receiver>, BuildError> {
        Ok(Box::new(Nop))
    }
}

#[async_trait]
impl Receiver for Nop {
    async fn run(self: Box<Self>, _: Output, stop: Stop) -> Result<(), RunError> {
        stop.cancelled().await;
        Ok(())
    }
}
