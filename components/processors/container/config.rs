//! The options of `container`.

use profcol_config::{Config, Duration, Problems};
use regex::Regex;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A batch waits no longer, whatever is asked for.
const MAX_WAIT: Duration = Duration::from_secs(60);

/// Adds the container that a process runs in.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
pub struct ContainerConfig {
    /// Container runtimes to query for names, images and labels.
    pub sockets: SocketsConfig,
    /// Which labels to add as `container.label.<key>`: regular expressions for whole keys.
    pub labels: Vec<String>,
    /// How long a batch may wait for the name of a container that is not known yet, up to `1m`; `0s` does not. Keep it below the
    /// interval at which batches come, or they pile up.
    pub wait_for: Duration,
}

/// The Unix sockets of container runtimes. Those that do not exist are looked for again.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Eq, Serialize)]
#[serde(default)]
pub struct SocketsConfig {
    /// If false, use only the cgroup path.
    pub enabled: bool,
    /// Those that speak Docker's API: Docker's and Podman's.
    pub docker: Vec<String>,
    /// Those of containerd; all of its namespaces are asked for, but Docker's.
    pub containerd: Vec<String>,
    /// Those that speak the interface of Kubernetes (CRI): CRI-O's.
    pub cri: Vec<String>,
}

impl Default for SocketsConfig {
    fn default() -> Self {
        let all = |paths: &[&str]| paths.iter().map(|&path| path.to_owned()).collect();
        Self {
            enabled: true,
            docker: all(&["/run/docker.sock", "/run/podman/podman.sock"]),
            containerd: all(&[
                "/run/containerd/containerd.sock",
                "/run/k3s/containerd/containerd.sock",
            ]),
            cri: all(&["/run/crio/crio.sock"]),
        }
    }
}

impl Config for ContainerConfig {
    fn validate(&self, problems: &mut Problems) {
        let sockets = &self.sockets;
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
                        format!("{path:?} is not the whole path of a Unix socket"),
                    );
                }
            }
        }
        for (position, pattern) in self.labels.iter().enumerate() {
            if let Err(error) = whole(pattern) {
                let at = format!("labels::{position}");
                problems.add(
                    &at,
                    format!("{pattern:?} is no regular expression: {error}"),
                );
            }
        }
        if self.wait_for.is_negative() || self.wait_for > MAX_WAIT {
            problems.add("wait_for", "must be between 0s and 1m");
        }
    }
}

/// A pattern that has to match all of a text.
pub(super) fn whole(pattern: &str) -> Result<Regex, regex::Error> {
    Regex::new(&format!("^(?:{pattern})$"))
}
