//! Finds the container in a cgroup path.

/// Length of the ids of Docker, containerd, CRI-O and Podman.
const ID: usize = 64;

/// A container as named by the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Container<'a> {
    /// An id, or the name of an LXC container.
    pub id: &'a str,
    /// The runtime; not every path contains it.
    pub runtime: Option<&'static str>,
}

/// Prefixes and parents that identify a runtime.
const RUNTIMES: &[(&str, &str)] = &[
    ("docker", "docker"),
    ("cri-containerd", "containerd"),
    ("nerdctl", "containerd"),
    ("crio", "cri-o"),
    ("libpod", "podman"),
    ("libpod_parent", "podman"),
    ("buildkit", "buildkit"),
];

/// The innermost container of the path.
/// Runtimes write the id as a component of its own (`/kubepods/pod.../<id>`), after a prefix (`docker-<id>.scope`) or
/// after colons (`system.slice:cri-containerd:<id>`). The monitor process of a container is in a sibling cgroup with a
/// similar name.
pub fn container(cgroup: &str) -> Option<Container<'_>> {
    let mut components = cgroup.rsplit('/').peekable();
    while let Some(component) = components.next() {
        let above = components.peek().copied().unwrap_or_default();
        let container = by_id(component, above)
            .or_else(|| by_buildkit(component, above))
            .or_else(|| by_lxc(component, above));
        if container.is_some() {
            return container;
        }
    }
    None
}

fn by_id<'a>(component: &'a str, above: &str) -> Option<Container<'a>> {
    let component = component.strip_suffix(".scope").unwrap_or(component);
    let (prefix, id) = match component.rfind(['-', ':']) {
        Some(at) => component.split_at(at),
        None => ("", component),
    };
    let id = id.trim_start_matches(['-', ':']);
    if !is_container_id(id) || prefix.ends_with("conmon") {
        return None;
    }
    let who = match prefix {
        "" => above,
        _ => prefix.rsplit(':').next().unwrap_or(prefix),
    };
    let known_runtime = RUNTIMES.iter().find(|(name, _)| *name == who);
    Some(Container {
        id,
        runtime: known_runtime.map(|(_, runtime)| *runtime),
    })
}

/// Whether it is a generated id, not one chosen by a user.
pub fn is_container_id(text: &str) -> bool {
    let is_digit = |byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    text.len() == ID && text.bytes().all(is_digit)
}

/// Candidates for containers with user-chosen ids, innermost first: containerd's are named `namespace/id`. Excludes
/// systemd's units.
pub fn parents_and_names(cgroup: &str) -> impl Iterator<Item = &str> {
    let mut rest = cgroup;
    std::iter::from_fn(move || {
        loop {
            let (above, name) = rest.rsplit_once('/')?;
            let (_, parent) = above.rsplit_once('/')?;
            let both = rest.get(above.len() - parent.len()..)?;
            rest = above;
            let is_chosen = |name: &str| !name.is_empty() && !is_unit(name);
            if is_chosen(name) && is_chosen(parent) {
                return Some(both);
            }
        }
    })
}

fn is_unit(name: &str) -> bool {
    let kinds = [".slice", ".scope", ".service", ".socket", ".mount"];
    kinds.iter().any(|kind| name.ends_with(kind))
}

/// Build steps have shorter ids.
fn by_buildkit<'a>(component: &'a str, above: &str) -> Option<Container<'a>> {
    let is_id = component.len() >= 20 && component.bytes().all(|it| it.is_ascii_alphanumeric());
    (above == "buildkit" && is_id).then_some(Container {
        id: component,
        runtime: Some("buildkit"),
    })
}

fn by_lxc<'a>(component: &'a str, above: &str) -> Option<Container<'a>> {
    let name = match above {
        "lxc" | "lxc.payload" => component,
        _ => component.strip_prefix("lxc.payload.")?,
    };
    (!name.is_empty()).then_some(Container {
        id: name,
        runtime: Some("lxc"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn container_names_follow_a_parent() {
        for (path, expected) in [
            ("/default/demo", &["default/demo"][..]),
            ("/a/b/c", &["b/c", "a/b"]),
            ("/system.slice/ssh.service", &[]),
            ("/system.slice/ssh.service/a/b", &["a/b"]),
            ("/user.slice/user-0.slice/session-1.scope", &[]),
            ("/default", &[]),
            ("/default/", &[]),
            ("//demo", &[]),
            ("/", &[]),
            ("", &[]),
        ] {
            let candidates: Vec<&str> = parents_and_names(path).collect();
            assert_eq!(candidates, expected, "{path}");
        }
    }

    #[test]
    fn finds_the_innermost_container_and_its_runtime() {
        let id_a = "0123456789abcdef".repeat(4);
        let id_b = "f".repeat(64);
        for (path, expected, runtime) in [
            ("/docker/A", "A", "docker"),
            ("/system.slice/docker-A.scope", "A", "docker"),
            ("/docker/A/docker/B", "B", "docker"),
            ("/docker/A/default/B", "B", ""),
            ("/docker/A/lxc.payload.web", "web", "lxc"),
            (
                "/docker/A/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod1.slice/cri-containerd-B.scope",
                "B",
                "containerd",
            ),
            ("/docker/A/kubelet/kubepods/besteffort/pod11-22/B", "B", ""),
            ("/docker/A/system.slice/cron.service", "A", "docker"),
            ("/kubepods/besteffort/pod11-22/A", "A", ""),
            (
                "/kubepods.slice/kubepods-pod1.slice/cri-containerd-A.scope",
                "A",
                "containerd",
            ),
            (
                "/kubepods.slice/kubepods-pod1.slice/crio-A.scope/nested",
                "A",
                "cri-o",
            ),
            (
                "/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod1.slice/cri-containerd-A.scope",
                "A",
                "containerd",
            ),
            (
                "/system.slice/containerd.service/kubepods-pod1.slice:cri-containerd:A",
                "A",
                "containerd",
            ),
            ("/system.slice/nerdctl-A.scope", "A", "containerd"),
            ("/default/A", "A", ""),
            ("/machine.slice/libpod-A.scope/container", "A", "podman"),
            (
                "/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-A.scope",
                "A",
                "podman",
            ),
            ("/libpod_parent/libpod-A", "A", "podman"),
            ("/libpod_parent/conmon", "", ""),
            ("/libpod_parent/A", "A", "podman"),
            ("/machine.slice/libpod-conmon-A.scope", "", ""),
            (
                "/docker/buildkit/abcdefghijklmnopqrstuvwxy",
                "abcdefghijklmnopqrstuvwxy",
                "buildkit",
            ),
            ("/../../kubepods/burstable/pod11-22/A", "A", ""),
            ("/ecs/task/A", "A", ""),
            ("/lxc/web", "web", "lxc"),
            ("/lxc.payload.web/init.scope", "web", "lxc"),
            ("/lxc.payload.web/docker/A", "A", "docker"),
            ("/lxc.payload/web", "web", "lxc"),
            ("/kubepods/burstable/pod11-22/crio-A", "A", "cri-o"),
            (
                "/kubepods.slice/kubepods-pod1.slice/crio-conmon-A.scope",
                "",
                "",
            ),
            (
                "/user.slice/user-1000.slice/user@1000.service/user.slice/docker-A.scope",
                "A",
                "docker",
            ),
            ("/lxc.monitor.web", "", ""),
            ("/lxc.payload.", "", ""),
            ("/user.slice/user-1000.slice/session-3.scope", "", ""),
            ("/docker/Af", "", ""),
            ("/docker/0af7fc56", "", ""),
            ("/docker/buildkit", "", ""),
            ("/", "", ""),
            ("", "", ""),
        ] {
            let path = path.replace('A', &id_a).replace('B', &id_b);
            let expected = expected.replace('A', &id_a).replace('B', &id_b);
            let actual = container(&path);
            assert_eq!(actual.map_or("", |it| it.id), expected, "{path}");
            let actual = actual.and_then(|it| it.runtime);
            assert_eq!(actual.unwrap_or_default(), runtime, "{path}");
        }
    }
}
