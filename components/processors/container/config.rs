//! The options of `container`.

use profcol_config::{Config, Duration, Problems};
use profcol_metadata::container::{ContainerSettings, whole};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Upper limit of `wait_for`.
const MAX_WAIT: Duration = Duration::from_secs(60);

/// Adds the container that a process runs in.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
pub struct ContainerConfig {
    #[serde(flatten)]
    pub container: ContainerSettings,
    /// How long a batch may wait for the name of a container that is not known yet, up to `1m`; `0s` disables waiting.
    /// Keep it below the interval between batches, or they pile up.
    pub wait_for: Duration,
}

impl Config for ContainerConfig {
    fn validate(&self, problems: &mut Problems) {
        let sockets = &self.container.sockets;
        for (kind, paths) in [
            ("docker", &sockets.docker),
            ("containerd", &sockets.containerd),
            ("cri", &sockets.cri),
        ] {
            for (position, path) in paths.iter().enumerate() {
                if !path.starts_with('/') {
                    let at = format!("sockets::{kind}::{position}");
                    problems.add(
                        &at,
                        format!("{path:?} is not an absolute path of a Unix socket"),
                    );
                }
            }
        }
        for (position, pattern) in self.container.labels.iter().enumerate() {
            if let Err(error) = whole(pattern) {
                let at = format!("labels::{position}");
                problems.add(
                    &at,
                    format!("invalid regular expression {pattern:?}: {error}"),
                );
            }
        }
        if self.wait_for.is_negative() || self.wait_for > MAX_WAIT {
            problems.add("wait_for", "must be between 0s and 1m");
        }
    }
}
