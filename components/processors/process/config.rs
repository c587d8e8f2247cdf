//! The options of `process`.

use profcol_config::{Config, Problems};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Adds attributes of the profiled processes, read from this host.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
pub struct ProcessConfig {
    /// Add the command-line arguments, up to 4 KiB. Disabled by default since they may contain secrets.
    pub command_args: bool,
    /// Names of environment variables to add as `process.environment_variable.<name>`.
    pub environment_variables: Vec<String>,
    /// Add `service.name` if it is missing: from the process's environment, its Kubernetes owner or its executable.
    pub service_name: bool,
    /// Add the resource attributes that the process publishes for profilers (OpenTelemetry's process context, OTEP 4719), such as
    /// `service.name`, `service.instance.id` and `deployment.environment.name`.
    pub process_context: bool,
    /// Treat profiles as this host's if they have neither a host nor the creation time of their process.
    pub assume_local: bool,
}

impl Default for ProcessConfig {
    fn default() -> Self {
        Self {
            command_args: false,
            environment_variables: Vec::new(),
            service_name: true,
            process_context: true,
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
