//! Says to which of systemd's units a process belongs, by the path of its cgroup.

#[cfg(test)]
mod tests;

use async_trait::async_trait;
use profcol_component::{
    Answer, Batch, BuildContext, BuildError, Consumer, Factory, Processor, Stability,
};
use profcol_config::Config;
use profcol_processes::Units;
use profcol_profile::{Attributes, Value};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::shared::lookup::{CGROUP, add_missing, text_of};

pub struct SystemdProcessor;

/// Says to which of systemd's units a process belongs.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
pub struct SystemdConfig {}

impl Config for SystemdConfig {}

impl Factory for SystemdProcessor {
    const NAME: &'static str = "systemd";
    type Config = SystemdConfig;
    type Component = dyn Processor;
    const STABILITY: Stability = Stability::Alpha;

    fn build(_: &SystemdConfig, _: &BuildContext) -> Result<Box<dyn Processor>, BuildError> {
        Ok(Box::new(SystemdProcessor))
    }
}

#[async_trait]
impl Processor for SystemdProcessor {
    async fn process(&self, mut batch: Batch, next: &dyn Consumer) -> Answer {
        batch
            .profiles
            .update_resources(|resource| add(&mut resource.attributes));
        next.consume(batch).await
    }
}

/// Adds what is missing; says whether there was something to add.
pub fn add(attributes: &mut Attributes) -> bool {
    let Some(cgroup) = text_of(attributes, CGROUP) else {
        return false;
    };
    let units = Units::of(&cgroup);
    let text = |text: Option<&str>| text.map(Value::from);
    let found = [
        ("systemd.unit", text(units.unit)),
        ("systemd.slice", text(units.slice)),
        ("systemd.user_unit", text(units.user_unit)),
        ("systemd.user_slice", text(units.user_slice)),
        ("systemd.session", text(units.session)),
        (
            "systemd.owner_uid",
            units.owner.map(|owner| i64::from(owner).into()),
        ),
        ("systemd.machine", text(units.machine)),
    ];
    add_missing(attributes, found)
}
