//! Finds the container in the path of a cgroup.

/// Digits of the ids that Docker, containerd, CRI-O and Podman give.
const ID: usize = 64;

/// The innermost container on the way: an id, or the name of an LXC container.
///
/// Runtimes write the id as a component of its own (`/kubepods/pod.../<id>`), behind a prefix
/// (`docker-<id>.scope`) or behind colons (`system.slice:cri-containerd:<id>`). The process that
/// watches a container from outside stands beside it, in a cgroup named alike.
pub fn id(cgroup: &str) -> Option<&str> {
    let mut components = cgroup.rsplit('/').peekable();
    while let Some(component) = components.next() {
        let above = components.peek().copied();
        if let Some(id) = hex_id(component).or_else(|| lxc_name(component, above)) {
            return Some(id);
        }
    }
    None
}

fn hex_id(component: &str) -> Option<&str> {
    let component = component.strip_suffix(".scope").unwrap_or(component);
    let (prefix, id) = match component.rfind(['-', ':']) {
        Some(at) => component.split_at(at),
        None => ("", component),
    };
    let id = id.trim_start_matches(['-', ':']);
    let is_id = id.len() == ID
        && id
            .bytes()
            .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    (is_id && !prefix.ends_with("conmon")).then_some(id)
}

fn lxc_name<'a>(component: &'a str, above: Option<&str>) -> Option<&'a str> {
    let name = match above {
        Some("lxc") => Some(component),
        _ => component.strip_prefix("lxc.payload."),
    };
    name.filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_innermost_container() {
        let id_a = "0123456789abcdef".repeat(4);
        let id_b = "f".repeat(64);
        for (path, expected) in [
            ("/docker/A", "A"),
            ("/system.slice/docker-A.scope", "A"),
            ("/docker/A/docker/B", "B"),
            ("/docker/A/system.slice/cron.service", "A"),
            ("/kubepods/besteffort/pod11-22/A", "A"),
            (
                "/kubepods.slice/kubepods-pod1.slice/cri-containerd-A.scope",
                "A",
            ),
            (
                "/kubepods.slice/kubepods-pod1.slice/crio-A.scope/nested",
                "A",
            ),
            (
                "/system.slice/containerd.service/kubepods-pod1.slice:cri-containerd:A",
                "A",
            ),
            ("/machine.slice/libpod-A.scope/container", "A"),
            ("/machine.slice/libpod-conmon-A.scope", ""),
            ("/ecs/task/A", "A"),
            ("/lxc/web", "web"),
            ("/lxc.payload.web/init.scope", "web"),
            ("/lxc.monitor.web", ""),
            ("/user.slice/user-1000.slice/session-3.scope", ""),
            ("/docker/Af", ""),
            ("/docker/0af7fc56", ""),
            ("/", ""),
            ("", ""),
        ] {
            let path = path.replace('A', &id_a).replace('B', &id_b);
            let expected = expected.replace('A', &id_a).replace('B', &id_b);
            assert_eq!(id(&path).unwrap_or_default(), expected, "{path}");
        }
    }
}
