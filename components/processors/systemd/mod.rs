//! Says to which of systemd's units a process belongs, by the path of its cgroup, and on which machine.

#[cfg(test)]
mod tests;

use std::sync::OnceLock;

use async_trait::async_trait;
use profcol_component::{
    Answer, Batch, BuildContext, BuildError, Consumer, Factory, Processor, Stability, StartError,
};
use profcol_config::Config;
use profcol_processes::{Host, Units};
use profcol_profile::{Attributes, Value};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::shared::local::is_of;
use crate::shared::lookup::{CGROUP, add_missing, text_of};

pub struct SystemdProcessor {
    config: SystemdConfig,
    /// From the start on.
    host: OnceLock<Host>,
}

/// Says to which of systemd's units a process belongs.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
pub struct SystemdConfig {
    /// Take profiles that do not say which host they come from for this host's, whose machine id they get.
    pub assume_local: bool,
}

impl Config for SystemdConfig {}

impl Factory for SystemdProcessor {
    const NAME: &'static str = "systemd";
    type Config = SystemdConfig;
    type Component = dyn Processor;
    const STABILITY: Stability = Stability::Alpha;

    fn build(config: &SystemdConfig, _: &BuildContext) -> Result<Box<dyn Processor>, BuildError> {
        Ok(Box::new(SystemdProcessor {
            config: config.clone(),
            host: OnceLock::new(),
        }))
    }
}

#[async_trait]
impl Processor for SystemdProcessor {
    async fn start(&self) -> Result<(), StartError> {
        self.host.get_or_init(Host::read);
        Ok(())
    }

    async fn process(&self, mut batch: Batch, next: &dyn Consumer) -> Answer {
        batch.profiles.update_resources(|resource| {
            let attributes = &mut resource.attributes;
            let host = self
                .host
                .get()
                .filter(|host| is_of(host, attributes).unwrap_or(self.config.assume_local));
            add(attributes, host)
        });
        next.consume(batch).await
    }
}

/// Adds what is missing; says whether there was something to add. `host` is the one that runs the
/// process, where that is this one.
pub fn add(attributes: &mut Attributes, host: Option<&Host>) -> bool {
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
        ("systemd.machine_id", text(host.and_then(Host::machine_id))),
    ];
    add_missing(attributes, found)
}
