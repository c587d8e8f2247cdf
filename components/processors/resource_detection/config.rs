//! The options of `resource_detection`, as the Collector has them.

use profcol_config::{Config, Duration, Problems};
use regex::Regex;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::switches::Switches;
use super::{azure, docker, ec2, gcp, own_container, system};

/// Adds attributes of the host, its environment and its cloud.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
#[schemars(extend("x-refused" = {
    "fail_on_missing_metadata": "a start never fails for want of metadata; what failed is tried again, remove it",
    "retry": "what failed is tried again by itself, eight times within about four minutes, remove it",
    "attributes": "name them in `resource_attributes` of the detector",
}))]
pub struct ResourceDetectionConfig {
    /// Detectors to run. If several set the same attribute, the first in this list wins.
    pub detectors: Vec<Detector>,
    /// Whether what is detected replaces what a resource says already.
    #[serde(rename = "override")]
    pub replaces: bool,
    /// How long all of them together may take; the start waits so long at most.
    pub timeout: Duration,
    /// Interval between detections; `0s` detects once.
    pub refresh_interval: Duration,
    /// The detector `env`.
    pub env: EnvConfig,
    /// The detector `system`.
    pub system: SystemConfig,
    /// The detector `docker`.
    pub docker: DockerConfig,
    /// The detector `container`.
    pub container: OwnContainerConfig,
    /// The detector `ec2`.
    pub ec2: Ec2Config,
    /// The detector `gcp`.
    pub gcp: GcpConfig,
    /// The detector `azure`.
    pub azure: AzureConfig,
}

#[derive(Clone, Copy, Debug, Deserialize, JsonSchema, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
#[schemars(extend("x-unknown" = "invalid detector key:"))]
pub enum Detector {
    /// `OTEL_RESOURCE_ATTRIBUTES` of profcol's own environment.
    Env,
    /// The host.
    System,
    /// Docker's API.
    Docker,
    /// The container in which profcol runs itself.
    Container,
    /// Amazon's instance metadata.
    Ec2,
    /// Google's metadata server.
    Gcp,
    /// Azure's instance metadata.
    Azure,
}

#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
pub struct EnvConfig {
    /// Only these attributes; absent means all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allowlist: Option<Vec<String>>,
}

#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
pub struct SystemConfig {
    /// Where to find `host.name`; the first that knows it is right.
    pub hostname_sources: Vec<HostnameSource>,
    /// Which attributes to add: `<name>: {enabled: true}`.
    pub resource_attributes: Switches,
}

#[derive(Clone, Copy, Debug, Deserialize, JsonSchema, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
#[schemars(extend("x-unknown" = "invalid hostname source:"))]
pub enum HostnameSource {
    /// The kernel's host name.
    Os,
    /// The full name: by `/etc/hosts`, else the canonical name in DNS, else by the host's addresses.
    Dns,
    /// The canonical name in DNS.
    Cname,
    /// The name in DNS of the first of the host's addresses that has one.
    Lookup,
}

#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
pub struct DockerConfig {
    /// Which attributes to add: `<name>: {enabled: true}`.
    pub resource_attributes: Switches,
}

#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
pub struct OwnContainerConfig {
    /// Which attributes to add: `<name>: {enabled: false}`.
    pub resource_attributes: Switches,
}

#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
pub struct Ec2Config {
    /// Which tags of the instance to add as `ec2.tag.<key>`: regular expressions for their keys.
    pub tags: Vec<String>,
    /// Take the tags from the instance's metadata; needed for `tags`.
    pub tags_from_imds: bool,
    /// Which attributes to add: `<name>: {enabled: false}`.
    pub resource_attributes: Switches,
}

#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
#[schemars(extend("x-refused" = {
    "labels": "an instance's labels are not in its metadata, only in Google's compute API, which is not asked; remove it",
}))]
pub struct GcpConfig {
    /// Which attributes to add: `<name>: {enabled: false}`.
    pub resource_attributes: Switches,
}

#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
pub struct AzureConfig {
    /// Which tags of the machine to add as `azure.tag.<key>`: regular expressions for their keys.
    pub tags: Vec<String>,
    /// Which attributes to add: `<name>: {enabled: false}`.
    pub resource_attributes: Switches,
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

impl Default for SystemConfig {
    fn default() -> Self {
        Self {
            hostname_sources: vec![HostnameSource::Dns, HostnameSource::Os],
            resource_attributes: Switches::default(),
        }
    }
}

impl Config for ResourceDetectionConfig {
    fn validate(&self, problems: &mut Problems) {
        if self.timeout <= Duration::ZERO {
            problems.add("timeout", "must be positive: a start never waits for ever");
        }
        if self.refresh_interval.is_negative() {
            problems.add("refresh_interval", "must be non-negative");
        }
        if self.ec2.tags_from_imds && self.ec2.tags.is_empty() {
            problems.add(
                "ec2::tags",
                "missing: `tags_from_imds` takes those named here",
            );
        }
        if !self.ec2.tags_from_imds && !self.ec2.tags.is_empty() {
            problems.add(
                "ec2::tags",
                "Amazon's API is not asked for tags: set `tags_from_imds: true`, and allow tags in the instance's metadata",
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
                        format!("{pattern:?} is no regular expression: {error}"),
                    );
                }
            }
        }
    }
}
