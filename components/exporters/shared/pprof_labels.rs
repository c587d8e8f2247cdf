//! The attributes that become labels in pprof files.

use profcol_pprof::{Keys, LabelSelection};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Attributes written as labels, by key; `"*"` means all except those in `exclude`.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
pub struct Labels {
    /// Resource attributes: of processes, containers, hosts.
    pub resource: Vec<String>,
    /// Profile attributes.
    pub profile: Vec<String>,
    /// Sample attributes: of threads, CPUs.
    pub sample: Vec<String>,
    /// Attributes that `"*"` does not include: by default those that duplicate other labels,
    /// mappings or frames. A key listed explicitly in `resource`, `profile` or `sample` is kept.
    pub exclude: Vec<String>,
    /// Write span links of samples as the labels `trace_id` and `span_id`.
    pub links: bool,
}

const ALL: &str = "*";
/// Duplicated by other labels, mappings or frames.
const REPEATED: &[&str] = &[
    // By `process.pid`.
    "process.creation.time",
    "process.parent_pid",
    "process.vpid",
    // By `process.executable.name` and the mappings.
    "process.executable.build_id.gnu",
    "process.executable.build_id.go",
    "process.executable.build_id.htlhash",
    "process.executable.compiler",
    "process.executable.path",
    "process.executable.static",
    "process.executable.stripped",
    // By the names of the container, the pod and the unit.
    "container.image.id",
    "container.image.repo_digests",
    "container.runtime.name",
    "k8s.pod.start_time",
    "k8s.pod.uid",
    "process.linux.cgroup",
    "systemd.invocation_id",
    "systemd.slice",
    "systemd.user_slice",
    // By `process.owner` and `host.name`.
    "host.id",
    "systemd.machine_id",
    "systemd.owner_uid",
    // By the link.
    "process.context.label.span_id",
    "process.context.label.trace_id",
    // By the last frame.
    "profcol.stack.end_reason",
];
impl Default for Labels {
    fn default() -> Self {
        let all = || vec![ALL.to_owned()];
        Self {
            resource: all(),
            profile: all(),
            sample: all(),
            exclude: REPEATED.iter().map(|&key| key.to_owned()).collect(),
            links: true,
        }
    }
}

impl Labels {
    pub(crate) fn selection(&self) -> LabelSelection {
        LabelSelection {
            resource: self.keys(&self.resource),
            profile: self.keys(&self.profile),
            sample: self.keys(&self.sample),
            links: self.links,
        }
    }

    fn keys(&self, list: &[String]) -> Keys {
        if list.iter().any(|key| key == ALL) {
            let excluded = self.exclude.iter().filter(|key| !list.contains(key));
            return Keys::AllBut(excluded.cloned().collect());
        }
        Keys::Only(list.iter().cloned().collect())
    }
}
