//! The options of `process`.

use profcol_config::{Config, Problems};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Adds what this host knows of the processes that were profiled.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
pub struct ProcessConfig {
    /// Also the arguments, up to 4 KiB of them. They may hold secrets, hence off.
    pub command_args: bool,
    /// Variables of the environment, by name; each becomes `process.environment_variable.<name>`.
    pub environment_variables: Vec<String>,
    /// `service.name` where it is missing, from the process's environment, its Kubernetes owner or its executable.
    pub service_name: bool,
    /// Take profiles that do not say which host they come from, nor when their process was created, for this host's.
    pub assume_local: bool,
}

impl Default for ProcessConfig {
    fn default() -> Self {
        Self {
            command_args: false,
            environment_variables: Vec::new(),
            service_name: true,
            assume_local: false,
        }
    }
}

impl Config for ProcessConfig {
    fn validate(&self, problems: &mut Problems) {
        for (position, name) in self.environment_variables.iter().enumerate() {
            if name.is_empty() || name.contains(['=', '*', '\0']) {
                problems.add(
                    &format!("environment_variables::{position}"),
                    format!("{name:?} is not the name of a variable; patterns are not possible"),
                );
            }
        }
    }
}
