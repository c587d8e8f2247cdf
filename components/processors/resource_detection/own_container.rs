//! The container that profcol runs in.

use std::fs;

use profcol_processes::{cgroup_in, container, is_container_id};
use profcol_profile::{Attributes, KeyValue};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::switches::{AttributeDefaults, Switches};

#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
pub struct OwnContainerConfig {
    /// Which attributes to add: `<name>: {enabled: false}`.
    pub resource_attributes: Switches,
}

pub(super) const ATTRIBUTES: AttributeDefaults =
    &[("container.id", true), ("container.runtime.name", true)];

/// Files that runtimes mount into a container from a directory per container.
const MOUNTED: [&str; 3] = ["/etc/hostname", "/etc/hosts", "/etc/resolv.conf"];

#[derive(Debug, PartialEq, Eq)]
pub(super) struct OwnContainer {
    pub id: String,
    pub runtime: Option<&'static str>,
}

/// Empty outside of a container.
pub(super) fn detect(switches: &Switches) -> Attributes {
    let mut attributes = Attributes::new();
    if let Some(own) = OwnContainer::find() {
        attributes.push(KeyValue::new("container.id", own.id.as_str()));
        let runtime = own
            .runtime
            .map(|it| KeyValue::new("container.runtime.name", it));
        attributes.extend(runtime);
    }
    switches.apply(ATTRIBUTES, &mut attributes);
    attributes
}

impl OwnContainer {
    pub fn find() -> Option<Self> {
        let read = |name| fs::read_to_string(format!("/proc/self/{name}")).unwrap_or_default();
        let is_pod = std::env::var_os("KUBERNETES_SERVICE_HOST").is_some();
        Self::parse(&read("cgroup"), &read("mountinfo"), is_pod)
    }

    /// In a cgroup namespace the path is hidden; then the mounts have the ID. In a pod they do not: there they
    /// belong to the pod's first container.
    pub(super) fn parse(cgroup: &str, mounts: &str, is_pod: bool) -> Option<Self> {
        let found = cgroup_in(cgroup).and_then(container);
        if let Some(found) = found {
            return Some(Self {
                id: found.id.to_owned(),
                runtime: found.runtime,
            });
        }
        match is_pod {
            true => None,
            false => mounts.lines().find_map(Self::by_mount),
        }
    }

    /// `/var/lib/docker/containers/<id>/hostname`, Podman's `…/overlay-containers/<id>/userdata/hostname`.
    fn by_mount(line: &str) -> Option<Self> {
        let mut fields = line.split(' ');
        let (source, mount_point) = (fields.nth(3)?, fields.next()?);
        if !MOUNTED.contains(&mount_point) {
            return None;
        }
        let names: Vec<&str> = source.split('/').collect();
        names.windows(2).find_map(|pair| {
            let &[above, id] = pair else { return None };
            let runtime = match above {
                "containers" => "docker",
                _ if above.ends_with("-containers") => "podman",
                _ => return None,
            };
            is_container_id(id).then(|| Self {
                id: id.to_owned(),
                runtime: Some(runtime),
            })
        })
    }
}
