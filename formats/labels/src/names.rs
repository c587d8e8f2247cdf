//! The label names of attributes.

use std::borrow::Cow;

use profcol_otlp::json;
use profcol_profile::Value;

/// Another name of an attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Alias {
    /// A key, or a key prefix that ends in `*`: the rest of the key is appended to `label`.
    pub attribute: &'static str,
    /// Parca Agent's name.
    pub label: &'static str,
    pub source: LabelSource,
    /// Only for containers of this runtime (`container.runtime.name`).
    pub runtime: Option<&'static str>,
}

/// Where the attribute is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LabelSource {
    Resource,
    Sample,
    /// On the resource; the label is `true` if the attribute is present, whatever its value.
    Presence,
}

const fn of_resource(attribute: &'static str, label: &'static str) -> Alias {
    Alias {
        attribute,
        label,
        source: LabelSource::Resource,
        runtime: None,
    }
}

const fn of_sample(attribute: &'static str, label: &'static str) -> Alias {
    Alias {
        source: LabelSource::Sample,
        ..of_resource(attribute, label)
    }
}

const fn presence(attribute: &'static str, label: &'static str) -> Alias {
    Alias {
        source: LabelSource::Presence,
        ..of_resource(attribute, label)
    }
}

const fn of_container(
    attribute: &'static str,
    label: &'static str,
    runtime: &'static str,
) -> Alias {
    Alias {
        runtime: Some(runtime),
        ..of_resource(attribute, label)
    }
}

/// The table in `docs/labels.md` is generated from this one.
pub const ALIASES: &[Alias] = &[
    of_resource("host.name", "node"),
    of_resource("process.comm", "comm"),
    of_sample("cpu.logical_number", "cpu"),
    of_sample("thread.id", "thread_id"),
    of_sample("thread.name", "thread_name"),
    of_resource("process.pid", "__meta_process_pid"),
    of_resource("process.parent_pid", "__meta_process_ppid"),
    of_resource("process.command_args", "__meta_process_cmdline"),
    of_resource("process.command_line", "__meta_process_cmdline"),
    of_resource("process.linux.cgroup", "__meta_process_cgroup"),
    of_resource("process.executable.name", "__meta_process_executable_name"),
    of_resource(
        "process.executable.build_id.htlhash",
        "__meta_process_executable_file_id",
    ),
    of_resource(
        "process.executable.build_id.gnu",
        "__meta_process_executable_build_id",
    ),
    of_resource(
        "process.executable.compiler",
        "__meta_process_executable_compiler",
    ),
    of_resource(
        "process.executable.static",
        "__meta_process_executable_static",
    ),
    of_resource(
        "process.executable.stripped",
        "__meta_process_executable_stripped",
    ),
    of_resource("process.environment_variable.*", "__meta_env_var_*"),
    of_resource("os.kernel.release", "__meta_system_kernel_release"),
    of_resource("os.kernel.machine", "__meta_system_kernel_machine"),
    of_resource("k8s.namespace.name", "__meta_kubernetes_namespace"),
    of_resource("k8s.pod.name", "__meta_kubernetes_pod_name"),
    of_resource("k8s.pod.uid", "__meta_kubernetes_pod_uid"),
    of_resource("k8s.pod.ip", "__meta_kubernetes_pod_ip"),
    of_resource("k8s.node.name", "__meta_kubernetes_node_name"),
    of_resource("k8s.node.name", "__meta_kubernetes_pod_node_name"),
    of_resource("k8s.pod.host_ip", "__meta_kubernetes_pod_host_ip"),
    of_resource("k8s.pod.phase", "__meta_kubernetes_pod_phase"),
    of_resource("k8s.pod.ready", "__meta_kubernetes_pod_ready"),
    of_resource(
        "k8s.pod.controller.kind",
        "__meta_kubernetes_pod_controller_kind",
    ),
    of_resource(
        "k8s.pod.controller.name",
        "__meta_kubernetes_pod_controller_name",
    ),
    of_resource("k8s.container.name", "__meta_kubernetes_pod_container_name"),
    of_resource("k8s.container.init", "__meta_kubernetes_pod_container_init"),
    of_resource(
        "k8s.container.image",
        "__meta_kubernetes_pod_container_image",
    ),
    of_resource("container.id", "__meta_kubernetes_pod_container_id"),
    of_resource("k8s.pod.label.*", "__meta_kubernetes_pod_label_*"),
    presence("k8s.pod.label.*", "__meta_kubernetes_pod_labelpresent_*"),
    of_resource("k8s.pod.annotation.*", "__meta_kubernetes_pod_annotation_*"),
    presence(
        "k8s.pod.annotation.*",
        "__meta_kubernetes_pod_annotationpresent_*",
    ),
    of_resource("k8s.node.label.*", "__meta_kubernetes_node_label_*"),
    presence("k8s.node.label.*", "__meta_kubernetes_node_labelpresent_*"),
    of_resource(
        "k8s.node.annotation.*",
        "__meta_kubernetes_node_annotation_*",
    ),
    presence(
        "k8s.node.annotation.*",
        "__meta_kubernetes_node_annotationpresent_*",
    ),
    of_container("container.id", "__meta_docker_container_id", "docker"),
    of_container("container.name", "__meta_docker_container_name", "docker"),
    of_container(
        "container.label.*",
        "__meta_docker_container_label_*",
        "docker",
    ),
    Alias {
        runtime: Some("docker"),
        ..presence(
            "container.label.*",
            "__meta_docker_container_labelpresent_*",
        )
    },
    of_container(
        "container.id",
        "__meta_docker_build_kit_container_id",
        "buildkit",
    ),
    of_container(
        "container.id",
        "__meta_containerd_container_id",
        "containerd",
    ),
    of_container(
        "container.id",
        "__meta_containerd_container_name",
        "containerd",
    ),
    of_container(
        "container.label.*",
        "__meta_containerd_container_label_*",
        "containerd",
    ),
    Alias {
        runtime: Some("containerd"),
        ..presence(
            "container.label.*",
            "__meta_containerd_container_labelpresent_*",
        )
    },
    of_resource("containerd.namespace", "__meta_containerd_pod_name"),
    of_container("container.id", "__meta_lxc_container_id", "lxc"),
];

/// The label that Parca Agent sends for an attribute; `None` if it only shows the attribute to rules.
pub fn label_sent_for(attribute: &str, source: LabelSource) -> Option<&'static str> {
    let alias = sent(source).find(|alias| alias.attribute == attribute);
    alias.map(|alias| alias.label)
}

/// The attribute of a label that Parca Agent sends without any rule.
pub fn attribute_of(label: &str, source: LabelSource) -> Option<&'static str> {
    let alias = sent(source).find(|alias| alias.label == label);
    alias.map(|alias| alias.attribute)
}

fn sent(source: LabelSource) -> impl Iterator<Item = &'static Alias> {
    let aliases = ALIASES.iter();
    aliases.filter(move |alias| alias.source == source && !alias.label.starts_with("__"))
}

// === impl Alias ===

impl Alias {
    /// The label for an attribute with this key.
    pub fn label_for(&self, key: &str) -> Option<Cow<'static, str>> {
        match (
            self.attribute.strip_suffix('*'),
            self.label.strip_suffix('*'),
        ) {
            (Some(before), Some(label)) => {
                let rest = key.strip_prefix(before).filter(|rest| !rest.is_empty())?;
                Some(Cow::Owned(format!("{label}{}", sanitized(rest))))
            }
            _ => (key == self.attribute).then_some(Cow::Borrowed(self.label)),
        }
    }
}

/// Replaces each character that Prometheus label names do not allow by `_`.
pub fn sanitized(name: &str) -> Cow<'_, str> {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if name.chars().all(fits) {
        return Cow::Borrowed(name);
    }
    let sanitized = name.chars().map(|c| if fits(c) { c } else { '_' });
    Cow::Owned(sanitized.collect())
}

/// The label value; `None` if it would be empty.
pub fn text(value: &Value) -> Option<Cow<'_, str>> {
    let text = match value {
        Value::Empty => return None,
        Value::Str(text) => Cow::Borrowed(&**text),
        // Joined like a command line.
        Value::Array(items) if items.iter().all(|item| item.as_str().is_some()) => {
            let items: Vec<&str> = items.iter().filter_map(Value::as_str).collect();
            Cow::Owned(items.join(" "))
        }
        Value::Int(number) => Cow::Owned(number.to_string()),
        Value::Bool(flag) => Cow::Borrowed(if *flag { "true" } else { "false" }),
        Value::Double(number) => Cow::Owned(number.to_string()),
        other => Cow::Owned(json::value_text(other)),
    };
    (!text.is_empty()).then_some(text)
}
