//! The options of `resource_detection`: the Collector's.

use profcol_config::{Config, Duration, Problems};
use regex::Regex;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::azure::{self, AzureConfig};
use super::docker::{self, DockerConfig};
use super::ec2::{self, Ec2Config};
use super::env::EnvConfig;
use super::gcp::{self, GcpConfig};
use super::own_container::{self, OwnContainerConfig};
use super::system::{self, SystemConfig};

/// Adds attributes of the host, its environment and its cloud.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
#[schemars(extend("x-refused" = {
    "fail_on_missing_metadata": "startup never fails for missing metadata, failed detectors are retried; remove it",
    "retry": "failed detectors are always retried, eight times within about four minutes; remove it",
    "attributes": "name them in `resource_attributes` of the detector",
}))]
pub struct ResourceDetectionConfig {
    /// Detectors to run. If several set the same attribute, the first in this list wins.
    pub detectors: Vec<Detector>,
    /// Whether detected attributes replace existing ones.
    #[serde(rename = "override")]
    pub replaces: bool,
    /// Timeout for all detectors together; the start waits at most this long.
    pub timeout: Duration,
    /// Interval between detections; `0s` detects once.
    pub refresh_interval: Duration,
    /// The `env` detector.
    pub env: EnvConfig,
    /// The `system` detector.
    pub system: SystemConfig,
    /// The `docker` detector.
    pub docker: DockerConfig,
    /// The `container` detector.
    pub container: OwnContainerConfig,
    /// The `ec2` detector.
    pub ec2: Ec2Config,
    /// The `gcp` detector.
    pub gcp: GcpConfig,
    /// The `azure` detector.
    pub azure: AzureConfig,
}

#[derive(Clone, Copy, Debug, Deserialize, JsonSchema, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
#[schemars(extend("x-unknown" = "invalid detector key:"))]
pub enum Detector {
    /// `OTEL_RESOURCE_ATTRIBUTES` of profcol's own environment.
    Env,
    /// This host.
    System,
    /// Docker's API.
    Docker,
    /// The container that profcol runs in.
    Container,
    /// Amazon's instance metadata.
    Ec2,
    /// Google's metadata server.
    Gcp,
    /// Azure's instance metadata.
    Azure,
}

impl Default for ResourceDetectionConfig {
    fn default() -> Self {
        Self {
            detectors: vec![Detector::Env],
            replaces: true,
            timeout: Duration::from_secs(5),
            refresh_interval: Duration::ZERO,
            env: EnvConfig::default(),
            system: SystemConfig::default(),
            docker: DockerConfig::default(),
            container: OwnContainerConfig::default(),
            ec2: Ec2Config::default(),
            gcp: GcpConfig::default(),
            azure: AzureConfig::default(),
        }
    }
}

impl Config for ResourceDetectionConfig {
    fn validate(&self, problems: &mut Problems) {
        if self.timeout <= Duration::ZERO {
            problems.add("timeout", "must be positive: startup never waits forever");
        }
        if self.refresh_interval.is_negative() {
            problems.add("refresh_interval", "must be non-negative");
        }
        if self.ec2.tags_from_imds && self.ec2.tags.is_empty() {
            problems.add(
                "ec2::tags",
                "missing: `tags_from_imds` adds only the tags listed here",
            );
        }
        if !self.ec2.tags_from_imds && !self.ec2.tags.is_empty() {
            problems.add(
                "ec2::tags",
                "Amazon's API is not queried for tags: set `tags_from_imds: true`, and allow tags in the instance metadata",
            );
        }
        self.validate_sections(problems);
    }
}

impl Detector {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Env => "env",
            Self::System => "system",
            Self::Docker => "docker",
            Self::Container => "container",
            Self::Ec2 => "ec2",
            Self::Gcp => "gcp",
            Self::Azure => "azure",
        }
    }
}

impl ResourceDetectionConfig {
    fn validate_sections(&self, problems: &mut Problems) {
        for (section, switches, known) in [
            (
                "system",
                &self.system.resource_attributes,
                system::ATTRIBUTES,
            ),
            (
                "docker",
                &self.docker.resource_attributes,
                docker::ATTRIBUTES,
            ),
            (
                "container",
                &self.container.resource_attributes,
                own_container::ATTRIBUTES,
            ),
            ("ec2", &self.ec2.resource_attributes, ec2::ATTRIBUTES),
            ("gcp", &self.gcp.resource_attributes, gcp::ATTRIBUTES),
            ("azure", &self.azure.resource_attributes, azure::ATTRIBUTES),
        ] {
            problems.nested(&format!("{section}::resource_attributes"), |problems| {
                switches.validate(known, problems);
            });
        }
        for (section, tags) in [("ec2", &self.ec2.tags), ("azure", &self.azure.tags)] {
            for (position, pattern) in tags.iter().enumerate() {
                if let Err(error) = Regex::new(pattern) {
                    let at = format!("{section}::tags::{position}");
                    problems.add(
                        &at,
                        format!("invalid regular expression {pattern:?}: {error}"),
                    );
                }
            }
        }
    }
}
