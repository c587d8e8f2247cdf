//! Finds the container in the path of a cgroup.

/// Digits of the ids that Docker, containerd, CRI-O and Podman give.
const ID: usize = 64;

/// A container as the path tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Container<'a> {
    /// An id, or the name of an LXC container.
    pub id: &'a str,
    /// Who runs it; not every path says so.
    pub runtime: Option<&'static str>,
}

/// Prefixes and parents by which runtimes are known.
const RUNTIMES: &[(&str, &str)] = &[
    ("docker", "docker"),
    ("cri-containerd", "containerd"),
    ("nerdctl", "containerd"),
    ("crio", "cri-o"),
    ("libpod", "podman"),
    ("libpod_parent", "podman"),
    ("buildkit", "buildkit"),
];

/// The innermost container on the way.
///
/// Runtimes write the id as a component of its own (`/kubepods/pod.../<id>`), behind a prefix
/// (`docker-<id>.scope`) or behind colons (`system.slice:cri-containerd:<id>`). The process that
/// watches a container from outside stands beside it, in a cgroup named alike.
pub fn container(cgroup: &str) -> Option<Container<'_>> {
    let mut components = cgroup.rsplit('/').peekable();
    while let Some(component) = components.next() {
        let above = components.peek().copied().unwrap_or_default();
        let found = by_id(component, above)
            .or_else(|| by_buildkit(component, above))
            .or_else(|| by_lxc(component, above));
        if found.is_some() {
            return found;
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
    let known = RUNTIMES.iter().find(|(name, _)| *name == who);
    Some(Container {
        id,
        runtime: known.map(|(_, runtime)| *runtime),
    })
}

/// Whether it is one of those that nobody chose.
pub fn is_container_id(text: &str) -> bool {
    let is_digit = |byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    text.len() == ID && text.bytes().all(is_digit)
}

/// What may be a container whose id somebody chose, the innermost first: containerd's are called
/// `namespace/id`. What is systemd's is not among them.
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

/// Steps of a build have shorter ids.
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
    fn names_of_containers_stand_below_a_parent() {
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
            let found: Vec<&str> = parents_and_names(path).collect();
            assert_eq!(found, expected, "{path}");
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
            let found = container(&path);
            assert_eq!(found.map_or("", |it| it.id), expected, "{path}");
            let found = found.and_then(|it| it.runtime);
            assert_eq!(found.unwrap_or_default(), runtime, "{path}");
        }
    }
}
