//! The container runtimes to query.

use regex::Regex;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
pub struct ContainerSettings {
    /// Container runtimes to query for names, images and labels.
    pub sockets: SocketsConfig,
    /// Labels to add as `container.label.<key>`: regular expressions that match whole keys.
    pub labels: Vec<String>,
}

/// The Unix sockets of container runtimes. Missing sockets are retried.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Eq, Serialize)]
#[serde(default)]
pub struct SocketsConfig {
    /// If false, use only the cgroup path.
    pub enabled: bool,
    /// Sockets with Docker's API: Docker and Podman.
    pub docker: Vec<String>,
    /// Sockets of containerd; all namespaces except Docker's are queried.
    pub containerd: Vec<String>,
    /// Sockets with the Kubernetes container runtime interface (CRI): CRI-O.
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

/// Compiles a pattern that must match the whole text.
pub fn whole(pattern: &str) -> Result<Regex, regex::Error> {
    Regex::new(&format!("^(?:{pattern})$"))
}
