//! Kubernetes pods in cgroup paths.

/// The uid of the innermost pod: `…/kubepods-burstable-pod<uid>.slice/…` with systemd, where `-` becomes `_`,
/// `…/burstable/pod<uid>/…` without. For a static pod it is the hash of its manifest.
pub fn pod_uid(cgroup: &str) -> Option<String> {
    cgroup.rsplit('/').find_map(of_component)
}

fn of_component(component: &str) -> Option<String> {
    let uid = match component.strip_suffix(".slice") {
        Some(slice) => {
            let (before, uid) = slice.rsplit_once("-pod")?;
            // Also inside another slice, as in kind.
            before.contains("kubepods").then_some(uid)?
        }
        None => component.strip_prefix("pod")?,
    };
    let uid = uid.replace('_', "-");
    let is_uid = uid.len() == 36 || uid.len() == 32;
    let is_hex = |byte: u8| byte.is_ascii_hexdigit() || byte == b'-';
    (is_uid && uid.bytes().all(is_hex)).then_some(uid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_innermost_pod() {
        let uid = "0a1b2c3d-4e5f-6789-abcd-ef0123456789";
        let hash = "0123456789abcdef0123456789abcdef";
        let container = "c".repeat(64);
        let check = |path: &str, expected: Option<&str>| {
            let path = path
                .replace("UNDERSCORED", &uid.replace('-', "_"))
                .replace("UID", uid)
                .replace("HASH", hash)
                .replace("ID", &container);
            assert_eq!(pod_uid(&path).as_deref(), expected, "{path}");
        };
        check("/kubepods/burstable/podUID/ID", Some(uid));
        check("/kubepods/podUID", Some(uid));
        check("/kubepods/besteffort/podHASH/ID", Some(hash));
        check(
            "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podUNDERSCORED.slice/cri-containerd-ID.scope",
            Some(uid),
        );
        check(
            "/kubepods.slice/kubepods-podUNDERSCORED.slice/crio-ID.scope",
            Some(uid),
        );
        check(
            "/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-podHASH.slice/x",
            Some(hash),
        );
        check("/machine.slice/libpod-ID.scope", None);
        check("/system.slice/docker-ID.scope", None);
        check("/user.slice/my-podUNDERSCORED.slice", None);
        check("/kubepods/podcast", None);
        check("", None);
    }
}
